//! What tool and agent say to each other: length-prefixed JSON (four bytes, big endian, then that many bytes).
//!
//! The tool sends [`ToAgent`] with a rising id; the agent answers each with one [`FromAgent`] that carries the id.
//! Samples and warnings come unasked, with id 0.

use crate::os::page_cache::DroppedPages;
use crate::os::process::ProcessName;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use webdyno_model::UserError;
use webdyno_model::change::{ApplyOptions, JournalPlace, Preparation, RenderedPlan, SettingChange};
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::{HarmGuardTrip, SiteUnderLoad};
use webdyno_model::sample::{CollectorInfo, MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Topology};

/// The version of this protocol. Tool and agent of different versions refuse to work together.
pub const PROTOCOL: u32 = 5;

/// The longest message in bytes: bounds on everything.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A message with the id that connects question and answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Framed<T> {
    /// Of the question; 0 for what comes unasked.
    pub id: u64,
    /// The message.
    pub body: T,
}

/// The process that gives the orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessName,
    /// Boot and pid namespace in which the pid means something.
    pub pid_space: String,
    /// What it is about, without arguments that may hold secrets: `webdyno tune`.
    pub what: String,
    /// With which words of `--server` it reaches the agent: these go into the journal, which only its owner may read.
    #[serde(default)]
    pub server: Option<String>,
}

/// From the tool to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub enum ToAgent {
    /// First message.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Version of the tool.
        build: String,
        /// The tool itself, for the journal; an agent on the same machine can see then whether it still lives.
        #[serde(default)]
        tool: Option<Tool>,
        /// Whether nothing at all is to be written at the agent's end: what earlier sessions left stays, and what would
        /// change anything is refused.
        #[serde(default)]
        reads_only: bool,
    },
    /// Any message within 15 s keeps the agent from reverting; this one only asks for its clock besides.
    Heartbeat,
    /// Which service listens on this port?
    Discover {
        /// The port under load.
        port: u16,
    },
    /// Which services are there, and who talks to whom? Looks at everything again.
    Topology {
        /// The port of the service in front; all known services of the machine without it.
        port: Option<u16>,
        /// What the operator gave.
        #[serde(default)]
        access: Access,
    },
    /// Send samples from now on, until told otherwise.
    Observe {
        /// The port under load; the machine and all known services without it.
        port: Option<u16>,
        /// The load generator, when it runs on the same machine.
        client_pid: Option<u32>,
        /// What the operator gave.
        #[serde(default)]
        access: Access,
        /// Whether everything is to be read each second, however expensive: for one look that lasts a few seconds.
        #[serde(default)]
        in_full: bool,
    },
    /// Which of these addresses belong to the agent's machine (or container)?
    Owns {
        /// Of the site that is to be loaded.
        addresses: Vec<IpAddr>,
        /// The tool's network, as [`crate::os::machine::net_space`] names it: a loopback address means another machine in
        /// another network.
        net_space: Option<String>,
    },
    /// A load is about to begin on what is observed: watch that it does no harm, and say `Brake` when it does.
    LoadBegins {
        /// What is loaded, and by whom.
        site: SiteUnderLoad,
    },
    /// The load has ended. What was said of it was said before this is answered.
    LoadEnds,
    /// After a brake: is the server quiet again?
    Unrest,
    /// Drop what the page cache holds of these files, and of all below these directories, as the service sees them.
    DropPages {
        /// Absolute paths.
        paths: Vec<PathBuf>,
        /// Whether it is only to be seen that this can be done.
        only_look: bool,
    },
    /// Let the target of these changes render them. Writes nothing.
    Prepare {
        /// What is wanted, all of one target.
        changes: Vec<SettingChange>,
        /// Whether the site is served by another host, for which something is changed here; that holds to the end.
        #[serde(default)]
        behind: bool,
    },
    /// Journal, write, validate, activate, read back. When any step fails everything of it is undone before the error
    /// is answered.
    Apply {
        /// As it was prepared; refused when a file changed since.
        plan: RenderedPlan,
        /// What the operator allows.
        options: ApplyOptions,
    },
    /// Undo the applied plans from the last back to the `mark` that was answered when it was applied (0: all).
    Revert {
        /// From an `Applied` answer.
        mark: u64,
        /// Whether others use the site: then nothing is restarted for it.
        #[serde(default)]
        live_traffic: bool,
    },
    /// All applied changes are verified: they stay when the agent ends. Can still be rolled back later.
    Keep,
    /// Start a program that must not outlive the session; journaled.
    Launch {
        /// Absolute path first.
        command: Vec<String>,
        /// Written by the program when it has gone to the background.
        pid_file: String,
        /// It answers here when it is ready.
        port: u16,
    },
    /// Stop what was launched; its files need no undo, as nobody uses them any more.
    Dispose,
    /// Roll back what other sessions did, as `webdyno rollback` there.
    RollBack {
        /// Only this journal; all without it.
        journal: Option<String>,
        /// Only what was never kept, of sessions that were cut off.
        only_unkept: bool,
    },
    /// Good bye: without `Keep`, everything is reverted.
    Bye,
}

/// From the agent to the tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum FromAgent {
    /// First answer.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Version of the agent.
        build: String,
        /// The machine.
        environment: Environment,
        /// What the collectors read.
        collectors: Vec<CollectorInfo>,
        /// The agent's CLOCK_MONOTONIC, in microseconds.
        clock_us: u64,
        /// Which clock that is, as [`crate::os::machine::clock_space`] names it.
        clock_space: Option<String>,
    },
    /// To a heartbeat.
    Beat {
        /// The agent's CLOCK_MONOTONIC, in microseconds.
        clock_us: u64,
    },
    /// Done, nothing to say.
    Done,
    /// The service.
    Discovered {
        /// As it is.
        snapshot: Box<ServiceSnapshot>,
    },
    /// The services; unasked while something is observed, when it is not as it was.
    Topology {
        /// As they are.
        topology: Box<Topology>,
    },
    /// A reading, unasked.
    Sample {
        /// The agent's CLOCK_MONOTONIC at the reading, in microseconds.
        clock_us: u64,
        /// The reading.
        sample: Sample,
    },
    /// Something the operator should know, unasked.
    Warning {
        /// One line.
        text: String,
    },
    /// The load does harm and must end at once, unasked.
    Brake {
        /// Why.
        brake: HarmGuardTrip,
    },
    /// Who owns what.
    Owned {
        /// Those that belong to the agent's machine.
        addresses: Vec<IpAddr>,
        /// Whether the tool is in the same network, on the same machine.
        same_network: bool,
    },
    /// The load is watched.
    Watched {
        /// What cannot be seen of the harm that it may do.
        missing: Vec<MissingSignal>,
    },
    /// How the server is after a brake.
    Unrest {
        /// Why it is not quiet yet; `None` when it is.
        why: Option<String>,
    },
    /// The pages of files.
    DroppedPages {
        /// What became of them.
        pages: DroppedPages,
    },
    /// The rendered plan, or why there is none.
    Prepared {
        /// Nothing is written yet.
        preparation: Preparation,
    },
    /// The change is in force.
    Applied {
        /// Names the state before it, for `Revert`.
        mark: u64,
        /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
        outage_us: Option<u64>,
        /// The service as it is now.
        snapshot: Box<ServiceSnapshot>,
        /// Where its undo is; `None` when nothing had to be written.
        #[serde(default)]
        journal: Option<JournalPlace>,
    },
    /// What was undone, one line each.
    Reverted {
        /// In the order in which it was done.
        actions: Vec<String>,
        /// What is not as before until the next restart; among the actions, too.
        #[serde(default)]
        left: Vec<String>,
        /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
        outage_us: Option<u64>,
    },
    /// What was rolled back.
    RolledBack {
        /// One line for each thing that was done.
        lines: Vec<String>,
        /// What could not be done, or was left alone.
        problem: Option<UserError>,
        /// Whether changes that were never kept are still in force.
        unfinished: bool,
    },
    /// It could not be done, and nothing of it stayed.
    Failed {
        /// What to tell the user.
        error: UserError,
    },
}
