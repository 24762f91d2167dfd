//! Percentiles in tables, with a mark at those that rest on too few answers, and what these would take.

use crate::human::{count, time, time_s};
use std::collections::BTreeMap;
use webdyno_model::distribution::{Dist, PercentileNeed};
use webdyno_model::run::RunReport;

const BEYOND_MIN: u64 = PercentileNeed::BEYOND_MIN;
const SECONDS_MIN: usize = PercentileNeed::SECONDS_MIN;

/// Set behind a figure that chance made.
pub(super) const MARK: &str = "?";
/// The times that are taken of the same answers.
const OF_ALL_ANSWERS: [&str; 2] = ["response time", "service time"];
/// The time that is taken of pages.
const OF_PAGES: &str = "page time";

/// The 50th, 90th, 99th and 99.9th percentile of a distribution, marked where it says little.
pub(crate) fn percentiles(run: &RunReport, name: &str, dist: &Dist) -> [String; 4] {
    let displayed =
        [("p50", 2, dist.p50), ("p90", 10, dist.p90), ("p99", 100, dist.p99), ("p999", 1000, dist.p999)];
    displayed.map(|(percentile, one_in, value)| {
        let few = dist.count < BEYOND_MIN * one_in;
        let unsupported = match (&run.pages, name) {
            (Some(pages), OF_PAGES) => &pages.unsupported_percentiles[..],
            _ if OF_ALL_ANSWERS.contains(&name) => &run.unsupported_percentiles,
            _ => &[],
        };
        let marked = value.is_some() && (few || unsupported.iter().any(|named| named == percentile));
        time(value) + if marked { MARK } else { "" }
    })
}

/// What the mark in a table means, and what the percentiles of the response time would take that the run is too short
/// for; `None` when nothing is marked.
pub(crate) fn too_short_note(run: &RunReport, rows: &[Vec<String>]) -> Option<String> {
    let marked = rows.iter().flatten().any(|cell| cell.ends_with(MARK));
    let displayed = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9")];
    let reported = |what: &str, needs: &BTreeMap<String, PercentileNeed>, have: u64| -> String {
        let needs = displayed.iter().filter_map(|(key, name)| Some((name, needs.get(*key)?)));
        let one = |(name, need): (&&str, &PercentileNeed)| {
            let time = time_s(need.elapsed_s);
            match have < need.count {
                true => format!(" {name} takes {} {what}, at this rate {time}.", count(need.count)),
                // There were enough of them, but close together.
                false => format!(
                    " {name} takes slower {what} in {} seconds of the run, as things went {time}.",
                    need.seconds
                ),
            }
        };
        needs.map(one).collect()
    };
    let of_pages =
        run.pages.as_ref().map(|pages| reported("pages", &pages.percentiles_need, pages.time_us.count));
    let reported = reported("answers", &run.percentiles_need, run.response_time_us.count)
        + &of_pages.unwrap_or_default();
    let times =
        if run.pages.is_some() { "page, response and service time" } else { "response and service time" };
    marked.then(|| {
        format!(
            "{MARK}: fewer than {BEYOND_MIN} samples lie beyond this figure, or, of {times}, all in fewer \
             than {SECONDS_MIN} seconds of the run.{reported}"
        )
    })
}
