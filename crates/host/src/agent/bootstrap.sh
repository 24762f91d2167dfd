{
# Takes a program on standard input and becomes it. Read by `sh` from there: whoever joins words and parses them again on
# the way (ssh does, docker does not) finds nothing to join. All of it is read before any of it runs, and nothing is sent
# behind it until it says so, so that it does not matter who reads ahead (dash does, and head may).
# For any shell of POSIX (dash, bash, busybox). The file has no name any more when the first byte of it comes, so that
# nothing is left whoever is killed and whenever.
set -f
say() { printf '%s %s\n' '@MARK@' "$*"; }
fail() { say fail "$@"; exit 1; }
# Who logs in without a terminal often has no sbin, where servers are.
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mask=$(umask)
umask 077
cd /

system="$(uname -s 2>/dev/null) $(uname -m 2>/dev/null)"
case $system in
    @SYSTEMS@ | ' ') ;;
    *) fail machine "$system" ;;
esac
[ -r /proc/self/status ] || fail proc
for tool in head wc rm mkdir chmod; do
    command -v "$tool" >/dev/null 2>&1 || fail lacks "$tool"
done

# The first folder that has room and where programs may run. A file that is neither a program nor begins with #! is run by
# the shell itself, unless the kernel refuses to run anything there (noexec).
why=
opened=
for base in "$TMPDIR" /tmp /var/tmp /dev/shm "$XDG_RUNTIME_DIR" "$HOME"; do
    [ -n "$base" ] && [ -d "$base" ] || continue
    directory=$base/@NAME@
    mkdir "$directory" 2>/dev/null || { why="$why$base cannot be written, "; continue; }
    trap 'rm -rf "$directory"' EXIT
    trap 'exit 129' HUP INT TERM
    free=$(df -Pk "$directory" 2>/dev/null | {
        while read -r _ _ _ kilobytes _; do free=$kilobytes; done
        printf '%s' "$free"
    })
    case $free in
        '' | *[!0-9]*) free=@KB@ ;;
    esac
    if [ "$free" -lt @KB@ ]; then
        why="$why$base has only $free kB left, "
    elif ! { printf 'exit 0\n' >"$directory/webdyno" && chmod 700 "$directory/webdyno"; } 2>/dev/null; then
        why="$why$base cannot be written, "
    elif ! ("$directory/webdyno") >/dev/null 2>&1 </dev/null; then
        why="$why$base is mounted noexec, "
    else
        exec 3<&0 4>"$directory/webdyno" 5<"$directory/webdyno"
        opened=yes
    fi
    rm -rf "$directory"
    trap - EXIT
    [ -z "$opened" ] || break
done
trap - HUP INT TERM
[ -n "$opened" ] || fail folder "${why%, }"

say ready
head -c @BYTES@ <&3 >&4 &
head=$!
# A connection may be lost without an end of the stream: what does not get on is ended.
(
    last=
    still=0
    while sleep 1; do
        now=$(wc -c </proc/self/fd/5)
        if [ "$now" = "$last" ]; then still=$((still + 1)); else still=0; fi
        [ "$still" -lt @STALL_S@ ] || { kill "$head"; exit; }
        last=$now
    done
) </dev/null >/dev/null 2>&1 3<&- 4>&- &
watch=$!
wait "$head"
# Its sleep of a second goes by itself. While it had the file open to write (it closes that first of all), nothing could run
# it.
kill "$watch" 2>/dev/null
wait "$watch" 2>/dev/null
exec 3<&- 4>&-
size=$(($(wc -c </proc/self/fd/5)))
[ "$size" = @BYTES@ ] || fail short "$size"
hash=$(sha256sum 2>/dev/null </proc/self/fd/5)
case $hash in
    @HASH@* | '') ;;
    *) fail changed ;;
esac
told=$(/proc/self/fd/5 --version 2>&1 </dev/null)
status=$?
[ "$status" = 0 ] || fail run "$status" $told
umask "$mask"
say go
exec /proc/self/fd/5 @WORDS@
}
