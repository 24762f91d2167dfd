//! The terminal is lent to what may ask for a password while it connects (ssh, sudo), and taken back after it.
//!
//! Who is not in the foreground may not read from its terminal, and is stopped if it tries (tcsetpgrp(3), termios(3)).
//! In the foreground it also gets Ctrl-C, which ends the attempt.

use crate::os::process::group_of;
use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::process::Child;

/// Our terminal, with us in the foreground.
pub struct Foreground {
    terminal: File,
    group: Pid,
}

/// It is taken back when this is dropped.
pub struct LentForeground(Foreground);

impl Foreground {
    /// `None` without a terminal, and in the background.
    pub fn ours() -> Option<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let group = Pid::from_raw(i32::try_from(group_of(std::process::id())?).ok()?)?;
        (tcgetpgrp(&terminal).ok()? == group).then_some(Self { terminal, group })
    }

    /// Lends it to the group that a child leads.
    pub fn lend(self, child: &Child) -> LentForeground {
        if let Some(group) = group(child) {
            self.give(group);
            // It may have asked already, and was stopped.
            let _ = kill_process_group(group, Signal::CONT);
        }
        LentForeground(self)
    }

    /// Where that is not possible, questions cannot be answered, and what asks them says so.
    fn give(&self, group: Pid) {
        // Who is in the background is stopped by it, unless it blocks that.
        let mut stops = SigSet::empty();
        stops.add(Blocked::SIGTTOU);
        let blocked = stops.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        let _ = tcsetpgrp(&self.terminal, group);
        if let Ok(before) = blocked {
            let _ = before.thread_set_mask();
        }
    }
}

impl Drop for LentForeground {
    fn drop(&mut self) {
        self.0.give(self.0.group);
    }
}

/// The process group that a child leads.
pub fn group(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
