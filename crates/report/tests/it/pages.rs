//! What is told of pages and of visitors.

use crate::sample;
use webdyno_model::page::{PageTrace, TraceKind};
use webdyno_report::{ResultPaths, ascii, html, text};
use webdyno_session::view::{Outcome, View};

fn plain(view: &View) -> String {
    text(view, &ResultPaths::default(), webdyno_report::TextStyle::FULL)
}

/// What stands between two headings.
fn between<'a>(text: &'a str, first: &str, next: &str) -> &'a str {
    let from = text.find(first).map_or("no such heading", |at| &text[at..]);
    from.find(next).map_or("no such heading after it", |at| &from[..at])
}

/// The sample with something changed.
fn changed(change: impl FnOnce(&mut webdyno_model::run::RunReport)) -> View {
    let mut view = sample::run_with_pages();
    let Outcome::Run(run) = &mut view.outcome else { return view };
    change(run);
    view
}

#[test]
fn what_a_load_of_pages_says_first() {
    let reported = plain(&sample::run_with_pages());
    insta::assert_snapshot!(between(&reported, "Load test", "Page times"), @"
    Load test: 176 pages/s, 9 of 1,769 pages failed (0.51%)
      session look (75% of them): page /, page /shop
      session buy (25% of them): page /, login, page /shop
      page: with the resources of its HTML and CSS, at most 6 connections per host
      400 users, closed loop; at most 2,400 connections
      think time after a step: 1 s to 3 s (uniform); 1 step has one of their own
      users have a browser cache
      30% of the sessions by returning users, the others by new ones
      measured for 10 s, 2 s of warm-up excluded: users came one by one; 3 s of
      ramp-down excluded

    Throughput
      pages         176/s     1,760 complete   9 failed
      sessions       79/s       790 complete  4 aborted
      requests    2,812/s  28,120 successful   9 failed
      received  34.7 MB/s             347 MB
      sent       270 kB/s             2.7 MB

    Latency
                         p50       p90       p99     p99.9     max
      page time       212 ms    367 ms    669 ms   1.19 s?  2.12 s
      response time    21 ms   36.4 ms   66.2 ms    118 ms  210 ms
      service time   20.8 ms     36 ms   65.6 ms    117 ms  208 ms
      connect         180 µs   312 µs?   568 µs?  1.01 ms?  1.8 ms
      first byte       20 ms   34.6 ms   62.9 ms    112 ms  199 ms
      client delay     14 µs     24 µs     44 µs     79 µs  140 µs
      failures         9 ms?  15.6 ms?  28.4 ms?  50.6 ms?   90 ms
      p99: 99% took at most this long.
      ?: fewer than 10 samples lie beyond this figure, or, of page, response and
      service time, all in fewer than 3 seconds of the run. p99.9 takes 10,000
      pages, at this rate 57 s.
      Page time: from when a page was due to the last byte of its last resource;
      complete pages only.
      Response time: from when a request was due to its last byte. Service time:
      from when it was sent. Client delay: added by this machine before it sent.
      1 timeout is included at the length of the timeout.
    ");
}

#[test]
fn pages_and_requests_have_their_names() {
    let reported = plain(&sample::run_with_pages());
    insta::assert_snapshot!(between(&reported, "By page", "The slowest page"), @"
    By page
      page   complete  failed  per second     p50     p99
      /           900       1        90/s  180 ms  568 ms
      /shop       860       8        86/s  250 ms  789 ms

    By request
      request                            good  failed    p50      p99
      /static/css/a-n...umn-can-be.css  9,000       8   9 ms  28.4 ms
      /                                   900       0  60 ms   189 ms
      /shop                               868       0  70 ms   221 ms
      login                               205       0  30 ms  94.6 ms

    The page nearest to the median: /, 231 ms, 20 parts, 276 kB
      /                         ▒▒▒▒▒▒▒▒██                            70 ms  18.4 kB
      /static/css/article-1.css           ▒▒██                      98.4 ms     5 kB
      /static/css/article-2.css           ▒▒███                     99.4 ms  5.99 kB
      /static/jpg/article-3.jpg           ░▒▒██                      100 ms  6.99 kB
      /static/jpg/article-4.jpg           █                           70 ms    cache
      /static/jpg/article-5.jpg           ░▒▒██                      103 ms  8.99 kB
      /static/jpg/article-6.jpg           ░▒▒██                      104 ms  9.98 kB
      /static/jpg/article-7.jpg                 ▒▒▒██                142 ms    11 kB
      /static/jpg/article-8.jpg                 ░▒▒██                144 ms    12 kB
      /static/jpg/article-9.jpg                 ░▒▒██                145 ms    13 kB
      /static/jpg...icle-10.jpg                 ░▒▒██                146 ms    14 kB
      /static/jpg...icle-11.jpg                 ░▒▒███               147 ms    15 kB
      /static/jpg...icle-12.jpg                 ░▒▒███               148 ms    16 kB
      /static/jpg...icle-13.jpg                 ░░░░░░░▒▒██          187 ms    17 kB
      /static/jpg...icle-14.jpg                 ░░░░░░░▒▒███         188 ms    18 kB
      /static/jpg...icle-15.jpg                 ░░░░░░░▒▒███         189 ms    19 kB
      /static/jpg...icle-16.jpg                 ░░░░░░░▒▒███         190 ms    20 kB
      /static/jpg...icle-17.jpg                 ░░░░░░░▒▒███         191 ms  20.9 kB
      /static/jpg...icle-18.jpg                 ░░░░░░░▒▒███         192 ms  21.9 kB
      /static/jpg...icle-19.jpg                 ░░░░░░░░░░░░░▒▒███   231 ms  22.9 kB
    ");
}

#[test]
fn a_failed_page_shows_why_and_sums_up_what_tells_less() {
    let reported = plain(&sample::run_with_pages());
    insta::assert_snapshot!(between(&reported, "The slowest page", "What failed"), @"
    The slowest page: /shop, 2.62 s, 45 parts, 1.17 MB, failed
      /shop                     ▒▒▒▒▒█                               450 ms  18.4 kB
      /static/css/article-1.css      ▒▒█                             632 ms     5 kB
      /static/css/article-2.css      ░▒█                             639 ms  5.99 kB
      /static/jpg/article-3.jpg      ░▒█                             646 ms  6.99 kB
      /static/jpg/article-4.jpg      █                               450 ms    cache
      /static/jpg/article-5.jpg      ░▒██                            659 ms  8.99 kB
      /static/jpg/article-6.jpg      ░▒██                            666 ms  9.98 kB
      /static/jpg/article-7.jpg          ▒██                         916 ms    11 kB
      /static/jpg/article-8.jpg          ▒▒█                         923 ms    12 kB
      /static/jpg/article-9.jpg          ▒▒█                         929 ms    13 kB
      /static/jpg...icle-10.jpg          ░▒█                         936 ms    14 kB
      /static/jpg...icle-11.jpg          ░▒█                         943 ms    15 kB
      /static/jpg...icle-12.jpg          ░▒█                         950 ms    16 kB
      /static/jpg...icle-13.jpg          ░░░░▒██                      1.2 s    17 kB
      /static/jpg...icle-14.jpg          ░░░░▒██                     1.21 s    18 kB
      /static/jpg...icle-15.jpg          ░░░░▒██                     1.21 s    19 kB
      /static/jpg...icle-16.jpg          ░░░░▒██                     1.22 s    20 kB
      /static/jpg...icle-17.jpg          ░░░░▒██                     1.23 s  20.9 kB
      /static/jpg...icle-18.jpg          ░░░░▒██                     1.23 s  21.9 kB
      /static/jpg...icle-19.jpg          ░░░░░░░▒██                  1.48 s  22.9 kB
      /static/jpg...icle-20.jpg          ░░░░░░░▒▒█                  1.49 s  23.9 kB
      /static/jpg...icle-21.jpg          ░░░░░░░▒▒█                   1.5 s  24.9 kB
      /static/jpg...icle-40.jpg          ░░░░░░░░░░░░░░░░░░▒███      2.35 s   FAILED
      /static/jpg...icle-44.jpg          ░░░░░░░░░░░░░░░░░░░░░▒▒▒▒   2.62 s   FAILED
      (21 more)                          -------------------------   2.62 s   757 kB
      - /static/jpg/article-40.jpg: status 503
      - /static/jpg/article-44.jpg: no complete answer within the timeout (timeout)

      ░ known, and not sent yet: it waits for a connection, or for its opening
      ▒ sent, no byte of the answer yet
      █ receiving. The times are those of the ends, since the page was due
    ");
}

#[test]
fn what_visitors_did_and_looked_for_in_vain() {
    let reported = plain(&sample::run_with_pages());
    insta::assert_snapshot!(between(&reported, "What the visitors did", "Responses and connections"), @"
    What the visitors did
      820 sessions started, 790 completed, 4 aborted; 400 visitors active at the
      end.
      browser cache: 3,120 answers (9.98% of all) served without a request; 240
      revalidated by the server (304).
      4 steps skipped: a value they need was not found in an earlier response.
      - `csrf` of the step login: not found in 4 of 205 answers
          Usual cause: an answer that is an error page or asks for a login first, or
                       a page that was written anew since
          Remedy: look at the answer of the step with `curl -i URL`, then correct
                  the capture in the workload file
    ");
}

#[test]
fn a_capture_that_never_matched_is_told_from_one_that_sometimes_did_not() {
    for (missed, output) in [(205, "never found in 205 answers"), (204, "not found in 204 of 205 answers")] {
        let view = changed(|run| {
            run.visits.as_mut().unwrap().captures_missed = [("login: csrf".to_owned(), missed)].into();
        });
        assert!(plain(&view).contains(&format!("- `csrf` of the step login: {output}")), "{missed}");
        assert!(html(&view).contains(output), "{missed}");
    }
}

#[test]
fn a_link_to_another_server_is_told_from_a_value_that_is_missing() {
    let missing = "skipped: a value they need was not found";
    let elsewhere = "skipped: the link found leads to a server that is not part of the workload";
    for (skipped, links, missing_steps, elsewhere_steps) in [
        (4, 0, Some("4 steps"), None),
        (4, 3, Some("1 step"), Some("3 steps")),
        (3, 3, None, Some("3 steps")),
    ] {
        let view = changed(|run| {
            let visits = run.visits.as_mut().unwrap();
            visits.steps_skipped = skipped;
            if links > 0 {
                visits.add_not_loaded("https://elsewhere.example", links);
            }
        });
        let reported = plain(&view).split_whitespace().collect::<Vec<_>>().join(" ");
        for (steps, what) in [(missing_steps, missing), (elsewhere_steps, elsewhere)] {
            match steps {
                Some(steps) => assert!(reported.contains(&format!("{steps} {what}")), "{reported}"),
                None => assert!(!reported.contains(what), "{reported}"),
            }
        }
        assert_eq!(reported.contains("https://elsewhere.example x 3"), links > 0, "{reported}");
        assert_eq!(html(&view).contains("elsewhere.example"), links > 0);
    }
}

#[test]
fn sessions_that_all_broke_off_are_said_first() {
    let broken = |completed: u64| {
        changed(|run| {
            let visits = run.visits.as_mut().unwrap();
            (visits.sessions_completed, visits.sessions_broken) = (completed, 90);
        })
    };
    let reported = plain(&broken(0));
    assert!(reported.starts_with("Load test: no complete session: all 90 sessions aborted\n"), "{reported}");
    assert!(html(&broken(0)).contains("No complete session: all 90 sessions"));
    assert!(plain(&broken(1)).starts_with("Load test: 176 pages/s"));
}

#[test]
fn repeated_runs_of_pages_are_told_in_pages() {
    use webdyno_model::repeats::{RepeatedRun, Repeats, Spread};
    let run = |run: u32, page_rate: f64| RepeatedRun {
        run,
        rate: Some(page_rate * 16.0),
        p50_us: Some(21_000),
        p99_us: Some(66_000),
        failed: 9,
        warmup_s: 2.0,
        valid: run == 1,
        why: (run == 2).then(|| "its clock stood still for 2 s".into()),
        page_rate: Some(page_rate),
        page_p50_us: Some(212_000),
        page_p99_us: Some(669_000),
    };
    let spread = |median: f64| Spread {
        median,
        min: median,
        max: median,
        relative: Some(0.023),
        mean: median,
        ci95: Some([median * 0.9, median * 1.1]),
    };
    let repeats = Repeats {
        chosen: 1,
        runs: vec![run(1, 176.0), run(2, 180.0)],
        rate: Some(spread(2848.0)),
        page_rate: Some(spread(178.0)),
        page_p50_us: Some(spread(212_000.0)),
        page_p99_us: Some(spread(669_000.0)),
        ..Repeats::default()
    };
    let view = changed(|run| run.repeats = Some(repeats));
    insta::assert_snapshot!(between(&plain(&view), "2 runs of this load", "Latency"), @"
    2 runs of this load: spread of page rates 2.3%
                  pages/s  page p50  page p99  requests/s  failed  warm-up  valid
      run 1 *         176    212 ms    669 ms       2,816       9      2 s    yes
      run 2           180    212 ms    669 ms       2,880       9      2 s     NO
      median          178    212 ms    669 ms       2,848
      spread         2.3%      2.3%      2.3%        2.3%
      mean            178    212 ms    669 ms       2,848
      mean, from      160    191 ms    602 ms       2,563
      to (95%)        196    233 ms    736 ms       3,133
      Run 2 is not valid: its clock stood still for 2 s.
      * is the run reported: its rate is the median of the valid runs. Spread:
      (largest - smallest) / median. Interval of the mean: 95% (Student).
    ");
    let page = html(&view);
    assert!(page.contains("pages/s") && page.contains("Run 2 is not valid: its clock stood still for 2 s."));
}

#[test]
fn enough_pages_in_too_few_seconds_are_told_as_that() {
    use webdyno_model::distribution::PercentileNeed;
    let need = |count: u64| PercentileNeed { count, seconds: 3, elapsed_s: 7.6 };
    for (count, reported) in [
        (20, "p50 takes slower pages in 3 seconds of the run, as things went 7.6 s."),
        (9_999_999, "p50 takes 9,999,999 pages, at this rate 7.6 s."),
    ] {
        let view = changed(|run| {
            run.pages.as_mut().unwrap().percentiles_need = [("p50".to_owned(), need(count))].into();
        });
        let output = plain(&view).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.contains(reported), "{reported}: {output}");
    }
}

#[test]
fn who_begins_sessions_and_how_many_are_due_is_told_rightly() {
    use webdyno_model::workload::Arrival;
    use webdyno_model::workload::stage::{Shape, Stage};
    let stage =
        Stage { duration_us: 1_000_000, shape: Shape::Spike { from: 10.0, peak: 600.0 }, measured: true };
    let open = Arrival::Open { rate_per_s: 600.0, poisson: false };
    for (arrival, stages, returning, reported) in [
        (open, vec![], 0.0, "constant rate 600 sessions of new users/s, open loop"),
        (open, vec![], 0.3, "constant rate 600 sessions/s, open loop"),
        (open, vec![stage], 0.3, "up to constant rate 600 sessions/s, open loop"),
        (Arrival::Closed, vec![stage], 0.0, "up to 400 users, closed loop"),
    ] {
        let view = changed(|run| {
            let workload = run.workload.as_mut().unwrap();
            (workload.arrival, workload.stages) = (arrival, stages);
            workload.visits.as_mut().unwrap().returning_fraction = returning;
        });
        let output = plain(&view);
        assert!(output.contains(&format!("\n  {reported}")), "{reported}: {output}");
    }
}

#[test]
fn what_did_not_happen_is_not_told() {
    let reported = plain(&sample::run_with_errors());
    for heading in ["pages", "By page", "The slowest page", "What the visitors did", "users:"] {
        assert!(!reported.contains(heading), "{heading}: {reported}");
    }
    let without = changed(|run| (run.visits, run.client.users) = (None, None));
    assert!(!plain(&without).contains("What the visitors did") && !plain(&without).contains("- users:"));
    // One page that is both is shown once.
    let once = changed(|run| {
        let pages = run.pages.as_mut().unwrap();
        pages.slowest_page = pages.median_page.clone();
    });
    assert!(!plain(&once).contains("The slowest page"));
}

#[test]
fn no_whole_page_is_said_first() {
    let reported = plain(&sample::run_of_failed_pages());
    assert!(reported.starts_with("Load test: no complete page: all 12 pages failed\n"), "{reported}");
    assert!(html(&sample::run_of_failed_pages()).contains("No complete page: all 12 pages failed"));
}

#[test]
fn a_terminal_without_unicode_shows_the_same_pictures() {
    let reported = plain(&sample::run_with_pages());
    let plain = ascii(&reported);
    assert!(
        plain.is_ascii() && !plain.contains('?')
            || plain.matches('?').count() == reported.matches('?').count()
    );
    assert!(plain.contains("/static/jpg...icle-13.jpg                 .......==##  "), "{plain}");
    assert!(plain.contains("up to 200 ms  24%  ########################################\n"), "{plain}");
}

#[test]
fn html_has_a_waterfall_of_both_pages() {
    let data = |view: &View| serde_json::to_string(&webdyno_report::page_data(view)).unwrap();
    let page = data(&sample::run_with_pages());
    assert_eq!(page.matches("\"kind\":\"waterfall\"").count(), 2);
    assert!(page.contains("The page nearest to the median: /") && page.contains("status 503"));
    let many = changed(|run| {
        let pages = run.pages.as_mut().unwrap();
        pages.slowest_page = Some(sample::pages::trace(TraceKind::Slowest, "/", 500, 9_000));
    });
    let page = data(&many);
    assert!(page.contains("(441 more)") && !page.contains("article-100.jpg"));
    let bare = changed(|run| {
        let pages = run.pages.as_mut().unwrap();
        (pages.median_page, pages.slowest_page) = (Some(PageTrace::default()), None);
    });
    assert!(data(&bare).contains("\"kind\":\"waterfall\"") && plain(&bare).contains("0 parts"));
}
