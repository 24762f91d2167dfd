"""The measurements of bench/accuracy.sh, which see for what this does and what it needs."""
import json, math, os, re, shutil, statistics, subprocess, sys, tempfile

WEBDYNO, REFERENCE, OHA = os.environ["WEBDYNO"], os.environ["REFERENCE"], os.environ["OHA"]
SERVER_CORE, CLIENT_CORE = "0", "1"
# Before what others compute; a server that spins would then leave them nothing.
REALTIME = "--realtime" in sys.argv
FIRST = ["chrt", "-f", "10"] if REALTIME else []
DIR = tempfile.mkdtemp()
BEGIN, END = "<!-- measured: bench/accuracy.sh --write -->", "<!-- /measured -->"
# Every run of webdyno: how far rate x mean time is from the mean in flight, and which percentiles are out of order.
LITTLE, DISORDER = [], []


def quantile(times, share):
    """The time that a share of them does not exceed: the nearest rank."""
    ordered = sorted(times)
    return ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1]


class Reference:
    """The scripted server; `served` is what it did, (arrived, answered or 0) in nanoseconds."""

    def __init__(self, script, spin=True):
        command = [*FIRST, "taskset", "-c", SERVER_CORE, REFERENCE]
        command += (["--spin"] if spin and not REALTIME else []) + script.split()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://{self.process.stdout.readline().strip()}/"
        self.served = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lines = self.process.communicate("")[0].splitlines()
        self.served = [tuple(map(int, line.split())) for line in lines]

    def times_us(self, last=None):
        """Times that it took for what it answered, of the last so many requests: the first may be a probe."""
        served = self.served[-last:] if last else self.served
        return [(answered - arrived) / 1e3 for arrived, answered in served if answered]


def client(command, pinned=True, codes=(0,)):
    """Runs a client on its core; gives what it printed."""
    pin = ["taskset", "-c", CLIENT_CORE] if pinned else []
    out = subprocess.run(FIRST + pin + command, capture_output=True, text=True, timeout=120)
    if codes and out.returncode not in codes:
        raise SystemExit(f"{command[0]} failed ({out.returncode}): {out.stderr.strip()[:500]}")
    return out.stdout


def webdyno(url, flags, pinned=True):
    """The report of a run. 3 is a run that was measured and judged."""
    run_dir = DIR + "/run"
    shutil.rmtree(run_dir, ignore_errors=True)
    # What of a load with stages is measured, these say.
    warmup = [] if "--stage" in flags else ["--warmup", "0s"]
    command = [WEBDYNO, "run", url, "--json", "-", "-q", "--out", run_dir] + warmup + flags.split()
    report = json.loads(client(command, pinned, (0, 3)))
    events = [json.loads(line) for line in open(run_dir + "/events.jsonl")]
    check_little(events)
    for name, dist in report.items():
        if name.endswith("_us") and isinstance(dist, dict) and dist.get("count"):
            row = [dist[key] for key in ("min", "p50", "p75", "p90", "p95", "p99", "p999", "max")]
            if row != sorted(row) or not dist["min"] <= dist["mean"] <= dist["max"] * 1.00001:
                DISORDER.append((name, dist))
    return report


def check_little(events):
    intervals = [event["interval"] for event in events if event["kind"] == "interval"]
    end = next(event["end"] for event in events if event["kind"] == "load_end")
    total = lambda times: times["sum_us"] if times else 0
    in_flight_us = sum(interval["in_flight_us"] for interval in intervals)
    told_us = sum(total(interval[name]) for interval in intervals for name in ("response_time", "failed_time"))
    told_us += total(end["censored_time"])
    LITTLE.append(abs(told_us / in_flight_us - 1))


def wrk(url, flags, pinned=True):
    """Percentiles in microseconds, requests, timeouts."""
    out = client(["wrk", "-t1", "--latency", *flags.split(), url], pinned)
    unit = {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}
    found = re.findall(r"^ +(\d+)%\s+([\d.]+)(us|ms|s|m)$", out, re.M)
    times = {"p" + share: float(value) * unit[name] for share, value, name in found}
    timeouts = re.search(r"timeout (\d+)", out)
    return times, int(re.search(r"(\d+) requests in", out)[1]), int(timeouts[1]) if timeouts else 0


def ab(url, flags):
    table = DIR + "/ab.csv"
    client(["ab", "-q", "-k", "-e", table, *flags.split(), url])
    rows = [line.split(",") for line in open(table).read().splitlines()[1:]]
    return {"p" + share: float(ms) * 1e3 for share, ms in rows}


def oha(url, flags):
    out = json.loads(client([OHA, "--no-tui", "--output-format", "json", *flags.split(), url]))
    times = {name: (value or 0) * 1e6 for name, value in out["latencyPercentiles"].items()}
    return times, out["statusCodeDistribution"].get("200", 0), out["errorDistribution"]


class Table:
    """Figures by row and column, one value for each round."""

    def __init__(self):
        self.rows = {}

    def add(self, row, **values):
        for column, value in values.items():
            self.rows.setdefault(row, {}).setdefault(column, []).append(value)

    def lines(self, columns, form):
        yield "| |" + "".join(f" {column} |" for column in columns)
        yield "|---|" + "---|" * len(columns)
        for row, values in self.rows.items():
            yield f"| {row} |" + "".join(f" {form(name, values[name])} |" if name in values else " - |" for name in columns)


def spread(values, scale=1.0, digits=0):
    """Median and range; texts as they are, if all rounds agree."""
    if isinstance(values[0], str):
        return " / ".join(sorted(set(values)))
    middle, low, high = (of(values) / scale for of in (statistics.median, min, max))
    text = f"{middle:.{digits}f}"
    ends = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return text if ends == (text, text) else f"{text} ({ends[0]} to {ends[1]})"


def figure(name, values):
    """Milliseconds, microseconds, or how many of the comparisons held."""
    if name == "within":
        return f"{sum(values)} of {len(values)}"
    return spread(values, 1, 1 if name.endswith("ms") else 0)


def picked(dist, names=("p50", "p90", "p99")):
    return {name: dist[name] for name in names}


def freeze(table):
    """6 s are three periods: 1200 starts, evenly over all phases."""
    script = "freezing 5000 500 2000"
    with Reference(script) as server:
        run = webdyno(server.url, "-r 200 -n 1200 -c 200 -t 1")
    table.add("webdyno `-r 200`: response time", **picked(run["response_time_us"]))
    with Reference(script) as server:
        run = webdyno(server.url, "-r 200 -n 1200 -c 10 -t 1")
    table.add("webdyno `-r 200 -c 10`: response time", **picked(run["response_time_us"]))
    table.add("webdyno `-r 200 -c 10`: service time", **picked(run["service_time_us"]))
    with Reference(script) as server:
        run = webdyno(server.url, "-c 10 -d 6s -t 1")
    table.add("webdyno closed, `-c 10`", **picked(run["response_time_us"]))
    if shutil.which("wrk"):
        with Reference(script) as server:
            table.add("wrk `-c10`", **picked(wrk(server.url, "-c10 -d6s")[0]))
    if shutil.which("ab"):
        with Reference(script) as server:
            table.add("ab `-k -c 10`", **picked(ab(server.url, "-c 10 -t 6 -n 100000")))
    if OHA:
        for flags in ("-q 200 -c 10", "-q 200 -c 10 --latency-correction", "-q 200 -c 200 --latency-correction"):
            with Reference(script) as server:
                table.add(f"oha `{flags}`", **picked(oha(server.url, flags + " -n 1200")[0]))


def against_truth(table, row, told, truth):
    """What the server truly gave in that run, and by how much what the client told differs."""
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        if name in told:
            true_us = quantile(truth, share)
            off_us = told[name] - true_us
            within = abs(off_us) <= max(0.02 * true_us, 100)
            table.add(row, **{name + " in truth, ms": true_us / 1e3, name + " off by, us": off_us, "within": within})


def scripted(table):
    kernel = "--clock" in subprocess.run([WEBDYNO, "run", "--help"], capture_output=True, text=True).stdout
    for script, count in (("constant 5000", 5000), ("bimodal 2000 50000", 4000), ("exponential 10000", 8000)):
        for flags, name in [("", "webdyno"), ("--clock kernel", "webdyno `--clock kernel`")][:1 + kernel]:
            with Reference(script) as server:
                run = webdyno(server.url, f"-c 20 -n {count} -t 1 {flags}")
            told = dict(run["service_time_us"], **{"p99.9": run["service_time_us"]["p999"]})
            against_truth(table, f"{name}, {script.split()[0]}", told, server.times_us(count))
    script = "exponential 10000"
    if shutil.which("wrk"):
        with Reference(script) as server:
            told = wrk(server.url, "-c20 -d4s")[0]
        against_truth(table, "wrk, exponential", told, server.times_us())
    if shutil.which("ab"):
        with Reference(script) as server:
            told = ab(server.url, "-c 20 -n 8000")
        against_truth(table, "ab, exponential", told, server.times_us())
    if OHA:
        with Reference(script) as server:
            told = oha(server.url, "-c 20 -n 8000")[0]
        against_truth(table, "oha, exponential", told, server.times_us())


def unanswered(table):
    """Every 100th request is never answered."""
    # Spinning would starve nobody here, and counts do not need it.
    def row(name, flags, count=None):
        with Reference("silent 1000 100", spin=False) as server:
            run = webdyno(server.url, flags)
        never = sum(1 for _, answered in server.served if not answered)
        requests = run["requests"]
        table.add(name, **{
            "never answered": f"{never}", "started": f"{requests['started']}", "good": f"{requests['completed']}",
            "timeouts": f"{run['errors']['timeout']}", "in flight at the end": f"{requests['in_flight_at_end']}",
        })

    row("webdyno closed, timeout 0.5 s", "-c 20 -n 999 -t 1 --timeout 500ms")
    row("webdyno `-r 1000`, timeout 0.5 s", "-r 1000 -n 999 -c 50 -t 1 --timeout 500ms")
    row("webdyno closed, timeout 60 s, 2 s", "-c 10 -d 2s -t 1 --timeout 60s")
    row("webdyno `-r 499.5`, timeout 60 s, 2 s", "-r 499.5 -d 2s -c 50 -t 1 --timeout 60s")
    rivals = []
    if shutil.which("wrk"):
        rivals.append(("wrk `-c10`, timeout 1 s, 3 s", lambda url: wrk(url, "-c10 -d3s --timeout 1s")[1:]))
        rivals.append(("wrk `-c10`, timeout 60 s, 2 s", lambda url: wrk(url, "-c10 -d2s --timeout 60s")[1:]))
    if OHA:
        count = lambda url, flags: (lambda good, errors: (good, errors))(*oha(url, flags)[1:])
        rivals.append(("oha `-c 10`, timeout 0.5 s", lambda url: count(url, "-c 10 -n 999 -t 500ms")))
        rivals.append(("oha `-c 10`, timeout 60 s, 2 s", lambda url: count(url, "-c 10 -z 2s -t 60s")))
    for name, run in rivals:
        with Reference("silent 1000 100", spin=False) as server:
            good, failed = run(server.url)
        never = sum(1 for _, answered in server.served if not answered)
        if isinstance(failed, dict):
            failed = ", ".join(f"{number} '{what}'" for what, number in failed.items()) or "0"
        table.add(name, **{"never answered": f"{never}", "good": f"{good}", "timeouts": f"{failed}"})


def poisson_starts_ns(rate, count, seed=1):
    """The starts as crates/load/src/schedule/pacer.rs defines them: splitmix64, exponential gaps."""
    mask, state, at, starts = (1 << 64) - 1, seed, 0.0, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        fraction = ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)
        at -= math.log(1.0 - fraction) * 1e9 / rate
        starts.append(at)
    return starts


def late(table, row, server, starts_ns, told=None):
    """How late requests reached the server's kernel, against the one that was earliest for its start."""
    arrived = sorted(arrived for arrived, _ in server.served)[-len(starts_ns):]
    offsets = [at - start for at, start in zip(arrived, starts_ns)]
    late_us = [(offset - min(offsets)) / 1e3 for offset in offsets]
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
    values = {name: quantile(late_us, share) for name, share in shares}
    values["beyond 100 us, %"] = 100 * sum(1 for us in late_us if us > 100) / len(late_us)
    if told:
        values["told p50"], values["told p99"] = told["client_delay_us"]["p50"], told["client_delay_us"]["p99"]
    table.add(row, **values)


def pacing(table):
    count, rate = 3000, 1000
    even = [n * 1e9 / rate for n in range(count)]
    constant = f"-r {rate} -n {count}"
    # From 0 to 2,000/s in 3 s, 1,000/s in the mean: the integral is rate / 3 * t^2.
    ramp = [math.sqrt(3 * n / rate) * 1e9 for n in range(count)]
    stage = "--stage 3s@0..2000/s,measured=yes"
    for row, flags, starts, pinned in (
        ("webdyno, even, 1 thread on an otherwise idle core", f"{constant} -t 1", even, True),
        ("webdyno, `--poisson`, likewise", f"{constant} -t 1 --poisson --seed 1", poisson_starts_ns(rate, count), True),
        ("webdyno, even, 2 threads, anywhere", f"{constant} -t 2", even, False),
        ("webdyno, `--stage 3s@0..2000/s`, 1 thread on an otherwise idle core", f"{stage} -t 1", ramp, True),
    ):
        with Reference("constant 200", spin=False) as server:
            run = webdyno(server.url, f"-c 50 {flags}", pinned)
        late(table, row, server, starts, run)
    if OHA:
        with Reference("constant 200", spin=False) as server:
            oha(server.url, f"-q {rate} -n {count} -c 50")
        late(table, "oha `-q 1000`, one core", server, even)


def low_rate(table):
    with Reference("constant 200") as server:
        run = webdyno(server.url, "-r 10 -n 30 -c 5 -t 1")
    table.add("the server, in webdyno's run", p50=quantile(server.times_us(30), 0.5))
    table.add("webdyno: service time", p50=run["service_time_us"]["p50"])
    table.add("webdyno: response time", p50=run["response_time_us"]["p50"])
    if OHA:
        with Reference("constant 200") as server:
            told = oha(server.url, "-q 10 -n 30 -c 5")[0]
        table.add("the server, in oha's run", p50=quantile(server.times_us(), 0.5))
        table.add("oha", p50=told["p50"])


# Reads the clock and does nothing else; prints the pauses of more than 100 us, in microseconds.
PAUSES = """
import time
for _ in range(3):
    last = time.perf_counter_ns()
    end = last + 700_000_000
    while last < end:
        now = time.perf_counter_ns()
        if now - last > 100_000:
            print((now - last) // 1000)
        last = now
    time.sleep(0.3)
"""


def pauses(table):
    """What the machine itself withholds from a thread that never sleeps. The breaks keep within what the kernel grants
    to real-time threads (sched(7), sched_rt_runtime_us)."""
    found = [int(us) for us in client([sys.executable, "-c", PAUSES]).split()]
    table.add("a thread that only reads the clock", **{
        "pauses beyond 100 us, each second": len(found) / 2.1, "longest, us": max(found, default=0),
        "share of the time, %": sum(found) / 2.1e4,
    })


def theory(table):
    """P(time > 5 ms + w) = 0.25 (1 - w / 500 ms)."""
    table.add("in theory", p50=5e3, p90=305e3, p99=485e3)


def render(rounds, tables, loads):
    model = re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo").read())
    frozen, script, never, pace, low, machine = tables
    ms = lambda _, values: spread(values, 1e3, 1)
    plain = lambda name, values: spread(values, 1, 1 if name.endswith(("%", "second")) else 0)
    off = [f"{name} {what}" for name in ("p50", "p99", "p99.9") for what in ("in truth, ms", "off by, us")]
    yield (f"{rounds} interleaved rounds; median (lowest to highest). {os.cpu_count()} cores, "
           f"{model[1] if model else 'unknown CPU'}, Linux {os.uname().release}; load average "
           f"{' '.join(f'{load:.1f}' for load in loads)} at the rounds' starts and the end"
           + (", server and clients at real-time priority." if REALTIME else "."))
    yield from ["", "A freezing server, milliseconds:", "", *frozen.lines(["p50", "p90", "p99"], ms)]
    yield from ["", "Scripted distributions, service time against what the server truly gave in that run; *within*: how many "
                "of the figures were within 2% or 100 us:", ""]
    yield from script.lines([*off, "within"], figure)
    yield from ["", "Every 100th request is never answered (counts; the server counts webdyno's probe too):", ""]
    yield from never.lines(["never answered", "started", "good", "timeouts", "in flight at the end"], plain)
    yield from ["", "Pacing at 1,000/s: how late requests reached the server's kernel, microseconds; *told* is "
                "webdyno's own client delay:", ""]
    yield from pace.lines(["p50", "p90", "p99", "p99.9", "max", "beyond 100 us, %", "told p50", "told p99"], plain)
    yield from ["", "10 requests a second to a server that takes 0.2 ms, microseconds:", "", *low.lines(["p50"], plain)]
    yield from ["", "What the machine itself withheld meanwhile:", ""]
    yield from machine.lines(["pauses beyond 100 us, each second", "longest, us", "share of the time, %"], plain)
    yield ""
    yield (f"Little's law: over {len(LITTLE)} runs of webdyno, the mean in flight and rate x mean time differ by "
           f"{100 * max(LITTLE):.4f}% at most. Percentiles out of order, or a mean outside: {len(DISORDER)}.")


def write(lines):
    path = "docs/accuracy.md"
    text = open(path).read()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{path} has not the marks between which the tables belong")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    open(path, "w").write(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


def main():
    args = [arg for arg in sys.argv[1:] if not arg.startswith("--")]
    rounds = int(args[0]) if args else 3
    tables, loads = [Table() for _ in range(6)], []
    theory(tables[0])
    try:
        for number in range(rounds):
            loads.append(os.getloadavg()[0])
            parts = list(zip((freeze, scripted, unanswered, pacing, low_rate, pauses), tables))
            turn = number % len(parts)
            for part, table in parts[turn:] + parts[:turn]:
                print(f"round {number + 1} of {rounds}: {part.__name__}", file=sys.stderr)
                part(table)
        loads.append(os.getloadavg()[0])
    finally:
        shutil.rmtree(DIR, ignore_errors=True)
    lines = list(render(rounds, tables, loads))
    print("\n".join(lines))
    if "--write" in sys.argv:
        write(lines)
    if DISORDER or max(LITTLE) > 0.01:
        raise SystemExit("percentiles are out of order, or Little's law does not hold")


main()
