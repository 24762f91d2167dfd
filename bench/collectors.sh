#!/usr/bin/env bash
# What each collector costs on a machine with many connections: CPU per reading, values and bytes of the log.
#   bench/collectors.sh [CONNECTIONS] [READINGS]       default 9900 20; each connection is two sockets here
# COLLECTORS: the program (default target/release/examples/collectors).
set -euo pipefail
cd "$(dirname "$0")/.."
collectors=${COLLECTORS:-${CARGO_TARGET_DIR:-target}/release/examples/collectors}
[ -x "$collectors" ] ||
  { echo "$collectors is missing: cargo build --release -p webdyno-host --example collectors" >&2; exit 1; }
command -v python3 >/dev/null || { echo "python3 is missing: apt-get install python3" >&2; exit 1; }
ulimit -n "$(ulimit -H -n)"
# Prints the port, and the processes that hold the servers' and the clients' ends.
exec {hold}< <(exec python3 -c '
import os, socket, sys, time
count = int(sys.argv[1])
server = socket.socket()
# As a server: on a port that is no local one.
server.bind(("127.0.0.1", 20000 + os.getpid() % 10000))
server.listen(4096)
parent, child = os.getpid(), os.fork()
held = []
if child == 0:
    for _ in range(count):
        held.append(socket.create_connection(server.getsockname()))
    while os.getppid() == parent:
        time.sleep(0.2)
else:
    for _ in range(count):
        held.append(server.accept()[0])
    print(server.getsockname()[1], parent, child, flush=True)
    time.sleep(600)
' "${1:-9900}")
holder=$!
trap 'kill "$holder" 2>/dev/null || true' EXIT
read -r port server client <&"$hold" || { echo "the connections cannot be held: ulimit -n" >&2; exit 1; }
"$collectors" "${2:-20}" "$port" "$server" "$client"
