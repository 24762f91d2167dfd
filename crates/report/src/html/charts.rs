//! The three kinds of plots: rate over time, distribution of response times, readings of the server.

use super::markup::Markup;
use super::plot::{Axis, Frame, PlotText, key};
use crate::{human, phrases};
use webdyno_session::view::{LoadView, Outcome, Series, View};

/// More plots of readings than this would bury the rest.
const SERIES_MAX: usize = 12;
/// Where nothing else is to be seen.
const WATCHED_SERIES_MAX: usize = 60;

/// All plots that the session has figures for.
pub(super) fn write_charts(m: &mut Markup, view: &View) {
    let end_s = end_s(view);
    if view.loads.iter().any(|load| !load.intervals.is_empty()) {
        m.text_element("h2", "Over time");
        page_rate(m, view, end_s);
        rate(m, view, end_s);
    }
    if view.loads.iter().any(|load| !load.page_time_cumulative.is_empty()) {
        m.text_element("h2", "How page times are spread");
        spread(m, view, &OF_PAGES);
    }
    if view.loads.iter().any(|load| !load.response_time_cumulative.is_empty()) {
        m.text_element("h2", "How response times are spread");
        spread(m, view, &OF_ANSWERS);
    }
    if view.series.iter().any(|series| !series.points.is_empty()) {
        let watched = view.command == "observe";
        m.text_element("h2", if watched { "Levels over time" } else { "What the server did meanwhile" });
        if !watched {
            m.text_element_with(
                "p",
                &[("class", "quiet")],
                "Same time axis as above; tinted: a load ran, grey: its warm-up.",
            );
        }
        let most = if watched { WATCHED_SERIES_MAX } else { SERIES_MAX };
        let displayed = view.series.iter().filter(|series| !series.points.is_empty()).take(most);
        for (index, series) in displayed.enumerate() {
            write_reading_chart(m, view, series, index, end_s);
        }
    }
}

/// The end of the common time axis.
fn end_s(view: &View) -> f64 {
    let loads = view.loads.iter().map(load_end_s);
    let readings = view.series.iter().filter_map(|series| series.points.last()).map(|(t_s, _)| *t_s);
    loads.chain(readings).filter(|end| end.is_finite()).fold(0.0, f64::max)
}

/// Each entry of the intervals is a second long, except perhaps the last one.
fn load_end_s(load: &LoadView) -> f64 {
    load.begins_s + load.intervals.last().map_or(load.measured_from_s, |interval| interval.t_s + 1.0)
}

fn shade_loads(frame: &Frame, m: &mut Markup, view: &View) {
    for load in &view.loads {
        frame.shade(m, "load", load.begins_s, load_end_s(load));
        frame.shade(m, "warm", load.begins_s, load.begins_s + load.measured_from_s);
        frame.shade(m, "warm", load_end_s(load) - load.report.ramp_down_s, load_end_s(load));
    }
}

fn rate(m: &mut Markup, view: &View, end_s: f64) {
    let intervals = || view.loads.iter().flat_map(|load| &load.intervals);
    let failed = intervals().any(|interval| interval.failed > 0);
    let largest =
        intervals().map(|interval| interval.rate.max(if failed { interval.failed as f64 } else { 0.0 }));
    let largest = largest.filter(|rate| rate.is_finite()).fold(0.0, f64::max);
    let frame = Frame { x: Axis::seconds(end_s), y: Axis::zero_based(largest, human::rate), height: 280.0 };
    let title = if failed { "Successful and failed req/s" } else { "Successful req/s" };
    let desc = describe_loads(view);
    m.element("figure", &[], |m| {
        let shading =
            "seconds since the session began; grey: warm-up, which does not count; dashed: a load begins";
        m.text_element("figcaption", &format!("{title}; {shading}."));
        if failed {
            key(m, &[("second", "good".into()), ("failed", "failed".into())]);
        }
        m.element("div", &[("class", "scroll")], |m| {
            frame.draw(m, &PlotText { id: "rate", title, desc: &desc }, |m| {
                shade_loads(&frame, m, view);
                for (index, load) in view.loads.iter().enumerate() {
                    rate_of_load(&frame, m, load, failed);
                    let next = view.loads.get(index + 1).map_or(end_s, |next| next.begins_s);
                    frame.mark(m, load.begins_s, next, &mark_label(view, load));
                }
            });
        });
    });
}

/// Whole pages a second, for loads of pages.
fn page_rate(m: &mut Markup, view: &View, end_s: f64) {
    let rates = |load: &LoadView| -> Vec<(f64, f64)> {
        let at = |t_s: f64| load.begins_s + t_s + 0.5;
        load.intervals.iter().filter_map(|interval| Some((at(interval.t_s), interval.page_rate?))).collect()
    };
    let curves: Vec<_> = view.loads.iter().map(rates).collect();
    let all = || curves.iter().flatten().map(|(_, rate)| *rate).filter(|rate| rate.is_finite());
    if all().next().is_none() {
        return;
    }
    let largest = all().fold(0.0, f64::max);
    let frame = Frame { x: Axis::seconds(end_s), y: Axis::zero_based(largest, human::rate), height: 220.0 };
    let title = "Complete pages/s";
    let desc = format!("at most {}", human::rate(largest));
    m.element("figure", &[], |m| {
        m.text_element("figcaption", &format!("{title}; seconds since the session began."));
        m.element("div", &[("class", "scroll")], |m| {
            frame.draw(m, &PlotText { id: "page-rate", title, desc: &desc }, |m| {
                shade_loads(&frame, m, view);
                curves.iter().for_each(|curve| frame.curve(m, "second", curve));
            });
        });
    });
}

/// A load's second counts in the middle of its second.
fn rate_of_load(frame: &Frame, m: &mut Markup, load: &LoadView, failed: bool) {
    let at = |t_s: f64| load.begins_s + t_s + 0.5;
    let good: Vec<_> = load.intervals.iter().map(|interval| (at(interval.t_s), interval.rate)).collect();
    frame.curve(m, "second", &good);
    if failed {
        let failed: Vec<_> =
            load.intervals.iter().map(|interval| (at(interval.t_s), interval.failed as f64)).collect();
        frame.curve(m, "failed", &failed);
    }
}

/// `before`, `round 1: better, kept`.
fn mark_label(view: &View, load: &LoadView) -> String {
    let name = phrases::purpose(load);
    if matches!(&view.outcome, Outcome::Run(run) if run.repeats.is_some()) {
        return format!("run {}", load.load);
    }
    let Outcome::Tune(tune) = &view.outcome else {
        return name;
    };
    let round = tune.rounds.iter().find(|round| Some(round.n) == load.round);
    round.map_or(name.clone(), |round| format!("{name}: {}", phrases::round_outcome(tune, round)))
}

fn describe_loads(view: &View) -> String {
    let of = |load: &LoadView| {
        format!(
            "Load {} ({}): {}.",
            load.load,
            mark_label(view, load),
            phrases::good_response_rate(load.report.rate)
        )
    };
    view.loads.iter().map(of).collect::<Vec<_>>().join(" ")
}

/// Times of which the spread is shown.
struct TimeSpread {
    /// Unique in the document.
    id: &'static str,
    /// What takes its time.
    what: &'static str,
    /// Its times as a cumulative share.
    cumulative: fn(&LoadView) -> &[(u64, f64)],
    /// Its figures in a sentence.
    within: fn(&LoadView) -> String,
}

const OF_ANSWERS: TimeSpread = TimeSpread {
    id: "spread",
    what: "answers",
    cumulative: |load| &load.response_time_cumulative,
    within: |load| phrases::percentile_phrase("response time", &load.report.response_time_us),
};
const OF_PAGES: TimeSpread = TimeSpread {
    id: "page-spread",
    what: "pages",
    cumulative: |load| &load.page_time_cumulative,
    within: |load| {
        load.report
            .pages
            .as_ref()
            .map(|pages| phrases::percentile_phrase("pages", &pages.time_us))
            .unwrap_or_default()
    },
};

/// The loads whose distributions are compared: for tuning the first and the best one, else the last one.
fn compared<'a>(view: &'a View, of: &TimeSpread) -> Vec<(&'static str, String, &'a LoadView)> {
    let has = |load: &&LoadView| !(of.cumulative)(load).is_empty();
    let name = |word: &str, load: &LoadView| format!("{word}: {}", (of.within)(load));
    if let Outcome::Tune(tune) = &view.outcome {
        let find = |report: &webdyno_model::run::RunReport| {
            view.loads.iter().filter(has).find(|load| load.report == *report)
        };
        let before = find(&tune.baseline);
        let after = find(&tune.best).filter(|after| before.is_none_or(|before| before.load != after.load));
        let before = before.map(|load| ("first", name("before", load), load));
        let after = after.map(|load| ("second", name("after", load), load));
        return before.into_iter().chain(after).collect();
    }
    view.reported_load()
        .filter(has)
        .map(|load| ("second", name("measured", load), load))
        .into_iter()
        .collect()
}

fn spread(m: &mut Markup, view: &View, of: &TimeSpread) {
    let curves = compared(view, of);
    let all = || curves.iter().flat_map(|(_, _, load)| (of.cumulative)(load)).map(|(us, _)| *us as f64);
    let (smallest, largest) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    if largest <= 0.0 {
        return;
    }
    let frame = Frame { x: Axis::log_us(smallest, largest), y: Axis::shares(), height: 300.0 };
    let title = format!("Share of {} that took no longer than a time", of.what);
    let desc: Vec<_> = curves.iter().map(|(_, label, _)| label.clone()).collect();
    m.element("figure", &[], |m| {
        m.text_element(
            "figcaption",
            &format!("{title} (logarithmic). Further left is faster; steeper is steadier."),
        );
        let entries: Vec<_> = curves.iter().map(|(class, label, _)| (*class, label.clone())).collect();
        key(m, &entries);
        m.element("div", &[("class", "scroll")], |m| {
            frame.draw(m, &PlotText { id: of.id, title: &title, desc: &desc.join("; ") }, |m| {
                for (class, _, load) in &curves {
                    frame.curve(m, class, &steps((of.cumulative)(load)));
                }
            });
        });
    });
}

/// A cumulative share rises at its time and is level in between.
fn steps(cumulative: &[(u64, f64)]) -> Vec<(f64, f64)> {
    let mut level = 0.0;
    let mut points = vec![];
    for &(us, share) in cumulative {
        points.push((us as f64, level));
        points.push((us as f64, share));
        level = share;
    }
    points
}

fn write_reading_chart(m: &mut Markup, view: &View, series: &Series, index: usize, end_s: f64) {
    let values = || series.points.iter().map(|(_, value)| *value).filter(|value| value.is_finite());
    let largest = values().fold(0.0, f64::max);
    let quantity = |value: f64| human::quantity(value, &series.unit);
    // A share fills the axis at 100%, so that a nearly idle server looks idle.
    let largest = if series.unit == "fraction" { largest.max(1.0) } else { largest };
    let frame = Frame {
        x: Axis::seconds(end_s),
        y: Axis::zero_based(largest, tick_label(&series.unit)),
        height: 150.0,
    };
    let id = format!("reading-{index}");
    let unit = if series.unit == "fraction" { "share of 100%" } else { &series.unit };
    let title = format!("{} ({unit})", series.name);
    let count = values().count() as f64;
    let desc = if count > 0.0 {
        format!(
            "mean {}, at most {}",
            quantity(values().sum::<f64>() / count),
            quantity(values().fold(0.0, f64::max))
        )
    } else {
        "no reading".into()
    };
    m.element("figure", &[], |m| {
        m.text_element("figcaption", &format!("{title}: {desc}"));
        m.element("div", &[("class", "scroll")], |m| {
            frame.draw(m, &PlotText { id: &id, title: &title, desc: &desc }, |m| {
                shade_loads(&frame, m, view);
                for load in &view.loads {
                    frame.mark(m, load.begins_s, load.begins_s, "");
                }
                frame.curve(m, "second", &series.points);
            });
        });
    });
}

/// A tick's label: with its unit where the unit is a short one, else the caption has it.
fn tick_label(unit: &str) -> impl Fn(f64) -> String {
    let unit = unit.to_owned();
    let spelled =
        human::quantity(2.0, &unit).contains(char::is_whitespace) && unit.len() > 3 && unit != "bytes";
    move |value| {
        if spelled { human::number(value) } else { human::quantity(value, &unit) }
    }
}
