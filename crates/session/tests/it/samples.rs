//! The recorded samples of `crates/analysis/fixtures/recorded`: servers on hardware that the lab does not have. Each is
//! whole, small, and shows the signal that it was made for; what was set in it, and after which documentation, is told in
//! its README.md.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::series::SeriesSet;
use webdyno_session::recording::Recording;

/// Most bytes of a sample.
const BYTES_MAX: u64 = 200_000;

fn place(id: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/fixtures/recorded").join(id)
}

/// The measurement of a recording that is whole.
fn measurement(id: &str) -> Measurement {
    let place = place(id);
    let size = std::fs::metadata(place.join("events.jsonl")).unwrap().len();
    assert!(size <= BYTES_MAX, "{id}: {size} bytes");
    assert!(place.join("README.md").is_file(), "{id}: what is real in it, and what was set?");
    let recording = Recording::read(&place).unwrap();
    assert_eq!(recording.end, Some((0, None)), "{id} did not end in order");
    assert_eq!(recording.loads.len(), 1, "{id}");
    let measurement = recording.last_measurement().unwrap();
    assert!(measurement.measured().count() >= 4, "{id}: few seconds were measured");
    assert!(measurement.measured().all(|second| second.completed > 0 && second.failed == 0), "{id}");
    measurement
}

/// What the diagnosis names first, and how sure it is.
fn answer(measurement: &Measurement) -> (String, f64) {
    let first = webdyno_analysis::diagnosis::diagnose(measurement).unwrap().findings.remove(0);
    (first.id, first.confidence)
}

/// What a counter rose by in a second.
fn rate(series: &SeriesSet<'_>, name: &str) -> f64 {
    let (rise, seconds) =
        series.increase(name).unwrap_or_else(|| panic!("{name} is not there, or was set back"));
    rise / seconds
}

/// All cores together never count more than there is.
fn assert_cores_add_up(series: &SeriesSet<'_>, cores: f64) {
    let kinds = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let sum: f64 = kinds.iter().map(|kind| rate(series, &format!("cpu.{kind}_s"))).sum();
    assert!((sum - cores).abs() < 0.1 * cores, "{sum} seconds a second on {cores} cores");
}

#[test]
fn a_host_takes_time_from_its_guest() {
    let measurement = measurement("cpu-stolen");
    let series = SeriesSet::of(&measurement);
    let (stolen, idle) = (rate(&series, "cpu.steal_s"), rate(&series, "cpu.idle_s"));
    assert!(stolen >= 0.7 && idle <= 0.05, "{stolen} stolen, {idle} idle");
    let cores: f64 = ["cpu.core0.steal_s", "cpu.core1.steal_s"].iter().map(|name| rate(&series, name)).sum();
    assert!((cores - stolen).abs() < 0.05, "{cores} of the cores, {stolen} in all");
    assert!(series.mean("cpu.steal_max_fraction").unwrap() >= 0.4);
    // What is left is the service's, not of programs that the guest could name.
    assert!(rate(&series, "process.foreign_cpu_s") <= 0.15);
    assert!(rate(&series, "process.cpu_s") >= 0.5);
    assert_cores_add_up(&series, 2.0);
    assert_eq!(answer(&measurement), ("cpu-stolen".to_owned(), 0.9));
}

#[test]
fn a_card_has_agreed_on_a_tenth_of_what_it_can() {
    let measurement = measurement("nic-negotiated-low");
    let series = SeriesSet::of(&measurement);
    let latest = |name: &str| series.latest(&format!("nic.eth0.{name}")).unwrap();
    let (speed, supported) = (latest("speed_bits_per_s"), latest("supported_speed_bits_per_s"));
    assert!(speed <= 0.1 * supported, "{speed} of {supported} bits a second");
    let sent = 8.0 * rate(&series, "nic.eth0.sent_bytes") / speed;
    assert!((0.9..=1.0).contains(&sent), "{sent} of what the link can");
    let diagnosis = diagnose(&measurement).unwrap();
    let found: Vec<_> = diagnosis.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(found, ["nic-negotiated-low", "network-saturated"]);
    assert!(diagnosis.findings[0].confidence >= 0.9);
    // Nothing else is short, and nothing tells of a shaper.
    assert!(rate(&series, "cpu.idle_s") >= 1.5);
    assert_eq!(series.latest("qdisc.eth0.rate_bits_per_s"), None);
    assert_cores_add_up(&series, 2.0);
}

#[test]
fn one_core_does_nothing_but_handle_packets() {
    let measurement = measurement("softirq-bound");
    let series = SeriesSet::of(&measurement);
    assert!(series.mean("cpu.softirq_max_fraction").unwrap() >= 0.9);
    assert!(rate(&series, "softnet.squeezed_count") >= 5.0);
    // The other one could do more.
    assert!(rate(&series, "cpu.idle_s") >= 0.5);
    assert!(rate(&series, "process.cpu_s") <= 0.5);
    assert_cores_add_up(&series, 2.0);
    assert_eq!(answer(&measurement), ("softirq-bound".to_owned(), 0.9));
}
