//! Sets of processors, and which of them a thread may use.
//!
//! Facts: cpuset(7) for lists as the kernel writes them, sched_setaffinity(2) (of one thread; its children inherit it, and a
//! control group may grant less). Since Linux 6.2 a mask that was asked for outlives what the control group is given later: to
//! ask for all processors is to ask for nothing.

use crate::os::procfs;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// The highest number of a processor that is believed.
const CPU_MAX: u32 = 65_535;

/// Processors by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processors(pub BTreeSet<u32>);

impl Processors {
    /// `0-3,8` as the kernel writes them; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            cpus.extend(first..=last.min(CPU_MAX));
        }
        Some(Self(cpus))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// So many of them, the lowest numbers first, and those of `others` when they are not enough.
    pub fn first(&self, count: usize, others: &Self) -> Self {
        let further = others.0.difference(&self.0);
        Self(self.0.iter().chain(further).take(count).copied().collect())
    }

    /// Those that a thread may use and that are online. An error when it ended.
    pub fn of_thread(thread: u32) -> io::Result<Self> {
        let mask = sched_getaffinity(Some(pid(thread)?))?;
        let numbers = (0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu));
        Ok(Self(numbers.filter_map(|cpu| u32::try_from(cpu).ok()).collect()))
    }

    /// Lets a thread use these and no others, or all that there ever are where these are `all`.
    pub fn give_to(&self, thread: u32, all: &Self) -> io::Result<()> {
        let mut mask = CpuSet::new();
        let is_given =
            |cpu: &usize| self == all || u32::try_from(*cpu).is_ok_and(|cpu| self.0.contains(&cpu));
        (0..CpuSet::MAX_CPU).filter(is_given).for_each(|cpu| mask.set(cpu));
        Ok(sched_setaffinity(Some(pid(thread)?), &mask)?)
    }

    /// All that are online; `None` where that cannot be read.
    pub fn online() -> Option<Self> {
        Self::parse(&procfs::read_text("/sys/devices/system/cpu/online").ok()?)
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = vec![];
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let text = |(first, last): &(u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

fn pid(thread: u32) -> io::Result<Pid> {
    let found = i32::try_from(thread).ok().and_then(Pid::from_raw);
    found.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_of_processors_parse() {
        for (text, expected) in
            [("0-3,8\n", Some(5)), ("\t0\n", Some(1)), ("", Some(0)), ("x", None), ("3-1", Some(0))]
        {
            assert_eq!(Processors::parse(text).map(|cpus| cpus.count()), expected, "{text}");
        }
    }

    #[test]
    fn the_first_are_taken_from_what_is_in_force_before_others() {
        let of = |text| Processors::parse(text).unwrap();
        for (now, all, count, expected) in [
            ("0-3", "0-3", 2, "0-1"),
            ("2-3", "0-3", 1, "2"),
            ("2-3", "0-3", 3, "0,2-3"),
            ("1", "0-3,8", 5, "0-3,8"),
        ] {
            assert_eq!(of(now).first(count, &of(all)).to_string(), expected, "{count} of {now}");
        }
    }

    proptest! {
        // Any text is survived, and never makes a set that is too large.
        #[test]
        fn any_text_is_survived(text in "[0-9,-]{0,30}|.{0,20}") {
            prop_assert!(Processors::parse(&text).is_none_or(|cpus| cpus.count() <= CPU_MAX as usize + 1));
        }

        // What is written is read as the same set.
        #[test]
        fn a_set_survives_its_text(cpus in proptest::collection::btree_set(0u32..600, 0..40)) {
            let set = Processors(cpus);
            prop_assert_eq!(Processors::parse(&set.to_string()), Some(set));
        }
    }
}
