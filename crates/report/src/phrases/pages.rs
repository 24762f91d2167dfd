//! Pages and visitors in words: what text and HTML share.

use crate::human::{bytes, count, number, percent, plural, quantity, rate_or_unknown, share, time_us};
use crate::wording;
use webdyno_model::page::{NamedPageReport, PageReport, PageTrace, PartTrace, VisitCounts};
use webdyno_model::run::{NamedReport, RunReport};

/// More servers than this are summed up.
const SERVERS_MAX: usize = 5;

/// What a page's time is.
pub(crate) const PAGE_TIME_MEANS: &str = "Page time: from when a page was due to the last byte of its last resource; \
     complete pages only.";

/// What usually causes captures to match nothing.
pub(crate) const CAPTURES_USUALLY: &str =
    "an answer that is an error page or asks for a login first, or a page that was written anew since";
/// What to do about it.
pub(crate) const CAPTURES_ADVICE: &str =
    "look at the answer of the step with `curl -i URL`, then correct the capture in the workload file";

/// The result of a run of pages in one line; `None` for other runs, and where no page ended.
pub(crate) fn page_headline(run: &RunReport) -> Option<String> {
    let pages = run.pages.as_ref()?;
    let ended = pages.completed + pages.failed;
    let of = plural(ended, "page");
    let reported = match (pages.completed, pages.failed) {
        (0, 0) => return None,
        (0, _) => format!("no complete page: all {of} failed"),
        (_, 0) => format!("{}, no failures", rate_of_pages(pages.rate)),
        (_, failed) => {
            format!(
                "{}, {} of {of} failed ({})",
                rate_of_pages(pages.rate),
                count(failed),
                share(failed, ended)
            )
        }
    };
    Some(reported)
}

/// That no session came to its end, in one line; `None` where one did, or there was none.
pub(crate) fn session_headline(run: &RunReport) -> Option<String> {
    let visits = run.visits.as_ref()?;
    (visits.sessions_completed == 0 && visits.sessions_broken > 0)
        .then(|| format!("no complete session: all {} aborted", plural(visits.sessions_broken, "session")))
}

fn rate_of_pages(rate: Option<f64>) -> String {
    rate.map_or_else(|| "page rate unknown".into(), |rate| format!("{} pages/s", number(rate)))
}

/// What came about in a second, and in all: `pages`, `812/s`, `8,120 whole`, `3 failed`.
pub(crate) fn rates(run: &RunReport) -> Vec<Vec<String>> {
    let row = |cells: [String; 4]| cells.to_vec();
    let failed = |failed: u64| format!("{} failed", count(failed));
    let mut rows = vec![];
    if let Some(pages) = &run.pages {
        let whole = format!("{} complete", count(pages.completed));
        rows.push(row(["pages".into(), rate_or_unknown(pages.rate), whole, failed(pages.failed)]));
    }
    if let Some(visits) = run.visits.as_ref().filter(|visits| visits.sessions_broken > 0) {
        let rate = (run.elapsed_s > 0.0).then(|| visits.sessions_completed as f64 / run.elapsed_s);
        let whole = format!("{} complete", count(visits.sessions_completed));
        let broken = format!("{} aborted", count(visits.sessions_broken));
        rows.push(row(["sessions".into(), rate_or_unknown(rate), whole, broken]));
    }
    let (requests, good) = (&run.requests, rate_or_unknown(run.rate));
    let answers = format!("{} successful", count(requests.completed));
    rows.push(row(["requests".into(), good, answers, failed(requests.failed)]));
    let amount = |name: &str, amount: u64| {
        let per_second = quantity(amount as f64 / run.elapsed_s, "bytes/s");
        row([name.into(), per_second, bytes(amount as f64), String::new()])
    };
    rows.push(amount("received", run.bytes.received));
    rows.push(amount("sent", run.bytes.sent));
    rows
}

/// What visitors did, a sentence each; none for a load without visitors.
pub(crate) fn sessions(run: &RunReport) -> Vec<String> {
    let Some(visits) = &run.visits else { return vec![] };
    let broken = match visits.sessions_broken {
        0 => String::new(),
        broken => format!(", {} aborted", count(broken)),
    };
    let mut lines = vec![format!(
        "{} started, {} completed{broken}; {} active at the end",
        plural(visits.sessions_started, "session"),
        count(visits.sessions_completed),
        plural(visits.visitors, "visitor")
    )];
    lines.extend(cache(run, visits));
    let elsewhere = visits.links_not_loaded.values().fold(0, |sum: u64, steps| sum.saturating_add(*steps));
    let without_value = visits.steps_skipped.saturating_sub(elsewhere);
    lines.extend((without_value > 0).then(|| {
        let steps = plural(without_value, "step");
        format!("{steps} skipped: a value they need was not found in an earlier response")
    }));
    lines.extend((elsewhere > 0).then(|| foreign_links_text(visits, elsewhere)));
    lines
}

/// That links led away from the servers that are loaded, and where to.
fn foreign_links_text(visits: &VisitCounts, steps: u64) -> String {
    let mut servers: Vec<(&String, u64)> =
        visits.links_not_loaded.iter().map(|(server, steps)| (server, *steps)).collect();
    servers.sort_by_key(|(_, steps)| std::cmp::Reverse(*steps));
    let more = match servers.len().saturating_sub(SERVERS_MAX) {
        0 => String::new(),
        more => format!(", and {} more", count(more as u64)),
    };
    let named: Vec<String> = servers
        .iter()
        .take(SERVERS_MAX)
        .map(|(server, steps)| format!("{server} x {}", count(*steps)))
        .collect();
    format!(
        "{} skipped: the link found leads to a server that is not part of the workload: {}{more}",
        plural(steps, "step"),
        named.join(", ")
    )
}

fn cache(run: &RunReport, visits: &VisitCounts) -> Option<String> {
    let requested = run.requests.completed + run.requests.failed;
    let (hits, confirmed) = (visits.cache_hits, visits.cache_confirmed);
    (hits + confirmed > 0).then(|| {
        format!(
            "browser cache: {} ({} of all) served without a request; {} revalidated by the server (304)",
            plural(hits, "answer"),
            share(hits, hits + requested),
            count(confirmed)
        )
    })
}

/// Captures that matched nothing, the most frequent first: the step, the value, and how often.
pub(crate) fn missed_captures(run: &RunReport) -> Vec<String> {
    let Some(visits) = &run.visits else { return vec![] };
    let mut missed: Vec<(&String, u64)> =
        visits.captures_missed.iter().map(|(name, count)| (name, *count)).collect();
    missed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let reported = missed.into_iter().map(|(place, times)| {
        let (step, value) = place.rsplit_once(": ").unwrap_or(("", place));
        let answers = run.requests_by_name.get(step).map(|named| named.completed);
        let of = match answers {
            Some(answers) if times >= answers => format!("never found in {}", plural(times, "answer")),
            Some(answers) => format!("not found in {} of {}", count(times), plural(answers, "answer")),
            None => format!("not found in {}", plural(times, "answer")),
        };
        format!("`{value}` of the step {step}: {of}")
    });
    reported.collect()
}

/// Names with their figures, those of which there were most first.
pub(crate) fn pages_by_count(run: &RunReport) -> Vec<(&String, &NamedPageReport)> {
    let mut named: Vec<_> = run.pages.iter().flat_map(|pages| &pages.by_name).collect();
    named.sort_by_key(|(_, page)| std::cmp::Reverse(page.completed + page.failed));
    named
}

/// Names with their figures, those of which there were most first.
pub(crate) fn requests_by_count(run: &RunReport) -> Vec<(&String, &NamedReport)> {
    let mut named: Vec<_> = run.requests_by_name.iter().collect();
    named.sort_by_key(|(_, request)| std::cmp::Reverse(request.completed + request.failed));
    named
}

/// `412 ms, 21 parts, 180 kB`.
pub(crate) fn trace_summary(trace: &PageTrace) -> String {
    let amount: u64 = trace.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add);
    let failed = if trace.failed { ", failed" } else { "" };
    let parts = plural(trace.parts.len() as u64, "part");
    format!("{}, {parts}, {}{failed}", time_us(trace.time_us as f64), bytes(amount as f64))
}

/// The pages of which the report has the parts, under their titles.
pub(crate) fn traces(pages: &PageReport) -> Vec<(&'static str, &PageTrace)> {
    let median = pages.median_page.iter().map(|trace| ("The page nearest to the median", trace));
    let slowest = pages.slowest_page.iter().filter(|slowest| pages.median_page.as_ref() != Some(*slowest));
    median.chain(slowest.map(|trace| ("The slowest page", trace))).collect()
}

/// Why a part failed: `no complete answer within the timeout (timeout)`, `status 503 (status)`.
pub(crate) fn part_failure(part: &PartTrace) -> String {
    let class = part.failure.as_deref().unwrap_or_default();
    match (class, part.status) {
        ("status", Some(status)) => format!("status {status}"),
        _ => wording::error(class).map_or(class.to_owned(), |words| format!("{} ({class})", words.what)),
    }
}

/// The parts of a page that are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemainingParts {
    /// How many.
    pub(crate) count: usize,
    /// When the first of them was known.
    pub(crate) known_us: u64,
    /// When the last of them ended.
    pub(crate) ended_us: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// At most so many parts, in their order: the document, the one that ended last and those that failed before all
/// others. The rest is summed up.
pub(crate) fn parts_shown(trace: &PageTrace, most: usize) -> (Vec<&PartTrace>, Option<RemainingParts>) {
    if trace.parts.len() <= most {
        return (trace.parts.iter().collect(), None);
    }
    let last = (0..trace.parts.len()).max_by_key(|&index| trace.parts[index].ended_us);
    let mut order: Vec<usize> = (0..trace.parts.len()).collect();
    order.sort_by_key(|&index| match index {
        0 => 0,
        _ if Some(index) == last => 1,
        _ if trace.parts[index].failure.is_some() => 2,
        _ => 3,
    });
    let (displayed, rest) = order.split_at(most.saturating_sub(1));
    let mut displayed = displayed.to_vec();
    displayed.sort_unstable();
    let rest: Vec<&PartTrace> = rest.iter().map(|&index| &trace.parts[index]).collect();
    let summed = RemainingParts {
        count: rest.len(),
        known_us: rest.iter().map(|part| part.known_us).min().unwrap_or(0),
        ended_us: rest.iter().map(|part| part.ended_us).max().unwrap_or(0),
        bytes: rest.iter().map(|part| part.bytes).fold(0, u64::saturating_add),
    };
    (displayed.into_iter().map(|index| &trace.parts[index]).collect(), Some(summed))
}

/// How the time of visitors adds up: the law of interactive response times; `None` where one of its figures is unknown.
pub(crate) fn users(run: &RunReport) -> Option<String> {
    let users = run.client.users?;
    Some(format!(
        "users: {} counted, {} by the rate of steps times what one takes, {} of response and {} of think time \
         (interactive response time law; {} apart)",
        number(users.mean),
        number(users.by_law),
        time_us(users.response_us),
        time_us(users.think_us),
        percent((users.by_law / users.mean - 1.0).abs())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_that_tell_most_are_shown() {
        let part = |index: u64| PartTrace {
            known_us: index,
            ended_us: 100 - index,
            bytes: 10,
            ..PartTrace::default()
        };
        let mut parts: Vec<PartTrace> = (0..40).map(part).collect();
        parts[33].failure = Some("timeout".into());
        parts[35].ended_us = 999;
        let trace = PageTrace { parts, ..PageTrace::default() };
        let (displayed, rest) = parts_shown(&trace, 5);
        assert_eq!(displayed.iter().map(|part| part.known_us).collect::<Vec<_>>(), [0, 1, 33, 35]);
        assert_eq!(rest, Some(RemainingParts { count: 36, known_us: 2, ended_us: 98, bytes: 360 }));
        assert_eq!(parts_shown(&trace, 40), (trace.parts.iter().collect(), None));
    }
}
