#!/usr/bin/env bash
# What visitors cost: pages of 1 + 19 files, sessions with captured values, and users who mostly think.
# One nginx worker on core 0, the client on core 1; CPU of the client from getrusage of the child, its peak memory the
# kernel's own figure (VmHWM of proc_pid_status(5)).
#   bench/pages.sh [ROUNDS] [SECONDS]       default 5 5
# - pages/s: one document of 12 kB, 4 scripts, 7 style sheets and 8 images of about 11 kB, as many as 64 users load without
#   think time, each user with six connections; the parts listed, and found in the HTML (bar: 2,000 pages/s).
# - CPU per request of a session of three steps that captures a value by pattern, JSON pointer and header, beside plain
#   requests for the same three answers, interleaved (bar: 2 times); of newcomers too, who open a connection each session.
# - page times against a server with scripted delays (python3, of this script): what six connections come to in theory, and
#   what was measured.
# - CPU and memory of 10,000 users who think for 30 s (bar: 5% of a core, 200 MB).
# WEBDYNO: the program (default target/release/webdyno). PORT: default 18097.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-5} port=${PORT:-18097}
webdyno=${WEBDYNO:-target/release/webdyno}
for tool in nginx python3 taskset; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install nginx-light python3 util-linux" >&2; exit 1; }
done
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed, one for the server and one for the client" >&2; exit 1; }
# Every user has a connection of its own, and the server one for each of them.
ulimit -n "$(ulimit -H -n)"

dir=$(mktemp -d)
nginx_pid=
trap '[ -n "$nginx_pid" ] && kill "$nginx_pid" 2>/dev/null && wait "$nginx_pid" 2>/dev/null; rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/html"
cat >"$dir/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $dir/pid; error_log $dir/error.log; worker_rlimit_nofile 65536;
events { worker_connections 60000; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 75s;
  types { text/html html; text/css css; text/javascript js; image/png png; application/json json; }
  client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4;
  scgi_temp_path $dir/t5;
  server {
    listen 127.0.0.1:$port backlog=8192; root $dir/html;
    location = /three { add_header X-Ticket t-4711; return 200 "third"; }
  }
}
CONF
base=http://127.0.0.1:$port
export base seconds webdyno dir rounds
python3 - <<'PYTHON'
# The files, and the workloads.
import os, random
d, base = os.environ["dir"], os.environ["base"]
names = [f"s{n}.js" for n in range(4)] + [f"c{n}.css" for n in range(7)] + [f"i{n}.png" for n in range(8)]
tag = lambda name: {"js": f'<script src="{name}"></script>', "css": f'<link rel="stylesheet" href="{name}">',
                    "png": f'<img src="{name}" alt="">'}[name.split(".")[1]]
write = lambda name, text: open(f"{d}/html/{name}", "w").write(text)
for name in names:
    write(name, "/* " + "x" * 11000 + " */")
page = "<!doctype html><html><head><title>shop</title>" + "".join(map(tag, names)) + "</head><body>"
write("page.html", page + "<p>text</p>" * ((12000 - len(page)) // 11) + "</body></html>")
write("one.html", "<html><body><form><input name=csrf value=abc123></form>" + "<p>text</p>" * 40 + "</body></html>")
write("two.json", '{"user": {"name": "me", "cart": "' + "c" * 400 + '", "token": "xyz789"}}')
def workload(name, text):
    open(f"{d}/{name}.toml", "w").write(f'base = "{base}"\n' + text)
workload("found", 'users = 64\n[[page]]\nurl = "/page.html"\n')
workload("listed", 'users = 64\n[[page]]\nurl = "/page.html"\nresources = [' + ", ".join(f'"/{n}"' for n in names) + "]\n")
workload("thinking", 'users = 10000\nthink = "30s"\nramp = "30s"\n[[request]]\nurl = "/one.html"\n')
session = """users = 64
returning = %d
[[session]]
name = "order"
[[session.step]]
request = "/one.html"
capture = [{ name = "csrf", regex = 'name=csrf value=([a-z0-9]+)' }]
[[session.step]]
request = "/two.json?csrf=${csrf}"
capture = [{ name = "token", json = "/user/token" }]
[[session.step]]
request = "/three?token=${token}"
capture = [{ name = "ticket", header = "X-Ticket" }]
"""
workload("session", session % 1)
workload("newcomer", session % 0)
PYTHON
taskset -c 0 nginx -e "$dir/error.log" -c "$dir/nginx.conf" &
nginx_pid=$!
for _ in $(seq 50); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done

python3 - <<'PYTHON'
import json, os, resource, shutil, statistics, subprocess, time

env = os.environ
base, seconds, rounds = env["base"], env["seconds"], int(env["rounds"])

def run(*arguments, duration=seconds, warmup="0s"):
    """One load on core 1: its JSON, its CPU seconds and its peak memory."""
    shutil.rmtree(env["dir"] + "/run", ignore_errors=True)
    out = env["dir"] + "/out.json"
    command = ["taskset", "-c", "1", env["webdyno"], "run", *arguments, "-t", "1", "-d", duration + "s", "-q", "--json", out,
               "--out", env["dir"] + "/run"] + (["--warmup", warmup] if warmup else [])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak_kb = 0
    while child.poll() is None:
        with open(f"/proc/{child.pid}/status") as lines:
            peak_kb = max([peak_kb] + [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")])
        time.sleep(0.05)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # 3 is a run that was measured and judged: with one core for the client it may say that it was saturated.
    if child.returncode not in (0, 3):
        raise SystemExit(f"{arguments} failed ({child.returncode}): {child.stderr.read().strip()[:500]}")
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return json.load(open(out)), cpu_s, peak_kb

def line(name, values, unit):
    print(f"{name:34} {statistics.median(values):9.2f} {min(values):9.2f} {max(values):9.2f}  {unit}")

print(f"{rounds} rounds of {seconds} s: median, least, most")
pages = {"listed": [], "found": []}
costs = {"plain": [], "session": [], "newcomer": []}
plain = [base + path for path in ("/one.html", "/two.json", "/three")]
for number in range(rounds):
    for name in ("listed", "found") if number % 2 else ("found", "listed"):
        report, cpu_s, _ = run("--workload", f"{env['dir']}/{name}.toml")
        if report["pages"]["failed"] or report["requests"]["failed"]:
            raise SystemExit(f"{name}: {report['pages']['failed']} pages and {report['requests']['failed']} requests failed")
        pages[name].append((report["pages"]["rate"], cpu_s / report["requests"]["completed"] * 1e6))
    for name in ("plain", "session", "newcomer") if number % 2 else ("newcomer", "session", "plain"):
        arguments = [*plain, "-c", "64"] if name == "plain" else ["--workload", f"{env['dir']}/{name}.toml"]
        report, cpu_s, _ = run(*arguments)
        if report["requests"]["failed"]:
            raise SystemExit(f"{name}: {report['requests']['failed']} requests failed: {report['errors']}")
        costs[name].append(cpu_s / report["requests"]["completed"] * 1e6)
for name, pairs in pages.items():
    line(f"pages of 1 + 19 files, {name}", [rate for rate, _ in pairs], "pages/s (bar: 2000)")
    line("  client CPU per request", [cpu for _, cpu in pairs], "us")
for name, values in costs.items():
    line(f"three answers, {name}: client CPU", values, "us a request")
ratios = [session / plain for session, plain in zip(costs["session"], costs["plain"])]
line("session / plain", ratios, "times (bar: 2)")

import asyncio, threading

def theory(document_s, parts_s, most=6):
    """Each part goes, in order, to the connection that is free first; connections cost nothing on loopback."""
    free = [0.0] * most
    for part_s in parts_s:
        first = free.index(min(free))
        free[first] += part_s
    return document_s + max(free)

async def scripted(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            name, delay_ms = head.split(b" ")[1].rsplit(b"/", 1)
            await asyncio.sleep(int(delay_ms) / 1000)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

ready, address = threading.Event(), []
async def serve():
    server = await asyncio.start_server(scripted, "127.0.0.1", 0)
    address.append(server.sockets[0].getsockname()[1])
    ready.set()
    await server.serve_forever()
threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
ready.wait()
print(f"{'page time, scripted delays':34} {'theory':>9} {'p50':>9} {'p99':>9}  ms")
for name, document_ms, parts_ms in [
    ("19 parts of 40 ms", 60, [40] * 19),
    ("19 parts of 10, 20, .. 190 ms", 30, list(range(10, 200, 10))),
    ("one of 400 ms first, 18 of 25 ms", 50, [400] + [25] * 18),
    ("one of 400 ms last, 18 of 25 ms", 50, [25] * 18 + [400]),
]:
    # What is asked for is told by its path: a number, and its delay.
    parts = ", ".join(f'"/{number}/{delay}"' for number, delay in enumerate(parts_ms))
    with open(env["dir"] + "/scripted.toml", "w") as file:
        file.write(f'base = "http://127.0.0.1:{address[0]}"\nusers = 4\n[[page]]\nurl = "/page/{document_ms}"\nresources = [{parts}]\n')
    report, _, _ = run("--workload", env["dir"] + "/scripted.toml", duration="8")
    times = report["pages"]["time_us"]
    print(f"{name:34} {theory(document_ms, parts_ms):9.2f} {times['p50'] / 1000:9.2f} {times['p99'] / 1000:9.2f}")

report, cpu_s, peak_kb = run("--workload", env["dir"] + "/thinking.toml", duration="60", warmup=None)
total_s = 90.0
print(f"10,000 users who think for 30 s: {report['rate']:.1f} req/s, {report['requests']['failed']} failed, "
      f"client CPU {100 * cpu_s / total_s:.2f}% of a core (bar: 5), peak memory {peak_kb / 1000:.0f} MB (bar: 200)")
PYTHON
