//! How near a load came to the stretch of a log that it sends again: a list that is sent in turn, or sessions that are made in turn,
//! in stages of its seconds.

use crate::measurement::Measurement;
use std::collections::BTreeMap;
use webdyno_model::interval::Interval;
use webdyno_model::number::significant;
use webdyno_model::run::{NamedReport, Replay};
use webdyno_model::workload::visit::{SessionSpec, Visits};
use webdyno_model::workload::{Arrival, Workload, stage};

type ByName = BTreeMap<String, NamedReport>;

/// What a load is to send.
#[derive(Debug, Default)]
struct Planned {
    /// Requests that are due in each second of the load.
    by_second: Vec<u64>,
    by_name: BTreeMap<String, u64>,
    /// Sessions, and the most of them that are active at the end of a second.
    sessions: Option<(u64, u64)>,
}

/// Sent against planned; `None` of any other load.
pub fn replay(measurement: &Measurement, by_name: &ByName) -> Option<Replay> {
    let workload = measurement.workload.as_ref()?;
    let is_open = matches!(workload.arrival, Arrival::Open { poisson: false, .. });
    let planned = planned(workload).filter(|_| is_open && !workload.stages.is_empty())?;
    let intervals = || measurement.intervals.iter();
    let whole = intervals().filter(|interval| interval.length_us >= 999_000);
    let sum = |of: fn(&Interval) -> u64| intervals().map(of).sum::<u64>();
    let widest = widest(&planned.by_name, by_name);
    let sessions = planned.sessions;
    Some(Replay {
        planned_requests: workload
            .list
            .as_ref()
            .map_or_else(|| planned.by_second.iter().sum(), |list| list.count),
        started_requests: sum(|interval| interval.started),
        planned_peak_rate: significant(planned.by_second.iter().copied().max().unwrap_or(0) as f64, 6),
        peak_rate: whole.map(|interval| interval.started).max().map(|most| most as f64),
        mix_difference: widest.as_ref().map(|(difference, _)| significant(difference.abs(), 3)),
        mix_name: widest.map(|(_, name)| name),
        planned_sessions: sessions.map(|(count, _)| count),
        started_sessions: sessions.map(|_| sum(|interval| interval.visits.sessions_started)),
        planned_active_sessions: sessions.map(|(_, active)| active),
        active_sessions: sessions.and_then(|_| intervals().map(|interval| interval.visits.visitors).max()),
    })
}

/// The largest difference of a name's share of all that ended from its planned share. What is counted under no name of its own is
/// planned under the one that all others have.
fn widest(planned: &BTreeMap<String, u64>, by_name: &ByName) -> Option<(f64, String)> {
    let others = by_name.keys().find(|name| !planned.contains_key(*name));
    let mut counts: BTreeMap<&String, u64> = BTreeMap::new();
    for (name, count) in planned {
        let name = others.filter(|_| !by_name.contains_key(name)).unwrap_or(name);
        *counts.entry(name).or_default() += count;
    }
    let ended = |named: &NamedReport| (named.completed + named.failed) as f64;
    let all: f64 = by_name.values().map(ended).sum();
    let of_plan: u64 = counts.values().sum();
    let share = |name: &String| by_name.get(name).map_or(0.0, |named| ended(named) / all.max(1.0));
    let differences = counts
        .iter()
        .map(|(name, count)| (share(name) - *count as f64 / of_plan.max(1) as f64, (*name).clone()));
    // Requests of one name are counted by none.
    differences.filter(|_| counts.len() > 1).max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
}

fn planned(workload: &Workload) -> Option<Planned> {
    match (&workload.list, &workload.visits) {
        (Some(list), _) => {
            let in_turn = !list.random && !list.weighted && !list.by_name.is_empty();
            let by_second = starts(workload);
            in_turn.then(|| Planned { by_second, by_name: list.by_name.clone(), sessions: None })
        }
        (None, Some(visits)) if visits.in_turn => Some(planned_sessions(workload, visits)),
        _ => None,
    }
}

/// Starts in each second of the load: those of the last one, where that is none, too.
fn starts(workload: &Workload) -> Vec<u64> {
    let seconds = stage::duration_us(&workload.stages).div_ceil(1_000_000);
    let up_to = |second: u64| stage::integral(&workload.stages, second as f64).round() as u64;
    (0..seconds).map(|second| up_to(second + 1) - up_to(second)).collect()
}

/// Sessions begin evenly in a stage; their steps are due at their times, if the server is fast enough.
fn planned_sessions(workload: &Workload, visits: &Visits) -> Planned {
    let seconds = stage::duration_us(&workload.stages).div_ceil(1_000_000) as usize;
    let mut planned = Planned { by_second: vec![0; seconds], ..Planned::default() };
    // Sessions more, or fewer, than in the second before.
    let mut changes = vec![0_i64; seconds + 1];
    let (mut begun, mut begin_s, mut integral) = (0, 0.0, 0.0_f64);
    let mut sessions = visits.sessions.iter().cycle();
    for stage in &workload.stages {
        integral += stage.integral(stage.duration_s());
        let count = (integral.round() as u64).saturating_sub(begun);
        for (number, session) in sessions.by_ref().take(count as usize).enumerate() {
            let at_s = begin_s + stage.duration_s() * number as f64 / count as f64;
            let place = |at_us: u64| ((at_s + at_us as f64 / 1e6) as usize).min(seconds);
            for step in &session.steps {
                planned
                    .by_second
                    .get_mut(place(step.at_us.unwrap_or(0)))
                    .into_iter()
                    .for_each(|due| *due += 1);
                let name = workload.requests.get(step.request).map(|request| request.name.clone());
                *planned.by_name.entry(name.unwrap_or_default()).or_default() += 1;
            }
            changes[place(0)] += 1;
            changes[place(last_us(session))] -= 1;
        }
        begun += count;
        begin_s += stage.duration_s();
    }
    let active = changes.iter().scan(0, |active, change| {
        *active += change;
        Some(*active as u64)
    });
    planned.sessions = Some((begun, active.max().unwrap_or(0)));
    planned
}

fn last_us(session: &SessionSpec) -> u64 {
    session.steps.iter().filter_map(|step| step.at_us).max().unwrap_or(0)
}
