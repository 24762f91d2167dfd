//! Turns on the machine: tests that measure have it alone, some share it, and those that keep to times of seconds go a few at a time.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How many tests that only wait run at a time: eight sessions on slow pages take a fraction of a core.
const WAITING_MAX: usize = 8;
/// How many run at a time whose programs keep to times of a few seconds.
const PACED_MAX: usize = 3;

/// Who runs, and who of those that can still share the machine waits to. Two locks would not do: a test that needs the machine alone must
/// not hold up those.
struct Machine {
    alone: usize,
    paced: usize,
    sharing: usize,
    wanting_to_share: usize,
}

static MACHINE: (Mutex<Machine>, Condvar) =
    (Mutex::new(Machine { alone: 0, paced: 0, sharing: 0, wanting_to_share: 0 }), Condvar::new());
/// Keeps the other test programs of scripts/test from running, as long as somebody holds it.
static OTHERS: Mutex<Weak<OwnedFd>> = Mutex::new(Weak::new());

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Alone,
    Paced,
    Shared,
}

impl Machine {
    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Alone => &mut self.alone,
            Kind::Paced => &mut self.paced,
            Kind::Shared => &mut self.sharing,
        }
    }

    fn is_free_for(&self, kind: Kind) -> bool {
        let nobody_shares = self.sharing + self.wanting_to_share == 0;
        self.alone == 0
            && match kind {
                Kind::Alone => nobody_shares && self.paced == 0,
                Kind::Paced => nobody_shares && self.paced < PACED_MAX,
                Kind::Shared => self.paced == 0 && self.sharing < WAITING_MAX,
            }
    }
}

/// The part of the machine that a test has.
pub struct Turn {
    kind: Kind,
    since: Instant,
    _others: Option<Arc<OwnedFd>>,
}

/// How often is tried whether the other test programs have ended.
const OTHERS_POLL: Duration = Duration::from_millis(200);

/// For tests that measure, or that take the whole machine: on two cores they would measure each other. They come when
/// nobody wants to share it, and no other test program runs.
pub fn turn() -> Turn {
    without_other_programs(Kind::Alone)
}

/// For tests whose programs load little, but promise something within seconds: a few at a time, beside no others.
pub fn paced_turn() -> Turn {
    without_other_programs(Kind::Paced)
}

/// For tests whose sessions wait most of their time, and which assert nothing that a busy machine changes.
pub fn shared_turn() -> Turn {
    take_when_free(Kind::Shared)
}

fn without_other_programs(kind: Kind) -> Turn {
    loop {
        let mut turn = take_when_free(kind);
        let Some(path) = std::env::var_os("WEBDYNO_TEST_LOCK") else { return turn };
        let mut held = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
        turn._others = held.upgrade();
        if turn._others.is_some() {
            return turn;
        }
        let lock: OwnedFd = std::fs::File::open(path).unwrap().into();
        // Each of them shares it while it runs. Meanwhile others may share the machine.
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let lock = Arc::new(lock);
                *held = Arc::downgrade(&lock);
                turn._others = Some(lock);
                turn.since = Instant::now();
                return turn;
            }
            Err(error) => assert_eq!(error, Errno::WOULDBLOCK, "the lock of scripts/test"),
        }
        drop((held, turn));
        std::thread::sleep(OTHERS_POLL);
    }
}

fn take_when_free(kind: Kind) -> Turn {
    let (machine, changed) = &MACHINE;
    let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
    machine.wanting_to_share += usize::from(kind == Kind::Shared);
    while !machine.is_free_for(kind) {
        machine = changed.wait(machine).unwrap_or_else(PoisonError::into_inner);
    }
    machine.wanting_to_share -= usize::from(kind == Kind::Shared);
    *machine.count(kind) += 1;
    Turn { kind, since: Instant::now(), _others: None }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (machine, changed) = &MACHINE;
        let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
        *machine.count(self.kind) -= 1;
        changed.notify_all();
        // What one test has, others wait for: scripts/test lists the longest.
        if let (Some(path), Kind::Alone | Kind::Paced) = (std::env::var_os("WEBDYNO_TEST_TURNS"), self.kind) {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            let line = format!("{:5} s  {test}\n", self.since.elapsed().as_secs());
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
}
