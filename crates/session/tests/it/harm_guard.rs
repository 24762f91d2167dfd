//! A load that does harm ends within a second, and the session goes on at half of it.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::pretended::{Machine, agent, be_the_agent_if_asked, site};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_model::change::ApplyOptions;
use webdyno_model::event::EventBody;
use webdyno_model::interval::EndReason;
use webdyno_model::purpose::Purpose;
use webdyno_model::workload::{RequestSpec, Workload};
use webdyno_session::live::{
    LiveSession, LiveTarget, LoadLength, Server, Servers, SessionInfo, monotonic_us,
};
use webdyno_session::log::reader;
use webdyno_session::recording::Recording;
use webdyno_session::tuning_target::{LoadMeasurement, TuningTarget};

const LENGTH: LoadLength = LoadLength::Settled { measure_s: 4, at_most_s: 4 };

fn workload(port: u16) -> Workload {
    let request = RequestSpec {
        name: "/".into(),
        url: format!("http://127.0.0.1:{port}/"),
        headers: vec![("user-agent".into(), "a test".into())],
        ..RequestSpec::default()
    };
    Workload { requests: vec![request], connections: 8, threads: Some(1), ..Workload::default() }
}

/// A session with an agent; gives what `work` makes of its stand, and the recording.
fn session<T>(folder: &Path, test: &str, work: impl FnOnce(&mut LiveTarget<'_>) -> T) -> (T, Recording) {
    let about = SessionInfo { command: "tune".into(), ..SessionInfo::default() };
    let directory = folder.join("run");
    let mut session =
        LiveSession::begin(&directory, about, Arc::new(AtomicBool::new(false)), Box::new(|_| {})).unwrap();
    let mut server = Server::connect(&agent(folder, test), Path::new("/none")).unwrap();
    let port = site();
    let workload = workload(port);
    let prepared = webdyno_load::prepare(&workload).unwrap();
    server.require_served_here(&prepared, "test").unwrap();
    server.discover(port).unwrap();
    server.observe(port).unwrap();
    let (servers, session_of_stand) = (&mut Servers::of(server), &mut session);
    let mut target = LiveTarget {
        session: session_of_stand,
        servers,
        prepared,
        workload,
        length: LENGTH,
        options: ApplyOptions::default(),
        confirm: None,
        export: None,
        private: true,
    };
    let done = work(&mut target);
    session.append(EventBody::SessionEnd { exit_code: 0, error: None }).unwrap();
    (done, Recording::of(reader::read(&directory).unwrap()))
}

fn braked(measured: &LoadMeasurement) -> bool {
    measured.measurement.harm_guard_trip.is_some()
}

/// From the moment that the agent tells it to the end of the load, on the clock that both share.
#[test]
fn a_load_ends_within_a_second_of_the_message() {
    be_the_agent_if_asked();
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::at(folder.path());
    machine.will(1, 0);
    let (began_us, recording) =
        session(folder.path(), "harm_guard::a_load_ends_within_a_second_of_the_message", |target| {
            assert!(braked(&target.measure(Purpose::Verify).unwrap()), "a verification is not repeated");
            monotonic_us() - target.elapsed_us()
        });
    let events = reader::read(&folder.path().join("run")).unwrap();
    let ended = events.iter().find(|event| matches!(event.body, EventBody::LoadEnd { .. })).unwrap();
    let took_us = (began_us + ended.t_us).checked_sub(machine.read("pulled")).unwrap();
    println!("the engine had ended {} ms after the message", took_us / 1000);
    assert!(took_us < 1_000_000, "{took_us} us");
    let load = &recording.loads[0];
    assert_eq!(load.end.as_ref().unwrap().0.reason, EndReason::Braked);
    assert_eq!(load.harm_guard_trip.as_ref().unwrap().text, "it swaps under a test");
    assert_eq!(load.unwatched[0].signal, "errors");
}

#[test]
fn a_baseline_is_halved_until_it_does_no_harm_and_the_session_stays_there() {
    be_the_agent_if_asked();
    let folder = tempfile::tempdir().unwrap();
    Machine::at(folder.path()).will(2, 3);
    let (loads, recording) = session(
        folder.path(),
        "harm_guard::a_baseline_is_halved_until_it_does_no_harm_and_the_session_stays_there",
        |target| {
            let stopped = target.measure(Purpose::Baseline).unwrap();
            assert!(braked(&stopped));
            let baseline = target.measure_lower(stopped).unwrap();
            let verify = target.measure(Purpose::Verify).unwrap();
            assert!(!braked(&baseline) && !braked(&verify));
            (baseline.load, verify.load)
        },
    );
    assert_eq!(loads, (3, 4));
    let connections: Vec<_> = recording.loads.iter().map(|load| load.workload.connections).collect();
    assert_eq!(connections, [8, 4, 2, 2]);
    assert!(recording.loads[3].intervals.last().unwrap().in_flight <= 2);
    let noted = |from: u32, to: u32| {
        format!("the load was halved from {from} to {to} connections: swapping: it swaps under a test")
    };
    assert_eq!(recording.notes, [noted(8, 4), noted(4, 2)]);
}

#[test]
fn when_every_load_does_harm_the_last_one_is_the_answer() {
    be_the_agent_if_asked();
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::at(folder.path());
    machine.will(9, 0);
    let ((), recording) = session(
        folder.path(),
        "harm_guard::when_every_load_does_harm_the_last_one_is_the_answer",
        |target| {
            let stopped = target.measure(Purpose::Baseline).unwrap();
            assert!(braked(&target.measure_lower(stopped).unwrap()));
        },
    );
    let connections: Vec<_> = recording.loads.iter().map(|load| load.workload.connections).collect();
    assert_eq!(connections, [8, 4, 2, 1]);
    let view = webdyno_session::view::View::of(&recording).unwrap();
    assert!(view.loads.iter().all(|load| load.report.brake.is_some()));
}
