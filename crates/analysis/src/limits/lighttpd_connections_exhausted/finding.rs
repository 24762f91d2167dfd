//! When `lighttpd-connections-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::worker_waits;
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const SETTING: &str = "server.max-connections";
/// Places between two connections are free for a moment.
const TAKEN_FRACTION_MIN: f64 = 0.75;
const TAKEN_FRACTION_MAX: f64 = 1.2;
/// A process with so much of a core accepts late because it computes.
const BUSY_THREAD_FRACTION_MAX: f64 = 0.75;
/// Connections that wait all the time while the thread has so little to do are not wanted,
const SLEEPS_FRACTION_MAX: f64 = 0.3;
/// unless it has no descriptors left, or waits for a disk.
const FULL_MIN: f64 = 0.9;
const CONFIDENCE_ACCEPTS_NOBODY: f64 = 0.6;
/// Above what is wanted at once.
const HEADROOM: f64 = 2.0;
const CONFIDENCE: f64 = 0.85;
/// Connections are listed every few seconds only; a short load may have met no such moment.
const CONFIDENCE_SERVED: f64 = 0.75;

/// Fires when connections wait to be accepted while all places that lighttpd has are taken.
pub fn check(facts: &Facts) -> Option<Finding> {
    let places = places(facts).filter(|_| facts.is_service("lighttpd"))?;
    let max = places.max * places.workers;
    let queue = noticed_queue(facts)?;
    let are_taken =
        |(least, most): (f64, f64)| most >= TAKEN_FRACTION_MIN * max && least <= TAKEN_FRACTION_MAX * max;
    let held = facts.value(FactId::connections_held_mean);
    let is_held = held.is_some_and(|held| are_taken((held, held)));
    let is_taken = is_held || served_at_once(facts).is_some_and(are_taken);
    let computes =
        facts.value(FactId::busiest_thread_fraction).is_none_or(|part| part > BUSY_THREAD_FRACTION_MAX);
    if computes || !(is_taken || accepts_nobody(facts)) {
        return None;
    }
    let idle = facts
        .value(FactId::idle_connections_mean)
        .filter(|idle| *idle >= 1.0)
        .map_or(String::new(), |idle| {
            format!(" On {} of the connections nothing is asked.", format_number(significant(idle, 2)))
        });
    Some(Finding {
        id: LimitId::LighttpdConnectionsExhausted.into(),
        summary: format!(
            "lighttpd has all connections that it may have ({} {}{}), and {} wait to be accepted.{idle}",
            places.by,
            format_number(places.max),
            places.of_workers(),
            format_number(significant(queue, 3))
        ),
        confidence: match (is_held, is_taken) {
            (true, _) => CONFIDENCE,
            (_, true) => CONFIDENCE_SERVED,
            _ => CONFIDENCE_ACCEPTS_NOBODY,
        },
        explains_fraction: facts
            .value(FactId::in_flight_mean)
            .map(|in_flight| significant((queue / in_flight.max(1.0)).min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            accept_queue_mean, connections_held_mean, idle_connections_mean, busiest_thread_fraction, in_flight_mean,
            upstream_waiting_mean, response_time_mean_us, response_time_alone_us, cpu_busy_fraction, rate,
        }),
        remedies: vec![remedy(&places, max + queue)],
    })
}

const FILES: &str = "server.max-fds";
const WORKERS: &str = "server.max-worker";

/// How many connections there may be.
struct Places {
    /// In each process.
    max: f64,
    /// What says so.
    by: &'static str,
    /// Where that is `server.max-fds`: its value, and how many of them each connection takes.
    files: Option<(f64, f64)>,
    /// Processes that serve: each is a copy with the same limits.
    workers: f64,
}

impl Places {
    fn of_workers(&self) -> String {
        let several = Some(self.workers).filter(|workers| *workers > 1.0);
        several.map_or(String::new(), |workers| format!(" for each of {} workers", format_number(workers)))
    }
}

/// No more than half of the descriptors, whatever is set; a third where nothing is (`server_main_setup` in src/server.c, where each
/// worker comes to its own after the fork).
fn places(facts: &Facts) -> Option<Places> {
    let set = facts.setting(SETTING).filter(|max| *max >= 1.0);
    let (each, by) = match set {
        Some(_) => (2.0, "half of server.max-fds:"),
        None => (3.0, "a third of server.max-fds:"),
    };
    let files = facts.setting(FILES).filter(|files| *files >= each);
    let workers = facts.setting(WORKERS).map_or(1.0, |workers| workers.max(1.0));
    let by_files =
        files.map(|files| Places { max: (files / each).floor(), by, files: Some((files, each)), workers });
    let set = set.map(|max| Places { max, by: SETTING, files: None, workers });
    set.into_iter().chain(by_files).min_by(|a, b| a.max.total_cmp(&b.max))
}

/// Connections that all processes together may have.
pub(super) fn connections_max(facts: &Facts) -> Option<f64> {
    places(facts).map(|places| places.max * places.workers)
}

/// Requests that are served at once: at least those that wait behind lighttpd, and at most, by Little's law, as many as end, each for as
/// long as the slowest of those that were sent alone.
fn served_at_once(facts: &Facts) -> Option<(f64, f64)> {
    let behind: f64 = facts.each(FactId::upstream_waiting_mean).map(|(_, waiting)| waiting).sum();
    let by_law = facts.value(FactId::response_time_alone_us).zip(facts.ended_per_s());
    let by_law = by_law.map(|(alone_us, per_s)| per_s * alone_us / 1e6);
    let most = by_law.map_or(behind, |by_law| by_law.max(behind));
    (most > 0.0).then_some((behind, most))
}

/// Whether connections wait in each reading while its thread sleeps, and nothing of the machine is short: then it does not want them.
fn accepts_nobody(facts: &Facts) -> bool {
    let always = facts.value(FactId::accept_queue_waiting_fraction).is_some_and(|part| part >= 1.0);
    let sleeps = facts.value(FactId::busiest_thread_fraction).is_some_and(|part| part <= SLEEPS_FRACTION_MAX);
    let is_full = [FactId::open_files_fraction, FactId::worker_processes_blocked_mean];
    let waits = is_full.into_iter().filter_map(|name| facts.value(name)).any(|full| full >= FULL_MIN);
    always && sleeps && !waits && !worker_waits::machine_is_short(facts)
}

fn remedy(places: &Places, wanted: f64) -> Remedy {
    let to = 2f64.powf((HEADROOM * wanted / places.workers).log2().ceil());
    let integer = |value: f64| Some(SettingValue::Integer(value as i64));
    let why = format!(
        "{} connections are wanted at once, doubled{}; a shorter server.max-keep-alive-idle closes the connections of clients that ask nothing",
        format_number(significant(wanted, 3)),
        if places.workers > 1.0 { ", and spread over the workers" } else { "" }
    );
    let lighttpd = |name: &str| SettingId::of_service("lighttpd", name);
    if let Some((files, each)) = places.files {
        let risk = "about 10 kB of memory for each connection; server.max-connections is half of it at most, and a third where it is not set";
        return Remedy { from: integer(files), to: integer(each * to), ..manual(lighttpd(FILES), risk, why) };
    }
    let risk = "about 10 kB of memory for each, and server.max-fds must be at least twice that";
    Remedy { from: integer(places.max), to: integer(to), ..manual(lighttpd(SETTING), risk, why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const BASE: [(FactId, f64); 5] = [
        (FactId::accept_queue_mean, 53.0),
        (FactId::connections_held_mean, 7.0),
        (FactId::busiest_thread_fraction, 0.01),
        (FactId::in_flight_mean, 53.0),
        (FactId::rate, 159.0),
    ];

    fn with(changes: &[(FactId, f64)], max: Option<i64>) -> Option<Finding> {
        let settings = max.map(|max| (SETTING, max));
        let mut facts = facts(&with_changes(&BASE, changes), settings.as_slice());
        facts.service.as_mut().unwrap().service = "lighttpd".into();
        check(&facts)
    }

    #[test]
    fn places_that_are_all_taken_are_told_with_what_waits() {
        let found = with(&[], Some(8)).unwrap();
        let begins = "lighttpd has all connections that it may have (server.max-connections 8), and 53 wait to be accepted";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        assert_eq!(found.remedies[0].to, Some(SettingValue::Integer(128)));
        let unlisted = (FactId::connections_held_mean, f64::NAN);
        let slowest =
            [(50_000.0, Some(CONFIDENCE_SERVED)), (90_000.0, Some(CONFIDENCE_SERVED)), (5_000.0, None)];
        for (alone_us, confidence) in slowest {
            let served = with(&[unlisted, (FactId::response_time_alone_us, alone_us)], Some(8));
            assert_eq!(served.map(|finding| finding.confidence), confidence, "{alone_us}");
        }
        let rare = [(FactId::connections_held_mean, 1.0), (FactId::response_time_alone_us, 60_000.0)];
        assert_eq!(with(&rare, Some(8)).map(|finding| finding.confidence), Some(CONFIDENCE_SERVED));
        let always = (FactId::accept_queue_waiting_fraction, 1.0);
        let accepts = |more: &[(FactId, f64)]| with(&[&[always, unlisted], more].concat(), Some(8));
        assert_eq!(accepts(&[]).map(|finding| finding.confidence), Some(CONFIDENCE_ACCEPTS_NOBODY));
        for change in [
            (FactId::open_files_fraction, 0.99),
            (FactId::worker_processes_blocked_mean, 1.0),
            (FactId::accept_queue_waiting_fraction, 0.8),
            (FactId::busiest_thread_fraction, 0.5),
            (FactId::pressure_group_cpu_some_fraction, 0.9),
        ] {
            assert!(accepts(&[change]).is_none(), "{change:?}");
        }
        for (what, changes, max) in [
            ("places are free", vec![], Some(64)),
            ("nobody knows how many there may be", vec![], None),
            ("nobody waits", vec![(FactId::accept_queue_mean, 0.0)], Some(8)),
            ("it computes", vec![(FactId::busiest_thread_fraction, 0.97)], Some(8)),
        ] {
            assert!(with(&changes, max).is_none(), "{what}");
        }
    }
    #[test]
    fn a_part_of_the_descriptors_are_places_too() {
        for (settings, words, setting, to) in [
            // Each worker has its own.
            (
                &[(SETTING, 2), (WORKERS, 4)][..],
                "(server.max-connections 2 for each of 4 workers)",
                SETTING,
                32,
            ),
            (&[(FILES, 8), (WORKERS, 4)], "(a third of server.max-fds: 2 for each of 4 workers)", FILES, 96),
            (&[(FILES, 25)], "(a third of server.max-fds: 8)", FILES, 384),
            (&[(SETTING, 100), (FILES, 16)], "(half of server.max-fds: 8)", FILES, 256),
            (&[(SETTING, 8), (FILES, 1024)], "(server.max-connections 8)", SETTING, 128),
        ] {
            let found = with_settings(settings).unwrap();
            assert!(found.summary.contains(words), "{}", found.summary);
            let remedy = &found.remedies[0];
            assert_eq!(remedy.setting.name, setting);
            assert_eq!(remedy.to, Some(SettingValue::Integer(to)));
        }
        assert!(with_settings(&[(SETTING, 8), (WORKERS, 4)]).is_none(), "7 of 32 places are taken");
    }

    fn with_settings(settings: &[(&str, i64)]) -> Option<Finding> {
        let mut facts = facts(&BASE, settings);
        facts.service.as_mut().unwrap().service = "lighttpd".into();
        check(&facts)
    }
}
