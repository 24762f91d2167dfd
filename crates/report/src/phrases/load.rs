//! What was sent and how it arrived, in words: requests, lists, sessions of visitors, and how the load changed.

use super::transport;
use crate::human::{count, number, percent, plural, time_us};
use webdyno_model::workload::stage::{Shape, Stage};
use webdyno_model::workload::visit::{PageSpec, Resources, SessionSpec, StepSpec, Think, Visits};
use webdyno_model::workload::{Arrival, Workload};

/// More sessions or stages than this are summed up.
const LINES_MAX: usize = 5;
/// More steps of a session than this are summed up.
const STEPS_MAX: usize = 6;

/// What was sent and how, a sentence each.
pub(crate) fn load(workload: &Workload) -> Vec<String> {
    let mut lines = match &workload.visits {
        Some(visits) => sessions(workload, visits),
        None => requests(workload).into_iter().collect(),
    };
    lines.push(arrival(workload));
    lines.extend(stages(workload));
    if !workload.keepalive {
        lines.push("new connection per request, no keep-alive".into());
    }
    if workload.redirects_max > 0 {
        let most = plural(u64::from(workload.redirects_max), "redirect");
        lines.push(format!("follows up to {most}, timed as one request"));
    }
    lines.extend(workload.visits.iter().flat_map(|visits| visitor_behaviour(visits)));
    lines.extend(transport::transport(&workload.transport));
    lines
}

fn requests(workload: &Workload) -> Option<String> {
    if let Some(list) = &workload.list {
        let order = match (list.weighted, list.random) {
            (true, _) => "drawn by their weights",
            (false, true) => "drawn at random",
            (false, false) => "in turn",
        };
        return Some(format!("{} of {}, {order}", plural(list.count, "request"), list.file));
    }
    let (first, others) = workload.requests.split_first()?;
    let even = others.iter().all(|other| (other.weight - first.weight).abs() < f64::EPSILON);
    let tail = match others.len() as u64 {
        0 => String::new(),
        many if even => format!(" and {} in turn", plural(many, "other request")),
        many => format!(" and {}, drawn by their weights", plural(many, "other request")),
    };
    Some(format!("{} {}{tail}", first.method, first.url))
}

/// The sessions, and what the parts of their pages are.
fn sessions(workload: &Workload, visits: &Visits) -> Vec<String> {
    let steps: Vec<&StepSpec> = visits.sessions.iter().flat_map(|session| &session.steps).collect();
    let pages: Vec<&PageSpec> = steps.iter().filter_map(|step| step.page.as_ref()).collect();
    let mut lines = match steps.as_slice() {
        [only] => vec![step_text(workload, only)],
        _ => {
            // Of sessions in turn each has the same share.
            let total: f64 = visits.sessions.iter().map(|session| session.weight).sum();
            let total = (!visits.in_turn).then_some(total);
            let displayed = visits.sessions.iter().take(LINES_MAX);
            displayed.map(|session| session_text(workload, session, total)).collect()
        }
    };
    if let Some(more) = visits.sessions.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {}", plural(more as u64, "other session")));
    }
    lines.extend((!pages.is_empty()).then(|| {
        let most = plural(u64::from(visits.connections_per_host), "connection");
        format!("page: {}, at most {most} per host", parts(&pages))
    }));
    lines
}

fn step_text(workload: &Workload, step: &StepSpec) -> String {
    let kind = if step.page.is_some() { "page: " } else { "" };
    let request = workload.requests.get(step.request);
    request.map_or_else(|| "a step".into(), |request| format!("{kind}{} {}", request.method, request.url))
}

fn session_text(workload: &Workload, session: &SessionSpec, total: Option<f64>) -> String {
    let name = |step: &StepSpec| {
        let request = workload.requests.get(step.request).map_or("?", |request| request.name.as_str());
        if step.page.is_some() { format!("page {request}") } else { request.to_owned() }
    };
    let mut steps: Vec<String> = session.steps.iter().take(STEPS_MAX).map(name).collect();
    if let Some(more) = session.steps.len().checked_sub(STEPS_MAX).filter(|more| *more > 0) {
        steps.push(format!("and {}", plural(more as u64, "other step")));
    }
    let share = total.map(|total| session.weight / total).filter(|share| *share < 1.0);
    let share = share.map_or(String::new(), |share| format!(" ({} of them)", percent(share)));
    // Those without a name have a number: `session 7`.
    let word = if session.name.starts_with("session ") { "" } else { "session " };
    format!("{word}{}{share}: {}", session.name, steps.join(", "))
}

/// What is fetched besides the documents of these pages.
fn parts(pages: &[&PageSpec]) -> String {
    let any = |wanted: fn(&Resources) -> bool| pages.iter().any(|page| wanted(&page.resources));
    let found = any(|resources| matches!(resources, Resources::Found));
    let listed = any(|resources| matches!(resources, Resources::Listed(_)));
    match (found, listed) {
        (true, false) => "with the resources of its HTML and CSS".into(),
        (false, true) => {
            let listed = pages.iter().filter_map(|page| match &page.resources {
                Resources::Listed(parts) => Some(parts.len() as u64),
                _ => None,
            });
            match listed.max().unwrap_or(0) {
                most if pages.len() == 1 => {
                    let parts = plural(most, "other part");
                    format!("{parts} {} fetched too", if most == 1 { "is" } else { "are" })
                }
                most => format!("with its listed resources, at most {}", count(most)),
            }
        }
        (true, true) => "with its listed or found resources".into(),
        (false, false) => "document only".into(),
    }
}

fn arrival(workload: &Workload) -> String {
    let most = plural(u64::from(workload.connections), "connection");
    // Of a load in stages the figure is the highest one.
    let up_to = if workload.stages.is_empty() { "" } else { "up to " };
    let due = |rate_per_s: f64, poisson: bool, what: &str| {
        let random = if poisson { " (Poisson)" } else { "" };
        format!("{up_to}constant rate {} {what}/s{random}, open loop; at most {most}", number(rate_per_s))
    };
    match (workload.arrival, &workload.visits) {
        (Arrival::Closed, None) => {
            format!("{up_to}{}, closed loop", plural(u64::from(workload.concurrency()), "concurrent request"))
        }
        (Arrival::Closed, Some(visits)) => {
            format!("{up_to}{}, closed loop; at most {most}", plural(u64::from(visits.users), "user"))
        }
        (Arrival::Open { rate_per_s, poisson }, None) => due(rate_per_s, poisson, "req"),
        (Arrival::Open { rate_per_s, poisson }, Some(visits)) => {
            let what = if visits.returning_fraction > 0.0 { "sessions" } else { "sessions of new users" };
            due(rate_per_s, poisson, what)
        }
    }
}

/// How the load changed; `None` for one that did not.
fn stages(workload: &Workload) -> Option<String> {
    let unit = if workload.arrival == Arrival::Closed { "" } else { "/s" };
    let all = workload.stages.as_slice();
    let mut reported: Vec<String> = all.iter().take(LINES_MAX).map(|stage| stage_text(stage, unit)).collect();
    if let Some(more) = all.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
        reported.push(format!("and {}", plural(more as u64, "other stage")));
    }
    (!reported.is_empty()).then(|| format!("in stages: {}", reported.join("; ")))
}

fn stage_text(stage: &Stage, unit: &str) -> String {
    let level = |level: f64| number(level) + unit;
    let shape = match stage.shape {
        Shape::Hold { level: held } => level(held),
        Shape::Ramp { from, to } => format!("from {} to {}", level(from), level(to)),
        Shape::Spike { from, peak } => format!("from {} up to {} and back", level(from), level(peak)),
        Shape::Sine { low, high, period_us } => {
            format!(
                "waves between {} and {}, each {} long",
                level(low),
                level(high),
                time_us(period_us as f64)
            )
        }
    };
    let counts = if stage.measured { "" } else { " (not measured)" };
    format!("{} of {shape}{counts}", time_us(stage.duration_us as f64))
}

/// What visitors do besides asking.
fn visitor_behaviour(visits: &Visits) -> Vec<String> {
    let mut lines: Vec<String> = think_time_text(visits).into_iter().collect();
    if visits.cache {
        lines.push("users have a browser cache".into());
    }
    if visits.returning_fraction > 0.0 {
        let share = percent(visits.returning_fraction);
        lines.push(match visits.returning_fraction >= 1.0 {
            true => "users keep cookies and connections between sessions".into(),
            false => {
                format!("{share} of the sessions by returning users, the others by new ones")
            }
        });
    }
    if !visits.cookies {
        lines.push("users keep no cookies".into());
    }
    lines
}

fn think_time_text(visits: &Visits) -> Option<String> {
    let own =
        visits.sessions.iter().flat_map(|session| &session.steps).filter_map(|step| step.think.as_ref());
    let own = own.filter(|think| **think != visits.think).count() as u64;
    let general = think_text(visits.think);
    match (general, own) {
        (None, 0) => None,
        (Some(reported), 0) => Some(format!("think time {reported}")),
        (Some(reported), own) => {
            Some(format!("think time after a step: {reported}; {} of their own", with_steps(own)))
        }
        (None, own) => Some(format!("{} a think time", with_steps(own))),
    }
}

fn with_steps(steps: u64) -> String {
    if steps == 1 { "1 step has one".into() } else { format!("{} steps have one", count(steps)) }
}

fn think_text(think: Think) -> Option<String> {
    let time = |us: u64| time_us(us as f64);
    match think {
        Think::None => None,
        Think::Fixed { time_us: fixed } => Some(time(fixed)),
        Think::Uniform { min_us, max_us } => Some(format!("{} to {} (uniform)", time(min_us), time(max_us))),
        Think::Exponential { mean_us } => Some(format!("{} mean (exponential)", time(mean_us))),
        Think::LogNormal { median_us, sigma } => {
            Some(format!("{} median (log-normal, sigma {})", time(median_us), number(sigma)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_in_turn_have_a_number_and_no_share() {
        let session = |name: &str| SessionSpec { name: name.into(), weight: 1.0, steps: vec![] };
        for (in_turn, expected) in [
            (true, ["session 1: ", "session b: "]),
            (false, ["session 1 (50% of them): ", "session b (50% of them): "]),
        ] {
            let visits =
                Visits { sessions: vec![session("session 1"), session("b")], in_turn, ..Visits::default() };
            assert_eq!(sessions(&Workload::default(), &visits), expected);
        }
    }
}
