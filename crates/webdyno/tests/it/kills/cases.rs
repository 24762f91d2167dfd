//! Which kills are made, and whether those that were made were well spread.

use crate::debian::Layout;
use crate::extent::runs_all;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::time::Duration;

/// The share of the wanted kills that must have hit the very record they were meant for. The next record may follow
/// within a fraction of a millisecond, so on a busy machine some come late; they still count as kills, at what they hit.
const HIT_SHARE_MIN: f64 = 0.8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    Tool,
    Guardian,
    Both,
}

const EVERYBODY: [Whom; 3] = [Whom::Tool, Whom::Guardian, Whom::Both];

/// One kill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) layout: Layout,
    pub(super) whom: Whom,
    /// The records that are in the journal then.
    pub(super) records: usize,
    /// Not yet then, but when Apache is stopped after that.
    pub(super) in_outage: bool,
    /// The tool gets this signal as soon as the change is in force: the rest is putting back.
    pub(super) before: Option<Signal>,
}

/// What a kill came to.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) case: Case,
    /// The last record that was written before the death.
    pub(super) record: String,
    /// Whether Apache was stopped and not started again yet.
    pub(super) apache_was_down: bool,
    /// From the death of the tool to the end of its guardian.
    pub(super) reverted_in: Option<Duration>,
}

impl Hit {
    /// Whether the dead may have left a part of the boot hook. One that is not whole yet starts at no boot, and nothing is
    /// changed before it is. One that is half removed does not start either, and all the rest was put back or kept before.
    pub(super) fn halves_a_hook(&self, starts: bool) -> bool {
        let is_over = self.record.starts_with("undone ") || self.record == "kept";
        self.record == "intent boot_hook" || (is_over && !starts)
    }
}

/// The records of sessions that nobody kills: one that keeps its change, and one that is interrupted and puts it back.
pub(super) struct Script {
    pub(super) keeping: Vec<String>,
    pub(super) putting_back: Vec<String>,
}

impl Script {
    /// The kills that are made: all, or of those that everybody dies at, one victim at each record and each victim at
    /// every third one; where the change is written elsewhere, every other record.
    pub(super) fn cases(&self) -> VecDeque<Case> {
        let in_force = in_force(&self.keeping);
        let is_chosen = |case: &Case| {
            let is_of_all = case.layout == Layout::Restart || case.before.is_some();
            let is_in_turn = match is_of_all {
                true => (case.records + case.whom as usize).is_multiple_of(EVERYBODY.len()),
                false => case.records.abs_diff(in_force).is_multiple_of(2),
            };
            runs_all() || case.in_outage || is_in_turn
        };
        self.all_cases().into_iter().filter(is_chosen).collect()
    }

    /// Every kill.
    pub(super) fn all_cases(&self) -> VecDeque<Case> {
        let (in_force, all) = (in_force(&self.keeping), self.keeping.len());
        let mut cases = VecDeque::new();
        for whom in EVERYBODY {
            let upon = |layout| move |records| Case::of(layout, whom, records);
            // All ends of it, where new workers are there at once and the change is sure to be kept.
            cases.extend((1..=all).map(upon(Layout::Restart)));
            // In the middle of a stop and a start.
            cases.push_back(Case { in_outage: true, ..Case::of(Layout::Restart, whom, in_force - 1) });
            // Ctrl-C: tool and guardian put it back together.
            let back =
                |records| Case { before: Some(Signal::INT), ..Case::of(Layout::DropIn, whom, records) };
            cases.extend((in_force + 1..=self.putting_back.len()).map(back));
        }
        // The journal is the same wherever the change is written: there, one after the other dies.
        for (layout, before) in [(Layout::DropIn, 4), (Layout::InPlace, 3), (Layout::Event, 2)] {
            let last = in_force - before..=in_force;
            let turns = EVERYBODY.into_iter().cycle().skip(before);
            cases.extend(last.zip(turns).map(|(records, whom)| Case::of(layout, whom, records)));
        }
        // The guardian dies while it puts back what its dead tool left.
        let alone = |records| Case {
            before: Some(Signal::KILL),
            ..Case::of(Layout::InPlace, Whom::Guardian, records)
        };
        cases.extend((in_force + 1..=self.putting_back.len()).map(alone));
        cases
    }

    /// The record that a kill is meant for.
    fn name(&self, case: &Case) -> &str {
        match case.before {
            Some(_) => &self.putting_back[case.records - 1],
            None => &self.keeping[case.records - 1],
        }
    }

    /// Everybody at every record, as far as they are chosen.
    fn wanted(&self) -> Vec<Case> {
        let is_of_script = |case: &Case| case.layout == Layout::Restart || case.before == Some(Signal::INT);
        self.cases().into_iter().filter(is_of_script).collect()
    }

    /// The kills that are missing to have killed everybody at every record, and somebody in an outage.
    pub(super) fn missed(&self, hits: &[Hit]) -> VecDeque<Case> {
        let was_hit = |case: &Case| match case.in_outage {
            true => hits.iter().any(|hit| hit.apache_was_down),
            false => hits.iter().any(|hit| hit.case.whom == case.whom && hit.record == self.name(case)),
        };
        self.wanted().into_iter().filter(|case| !was_hit(case)).collect()
    }

    /// Whether the kills were well spread: most of those that were wanted, somebody at each record or the one beside it, and
    /// somebody while Apache was stopped.
    pub(super) fn check_spread(&self, hits: &[Hit]) -> Result<(), String> {
        let (wanted, missed) = (self.wanted(), self.missed(hits));
        if (missed.len() as f64) > (1.0 - HIT_SHARE_MIN) * wanted.len() as f64 {
            return Err(format!("{} of {} were missed: {missed:#?}", missed.len(), wanted.len()));
        }
        let died_at = |record: &String| hits.iter().any(|hit| hit.record == *record);
        for records in [&self.keeping[..], &self.putting_back[..]] {
            if let Some(beside) = records.windows(2).find(|beside| !beside.iter().any(died_at)) {
                return Err(format!("nobody died at {beside:?} of {records:?}"));
            }
        }
        let was_down = hits.iter().any(|hit| hit.apache_was_down);
        was_down.then_some(()).ok_or_else(|| "nobody died while Apache was stopped".into())
    }
}

/// How many records there are when the change is in force.
pub(super) fn in_force(records: &[String]) -> usize {
    records.iter().position(|record| record == IN_FORCE).map_or(usize::MAX, |at| at + 1)
}

pub(super) const IN_FORCE: &str = "completed activate";

impl Case {
    pub(super) fn of(layout: Layout, whom: Whom, records: usize) -> Self {
        Self { layout, whom, records, in_outage: false, before: None }
    }
}
