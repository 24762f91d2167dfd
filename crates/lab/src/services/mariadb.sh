# Starts MariaDB, with the limit of Debian's unit, and gives it the SQL on standard input.
log=/var/log/mysql/error.log
fail() {
    # What mariadb-install-db says in the end is advice.
    { grep ERROR "$log" || cat "$log"; } | tail -n 5 >&2
    exit 1
}
limit_files "$1" 32768
data=$(my_print_defaults --mysqld | sed -n 's/^--datadir=//p' | tail -n 1)
data=${data:-/var/lib/mysql}
# A disk of the host's own may be mounted there.
mkdir -p /run/mysqld "$data" && chown mysql:mysql /run/mysqld "$data" || exit 1
touch "$log" && chown mysql:adm "$log" && chmod 640 "$log" || exit 1
if [ ! -d "$data/mysql" ]; then
    mariadb-install-db --rpm --cross-bootstrap --user=mysql --disable-log-bin --skip-test-db \
        --innodb-flush-method=nosync --debug-no-sync </dev/null >>"$log" 2>&1 || fail
fi
setsid /usr/sbin/mariadbd --user=mysql </dev/null >>"$log" 2>&1 &
pid=$!
until mariadb -e 'do 1' </dev/null >/dev/null 2>&1; do
    is_there "$pid" || fail
    sleep 0.03
done
exec mariadb
