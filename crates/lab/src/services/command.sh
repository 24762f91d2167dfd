# Starts a command line: LIMIT LOG COMMAND READY, where READY is a port, the path of a socket or file, or empty.
log=$2
limit_files "$1" 8192
setsid sh -c "$3" </dev/null >>"$log" 2>&1 &
pid=$!
case $4 in
'') ready() { sleep 0.1; is_there "$pid"; } ;;
*[!0-9]*) ready() { [ -e "$4" ]; } ;;
*)
    # The state LISTEN of proc(5).
    line=":$(printf %04X "$4") [0-9A-F]*:0000 0A "
    ready() { grep -qs "$line" /proc/net/tcp /proc/net/tcp6; }
    ;;
esac
until ready "$@"; do
    is_there "$pid" || fail
    sleep 0.02
done
