# What all the scripts begin with. Their first argument is the service's own limit of open files, or empty.
log=/dev/null
# fail: tells the end of the program's log. So it is when the time is over.
fail() {
    tail -n 5 "$log" >&2
    exit 1
}
trap fail TERM
mkdir -p /run/lock && chmod 1777 /run/lock || exit 1
# limit_files OWN USUAL: of the usual limit only as much as the machine allows.
limit_files() {
    if [ -n "$1" ]; then
        ulimit -n "$1" || exit 1
    else
        ulimit -n "$2" 2>/dev/null || ulimit -n "$(ulimit -H -n)"
    fi
}
# limit_files_softly OWN USUAL: the usual limit is one that the program may raise.
limit_files_softly() {
    if [ -n "$1" ]; then ulimit -n "$1" || exit 1; else ulimit -S -n "$2" || exit 1; fi
}
# is_there PID: a process that has ended and that nobody waited for is still in the table.
is_there() { grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
