//! Incidents are told once, when they have lasted, and again only when they come back.

use super::*;
use crate::facts::testing::sample;
use proptest::prelude::*;

/// The seconds at which something is told of these readings, one a second.
fn reported_at(metrics: &[(&str, &[f64])]) -> Vec<(usize, String)> {
    let mut detector = Detector::default();
    let seconds = metrics.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let mut reported = vec![];
    for second in 0..seconds {
        let values: Vec<(&str, f64)> =
            metrics.iter().filter_map(|(name, values)| Some((*name, *values.get(second)?))).collect();
        let reading = sample(second as f64, "x", &values).sample;
        let found = detector.new_incidents(second as f64, &reading);
        reported.extend(found.into_iter().map(|incident| (second, incident.what)));
    }
    reported
}

fn seconds(metrics: &[(&str, &[f64])]) -> Vec<usize> {
    reported_at(metrics).into_iter().map(|(second, _)| second).collect()
}

const NONE: [usize; 0] = [];

#[test]
fn an_incident_is_told_once_while_it_lasts() {
    let increasing: Vec<f64> = (0..200).map(|second| f64::from(second) * 15.0).collect();
    let reported = reported_at(&[("sockets.listen_overflows_count", &increasing)]);
    assert_eq!(reported.len(), 1);
    let expected = "connections dropped, accept queue full: 15/s (threshold 1/s)";
    assert_eq!(reported[0], (1, expected.into()));
}

#[test]
fn what_lasts_too_short_is_none() {
    let (slots, busy) = ([20.0; 30], [20.0, 20.0, 20.0, 20.0, 19.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0]);
    let all = [("apache.slots_count", &slots[..11]), ("apache.workers_busy_count", &busy[..])];
    assert_eq!(seconds(&all), [9]);
    assert_eq!(
        seconds(&[("apache.slots_count", &slots[..4]), ("apache.workers_busy_count", &busy[..4])]),
        NONE
    );
    // Nothing to compare with is no incident, and neither is a limit of nothing.
    assert_eq!(seconds(&[("apache.workers_busy_count", &busy)]), NONE);
    assert_eq!(seconds(&[("apache.slots_count", &[0.0; 11]), ("apache.workers_busy_count", &busy)]), NONE);
}

#[test]
fn it_is_told_again_when_it_comes_back_after_the_pause() {
    let storm = |from: usize, to: usize, until: usize| -> Vec<f64> {
        let mut total = 0.0;
        let rise = |second: usize| if second < 5 || (from..to).contains(&second) { 10.0 } else { 0.0 };
        (0..until)
            .map(|second| {
                total += rise(second);
                total
            })
            .collect()
    };
    let name = "sockets.listen_overflows_count";
    // Back within the pause, and still there at its end: it is told then.
    assert_eq!(seconds(&[(name, &storm(100, 400, 400))]), [1, 301]);
    assert_eq!(seconds(&[(name, &storm(100, 200, 400))]), [1]);
    assert_eq!(seconds(&[(name, &storm(350, 360, 400))]), [1, 350]);
    // One that never ends is one.
    assert_eq!(seconds(&[(name, &storm(5, 900, 900))]), [1]);
}

#[test]
fn a_counter_that_is_set_back_says_nothing() {
    assert_eq!(seconds(&[("memory.oom_kills_count", &[7.0, 7.0, 0.0, 0.0, 1.0])]), [4]);
    // What was counted before anybody looked is history.
    assert_eq!(seconds(&[("memory.oom_kills_count", &[7.0])]), NONE);
}

#[test]
fn each_of_several_has_its_own_incident() {
    let messages = [
        ("kernel_log.conntrack_full.messages_count", &[0.0, 1.0][..]),
        ("kernel_log.oom_kill.messages_count", &[0.0, 2.0][..]),
    ];
    let reported = reported_at(&messages);
    assert_eq!(reported.len(), 2);
    assert!(reported[0].1.starts_with("message in the kernel log (conntrack_full): 1 "), "{reported:?}");
    assert!(
        reported_at(&[("pressure.memory_full_us", &[0.0, 2e5, 4e5, 6e5])])[0].1.contains("20% of the time")
    );
}

/// Prefork, worker and event have a code each for it.
#[test]
fn each_mpm_says_in_its_own_words_that_no_worker_is_left() {
    for code in ["AH00161", "AH00286", "AH00484"] {
        let metric = format!("apache_log.{code}.messages_count");
        assert_eq!(seconds(&[(metric.as_str(), &[0.0, 1.0][..])]), [1], "{code}");
    }
}

/// The seconds at which something is told when readings leave out what is as it was, and tell all every so many.
fn seconds_of_changes(metrics: &[(&str, &[f64])]) -> Vec<usize> {
    let metric = |(name, _): &(&str, &[f64])| Metric {
        name: (*name).to_owned(),
        on_change: true,
        ..Metric::default()
    };
    let info = CollectorInfo { name: "x".into(), metrics: metrics.iter().map(metric).collect() };
    let mut detector = Detector::of(&[info]);
    let length = metrics[0].1.len();
    let reported = (0..length).filter(|second| {
        let all = second.is_multiple_of(FORWARD_FILL_READINGS_MAX as usize);
        let is_told = |values: &[f64]| all || values[*second] != values[second - 1];
        let values: Vec<(&str, f64)> =
            metrics.iter().filter(|(_, of)| is_told(of)).map(|(name, of)| (*name, of[*second])).collect();
        let t_s = *second as f64;
        !detector.new_incidents(t_s, &sample(t_s, "x", &values).sample).is_empty()
    });
    reported.collect()
}

/// Readings leave out what did not change: it goes on as it was, in shares, rates and calm seconds.
#[test]
fn what_is_left_out_of_a_reading_is_as_it_was() {
    let limit = [1000.0; 400];
    let entries: Vec<f64> = (0..400).map(|second| if second < 20 { 100.0 } else { 950.0 }).collect();
    let table = [("conntrack.entries_count", &entries[..]), ("conntrack.max_count", &limit[..])];
    assert_eq!(seconds_of_changes(&table), seconds(&table));
    assert_eq!(seconds(&table), [21]);
    // Half a minute of silence does not thin out a burst, and what was over may come back.
    let burst = |second: i32| {
        if second >= 350 {
            60.0
        } else if second >= 30 {
            30.0
        } else {
            0.0
        }
    };
    let drops: Vec<f64> = (0..400).map(burst).collect();
    assert_eq!(seconds_of_changes(&[("conntrack.drop_count", &drops)]), [30, 350]);
    // What was not read holds no longer.
    let mut failed = sample(1.0, "x", &[("conntrack.entries_count", 950.0)]).sample;
    failed.error = Some("torn".into());
    let metrics = vec![Metric { name: "conntrack.max_count".into(), on_change: true, ..Metric::default() }];
    let mut detector = Detector::of(&[CollectorInfo { name: "x".into(), metrics }]);
    detector.new_incidents(0.0, &sample(0.0, "x", &[("conntrack.max_count", 1000.0)]).sample);
    assert!((1..9).all(|second| detector.new_incidents(f64::from(second), &failed).is_empty()));
}

#[test]
fn rows_are_sound() {
    for row in ALL.iter() {
        assert!(row.until <= row.from && row.readings >= 1, "{}", row.metric);
        assert!(!row.words.ends_with('.') && row.explanation.len() > 10, "{}", row.metric);
    }
}

proptest! {
    // Invariant: whatever is read, a row speaks at most once in its pause, and nothing panics.
    #[test]
    fn no_row_speaks_twice_within_its_pause(
        values in proptest::collection::vec(-1e9f64..1e12, 1..400),
        row in 0..ALL.len(),
    ) {
        let name = ALL[row].metric.replace('*', "x");
        let mut detector = Detector::default();
        let mut spoke = HashMap::<String, f64>::new();
        for (second, value) in values.iter().enumerate() {
            let t_s = second as f64;
            for incident in detector.new_incidents(t_s, &sample(t_s, "x", &[(&name, *value)]).sample) {
                let before = spoke.insert(incident.what.split(':').next().unwrap().to_owned(), t_s);
                prop_assert!(before.is_none_or(|before| t_s - before >= PAUSE_S));
            }
        }
    }
}
