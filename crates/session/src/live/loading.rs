//! Making a load: the engine on its own thread, its intervals and the server's samples into one log.

use super::generator::{Generator, GeneratorEvent, LoadTask, LocalEngine};
use super::measured_part::{LoadLength, Part};
use super::tables::TableUsage;
use super::{LiveSession, Servers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use webdyno_analysis::run_report::slo_abort::{MissedObjective, SloAbort};
use webdyno_load::{Control, Prepared};
use webdyno_model::client::ClientTables;
use webdyno_model::event::EventBody;
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::interval::{EndReason, Interval, LoadEnd};
use webdyno_model::purpose::Purpose;
use webdyno_model::worker::WorkerPart;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// How often samples and interrupts are looked at while the engine runs.
const POLL: Duration = Duration::from_millis(50);

/// What looks at each second of a load.
pub(super) struct SecondChecks<'a> {
    tables: Option<&'a mut TableUsage>,
    slo_abort: Option<SloAbort>,
    /// Seconds of the load that are in the log.
    logged_seconds: Arc<AtomicU64>,
    /// Why the server is not watched any more: the load ends with that.
    lost: &'a mut Option<UserError>,
}

/// What is noted of a load that ends as an objective is lost.
fn slo_abort_note(lost: &MissedObjective) -> String {
    format!(
        "the load ended before its time: {} cannot be met any more, whatever follows: {} (--no-early-stop goes on all the same)",
        lost.slo, lost.reason
    )
}

impl SecondChecks<'_> {
    /// Of a load that is not made any more.
    pub(super) fn of_results(
        logged_seconds: Arc<AtomicU64>,
        lost: &mut Option<UserError>,
    ) -> SecondChecks<'_> {
        SecondChecks { tables: None, slo_abort: None, logged_seconds, lost }
    }
}

/// Whatever goes wrong with whoever follows a load, also a panic, the engine must not go on loading the server.
struct StopOnDrop<'a>(&'a Control);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop(EndReason::Interrupted);
    }
}

enum EngineMessage {
    Event(GeneratorEvent),
    Ended(Result<LoadEnd>),
}

impl LiveSession {
    /// That a load begins, and what is known of it before.
    fn append_start(
        &mut self,
        load: u32,
        purpose: Purpose,
        prepared: &Prepared,
        workload: &Workload,
    ) -> Result<()> {
        let (workload, alone_us) = (workload.redacted(), prepared.alone_us());
        self.append(EventBody::LoadStart { load, purpose, workload: workload.into(), alone_us })?;
        for warning in prepared.warnings() {
            if !self.recording.notes.contains(warning) {
                self.append(EventBody::Note { text: warning.clone() })?;
            }
        }
        Ok(())
    }

    /// Loads the server and records it. Gives the number of the load. The load is in the log even when it was
    /// interrupted; then the error says so.
    pub fn load(
        &mut self,
        prepared: &Prepared,
        workload: &Workload,
        purpose: Purpose,
        length: LoadLength,
        servers: Option<&Servers>,
    ) -> Result<u32> {
        self.loads += 1;
        let load = self.loads;
        let guarded = self.guarded_servers(servers);
        let start = |all: &Servers| all.front().start_harm_guard(prepared, workload, self.varies_memory);
        let unwatched = guarded.map_or(Ok(vec![]), start)?;
        self.append_start(load, purpose, prepared, workload)?;
        if !unwatched.is_empty() {
            self.append(EventBody::Unwatched { load, missing: unwatched })?;
        }
        let mut tables = TableUsage::begin(prepared, workload);
        let slo_abort = self.slo_abort(workload, purpose, length);
        let mut lost = None;
        let generator: Arc<dyn Generator> = self.generator.clone().unwrap_or_else(|| Arc::new(LocalEngine));
        let logged_seconds = Arc::new(AtomicU64::new(0));
        let task = LoadTask { load, prepared, workload, logged_seconds: logged_seconds.clone() };
        let watches = SecondChecks {
            tables: Some(&mut tables),
            slo_abort,
            logged_seconds: logged_seconds.clone(),
            lost: &mut lost,
        };
        let end = self.generate((load, length), servers, watches, move |control, sink| {
            generator.run(task, control, sink)
        });
        // The tables of this machine say nothing of others that made the load.
        let tables = if self.generator.is_some() { ClientTables::default() } else { tables.end() };
        // Also after an error: what goes on without a load is not its doing.
        let late = guarded.map_or(Ok(None), |all| all.front().stop_harm_guard());
        let end = end?;
        let late = match late {
            Err(error) if servers.is_some_and(Servers::has_lost_agent) => {
                lost.get_or_insert(error);
                None
            }
            late => late?.filter(|_| end.reason != EndReason::Braked),
        };
        if let Some(guard_trip) = late.filter(|trip| is_confirmed(trip, &self.whole_seconds(load))) {
            self.append(EventBody::Brake { load, brake: guard_trip })?;
        }
        let interrupted = end.reason == EndReason::Interrupted;
        self.append_end((load, purpose, length), end, tables)?;
        logged_seconds.store(u64::MAX, Ordering::Release);
        match lost {
            _ if interrupted => Err(UserError::interrupted()),
            Some(lost) => Err(lost),
            None => Ok(load),
        }
    }

    /// Has a load made on a thread of its own, and follows it until its end.
    pub(super) fn generate(
        &mut self,
        load: (u32, LoadLength),
        servers: Option<&Servers>,
        watches: SecondChecks<'_>,
        make: impl FnOnce(&Control, &mut dyn FnMut(GeneratorEvent)) -> Result<LoadEnd> + Send,
    ) -> Result<LoadEnd> {
        let control = Control::new();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let engine_control = control.clone();
            let engine = thread::Builder::new().name("merge".into()).spawn_scoped(scope, move || {
                let events = sender.clone();
                let mut sink = |event| drop(events.send(EngineMessage::Event(event)));
                let ended = make(&engine_control, &mut sink);
                drop(sender.send(EngineMessage::Ended(ended)));
            });
            engine
                .map_err(|error| UserError::cannot_run(format!("cannot start the load engine: {error}")))?;
            let _stops = StopOnDrop(&control);
            self.follow(load, &control, &receiver, servers, watches)
        })
    }

    /// That a load has ended, and what of it is measured.
    pub(super) fn append_end(
        &mut self,
        (load, purpose, length): (u32, Purpose, LoadLength),
        end: LoadEnd,
        tables: ClientTables,
    ) -> Result<()> {
        let mut part = self.measured_part(load, length)?;
        let is_of_tuning = matches!(purpose, Purpose::Baseline | Purpose::Verify);
        if !is_of_tuning && self.ended_before_measuring(load, part.from_s) {
            let text = format!(
                "the load ended within its warm-up of {} s: nothing was cut, so that the figures are of all of it",
                part.from_s
            );
            self.append(EventBody::Note { text })?;
            part = Part::default();
        }
        self.append(EventBody::ClientTables { load, tables })?;
        // A load that was ended before its ramp-down has none.
        let measured_to_s = part.to_s.filter(|to_s| end.elapsed_us as f64 / 1e6 > *to_s);
        let (measured_from_s, warmup_why) = (part.from_s, part.reason);
        self.append(EventBody::LoadEnd { load, end, measured_from_s, warmup_why, measured_to_s })
    }

    fn follow(
        &mut self,
        (load, length): (u32, LoadLength),
        control: &Control,
        receiver: &Receiver<EngineMessage>,
        servers: Option<&Servers>,
        mut watches: SecondChecks<'_>,
    ) -> Result<LoadEnd> {
        loop {
            let message = receiver.recv_timeout(POLL);
            if let Some(guard_trip) =
                self.guarded_servers(servers).and_then(|servers| servers.front().agent().harm())
                && control.stopped() != Some(EndReason::Braked)
                && is_confirmed(&guard_trip, &self.whole_seconds(load))
            {
                control.stop(EndReason::Braked);
                self.append(EventBody::Brake { load, brake: guard_trip })?;
            }
            if watches.lost.is_none()
                && let Err(error) = self.take_samples(servers)
            {
                if !servers.is_some_and(Servers::has_lost_agent) {
                    return Err(error);
                }
                control.stop(EndReason::Braked);
                *watches.lost = Some(error);
            }
            if self.is_interrupted() {
                control.stop(EndReason::Interrupted);
            }
            match message {
                Ok(EngineMessage::Event(GeneratorEvent::Interval(interval))) => {
                    self.add_second((load, length), control, interval, &mut watches)?;
                }
                Ok(EngineMessage::Event(GeneratorEvent::Note(text))) => {
                    self.append(EventBody::Note { text })?
                }
                Ok(EngineMessage::Event(GeneratorEvent::Placed { session, on })) => {
                    let start = length.workers_start(session, on);
                    self.append(EventBody::WorkersStart { load, start })?;
                }
                Ok(EngineMessage::Event(GeneratorEvent::Workers(parts))) => {
                    let seconds = WorkerPart::seconds_of(&parts);
                    self.append(EventBody::Workers { load, parts })?;
                    // Whoever keeps these seconds for us may forget them now.
                    watches.logged_seconds.store(seconds, Ordering::Release);
                }
                Ok(EngineMessage::Ended(ended)) => return ended,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(UserError::cannot_run("the load engine ended without a result"));
                }
            }
        }
    }

    /// Writes a second of the load, and ends it when it has shown enough.
    fn add_second(
        &mut self,
        (load, length): (u32, LoadLength),
        control: &Control,
        interval: Box<Interval>,
        watches: &mut SecondChecks<'_>,
    ) -> Result<()> {
        if let Some(tables) = &mut watches.tables {
            tables.record_second(&interval);
        }
        let lost = watches.slo_abort.as_mut().map(|slo_abort| slo_abort.add_second(&interval)).transpose()?;
        let is_step_over = self.is_step_over(&interval)?;
        self.append(EventBody::Interval { load, interval })?;
        if let Some(lost) = lost.flatten().filter(|_| control.stopped().is_none()) {
            control.stop(EndReason::ObjectiveLost);
            self.append(EventBody::Note { text: slo_abort_note(&lost) })?;
        }
        if self.is_clearly_worse(load) {
            control.stop(EndReason::StopLoss);
        }
        if is_step_over || self.is_long_enough(load, length) {
            control.stop(EndReason::Enough);
        }
        Ok(())
    }

    /// The servers, where they brake a load that does harm.
    fn guarded_servers<'a>(&self, servers: Option<&'a Servers>) -> Option<&'a Servers> {
        servers.filter(|_| !self.unbraked)
    }

    /// What tells that an objective is lost, if the load is to end then.
    fn slo_abort(&self, workload: &Workload, purpose: Purpose, length: LoadLength) -> Option<SloAbort> {
        let LoadLength::Fixed { warmup_s } = length else { return None };
        let watches = self.gives_up && purpose == Purpose::Run;
        watches.then(|| SloAbort::of(workload, warmup_s, &self.recording.objectives)).flatten()
    }

    /// Writes the samples that came in meanwhile.
    pub(super) fn take_samples(&mut self, servers: Option<&Servers>) -> Result<()> {
        let new = servers.map(Servers::new_samples).transpose()?;
        self.append_received(new.unwrap_or_default())
    }

    /// Writes what was heard of servers, at the times of our CLOCK_MONOTONIC.
    pub fn append_received(&mut self, received: Vec<(u64, EventBody)>) -> Result<()> {
        let began_us = self.began_us;
        received
            .into_iter()
            .try_for_each(|(clock_us, body)| self.append_at(clock_us.saturating_sub(began_us), body))
    }

    /// Waits while samples go into the log; an error when interrupted. A session that only reads goes on after a lost
    /// connection; one that changes something waits for the next agent.
    pub fn observe_for(&mut self, seconds: f64, servers: &mut Servers) -> Result<()> {
        let until_us = self.elapsed_us() + (seconds * 1e6) as u64;
        while self.elapsed_us() < until_us || servers.is_reconnecting() {
            if self.is_interrupted() {
                return Err(UserError::interrupted());
            }
            thread::sleep(POLL);
            let received = servers.receive_events()?;
            self.append_received(received)?;
        }
        Ok(())
    }

    /// Whether it is sure by now whether a step of a search meets its objectives.
    fn is_step_over(&mut self, interval: &Interval) -> Result<bool> {
        self.step_test.as_mut().map_or(Ok(false), |test| test.add_second(interval))
    }

    /// Whether it is clear that what the load verifies is worse than the best so far.
    fn is_clearly_worse(&self, load: u32) -> bool {
        let record = self.recording.load(load);
        let lost =
            record.zip(self.stop_loss.as_ref()).and_then(|(record, loss)| loss.check(&record.intervals));
        lost.is_some()
    }
}

/// Whether a brake stands, by the load's own seconds. That others get no answer is no reason as long as the load gets
/// answers: then the site is busy, which is what loads are for.
fn is_confirmed(guard_trip: &HarmGuardTrip, seconds: &[Interval]) -> bool {
    let silent_s = (guard_trip.limit.0 / 1e6).max(1.0) as usize;
    guard_trip.metric != HarmGuardTrip::SITE_SILENT
        || seconds.iter().rev().take(silent_s).all(|second| second.status.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::SessionInfo;
    use crate::log::writer::EventObserver;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;
    use webdyno_model::harm_guard::HarmCause;
    use webdyno_model::number::Number;
    use webdyno_model::workload::RequestSpec;

    /// Makes seconds of a hundredth until it is stopped, which it tells, or for a while.
    struct Seconds(Arc<AtomicBool>);

    impl Generator for Seconds {
        fn run(
            &self,
            _: LoadTask<'_>,
            control: &Control,
            sink: &mut dyn FnMut(GeneratorEvent),
        ) -> Result<LoadEnd> {
            for second in intervals(&[100; 300], 0) {
                if control.stopped().is_some() {
                    self.0.store(true, Ordering::Release);
                    break;
                }
                sink(GeneratorEvent::Interval(Box::new(second)));
                thread::sleep(Duration::from_millis(10));
            }
            Ok(LoadEnd {
                elapsed_us: 1_000_000,
                reason: control.stopped().unwrap_or(EndReason::Duration),
                ..LoadEnd::default()
            })
        }
    }

    /// A load of such seconds that is to settle, whose events are shown to `watcher`.
    fn load_with(watcher: EventObserver, is_stopped: &Arc<AtomicBool>) -> Result<u32> {
        let folder = tempfile::tempdir().unwrap();
        let about = SessionInfo { command: "diagnose".into(), ..SessionInfo::default() };
        let mut session =
            LiveSession::begin(&folder.path().join("run"), about, Arc::default(), watcher).unwrap();
        session.generate_with(Arc::new(Seconds(is_stopped.clone())));
        let request = RequestSpec { url: "http://127.0.0.1:1/".into(), ..RequestSpec::default() };
        let workload = Workload { requests: vec![request], connections: 1, ..Workload::default() };
        let prepared = webdyno_load::prepare(&workload).unwrap();
        let length = LoadLength::Settled { measure_s: 4, at_most_s: 4 };
        session.load(&prepared, &workload, Purpose::Run, length, None)
    }

    #[test]
    fn a_load_ends_when_whoever_follows_it_panics() {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let watcher: EventObserver = Box::new(|event| {
            assert!(!matches!(event.body, EventBody::Interval { .. }), "as a test wants it");
        });
        assert!(catch_unwind(AssertUnwindSafe(|| load_with(watcher, &is_stopped))).is_err());
        assert!(is_stopped.load(Ordering::Acquire));
    }

    fn intervals(rates: &[u64], failed: u64) -> Vec<Interval> {
        let second =
            |completed: &u64| Interval { length_us: 1_000_000, completed: *completed, ..Interval::default() };
        let mut all: Vec<Interval> = rates.iter().map(second).collect();
        if let Some(first) = all.first_mut() {
            first.failed = failed;
        }
        all
    }

    #[test]
    fn a_site_that_answers_the_load_is_not_silent() {
        let silent = |metric: &str| HarmGuardTrip {
            cause: HarmCause::Unreachable,
            metric: metric.into(),
            value: Number(10e6),
            limit: Number(10e6),
            text: String::new(),
        };
        let mut seconds = intervals(&[0; 15], 0);
        assert!(is_confirmed(&silent(HarmGuardTrip::SITE_SILENT), &seconds));
        // Also an answer that was none of the good ones.
        for (at, stopped) in [(14, false), (5, false), (4, true)] {
            seconds[at].status.insert("503".into(), 1);
            assert_eq!(is_confirmed(&silent(HarmGuardTrip::SITE_SILENT), &seconds), stopped, "{at}");
            assert!(is_confirmed(&silent("brake.site_refused_count"), &seconds));
            seconds[at].status.clear();
        }
    }
}
