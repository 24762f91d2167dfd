//! The change record, as whoever keeps the books of a server reads it.

use crate::sample;
use crate::sample::tuned::{attempt, changed, journal};
use webdyno_model::change::{ChangedHost, JournalPlace};
use webdyno_model::tune::TuneState;
use webdyno_report::{ResultPaths, record, rollback, text};
use webdyno_session::recording::Reverted;
use webdyno_session::view::{Outcome, SessionEnd, View};

/// What fits on a page.
const PAGE_LINES_MAX: usize = 60;

fn of(view: &View) -> String {
    record(view).unwrap_or_default()
}

#[test]
fn what_came_out_otherwise_than_expected_is_told() {
    // Expected were 1,800 to 2,300.
    for (after, told) in
        [(1500.0, Some("less than expected: measured 1,500/s")), (2500.0, Some("more")), (2190.4, None)]
    {
        let view = changed(sample::tune_kept(), |tune| {
            let round = &mut tune.rounds[0];
            (round.after, round.noise_floor, round.pairs) = (Some(after), Some(0.05), Some(3));
        });
        let pages = [
            of(&view),
            text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL),
            webdyno_report::html(&view),
        ];
        for page in pages.map(|page| page.split_whitespace().collect::<Vec<_>>().join(" ")) {
            assert_eq!(page.contains("than expected"), told.is_some(), "{after}: {page}");
            assert!(page.contains(told.unwrap_or_default()), "{after}: {page}");
        }
        let noise =
            "judged by 3 pairs of loads without and with the change; a change below 5% counts as noise here";
        assert!(of(&view).split_whitespace().collect::<Vec<_>>().join(" ").contains(noise));
    }
}

#[test]
fn a_change_that_stays() {
    insta::assert_snapshot!(of(&sample::tune_kept()), @r"
    # Change record: apache on w1

    1 change was made and kept. 750 -> 2,190 req/s: 2.9 times, 95% interval 2.8 to 3.0.

    - Server: w1, 2 cores, 4 GB of memory, AMD EPYC 7B13, Debian GNU/Linux 12 (bookworm), kernel
      6.1.0-28-amd64
    - Service: apache 2.4.62, prefork, port 8080, process 4711
    - When: 2026-11-21T20:26:00Z, by root (alice by sudo), with `webdyno tune --apply` of webdyno 0.1.0
    - Goal: Goal max: nothing else was found that helps.
    - Recording: `/root/webdyno-runs/20261121T202600Z-tune`
    - Undo journal: session 20261121T202612.345678Z-4242 in `/var/lib/webdyno` on w1

    ## Change 1: MaxRequestWorkers 20 -> 64, ServerLimit 20 -> 64
    - File: `/tmp/quick/conf.d/zz-webdyno.conf` of apache, by restart
    - Why: All 20 workers of Apache are busy while 28.4 connections wait to be accepted: requests wait
      for a worker, not for the processor. (apache-workers-exhausted)
    - Fact: busy workers mean 20 workers (mod_status, 2 s to 12 s)
    - Fact: accept queue mean 28.4 connections (sock_diag, 2 s to 12 s)
    - Fact: server cpu 34% (/proc/stat, 2 s to 12 s)
    - Fact: worker time mean 26.3 ms (mod_status, 2 s to 12 s)
    - Proof: 750/s -> 2,190/s req/s, 2.9 times (95% interval 2.8 to 3.0): better; failed 0% -> 0%; p99
      208 ms -> 69.4 ms
    - Risk: each worker needs about 6 MB; 64 fit into the free memory of 2.1 GB
    - Downtime: applied by restart, downtime 412 ms

    ## Tried and not kept
    - Change 2: StartServers 5 -> 50 (apache-spawn-lag): same, 1.00 times (95% interval 0.98 to 1.01);
      applied by graceful reload, no downtime; reverted, no downtime

    ## Notes
    - Note: the generator and the server share one machine: the figures are lower than between two

    ## Rollback
    On the server, as the same user. Every file gets its content, mode and owner of before back, and the
    service takes them over; while others use the site nothing is restarted for it, and what only a
    restart brings back is told. It undoes what other sessions have kept there as well.
    ```
    webdyno rollback
    ```

    ## How to verify
    ```
    grep -n MaxRequestWorkers /tmp/quick/conf.d/zz-webdyno.conf  # MaxRequestWorkers 64
    grep -n ServerLimit /tmp/quick/conf.d/zz-webdyno.conf  # ServerLimit 64
    curl -s 'http://127.0.0.1:8080/server-status?auto' | sed -n 's/^Scoreboard: //p' | tr -d '\n' | wc -c  # 64, or more while workers from before are there
    ```

    ## The whole difference
    ```diff
    --- /tmp/quick/conf.d/zz-webdyno.conf
    +++ /tmp/quick/conf.d/zz-webdyno.conf
    @@ -0,0 +1,2 @@
    +ServerLimit 64
    +MaxRequestWorkers 64
    ```
    ");
}

#[test]
fn an_interrupted_session_left_nothing_behind() {
    insta::assert_snapshot!(of(&sample::interrupted()), @"
    # Change record: the server on w1

    Nothing was changed: the server has its original configuration.
    The session was interrupted.

    - Server: w1, 2 cores, 4 GB of memory, AMD EPYC 7B13, Debian GNU/Linux 12 (bookworm), kernel
      6.1.0-28-amd64
    - When: 2026-11-21T20:26:00Z, by root (alice by sudo), with `webdyno tune --apply` of webdyno 0.1.0
    - Goal: Goal max: tuning ended before that was certain.
    - Recording: `/root/webdyno-runs/20261121T202600Z-tune`
    - Undo journal: session 20261121T202612.345678Z-4242 in `/var/lib/webdyno` on w1

    ## Tried and not kept
    - Change 1: MaxRequestWorkers 20 -> 64, ServerLimit 20 -> 64 (apache-workers-exhausted): not fully
      measured; applied by restart, downtime 412 ms; reverted (downtime 380 ms)
    ");
}

#[test]
fn only_sessions_that_may_change_something_have_a_record() {
    let failed = |view: View| View { end: SessionEnd::Failed(1, "the disk is full".into()), ..view };
    let torn = |view: View| View { end: SessionEnd::Torn, ..view };
    let untouched = |view: View| View { attempts: vec![], ..changed(view, |tune| tune.rounds.clear()) };
    for (what, view, expected) in [
        ("a run", sample::run_with_errors(), false),
        ("a diagnosis", sample::diagnosis_exhausted(), false),
        ("a plan", sample::tune_planned(), false),
        ("a quickstart, whose server is gone", sample::tune_applied(), false),
        ("changes that stay", sample::tune_kept(), true),
        ("changes that did not help", sample::tune_reverted(), true),
        ("nothing to change", untouched(sample::tune_reverted()), true),
        ("an error before anything was applied", failed(untouched(sample::tune_reverted())), false),
        ("an error after it", failed(sample::interrupted()), true),
        ("a kill before anything was applied", torn(untouched(sample::tune_reverted())), false),
        ("a kill after it", torn(sample::interrupted()), true),
    ] {
        assert_eq!(record(&view).is_some(), expected, "{what}");
    }
}

#[test]
fn what_may_be_in_force_is_never_said_to_be_undone() {
    let mut killed = sample::interrupted();
    killed.end = SessionEnd::Torn;
    killed.attempts[0].put_back = None;
    let mut stuck = sample::interrupted();
    stuck.end = SessionEnd::Failed(1, "the files could not be put back".into());
    stuck.attempts[0].put_back = None;
    for view in [killed, stuck] {
        let text = of(&view);
        assert!(!text.contains("Nothing was changed"), "{text}");
        for part in
            ["was interrupted", "webdyno rollback", "+MaxRequestWorkers 64", "grep -n MaxRequestWorkers"]
        {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }
}

#[test]
fn the_text_ends_with_where_it_is() {
    let paths = ResultPaths { record: Some("runs/1/change-record.md".into()), ..ResultPaths::default() };
    let text = text(&sample::tune_kept(), &paths, webdyno_report::TextStyle::FULL);
    assert!(text.contains("Change record:      runs/1/change-record.md\n  Undo the changes:"), "{text}");
}

/// However much was tried: a page, and the difference after it.
#[test]
fn it_is_one_page() {
    let mut view = sample::tune_kept();
    let Outcome::Tune(tune) = &mut view.outcome else { panic!("a tuning session") };
    let (kept, put_back) = (tune.rounds[0].clone(), tune.rounds[1].clone());
    tune.rounds.clear();
    for n in 1..=14 {
        let round = if n <= 3 { kept.clone() } else { put_back.clone() };
        tune.rounds.push(webdyno_model::tune::Round { n, ..round });
    }
    view.attempts = tune.rounds.iter().map(attempt).collect();
    view.attempts[3..].iter_mut().for_each(|attempt| attempt.put_back = Some(Reverted { outage_us: None }));
    view.notes = (0..30).map(|n| format!("note {n}")).collect();
    // The three are more than sessions keep.
    for (kept_count, lines_max) in [(1, PAGE_LINES_MAX), (2, PAGE_LINES_MAX), (3, PAGE_LINES_MAX + 8)] {
        let view = changed(view.clone(), |tune| {
            tune.rounds.iter_mut().for_each(|round| round.kept = round.n <= kept_count);
        });
        let text = of(&view);
        let page = text.split("## The whole difference").next().unwrap();
        assert!(page.lines().count() <= lines_max, "{} lines:\n{page}", page.lines().count());
    }
}

/// What was kept and then changed once more: both differences in their order, and one value to look for.
#[test]
fn two_changes_of_one_file_are_both_shown() {
    let twice = changed(sample::tune_kept(), |tune| {
        tune.rounds[1] = tune.rounds[0].clone();
        tune.rounds[1].n = 2;
        tune.rounds[1].changes.truncate(1);
        tune.rounds[1].changes[0].to = webdyno_model::service::SettingValue::Integer(99);
        tune.rounds[1].diff = "-MaxRequestWorkers 64\n+MaxRequestWorkers 99\n".into();
    });
    let text = of(&twice);
    let (first, second) =
        (text.find("+MaxRequestWorkers 64").unwrap(), text.find("+MaxRequestWorkers 99").unwrap());
    assert!(first < second, "{text}");
    assert!(
        text.contains("  # MaxRequestWorkers 99\n") && !text.contains("  # MaxRequestWorkers 64\n"),
        "{text}"
    );
    assert!(text.contains("2 changes were made and kept"), "{text}");
}

#[test]
fn each_host_that_was_changed_has_its_way_back() {
    let host = |role: &str, server: Option<&str>| ChangedHost {
        role: role.into(),
        server: server.map(str::to_owned),
    };
    let elsewhere = JournalPlace { state_directory: "/srv/state".into(), is_default: false, ..journal() };
    let other_journals =
        [(host("db", Some("ssh://d1")), Some(journal())), (host("host", None), Some(elsewhere))].into();
    let view = View { other_journals, ..sample::tune_kept() };
    let shown =
        [record(&view).unwrap(), text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL)];
    for part in
        ["webdyno rollback --server ssh://d1", "WEBDYNO_STATE=/srv/state webdyno rollback", "on host:"]
    {
        assert!(shown.iter().all(|page| page.contains(part)), "no `{part}` in:\n{}", shown.join("\n"));
    }
}

#[test]
fn the_way_back_leads_to_the_journal() {
    let elsewhere =
        |directory: &str| JournalPlace { state_directory: directory.into(), is_default: false, ..journal() };
    for (place, expected) in [
        (Some(journal()), "webdyno rollback"),
        (Some(elsewhere("/srv/state")), "WEBDYNO_STATE=/srv/state webdyno rollback"),
        (Some(elsewhere("/srv/my state")), "WEBDYNO_STATE='/srv/my state' webdyno rollback"),
        (None, "webdyno rollback"),
    ] {
        let view = View { journal: place, ..sample::tune_kept() };
        assert_eq!(rollback(&view).as_deref(), Some(expected));
        assert!(of(&view).contains(&format!("\n{expected}\n")));
        assert!(
            text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL)
                .contains(&format!("Undo the changes:   {expected}\n"))
        );
    }
    let put_back = changed(sample::tune_kept(), |tune| tune.state = TuneState::Reverted);
    for nothing in [sample::tune_planned(), sample::tune_applied(), put_back] {
        assert_eq!(rollback(&nothing), None);
    }
}
