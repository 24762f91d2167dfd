#!/usr/bin/env bash
# CPU of the client per request over HTTP/3, beside HTTP/2 and HTTP/1.1 over TLS: one Caddy for all, on core 0, the client on
# core 1; user + system time of the client from getrusage of the child; rounds in turn, each in another order.
#   bench/http3.sh [ROUNDS] [SECONDS] [CONNECTIONS] [STREAMS]       default 5 5 16 10
# HTTP/1.1 has as many requests in flight, on a connection each. The server may be the bottleneck: CPU per request is what compares.
# WEBDYNO: the program (default target/release/webdyno). BEFORE: another one, whose HTTP/2 is measured beside.
# BODY_BYTES: size of the body (default 1000). PORT: default 18443.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-5} connections=${3:-16} streams=${4:-10}
webdyno=$(realpath "${WEBDYNO:-target/release/webdyno}") before=${BEFORE:-} port=${PORT:-18443}
for tool in caddy openssl python3 taskset; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install caddy openssl python3 util-linux" >&2; exit 1; }
done
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed, one for the server and one for the client" >&2; exit 1; }

dir=$(mktemp -d)
caddy_pid=
trap '[ -n "$caddy_pid" ] && kill "$caddy_pid" 2>/dev/null && wait "$caddy_pid" 2>/dev/null; rm -rf "$dir"' EXIT
mkdir "$dir/tree"
head -c "${BODY_BYTES:-1000}" /dev/zero | tr '\0' x >"$dir/tree/body"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost \
  -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
cat >"$dir/Caddyfile" <<CONF
{
	admin off
	auto_https disable_redirects
}
https://127.0.0.1:$port {
	bind 127.0.0.1
	tls $dir/cert.pem $dir/key.pem
	root * $dir/tree
	file_server
}
CONF
HOME=$dir XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir GOMAXPROCS=1 taskset -c 0 \
  caddy run --adapter caddyfile --config "$dir/Caddyfile" >"$dir/log" 2>&1 &
caddy_pid=$!
for _ in $(seq 50); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done

url=https://127.0.0.1:$port/body
export url rounds seconds connections streams webdyno before dir
python3 - <<'PYTHON'
import json, os, resource, statistics, subprocess

env = os.environ
both = str(int(env["connections"]) * int(env["streams"]))
shared = ["-c", env["connections"], "--streams", env["streams"]]
cells = {
    "http/1.1": [env["webdyno"], "-c", both],
    "http/2": [env["webdyno"], "--http2", *shared],
    "http/3": [env["webdyno"], "--http3", *shared],
}
if env["before"]:
    cells["http/2 before"] = [env["before"], "--http2", *shared]

def run(name):
    program, *flags = cells[name]
    command = [program, "run", env["url"], "-t", "1", "-d", env["seconds"] + "s", "--warmup", "0s", "--insecure", "-q",
               "--json", "-", "--out", env["dir"] + "/run", *flags]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(["taskset", "-c", "1", *command], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["rm", "-rf", env["dir"] + "/run"], check=True)
    # 3 is a run that was measured and judged.
    if out.returncode not in (0, 3):
        raise SystemExit(f"{name} failed ({out.returncode}): {out.stderr.strip()[:500]}")
    report = json.loads(out.stdout)
    done, failed = report["requests"]["completed"], report["requests"]["failed"]
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return (user_s + system_s) / done * 1e6, user_s / (user_s + system_s), done / float(env["seconds"]), failed

names, results = list(cells), {name: [] for name in cells}
for number in range(int(env["rounds"])):
    turn = number % len(names)
    for name in names[turn:] + names[:turn]:
        results[name].append(run(name))
print(f"{env['rounds']} rounds of {env['seconds']} s, {both} requests in flight; client CPU per request in microseconds")
print(f"{'protocol':14} {'median':>8} {'min':>8} {'max':>8} {'user':>6} {'req/s':>9} {'x http/2':>9} {'failed':>7}")
for name in names:
    cpu = [one[0] for one in results[name]]
    ratio = statistics.median(a[0] / b[0] for a, b in zip(results[name], results["http/2"]))
    share, rate = (statistics.median(one[at] for one in results[name]) for at in (1, 2))
    print(f"{name:14} {statistics.median(cpu):8.2f} {min(cpu):8.2f} {max(cpu):8.2f} {share:6.0%} {rate:9.0f} {ratio:9.2f} "
          f"{sum(one[3] for one in results[name]):7}")
PYTHON
