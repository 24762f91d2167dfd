#!/usr/bin/env bash
# Peak memory of a load by its number of requests: after ten million it should be what it was after a hundred thousand,
# and some 10 to 20 kB for each second that the load lasted: the report at the end is made from the whole recording.
# One nginx worker on core 0, the client on core 1; the peak is the kernel's own figure (VmHWM of proc_pid_status(5)),
# read until the program ends. What getrusage(2) tells of a child is at least what its parent had.
#   bench/memory.sh [REQUESTS...]       default 100000 1000000 10000000
# WEBDYNO: the program (default target/release/webdyno).
# CONNECTIONS: default 64. BODY_BYTES: default 1024. PORT: default 18098.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 100000 1000000 10000000
port=${PORT:-18098}
for tool in nginx python3 taskset; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install nginx-light python3 util-linux" >&2; exit 1; }
done
webdyno=${WEBDYNO:-target/release/webdyno}
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed, one for the server and one for the client" >&2; exit 1; }

dir=$(mktemp -d)
nginx_pid=
trap '[ -n "$nginx_pid" ] && kill "$nginx_pid" 2>/dev/null && wait "$nginx_pid" 2>/dev/null; rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/html"
head -c "${BODY_BYTES:-1024}" /dev/zero | tr '\0' x >"$dir/html/body"
cat >"$dir/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $dir/pid; error_log $dir/error.log;
events { worker_connections 20000; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 60s;
  client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4;
  scgi_temp_path $dir/t5;
  server { listen 127.0.0.1:$port backlog=4096; root $dir/html; }
}
CONF
taskset -c 0 nginx -e "$dir/error.log" -c "$dir/nginx.conf" &
nginx_pid=$!
for _ in $(seq 50); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done

export webdyno dir url="http://127.0.0.1:$port/body" connections="${CONNECTIONS:-64}"
python3 - "$@" <<'PYTHON'
import json, os, subprocess, sys, time

env = os.environ
print(f"{'requests':>10} {'failed':>7} {'seconds':>8} {'req/s':>8} {'peak kB':>8}")
for number, requests in enumerate(sys.argv[1:]):
    out = f"{env['dir']}/{number}.json"
    command = ["taskset", "-c", "1", env["webdyno"], "run", env["url"], "-c", env["connections"], "-t", "1", "-n", requests,
               "-q", "--warmup", "0s", "--json", out, "--out", f"{env['dir']}/run-{number}"]
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak_kb = 0
    while child.poll() is None:
        with open(f"/proc/{child.pid}/status") as lines:
            peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
        peak_kb = max([peak_kb, *peaks])
        time.sleep(0.01)
    seconds = time.monotonic() - begun
    # 3 is a run that was measured and judged: with one core for the client it may say that it was saturated.
    if child.returncode not in (0, 3):
        raise SystemExit(child.stderr.read().decode()[:500])
    counts = json.load(open(out))["requests"]
    if counts["completed"] + counts["failed"] != int(requests):
        raise SystemExit(f"{counts} for {requests} requests")
    print(f"{requests:>10} {counts['failed']:>7} {seconds:>8.1f} {int(requests) / seconds:>8.0f} {peak_kb:>8}", flush=True)
PYTHON
