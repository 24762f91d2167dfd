//! The observer: reads all collectors once a second and sends what they read.
//!
//! Each collector has a thread of its own, so that one that blocks (the status page of a server without a free
//! worker) delays no other. Readings are made once in each second of CLOCK_MONOTONIC since the start, the first one at
//! once: readings of different collectors belong together. They are apart by a few milliseconds all the same, or the
//! observer's own threads would be what the run queue shows. A reading that takes longer than its turn skips the
//! turns it missed.
//!
//! What repeats ten times a second (the periods of a CPU quota, sched-bwc.rst; the slices of a throttled disk,
//! block/blk-throttle.c) would show every reading the same moment of its cycle: two of eight workers at a log for which seven
//! wait most of the time were seen in each second of a load. So the turns move through that cycle, all of it in ten of them.

use crate::collectors::{self, Collector, Reading, Target};
use crate::os::clock::clock_us;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use webdyno_model::UserError;
use webdyno_model::number::Number;
use webdyno_model::sample::{MissingSignal, Sample};

/// How long ending waits for a thread that is in the middle of a reading.
const JOIN_WAIT: Duration = Duration::from_millis(100);

/// After so many readings a collector says again what it lacks.
pub const REPEAT_COUNT: u64 = webdyno_model::sample::FORWARD_FILL_READINGS_MAX;

/// How far the turns of two collectors are apart.
const STAGGER: Duration = Duration::from_millis(2);

/// The cycle through which the turns move, and by how much each of them does.
const CYCLE: Duration = Duration::from_millis(100);
const CYCLE_STEP: Duration = Duration::from_millis(30);

/// Runs the collectors until it is dropped.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads and their owner share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: Target,
    stop: bool,
}

impl Shared {
    /// A thread that panicked while it held the lock left the state whole: it only reads it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `due`; the target to read then, or `None` when it is to end.
    fn wait(&self, due: Instant) -> Option<Target> {
        let mut state = self.state();
        loop {
            if state.stop {
                return None;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(state.target.clone());
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Observer {
    /// Starts reading with all collectors. Samples go to `sink` with the CLOCK_MONOTONIC time in microseconds at which
    /// they were read; when nobody receives them any more, reading ends. An error when threads cannot be started.
    pub fn start(target: Target, sink: Sender<(u64, Sample)>) -> webdyno_model::Result<Self> {
        Self::start_with(collectors::all(), target, sink)
    }

    /// Starts reading with these collectors.
    pub fn start_with(
        collectors: Vec<Box<dyn Collector>>,
        target: Target,
        sink: Sender<(u64, Sample)>,
    ) -> webdyno_model::Result<Self> {
        let shared =
            Arc::new(Shared { state: Mutex::new(State { target, stop: false }), changed: Condvar::new() });
        let mut observer = Self { shared: Arc::clone(&shared), threads: vec![] };
        let mut begin = Instant::now();
        for collector in collectors {
            let (shared, sink) = (Arc::clone(&shared), sink.clone());
            // Names of threads have at most 15 bytes.
            let name = collector.name().chars().take(15).collect();
            let thread = std::thread::Builder::new().name(name);
            let started = thread.spawn(move || run(collector, begin, &shared, &sink));
            let started = started.map_err(|error| {
                UserError::cannot_run(format!("cannot start a thread for a collector: {error}"))
                    .hint("`ulimit -u` shows how many threads are allowed")
            })?;
            observer.threads.push(started);
            begin += STAGGER;
        }
        Ok(observer)
    }

    /// Reads something else from the next reading on.
    pub fn set_target(&self, target: Target) {
        self.shared.state().target = target;
    }
}

impl Drop for Observer {
    /// Ends the threads. One that is in the middle of a reading is waited for a moment, then left to end by itself.
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        let deadline = Instant::now() + JOIN_WAIT;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // Panics of collectors are caught: there is nothing to hear from it.
                let _ = thread.join();
            }
        }
    }
}

/// The life of one collector's thread.
fn run(mut collector: Box<dyn Collector>, begin: Instant, shared: &Shared, sink: &Sender<(u64, Sample)>) {
    let seldom = Duration::from_secs(u64::from(collector.every_s().max(1)));
    let mut due = begin;
    let mut message = ReportedMissing::default();
    while let Some(target) = shared.wait(due) {
        let clock_us = clock_us();
        let started = Instant::now();
        let (mut sample, missing) = sample(collector.as_mut(), &target, started);
        sample.late_us = u64::try_from(started.saturating_duration_since(due).as_micros()).ok();
        sample.missing = message.changed(missing);
        // What was read for a target that is no longer meant would be taken for the new one.
        let current = shared.state().target == target;
        if !current {
            collector.mark_undelivered();
            message = ReportedMissing::default();
        } else if sink.send((clock_us, sample)).is_err() {
            return;
        }
        let every = if target.in_full { Duration::from_secs(1) } else { seldom };
        due = next_due(begin, every, Instant::now());
    }
}

/// The first turn after `now`.
fn next_due(begin: Instant, every: Duration, now: Instant) -> Instant {
    let turns = now.saturating_duration_since(begin).as_nanos() / every.as_nanos().max(1) + 1;
    begin + every.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX)) + offset(turns)
}

/// How much later than its whole second a turn is.
fn offset(turns: u128) -> Duration {
    let steps = u32::try_from(turns % CYCLE.as_millis()).unwrap_or(0);
    Duration::from_millis(u64::try_from((CYCLE_STEP * steps).as_millis() % CYCLE.as_millis()).unwrap_or(0))
}

/// Reads once; a panic becomes the error of the sample.
fn sample(collector: &mut dyn Collector, target: &Target, started: Instant) -> (Sample, Vec<MissingSignal>) {
    let read = catch_unwind(AssertUnwindSafe(|| collector.read(target)));
    let reading =
        read.unwrap_or_else(|_| Reading::failed("the collector failed: this is a fault of webdyno"));
    // Not a number would become null in the log, which no reader takes for a value.
    let finite = reading.values.into_iter().filter(|(_, value)| value.is_finite());
    let values: BTreeMap<String, Number> = finite.map(|(name, value)| (name, Number(value))).collect();
    let sample = Sample {
        source: collector.name().to_owned(),
        duration_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        values,
        error: reading.error,
        ..Sample::default()
    };
    (sample, reading.missing)
}

/// What a collector said last that it lacks: said again only when it changed, and now and then for those who listen since.
#[derive(Debug, Default)]
struct ReportedMissing {
    missing: Option<Vec<MissingSignal>>,
    readings_count: u64,
}

impl ReportedMissing {
    /// What to say of these; `None` when it is as it was said last.
    fn changed(&mut self, missing: Vec<MissingSignal>) -> Option<Vec<MissingSignal>> {
        let again = self.readings_count.is_multiple_of(REPEAT_COUNT);
        self.readings_count += 1;
        let changed = self.missing.as_ref() != Some(&missing);
        (again || changed).then(|| self.missing.insert(missing).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use webdyno_model::sample::Metric;

    /// Reads the port, blocks while it is told to, or panics.
    struct Fake {
        name: &'static str,
        blocked: Option<Arc<AtomicBool>>,
        panics: bool,
    }

    impl Collector for Fake {
        fn name(&self) -> &'static str {
            self.name
        }
        fn metrics(&self) -> Vec<Metric> {
            vec![]
        }
        fn read(&mut self, target: &Target) -> Reading {
            assert!(!self.panics, "a collector fails");
            while self.blocked.as_ref().is_some_and(|blocked| blocked.load(Ordering::Relaxed)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut reading = Reading::default();
            reading.push("fake.port_count", f64::from(target.port.unwrap_or(0)));
            reading.push("fake.nonsense_count", f64::NAN);
            reading
        }
    }

    fn fake(name: &'static str, blocked: Option<&Arc<AtomicBool>>, panics: bool) -> Box<dyn Collector> {
        Box::new(Fake { name, blocked: blocked.cloned(), panics })
    }

    fn target(port: u16) -> Target {
        Target { port: Some(port), ..Target::default() }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_collector_that_blocks_or_fails_stops_no_other() {
        let blocked = Arc::new(AtomicBool::new(true));
        let (sink, samples) = channel();
        let collectors =
            vec![fake("slow", Some(&blocked), false), fake("broken", None, true), fake("good", None, false)];
        let observer = Observer::start_with(collectors, target(80), sink).unwrap();
        let (mut good, mut broken) = (vec![], 0);
        while good.len() < 2 || broken < 2 {
            let (clock_us, sample) = samples.recv_timeout(PATIENCE).unwrap();
            match sample.source.as_str() {
                "good" => good.push((clock_us, sample)),
                "broken" => {
                    broken += 1;
                    assert!(sample.error.unwrap().contains("fault of webdyno"));
                }
                other => panic!("{other} is blocked"),
            }
        }
        // The second turn is about a second after the first one.
        assert!(good[1].0 - good[0].0 > 500_000, "{good:?}");
        assert_eq!(good[0].1.values.len(), 1, "what is not a number is left out");
        let begin = Instant::now();
        drop(observer);
        assert!(begin.elapsed() < PATIENCE, "a blocked thread is not waited for");
        blocked.store(false, Ordering::Relaxed);
    }

    #[test]
    fn a_new_target_holds_from_the_next_reading_on() {
        let (sink, samples) = channel();
        let observer = Observer::start_with(vec![fake("good", None, false)], target(80), sink).unwrap();
        let port = |sample: Sample| sample.values["fake.port_count"].0;
        assert_eq!(port(samples.recv_timeout(PATIENCE).unwrap().1), 80.0);
        observer.set_target(target(81));
        assert_eq!(port(samples.recv_timeout(PATIENCE).unwrap().1), 81.0);
        drop(observer);
        assert!(samples.recv_timeout(PATIENCE).is_err(), "its threads have ended");
    }

    /// What a reading that takes long, and its end, look like from outside.
    #[derive(Debug, Default)]
    struct Steps {
        begun: AtomicBool,
        may_end: AtomicBool,
        unheard: AtomicBool,
    }

    struct Unheard(Arc<Steps>);

    impl Collector for Unheard {
        fn name(&self) -> &'static str {
            "unheard"
        }
        fn metrics(&self) -> Vec<Metric> {
            vec![]
        }
        fn read(&mut self, _: &Target) -> Reading {
            self.0.begun.store(true, Ordering::Relaxed);
            while !self.0.may_end.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Reading::default()
        }
        fn mark_undelivered(&mut self) {
            self.0.unheard.store(true, Ordering::Relaxed);
        }
    }

    // What leaves out what did not change must know that nobody heard of the change.
    #[test]
    fn a_reading_that_nobody_hears_is_told_to_its_collector() {
        let steps = Arc::new(Steps::default());
        let (sink, samples) = channel();
        let collector = Unheard(Arc::clone(&steps));
        let observer = Observer::start_with(vec![Box::new(collector)], target(80), sink).unwrap();
        while !steps.begun.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        observer.set_target(target(81));
        steps.may_end.store(true, Ordering::Relaxed);
        samples.recv_timeout(PATIENCE).unwrap();
        assert!(steps.unheard.load(Ordering::Relaxed));
        drop(observer);
    }

    #[test]
    fn what_is_lacking_is_said_when_it_changes_and_again_after_a_while() {
        let lack = || vec![MissingSignal::new("s", "w", "h")];
        let mut message = ReportedMissing::default();
        let said: Vec<_> = [vec![], vec![], lack(), lack(), vec![]].map(|now| message.changed(now)).into();
        assert_eq!(said, [Some(vec![]), None, Some(lack()), None, Some(vec![])]);
        let rest: Vec<_> = (5..=REPEAT_COUNT).map(|_| message.changed(vec![])).collect();
        assert!(rest.iter().take(rest.len() - 1).all(Option::is_none) && rest.last() == Some(&Some(vec![])));
    }

    #[test]
    fn turns_that_were_missed_are_skipped() {
        let begin = Instant::now();
        for (every_s, elapsed_ms, expected_s) in
            [(1, 0, 1), (1, 999, 1), (1, 1000, 2), (1, 3500, 4), (5, 12_000, 15)]
        {
            let now = begin + Duration::from_millis(elapsed_ms);
            let due = next_due(begin, Duration::from_secs(every_s), now);
            let expected = Duration::from_secs(expected_s) + offset(u128::from(expected_s / every_s));
            assert_eq!(due - begin, expected, "after {elapsed_ms} ms");
        }
    }

    #[test]
    fn ten_turns_meet_each_tenth_of_a_cycle() {
        let met: std::collections::BTreeSet<_> =
            (40..50).map(|turns| offset(turns).as_millis() / 10).collect();
        assert_eq!(met.len(), 10, "{met:?}");
    }
}
