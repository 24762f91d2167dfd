//! Rings are bounded, each of their segments explains itself, and whatever cuts them off leaves what is whole.

use super::super::writer::EventLog;
use super::*;
use crate::recording::Recording;
use proptest::prelude::*;
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::number::Number;
use webdyno_model::sample::{MissingSignal, Sample};

const BEGAN: &str = "2026-11-21T03:00:00Z";
const SECOND_US: u64 = 1_000_000;

fn start(started_at: &str) -> EventBody {
    EventBody::SessionStart {
        command: "observe".into(),
        started_at: started_at.into(),
        client: Environment::default(),
        goal: None,
        objectives: vec![],
        operator: None,
        directory: None,
    }
}

fn server() -> EventBody {
    EventBody::Server { host: None, environment: Environment::default(), collectors: vec![] }
}

fn sample(value: f64, missing: Option<&str>) -> EventBody {
    let lack = |signal: &str| MissingSignal::new(signal, "w", "h");
    let sample = Sample {
        source: "cpu".into(),
        values: [("cpu.idle_s".to_owned(), Number(value))].into(),
        missing: missing.map(|signal| vec![lack(signal)]),
        ..Sample::default()
    };
    EventBody::Sample { host: None, sample }
}

/// Observes for so many seconds into a ring of a minute.
fn observe(directory: &Path, started_at: &str, seconds: u64) {
    let mut log = EventLog::ring(directory, 60 * SECOND_US).unwrap();
    log.append(0, start(started_at)).unwrap();
    log.append(0, server()).unwrap();
    log.append(0, sample(0.0, Some("cpu.steal_s"))).unwrap();
    for second in 1..seconds {
        log.append(second * SECOND_US, sample(second as f64, None)).unwrap();
    }
}

fn times_s(recording: &Recording) -> Vec<u64> {
    recording.samples.iter().map(|(t_us, _)| t_us / SECOND_US).collect()
}

#[test]
fn the_last_while_stays_and_explains_itself() {
    let place = tempfile::tempdir().unwrap();
    observe(place.path(), BEGAN, 600);
    let recording = Recording::read(place.path()).unwrap();
    let times = times_s(&recording);
    let length_s = times.last().unwrap() - times.first().unwrap();
    assert!((60..=70).contains(&length_s), "{length_s} s");
    assert_eq!(times.len() as u64, length_s + 1, "none is missing");
    assert_eq!(recording.command, "observe");
    assert!(recording.server.is_some());
    // What was said ten minutes ago still holds.
    let measurement = recording.last_measurement().unwrap();
    assert_eq!(measurement.lacking[0].signal, "cpu.steal_s");
    let wall = recording.wall(599 * SECOND_US).unwrap().to_string();
    assert_eq!(wall, "2026-11-21T03:09:59Z");
}

#[test]
fn another_session_goes_on_with_the_ring() {
    let place = tempfile::tempdir().unwrap();
    observe(place.path(), BEGAN, 40);
    // By the clock it begins 100 s after the first one.
    observe(place.path(), "2026-11-21T03:01:40Z", 20);
    let recording = Recording::read(place.path()).unwrap();
    let times = times_s(&recording);
    assert_eq!((times[0], times[39], times[40], times[59]), (0, 39, 100, 119));
    assert_eq!(recording.wall(110 * SECOND_US).unwrap().to_string(), "2026-11-21T03:01:50Z");
    // Somebody sets the clock back by a day: nothing overlaps, and nothing goes before its time.
    observe(place.path(), "2026-11-20T03:00:00Z", 20);
    let recording = Recording::read(place.path()).unwrap();
    let times = times_s(&recording);
    assert_eq!((times[0], times[60], times.len()), (0, 120, 80));
    assert_eq!(recording.wall(130 * SECOND_US).unwrap().to_string(), "2026-11-20T03:00:10Z");
    observe(place.path(), "2027-11-20T03:00:00Z", 200);
    let files = segments(place.path()).unwrap().len();
    assert!((13..=16).contains(&files), "{files} files");
}

#[test]
fn one_session_at_a_time_writes_a_ring() {
    let place = tempfile::tempdir().unwrap();
    let first = EventLog::ring(place.path(), SECOND_US).unwrap();
    let error = EventLog::ring(place.path(), SECOND_US).err().unwrap();
    assert!(error.message.contains("another session"), "{error}");
    drop(first);
    assert!(EventLog::ring(place.path(), SECOND_US).is_ok());
    let whole = tempfile::tempdir().unwrap();
    EventLog::create(whole.path()).unwrap();
    assert_eq!(EventLog::ring(whole.path(), SECOND_US).err().unwrap().exit_code(), 2);
}

#[test]
fn more_than_was_expected_makes_it_shorter_and_not_larger() {
    let place = tempfile::tempdir().unwrap();
    let mut log = EventLog::ring(place.path(), 60 * SECOND_US).unwrap();
    log.append(0, start(BEGAN)).unwrap();
    let text = "x".repeat(1_000_000);
    for second in 0..120 {
        log.append(second * SECOND_US, EventBody::Note { text: text.clone() }).unwrap();
    }
    drop(log);
    let bytes: u64 = segments(place.path()).unwrap().iter().map(|path| path.metadata().unwrap().len()).sum();
    // 64 kB for each of its seconds, and the segment that is written.
    assert!(bytes < 60 * 64_000 + 2_200_000, "{bytes}");
    assert!(segments(place.path()).unwrap().len() <= FILES_COUNT_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    // Invariant: wherever a ring is cut off, what is whole of it is read, and the next session goes on with it.
    #[test]
    fn a_ring_that_is_cut_off_anywhere_is_read_and_gone_on_with(cut in 0.0f64..1.0, seconds in 2u64..30) {
        let place = tempfile::tempdir().unwrap();
        observe(place.path(), BEGAN, seconds);
        let last = segments(place.path()).unwrap().pop().unwrap();
        let text = std::fs::read(&last).unwrap();
        let kept = (text.len() as f64 * cut) as usize;
        std::fs::write(&last, &text[..kept]).unwrap();
        let whole = text[..kept].iter().filter(|byte| **byte == b'\n').count();
        match Recording::read(place.path()) {
            Ok(recording) => {
                // The head of the first segment is two lines, that of later ones too.
                let earlier = times_s(&recording).len();
                prop_assert!(earlier >= whole.saturating_sub(2));
            }
            Err(error) => prop_assert!(whole == 0 && error.message.contains("no event"), "{error}"),
        }
        observe(place.path(), "2026-11-21T03:10:00Z", 5);
        let times = times_s(&Recording::read(place.path()).unwrap());
        prop_assert!(times.len() >= 5 && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    }
}
