//! What access logs say, on one screen: rates and the working set first, then where the load is, then what cannot be told.

use super::page::{ColumnAlign, TextPage, Tone};
use crate::human::{bytes, count, number, percent, plural, rate, share, time_s, time_us};
use webdyno_model::distribution::Dist;
use webdyno_model::logs::{Cardinality, LogPart, LogPeak, LogRates, LogShare, LogUrl, LogsReport};

/// URLs of a list on the screen.
const URLS: usize = 4;
/// Lines of errors.
const ERRORS: usize = 2;
/// Notes that are shown; JSON has all.
const NOTES: usize = 3;
/// A longer URL is cut in its middle.
const URL_MAX: usize = 44;

/// As [`LogRates::by_weekday`] has them.
pub(crate) const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The report as text, with a final newline.
pub fn logs(report: &LogsReport) -> String {
    let mut page = TextPage::default();
    let tone = if report.requests > 0 { Tone::Good } else { Tone::Warning };
    page.title(tone, &headline(report), "");
    let rows = rows(report);
    if !rows.is_empty() {
        page.gap();
        page.table(&[ColumnAlign::Words, ColumnAlign::Words], &rows);
    }
    let is_timed = !report.urls.by_service_time.is_empty();
    if !report.urls.by_requests.is_empty() {
        page.gap();
    }
    urls(&mut page, "Most requested", report, &report.urls.by_requests, URLS);
    if is_timed {
        urls(&mut page, "Most expensive: service time in all", report, &report.urls.by_service_time, URLS);
    } else {
        urls(&mut page, "Most bytes", report, &report.urls.by_bytes, URLS);
    }
    urls(&mut page, "Most errors", report, &report.urls.by_errors, ERRORS);
    let shown = report.lines.samples.iter().map(|line| format!("Not understood: {line}"));
    let notes: Vec<String> = report.notes.iter().cloned().chain(shown).collect();
    if !notes.is_empty() {
        page.gap();
        notes.iter().take(NOTES).for_each(|note| page.short_item("-", note, 2));
    }
    page.finish()
}

/// The answer in a line.
pub(crate) fn headline(report: &LogsReport) -> String {
    let rates = &report.rates;
    let Some(mean) = rates.mean else {
        return format!("No request was found in {} lines", count(report.lines.total));
    };
    let busiest = rates
        .peak_minute
        .as_ref()
        .map_or(String::new(), |peak| format!("; busiest minute {}", rate(peak.rate)));
    let set = report.working_set.as_ref().and_then(|set| set.sizes.get(1));
    let cache = set.map_or(String::new(), |size| {
        format!("; a cache of {} gets 95% of the hits", bytes(size.cache_bytes))
    });
    format!("{}, {}{busiest}{cache}", plural(report.requests, "request"), rate(mean))
}

/// What is known, a name and a text each.
pub(crate) fn rows(report: &LogsReport) -> Vec<Vec<String>> {
    if report.requests == 0 {
        return vec![];
    }
    let row = |name: &str, text: Option<String>| text.map(|text| vec![name.to_owned(), text]);
    let rates = &report.rates;
    [
        row("time", span(rates)),
        row("peaks", peaks(rates)),
        row("bursts", bursts(rates)),
        row("busiest hours", busiest_hours(rates)),
        row("bandwidth", bandwidth(report)),
        row("response size", sizes(&report.response_size)),
        row("types", Some(shares(&report.types, report.requests, 6))),
        row("statuses", Some(shares(&report.statuses, report.requests, 6))),
        row("dynamic", Some(kind(&report.dynamic_requests, report.requests))),
        row("static", Some(kind(&report.static_requests, report.requests))),
        row("clients", Some(clients(report))),
        row("sessions", sessions(report)),
        row("bots", Some(bots(report))),
        row("working set", working_set(report)),
        row("lines", Some(lines(report))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn span(rates: &LogRates) -> Option<String> {
    let (first, last) = (rates.first.as_ref()?, rates.last.as_ref()?);
    Some(format!("{first} to {last}, {}", time_s(rates.span_s? as f64)))
}

fn peaks(rates: &LogRates) -> Option<String> {
    let one = |name: &str, peak: &Option<LogPeak>| {
        peak.as_ref().map(|peak| format!("{name} {} ({})", rate(peak.rate), peak.at))
    };
    let second = one("second", &rates.peak_second)?;
    let hour = rates.peak_hour.as_ref().map_or(String::new(), |peak| format!("; hour {}", rate(peak.rate)));
    Some(second + &hour)
}

fn bursts(rates: &LogRates) -> Option<String> {
    let minute = rates.dispersion_60s.map_or(String::new(), |index| format!(", minutes {}", number(index)));
    Some(format!("index of dispersion: seconds {}{minute} (Poisson: 1)", number(rates.dispersion_1s?)))
}

fn busiest_hours(rates: &LogRates) -> Option<String> {
    let sum: u64 = rates.by_hour.iter().sum();
    let mut hours: Vec<(usize, u64)> =
        rates.by_hour.iter().copied().enumerate().filter(|(_, requests)| *requests > 0).collect();
    hours.sort_by_key(|(_, requests)| std::cmp::Reverse(*requests));
    let named: Vec<String> = hours
        .iter()
        .take(3)
        .map(|(hour, requests)| format!("{hour:02}h {}", share(*requests, sum)))
        .collect();
    let day = rates.by_weekday.iter().zip(DAYS).max_by_key(|(requests, _)| **requests)?;
    // Of a few days the busiest weekday is the one that was logged.
    let is_week = rates.span_s? >= 7 * 86_400;
    let day = if is_week { format!("; {} {}", day.1, share(*day.0, sum)) } else { String::new() };
    (hours.len() > 1).then(|| named.join(", ") + &day)
}

fn bandwidth(report: &LogsReport) -> Option<String> {
    let peak = report
        .rates
        .bytes_peak_minute_per_s
        .map_or(String::new(), |peak| format!(", {}/s in the busiest minute", bytes(peak)));
    let mean = report.rates.bytes_mean_per_s.filter(|mean| *mean > 0.0)?;
    Some(format!("{}/s on average{peak}; {} in all", bytes(mean), bytes(report.bytes as f64)))
}

fn sizes(sizes: &Dist) -> Option<String> {
    let size = |size: u64| bytes(size as f64);
    let [p50, p99] = [sizes.p50?, sizes.p99?].map(size);
    Some(format!("p50 {p50}, p99 {p99}, largest {}, mean {}", size(sizes.max?), bytes(sizes.mean?)))
}

fn shares(shares: &[LogShare], all: u64, most: usize) -> String {
    let named: Vec<String> =
        shares.iter().take(most).map(|one| format!("{} {}", one.name, share(one.requests, all))).collect();
    let more = if shares.len() > most { ", ..." } else { "" };
    named.join(", ") + more
}

fn kind(kind: &LogPart, all: u64) -> String {
    let times = kind.service_time_us.as_ref().and_then(|times| {
        let [p50, p99] = [times.p50?, times.p99?].map(|us| time_us(us as f64));
        Some(format!("; service time p50 {p50}, p99 {p99}"))
    });
    format!(
        "{} of the requests, {}{}",
        share(kind.requests, all),
        bytes(kind.bytes as f64),
        times.unwrap_or_default()
    )
}

fn about(cardinality: &Cardinality, one: &str, several: &str) -> String {
    let about = if cardinality.exact { "" } else { "about " };
    format!("{about}{} {}", count(cardinality.count), if cardinality.count == 1 { one } else { several })
}

fn clients(report: &LogsReport) -> String {
    let busiest = shares(&report.clients, report.requests, 3);
    let busiest = if busiest.is_empty() { busiest } else { format!("; {busiest}") };
    let addresses = about(&report.clients_distinct, "address", "addresses");
    format!("{addresses}, {}{busiest}", about(&report.urls_distinct, "URL", "URLs"))
}

fn sessions(report: &LogsReport) -> Option<String> {
    let sessions = report.sessions.as_ref()?;
    let think = sessions
        .think_time_us
        .p50
        .map_or(String::new(), |p50| format!("; think time p50 {}", time_us(p50 as f64)));
    Some(format!(
        "{} of {} requests and {} pages{think}",
        number(sessions.sessions),
        number(sessions.requests_mean),
        number(sessions.pages_mean)
    ))
}

fn bots(report: &LogsReport) -> String {
    let names = shares(&report.bots.names, report.requests, 2);
    let names = if names.is_empty() { names } else { format!(": {names}") };
    format!("{} of the requests declare themselves{names}", share(report.bots.requests, report.requests))
}

fn working_set(report: &LogsReport) -> Option<String> {
    let set = report.working_set.as_ref()?;
    let sizes = set
        .sizes
        .iter()
        .map(|size| format!("{} for {}", bytes(size.cache_bytes), percent(size.hit_fraction)));
    let sizes = sizes.collect::<Vec<_>>().join(", ");
    let best = set.curve.last().map_or(String::new(), |last| {
        format!(" of the hits (at most {})", percent(1.0 - last.miss_fraction))
    });
    let knee = set.knee.map_or(String::new(), |knee| format!("; knee at {}", bytes(knee.cache_bytes)));
    Some(format!("{} in {} objects; {sizes}{best}{knee}", bytes(set.footprint_bytes), number(set.objects)))
}

fn lines(report: &LogsReport) -> String {
    let formats: Vec<&String> = report.logs.iter().flat_map(|log| &log.formats).collect();
    let mut named: Vec<&str> = vec![];
    formats.iter().for_each(|format| {
        if !named.contains(&format.as_str()) {
            named.push(format)
        }
    });
    let lines = &report.lines;
    let not = match lines.not_understood {
        0 => "all understood".to_owned(),
        not => format!("{} not understood ({})", count(not), share(not, lines.total)),
    };
    let blank =
        if lines.blank > 0 { format!(", {} blank or comments", count(lines.blank)) } else { String::new() };
    format!(
        "{} in {}, {not}{blank}; {}",
        count(lines.total),
        plural(report.logs.len() as u64, "log"),
        named.join(", ")
    )
}

fn urls(page: &mut TextPage, title: &str, report: &LogsReport, urls: &[LogUrl], most: usize) {
    if urls.is_empty() {
        return;
    }
    page.title(Tone::Title, title, "");
    let rows: Vec<Vec<String>> = urls.iter().take(most).map(|one| url(one, report)).collect();
    let columns = [ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Number, ColumnAlign::Number];
    page.table(&columns, &rows);
}

fn url(url: &LogUrl, report: &LogsReport) -> Vec<String> {
    let errors = url.client_errors + url.server_errors;
    let last = match url.service_time_mean_us {
        Some(mean) => format!("mean {}", time_us(mean)),
        None => bytes(url.bytes as f64),
    };
    vec![
        middle_cut(&url.url),
        format!("{} ({})", count(url.requests), share(url.requests, report.requests)),
        last,
        if errors > 0 { format!("{} failed", share(errors, url.requests)) } else { String::new() },
    ]
}

fn middle_cut(url: &str) -> String {
    let letters: Vec<char> = url.chars().collect();
    if letters.len() <= URL_MAX {
        return url.into();
    }
    let half = (URL_MAX - 3) / 2;
    letters[..half].iter().collect::<String>()
        + "..."
        + &letters[letters.len() - half..].iter().collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::logs::{HitSize, LineCounts, LogBots, LogSessions, LogUrls, LogWorkingSet};

    fn url(name: &str) -> LogUrl {
        LogUrl {
            url: name.into(),
            requests: 100,
            server_errors: 5,
            service_time_mean_us: Some(1500.0),
            ..LogUrl::default()
        }
    }

    /// With all there can be it is a screen and a half, and the answer is its first line.
    #[test]
    fn the_answer_comes_first_and_all_of_it_fits() {
        let peak = Some(LogPeak { at: "2026-10-10T13:55:36Z".into(), rate: 40.0 });
        let long = url(&"/a-long-path".repeat(20));
        let many = vec![long; 10];
        let share = |name: &str| LogShare { name: name.into(), requests: 50, bytes: None };
        let dist = Dist { p50: Some(1), p99: Some(9), max: Some(12), mean: Some(2.5), ..Dist::default() };
        let kind = LogPart { requests: 50, bytes: 9, service_time_us: Some(dist.clone()) };
        let report = LogsReport {
            requests: 1000,
            bytes: 5000,
            rates: LogRates {
                first: Some("2026-10-01T13:55:36Z".into()),
                last: Some("2026-10-10T13:55:36Z".into()),
                span_s: Some(777_601),
                mean: Some(10.0),
                peak_second: peak.clone(),
                peak_minute: peak.clone(),
                peak_hour: peak,
                bytes_mean_per_s: Some(7.0),
                dispersion_1s: Some(3.0),
                dispersion_60s: Some(30.0),
                by_hour: vec![7; 24],
                by_weekday: vec![24; 7],
                ..LogRates::default()
            },
            types: vec![share("page"); 11],
            statuses: vec![share("200"); 20],
            response_size: dist.clone(),
            static_requests: kind.clone(),
            dynamic_requests: kind,
            urls: LogUrls {
                by_requests: many.clone(),
                by_service_time: many.clone(),
                by_errors: many,
                ..LogUrls::default()
            },
            sessions: Some(LogSessions { sessions: 9.0, think_time_us: dist, ..LogSessions::default() }),
            bots: LogBots { requests: 5, bytes: 5, names: vec![share("Googlebot"); 10] },
            working_set: Some(LogWorkingSet {
                sizes: [0.8, 0.95, 0.99]
                    .map(|hit_fraction| HitSize { hit_fraction, cache_bytes: 1e9 })
                    .into(),
                ..LogWorkingSet::default()
            }),
            lines: LineCounts { total: 1010, blank: 3, not_understood: 7, samples: vec!["x".repeat(160); 3] },
            notes: vec!["A sentence that is rather long and says why something could not be told.".into(); 5],
            ..LogsReport::default()
        };
        let text = logs(&report);
        assert!(
            text.starts_with(
                "1,000 requests, 10/s; busiest minute 40/s; a cache of 1 GB gets 95% of the hits\n"
            ),
            "{text}"
        );
        assert!(text.lines().count() <= 40, "{} lines\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("7 not understood") && text.contains("5% failed"), "{text}");
        assert!(logs(&LogsReport::default()).starts_with("No request was found in 0 lines"));
    }
}
