//! `webdyno predict` against what was measured: two rounds of a scenario between which only the size of a pool was changed, and the
//! number of users. Each predicts the other. Pure.

use super::JudgedRound;
use super::ceilings::is_same_load;
use std::fmt::Write as _;
use webdyno_analysis::diagnosis::prediction::{KNOWN, Supposition, predict};
use webdyno_analysis::facts::{FactId, Facts, facts};
use webdyno_analysis::limits::LimitId;
use webdyno_analysis::run_report::run_report;
use webdyno_lab::scenario::ScenarioRound;
use webdyno_model::Result;
use webdyno_model::change::SettingChange;
use webdyno_model::number::human;
use webdyno_model::prediction::{Estimate, PredictReport};
use webdyno_model::run::RunReport;
use webdyno_model::service::SettingScope;

/// A predicted rate is near when it is off by no more than this share of what was measured,
pub const RATE_NEAR: f64 = 0.15;
/// and a mean response time by no more than this.
pub const TIME_NEAR: f64 = 0.20;

/// A figure that was predicted, and what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedFigure {
    /// With its interval.
    pub predicted: Estimate,
    /// With the settings that were supposed.
    pub measured: f64,
}

impl PredictedFigure {
    /// By how much it is off: 0.15 is 15% too high.
    pub fn error(&self) -> f64 {
        self.predicted.value / self.measured - 1.0
    }

    /// Whether the interval holds what was measured.
    pub fn holds(&self) -> bool {
        // A few more or fewer requests than arrive end within the time.
        self.predicted
            .ci95
            .is_some_and(|[least, most]| self.measured >= least * 0.99 && self.measured <= most * 1.01)
    }
}

/// What one round predicts of another.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundPrediction {
    /// The scenario.
    pub scenario: String,
    /// The round that predicts, from 1.
    pub from: usize,
    /// The round that was measured.
    pub of: usize,
    /// `MaxRequestWorkers 20 to 100`.
    pub supposed: String,
    /// Successful requests per second of the round that predicts.
    pub before: f64,
    /// Successful requests per second; `None` where nothing is predicted.
    pub rate: Option<PredictedFigure>,
    /// Mean response time, microseconds; `None` where nothing is predicted.
    pub response_us: Option<PredictedFigure>,
    /// Mean time of a page, microseconds; `None` where no pages were asked for, or nothing is predicted.
    pub page_us: Option<PredictedFigure>,
    /// Why nothing is predicted, or what goes with it.
    pub notes: Vec<String>,
}

impl RoundPrediction {
    /// Whether what is predicted is near enough; `None` where nothing is.
    pub fn is_near(&self) -> Option<bool> {
        let rate = self.rate.as_ref()?;
        let mut times = [&self.response_us, &self.page_us].into_iter().flatten();
        Some(rate.error().abs() <= RATE_NEAR && times.all(|time| time.error().abs() <= TIME_NEAR))
    }
}

/// A round whose rate is the server's.
struct Observed<'a> {
    case: &'a JudgedRound,
    run: RunReport,
    facts: Facts,
    sizes: Vec<SettingChange>,
}

/// Every prediction that the recordings of these cases allow.
pub fn predictions(cases: &[JudgedRound]) -> Result<Vec<RoundPrediction>> {
    let mut observed = vec![];
    for case in cases.iter().filter(|case| case.measurement.workload.is_some()) {
        let run = run_report(&case.measurement)?;
        let facts = facts(&case.measurement, Some(&run))?;
        if facts.harm_guard_trip.is_none() && run.rate.is_some_and(|rate| rate > 0.0) {
            observed.push(Observed { case, sizes: sizes(&facts), run, facts });
        }
    }
    let mut found = vec![];
    for from in &observed {
        for of in observed.iter().filter(|of| is_same_load(from.case, of.case)) {
            found.extend(of_pair(&observed, from, of)?);
        }
    }
    Ok(found)
}

fn of_pair(all: &[Observed<'_>], from: &Observed<'_>, of: &Observed<'_>) -> Result<Option<RoundPrediction>> {
    let (low, high) = ordered(from.case.place.number, of.case.place.number);
    let between =
        all.iter().map(|one| one.case).filter(|case| case.place.scenario == from.case.place.scenario);
    let mut steps = between.filter(|case| (low + 1..=high).contains(&case.place.number));
    let changes: Vec<SettingChange> =
        of.sizes.iter().filter(|size| !from.sizes.contains(size)).cloned().collect();
    let users = |one: &Observed<'_>| one.facts.value(FactId::users);
    let supposed_users = users(of).filter(|_| users(from) != users(of));
    let is_read = |name: &str| {
        [from, of].iter().all(|one| one.sizes.iter().any(|size| size.setting.name.ends_with(name)))
    };
    let is_tabled = |case: &JudgedRound| case.round.finding == LimitId::ConntrackFull.as_str();
    if is_tabled(of.case)
        || !steps.all(|case| sizes_alone(&case.round, is_read))
        || (changes.is_empty() && supposed_users.is_none())
    {
        return Ok(None);
    }
    let supposed = Supposition { changes, users: supposed_users, rate: None };
    let report = predict(&from.case.measurement, &supposed)?;
    Ok(Some(compared(from, of, &supposed, report)))
}

fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

fn compared(
    from: &Observed<'_>,
    of: &Observed<'_>,
    supposed: &Supposition,
    report: PredictReport,
) -> RoundPrediction {
    let was = |change: &SettingChange| {
        let before = from.sizes.iter().find(|size| size.setting == change.setting);
        before.map_or("?".to_owned(), |size| size.to.to_string())
    };
    let texts = supposed
        .changes
        .iter()
        .map(|change| format!("{} {} to {}", change.setting.name, was(change), change.to));
    let users = supposed.users.map(|users| format!("{users} users"));
    let figure = |predicted: Option<Estimate>, measured: Option<f64>| {
        predicted.zip(measured).map(|(predicted, measured)| PredictedFigure { predicted, measured })
    };
    RoundPrediction {
        scenario: from.case.place.scenario.clone(),
        from: from.case.place.number,
        of: of.case.place.number,
        supposed: texts.chain(users).collect::<Vec<_>>().join(", "),
        before: from.run.rate.unwrap_or(0.0),
        rate: figure(report.rate, of.run.rate),
        response_us: figure(report.response_time_mean_us, of.run.response_time_us.mean),
        page_us: figure(report.page_time_mean_us, of.facts.value(FactId::page_time_mean_us)),
        notes: report.notes,
    }
}

/// The sizes of pools that were in force.
fn sizes(facts: &Facts) -> Vec<SettingChange> {
    let number = |target: &str, name: &str| match target {
        "apache" => {
            facts.service.as_ref().filter(|service| service.service == target)?.configured_number(name)
        }
        "mariadb" => facts.value(FactId::ahead_database_limit),
        _ => {
            let pools = facts.backends(target).flat_map(|service| &service.scoped);
            let mut set = pools.filter(|one| {
                one.setting == name && matches!(one.scope.first(), Some(SettingScope::Pool(_)))
            });
            let set = set.next().and_then(|one| one.value.parse().ok());
            // Recordings of before their files were kept: as many as ran.
            set.or_else(|| facts.value(FactId::ahead_fpm_processes_max))
        }
    };
    let of_services = KNOWN.iter().filter(|known| known.target != "hardware");
    of_services.filter_map(|known| Some(known.to(number(known.target, known.name)?, None))).collect()
}

/// Settings whose size is read of a recording.
const SIZES: [&str; 3] = ["MaxRequestWorkers", "max_children", "max_connections"];
/// Words of commands that change no size of a pool, and nothing that a request costs.
const HARMLESS: [&str; 4] = ["apache2 -k", "systemctl re", "kill -USR2", "sleep "];
/// A setting of the kernel that only decides for how long a load can last.
const TABLE: &str = "net.netfilter.nf_conntrack_max";

/// Whether all that changed before a round are sizes of pools that were read.
fn sizes_alone(round: &ScenarioRound, is_read: impl Fn(&str) -> bool) -> bool {
    let is_size = |line: &String| {
        let mut named = SIZES.iter().filter(|name| line.contains(**name)).peekable();
        let is_known = named.peek().is_some() && named.all(|name| is_read(name));
        is_known || HARMLESS.iter().any(|part| line.contains(part))
    };
    round.by_hand_on.is_empty()
        && round.hosts.is_empty()
        && round.links.is_empty()
        && round.machine.sysctl.keys().all(|name| name == TABLE)
        && round.by_hand.iter().all(is_size)
}

/// `(near, predicted, all)`.
pub fn counts(all: &[RoundPrediction]) -> (usize, usize, usize) {
    let told: Vec<bool> = all.iter().filter_map(RoundPrediction::is_near).collect();
    (told.iter().filter(|near| **near).count(), told.len(), all.len())
}

/// A line for each, and the sums.
pub fn text(all: &[RoundPrediction]) -> String {
    let mut text = String::new();
    for one in all {
        let state = match one.is_near() {
            Some(true) => "near  ",
            Some(false) => "OFF   ",
            None => "untold",
        };
        let figure = |figure: &Option<PredictedFigure>| {
            figure.as_ref().map_or("nothing".into(), |one| {
                let holds = if one.holds() { "" } else { " outside" };
                format!(
                    "{:.1} then {:.1} ({:+.1}%{holds})",
                    one.predicted.value,
                    one.measured,
                    100.0 * one.error()
                )
            })
        };
        let _ = writeln!(
            text,
            "{state} {} {} -> {}  {}: {:.1}/s, predicted {}; response {}; page {}; {}",
            one.scenario,
            one.from,
            one.of,
            one.supposed,
            one.before,
            figure(&one.rate),
            figure(&one.response_us),
            figure(&one.page_us),
            one.notes.join(" ")
        );
    }
    let (near, told, all) = counts(all);
    let _ = writeln!(text, "{near} of {told} predictions are near; of {all} something could be predicted");
    text
}

/// What stands above the table.
const HEAD: &str = "\
<!-- Made by `webdyno-evaluation judge` from the kept recordings. -->
# Predictions, measured

What `webdyno predict` says of a recording, against what was measured with those settings: pairs of rounds of the lab's scenarios
under the same load, between which only the sizes of pools were changed. Each round predicts the other. The model was made with these
recordings at hand: what it says of new servers is the better test.

";

/// docs/predictions.md.
pub fn page(all: &[RoundPrediction]) -> String {
    let (near, told, count) = counts(all);
    let figures = |one: &RoundPrediction| [&one.rate, &one.response_us, &one.page_us].map(Clone::clone);
    let told_figures: Vec<PredictedFigure> = all.iter().flat_map(figures).flatten().collect();
    let holds = told_figures.iter().filter(|one| one.holds()).count();
    let mut text = HEAD.to_owned();
    let _ = writeln!(
        text,
        "{near} of {told} predictions are near: the rate within {:.0}% and the mean time within {:.0}% of what was measured. {holds} of \
         {} figures lie within their 95% interval. Of the other {} pairs nothing is predicted; why stands below.\n",
        RATE_NEAR * 100.0,
        TIME_NEAR * 100.0,
        told_figures.len(),
        count - told
    );
    text.push_str("| scenario | rounds | supposed | req/s before | predicted | measured | | time predicted | measured | | |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for one in all {
        let (Some(rate), Some(near)) = (&one.rate, one.is_near()) else { continue };
        let time = one.response_us.as_ref().or(one.page_us.as_ref());
        let time = time.map_or(" | | ".into(), |time| {
            let [predicted, measured] = [time.predicted.value, time.measured].map(human::time_us);
            format!("{predicted} | {measured} | {:+.0}%", time.error() * 100.0)
        });
        let (name, state) = (&one.scenario, if near { "near" } else { "**off**" });
        let _ = writeln!(
            text,
            "| [{name}](scenarios/{name}.md) | {} to {} | {} | {:.1} | {} | {:.1} | {:+.0}% | {time} | {state} |",
            one.from,
            one.of,
            one.supposed,
            one.before,
            rate.predicted.value,
            rate.measured,
            rate.error() * 100.0
        );
    }
    text.push_str("\n## Nothing is predicted\n\n| scenario | rounds | supposed | why |\n|---|---|---|---|\n");
    for one in all.iter().filter(|one| one.rate.is_none()) {
        let why = one
            .notes
            .iter()
            .find(|note| note.contains("is predicted:"))
            .map_or("", |note| note.split_once("is predicted: ").map_or(note.as_str(), |(_, why)| why));
        let name = &one.scenario;
        let _ = writeln!(
            text,
            "| [{name}](scenarios/{name}.md) | {} to {} | {} | {why} |",
            one.from, one.of, one.supposed
        );
    }
    text
}
