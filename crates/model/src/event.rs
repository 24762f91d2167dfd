//! The event log's records. A session is an append-only list of these; every view is a function of it.
//!
//! One JSON object a line: `{"v":1,"seq":,"t_us":,"kind":,...}`. Readers skip kinds that they do not know, so new
//! kinds and new optional fields may be added within a version.

use crate::capacity::CapacityReport;
use crate::change::{Change, ChangedHost, JournalPlace};
use crate::client::ClientTables;
use crate::diagnosis::Finding;
use crate::environment::Environment;
use crate::harm_guard::HarmGuardTrip;
use crate::interval::{Interval, LoadEnd};
use crate::objective::Objective;
use crate::purpose::Purpose;
use crate::repeated_answer::RepeatedAnswer;
use crate::sample::{CollectorInfo, MissingSignal, Sample};
use crate::service::ServiceSnapshot;
use crate::sweep::{KnobValue, SweepPlan, SweepPoint, SweepReport};
use crate::topology::Topology;
use crate::tune::{Goal, Round, TuneState};
use crate::worker::{WorkerPart, WorkersStart};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// The version that this program writes.
pub const VERSION: u32 = 1;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The version of the format.
    pub v: u32,
    /// From 0, without gaps.
    pub seq: u64,
    /// When it happened, microseconds since the session began. Samples carry the time at which they were read, so
    /// this does not always rise.
    pub t_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventBody {
    /// The first event of every log.
    SessionStart {
        /// `run`, `diagnose`, `tune`, `quickstart`, `observe`.
        command: String,
        /// Wall clock, RFC 3339.
        started_at: String,
        /// The machine of the generator.
        client: Environment,
        /// What the user wants to reach, for tuning.
        goal: Option<Goal>,
        /// Objectives of runs.
        objectives: Vec<Objective>,
        /// Who gave the command.
        #[serde(default)]
        operator: Option<String>,
        /// The run directory, absolute.
        #[serde(default)]
        directory: Option<String>,
    },
    /// An agent reported for duty.
    Server {
        /// Its role among several hosts; `None` for the one under load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// The machine of the server.
        environment: Environment,
        /// What its collectors read.
        collectors: Vec<CollectorInfo>,
    },
    /// The service behind the port was read (again).
    Service {
        /// As it is now.
        snapshot: Box<ServiceSnapshot>,
    },
    /// What stands behind the service was looked at (again).
    Topology {
        /// The role of the host among several hosts; `None` for the one under load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// As it is now.
        topology: Box<Topology>,
    },
    /// What requests of the loads showed that were sent twice before them.
    RepeatedAnswers {
        /// Those that are asked for most, at most 64.
        answers: Vec<RepeatedAnswer>,
    },
    /// A load begins.
    LoadStart {
        /// From 1, in order.
        load: u32,
        /// Why it is made.
        purpose: Purpose,
        /// What is sent, secrets replaced.
        workload: Box<Workload>,
        /// How long the slowest of a few requests took that were sent alone before; `None` where none was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alone_us: Option<u64>,
    },
    /// One second of a load.
    Interval {
        /// Which load.
        load: u32,
        /// Its results.
        interval: Box<Interval>,
    },
    /// A load is over.
    LoadEnd {
        /// Which load.
        load: u32,
        /// How it ended.
        end: LoadEnd,
        /// Start of the measured part, seconds since the load began: what lies before was warm-up.
        measured_from_s: f64,
        /// Why so much was cut; `None` when nothing was, and in recordings of before it was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_why: Option<String>,
        /// End of the measured part, when a ramp-down follows it that is not measured; `None` when it lasts to the end of
        /// the load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        measured_to_s: Option<f64>,
    },
    /// Workers are to make a load, and how its recording is finished without this command.
    WorkersStart {
        /// Which load.
        load: u32,
        /// Who and where.
        start: WorkersStart,
    },
    /// Which machines make a load, and what has become of the part of each by now: as the parts are dealt out, every ten seconds, and
    /// at the end. The last one counts; of a load that one machine made there is none.
    Workers {
        /// Which load.
        load: u32,
        /// In the order of their shares.
        parts: Vec<WorkerPart>,
    },
    /// The tables of the generator's machine during a load, told at its end.
    ClientTables {
        /// Which load.
        load: u32,
        /// Their sizes, and how full they were.
        tables: ClientTables,
    },
    /// A watched host without load of our own: the window that is diagnosed.
    Watch {
        /// Length of the window that ends with this event.
        length_us: u64,
    },
    /// A reading of the server's machine.
    Sample {
        /// The role of the host among several hosts; `None` for the one under load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// The reading.
        sample: Sample,
    },
    /// A change was planned; nothing is written yet.
    Planned {
        /// Round, from 1.
        n: u32,
        /// What led to it.
        finding: Box<Finding>,
        /// What will change.
        changes: Vec<Change>,
        /// Unified diff.
        diff: String,
    },
    /// What was planned last is in force.
    Applied {
        /// Names the state before it; rises from change to change.
        mark: u64,
        /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
        outage_us: Option<u64>,
        /// Where its undo is; `None` when nothing had to be written.
        journal: Option<JournalPlace>,
        /// On which host; `None` for the one under load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<ChangedHost>,
    },
    /// What was applied since a state was put back.
    Reverted {
        /// The mark of that state; 0 is the one at the start.
        mark: u64,
        /// What was done for it, one line each.
        actions: Vec<String>,
        /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
        outage_us: Option<u64>,
    },
    /// A round is over.
    RoundEnd {
        /// The round.
        round: Box<Round>,
        /// The load it was compared with.
        load_before: u32,
        /// The load that verified it; `None` when only planned.
        load_after: Option<u32>,
    },
    /// Tuning is over.
    TuneEnd {
        /// The first measurement.
        baseline_load: u32,
        /// The best that stands.
        best_load: u32,
        /// The measurement that shows the limit that remains.
        last_load: u32,
        /// Whether the goal was met.
        goal_met: bool,
        /// What became of the server.
        state: TuneState,
    },
    /// A sweep begins.
    SweepStart {
        /// What is varied, and how.
        plan: Box<SweepPlan>,
    },
    /// The next loads measure this point of a sweep.
    SweepPointStart {
        /// A value of each knob.
        values: Vec<KnobValue>,
        /// Which repeat, from 1.
        repeat: u32,
        /// Which load of the sweep it will be, from 1.
        #[serde(default)]
        n: u32,
        /// How many loads there will be, as it looks now.
        #[serde(default)]
        expected: u32,
    },
    /// What one load at a point of a sweep came to, or why there was none. Those without the number of a load come from the session
    /// that this one goes on with.
    SweepPointEnd {
        /// A point of that load alone.
        point: Box<SweepPoint>,
    },
    /// A sweep is over, or was interrupted: what its points say.
    SweepEnd {
        /// The curve.
        report: Box<SweepReport>,
    },
    /// A search for the capacity is over.
    CapacityEnd {
        /// What it found.
        report: Box<CapacityReport>,
    },
    /// A load was stopped because it began to do harm; its end follows.
    Brake {
        /// Which load.
        load: u32,
        /// Why.
        brake: HarmGuardTrip,
    },
    /// What could not be watched of the harm that a load may do.
    Unwatched {
        /// Which load.
        load: u32,
        /// The signals.
        missing: Vec<MissingSignal>,
    },
    /// What the wall clock shows now, where it is not the one at the start plus the time since: at the start of a later
    /// part of the log, and when somebody has set it.
    Clock {
        /// RFC 3339.
        wall: String,
    },
    /// While a host was watched, something went wrong.
    Incident {
        /// The role of the host among several hosts; `None` for the one under load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// The metric that showed it.
        metric: String,
        /// What went wrong, in words, with the figure.
        what: String,
    },
    /// Something a reader of the session should know.
    Note {
        /// One line.
        text: String,
    },
    /// The last event of a session that ended in order. One whose results could not be written has two: the last one counts.
    SessionEnd {
        /// Exit code of the program.
        exit_code: u8,
        /// The error it ended with.
        error: Option<String>,
    },
}

impl EventBody {
    /// Kinds that this version knows: a line of one of these that cannot be read is damage, any other is skipped.
    pub const KINDS: [&str; 29] = [
        "session_start",
        "server",
        "service",
        "topology",
        "repeated_answers",
        "load_start",
        "interval",
        "load_end",
        "workers_start",
        "workers",
        "client_tables",
        "watch",
        "sample",
        "planned",
        "applied",
        "reverted",
        "round_end",
        "tune_end",
        "sweep_start",
        "sweep_point_start",
        "sweep_point_end",
        "sweep_end",
        "capacity_end",
        "brake",
        "unwatched",
        "clock",
        "incident",
        "note",
        "session_end",
    ];
}
