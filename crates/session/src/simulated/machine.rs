//! A modelled machine: its files, processes, clock and server. Everything that a process does is an act, and at each act
//! something may go wrong.

use crate::simulated::faults::{ActKind, Fault, Faults, OperatorAct, ServiceFault};
use crate::simulated::files::{Files, WriteProgress};
use crate::simulated::layout::{DEADLY, ETC, STATE};
use crate::simulated::operator::Operator;
use crate::simulated::server::{Server, configured, has_line};
use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use webdyno_host::os::process::ProcessName;

/// What an act takes.
const ACT_US: u64 = 1000;

/// The payload of the panic that ends a process of the model.
pub struct ProcessEnded;

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessCondition {
    Runs,
    Hangs,
}

/// All that there is on a machine.
pub struct MachineState {
    /// Microseconds since the first boot.
    pub clock_us: u64,
    boots: u32,
    booted_us: u64,
    next_pid: u32,
    processes: Vec<(ProcessName, ProcessCondition)>,
    locks: BTreeMap<PathBuf, ProcessName>,
    /// Who gives the orders.
    pub tool: Option<ProcessName>,
    /// Who carries them out, or rolls back.
    pub worker: Option<ProcessName>,
    /// Whether the power failed, and nobody booted it since.
    pub is_down: bool,
    /// Programs that were started beside the service, and their ports.
    pub shadows: Vec<(ProcessName, u16)>,
    /// Whether others use the service: then nothing restarts it for an undo.
    pub is_live: bool,
    /// Whether the service can be tried as a shadow.
    pub has_shadow: bool,
    /// Whether something starts services at boot that can be hooked.
    pub has_init: bool,
    /// Whether the service did not come up at a boot at which nothing put back what was not kept.
    pub is_dead_since_boot: bool,
    /// Whether tool and agent hear each other.
    pub is_connected: bool,
    /// The files.
    pub files: Files,
    /// The server.
    pub server: Server,
    /// Who else works on it.
    pub operator: Operator,
    /// What goes wrong.
    pub faults: Faults,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    /// Every act, to be read by people; `None` when nobody does.
    pub trace: Option<Vec<String>>,
    /// How many acts there were.
    pub acts_count: u64,
    /// How many of them were struck.
    pub faults_count: u64,
}

/// A machine that processes share.
#[derive(Clone)]
pub struct Machine(Arc<Mutex<MachineState>>);

/// A process on a machine: the seams to it, all in one.
#[derive(Clone)]
pub struct Process {
    machine: Machine,
    /// Which process it is.
    pub name: ProcessName,
}

/// How an act goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActOutcome {
    /// How far it gets.
    pub progress: WriteProgress,
    /// With which error it ends.
    pub error: Option<io::ErrorKind>,
    /// What the service does instead.
    pub service: Option<ServiceFault>,
}

impl ActOutcome {
    const SMOOTH: Self = Self { progress: WriteProgress::Whole, error: None, service: None };
}

impl Machine {
    /// A machine that runs, with these files and a server that has read them.
    pub fn new(files: Files, operator: Operator, faults: Faults, traced: bool) -> Self {
        let mut state = MachineState {
            clock_us: 0,
            boots: 0,
            booted_us: 0,
            next_pid: 0,
            processes: vec![],
            locks: BTreeMap::new(),
            tool: None,
            worker: None,
            is_down: true,
            shadows: vec![],
            has_shadow: false,
            is_live: false,
            has_init: false,
            is_dead_since_boot: false,
            is_connected: true,
            files,
            server: Server::default(),
            operator,
            faults,
            violations: vec![],
            trace: traced.then(Vec::new),
            acts_count: 0,
            faults_count: 0,
        };
        state.boot();
        state.restart_server();
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, for whoever sets up and looks on.
    pub fn state(&self) -> MutexGuard<'_, MachineState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process.
    pub fn start(&self) -> Process {
        let name = self.state().start();
        Process { machine: self.clone(), name }
    }
}

impl MachineState {
    /// Starts a process.
    pub fn start(&mut self) -> ProcessName {
        self.next_pid += 1;
        let name = ProcessName { pid: self.next_pid, start_ticks: (self.clock_us - self.booted_us) / 10_000 };
        self.processes.push((name, ProcessCondition::Runs));
        name
    }

    /// Ends a process; its locks end with it.
    pub fn end(&mut self, name: ProcessName) {
        self.processes.retain(|(there, _)| *there != name);
        self.locks.retain(|_, holder| *holder != name);
        self.shadows.retain(|(shadow, _)| *shadow != name);
    }

    /// Whether a process is there.
    pub fn exists(&self, name: ProcessName) -> bool {
        self.processes.iter().any(|(there, _)| *there == name)
    }

    /// Whether it is there and works.
    pub fn runs(&self, name: ProcessName) -> bool {
        self.processes.contains(&(name, ProcessCondition::Runs))
    }

    /// Which boot this is.
    pub fn boot_id(&self) -> String {
        format!("boot {}", self.boots)
    }

    /// Pids and clock ticks begin anew; nothing is started yet.
    pub fn boot(&mut self) {
        self.trace(|| "the machine boots".into());
        self.boots += 1;
        self.booted_us = self.clock_us;
        self.next_pid = 100;
        self.is_down = false;
    }

    fn lose_power(&mut self) {
        self.is_down = true;
        self.processes.clear();
        self.locks.clear();
        self.shadows.clear();
        self.server.main = None;
        let Self { files, faults, .. } = self;
        files.lose_power(faults.random());
    }

    /// Takes a lock; false when somebody has it.
    pub fn lock(&mut self, path: &Path, name: ProcessName) -> bool {
        let free = !self.locks.contains_key(path);
        if free {
            self.locks.insert(path.to_owned(), name);
        }
        free
    }

    /// Gives a lock back, unless its holder stands still with it.
    pub fn unlock(&mut self, path: &Path, name: ProcessName) {
        if self.runs(name) && self.locks.get(path) == Some(&name) {
            self.locks.remove(path);
        }
    }

    /// Whether somebody holds a lock.
    pub fn is_locked(&self) -> bool {
        !self.locks.is_empty()
    }

    /// For people who read a replay.
    pub fn trace(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    /// Ends the main process of the service.
    pub fn kill_server(&mut self) {
        if let Some(main) = self.server.main.take() {
            self.end(main);
        }
    }

    /// What strikes an act: how it goes, and what happens within it to processes and power.
    fn draw_fault(&mut self, name: ProcessName, kind: ActKind) -> (ActOutcome, Option<Fault>) {
        let Some(fault) = self.faults.next_fault(kind) else { return (ActOutcome::SMOOTH, None) };
        self.faults_count += 1;
        self.trace(|| format!("  !! {fault:?}"));
        let share = self.faults.share();
        // At either end, or in between.
        let progress = match share % 4 {
            0 => WriteProgress::None,
            1 => WriteProgress::Whole,
            _ => WriteProgress::Part(share),
        };
        let mut outcome = ActOutcome::SMOOTH;
        match fault {
            Fault::Kill { tool, worker } => {
                let strikes_us = tool && Some(name) == self.tool || worker && Some(name) == self.worker;
                outcome.progress = if strikes_us { progress } else { WriteProgress::Whole };
                return (outcome, Some(fault));
            }
            Fault::Hang | Fault::PowerLoss => return (ActOutcome { progress, ..outcome }, Some(fault)),
            Fault::LostConnection => self.is_connected = false,
            Fault::DiskError(error) => {
                // What failed has not been brought to the disk.
                let progress = if progress == WriteProgress::Whole {
                    WriteProgress::Part(share | 65536)
                } else {
                    progress
                };
                outcome = ActOutcome { progress, error: Some(error), ..outcome };
            }
            Fault::DiskFull { free_bytes } => {
                self.files
                    .set_free_bytes(Path::new(if share.is_multiple_of(2) { ETC } else { STATE }), free_bytes);
            }
            Fault::ReadOnly => {
                self.files.make_read_only(Path::new(if share.is_multiple_of(2) { ETC } else { STATE }))
            }
            Fault::Service(service) => outcome.service = Some(service),
            Fault::Operator(act) => self.operate(act),
        }
        (outcome, None)
    }

    /// What happens to processes and power.
    fn inject_fault(&mut self, fault: Fault) {
        let (tool, worker) = (self.tool, self.worker);
        match fault {
            Fault::Kill { tool: hits_tool, worker: hits_worker } => {
                tool.filter(|_| hits_tool).into_iter().for_each(|name| self.end(name));
                worker.filter(|_| hits_worker).into_iter().for_each(|name| self.end(name));
            }
            Fault::Hang => {
                let standing = self.processes.iter_mut().filter(|(name, _)| Some(*name) == worker);
                standing.for_each(|(_, condition)| *condition = ProcessCondition::Hangs);
            }
            Fault::PowerLoss => self.lose_power(),
            _ => {}
        }
    }

    /// The operator ends what stands still: all but the agent, which the next rollback ends by itself.
    pub fn end_hanging(&mut self, but: Option<ProcessName>) {
        let holds = |(name, condition): &(ProcessName, ProcessCondition)| {
            (*condition == ProcessCondition::Hangs && Some(*name) != but).then_some(*name)
        };
        let standing: Vec<_> = self.processes.iter().filter_map(holds).collect();
        standing.into_iter().for_each(|name| self.end(name));
    }

    /// The operator takes out of the files what keeps his service from starting.
    pub fn repair_config(&mut self) {
        if configured(&self.files).is_none() || has_line(&self.files, DEADLY) {
            self.operator.repair_config(&mut self.files);
        }
    }

    fn operate(&mut self, act: OperatorAct) {
        match act {
            OperatorAct::Edit => self.operator.edit(&mut self.files, self.faults.random(), self.clock_us),
            OperatorAct::Delete => self.operator.delete(&mut self.files, self.faults.random()),
            OperatorAct::PutBack => self.operator.restore_original(&mut self.files, self.faults.random()),
            OperatorAct::Reload => self.server.reload((&self.files, self.clock_us)),
            OperatorAct::Restart => self.restart_server(),
            OperatorAct::KillService => {
                self.kill_server();
                self.operator.killed_service = true;
            }
        }
        // Who takes settings away lets that take effect.
        if matches!(act, OperatorAct::Delete | OperatorAct::PutBack) && self.server.is_running() {
            self.restart_server();
        }
        // A configuration that ends it ends it whoever reloads it.
        self.reap_server();
    }

    /// Starts the service anew.
    pub fn restart_server(&mut self) {
        self.kill_server();
        let main = self.start();
        self.server.start(main, (&self.files, self.clock_us));
        self.reap_server();
    }

    /// A main process that ended leaves the table of processes.
    pub fn reap_server(&mut self) {
        if let Some(main) = self.server.ended.take() {
            self.end(main);
        }
    }
}

impl Process {
    /// The machine that it is on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Does something, as far as it gets. Ends this process when something strikes it.
    pub fn act<T>(
        &self,
        kind: ActKind,
        name: impl FnOnce() -> String,
        perform: impl FnOnce(&mut MachineState, ActOutcome) -> T,
    ) -> T {
        let mut state = self.machine.state();
        if !state.runs(self.name) {
            drop(state);
            resume_unwind(Box::new(ProcessEnded));
        }
        state.acts_count += 1;
        state.clock_us += ACT_US;
        let (count, pid) = (state.acts_count, self.name.pid);
        state.trace(|| format!("{count:5} [{pid}] {}", name()));
        let (outcome, strikes) = state.draw_fault(self.name, kind);
        let done = perform(&mut state, outcome);
        if let Some(fault) = strikes {
            state.inject_fault(fault);
        }
        let runs = state.runs(self.name);
        drop(state);
        match runs {
            true => done,
            false => resume_unwind(Box::new(ProcessEnded)),
        }
    }
}
