//! Whether the readings of a load show harm: pure, so that every limit can be tested.
//!
//! The limits, and why:
//! - *Out of memory*: one kill is one too many. The group's own counter comes first.
//! - *Memory pressure*: nothing could run for 100 ms of the last second. A server that is well shows 0; at 2% the
//!   diagnosis calls memory short; systemd-oomd kills at 60% over 30 s (oomd.conf(5)), which is far too late for a
//!   load that is there to measure.
//! - *Swapping*: pages that come in from swap alone are those of an idle time, fetched back once, and a few cold ones that
//!   go out are harmless. Harm is both at once in three readings in a row (128 pages a second each, together 1 MiB: what
//!   goes out is needed again), or so many going out (4096 a second, 16 MiB) that memory is being emptied in bulk.
//! - *Errors of others*: three in a second, and three more than twice the worst second before the load.
//! - *Unreachable*: two attempts in a row were refused, or nothing answered for the time that [`super::probe`] is given.
//!
//! What was there before the load is not its doing: rates count above twice their mean before.

use super::reading::{Counters, Reading};
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};
use webdyno_model::number::Number;

/// The time that a rate is taken over.
pub const WINDOW_US: u64 = 1_000_000;
/// Readings are late by this much at times: the window still holds them.
const SLACK_US: u64 = 100_000;
/// Of the last second nothing could run for this long.
const FULL_US_MAX: f64 = 100_000.0;
/// So many readings in a row must show pages going out.
const SWAP_STEPS_COUNT: usize = 3;
/// Pages a second in, and as many out.
const SWAPPED_BOTH_PAGES_MAX: f64 = 128.0;
/// Pages a second out, whatever comes in.
const SWAPPED_OUT_PAGES_MAX: f64 = 4096.0;
/// Errors that others got within a second.
const OTHERS_FAILED_MIN: u64 = 3;
/// Refusals in a row.
const REFUSED_COUNT_MAX: u32 = 2;
/// How many times what was there before may be.
const BASE_FACTOR: f64 = 2.0;

/// Readings before the load, and since it began; both in order of time.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// The seconds before, or before an earlier load. Without them everything counts as the load's doing.
    pub base: &'a [Reading],
    /// Whether the load begins where the base ends.
    pub follows: bool,
    /// Since it began.
    pub load: &'a [Reading],
}

/// Why the load must end; `None` as long as it does no harm.
pub fn decide(history: History<'_>) -> Option<HarmGuardTrip> {
    first_harm(history, memory_pressure)
}

/// The same where the service's own limit of memory is what is varied: that it waits for memory is then what is to be seen, and no harm
/// unless the machine is short of it, too.
pub fn decide_with_varied_memory(history: History<'_>) -> Option<HarmGuardTrip> {
    let of_machine = |steps: &Steps<'_>| {
        let scanned = rise(steps.second_ago(), steps.now(), |reading| reading.machine.scanned_pages);
        memory_pressure(steps).filter(|_| scanned != Some(0))
    };
    first_harm(history, of_machine)
}

fn first_harm(
    history: History<'_>,
    memory_pressure: impl Fn(&Steps<'_>) -> Option<HarmGuardTrip>,
) -> Option<HarmGuardTrip> {
    let steps = Steps::of(history)?;
    out_of_memory(&steps)
        .or_else(|| memory_pressure(&steps))
        .or_else(|| swapping(&steps))
        .or_else(|| others_fail(&steps))
        .or_else(|| unreachable(&steps))
}

/// The counters of a group or of the machine.
type Pick = fn(&Reading) -> &Counters;

const GROUP: Pick = |reading| &reading.group;
const MACHINE: Pick = |reading| &reading.machine;

/// The readings of a load with the one before them, from which they count.
struct Steps<'a> {
    base: &'a [Reading],
    /// At least two.
    load: Vec<&'a Reading>,
}

impl<'a> Steps<'a> {
    /// `None` when there is nothing to compare yet.
    fn of(History { base, follows, load }: History<'a>) -> Option<Self> {
        // What lies between an earlier time and this load is not its doing.
        let just_before = base.last().filter(|_| follows);
        let load: Vec<&Reading> = just_before.into_iter().chain(load).collect();
        (load.len() >= 2).then_some(Self { base, load })
    }

    fn now(&self) -> &Reading {
        self.load[self.load.len() - 1]
    }

    /// The oldest reading of the last second.
    fn second_ago(&self) -> &Reading {
        let from_us = self.now().at_us.saturating_sub(WINDOW_US + SLACK_US);
        self.load.iter().find(|reading| reading.at_us >= from_us).unwrap_or(&self.load[0])
    }

    fn length_s(&self) -> f64 {
        self.now().at_us.saturating_sub(self.load[0].at_us) as f64 / 1e6
    }

    /// By how much a counter rose since the load began. One that is not known at both ends did not rise.
    fn rise(&self, counter: impl Fn(&Reading) -> Option<u64>) -> u64 {
        rise(self.load[0], self.now(), counter).unwrap_or(0)
    }

    /// A counter's rise per second before the load; 0 when there is too little to tell.
    fn base_per_s(&self, counter: impl Fn(&Reading) -> Option<u64>) -> f64 {
        let (Some(first), Some(last)) = (self.base.first(), self.base.last()) else { return 0.0 };
        per_second(first, last, counter).unwrap_or(0.0)
    }
}

fn rise(from: &Reading, to: &Reading, counter: impl Fn(&Reading) -> Option<u64>) -> Option<u64> {
    counter(to)?.checked_sub(counter(from)?)
}

fn per_second(from: &Reading, to: &Reading, counter: impl Fn(&Reading) -> Option<u64>) -> Option<f64> {
    let time_us = to.at_us.checked_sub(from.at_us).filter(|time| *time > 0)?;
    Some(rise(from, to, counter)? as f64 * 1e6 / time_us as f64)
}

fn out_of_memory(steps: &Steps<'_>) -> Option<HarmGuardTrip> {
    let killed = |pick: Pick, metric: &str, whose: &str| {
        let counter = |reading: &Reading| pick(reading).oom_kills_count;
        let count = steps.rise(counter);
        let limit = 1.0 + BASE_FACTOR * steps.base_per_s(counter) * steps.length_s().max(1.0);
        (count as f64 >= limit).then(|| {
            let processes = if count == 1 { "process" } else { "processes" };
            let text = format!("the kernel killed {count} {processes}{whose} for want of memory");
            harm(HarmCause::OutOfMemory, metric, (count as f64, limit), text)
        })
    };
    killed(GROUP, "memory.group_oom_kills_count", " of the service's control group")
        .or_else(|| killed(MACHINE, "memory.oom_kills_count", ""))
}

fn memory_pressure(steps: &Steps<'_>) -> Option<HarmGuardTrip> {
    let stalled = |pick: Pick, metric: &str, whose: &str| {
        let counter = |reading: &Reading| pick(reading).memory_full_us;
        let limit = FULL_US_MAX + BASE_FACTOR * steps.base_per_s(counter);
        let full_us = rise(steps.second_ago(), steps.now(), counter)? as f64;
        (full_us >= limit).then(|| {
            let text = format!(
                "{whose} could run for {:.0} ms of the last second for want of memory",
                full_us / 1000.0
            );
            harm(HarmCause::MemoryPressure, metric, (full_us, limit), text)
        })
    };
    stalled(GROUP, "pressure.group_memory_full_us", "nothing of the service's control group")
        .or_else(|| stalled(MACHINE, "pressure.memory_full_us", "nothing"))
}

fn swapping(steps: &Steps<'_>) -> Option<HarmGuardTrip> {
    let (swapped_in, swapped_out) =
        (|r: &Reading| r.machine.swapped_in_pages, |r: &Reading| r.machine.swapped_out_pages);
    let first = steps.load.len().checked_sub(SWAP_STEPS_COUNT + 1)?;
    let last = &steps.load[first..];
    let in_each = |counter: fn(&Reading) -> Option<u64>| {
        last.windows(2).all(|pair| rise(pair[0], pair[1], counter).is_some_and(|pages| pages > 0))
    };
    if !in_each(swapped_out) {
        return None;
    }
    let rate = |counter: fn(&Reading) -> Option<u64>| per_second(last[0], steps.now(), counter);
    let (pages_in, pages_out) = (rate(swapped_in).unwrap_or(0.0), rate(swapped_out)?);
    let before = |counter: fn(&Reading) -> Option<u64>| BASE_FACTOR * steps.base_per_s(counter);
    let needed_again = in_each(swapped_in) && pages_in >= SWAPPED_BOTH_PAGES_MAX + before(swapped_in);
    let most = if needed_again { SWAPPED_BOTH_PAGES_MAX } else { SWAPPED_OUT_PAGES_MAX };
    let limit = most + before(swapped_out);
    (pages_out >= limit).then(|| {
        let text =
            format!("memory is being swapped: {pages_out:.0} pages/s out to swap, {pages_in:.0} pages/s in");
        harm(HarmCause::Swapping, "memory.swapped_out_pages", (pages_out, limit), text)
    })
}

fn others_fail(steps: &Steps<'_>) -> Option<HarmGuardTrip> {
    let counter = |reading: &Reading| reading.others_failed_count;
    let failed = rise(steps.second_ago(), steps.now(), counter)?;
    let limit = OTHERS_FAILED_MIN + BASE_FACTOR as u64 * worst_second(steps.base, counter);
    (failed >= limit).then(|| {
        let text = format!("other clients got {failed} responses of status 500 to 599 within a second");
        harm(HarmCause::OthersFail, "brake.others_failed_count", (failed as f64, limit as f64), text)
    })
}

/// The most by which a counter rose within a second.
fn worst_second(readings: &[Reading], counter: impl Fn(&Reading) -> Option<u64>) -> u64 {
    let window = |(at, last): (usize, &Reading)| {
        let from_us = last.at_us.saturating_sub(WINDOW_US + SLACK_US);
        let first = readings[..=at].iter().find(|reading| reading.at_us >= from_us)?;
        rise(first, last, &counter)
    };
    readings.iter().enumerate().filter_map(window).max().unwrap_or(0)
}

fn unreachable(steps: &Steps<'_>) -> Option<HarmGuardTrip> {
    let site = steps.now().site?;
    if site.refused_count >= REFUSED_COUNT_MAX {
        let values = (f64::from(site.refused_count), f64::from(REFUSED_COUNT_MAX));
        let text = format!("the site refused {} connections in a row", site.refused_count);
        return Some(harm(HarmCause::Unreachable, "brake.site_refused_count", values, text));
    }
    (site.silent_us >= site.silent_max_us).then(|| {
        let values = (site.silent_us as f64, site.silent_max_us as f64);
        let text = format!("the site has answered nothing for {:.0} s", site.silent_us as f64 / 1e6);
        harm(HarmCause::Unreachable, HarmGuardTrip::SITE_SILENT, values, text)
    })
}

fn harm(cause: HarmCause, metric: &str, (value, limit): (f64, f64), text: String) -> HarmGuardTrip {
    HarmGuardTrip { cause, metric: metric.into(), value: Number(value), limit: Number(limit), text }
}

#[cfg(test)]
mod tests;
