//! Pages and visitors: tables by name, what visitors did, and the waterfalls of two pages.

use super::markup::Markup;
use super::parts::{ColumnAlign, list, table};
use super::plot::{Axis, PlotText, key};
use super::rows::{RowChart, bar, label};
use crate::human::{bytes, count, rate_or_unknown, share, time, time_us};
use crate::phrases::{self, RemainingParts};
use crate::plain::shorten_middle;
use webdyno_model::page::{FetchedBy, PageTrace, PartTrace};
use webdyno_model::run::RunReport;

/// More parts than this are summed up.
const PARTS_MAX: usize = 60;
/// Letters of a name beside a waterfall.
const NAME_LETTERS: usize = 30;

/// The cards of a run of pages.
pub(super) fn page_cards(run: &RunReport) -> Option<Vec<(&'static str, String)>> {
    let pages = run.pages.as_ref()?;
    let ended = pages.completed + pages.failed;
    Some(vec![
        ("whole pages", rate_or_unknown(pages.rate)),
        ("failed pages", share(pages.failed, ended)),
        ("half of the pages within", time(pages.time_us.p50)),
        ("99% of the pages within", time(pages.time_us.p99)),
        ("req/s", rate_or_unknown(run.rate)),
        ("failed requests", share(run.requests.failed, run.requests.completed + run.requests.failed)),
    ])
}

/// Everything about pages and visitors besides the cards.
pub(super) fn write_details(m: &mut Markup, run: &RunReport) {
    write_pages_by_name(m, run);
    visitors(m, run);
}

fn write_pages_by_name(m: &mut Markup, run: &RunReport) {
    let named = phrases::pages_by_count(run);
    if named.is_empty() {
        return;
    }
    use ColumnAlign::{Code, Number};
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
    let row = |(name, page): &(&String, &webdyno_model::page::NamedPageReport)| {
        let counts = [count(page.completed), count(page.failed), rate_or_unknown(page.rate)];
        let dist = &page.time_us;
        let times = [dist.p50, dist.p90, dist.p99, dist.max].map(time);
        [(*name).clone()].into_iter().chain(counts).chain(times).collect()
    };
    m.text_element("h3", "By page");
    table(m, &columns, &named.iter().map(row).collect::<Vec<_>>());
}

fn visitors(m: &mut Markup, run: &RunReport) {
    let reported = phrases::sessions(run);
    if reported.is_empty() {
        return;
    }
    m.text_element("h3", "What the visitors did");
    list(m, &reported);
    let missed = phrases::missed_captures(run);
    if !missed.is_empty() {
        list(m, &missed);
        let usually = format!("Usually: {}. To do: {}.", phrases::CAPTURES_USUALLY, phrases::CAPTURES_ADVICE);
        m.text_element_with("p", &[("class", "quiet")], &usually);
    }
}

/// How the two pages went of which the report has the parts.
pub(super) fn write_waterfalls(m: &mut Markup, run: &RunReport) {
    let Some(pages) = &run.pages else { return };
    let displayed = phrases::traces(pages);
    if displayed.is_empty() {
        return;
    }
    m.text_element("h2", "How a page goes");
    key(
        m,
        &[
            ("warm", "known, and not sent yet: it waits for a connection".into()),
            ("second", "sent, no byte of the answer yet".into()),
            ("third", "receiving".into()),
            ("failed", "failed".into()),
        ],
    );
    for (index, (title, trace)) in displayed.into_iter().enumerate() {
        write_waterfall(m, index, title, trace);
    }
}

fn write_waterfall(m: &mut Markup, index: usize, title: &str, trace: &PageTrace) {
    let ends = trace.parts.iter().map(|part| part.ended_us);
    let last_us = ends.chain([trace.time_us]).max().unwrap_or(0);
    let axis = Axis::zero_based(last_us as f64, time_us);
    let (parts, rest) = phrases::parts_shown(trace, PARTS_MAX);
    let rows = parts.len() + usize::from(rest.is_some());
    let (title, summary) = (format!("{title}: {}", trace.name), phrases::trace_summary(trace));
    let words = PlotText { id: &format!("waterfall-{index}"), title: &title, desc: &summary };
    m.element("figure", &[], |m| {
        m.text_element("figcaption", &format!("{title}: {summary}. Times are since the page was due."));
        m.element("div", &[("class", "scroll")], |m| {
            RowChart { axis: &axis, count: rows }.draw(m, &words, |m| {
                parts.iter().enumerate().for_each(|(row, part)| write_part(m, &axis, row, part));
                rest.iter().for_each(|rest| write_remaining_parts(m, &axis, parts.len(), rest));
            });
        });
        failures(m, trace);
    });
}

fn write_part(m: &mut Markup, axis: &Axis, row: usize, part: &PartTrace) {
    let failed = part.failure.is_some();
    let size = match part.by {
        FetchedBy::Cache => "from the cache".into(),
        _ => bytes(part.bytes as f64),
    };
    let reported =
        format!("{}, {size}{}", time_us(part.ended_us as f64), if failed { ", failed" } else { "" });
    let hint = hint(part);
    m.element("g", &[], |m| {
        m.text_element("title", &hint);
        label(m, row, &shorten_middle(&part.name, NAME_LETTERS), &reported);
        let end = part.ended_us;
        let sent = part.sent_us.unwrap_or(end).clamp(part.known_us.min(end), end);
        let first = part.first_byte_us.unwrap_or(end).clamp(sent, end);
        let class = |usual: &'static str| if failed { "key-failed" } else { usual };
        for (class, from, to) in [
            ("key-warm", part.known_us, sent),
            (class("key-second"), sent, first),
            (class("key-third"), first, end),
        ] {
            if to > from {
                bar(m, class, axis, row, (from as f64, to as f64));
            }
        }
        if end <= part.known_us {
            bar(m, class("key-third"), axis, row, (end as f64, end as f64));
        }
    });
}

/// What a pointer that rests on a part is told.
fn hint(part: &PartTrace) -> String {
    let at = |us: Option<u64>| time(us);
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
        at(part.sent_us),
        at(part.first_byte_us),
        time_us(part.ended_us as f64)
    )
}

fn write_remaining_parts(m: &mut Markup, axis: &Axis, row: usize, rest: &RemainingParts) {
    let reported = format!("{}, {}", time_us(rest.ended_us as f64), bytes(rest.bytes as f64));
    label(m, row, &format!("({} more)", count(rest.count as u64)), &reported);
    bar(m, "key-rest", axis, row, (rest.known_us as f64, rest.ended_us as f64));
}

fn failures(m: &mut Markup, trace: &PageTrace) {
    let failed = trace.parts.iter().filter(|part| part.failure.is_some());
    let reported: Vec<_> =
        failed.map(|part| format!("{}: {}", part.name, phrases::part_failure(part))).collect();
    if !reported.is_empty() {
        list(m, &reported);
    }
}
