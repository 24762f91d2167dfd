//! What was measured of the figure that an objective looks at.

use super::{Figure, Objective, Scope, Statistic, TimeKind};
use crate::distribution::{Dist, PercentileNeed};
use crate::run::RunReport;
use std::collections::BTreeSet;

/// What a scope has: counts of what ended, its rate, and its times.
struct ScopeFigures<'a> {
    completed: u64,
    failed: u64,
    rate: Option<f64>,
    times: &'a Dist,
    /// Percentiles of `times` that the run is too short for, where that was found out.
    unsupported: &'a [String],
}

/// The value of an objective's figure; `None` when nothing was measured.
pub(super) fn value(objective: &Objective, run: &RunReport) -> Option<f64> {
    let measured = of_scope(&objective.scope, run)?;
    let ended = measured.completed + measured.failed;
    match objective.figure {
        Figure::Time(times, statistic) => of_dist(dist(times, &measured, run), statistic),
        Figure::ErrorFraction => (ended > 0).then(|| measured.failed as f64 / ended as f64),
        Figure::Failed => (ended > 0).then_some(measured.failed as f64),
        Figure::Rate => measured.rate,
    }
}

/// Whether the value is a percentile that the run is too short for.
pub(super) fn is_unsupported(objective: &Objective, run: &RunReport) -> bool {
    let Figure::Time(times, statistic) = objective.figure else { return false };
    let (Some(measured), Some(beyond)) = (of_scope(&objective.scope, run), statistic.beyond()) else {
        return false;
    };
    let count = dist(times, &measured, run).count;
    let needed = (PercentileNeed::BEYOND_MIN as f64 / beyond).round() as u64;
    // Response and service time are of the same answers.
    let same = matches!(times, TimeKind::Response | TimeKind::Service);
    let listed = same && measured.unsupported.iter().any(|name| name == statistic.name());
    count > 0 && (count < needed || listed)
}

/// How many requests in flight at the end have taken longer than the bound already, at least: as the percentiles of their times so
/// far tell it. Of all requests only: what is in flight is not known by name.
pub(super) fn in_flight_beyond(objective: &Objective, run: &RunReport) -> u64 {
    let is_of_all =
        objective.scope == Scope::All && matches!(objective.figure, Figure::Time(TimeKind::Response, _));
    let so_far = &run.censored_time_us;
    if !is_of_all || !objective.is_upper_bound() || so_far.count == 0 {
        return 0;
    }
    let is_beyond = |time: Option<u64>| time.is_some_and(|us| us as f64 > objective.bound);
    let shares = [
        (so_far.min, 1.0),
        (so_far.p50, 0.5),
        (so_far.p75, 0.25),
        (so_far.p90, 0.1),
        (so_far.p95, 0.05),
        (so_far.p99, 0.01),
    ];
    let share = shares.into_iter().find(|(time, _)| is_beyond(*time)).map_or(0.0, |(_, share)| share);
    ((so_far.count as f64 * share) as u64).max(u64::from(is_beyond(so_far.max)))
}

/// Whether so many in flight beyond the bound miss the objective, whatever those took that ended.
pub(super) fn is_missed_in_flight(objective: &Objective, run: &RunReport, beyond: u64) -> bool {
    let Figure::Time(_, statistic) = objective.figure else { return false };
    let all = (run.response_time_us.count + run.censored_time_us.count) as f64;
    match (statistic, statistic.beyond()) {
        (Statistic::Max, _) => beyond > 0,
        (_, Some(share)) => beyond as f64 > share * all,
        (_, None) => false,
    }
}

fn dist<'a>(times: TimeKind, measured: &ScopeFigures<'a>, run: &'a RunReport) -> &'a Dist {
    match times {
        TimeKind::Response => measured.times,
        TimeKind::Service => &run.service_time_us,
        TimeKind::Connect => &run.connect_time_us,
        TimeKind::FirstByte => &run.first_byte_us,
        TimeKind::ClientDelay => &run.client_delay_us,
    }
}

fn of_dist(dist: &Dist, statistic: Statistic) -> Option<f64> {
    let time = match statistic {
        Statistic::Mean => return dist.mean,
        Statistic::P50 => dist.p50,
        Statistic::P75 => dist.p75,
        Statistic::P90 => dist.p90,
        Statistic::P95 => dist.p95,
        Statistic::P99 => dist.p99,
        Statistic::P999 => dist.p999,
        Statistic::Max => dist.max,
    };
    time.map(|us| us as f64)
}

fn of_scope<'a>(scope: &Scope, run: &'a RunReport) -> Option<ScopeFigures<'a>> {
    match scope {
        Scope::All => Some(all(run)),
        Scope::Pages => pages(run),
        // Where there is one name only, its figures are those of all.
        Scope::Request(name) => {
            request(name, run).or_else(|| Some(all(run)).filter(|_| is_only_name(name, run)))
        }
        Scope::Page(name) => {
            let report = run.pages.as_ref()?;
            let named = report.by_name.get(name).map(|named| ScopeFigures {
                completed: named.completed,
                failed: named.failed,
                rate: named.rate,
                times: &named.time_us,
                unsupported: &[],
            });
            let workload = run.workload.as_ref();
            let is_alone = || {
                report.by_name.is_empty()
                    && workload
                        .is_some_and(|workload| workload.page_names() == BTreeSet::from([name.as_str()]))
            };
            named.or_else(|| pages(run).filter(|_| is_alone()))
        }
    }
}

fn all(run: &RunReport) -> ScopeFigures<'_> {
    ScopeFigures {
        completed: run.requests.completed,
        failed: run.requests.failed,
        rate: run.rate,
        times: &run.response_time_us,
        unsupported: &run.unsupported_percentiles,
    }
}

fn pages(run: &RunReport) -> Option<ScopeFigures<'_>> {
    let pages = run.pages.as_ref()?;
    Some(ScopeFigures {
        completed: pages.completed,
        failed: pages.failed,
        rate: pages.rate,
        times: &pages.time_us,
        unsupported: &pages.unsupported_percentiles,
    })
}

fn request<'a>(name: &str, run: &'a RunReport) -> Option<ScopeFigures<'a>> {
    let named = run.requests_by_name.get(name)?;
    let rate = (run.elapsed_s > 0.0).then(|| named.completed as f64 / run.elapsed_s);
    Some(ScopeFigures {
        completed: named.completed,
        failed: named.failed,
        rate: rate.map(|rate| crate::number::significant(rate, 6)),
        times: &named.response_time_us,
        unsupported: &[],
    })
}

/// Whether every request of the run had this name. What pages find, and a list, have names of their own; of a list that has
/// one alone it is this, as others are refused before the load.
fn is_only_name(name: &str, run: &RunReport) -> bool {
    let workload = run.workload.as_ref().filter(|workload| !workload.finds_resources());
    run.requests_by_name.is_empty()
        && workload.is_some_and(|workload| {
            workload.list.is_some() || workload.request_names() == BTreeSet::from([name])
        })
}
