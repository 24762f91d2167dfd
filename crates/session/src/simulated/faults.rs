//! What goes wrong, and when: a seed decides, at each act of a session, on one of the kinds that it brings.

use crate::simulated::random::Random;
use std::io::ErrorKind;

/// What happens at an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of the tool, of the process that works for it (the agent, or a rollback), or of both.
    Kill { tool: bool, worker: bool },
    /// The worker stops for ever, and still is there.
    Hang,
    /// The machine stops and boots again.
    PowerLoss,
    /// Tool and agent do not hear each other any more.
    LostConnection,
    /// The act fails, however far it got.
    DiskError(ErrorKind),
    /// Somebody fills up the disk but for some bytes.
    DiskFull { free_bytes: u64 },
    /// The kernel remounts it read-only.
    ReadOnly,
    /// The service does not do what it is told.
    Service(ServiceFault),
    /// Somebody else is at work.
    Operator(OperatorAct),
}

/// What a service does instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceFault {
    /// It fails and says so.
    Refuses,
    /// It does what it is told, and the answer is an error.
    LateError,
    /// It says that all is well, and goes on with the values that it had. Of a test: it finds every file valid.
    Ignores,
    /// It ends.
    Dies,
    /// It does not answer for a long time, and then with an error.
    Hangs,
}

/// What an operator, or a program of his, does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorAct {
    /// Edits one of the files.
    Edit,
    /// Removes one of the files that need not be there.
    Delete,
    /// Puts a file back to what it was before the session.
    PutBack,
    /// Reloads the service, as log rotation does.
    Reload,
    /// Restarts it.
    Restart,
    /// The kernel ends it for want of memory.
    KillService,
}

/// What an act is, as far as it decides what can happen at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActKind {
    /// Reads the disk.
    Read,
    /// Writes to the disk.
    Write,
    /// Replaces or removes a file that was looked at just before: nobody else gets in between.
    Swap,
    /// Asks or tells the service something.
    Service,
    /// Looks at processes, waits, or loads the server.
    Other,
}

/// A kind of trouble that a seed may bring.
const TROUBLES: [&[Fault]; 8] = [
    &[
        Fault::Kill { tool: true, worker: false },
        Fault::Kill { tool: false, worker: true },
        Fault::Kill { tool: true, worker: true },
    ],
    &[Fault::Hang],
    &[Fault::PowerLoss],
    &[Fault::LostConnection],
    &[
        Fault::DiskError(ErrorKind::Other),
        Fault::DiskError(ErrorKind::StorageFull),
        Fault::DiskError(ErrorKind::TimedOut),
    ],
    &[
        Fault::DiskFull { free_bytes: 0 },
        Fault::DiskFull { free_bytes: 40 },
        Fault::DiskFull { free_bytes: 1500 },
        Fault::DiskFull { free_bytes: 6000 },
        Fault::ReadOnly,
    ],
    &[
        Fault::Service(ServiceFault::Refuses),
        Fault::Service(ServiceFault::LateError),
        Fault::Service(ServiceFault::Ignores),
        Fault::Service(ServiceFault::Dies),
        Fault::Service(ServiceFault::Hangs),
    ],
    &[
        Fault::Operator(OperatorAct::Edit),
        Fault::Operator(OperatorAct::Edit),
        Fault::Operator(OperatorAct::Delete),
        Fault::Operator(OperatorAct::PutBack),
        Fault::Operator(OperatorAct::Reload),
        Fault::Operator(OperatorAct::Restart),
        Fault::Operator(OperatorAct::KillService),
    ],
];

/// The kills of [`Faults::kill`]: of the tool, of its agent, of both.
pub const KILLS: [&[Fault]; 3] = [
    &[Fault::Kill { tool: true, worker: false }],
    &[Fault::Kill { tool: false, worker: true }],
    &[Fault::Kill { tool: true, worker: true }],
];

/// Decides what happens.
#[derive(Debug, Clone)]
pub struct Faults {
    random: Random,
    troubles: Vec<&'static [Fault]>,
    /// On average one act in so many is struck.
    odds: u64,
    remaining_count: u32,
    /// So many acts go well first.
    quiet_acts: u64,
}

impl Faults {
    /// None at all.
    pub fn none() -> Self {
        Self { random: Random::new(0, 0), troubles: vec![], odds: 1, remaining_count: 0, quiet_acts: 0 }
    }

    /// Those of a seed: one to three, of one to three kinds, early or late.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let troubles = (0..=random.below(3)).map(|_| *random.pick(&TROUBLES)).collect();
        let one_in = *random.pick(&[6, 20, 50, 120]);
        let left_count = 1 + random.below(3) as u32;
        Self { random, troubles, odds: one_in, remaining_count: left_count, quiet_acts: 0 }
    }

    /// A kill after so many acts: one of [`KILLS`].
    pub fn kill(after: u64, victim: usize) -> Self {
        let troubles = vec![KILLS[victim % KILLS.len()]];
        Self { random: Random::new(after, 1), troubles, odds: 1, remaining_count: 1, quiet_acts: after }
    }

    /// What happens at an act of a kind, if anything.
    pub fn next_fault(&mut self, kind: ActKind) -> Option<Fault> {
        if self.quiet_acts > 0 {
            self.quiet_acts -= 1;
            return None;
        }
        if self.remaining_count == 0 || !self.random.one_in(self.odds) {
            return None;
        }
        let trouble = *self.random.pick(&self.troubles);
        let fault = *self.random.pick(trouble);
        let fits = match fault {
            Fault::DiskError(_) => matches!(kind, ActKind::Read | ActKind::Write | ActKind::Swap),
            Fault::DiskFull { .. } | Fault::ReadOnly => matches!(kind, ActKind::Write | ActKind::Swap),
            Fault::Service(_) => kind == ActKind::Service,
            Fault::Operator(_) => kind != ActKind::Swap,
            _ => true,
        };
        if fits {
            self.remaining_count -= 1;
        }
        fits.then_some(fault)
    }

    /// A share in 65536ths: how far something gets.
    pub fn share(&mut self) -> u64 {
        self.random.below(65537)
    }

    /// The randomness of what follows from a fault.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}
