//! The children of an FPM as they are seen from outside: how many each pool has, how many are at work, what they hold.
//!
//! Facts: sapi/fpm/fpm/fpm_env.c (the title of a child names its pool) and main/fastcgi.c of PHP: a child that is idle waits
//! in accept(2) on the socket of its pool; proc_pid_syscall(5), which only the process's own user and root may read.

use crate::collectors::processes::worker_memory::{Smaps, read_smaps};
use crate::os::procfs;
use crate::services;
use std::collections::BTreeMap;

/// Children that are looked at in one reading: some 10 us each.
const CHILDREN_READ_MAX: usize = 64;

/// What is known of a child.
#[derive(Debug, Clone, Default, PartialEq)]
struct Child {
    pool: String,
    /// Whether it waited for no request when it was last looked at.
    busy: Option<bool>,
    memory: Option<Smaps>,
}

/// What the children of one pool come to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// How many there are.
    pub count: u64,
    /// How many are at work; `None` when that may not be seen.
    pub busy_count: Option<u64>,
    /// What one holds in memory, shared pages by their share: the mean of those that were read.
    pub pss_mean_bytes: Option<f64>,
    /// What the largest of them holds.
    pub pss_max_bytes: Option<f64>,
    /// The same of what was swapped out.
    pub swap_pss_mean_bytes: Option<f64>,
}

/// The children of one FPM.
#[derive(Debug, Default)]
pub struct Children {
    known: BTreeMap<u32, Child>,
    /// The last one whose state, and whose memory, was read.
    last: [u32; 2],
}

impl Children {
    /// Looks which ones there are.
    pub fn read(&mut self, main_pid: u32) {
        let pids = procfs::children_of(main_pid);
        self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
        for pid in pids {
            if !self.known.contains_key(&pid)
                && let Some(pool) = services::php_fpm::pool_of(pid)
            {
                self.known.insert(pid, Child { pool, ..Child::default() });
            }
        }
    }

    /// Looks which ones are at work; when they are many, some of them, in turn.
    pub fn read_work(&mut self) {
        for pid in self.turn(0, CHILDREN_READ_MAX) {
            let busy = is_busy(&procfs::read_text(format!("/proc/{pid}/syscall")).unwrap_or_default());
            if let Some(child) = self.known.get_mut(&pid) {
                child.busy = busy;
            }
        }
    }

    /// Reads the memory of one child, in turn.
    pub fn read_memory(&mut self) {
        for pid in self.turn(1, 1) {
            if let Some(child) = self.known.get_mut(&pid) {
                child.memory = read_smaps(pid).ok().flatten().or(child.memory);
            }
        }
    }

    /// Those whose turn it is: after the last ones, and around.
    fn turn(&mut self, which: usize, count: usize) -> Vec<u32> {
        let last = self.last[which];
        let after = self.known.range(last.saturating_add(1)..).chain(self.known.range(..=last));
        let turn: Vec<u32> = after.map(|(pid, _)| *pid).take(count).collect();
        self.last[which] = turn.last().copied().unwrap_or(0);
        turn
    }

    /// What those of a pool come to.
    pub fn sums(&self, pool: &str) -> Sums {
        let of_pool = || self.known.values().filter(|child| child.pool == pool);
        let mean = |of: fn(&Smaps) -> Option<u64>| {
            let values: Vec<u64> = of_pool().filter_map(|child| of(child.memory.as_ref()?)).collect();
            (!values.is_empty()).then(|| (values.iter().sum::<u64>() as f64 / values.len() as f64).round())
        };
        let count = of_pool().count() as u64;
        let seen = of_pool().filter_map(|child| child.busy).count() as u64;
        let busy = of_pool().filter(|child| child.busy == Some(true)).count() as u64;
        // Of many only some were looked at: these stand for all.
        let all_busy = (busy as f64 * count as f64 / seen.max(1) as f64).round() as u64;
        Sums {
            count,
            busy_count: (count == 0 || seen > 0).then_some(all_busy),
            pss_mean_bytes: mean(|smaps| Some(smaps.pss_bytes)),
            pss_max_bytes: of_pool()
                .filter_map(|child| Some(child.memory.as_ref()?.pss_bytes as f64))
                .reduce(f64::max),
            swap_pss_mean_bytes: mean(|smaps| smaps.swap_pss_bytes),
        }
    }

    /// How many each pool has.
    pub fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for child in self.known.values() {
            *counts.entry(child.pool.as_str()).or_insert(0) += 1;
        }
        counts
    }
}

/// Whether a process does something else than to wait in accept(2), by its `/proc/PID/syscall`; `None` when that says
/// nothing.
fn is_busy(syscall: &str) -> Option<bool> {
    let first = syscall.split_ascii_whitespace().next()?;
    if first == "running" {
        return Some(true);
    }
    let number: nix::libc::c_long = first.parse().ok()?;
    Some(![nix::libc::SYS_accept, nix::libc::SYS_accept4].contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_in_accept_is_idle() {
        let accept = format!("{} 0x6 0x7ffc 0x0 0x0 0x0 0x0 0x7ffc 0x7f9b\n", nix::libc::SYS_accept);
        for (text, expected) in [
            (accept.as_str(), Some(false)),
            ("running\n", Some(true)),
            ("230 0x0 0x0\n", Some(true)),
            ("-1 0x0 0x0\n", Some(true)),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(is_busy(text), expected, "{text}");
        }
    }

    #[test]
    fn all_children_have_their_turn() {
        let mut children = Children::default();
        for pid in 1..=10 {
            children.known.insert(pid, Child { pool: "www".into(), ..Child::default() });
        }
        assert_eq!(children.turn(0, 4), [1, 2, 3, 4]);
        assert_eq!(children.turn(0, 4), [5, 6, 7, 8]);
        assert_eq!(children.turn(1, 1), [1]);
        assert_eq!(children.turn(0, 4), [9, 10, 1, 2]);
        children.known.clear();
        assert_eq!(children.turn(0, 4), Vec::<u32>::new());
    }

    #[test]
    fn pools_are_summed_apart() {
        let memory = |pss| Some(Smaps { pss_bytes: pss, ..Smaps::default() });
        let child = |pool: &str, busy, memory| Child { pool: pool.into(), busy, memory };
        let known = [
            (1, child("a", Some(true), memory(10))),
            (2, child("a", Some(false), memory(20))),
            (3, child("a", Some(true), None)),
            (4, child("b", None, None)),
        ];
        let children = Children { known: known.into(), last: [0; 2] };
        let a = children.sums("a");
        assert_eq!((a.count, a.busy_count, a.pss_mean_bytes), (3, Some(2), Some(15.0)));
        assert_eq!(a.pss_max_bytes, Some(20.0));
        let b = children.sums("b");
        assert_eq!((b.count, b.busy_count, b.pss_mean_bytes), (1, None, None), "not seen is not zero");
        assert_eq!(children.sums("c").busy_count, Some(0), "no children, none at work");
        let looked_at = (1..=64).map(|pid| (pid, child("a", Some(pid <= 48), None)));
        let others = (65..=128).map(|pid| (pid, child("a", None, None)));
        let many = Children { known: looked_at.chain(others).collect(), last: [0; 2] };
        assert_eq!(many.sums("a").busy_count, Some(96), "those that were looked at stand for all");
    }
}
