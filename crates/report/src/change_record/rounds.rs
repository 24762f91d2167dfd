//! The attempts of a session in its change record: those that stayed in full, the others in a line or two.

use super::markdown::Markdown;
use super::ratio;
use crate::human::{UNKNOWN, rate_or_unknown, share, time, time_us};
use crate::phrases;
use std::collections::BTreeSet;
use webdyno_model::change::{ApplyClass, Change};
use webdyno_model::fact::Fact;
use webdyno_model::purpose::Purpose;
use webdyno_model::run::RunReport;
use webdyno_model::tune::{Round, TuneReport};
use webdyno_session::recording::{PlanAttempt, Reverted};
use webdyno_session::view::View;

/// A plan with what the recording has of it: the attempt itself, and the round, where it came to its end.
pub(super) struct AttemptedChange<'a> {
    pub(super) n: u32,
    /// What was to change.
    pub(super) changes: &'a [Change],
    /// As it was shown.
    pub(super) diff: &'a str,
    attempt: Option<&'a PlanAttempt>,
    round: Option<&'a Round>,
    before: Option<&'a RunReport>,
    after: Option<&'a RunReport>,
}

/// All attempts of a session, in order.
pub(super) fn attempted<'a>(view: &'a View, tune: &'a TuneReport) -> Vec<AttemptedChange<'a>> {
    let mut numbers: Vec<u32> = tune.rounds.iter().map(|round| round.n).collect();
    numbers.extend(view.attempts.iter().map(|attempt| attempt.n));
    numbers.sort_unstable();
    numbers.dedup();
    let of = |n: u32| {
        let round = tune.rounds.iter().find(|round| round.n == n);
        let attempt = view.attempts.iter().find(|attempt| attempt.n == n);
        let of_attempt = attempt.map(|attempt| (attempt.changes.as_slice(), attempt.diff.as_str()));
        let (changes, diff) =
            round.map(|round| (round.changes.as_slice(), round.diff.as_str())).or(of_attempt)?;
        let (before, after) = runs(view, tune, n);
        Some(AttemptedChange { n, changes, diff, attempt, round, before, after })
    };
    numbers.into_iter().filter_map(of).collect()
}

/// The runs that a round compared: what was best until then, and what was measured after the change.
fn runs<'a>(view: &'a View, tune: &TuneReport, n: u32) -> (Option<&'a RunReport>, Option<&'a RunReport>) {
    let of_round = |n: u32| view.loads.iter().find(|load| load.round == Some(n)).map(|load| &load.report);
    let kept = tune.rounds.iter().rev().find(|round| round.kept && round.n < n);
    let baseline =
        || view.loads.iter().find(|load| load.purpose == Purpose::Baseline).map(|load| &load.report);
    (kept.map_or_else(baseline, |round| of_round(round.n)), of_round(n))
}

impl AttemptedChange<'_> {
    /// Whether it was ever in force. Only what was in force was measured.
    pub(super) fn was_applied(&self) -> bool {
        self.attempt.is_some_and(|attempt| attempt.applied.is_some())
            || self.round.is_some_and(|round| round.verdict.is_some())
    }

    /// Whether its round ended with keeping it.
    pub(super) fn was_kept(&self) -> bool {
        self.round.is_some_and(|round| round.kept)
    }

    /// Whether it was in force and nothing says that it was put back.
    pub(super) fn may_be_in_force(&self) -> bool {
        match self.attempt.filter(|attempt| attempt.applied.is_some()) {
            Some(attempt) => attempt.put_back.is_none(),
            None => self.was_kept(),
        }
    }

    fn outage_us(&self) -> Option<u64> {
        let applied = self.attempt.and_then(|attempt| attempt.applied);
        self.round.and_then(|round| round.outage_us).or(applied.and_then(|applied| applied.outage_us))
    }

    fn apply_class(&self) -> Option<ApplyClass> {
        self.changes.iter().map(|change| change.class).max()
    }

    fn finding(&self) -> &str {
        let of_attempt = self.attempt.map(|attempt| attempt.finding.id.as_str());
        self.round.map(|round| round.finding.as_str()).or(of_attempt).unwrap_or(UNKNOWN)
    }

    fn summary(&self) -> &str {
        let of_attempt = self.attempt.map(|attempt| attempt.finding.summary.as_str());
        self.round.map(|round| round.summary.as_str()).or(of_attempt).unwrap_or(UNKNOWN)
    }

    fn facts(&self) -> &[Fact] {
        self.attempt.map_or(&[], |attempt| &attempt.finding.facts)
    }

    /// The services and files of its changes, each once.
    fn files(&self) -> BTreeSet<(&str, &str)> {
        self.changes.iter().map(|change| (change.setting.target.name(), change.file.as_str())).collect()
    }

    fn settings(&self) -> String {
        let all: Vec<_> = self.changes.iter().map(phrases::change).collect();
        if all.is_empty() { "nothing that could be written".into() } else { all.join(", ") }
    }
}

/// One change that stayed.
pub(super) fn write_in_full(page: &mut Markdown, of: &AttemptedChange<'_>, facts_max: usize) {
    page.heading(&format!("Change {}: {}", of.n, of.settings()));
    let class = of.apply_class().map_or("nothing", ApplyClass::name);
    for (service, file) in of.files() {
        page.item("File", &format!("`{file}` of {service}, by {class}"));
    }
    page.item("Why", &format!("{} ({})", of.summary(), of.finding()));
    for fact in of.facts().iter().take(facts_max) {
        let (name, value) = (phrases::fact_name(fact), phrases::fact_value(fact));
        page.item("Fact", &format!("{name} {value} ({}, {})", fact.source, phrases::fact_window(fact)));
    }
    page.item("Proof", &proof(of));
    if let Some(surprise) = of.round.and_then(phrases::surprise_text) {
        page.item("Expected", &surprise);
    }
    if let Some(judged) = of.round.and_then(phrases::judged_text) {
        page.item("Noise", &judged);
    }
    page.item("Risk", of.round.and_then(|round| round.risk.as_deref()).unwrap_or("not recorded"));
    page.item("Downtime", &phrases::apply_effect(of.apply_class(), of.outage_us()));
}

/// Rate, failures and response times before and after, and the verdict on them.
fn proof(of: &AttemptedChange<'_>) -> String {
    let Some(round) = of.round.filter(|round| round.verdict.is_some()) else {
        return "none: the session ended before it was measured".into();
    };
    let rates = format!("{} -> {} req/s", rate_or_unknown(round.before), rate_or_unknown(round.after));
    let gain = round.ratio.map_or_else(|| UNKNOWN.into(), |value| ratio(value, round.ci95));
    let verdict = round.verdict.map_or(UNKNOWN, |verdict| verdict.name());
    let pair = |figure: fn(&RunReport) -> String| {
        let reported = |run: Option<&RunReport>| run.map_or_else(|| UNKNOWN.into(), figure);
        format!("{} -> {}", reported(of.before), reported(of.after))
    };
    let failed = pair(|run| share(run.requests.failed, run.requests.completed + run.requests.failed));
    let slowest = pair(|run| time(run.response_time_us.p99));
    format!("{rates}, {gain}: {verdict}; failed {failed}; p99 {slowest}")
}

/// One attempt that did not stay.
pub(super) fn write_in_short(page: &mut Markdown, of: &AttemptedChange<'_>) {
    let label = format!("Change {}", of.n);
    let what = format!("{} ({})", of.settings(), of.finding());
    if let Some(round) = of.round.filter(|round| phrases::is_proposal(round)) {
        return phrases::owners(round)
            .iter()
            .for_each(|owner| page.item(&label, &format!("{what}: {owner}")));
    }
    if !of.was_applied() {
        return page.item(&label, &format!("{what}: planned, not applied"));
    }
    let verdict = match of.round.and_then(|round| round.verdict.map(|verdict| (round, verdict))) {
        Some((round, verdict)) => {
            let gain = round.ratio.map(|value| format!(", {}", ratio(value, round.ci95)));
            format!("{}{}", verdict.name(), gain.unwrap_or_default())
        }
        None => "not fully measured".into(),
    };
    let back = match of.attempt.and_then(|attempt| attempt.put_back) {
        Some(Reverted { outage_us: Some(0) }) => "reverted, no downtime".into(),
        Some(Reverted { outage_us: Some(us) }) => {
            format!("reverted (downtime {})", time_us(us as f64))
        }
        _ => "reverted".into(),
    };
    page.item(
        &label,
        &format!("{what}: {verdict}; {}; {back}", phrases::apply_effect(of.apply_class(), of.outage_us())),
    );
}
