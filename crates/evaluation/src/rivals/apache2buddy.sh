# What apache2buddy looks at, a name and a number in each line. $1 is Apache's parent process.
set -u

# private NAME PROCESS..; one that has ended and waits for its parent has none. pmap(1) takes a few hundred at once.
private() {
    name=$1
    shift
    printf '%s\n' "$@" | xargs -n 64 pmap -d | awk -v name="$name" \
        '/writeable\/private/ { sub("K", "", $4); if ($4 + 0 > 0) print name, $4 }'
}

# By their command lines: mod_perl gives processes other names.
apaches() {
    ps -eo user=,pid=,args= | awk '$3 ~ /\/apache2$/ { print $1, $2 }'
}

# Where workers live for few requests, for a moment there may be none.
measured=
tries=0
while [ -z "$measured" ] && [ "$tries" -lt 20 ]; do
    [ "$tries" = 0 ] || sleep 0.25
    workers=$(apaches | awk '$1 != "root" { print $2 }')
    # shellcheck disable=SC2086 # many numbers
    [ -z "$workers" ] || measured=$(private worker_kib $workers)
    tries=$((tries + 1))
done
printf '%s\n' "$measured"
private parent_kib "$1"
echo "processes $(apaches | wc -l)"
echo "uptime_s $(ps -o etimes= -p "$1")"
# It knows other services by these names.
for name in mysqld java varnishd redis-server memcached php-fpm php5-fpm glusterd glusterfs glusterfsd; do
    ps -C "$name" -o rss= | awk '{ print "service_kib", $1 }'
done
echo "reached_lines $(grep -i reached /var/log/apache2/error.log 2>/dev/null | grep -vc mod)"
echo "php_fatal_lines $(cat /var/log/apache2/*.log 2>/dev/null | grep -ci 'php fatal')"
