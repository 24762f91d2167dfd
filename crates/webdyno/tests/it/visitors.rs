//! Visitors of a site that is tuned meanwhile: clients that know nothing of webdyno, each request on a connection of
//! its own, sent when it is due and not when the last one was answered.

use crate::debian::{Debian, Layout, can_run};
use crate::extent::{leave_out, runs_all};
use crate::skip::needs;
use crate::support::{Place, run_json, shared_turn, turn};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anybody waits: a visitor that gives up would be the test's failure, not the server's.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far the reported outage may be from what the visitors saw, beside what the visitors themselves can tell.
const OUTAGE_ERROR_MAX_US: u64 = 50_000;

/// One request, in microseconds since the visitors came.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Visit {
    sent_us: u64,
    ended_us: u64,
    /// What went wrong; `None` for a whole good answer.
    failure: Option<String>,
}

/// Visitors that keep coming until they are sent home.
struct Visitors {
    shared: Arc<Shared>,
    thread: JoinHandle<Vec<JoinHandle<()>>>,
}

struct Shared {
    port: u16,
    began: Instant,
    visits: Mutex<Vec<Visit>>,
    go_home: AtomicBool,
}

impl Visitors {
    /// One comes every so often.
    fn every(pace: Duration, port: u16) -> Self {
        let shared = Arc::new(Shared {
            port,
            began: Instant::now(),
            visits: Mutex::default(),
            go_home: AtomicBool::new(false),
        });
        let door = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut all = vec![];
            for n in 0.. {
                if door.go_home.load(Ordering::Relaxed) {
                    break;
                }
                let visitor = Arc::clone(&door);
                all.push(std::thread::spawn(move || visitor.visit()));
                std::thread::sleep((pace * (n + 1)).saturating_sub(door.began.elapsed()));
            }
            all
        });
        Self { shared, thread }
    }

    /// Sends them home and gives all visits, in the order in which they began.
    fn sent_home(self) -> Vec<Visit> {
        self.shared.go_home.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().into_iter().for_each(|visitor| visitor.join().unwrap());
        let mut visits = std::mem::take(&mut *self.shared.visits.lock().unwrap());
        visits.sort_by_key(|visit| visit.sent_us);
        visits
    }
}

impl Shared {
    fn visit(&self) {
        let sent_us = self.now_us();
        let failure = self.check_response().err();
        let visit = Visit { sent_us, ended_us: self.now_us(), failure };
        self.visits.lock().unwrap().push(visit);
    }

    fn check_response(&self) -> Result<(), String> {
        let reported = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| format!("{what}: {error}")
        };
        let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], self.port).into(), PATIENCE)
            .map_err(reported("connect"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(reported("set"))?;
        let request = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).map_err(reported("write"))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(reported("read"))?;
        let whole = answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("<title>It works</title>\n");
        if whole { Ok(()) } else { Err(format!("answered: {answer:?}")) }
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros().try_into().unwrap()
    }
}

/// How often a session that noise kept from its change is made again.
const SESSIONS_MAX: usize = 6;

/// A session on this server: its first round, `null` when it found nothing to change.
fn tune(debian: &Debian, extra: &[&str]) -> Value {
    let load =
        ["--apply", "--goal", "150 req/s", "-c", "30", "--no-keepalive", "-d", "4s", "-q", "--json", "-"];
    let session = run_json(debian.webdyno().arg("tune").arg(debian.url()).args(load).args(extra));
    session["rounds"][0].clone()
}

/// A client at 50 requests a second through a whole session that reloads, and through its rollback: no request fails.
#[test]
fn nobody_notices_a_reload() {
    let _turn = shared_turn();
    needs!(can_run());
    for layout in [Layout::DropIn, Layout::Event] {
        let place = Place::new();
        let debian = Debian::start(&place, "server", layout);
        let visitors = Visitors::every(Duration::from_millis(20), debian.port);
        let mut rounds = (0..SESSIONS_MAX).map(|_| tune(&debian, &[]));
        let round = rounds.find(|round| round["kept"] == true).expect("no session kept its change");
        assert_eq!(round["changes"][0]["class"], "reload", "{layout:?}: {round:#}");
        assert_eq!(round["outage_us"], 0, "{layout:?}: {round:#}");
        debian.roll_back();
        let visits = visitors.sent_home();
        let failed: Vec<_> = visits.iter().filter(|visit| visit.failure.is_some()).collect();
        assert!(visits.len() > 200, "{layout:?}: only {} came", visits.len());
        assert!(
            failed.is_empty(),
            "{layout:?}: {} of {} failed: {failed:#?}\n{}",
            failed.len(),
            visits.len(),
            debian.log()
        );
        eprintln!("{layout:?}: {} visits, none failed", visits.len());
    }
}

/// The outage of a restart is less than a second, and what is reported is what visitors see.
#[test]
fn the_outage_of_a_restart_is_what_visitors_see() {
    let _turn = turn();
    needs!(can_run());
    let (mut compared_count, wanted_count) = (0, if runs_all() { 2 } else { 1 });
    leave_out(2 - wanted_count, "restarts that visitors compare");
    for _ in 0..SESSIONS_MAX {
        let place = Place::new();
        let debian = Debian::start(&place, "server", Layout::Restart);
        let visitors = Visitors::every(Duration::from_millis(5), debian.port);
        let round = tune(&debian, &["--allow-restart"]);
        let visits = visitors.sent_home();
        // What is put back may be restarted, too: then visitors saw more than this outage.
        if round["kept"] == true {
            assert_eq!(round["changes"][0]["class"], "restart", "{round:#}");
            compare(round["outage_us"].as_u64().unwrap(), &visits);
            compared_count += 1;
        }
        if compared_count == wanted_count {
            return;
        }
    }
    panic!("only {compared_count} sessions kept their change");
}

fn compare(told_us: u64, visits: &[Visit]) {
    let gap = gap(visits).unwrap_or_else(|| panic!("{told_us} us were reported, and no visitor noticed"));
    eprintln!("{told_us} us reported, {} us seen, to {} us", gap.length_us, gap.resolution_us);
    assert!(gap.length_us < 1_000_000 + gap.resolution_us, "{gap:?}");
    assert!(told_us < 1_000_000, "{told_us} us");
    let error_us = told_us.abs_diff(gap.length_us);
    assert!(error_us <= OUTAGE_ERROR_MAX_US + gap.resolution_us, "{told_us} us were reported: {gap:?}");
}

/// The time without an answer, and how exactly these visitors can tell it.
#[derive(Debug, PartialEq, Eq)]
struct Gap {
    length_us: u64,
    /// The longest time between two visitors around it: what happened in between, nobody saw.
    resolution_us: u64,
}

/// From the last good answer before a visit failed to the first one that was asked for after the last failure.
fn gap(visits: &[Visit]) -> Option<Gap> {
    let failed = || visits.iter().filter(|visit| visit.failure.is_some()).map(|visit| visit.sent_us);
    let (first_us, last_us) = (failed().min()?, failed().max()?);
    let good = || visits.iter().filter(|visit| visit.failure.is_none());
    let from_us = good().filter(|visit| visit.sent_us < first_us).map(|visit| visit.ended_us).max()?;
    let to_us = good().filter(|visit| visit.sent_us > last_us).map(|visit| visit.ended_us).min()?;
    let near: Vec<u64> = visits
        .iter()
        .map(|visit| visit.sent_us)
        .filter(|&sent_us| sent_us + 100_000 > from_us && sent_us < to_us + 100_000)
        .collect();
    let resolution_us = near.windows(2).map(|two| two[1].saturating_sub(two[0])).max()?;
    Some(Gap { length_us: to_us.saturating_sub(from_us), resolution_us })
}

#[test]
fn a_gap_is_told_with_its_edges() {
    let visit = |sent_us: u64, ended_us: u64, good: bool| Visit {
        sent_us,
        ended_us,
        failure: (!good).then(|| "connect".to_owned()),
    };
    let all = [
        visit(0, 900, true),
        visit(5_000, 6_000, true),
        visit(10_000, 10_100, false),
        visit(17_000, 17_100, false),
        // Asked for before the last failure, answered after it: ends no gap.
        visit(16_000, 18_000, true),
        visit(20_000, 21_000, true),
        visit(25_000, 25_900, true),
    ];
    let mut visits = all.to_vec();
    visits.sort_by_key(|visit| visit.sent_us);
    assert_eq!(gap(&visits), Some(Gap { length_us: 15_000, resolution_us: 6_000 }));
    assert_eq!(gap(&visits[..2]), None);
}
