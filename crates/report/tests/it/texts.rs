//! The texts themselves, as a newcomer reads them.

use crate::sample;
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_report::{ResultPaths, text};
use webdyno_session::view::{Outcome, View};

fn plain(view: &View) -> String {
    text(view, &ResultPaths::default())
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
    Load test: 2,190 good answers a second, 120 of 22,024 requests failed (0.55%)
      GET http://127.0.0.1:8080/
      50 requests at once; each next one is sent when an answer is there (closed)
      measured for 10 s, after 2 s of warm-up that do not count

    How much
      requests   2,190/s  21,904 good  120 failed
      received   27 MB/s       270 MB
      sent      210 kB/s       2.1 MB

    Objectives
      p99<200ms    met      measured: 69.4 ms
      errors<0.1%  NOT met  measured: 0.55%
      rate>5000    NOT met  not measured

    How long it took
                         p50      p90       p99     p99.9     max
      response time    22 ms  38.1 ms   69.4 ms    124 ms  220 ms
      service time   21.8 ms  37.7 ms   68.7 ms    122 ms  218 ms
      connect         180 µs  312 µs?   568 µs?  1.01 ms?  1.8 ms
      first byte     20.9 ms  36.2 ms   65.9 ms    118 ms  209 ms
      client delay     14 µs    24 µs     44 µs     79 µs  140 µs
      failures          2 ms  3.46 ms  6.31 ms?  11.2 ms?   20 ms
      p99: 99 of 100 took no longer than this; max: the longest one.
      ?: fewer than 10 samples lie beyond this figure, or, of response and service
      time, all in fewer than 3 seconds of the run.
      Response time counts from the moment a request was due until its last byte:
      what a user waits. Service time counts from when it was really sent. Client
      delay is what this machine added itself before it sent.
      3 timeouts are in it at the timeout's length.

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
            (output("1,234 redirects followed"), output("3 requests sent again on a fresh connection"))
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
          Usually: nothing listens on that port, the server died or restarted under
                   the load, or what stands before it refuses: some systems and
                   proxies do when their accept queue is full (Linux lets wait)
          To do: see with `ss -ltn` on the server what listens and how long its
                 queue is (Recv-Q), and read its error log
      3 x no complete answer within the timeout (timeout)
          Usually: more load than the server can answer: requests wait longer than
                   anybody would
          To do: let `webdyno diagnose URL --server S` name the limit; to wait
                 longer use --timeout
      97 x the server answered with an error status (status: 503 x 97)
          Usually: 500: the application failed; 502, 503, 504: what stands behind
                   the server is full or away; 401, 403: no login, a wrong one or an
                   expired one; 404: a wrong address; 429: a protection against many
                   requests; 301 to 308: with --redirects, one that could not be
                   followed
          To do: look at one with `curl -i URL`; if such a status is right here, say
                 so with --ok

    Answers and connections
      Status codes: 200: 21,904 (99.6%), 503: 97 (0.44%)
      Connections: 50 opened, 21,904 requests sent on one that was used before, at
                   most 50 open at once
      37 connections took about 1 s: the first SYN was lost.
      1 connection took about 3 s: the first 2 SYNs were lost.
      12 kept connections closed by the server with no answer begun: normal between
      requests, and not a failure.
      Network: a round trip took at least 96 µs; as TCP smooths it, which may hold
               the server's own time, 130 µs (median), 410 µs (p99); 9 of 1,825
               segments (0.49%) were sent again (a sample of the connections)
      At the end: 12 requests had no answer yet when the load ended, one of them for
                  9 s already. They are in none of the times (censored): how long
                  they would have taken is not known.

    Can the figures be believed?
      The generator kept up (its busiest thread used 23% of a core): the figures
      hold.
      It added 14 µs to a response time of 22 ms (medians).
      The times end when the generator had read an answer. On 4 connections the
      kernel stamped what it received: answers lay there for 9 µs (median), 28 µs
      (p99) before they were read.
    ");
}

#[test]
fn a_run_that_failed_altogether() {
    insta::assert_snapshot!(plain(&sample::run_all_failed()), @"
    Load test: no good answer: all 1,000 requests failed
      GET http://127.0.0.1:8080/
      50 requests at once; each next one is sent when an answer is there (closed)
      measured for 400 ms; no warm-up was cut

    How much
      requests    0/s  0 good  1,000 failed
      received  0 B/s     0 B
      sent      0 B/s     0 B

    How long it took
                  p50     p90     p99    p99.9     max
      failures  90 µs  156 µs  284 µs  506 µs?  900 µs
      There was no good answer, so that there are no times of answers.

    What failed: 1,000 of 1,000 requests failed (100%)
      1,000 x the connection was refused (connect_refused)
          Usually: nothing listens on that port, the server died or restarted under
                   the load, or what stands before it refuses: some systems and
                   proxies do when their accept queue is full (Linux lets wait)
          To do: see with `ss -ltn` on the server what listens and how long its
                 queue is (Recv-Q), and read its error log

    Answers and connections
      Connections: 0 opened, 0 requests sent on one that was used before, at most 0
                   open at once
      Network: round trips and losses are unknown (TCP was read of no connection)

    Can the figures be believed?
      The generator kept up as far as can be told (how much processor it used is
      unknown).
    ");
}

#[test]
fn an_exhausted_server() {
    insta::assert_snapshot!(before(&plain(&sample::diagnosis_exhausted()), "Also found"), @"
    Diagnosis: this limits the server
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor.

      (apache-workers-exhausted; 95% sure; it explains 71% of the lost time)
      More about it: webdyno explain apache-workers-exhausted

    Under this load: 750 good answers a second, no request failed
      GET http://127.0.0.1:8080/
      50 requests at once; each next one is sent when an answer is there (closed)
      measured for 10 s, after 2 s of warm-up that do not count
      half of the answers within 66 ms, 99% within 208 ms
      The generator kept up (its busiest thread used 23% of a core): the figures
      hold.

    How we know (and how to see it by hand, on the server)
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
          How: needs a stop and a start: nobody is answered in between
          Why: 50 requests are in flight at once; 1.3 times as many workers leave
               none waiting
          Risk: each worker needs about 6 MB; 64 fit into the free memory of 2.1 GB
          Expected: about 2,100 good answers a second (95% interval 1,800/s to
                    2,300/s)
    ");
}

#[test]
fn what_else_is_known_of_an_exhausted_server() {
    insta::assert_snapshot!(from(&plain(&sample::diagnosis_exhausted()), "Also found"), @"
    Also found
      - htaccess-lookups: AllowOverride All is in force for /srv/www: every request
        looks for .htaccess in 3 directories. (60% sure)

    Where the mean response time goes (68.6 ms in all)
      added by the generator       14 µs  <1%  ▏
      connecting                  0.8 µs  <1%  ▏
      waiting for a free worker  37.9 ms  55%  ████████████████▋
      in a worker                26.3 ms  38%  ███████████▌
      not explained               4.4 ms   6%  █▉
      unknown: behind the worker, on the network

    Limits ahead: in use now, the most there can be, and when they bind
      limit                        now    most  binds at  source
      apache workers                20      20     750/s  MaxRequestWorkers
      accept queue                28.4     511   unknown  ListenBacklog,
                                                          net.core.somaxconn
      connection table             312  65,536     546/s  nf_conntrack_max / 120 s
      (conntrack)

    After that
      The next limit will be cpu-saturated, at about 2,230 good answers a second.

    What could not be read
      - mod_status durations: ExtendedStatus is Off
          To have it: set `ExtendedStatus On` in the Apache configuration and reload

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
    Diagnosis: healthy, no limit was reached
      The server answers all 120 requests a second without waiting.

      (healthy; 90% sure)
      No limit of the server was reached: it answers all that was asked of it. To
      find out how far it goes, ask for more with more connections (-c) or a higher
      rate (-r).

    Under this load: 120 good answers a second, no request failed
      GET http://127.0.0.1:8080/
      50 requests at once; each next one is sent when an answer is there (closed)
      measured for 10 s, after 2 s of warm-up that do not count
      half of the answers within 1.2 ms, 99% within 3.79 ms
      The generator kept up (its busiest thread used 23% of a core): the figures
      hold.

    How we know (and how to see it by hand, on the server)
      good rate  120/s  2 s to 12 s  webdyno
          $ webdyno run http://127.0.0.1:8080/ -r 120
    ");
}

#[test]
fn a_limit_that_is_not_known() {
    let view =
        sample::diagnosis_plain("unknown", "The rate stopped rising at 120/s and no rule explains it.");
    insta::assert_snapshot!(plain(&view), @"
    Diagnosis: the limit is not known
      The rate stopped rising at 120/s and no rule explains it.

      (unknown; 90% sure)
      No known cause could be proved. The time table and the missing signals show
      where to look next; a guess would be worse than none.

    Under this load: 120 good answers a second, no request failed
      GET http://127.0.0.1:8080/
      50 requests at once; each next one is sent when an answer is there (closed)
      measured for 10 s, after 2 s of warm-up that do not count
      half of the answers within 1.2 ms, 99% within 3.79 ms
      The generator kept up (its busiest thread used 23% of a core): the figures
      hold.

    How we know (and how to see it by hand, on the server)
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
    insta::assert_snapshot!(text(&sample::tune_applied(), &paths), @"
    Quickstart: 750 -> 2,190 good answers a second, 2.9 times as many

    What was wrong
      - All 20 workers of Apache are busy while 28.4 connections wait to be
        accepted: requests wait for a worker, not for the processor.
        (apache-workers-exhausted)

    What was changed
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          took effect by a stop and a start; nobody was answered for 412 ms

    What it brought
      750 -> 2,190 good answers a second: 2.9 times, 95% interval 2.8 to 3.0
                            before    after
      good answers           750/s  2,190/s
      failed                    0%       0%
      half answered within   66 ms    22 ms
      99% answered within   208 ms  69.4 ms
      The goal was as fast as this machine can: nothing more was found that helps.

    Round by round (good answers a second)
      1  MaxRequestWorkers 20 -> 64 (+1)    750/s -> 2,190/s   2.9x  better, kept
      2  StartServers 5 -> 50             2,190/s -> 2,185/s  1.00x  same, put back

    What limits now
      Both cores do useful work 98% of the time. (cpu-saturated)
      The CPUs do useful work all the time, and no setting makes them faster: a
      higher rate needs less work per request (caching, lighter pages), or more or
      faster cores.

    Limits ahead: in use now, the most there can be, and when they bind
      limit                        now    most  binds at  source
      apache workers                20      20     750/s  MaxRequestWorkers
      accept queue                28.4     511   unknown  ListenBacklog,
                                                          net.core.somaxconn
      connection table             312  65,536     546/s  nf_conntrack_max / 120 s
      (conntrack)

    Notes
      - the generator and the server share one machine: the figures are lower than
        between two
      - the error log is not readable: AH00161 cannot be seen

    Where things are
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
    insta::assert_snapshot!(text(&sample::tune_planned(), &paths), @"
    Tuning: there is a plan; nothing was changed
      Nothing was written on the server: this is what would be done.
      Today: 750 good answers a second, no request failed.
      half of the answers within 66 ms, 99% within 208 ms.

    What is wrong
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor. (apache-workers-exhausted)

    What would be changed
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          needs a stop and a start: nobody is answered in between
      Expected: about 2,100 good answers a second (95% interval 1,800/s to 2,300/s)
      Risk: each worker needs about 6 MB; 64 fit into the free memory of 2.1 GB

      --- /tmp/quick/conf.d/zz-webdyno.conf
      +++ /tmp/quick/conf.d/zz-webdyno.conf
      @@ -0,0 +1,2 @@
      +ServerLimit 64
      +MaxRequestWorkers 64

    To do it
          $ webdyno tune http://127.0.0.1:8080/ --server local --goal max --apply
      Each change is tested first, measured after, and put back when it does not
      help.
    ");
}

#[test]
fn a_proposal() {
    insta::assert_snapshot!(plain(&sample::tune_proposed()), @"
    Tuning: there is a proposal for files that others manage; nothing was changed
      What would help is in files that others manage: it is proposed, and the server
      was not touched.

    What was measured
      Today: 750 good answers a second, no request failed.
      half of the answers within 66 ms, 99% within 208 ms.
      The goal was as fast as this machine can: tuning ended before that was sure.

    What is proposed
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor. (apache-workers-exhausted)
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          needs a stop and a start: nobody is answered in between
      /tmp/quick/conf.d/zz-webdyno.conf is managed by Puppet (it is in Puppet's
      catalog): make the change there; --export DIR writes it as files

      --- /tmp/quick/conf.d/zz-webdyno.conf
      +++ /tmp/quick/conf.d/zz-webdyno.conf
      @@ -0,0 +1,2 @@
      +ServerLimit 64
      +MaxRequestWorkers 64

    Round by round (good answers a second)
      1  MaxRequestWorkers 20 ->    750/s -> unknown  unknown  proposed, not written
         64 (+1)

    What limits now
      All 20 workers of Apache are busy while 28.4 connections wait to be accepted:
      requests wait for a worker, not for the processor. (apache-workers-exhausted)
      This would have to change next. What it is and what can be done: webdyno
      explain apache-workers-exhausted
    ");
}

#[test]
fn changes_that_did_not_help() {
    insta::assert_snapshot!(plain(&sample::tune_reverted()), @"
    Tuning: nothing helped: the server has its original configuration
      Every change was measured, none helped, and all were put back: the server is
      as it was.

    What was tried
      Round 1: All 20 workers of Apache are busy while 28.4 connections wait to be
               accepted: requests wait for a worker, not for the processor.
               (apache-workers-exhausted)
      - apache MaxRequestWorkers 20 -> 64
      - apache ServerLimit 20 -> 64
          in /tmp/quick/conf.d/zz-webdyno.conf
          took effect by a stop and a start; nobody was answered for 412 ms
          less than expected: 741/s was measured, where about 2,100 good answers a
          second (95% interval 1,800/s to 2,300/s) were expected

    What was measured
      Today: 750 good answers a second, no request failed.
      half of the answers within 66 ms, 99% within 208 ms.
      The goal of 5,000/s was not met: 750/s was measured.

    Round by round (good answers a second)
      1  MaxRequestWorkers 20 -> 64 (+1)  750/s -> 741/s  0.99x  same, put back

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
      A change may still be in force: webdyno rollback puts the original
      configuration back.

    webdyno tune: nothing to report
      The recording stops before there was a result: it was killed, or it still
      runs.
      - before: 750 good answers a second, no request failed

    Where things are
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
    let output = "Other clients used the server meanwhile (12.3 requests/s; open connections: 3).";
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
    insta::assert_snapshot!(before(&text, "Answers and"), @"
    Load test: 840 good answers a second, no request failed
      INVALID: the run measured a table, not the server: and so on. Discard the
      rate; what to do: webdyno explain kernel-limit-total.
      GET http://127.0.0.1:8080/
      50 requests at once; each next one is sent when an answer is there (closed)
      measured for 10 s, after 2 s of warm-up that do not count: in them the rate
      was 35% of the later one (change-point test)

    How much
      requests      840/s  8,400 good  0 failed
      received  10.4 MB/s      104 MB
      sent      80.6 kB/s      806 kB

    How long it took
                         p50      p90      p99     p99.9     max
      response time    22 ms  38.1 ms  69.4 ms   124 ms?  220 ms
      service time   21.8 ms  37.7 ms  68.7 ms   122 ms?  218 ms
      connect         180 µs  312 µs?  568 µs?  1.01 ms?  1.8 ms
      first byte     20.9 ms  36.2 ms  65.9 ms   118 ms?  209 ms
      client delay     14 µs    24 µs    44 µs    79 µs?  140 µs
      p99: 99 of 100 took no longer than this; max: the longest one.
      ?: fewer than 10 samples lie beyond this figure, or, of response and service
      time, all in fewer than 3 seconds of the run. p99.9 takes 10,000 answers, at
      this rate 12 s.
      Response time counts from the moment a request was due until its last byte:
      what a user waits. Service time counts from when it was really sent. Client
      delay is what this machine added itself before it sent.
    ");
    insta::assert_snapshot!(from(&text, "Can the figures"), @"
    Can the figures be believed?
      INVALID: the run measured a table, not the server: and so on. Discard the
      rate; what to do: webdyno explain kernel-limit-total.
      - processor of each engine thread, as a share of a core: 23%, 21%
      - requests in flight on the average: 18.5 counted, 18.5 by rate times time
        (Little's law); the server had 17
      - open files: at most 70 in use of 20,000; 12 at the end
      - local ports towards one address: at most 28,230 in use of 28,232; 28,230 at
        the end
      It added 14 µs to a response time of 22 ms (medians).
      The times end when the generator had read an answer. On 4 connections the
      kernel stamped what it received: answers lay there for 9 µs (median), 28 µs
      (p99) before they were read.
    ");
}
