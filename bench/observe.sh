#!/usr/bin/env bash
# What observing costs: the agent on a host with 500 Apache workers and 20,000 sockets, and the load that a server carries
# with and without it. Its CPU is utime + stime of /proc/PID/stat (proc_pid_stat(5)), in percent of a core, its memory
# VmHWM of /proc/PID/status; how late its samples were is what they say themselves. Beside it `vmstat 1` and `sar 1`
# (sysstat) over the same seconds. Then ABBA: the throughput of a load with (A) and without (B) observing, the ratio of
# each pair, their median and its 95% interval (bootstrap with a fixed seed).
#   bench/observe.sh               about 5 minutes
# WEBDYNO: the program (default target/release/webdyno).
# SECONDS_OBSERVED: default 60. WORKERS: default 500. CONNECTIONS: idle kept ones, two sockets each, default 10000.
# PAIRS: of blocks with and without, default 30. BLOCK_SECONDS: default 3.
set -euo pipefail
cd "$(dirname "$0")/.."
webdyno=$(realpath "${WEBDYNO:-target/release/webdyno}")
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
for tool in /usr/sbin/apache2 python3 wrk vmstat sar; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: scripts/setup bench" >&2; exit 1; }
done
ulimit -n "$(ulimit -Hn)"
open_files=$((${CONNECTIONS:-10000} + 1000))
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge "$open_files" ] || { echo "$open_files open files are needed: ulimit -n" >&2; exit 1; }

dir=$(mktemp -d)
children=()
finish() {
  for pid in "${children[@]}"; do kill "$pid" 2>/dev/null || true; done
  [ -f "$dir/apache.pid" ] && kill "$(cat "$dir/apache.pid")" 2>/dev/null || true
  wait 2>/dev/null || true
  sleep 1
  rm -rf "$dir"
}
trap finish EXIT
chmod 755 "$dir"
mkdir "$dir/htdocs"
head -c 1024 /dev/zero | tr '\0' x >"$dir/htdocs/index.html"
export PORT=${PORT:-18110} IDLE_PORT=${IDLE_PORT:-18111} WORKERS=${WORKERS:-500} CONNECTIONS=${CONNECTIONS:-10000}
modules=/usr/lib/apache2/modules
cat >"$dir/apache.conf" <<CONF
ServerRoot $dir
ServerName localhost
Listen 127.0.0.1:$PORT
PidFile $dir/apache.pid
DefaultRuntimeDir $dir
Mutex file:$dir default
ErrorLog $dir/error.log
LoadModule mpm_prefork_module $modules/mod_mpm_prefork.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule status_module $modules/mod_status.so
LoadModule dir_module $modules/mod_dir.so
DocumentRoot $dir/htdocs
ExtendedStatus On
KeepAliveTimeout 300
ServerLimit $WORKERS
StartServers $WORKERS
MinSpareServers $WORKERS
MaxSpareServers $WORKERS
MaxRequestWorkers $WORKERS
<Location /server-status>
SetHandler server-status
</Location>
CONF
/usr/sbin/apache2 -f "$dir/apache.conf" -DFOREGROUND &
children+=($!)

# Holds idle connections to a listener of its own, over several addresses so that the local ports suffice. Each has two
# sockets: two processes hold one end each, so that the limits of open files suffice.
cat >"$dir/hold.py" <<'PYTHON'
import os, socket, time
port, count = int(os.environ["IDLE_PORT"]), int(os.environ["CONNECTIONS"])
listener = socket.create_server(("0.0.0.0", port), backlog=4096)
if os.fork() == 0:
    held = [listener.accept()[0] for _ in range(count)]
    print("held", flush=True)
    while os.getppid() != 1:
        time.sleep(1)
    os._exit(0)
listener.close()
held = [socket.create_connection((f"127.0.0.{2 + number % 5}", port)) for number in range(count)]
time.sleep(900)
PYTHON
python3 "$dir/hold.py" >"$dir/held" &
children+=($!)
for _ in $(seq 300); do grep -q held "$dir/held" && break; sleep 0.1; done
grep -q held "$dir/held" || { echo "the connections could not be opened" >&2; exit 1; }
sleep 5

export WEBDYNO_STATE=$dir/state webdyno dir SECONDS_OBSERVED=${SECONDS_OBSERVED:-60} PAIRS=${PAIRS:-30} BLOCK_SECONDS=${BLOCK_SECONDS:-3}
python3 - <<'PYTHON'
import json, os, random, re, signal, statistics, subprocess, time

env = os.environ
folder, port, tick = env["dir"], env["PORT"], os.sysconf("SC_CLK_TCK")
observed_s = int(env["SECONDS_OBSERVED"])

def children(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(name))
    return found

def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / tick

def peak_mb(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) * 1024 / 1e6

def observe(name, seconds=None):
    command = [env["webdyno"], "observe", "-q", "--port", port, "--out", f"{folder}/{name}"]
    command += ["--for", f"{seconds}s"] if seconds else []
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    tool = subprocess.Popen(command, **quiet)
    log = f"{folder}/{name}/events.jsonl"
    for _ in range(200):
        if os.path.exists(log) and '"kind":"sample"' in open(log).read():
            break
        time.sleep(0.1)
    else:
        raise SystemExit("observing does not begin")
    return tool, log

# How many sockets there are by now, as the kernel counts them.
sockets = int(re.search(r"TCP: inuse (\d+)", open("/proc/net/sockstat").read())[1])
print(f"{env['WORKERS']} workers, {sockets} TCP sockets")

tool, log = observe("cost")
agent = children(tool.pid)[0]
beside = {
    name: subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name, command in [("vmstat 1", ["vmstat", "1"]), ("sar 1", ["sar", "1"])]
}
pids = {"webdyno agent": agent, "webdyno observe": tool.pid}
for name, child in beside.items():
    # sar is a reader of what its child sadc collects.
    pids[name] = child.pid
time.sleep(2)
for name, child in beside.items():
    for number, pid in enumerate(children(child.pid)):
        pids[f"{name} (its collector)"] = pid
begun, before = time.monotonic(), {name: cpu_s(pid) for name, pid in pids.items()}
size = os.path.getsize(log)
time.sleep(observed_s)
lasted = time.monotonic() - begun
print(f"{'over ' + str(round(lasted)) + ' s':28} {'CPU %':>7} {'peak MB':>8}")
for name, pid in pids.items():
    print(f"{name:28} {100 * (cpu_s(pid) - before[name]) / lasted:7.2f} {peak_mb(pid):8.1f}")
print(f"log: {(os.path.getsize(log) - size) / lasted / 1e3:.1f} kB a second")
tool.send_signal(signal.SIGINT)
tool.wait()
for child in beside.values():
    child.terminate()
    child.wait()

samples = [json.loads(line) for line in open(log) if '"kind":"sample"' in line]
late = sorted((s["sample"].get("late_us") or 0, s["sample"]["source"]) for s in samples if s["t_us"] > 2e6)
print(f"{len(late)} samples; latest by {late[-1][0] / 1e3:.1f} ms ({late[-1][1]}), 99% by at most {late[int(len(late) * 0.99)][0] / 1e3:.1f} ms")
spent = {}
for s in samples:
    spent.setdefault(s["sample"]["source"], []).append(s["sample"]["duration_us"])
dearest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:6]
print("longest readings: " + ", ".join(f"{name} {statistics.mean(us) / 1e3:.2f} ms x {len(us)}" for name, us in dearest))

# One load all the time, and the agent goes on (A) and stands still (B) in turns: starts cost nothing then, and blocks
# that follow each other are alike. What was carried is told by the bytes of the loopback interface.
def carried():
    line = next(line for line in open("/proc/net/dev") if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])

def block(is_on):
    os.kill(agent, signal.SIGCONT if is_on else signal.SIGSTOP)
    time.sleep(0.3)
    begun, before = time.monotonic(), carried()
    time.sleep(float(env["BLOCK_SECONDS"]))
    return (carried() - before) / (time.monotonic() - begun)

pairs = int(env["PAIRS"])
tool, _ = observe("load")
agent = children(tool.pid)[0]
lasts = int(pairs * 2 * (float(env["BLOCK_SECONDS"]) + 0.4) + 15)
load = subprocess.Popen(
    ["wrk", "-t", "1", "-c", "16", "-d", f"{lasts}s", f"http://127.0.0.1:{port}/index.html"], stdout=subprocess.DEVNULL
)
time.sleep(6)
ratios = []
for number in range(pairs):
    first_on = number % 2 == 0
    first, second = block(first_on), block(not first_on)
    ratios.append(first / second if first_on else second / first)
os.kill(agent, signal.SIGCONT)
load.terminate()
load.wait()
tool.send_signal(signal.SIGINT)
tool.wait()
draw = random.Random(1)
medians = sorted(statistics.median(draw.choices(ratios, k=pairs)) for _ in range(2000))
print(f"throughput with observing / without: median {statistics.median(ratios):.4f}, 95% interval {medians[50]:.4f} to {medians[1949]:.4f}, {pairs} pairs")
PYTHON
