//! The report of what was counted.

use crate::class::CLASSES;
use crate::ordered::Ordered;
use crate::rates::{Peak, Rates};
use crate::scan::{Counts, Sum, Timed};
use crate::sessions::{PAUSE_S, SessionFigures};
use crate::timestamp::rfc3339;
use crate::urls::{Url, Urls};
use crate::working_set::{CurvePoint, WorkingSet, cache_for, knee};
use webdyno_model::logs::{
    CachePoint, Cardinality, HitSize, LineCounts, LogBots, LogPart, LogPeak, LogRates, LogSessions, LogShare,
    LogSource, LogTimeline, LogUrl, LogUrls, LogWorkingSet, LogsReport, SCHEMA,
};
use webdyno_model::number::significant;

/// Rows of a list.
const ROWS: usize = 10;
/// A URL is slow when it is so often, not once.
const SLOW_REQUESTS_MIN: u32 = 10;
/// Steps of the timeline of a log at most, and how long one may be: beyond the last of these as many days as it needs.
const TIMELINE_STEPS: i64 = 500;
const STEPS_S: [i64; 8] = [60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 24 * 3600];
/// Points of the miss-ratio curve.
const CURVE_POINTS: usize = 200;

/// The report; `counts` must be settled.
pub fn report(counts: &Counts, ordered: &Ordered, logs: Vec<LogSource>) -> LogsReport {
    let requests = counts.sum.requests;
    let errors = |from: usize, to: usize| counts.statuses[from..to].iter().sum::<u64>();
    let fraction = |part: u64| (requests > 0).then(|| significant(part as f64 / requests as f64, 4));
    let mut report = LogsReport {
        schema: SCHEMA.into(),
        logs,
        lines: LineCounts {
            total: counts.lines,
            blank: counts.blank,
            not_understood: counts.not_understood,
            samples: counts.samples.clone(),
        },
        requests,
        bytes: counts.sum.bytes,
        rates: rates(&counts.rates, counts.sum),
        types: types(counts),
        statuses: statuses(counts),
        methods: methods(counts),
        server_error_fraction: fraction(errors(500, 1000)),
        client_error_fraction: fraction(errors(400, 500)),
        response_size: counts.sizes.dist(),
        static_requests: kind(&counts.kinds[1]),
        dynamic_requests: kind(&counts.kinds[0]),
        urls: urls(&counts.urls),
        urls_distinct: urls_distinct(counts),
        clients_distinct: Cardinality { count: counts.clients.count(), exact: counts.clients.is_exact() },
        clients: clients(counts),
        sessions: ordered.sessions.figures().map(|figures| sessions(&figures)),
        bots: bots(counts),
        working_set: working_set(&ordered.working_set),
        notes: vec![],
    };
    report.notes = notes(&report, counts);
    report
}

fn rates(rates: &Rates, sum: Sum) -> LogRates {
    let Some([first, last]) = rates.span_s() else { return LogRates::default() };
    let span_s = (last - first + 1) as f64;
    let [second, minute, hour, bytes] = rates.peaks();
    // Of a span that the log does not fill the part that it does.
    let peak = |peak: Peak, length_s: i64| {
        let inside_s = (peak.at_s + length_s).min(last + 1) - peak.at_s.max(first);
        let rate = significant(peak.count as f64 / inside_s.max(1) as f64, 6);
        rfc3339(peak.at_s).filter(|_| peak.count > 0).map(|at| LogPeak { at, rate })
    };
    let dispersion = |span_s: i64| rates.dispersion(span_s, first, last).map(|index| significant(index, 4));
    LogRates {
        first: rfc3339(first),
        last: rfc3339(last),
        span_s: Some(span_s as u64),
        mean: Some(significant(sum.requests as f64 / span_s, 6)),
        peak_second: peak(second, 1),
        peak_minute: peak(minute, 60),
        peak_hour: peak(hour, 3600),
        bytes_mean_per_s: Some(significant(sum.bytes as f64 / span_s, 6)),
        bytes_peak_minute_per_s: peak(bytes, 60).map(|peak| peak.rate),
        by_hour: rates.by_hour().to_vec(),
        by_weekday: rates.by_weekday().to_vec(),
        dispersion_1s: dispersion(1),
        dispersion_10s: dispersion(10),
        dispersion_60s: dispersion(60),
        timeline: timeline(rates, first, last),
    }
}

fn timeline(rates: &Rates, first: i64, last: i64) -> Option<LogTimeline> {
    let steps = |step_s: i64| last.div_euclid(step_s) - first.div_euclid(step_s) + 1;
    let days = 24 * 3600 * (steps(24 * 3600) / TIMELINE_STEPS + 1);
    let step_s = STEPS_S.into_iter().find(|step_s| steps(*step_s) <= TIMELINE_STEPS).unwrap_or(days);
    let from_s = first.div_euclid(step_s) * step_s;
    let [requests, bytes] = rates.timeline(from_s, step_s, steps(step_s) as usize);
    let bytes = if rates.is_complete() { bytes } else { vec![] };
    Some(LogTimeline { from: rfc3339(from_s)?, step_s: step_s as u64, requests, bytes })
}

fn most_first(mut shares: Vec<LogShare>) -> Vec<LogShare> {
    shares.retain(|share| share.requests > 0);
    shares.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
    shares
}

fn types(counts: &Counts) -> Vec<LogShare> {
    let share = |(class, name): &(crate::class::Class, &str)| {
        let sum = counts.classes[*class as usize];
        LogShare { name: (*name).into(), requests: sum.requests, bytes: Some(sum.bytes) }
    };
    most_first(CLASSES.iter().map(share).collect())
}

fn statuses(counts: &Counts) -> Vec<LogShare> {
    let share = |(status, requests): (usize, &u64)| {
        let name = if status == 0 { "unknown".into() } else { status.to_string() };
        LogShare { name, requests: *requests, bytes: None }
    };
    most_first(counts.statuses.iter().enumerate().map(share).collect())
}

fn methods(counts: &Counts) -> Vec<LogShare> {
    let share = |(name, requests): (&Vec<u8>, &u64)| {
        let name =
            if name.is_empty() { "unknown".into() } else { String::from_utf8_lossy(name).into_owned() };
        LogShare { name, requests: *requests, bytes: None }
    };
    most_first(counts.methods.iter().map(share).collect())
}

fn kind(timed: &Timed) -> LogPart {
    LogPart {
        requests: timed.sum.requests,
        bytes: timed.sum.bytes,
        service_time_us: (!timed.service_us.is_empty()).then(|| timed.service_us.dist()),
    }
}

fn urls(urls: &Urls) -> LogUrls {
    let top = |figure: &dyn Fn(&Url) -> u64| urls.top(ROWS, figure).iter().map(url).collect();
    let mean_us =
        |url: &Url| if url.timed >= SLOW_REQUESTS_MIN { url.time_us / u64::from(url.timed) } else { 0 };
    LogUrls {
        exact: urls.is_exact(),
        by_requests: top(&|url| u64::from(url.requests)),
        by_bytes: top(&|url| url.bytes),
        by_service_time: top(&|url| url.time_us),
        slowest: top(&mean_us),
        by_errors: top(&|url| (u64::from(url.server_errors) << 32) + u64::from(url.client_errors)),
    }
}

fn url((name, url): &(String, Url)) -> LogUrl {
    let is_timed = url.timed > 0;
    LogUrl {
        url: name.clone(),
        kind: CLASSES.iter().find(|(class, _)| *class == url.class).map_or("other", |(_, name)| name).into(),
        requests: url.requests.into(),
        bytes: url.bytes,
        client_errors: url.client_errors.into(),
        server_errors: url.server_errors.into(),
        service_time_mean_us: is_timed.then(|| significant(url.time_us as f64 / f64::from(url.timed), 6)),
        service_time_us_max: is_timed.then_some(url.time_us_max),
    }
}

fn urls_distinct(counts: &Counts) -> Cardinality {
    match counts.urls.is_exact() {
        true => Cardinality { count: counts.urls.len() as u64, exact: true },
        false => Cardinality { count: counts.urls_distinct.count(), exact: counts.urls_distinct.is_exact() },
    }
}

fn clients(counts: &Counts) -> Vec<LogShare> {
    let share =
        |(name, url): (String, Url)| LogShare { name, requests: url.requests.into(), bytes: Some(url.bytes) };
    counts.busiest.top(ROWS, |url| u64::from(url.requests)).into_iter().map(share).collect()
}

fn sessions(figures: &SessionFigures) -> LogSessions {
    LogSessions {
        sessions: figures.sessions.round(),
        requests_mean: significant(figures.requests_mean, 4),
        pages_mean: significant(figures.pages_mean, 4),
        duration_us: figures.duration_us.dist(),
        think_time_us: figures.think_us.dist(),
        pause_s: PAUSE_S as u64,
        sampled_fraction: significant(figures.sampled, 4),
    }
}

fn bots(counts: &Counts) -> LogBots {
    let names = counts.bot_names().into_iter().take(ROWS);
    let names = names.map(|(name, requests)| LogShare { name, requests, bytes: None }).collect();
    LogBots { requests: counts.bots.requests, bytes: counts.bots.bytes, names }
}

fn working_set(set: &WorkingSet) -> Option<LogWorkingSet> {
    let curve = set.curve();
    let [objects, footprint_bytes] = set.footprint().map(|figure| significant(figure, 6));
    let shown = |point: &CurvePoint| CachePoint {
        cache_bytes: point.cache_bytes.round(),
        miss_fraction: significant(point.miss_ratio, 4),
        byte_miss_fraction: significant(point.byte_miss_ratio, 4),
    };
    let size = |hit_fraction: f64| {
        cache_for(&curve, hit_fraction)
            .map(|cache_bytes| HitSize { hit_fraction, cache_bytes: cache_bytes.round() })
    };
    let last = curve.len().saturating_sub(1);
    let every = curve.len().div_ceil(CURVE_POINTS).max(1);
    (objects > 0.0).then(|| LogWorkingSet {
        objects: objects.round(),
        footprint_bytes: footprint_bytes.round(),
        sizes: [0.8, 0.95, 0.99].into_iter().filter_map(size).collect(),
        knee: knee(&curve).as_ref().map(shown),
        curve: curve
            .iter()
            .enumerate()
            .filter(|(at, _)| (last - at).is_multiple_of(every))
            .map(|(_, point)| shown(point))
            .collect(),
        sampled_fraction: significant(set.rate(), 4),
    })
}

fn notes(report: &LogsReport, counts: &Counts) -> Vec<String> {
    let mut notes = vec![];
    for log in &report.logs {
        if let Some(why) = &log.cut_off {
            notes.push(format!(
                "{} is cut off or damaged ({why}); what could be read of it is counted.",
                log.name
            ));
        }
        if log.formats.is_empty() && log.size_bytes > 0 {
            notes.push(format!("The format of {} was not recognised: give it with --format.", log.name));
        }
    }
    if report.requests > 0
        && report.static_requests.service_time_us.is_none()
        && report.dynamic_requests.service_time_us.is_none()
    {
        notes.push(
            "The log has no service times: add %D (Apache) or $request_time (nginx) to its format.".into(),
        );
    }
    if report
        .logs
        .iter()
        .any(|log| log.formats.iter().any(|format| format.ends_with(" %D") && format.starts_with(['c', 'v'])))
    {
        notes.push("The number at the end of the lines is taken for microseconds (%D); give --format if it is another one.".into());
    }
    if counts.unsized_requests > 0 && counts.unsized_requests == report.requests {
        notes.push("The log has no sizes: there are no bytes, and no working set.".into());
    }
    if !counts.rates.is_complete() {
        notes.push("Seconds of more than 10,000 hours are not kept: the peak second and minute are of the first ones read.".into());
    }
    if !report.urls.exact {
        notes.push(
            "There are more URLs than the table holds (131,072): counts of URLs may be too small.".into(),
        );
    }
    notes
}
