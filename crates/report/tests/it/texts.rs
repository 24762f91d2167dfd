//! The texts themselves, as a newcomer reads them.

use crate::sample;
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_report::{ResultPaths, text};
use webdyno_session::view::{Outcome, View};

fn plain(view: &View) -> String {
    text(view, &ResultPaths::default(), webdyno_report::TextStyle::FULL)
}

/// The sections above a heading.
fn before<'a>(text: &'a str, heading: &str) -> &'a str {
    text.find(heading).map_or("no such heading", |at| &text[..at])
}

/// The sections from a heading on.
fn from<'a>(text: &'a str, heading: &str) -> &'a str {
    text.find(heading).map_or("no such heading", |at| &text[at..])
}

#[test]
fn a_run() {
    insta::assert_snapshot!(before(&plain(&sample::run_with_errors()), "What failed"), @"
    Load test: 2,190 req/s, 120 of 22,024 requests failed (0.55%)
      GET http://127.0.0.1:8080/
      50 concurrent requests, closed loop
      measured for 10 s, 2 s of warm-up excluded

    Throughput
      requests   2,190/s  21,904 successful  120 failed
      received   27 MB/s             270 MB
      sent      210 kB/s             2.1 MB

    Objectives
      p99<200ms    met      measured: 69.4 ms
      errors<0.1%  NOT met  measured: 0.55%
      rate>5000    NOT met  not measured

    Latency
                         p50      p90       p99     p99.9     max
      response time    22 ms  38.1 ms   69.4 ms    124 ms  220 ms
      service time   21.8 ms  37.7 ms   68.7 ms    122 ms  218 ms
      connect         180 µs  312 µs?   568 µs?  1.01 ms?  1.8 ms
      first byte     20.9 ms  36.2 ms   65.9 ms    118 ms  209 ms
      client delay     14 µs    24 µs     44 µs     79 µs  140 µs
      failures          2 ms  3.46 ms  6.31 ms?  11.2 ms?   20 ms
      p99: 99% took at most this long.
      ?: fewer than 10 samples lie beyond this figure, or, of response and service
      time, all in fewer than 3 seconds of the run.
      Response time: from when a request was due to its last byte. Service time:
      from when it was sent. Client delay: added by this machine before it sent.
      3 timeouts are included at the length of the timeout.

    Response times
        up to 5 ms  <1%  ▎
        up to 7 ms   1%  ▊
       up to 10 ms   3%  ███▎
       up to 15 ms  14%  ██████████████▉
       up to 20 ms  23%  ████████████████████████▋
       up to 30 ms  37%  ████████████████████████████████████████
       up to 50 ms  19%  ████████████████████▎
       up to 70 ms   3%  ███
      up to 100 ms   1%  ▊
      up to 150 ms  <1%  ▏
      up to 200 ms   0%
      up to 300 ms  <1%  ▏
    ");
}

#[test]
fn what_was_sent_besides_the_requests() {
    let observed = |redirects, resent| {
        let mut view = sample::run_with_errors();
        let Outcome::Run(run) = &mut view.outcome else { panic!("the sample is no run") };
        (run.redirects, run.connections.resent) = (redirects, resent);
        [plain(&view), webdyno_report::html(&view)].map(|text| {
            let output = |words: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words);
            (output("1,234 redirects followed"), output("3 requests resent on a new connection"))
        })
    };
    assert_eq!(observed(0, 0), [(false, false); 2]);
    assert_eq!(observed(1234, 0), [(true, false); 2]);
    assert_eq!(observed(0, 3), [(false, true); 2]);
}

#[test]
fn what_failed_in_a_run() {
    insta::assert_snapshot!(from(&plain(&sample::run_with_errors()), "What failed"), @"
    What failed: 120 of 22,024 requests failed (0.55%)
      20 x the connection was refused (connect_refused)
          Usual cause: nothing listens on that port, the server died or restarted
                       under the load, or what stands before it refuses: some
                       systems and proxies do when their accept queue is full (Linux
                       lets wait)
          Remedy: see with `ss -ltn` on the server what listens and how long its
                  queue is (Recv-Q), and read its error log
      3 x no complete answer within the timeout (timeout)
          Usual cause: more load than the server can answer: requests wait longer
                       than anybody would
          Remedy: let `webdyno diagnose URL --server S` name the limit; to wait
                  longer use --timeout
      97 x the server answered with an error status (status: 503 x 97)
          Usual cause: 500: the application failed; 502, 503, 504: what stands
                       behind the server is full or away; 401, 403: no login, a
                       wrong one or an expired one; 404: a wrong address; 429: a
                       protection against many requests; 301 to 308: with
                       --redirects, one that could not be followed
          Remedy: look at one with `curl -i URL`; if such a status is right here,
                  say so with --ok

    Responses and connections
      Status codes: 200: 21,904 (99.6%), 503: 97 (0.44%)
      Connections: 50 opened, 21,904 requests on a reused connection, at most 50
                   open at once
      37 connections took about 1 s to connect: the first SYN was lost.
      1 connection took about 3 s to connect: the first 2 SYNs were lost.
      12 kept connections closed by the server between requests (normal, not a
      failure).
      Network: minimum RTT 96 µs; smoothed RTT (may include server time) p50 130 µs,
               p99 410 µs; 9 of 1,825 segments (0.49%) retransmitted (a sample of
               the connections)
      At the end: 12 requests in flight at the end, the longest for 9 s so far;
                  excluded from latency.

    Validity
      Valid: the generator kept up (busiest thread 23% of a core).
      Added by the generator: 14 µs of a response time of 22 ms (medians).
      Latency ends when the generator read the response. On 4 connections with
      kernel timestamps responses waited 9 µs (p50), 28 µs (p99) in the socket
      buffer.
    ");
}

#[test]
fn a_run_that_failed_altogether() {
    insta::assert_snapshot!(plain(&sample::run_all_failed()), @"
    Load test: all 1,000 requests failed
      GET http://127.0.0.1:8080/
      50 concurrent requests, closed loop
      measured for 400 ms, no warm-up excluded

    Throughput
      requests    0/s  0 successful  1,000 failed
      received  0 B/s           0 B
      sent      0 B/s           0 B

    Latency
                  p50     p90     p99    p99.9     max
      failures  90 µs  156 µs  284 µs  506 µs?  900 µs
      No successful response, so there are no response times.

    What failed: 1,000 of 1,000 requests failed (100%)
      1,000 x the connection was refused (connect_refused)
          Usual cause: nothing listens on that port, the server died or restarted
                       under the load, or what stands before it refuses: some
                       systems and proxies do when their accept queue is full (Linux
                       lets wait)
          Remedy: see with `ss -ltn` on the server what listens and how long its
                  queue is (Recv-Q), and read its error log

    Responses and connections
      Connections: 0 opened, 0 requests on a reused connection, at most 0 open at
                   once
      Network: round trips and retransmits unknown (no TCP data)

    Validity
      Valid as far as known: the generator kept up (its CPU use is unknown).
    ");
}

#[test]
fn an_exhausted_server() {
    insta::assert_snapshot!(before(&plain(&sample::diagnosis_exhausted()), "Also found"), @"
    Diagnosis: this limits the server
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor.

      (apache-workers-exhausted; confidence 95%; accounts for 71% of the added
      latency)
      Details: webdyno explain apache-workers-exhausted

    Load: 750 req/s, no failures
      GET http://127.0.0.1:8080/
      50 concurrent requests, closed loop
      measured for 10 s, 2 s of warm-up excluded
      response time p50 66 ms, p99 208 ms
      Valid: the generator kept up (busiest thread 23% of a core).

    Evidence, with the command that shows it on the server
      busy workers mean  20 workers        2 s to 12 s  mod_status
          $ curl -s 'http://127.0.0.1:8080/server-status?auto' | grep Scoreboard
      accept queue mean  28.4 connections  2 s to 12 s  sock_diag
          $ ss -ltn 'sport = :8080'
      server cpu         34%               2 s to 12 s  /proc/stat
          $ vmstat 1 5
      worker time mean   26.3 ms           2 s to 12 s  mod_status
          $ curl -s 'http://127.0.0.1:8080/server-status?auto' | grep Duration

    What to change
      1. apache MaxRequestWorkers: 20 -> 64, with ServerLimit 64
          How: applied by restart, with downtime
          Why: 50 requests are in flight at once; 1.3 times as many workers leave
               none waiting
          Risk: each worker needs about 6 MB; 64 fit into the free memory of 2.1 GB
          Expected: about 2,100 req/s (95% interval 1,800/s to 2,300/s)
    ");
}

#[test]
fn what_else_is_known_of_an_exhausted_server() {
    insta::assert_snapshot!(from(&plain(&sample::diagnosis_exhausted()), "Also found"), @"
    Also found
      - htaccess-lookups: AllowOverride All is in force for /srv/www: every request
        looks for .htaccess in 3 directories. (confidence 60%)

    Mean response time: 68.6 ms
      load generator    14 µs  <1%  ▏
      connect          0.8 µs  <1%  ▏
      accept queue    37.9 ms  55%  ████████████████▋
      worker          26.3 ms  38%  ███████████▌
      unexplained      4.4 ms   6%  █▉
      unknown: backend, network

    Limits ahead
      resource                   now   limit  saturates at  source
      apache workers              20      20         750/s  MaxRequestWorkers
      accept queue              28.4     511       unknown  ListenBacklog,
                                                            net.core.somaxconn
      connection table           312  65,536         546/s  nf_conntrack_max / 120 s
      (conntrack)

      Next limit: CPU saturated (cpu-saturated), at about 2,230 req/s.

    Not measured
      - mod_status durations: ExtendedStatus is Off
          To enable: set `ExtendedStatus On` in the Apache configuration and reload

    The server
      apache 2.4.62, prefork, port 8080, process 4711
      w1, 2 cores, 4 GB of memory, AMD EPYC 7B13, Debian GNU/Linux 12 (bookworm),
      kernel 6.1.0-28-amd64

    Notes
      - the error log is not readable: AH00161 cannot be seen
    ");
}

#[test]
fn a_healthy_server() {
    let view =
        sample::diagnosis_plain("healthy", "The server answers all 120 requests a second without waiting.");
    insta::assert_snapshot!(plain(&view), @"
    No limit reached: the server kept up with the load
      The server answers all 120 requests a second without waiting.

      (healthy; confidence 90%)
      No limit reached: the server kept up with the load. To find its limit, use
      more connections (-c) or a higher rate (-r).

    Load: 120 req/s, no failures
      GET http://127.0.0.1:8080/
      50 concurrent requests, closed loop
      measured for 10 s, 2 s of warm-up excluded
      response time p50 1.2 ms, p99 3.79 ms
      Valid: the generator kept up (busiest thread 23% of a core).

    Evidence, with the command that shows it on the server
      good rate  120/s  2 s to 12 s  webdyno
          $ webdyno run http://127.0.0.1:8080/ -r 120
    ");
}

#[test]
fn a_limit_that_is_not_known() {
    let view =
        sample::diagnosis_plain("unknown", "The rate stopped rising at 120/s and no rule explains it.");
    insta::assert_snapshot!(plain(&view), @"
    Limit unknown
      The rate stopped rising at 120/s and no rule explains it.

      (unknown; confidence 90%)
      No known cause could be proven. The time table and the missing signals show
      where to look next.

    Load: 120 req/s, no failures
      GET http://127.0.0.1:8080/
      50 concurrent requests, closed loop
      measured for 10 s, 2 s of warm-up excluded
      response time p50 1.2 ms, p99 3.79 ms
      Valid: the generator kept up (busiest thread 23% of a core).

    Evidence, with the command that shows it on the server
      good rate  120/s  2 s to 12 s  webdyno
          $ webdyno run http://127.0.0.1:8080/ -r 120
    ");
}

#[test]
fn a_tuned_server() {
    let paths = ResultPaths {
        directory: Some("webdyno-runs/20261121-202600-tune".into()),
        html: Some("webdyno-runs/20261121-202600-tune/report.html".into()),
        rollback: Some("webdyno rollback --server ssh://w1".into()),
        ..ResultPaths::default()
    };
    insta::assert_snapshot!(text(&sample::tune_applied(), &paths, webdyno_report::TextStyle::FULL), @"
    Quickstart: 750 -> 2,190 req/s, 2.9 times

    What limited
      - All 20 workers of Apache are busy while 28.4 connections wait to be
        accepted: requests wait for a worker, not for the processor.
        (apache-workers-exhausted)

    What was changed
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          applied by restart, downtime 412 ms

    Gain
      750 -> 2,190 req/s: 2.9 times, 95% interval 2.8 to 3.0
              before    after
      req/s    750/s  2,190/s
      failed      0%       0%
      p50      66 ms    22 ms
      p99     208 ms  69.4 ms
      Goal max: nothing else was found that helps.

    Rounds (req/s)
      1  MaxRequestWorkers 20 -> 64 (+1)    750/s -> 2,190/s   2.9x  better, kept
      2  StartServers 5 -> 50             2,190/s -> 2,185/s  1.00x  same, reverted

    What limits now
      Both cores do useful work 98% of the time. (cpu-saturated)
      The CPUs do useful work all the time, and no setting makes them faster: a
      higher rate needs less work per request (caching, lighter pages), or more or
      faster cores.

    Limits ahead
      resource                   now   limit  saturates at  source
      apache workers              20      20         750/s  MaxRequestWorkers
      accept queue              28.4     511       unknown  ListenBacklog,
                                                            net.core.somaxconn
      connection table           312  65,536         546/s  nf_conntrack_max / 120 s
      (conntrack)

    Notes
      - the generator and the server share one machine: the figures are lower than
        between two
      - the error log is not readable: AH00161 cannot be seen

    Files and commands
      Report with plots:  webdyno-runs/20261121-202600-tune/report.html
      Recording:          webdyno-runs/20261121-202600-tune
      Show it again:      webdyno report webdyno-runs/20261121-202600-tune
      Undo the changes:   webdyno rollback --server ssh://w1
    ");
}

#[test]
fn a_plan() {
    let apply = "webdyno tune http://127.0.0.1:8080/ --server local --goal max --apply";
    let paths = ResultPaths { apply: Some(apply.into()), ..ResultPaths::default() };
    insta::assert_snapshot!(text(&sample::tune_planned(), &paths, webdyno_report::TextStyle::FULL), @"
    Tuning: planned, nothing was changed
      Plan only: nothing was written on the server.
      Today: 750 req/s, no failures.
      response time p50 66 ms, p99 208 ms.

    Limit
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor. (apache-workers-exhausted)

    Planned change
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          applied by restart, with downtime
      Expected: about 2,100 req/s (95% interval 1,800/s to 2,300/s)
      Risk: each worker needs about 6 MB; 64 fit into the free memory of 2.1 GB

      --- /tmp/quick/conf.d/zz-webdyno.conf
      +++ /tmp/quick/conf.d/zz-webdyno.conf
      @@ -0,0 +1,2 @@
      +ServerLimit 64
      +MaxRequestWorkers 64

    To apply
          $ webdyno tune http://127.0.0.1:8080/ --server local --goal max --apply
      Each change is validated first, measured after, and reverted if it does not
      help.
    ");
}

#[test]
fn a_proposal() {
    insta::assert_snapshot!(plain(&sample::tune_proposed()), @"
    Tuning: proposal for files managed by other tools; nothing was changed
      The remedy is in files managed by other tools: proposed only, the server was
      not changed.

    What was measured
      Today: 750 req/s, no failures.
      response time p50 66 ms, p99 208 ms.
      Goal max: tuning ended before that was certain.

    Proposed
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor. (apache-workers-exhausted)
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          applied by restart, with downtime
      /tmp/quick/conf.d/zz-webdyno.conf is managed by Puppet (it is in Puppet's
      catalog): make the change there; --export DIR writes it as files

      --- /tmp/quick/conf.d/zz-webdyno.conf
      +++ /tmp/quick/conf.d/zz-webdyno.conf
      @@ -0,0 +1,2 @@
      +ServerLimit 64
      +MaxRequestWorkers 64

    Rounds (req/s)
      1  MaxRequestWorkers 20 ->    750/s -> unknown  unknown  proposed, not written
         64 (+1)

    What limits now
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor. (apache-workers-exhausted)
      Details and remedies: webdyno explain apache-workers-exhausted
    ");
}

#[test]
fn changes_that_did_not_help() {
    insta::assert_snapshot!(plain(&sample::tune_reverted()), @"
    Tuning: no change helped; original configuration restored
      All changes were measured, none helped, all were reverted.

    What was tried
      Round 1: All 20 workers of Apache are busy while 28.4 connections wait to be
               accepted: requests wait for a worker, not for the processor.
               (apache-workers-exhausted)
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          applied by restart, downtime 412 ms
          less than expected: measured 741/s, expected about 2,100 req/s (95%
          interval 1,800/s to 2,300/s)

    What was measured
      Today: 750 req/s, no failures.
      response time p50 66 ms, p99 208 ms.
      Goal of 5,000/s not met: 750/s measured.

    Rounds (req/s)
      1  MaxRequestWorkers 20 -> 64 (+1)  750/s -> 741/s  0.99x  same, reverted

    What limits now
      Both cores do useful work 98% of the time. (cpu-saturated)
      The CPUs do useful work all the time, and no setting makes them faster: a
      higher rate needs less work per request (caching, lighter pages), or more or
      faster cores.
    ");
}

#[test]
fn a_recording_that_stops_in_the_middle() {
    insta::assert_snapshot!(plain(&sample::torn()), @"
      A change may still be in force: webdyno rollback restores the original
      configuration.

    webdyno tune: nothing to report
      The recording has no result yet: the session was killed or still runs.
      - before: 750 req/s, no failures

    Files and commands
      Undo the changes:   webdyno rollback
    ");
}

#[test]
fn others_on_the_server() {
    let evidence = webdyno_model::fact::Fact {
        name: "others_requests_per_s".into(),
        value: 12.333,
        unit: "requests/s".into(),
        from_s: -3.2,
        to_s: -0.2,
        source: "mod_status".into(),
        reproduce: "a=$(x); sleep 3; b=$(x); echo $(( (b - a - 1) / 3 ))".into(),
    };
    let traffic = LiveTraffic {
        present: true,
        requests_per_s: Some(12.333),
        connections_count: Some(3.0),
        evidence: vec![evidence],
    };
    let (mut tuned, mut diagnosed) = (sample::tune_reverted(), sample::diagnosis_exhausted());
    let output =
        "Other clients used the server during the measurement (12.3 requests/s; open connections: 3).";
    let nobody = [plain(&tuned), plain(&diagnosed)];
    assert!(nobody.iter().all(|text| !text.contains("Other clients")), "{nobody:?}");
    for present in [true, false] {
        let traffic = Some(LiveTraffic { present, ..traffic.clone() });
        match (&mut tuned.outcome, &mut diagnosed.outcome) {
            (Outcome::Tune(tune), Outcome::Diagnosis(diagnosis)) => {
                tune.live_traffic = traffic.clone();
                diagnosis.live_traffic = traffic;
            }
            other => panic!("{other:?}"),
        }
        for view in [&tuned, &diagnosed] {
            let text = plain(view).split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(text.contains(output), present, "{text}");
            assert_eq!(webdyno_report::html(view).contains(output), present);
        }
        assert_eq!(plain(&diagnosed).contains("$ a=$(x); sleep 3"), present, "{}", plain(&diagnosed));
    }
}

/// A run that measured a table, with all that the generator says of itself.
fn of_a_table() -> webdyno_model::run::RunReport {
    use webdyno_model::client::{InFlightReport, KernelLimitTotal, TableReport, ThreadReport};
    use webdyno_model::distribution::PercentileNeed;
    let mut run = sample::run(840.0, 22_000.0);
    run.warmup_why = Some("in them the rate was 35% of the later one (change-point test)".into());
    let need = PercentileNeed { count: 10_000, seconds: 3, elapsed_s: 12.0 };
    run.unsupported_percentiles = vec!["p999".into()];
    run.percentiles_need.insert("p999".into(), need);
    let client = &mut run.client;
    client.threads = [0.23, 0.21].map(|cpu_fraction| ThreadReport { cpu_s: 2.0, cpu_fraction }).into();
    client.in_flight = InFlightReport { mean: Some(18.48), by_law: Some(18.5), server: Some(17.0) };
    client.descriptors = Some(TableReport::new(Some(20_000), 70, 12));
    client.local_ports = Some(TableReport::new(Some(28_232), 28_230, 28_230));
    let limit = "net.ipv4.ip_local_port_range".to_owned();
    client.kernel_limit_total = Some(KernelLimitTotal { limit, value: 28_232, connections: 28_230 });
    (client.valid, client.why) = (false, Some("the run measured a table, not the server: and so on".into()));
    run
}

#[test]
fn what_the_generator_and_the_length_of_a_run_say() {
    let run = of_a_table();
    let text = plain(&sample::view("run", Outcome::Run(run)));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(before(&text, "Answers and"), @"no such heading");
    insta::assert_snapshot!(from(&text, "Can the figures"), @"no such heading");
}
