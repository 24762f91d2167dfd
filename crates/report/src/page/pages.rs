//! Pages and visitors: tables by name, what visitors did, and the waterfalls of two pages.

use super::blocks::{Align, Block, Blocks, Part, PartTone};
use crate::human::{bytes, count, rate_or_unknown, share, time, time_us};
use crate::phrases::{self, RemainingParts};
use crate::plain::shorten_middle;
use webdyno_model::page::{FetchedBy, NamedPageReport, PageTrace, PartTrace};
use webdyno_model::run::RunReport;

/// More parts than this are summed up.
const PARTS_MAX: usize = 60;
/// Letters of a name beside a waterfall.
const NAME_LETTERS: usize = 40;

/// The figures of a run of pages that matter most.
pub(super) fn page_figures(run: &RunReport) -> Option<Vec<(&'static str, String)>> {
    let pages = run.pages.as_ref()?;
    let ended = pages.completed + pages.failed;
    Some(vec![
        ("pages/s", rate_or_unknown(pages.rate)),
        ("failed pages", share(pages.failed, ended)),
        ("page time p50", time(pages.time_us.p50)),
        ("page time p99", time(pages.time_us.p99)),
        ("req/s", rate_or_unknown(run.rate)),
        ("failed requests", share(run.requests.failed, run.requests.completed + run.requests.failed)),
    ])
}

/// Everything about pages and visitors besides these.
pub(super) fn write_details(b: &mut Blocks, run: &RunReport) {
    pages_by_name(b, run);
    visitors(b, run);
}

fn pages_by_name(b: &mut Blocks, run: &RunReport) {
    let named = phrases::pages_by_count(run);
    if named.is_empty() {
        return;
    }
    use Align::{Code, Number};
    let columns = [
        ("page", Code),
        ("whole", Number),
        ("failed", Number),
        ("per second", Number),
        ("p50", Number),
        ("p90", Number),
        ("p99", Number),
        ("max", Number),
    ];
    let row = |(name, page): (&String, &NamedPageReport)| {
        let counts = [count(page.completed), count(page.failed), rate_or_unknown(page.rate)];
        let dist = &page.time_us;
        let times = [dist.p50, dist.p90, dist.p99, dist.max].map(time);
        [name.clone()].into_iter().chain(counts).chain(times).collect()
    };
    b.heading("By page");
    b.table("By page", &columns, named.into_iter().map(row).collect());
}

fn visitors(b: &mut Blocks, run: &RunReport) {
    let reported = phrases::sessions(run);
    if reported.is_empty() {
        return;
    }
    b.heading("What the visitors did");
    b.list(&reported);
    let missed = phrases::missed_captures(run);
    if !missed.is_empty() {
        b.list(&missed);
        b.quiet(&format!("Usually: {}. To do: {}.", phrases::CAPTURES_USUALLY, phrases::CAPTURES_ADVICE));
    }
}

/// How the two pages went of which the report has the parts.
pub(super) fn waterfalls(b: &mut Blocks, run: &RunReport) {
    for (index, (title, trace)) in run.pages.iter().flat_map(phrases::traces).enumerate() {
        let (parts, rest) = phrases::parts_shown(trace, PARTS_MAX);
        let parts = parts.into_iter().map(part).chain(rest.iter().map(remaining_parts)).collect();
        let title = format!("{title}: {}: {}", trace.name, phrases::trace_summary(trace));
        let write = |b: &mut Blocks| {
            b.add(Block::Waterfall { title: title.clone(), time_us: trace.time_us, parts });
            b.list(&failures(trace));
        };
        if index == 0 { write(b) } else { b.fold(&title, false, write) }
    }
}

fn part(of: &PartTrace) -> Part {
    let failed = of.failure.is_some();
    let size = match of.by {
        FetchedBy::Cache => "from the cache".into(),
        _ => bytes(of.bytes as f64),
    };
    let end = of.ended_us;
    let known = of.known_us.min(end);
    let sent = of.sent_us.unwrap_or(end).clamp(known, end);
    let first = of.first_byte_us.unwrap_or(end).clamp(sent, end);
    Part {
        name: shorten_middle(&of.name, NAME_LETTERS),
        text: format!("{}, {size}{}", time_us(end as f64), if failed { ", failed" } else { "" }),
        hint: hint(of),
        tone: if failed { PartTone::Failed } else { PartTone::Plain },
        at_us: [known, sent, first, end],
    }
}

/// What a pointer that rests on a part is told.
fn hint(part: &PartTrace) -> String {
    let how = match part.by {
        FetchedBy::NewConnection => "on a new connection",
        FetchedBy::KeptConnection => "on a kept connection",
        FetchedBy::Cache => "from the cache",
    };
    let status = part.status.map(|status| format!(", status {status}")).unwrap_or_default();
    let failure =
        part.failure.as_ref().map(|_| format!("; {}", phrases::part_failure(part))).unwrap_or_default();
    format!(
        "{} ({how}{status}): known at {}, sent at {}, first byte at {}, ended at {}{failure}",
        part.name,
        time_us(part.known_us as f64),
        time(part.sent_us),
        time(part.first_byte_us),
        time_us(part.ended_us as f64)
    )
}

fn remaining_parts(rest: &RemainingParts) -> Part {
    Part {
        name: format!("({} more)", count(rest.count as u64)),
        text: format!("{}, {}", time_us(rest.ended_us as f64), bytes(rest.bytes as f64)),
        hint: String::new(),
        tone: PartTone::Rest,
        at_us: [rest.known_us, rest.known_us, rest.known_us, rest.ended_us],
    }
}

fn failures(trace: &PageTrace) -> Vec<String> {
    let failed = trace.parts.iter().filter(|part| part.failure.is_some());
    failed.map(|part| format!("{}: {}", part.name, phrases::part_failure(part))).collect()
}
