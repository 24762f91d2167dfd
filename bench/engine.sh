#!/usr/bin/env bash
# CPU of the client per request: webdyno against wrk, ab and a floor, in one interleaved run (only that compares); over
# HTTP/2 against h2load.
# One nginx worker on core 0, the client on core 1; user + system time of the client from getrusage of the child.
#   bench/engine.sh [ROUNDS] [SECONDS] [CONNECTIONS]       default 7 3 64
# WEBDYNO: the program (default target/release/webdyno; with LOAD_EXAMPLE=1 it is the example of crates/load).
# LIMIT_C: source of the floor client, one send and one recv per answer (default ../shared/bench/limit.c), optional.
# NEW=1: a new connection for each request (without the floor, which keeps its own).
# TLS=1: the same over TLS 1.3, without the floor (needs openssl).
# HTTP2=N: over HTTP/2 with N streams on each connection, against h2load alone (package nghttp2-client); with TLS=1 over
# TLS. The cell of docs/benchmarks.md: HTTP2=10 TLS=1 bench/engine.sh 5 3 16
# GCANNON: the program gcannon, built by hand from github.com/MDA2AV/gcannon, optional.
# BODY_BYTES: size of the body (default 1024). PORT: default 18099.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} seconds=${2:-3} connections=${3:-64}
body_bytes=${BODY_BYTES:-1024} port=${PORT:-18099}
webdyno=${WEBDYNO:-target/release/webdyno} limit_c=${LIMIT_C:-../shared/bench/limit.c}
for tool in nginx python3 taskset; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install nginx-light python3 util-linux" >&2; exit 1; }
done
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed, one for the server and one for the client" >&2; exit 1; }

dir=$(mktemp -d)
nginx_pid=
trap '[ -n "$nginx_pid" ] && kill "$nginx_pid" 2>/dev/null && wait "$nginx_pid" 2>/dev/null; rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/html"
scheme=http listen="127.0.0.1:$port backlog=4096" tls=
if [ -n "${TLS:-}" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
  scheme=https listen="127.0.0.1:$port ssl backlog=4096" limit_c=
  tls="ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; ssl_protocols TLSv1.3;"
fi
[ -z "${HTTP2:-}" ] || { listen="$listen http2" limit_c=; }
head -c "$body_bytes" /dev/zero | tr '\0' x >"$dir/html/body"
cat >"$dir/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $dir/pid; error_log $dir/error.log;
events { worker_connections 20000; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 60s;
  client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4;
  scgi_temp_path $dir/t5;
  server { listen $listen; $tls root $dir/html; }
}
CONF
taskset -c 0 nginx -e "$dir/error.log" -c "$dir/nginx.conf" &
nginx_pid=$!
for _ in $(seq 50); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
have_limit=
if [ -f "$limit_c" ] && command -v cc >/dev/null; then cc -O2 -o "$dir/limit" "$limit_c" && have_limit=1; fi

url=$scheme://127.0.0.1:$port/body
export url seconds connections port webdyno dir have_limit rounds body_bytes LOAD_EXAMPLE="${LOAD_EXAMPLE:-}" NEW="${NEW:-}" streams="${HTTP2:-}"
[ -z "$NEW" ] || have_limit=
python3 - <<'PYTHON'
# Runs the clients in turn, each round in another order, and prints medians and spread.
import json, os, re, shutil, statistics, subprocess, tempfile

env = os.environ
url, seconds, connections = env["url"], env["seconds"], env["connections"]
new = env["NEW"] != ""

def last(pattern):
    return lambda text: int(re.findall(pattern, text)[-1])

def of_webdyno(text):
    return json.loads(text)["requests"]["completed"]

clients = {}
if env["LOAD_EXAMPLE"]:
    command = [env["webdyno"], url, connections, seconds] + (["streams=" + env["streams"]] if env["streams"] else [])
    clients["webdyno"] = (command, last(r"(\d+) good"))
else:
    command = [env["webdyno"], "run", url, "-c", connections, "-t", "1", "-d", seconds + "s", "--json", "-", "-q", "--warmup", "0s",
               "--out", env["dir"] + "/run"] + (["--insecure"] if url.startswith("https") else []) + (["--no-keepalive"] if new else [])
    command += ["--http2", "--streams", env["streams"]] if env["streams"] else []
    clients["webdyno"] = (command, of_webdyno)
if env["streams"]:
    if not shutil.which("h2load"):
        raise SystemExit("h2load is missing: apt-get install nghttp2-client")
    command = ["h2load", "-t1", "-c" + connections, "-m" + env["streams"], "-D" + seconds, url]
    clients["h2load"] = (command, last(r"(\d+) succeeded"))
if shutil.which("wrk") and not env["streams"]:
    command = ["wrk", "-t1", "-c" + connections, "-d" + seconds + "s", *(["-H", "Connection: close"] if new else []), url]
    clients["wrk"] = (command, last(r"(\d+) requests in"))
if shutil.which("ab") and not env["streams"]:
    # ab keeps 32 bytes for every request that it might send, so the bound cannot be endless.
    bound = str(1_000_000 * int(seconds))
    command = ["ab", "-q", *([] if new else ["-k"]), "-c", connections, "-t", seconds, "-n", bound, url]
    clients["ab"] = (command, last(r"Complete requests:\s+(\d+)"))
if env.get("GCANNON") and not env["streams"] and url.startswith("http:"):
    command = [env["GCANNON"], url, "-c", connections, "-t", "1", "-d", seconds + "s", "--json", *(["-r", "1"] if new else [])]
    clients["gcannon"] = (command, lambda text: json.loads(text)["responses"])
if env["have_limit"]:
    command = [env["dir"] + "/limit", "127.0.0.1", env["port"], "/body", connections, seconds]
    clients["floor"] = (command, last(r"(\d+) responses"))

def run(name):
    shutil.rmtree(env["dir"] + "/run", ignore_errors=True)
    command, count = clients[name]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(["taskset", "-c", "1", *command], stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = [(file.seek(0), file.read())[1] for file in (out, err)]
    # 3 is a run that was measured and judged: with one core for the client it may say that it was saturated.
    if child.returncode not in ([0, 3] if name == "webdyno" else [0]):
        raise SystemExit(f"{name} failed ({child.returncode}): {texts[1].strip()[:500]}")
    requests = count(texts[0])
    # The kernel tells kilobytes.
    return (usage.ru_utime + usage.ru_stime) / requests * 1e6, requests / float(seconds), usage.ru_maxrss / 1e3

names, results = list(clients), {name: [] for name in clients}
rounds = int(env["rounds"])
for number in range(rounds):
    turn = number % len(names)
    for name in names[turn:] + names[:turn]:
        results[name].append(run(name))

print(f"{rounds} rounds of {seconds} s, {connections} {'new' if new else 'kept'} connections, {env['body_bytes']} byte body; "
      "client CPU per request in microseconds")
print(f"{'client':8} {'median':>8} {'min':>8} {'max':>8} {'req/s':>9} {'MB':>6}")
for name, pairs in results.items():
    cpu = [one[0] for one in pairs]
    rate, memory = (statistics.median(one[figure] for one in pairs) for figure in (1, 2))
    print(f"{name:8} {statistics.median(cpu):8.3f} {min(cpu):8.3f} {max(cpu):8.3f} {rate:9.0f} {memory:6.1f}")
# Each round's own ratios: what disturbs the machine for a while disturbs both. The floor is no rival.
def ratios(figure, rivals, best):
    def of(index):
        return results["webdyno"][index][figure] / best(results[rival][index][figure] for rival in rivals)
    found = sorted(of(index) for index in range(rounds))
    return f"median {statistics.median(found):.3f}, from {found[0]:.3f} to {found[-1]:.3f}"
rivals = [name for name in results if name not in ("webdyno", "floor")]
for rival, bar in [("wrk", 1.3), ("h2load", 1.0)]:
    if rival in rivals:
        print(f"webdyno / {rival}, CPU per request: {ratios(0, [rival], min)} (bar: {bar})")
if rivals:
    print(f"webdyno / the best of {', '.join(rivals)}: CPU per request {ratios(0, rivals, min)}; throughput {ratios(1, rivals, max)}; peak memory {ratios(2, rivals, min)}")
PYTHON
