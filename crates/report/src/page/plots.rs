//! The figures behind the plots: seconds of all loads and readings of the server on one axis, the heat map of latency, percentiles.

use super::AddSection;
use super::blocks::{Block, HeatMapData, Line, PercentileLine, TimePlot, figure};
use crate::phrases;
use serde::Serialize;
use std::collections::BTreeMap;
use webdyno_model::number::Number;
use webdyno_model::run::IntervalReport;
use webdyno_session::heat_map::HeatMap;
use webdyno_session::view::{LoadView, Outcome, Series, View};

/// Lines of one plot, in their order.
const COLOURS: [&str; 5] = ["accent", "series-2", "series-3", "series-4", "series-5"];
/// Places along the axis of percentiles, per nine.
const PLACES_PER_NINE: i32 = 24;
/// The most nines of that axis.
const NINES_MAX: i32 = 5;

/// The common axis of all plots over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TimeAxis {
    ends_s: Option<Number>,
    loads: Vec<LoadMark>,
}

impl TimeAxis {
    /// The axis of what is no session.
    pub(super) fn without_loads(ends_s: Option<f64>) -> Self {
        Self { ends_s: figure(ends_s), loads: vec![] }
    }
}

/// A load on that axis, in seconds since the session began.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct LoadMark {
    label: String,
    begins_s: Option<Number>,
    ends_s: Option<Number>,
    /// What counts of it.
    measured_s: [Option<Number>; 2],
}

/// All plots that the session has figures for.
pub(super) fn sections(view: &View, section: &mut AddSection<'_>) {
    section("course", "Over time", &|b| {
        let plots: Vec<TimePlot> = of_loads(view).collect();
        if !plots.is_empty() {
            b.quiet("Tinted: a load runs; grey: its warm-up, which does not count. Drag to zoom; a double click shows all.");
            b.add(Block::Plots { plots });
        }
        if let Some(HeatMap { from_s, step_s, edges_us, counts }) = view.heat_map.clone() {
            b.add(Block::HeatMap { heat_map: HeatMapData { from_s, step_s, edges_us, counts } });
        }
    });
    section("percentiles", "How latency is spread", &|b| {
        for spread in [OF_PAGES, OF_ANSWERS] {
            spread.block(view).into_iter().for_each(|block| b.add(block));
        }
    });
    let watched = view.command == "observe";
    let title = if watched { "Levels over time" } else { "What the server did meanwhile" };
    section("signals", title, &|b| {
        let (flat, plots) = of_readings(view, watched);
        if !flat.is_empty() {
            b.quiet(&format!("Always 0: {}.", flat.join(", ")));
        }
        if !plots.is_empty() {
            b.add(Block::Plots { plots });
        }
    });
}

/// The axis, with all loads.
pub(super) fn time_axis(view: &View) -> TimeAxis {
    let readings = view.series.iter().filter_map(|series| series.points.last()).map(|(t_s, _)| *t_s);
    let ends = view.loads.iter().map(load_end_s).chain(readings).filter(|end| end.is_finite());
    let mark = |load: &LoadView| LoadMark {
        label: mark_label(view, load),
        begins_s: figure(Some(load.begins_s)),
        ends_s: figure(Some(load_end_s(load))),
        measured_s: [
            figure(Some(load.begins_s + load.measured_from_s)),
            figure(Some(load_end_s(load) - load.report.ramp_down_s)),
        ],
    };
    TimeAxis { ends_s: figure(Some(ends.fold(0.0, f64::max))), loads: view.loads.iter().map(mark).collect() }
}

/// Each entry of the intervals is a second long, except perhaps the last one.
fn load_end_s(load: &LoadView) -> f64 {
    load.begins_s + load.intervals.last().map_or(load.measured_from_s, |interval| interval.t_s + 1.0)
}

/// `before`, `round 1: better, kept`.
fn mark_label(view: &View, load: &LoadView) -> String {
    let name = phrases::purpose(load);
    match &view.outcome {
        Outcome::Run(run) if run.repeats.is_some() => format!("run {}", load.load),
        Outcome::Tune(tune) => {
            let round = tune.rounds.iter().find(|round| Some(round.n) == load.round);
            let outcome = round.map(|round| format!("{name}: {}", phrases::round_outcome(tune, round)));
            outcome.unwrap_or(name)
        }
        _ => name,
    }
}

/// How a figure of a second is called, and where it is.
struct SecondFigure {
    key: &'static str,
    name: &'static str,
    colour: &'static str,
    of: fn(&IntervalReport) -> Option<f64>,
}

/// A plot of figures of seconds: its id, title and unit.
struct SecondPlot(&'static str, &'static str, &'static str, &'static [SecondFigure]);

const fn of_second(
    key: &'static str,
    name: &'static str,
    colour: &'static str,
    of: fn(&IntervalReport) -> Option<f64>,
) -> SecondFigure {
    SecondFigure { key, name, colour, of }
}

/// What is plotted of each second of a load.
const SECOND_PLOTS: [SecondPlot; 4] = [
    SecondPlot(
        "page-rate",
        "Complete pages/s",
        "pages/s",
        &[of_second("page_rate", "pages", "accent", |s| s.page_rate)],
    ),
    SecondPlot(
        "rate",
        "Successful and failed req/s",
        "req/s",
        &[
            of_second("rate", "successful", "accent", |s| Some(s.rate)),
            of_second("failed", "failed", "bad", |s| Some(s.failed as f64)),
        ],
    ),
    SecondPlot(
        "latency",
        "Response time",
        "us",
        &[
            of_second("p50_us", "p50", "accent", |s| s.p50_us.map(|us| us as f64)),
            of_second("p99_us", "p99", "series-2", |s| s.p99_us.map(|us| us as f64)),
        ],
    ),
    SecondPlot(
        "in-flight",
        "Requests in flight",
        "requests",
        &[of_second("in_flight", "in flight", "accent", |s| Some(s.in_flight as f64))],
    ),
];

fn of_loads(view: &View) -> impl Iterator<Item = TimePlot> {
    SECOND_PLOTS.iter().filter_map(|plot| {
        let mut t_s = vec![];
        let mut values = vec![vec![]; plot.3.len()];
        for load in view.loads.iter().filter(|load| !load.intervals.is_empty()) {
            for second in &load.intervals {
                // A load's second counts in the middle of its second.
                t_s.push(figure_of_time(load.begins_s + second.t_s + 0.5));
                plot.3
                    .iter()
                    .zip(&mut values)
                    .for_each(|(figure, line)| line.push(self::figure((figure.of)(second))));
            }
            // Between loads there is nothing to connect.
            t_s.push(figure_of_time(load_end_s(load)));
            values.iter_mut().for_each(|line| line.push(None));
        }
        let is_known = values.iter().flatten().any(Option::is_some);
        let lines = plot.3.iter().zip(values).map(|(figure, values)| Line {
            key: figure.key.into(),
            name: figure.name.into(),
            colour: figure.colour,
            values,
        });
        is_known.then(|| TimePlot {
            id: plot.0.into(),
            title: plot.1.into(),
            note: String::new(),
            unit: plot.2.into(),
            is_joined: false,
            t_s,
            lines: lines.collect(),
        })
    })
}

/// To the hundredth of a second: readings and seconds of load are no finer.
fn figure_of_time(t_s: f64) -> Option<Number> {
    (t_s.is_finite() && t_s.abs() < 1e9).then(|| Number((t_s * 100.0).round() / 100.0))
}

/// Readings that belong together in a plot each, and the names of those that were always 0.
fn of_readings(view: &View, with_flat: bool) -> (Vec<String>, Vec<TimePlot>) {
    let is_flat = |series: &&Series| !with_flat && series.points.iter().all(|(_, value)| *value == 0.0);
    let (flat, moving): (Vec<&Series>, Vec<&Series>) =
        view.series.iter().filter(|series| !series.points.is_empty()).partition(is_flat);
    let mut groups: Vec<((&str, &str), Vec<&Series>)> = vec![];
    for series in moving {
        let key = (group(series).0, series.unit.as_str());
        match groups.iter_mut().find(|(known, of)| *known == key && of.len() < COLOURS.len()) {
            Some((_, of)) => of.push(series),
            None => groups.push((key, vec![series])),
        }
    }
    let plots = groups.iter().enumerate().map(|(index, (key, of))| readings_plot(index, *key, of));
    (flat.iter().map(|series| series.name.clone()).collect(), plots.collect())
}

/// `CPU`, `busy` of `CPU: busy`.
fn group(series: &Series) -> (&str, &str) {
    series.name.rsplit_once(": ").unwrap_or((&series.name, &series.name))
}

fn readings_plot(index: usize, (title, unit): (&str, &str), of: &[&Series]) -> TimePlot {
    let mut moments: BTreeMap<i64, Vec<Option<Number>>> = BTreeMap::new();
    for (place, series) in of.iter().enumerate() {
        for (t_s, value) in &series.points {
            #[allow(clippy::cast_possible_truncation)] // saturates
            let hundredth = (t_s * 100.0).round() as i64;
            let values = moments.entry(hundredth).or_insert_with(|| vec![None; of.len()]);
            values[place] = figure(Some(*value));
        }
    }
    let line = |(place, series): (usize, &&Series)| Line {
        key: series.name.clone(),
        name: group(series).1.into(),
        colour: COLOURS[place % COLOURS.len()],
        values: moments.values().map(|values| values[place]).collect(),
    };
    let unit_name = if unit == "fraction" { "share of 100%" } else { unit };
    TimePlot {
        id: format!("reading-{index}"),
        title: if of.len() == 1 { of[0].name.clone() } else { title.into() },
        note: unit_name.into(),
        unit: unit.into(),
        is_joined: true,
        t_s: moments.keys().map(|hundredth| figure_of_time(*hundredth as f64 / 100.0)).collect(),
        lines: of.iter().enumerate().map(line).collect(),
    }
}

/// Times of which the spread is shown.
struct TimeSpread {
    /// Unique in the document.
    id: &'static str,
    title: &'static str,
    /// Its times as a cumulative share.
    cumulative: fn(&LoadView) -> &[(u64, f64)],
    /// How many there are.
    count: fn(&LoadView) -> u64,
}

const OF_ANSWERS: TimeSpread = TimeSpread {
    id: "spread",
    title: "Response time by percentile",
    cumulative: |load| &load.response_time_cumulative,
    count: |load| load.report.response_time_us.count,
};
const OF_PAGES: TimeSpread = TimeSpread {
    id: "page-spread",
    title: "Page time by percentile",
    cumulative: |load| &load.page_time_cumulative,
    count: |load| load.report.pages.as_ref().map_or(0, |pages| pages.time_us.count),
};

impl TimeSpread {
    /// The loads whose distributions are compared: for tuning the first and the best one, else the last one.
    fn compared<'a>(&self, view: &'a View) -> Vec<(&'static str, &'static str, &'a LoadView)> {
        let has = |load: &&LoadView| !(self.cumulative)(load).is_empty();
        let Outcome::Tune(tune) = &view.outcome else {
            return view
                .reported_load()
                .filter(has)
                .map(|load| ("accent", "measured", load))
                .into_iter()
                .collect();
        };
        let find = |report: &webdyno_model::run::RunReport| {
            view.loads.iter().filter(has).find(|load| load.report == *report)
        };
        let before = find(&tune.baseline);
        let after = find(&tune.best).filter(|after| before.is_none_or(|before| before.load != after.load));
        let named = |load: Option<&'a LoadView>, colour, name| load.map(|load| (colour, name, load));
        named(before, "before", "before").into_iter().chain(named(after, "accent", "after")).collect()
    }

    /// Times at the same percentiles of each; `None` without any.
    fn block(&self, view: &View) -> Option<Block> {
        let compared = self.compared(view);
        let shares: Vec<f64> = (0..=NINES_MAX * PLACES_PER_NINE)
            .map(|place| 1.0 - 10f64.powf(-f64::from(place) / f64::from(PLACES_PER_NINE)))
            .collect();
        let line = |(colour, name, load): &(&'static str, &str, &LoadView)| PercentileLine {
            name: (*name).into(),
            colour,
            values: shares.iter().map(|share| self.time_at(load, *share)).collect(),
        };
        let lines: Vec<PercentileLine> = compared.iter().map(line).collect();
        // Where no load has enough requests the axis ends.
        let end = lines.iter().filter_map(|line| line.values.iter().rposition(Option::is_some)).max()?;
        let kept = |line: PercentileLine| PercentileLine { values: line.values[..=end].to_vec(), ..line };
        Some(Block::Percentiles {
            id: self.id,
            title: self.title.into(),
            percentiles: shares[..=end].iter().map(|share| Number((share * 1e8).round() / 1e8)).collect(),
            lines: lines.into_iter().map(kept).collect(),
        })
    }

    /// The time that a share of them did not exceed; `None` where fewer than one lies beyond it.
    fn time_at(&self, load: &LoadView, share: f64) -> Option<u64> {
        let times = (self.cumulative)(load);
        let beyond = (1.0 - share) * (self.count)(load) as f64;
        let at = times.partition_point(|(_, reached)| *reached < share);
        times.get(at).map(|(us, _)| *us).filter(|_| beyond >= 1.0)
    }
}
