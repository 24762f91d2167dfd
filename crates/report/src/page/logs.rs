//! What access logs say, as a page to keep: the timeline, what is requested, the miss-ratio curve, URLs.

use super::blocks::{
    Align, Bar, BarGroup, BarTone, Block, Blocks, CurvePlot, CurvePoint, Line, TimePlot, figure,
};
use super::plots::TimeAxis;
use super::{AddSection, PageData, Section, summary};
use crate::human::{bytes, count, percent, share, time_us};
use crate::text::logs::{DAYS, headline, rows};
use webdyno_model::logs::{CachePoint, LogShare, LogTimeline, LogUrl, LogsReport};

/// The page of a report; `made` says by which program.
pub(super) fn page_data(report: &LogsReport, made: &str) -> PageData {
    let headline = headline(report);
    let names: Vec<&str> = report.logs.iter().map(|log| log.name.as_str()).collect();
    let mut page = vec![];
    sections(report, &mut |id, title, write| page.extend(Section::of(id, title, write)));
    let span_s = report
        .rates
        .timeline
        .as_ref()
        .map(|timeline| (timeline.step_s * timeline.requests.len() as u64) as f64);
    PageData {
        title: format!("webdyno logs: {headline}"),
        meta: vec![made.into(), names.join(", ")],
        banners: report
            .logs
            .iter()
            .filter_map(|log| log.cut_off.as_ref().map(|why| format!("{}: {why}.", log.name)))
            .collect(),
        summary: summary::of_logs(&headline, &rows(report)),
        sections: page,
        time: TimeAxis::without_loads(span_s),
    }
}

fn sections(report: &LogsReport, section: &mut AddSection<'_>) {
    let rates = &report.rates;
    section("timeline", "Over time", &|b| {
        if let Some(timeline) = &rates.timeline {
            b.quiet(&format!(
                "From {} (UTC), a point for each {}.",
                timeline.from,
                crate::human::time_s(timeline.step_s as f64)
            ));
            b.add(Block::Plots { plots: timeline_plots(timeline) });
        }
    });
    section("week", "By hour and weekday", &|b| {
        let hours: Vec<String> = (0..24).map(|hour| format!("{hour:02}:00")).collect();
        let hours: Vec<&str> = hours.iter().map(String::as_str).collect();
        b.bars(
            "Requests by hour of the day, local time of the log",
            vec![counts("Hour", &hours, &rates.by_hour)],
        );
        b.bars("Requests by weekday", vec![counts("Weekday", &DAYS, &rates.by_weekday)]);
    });
    section("working-set", "What a cache would miss", &|b| working_set(b, report));
    section("mix", "What is requested", &|b| {
        for (title, shares) in [
            ("Types", &report.types),
            ("Statuses", &report.statuses),
            ("Methods", &report.methods),
            ("Bots", &report.bots.names),
            ("Clients", &report.clients),
        ] {
            b.bars(title, vec![shares_of(title, shares, report.requests)]);
        }
    });
    section("urls", "URLs that matter", &|b| {
        let urls = &report.urls;
        for (title, list) in [
            ("Most requested", &urls.by_requests),
            ("Most bytes", &urls.by_bytes),
            ("Most expensive: service time in all", &urls.by_service_time),
            ("Slowest on average", &urls.slowest),
            ("Most errors", &urls.by_errors),
        ] {
            url_table(b, title, list, report.requests);
        }
    });
    section("notes", "Notes", &|b| {
        b.list(&report.notes);
        let shown = report.lines.samples.iter().map(|line| format!("Not understood: {line}"));
        b.list(&shown.collect::<Vec<String>>());
    });
}

fn timeline_plots(timeline: &LogTimeline) -> Vec<TimePlot> {
    let step_s = timeline.step_s as f64;
    let moments = (0..timeline.requests.len()).map(|at| figure(Some((at as f64 + 0.5) * step_s)));
    let t_s: Vec<_> = moments.collect();
    let plot = |id: &str, title: &str, unit: &str, values: &[u64]| TimePlot {
        id: id.into(),
        title: title.into(),
        note: String::new(),
        unit: unit.into(),
        is_joined: true,
        t_s: t_s.clone(),
        lines: vec![Line {
            key: id.into(),
            name: title.into(),
            colour: "accent",
            values: values.iter().map(|value| figure(Some(*value as f64 / step_s))).collect(),
        }],
    };
    let mut plots = vec![plot("log-rate", "Requests per second", "req/s", &timeline.requests)];
    if timeline.bytes.iter().any(|bytes| *bytes > 0) {
        plots.push(plot("log-bytes", "Bytes per second", "bytes/s", &timeline.bytes));
    }
    plots
}

fn counts(title: &str, names: &[&str], counts: &[u64]) -> BarGroup {
    let sum: u64 = counts.iter().sum();
    let row = |(name, requests): (&&str, &u64)| bar(name, *requests, sum);
    BarGroup { title: title.into(), most: None, rows: names.iter().zip(counts).map(row).collect() }
}

fn shares_of(title: &str, shares: &[LogShare], all: u64) -> BarGroup {
    let rows = shares.iter().take(12).map(|one| bar(&one.name, one.requests, all));
    BarGroup { title: title.into(), most: None, rows: rows.collect() }
}

fn bar(name: &str, requests: u64, all: u64) -> Bar {
    Bar {
        label: name.into(),
        value: figure(Some(requests as f64)),
        interval: None,
        text: format!("{} ({})", count(requests), share(requests, all)),
        tone: BarTone::Plain,
    }
}

fn working_set(b: &mut Blocks, report: &LogsReport) {
    let Some(set) = &report.working_set else { return };
    let point = |point: &CachePoint| {
        Some(CurvePoint {
            at: figure(Some(point.cache_bytes))?,
            value: figure(Some(point.miss_fraction))?,
            ci95: None,
        })
    };
    let points: Vec<CurvePoint> = set.curve.iter().filter_map(point).collect();
    if points.len() > 1 {
        b.add(Block::Curve {
            plot: Box::new(CurvePlot {
                id: "curve-misses",
                title: "Share of the requests that a cache of a size misses".into(),
                note: "A cache of whole responses, least recently used first out; a first request is never a hit.".into(),
                axis: "cache".into(),
                axis_unit: "bytes",
                unit: "fraction",
                points,
                line: vec![],
                span: None,
                mark: super::curve::mark(set.knee.map(|knee| knee.cache_bytes), "knee"),
                bound: None,
            }),
        });
    }
    let columns = [("of the hits that are possible", Align::Number), ("cache", Align::Number)];
    let row = |size: &webdyno_model::logs::HitSize| vec![percent(size.hit_fraction), bytes(size.cache_bytes)];
    b.table("Memory for hits", &columns, set.sizes.iter().map(row).collect());
}

fn url_table(b: &mut Blocks, title: &str, urls: &[LogUrl], all: u64) {
    use Align::{Code, Number, Words};
    let columns = [
        ("URL", Code),
        ("type", Words),
        ("requests", Number),
        ("share", Number),
        ("bytes", Number),
        ("mean", Number),
        ("longest", Number),
        ("errors", Number),
    ];
    let time = |us: Option<f64>| us.map_or(String::new(), time_us);
    let row = |url: &LogUrl| {
        vec![
            url.url.clone(),
            url.kind.clone(),
            count(url.requests),
            share(url.requests, all),
            bytes(url.bytes as f64),
            time(url.service_time_mean_us),
            time(url.service_time_us_max.map(|us| us as f64)),
            count(url.client_errors + url.server_errors),
        ]
    };
    if !urls.is_empty() {
        b.heading(title);
    }
    b.table(title, &columns, urls.iter().map(row).collect());
}

#[cfg(test)]
mod tests {
    use crate::logs_html;
    use webdyno_model::logs::{
        CachePoint, LogRates, LogShare, LogTimeline, LogUrl, LogUrls, LogWorkingSet, LogsReport,
    };

    /// Every list of a log has its place in the page, and what a client sent is no markup there.
    #[test]
    fn a_page_has_what_the_log_says_and_no_markup_of_it() {
        let hostile = "/<script>alert(1)</script>";
        let url = LogUrl { url: hostile.into(), requests: 7, ..LogUrl::default() };
        let point = |cache_bytes, miss_fraction| CachePoint {
            cache_bytes,
            miss_fraction,
            byte_miss_fraction: miss_fraction,
        };
        let report = LogsReport {
            requests: 7,
            rates: LogRates {
                mean: Some(2.0),
                by_hour: vec![1; 24],
                by_weekday: vec![1; 7],
                timeline: Some(LogTimeline {
                    from: "2026-10-10T13:55:00Z".into(),
                    step_s: 60,
                    requests: vec![3, 0, 4],
                    bytes: vec![300, 0, 400],
                }),
                ..LogRates::default()
            },
            types: vec![LogShare { name: "page".into(), requests: 7, bytes: None }],
            urls: LogUrls { by_requests: vec![url], ..LogUrls::default() },
            working_set: Some(LogWorkingSet {
                curve: vec![point(1e3, 0.5), point(1e6, 0.1)],
                ..LogWorkingSet::default()
            }),
            ..LogsReport::default()
        };
        let page = logs_html(&report, "webdyno 1 logs");
        for expected in [
            "\"id\":\"log-rate\"",
            "\"id\":\"log-bytes\"",
            "\"id\":\"curve-misses\"",
            "By hour and weekday",
            "URLs that matter",
            "7 requests, 2/s",
        ] {
            assert!(page.contains(expected), "{expected} is missing");
        }
        assert!(!page.contains(hostile) && page.contains("/\\u003cscript>alert(1)"));
    }
}
