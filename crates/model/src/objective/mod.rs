//! Objectives: `p99<200ms`, `errors<0.1%`, `page /shop: p95<2s`. What a run must meet to end with exit code 0.

mod figure;
mod measured;

use crate::error::{Result, UserError};
use crate::run::ObjectiveResult;
use crate::run::RunReport;
use figure::FIGURES;
pub use figure::{Figure, Scope, Statistic, TimeKind};
use serde::{Deserialize, Serialize};

/// One objective, kept with the text the user wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Objective {
    text: String,
    scope: Scope,
    figure: Figure,
    below: bool,
    or_equal: bool,
    bound: f64,
}

impl Objective {
    /// Reads `[SCOPE:] FIGURE<BOUND` or `FIGURE>BOUND` (also `<=`, `>=`). Scopes: `page`, `page NAME`, `request NAME`;
    /// the last colon ends a name, and one within double quotes (doubled inside) is taken as it is. Figures: mean, p50,
    /// p75, p90, p95, p99, p999, max (with us, ms, s or m), errors (with %), failed, rate; `pages/s` is the rate of pages.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            UserError::usage(format!("`{text}` is not an objective: {why}"))
                .hint("write FIGURE<BOUND, as in --slo 'p99<200ms', --slo 'errors<0.1%', --slo 'page /shop: p95<2s'")
        };
        let (scope, condition) = scope(text.trim()).map_err(|why| wrong(&why))?;
        let at = condition.find(['<', '>']).ok_or_else(|| wrong("it has neither < nor >"))?;
        let below = condition[at..].starts_with('<');
        let rest = &condition[at + 1..];
        let (or_equal, bound) = rest.strip_prefix('=').map_or((false, rest), |bound| (true, bound));
        let name = condition[..at].trim();
        let (scope, figure) = match (name, scope) {
            ("pages/s", Scope::All | Scope::Pages) => (Scope::Pages, Figure::Rate),
            (name, scope) => {
                let none = || wrong(&format!("the figure is none of {FIGURES}"));
                (scope, Figure::parse(name).ok_or_else(none)?)
            }
        };
        if scope != Scope::All && figure.needs_all_requests() {
            return Err(wrong("that time is only known of all requests together"));
        }
        let bound = figure.parse_bound(bound.trim()).ok_or_else(|| wrong(figure.bound_help()))?;
        Ok(Self { text: text.to_owned(), scope, figure, below, or_equal, bound })
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whose figure it is.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What it looks at.
    pub fn figure(&self) -> Figure {
        self.figure
    }

    /// Its bound, in the unit of the figure.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// Whether values below the bound are the good ones.
    pub fn is_upper_bound(&self) -> bool {
        self.below
    }

    /// Whether a value of its figure meets it.
    pub fn is_met_by(&self, value: f64) -> bool {
        let strictly = if self.below { value < self.bound } else { value > self.bound };
        strictly || (self.or_equal && value == self.bound)
    }

    /// Holds the objective against a run.
    pub fn check(&self, run: &RunReport) -> ObjectiveResult {
        let value = measured::value(self, run);
        let in_flight_beyond = measured::in_flight_beyond(self, run);
        let is_stuck = measured::is_missed_in_flight(self, run, in_flight_beyond);
        let met = value.is_some_and(|value| self.is_met_by(value)) && !is_stuck;
        let unsupported = measured::is_unsupported(self, run);
        let in_flight_beyond = if is_stuck { in_flight_beyond } else { 0 };
        ObjectiveResult { slo: self.text.clone(), value, met, unsupported, in_flight_beyond }
    }
}

/// The scope, and the condition behind it.
fn scope(text: &str) -> std::result::Result<(Scope, &str), String> {
    let word = text.find(|c: char| !c.is_ascii_alphabetic()).map_or(text, |end| &text[..end]);
    let rest = &text[word.len()..];
    if !matches!(word, "page" | "request") || !rest.starts_with([':', ' ', '\t']) {
        return Ok((Scope::All, text));
    }
    // The condition has no colon of its own, so that the last one ends the name, whatever else is in it.
    let colon = rest.rfind(':');
    let (name, condition) =
        colon.map(|colon| (rest[..colon].trim(), &rest[colon + 1..])).ok_or_else(|| {
            format!("put a colon between the {word} and the figure, as in '{word} NAME: p95<2s'")
        })?;
    let name = unquoted(name)?;
    match (word, name.is_empty()) {
        ("page", true) => Ok((Scope::Pages, condition)),
        ("page", false) => Ok((Scope::Page(name), condition)),
        (_, false) => Ok((Scope::Request(name), condition)),
        (_, true) => Err("which request? without `request:` it is of all requests".into()),
    }
}

/// A name within double quotes without them; a doubled quote inside is one.
fn unquoted(name: &str) -> std::result::Result<String, String> {
    let Some(inside) = name.strip_prefix('"') else { return Ok(name.to_owned()) };
    let whole = inside.strip_suffix('"').filter(|inside| !inside.replace("\"\"", "").contains('"'));
    let name =
        whole.ok_or("a name that begins with a double quote ends with one, and has others doubled inside")?;
    if name.is_empty() {
        return Err("the name within the quotes is empty".into());
    }
    Ok(name.replace("\"\"", "\""))
}

impl TryFrom<String> for Objective {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> Self {
        objective.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Dist;
    use crate::page::{NamedPageReport, PageReport};
    use crate::run::NamedReport;
    use crate::workload::{RequestSpec, Workload};

    fn run(rate: f64, completed: u64, failed: u64, p99_us: Option<u64>) -> RunReport {
        let mut run = RunReport { rate: Some(rate), ..RunReport::default() };
        (run.requests.completed, run.requests.failed) = (completed, failed);
        run.response_time_us.p99 = p99_us;
        run
    }

    #[test]
    fn objectives_hold_against_a_run() {
        let measured = run(500.0, 999, 1, Some(200_000));
        for (text, met) in [
            ("p99<200ms", false),
            ("p99<=200ms", true),
            ("p99 < 0.3s", true),
            ("errors<0.1%", false),
            ("errors<=0.1%", true),
            ("rate>499", true),
            ("rate>500 req/s", false),
            ("mean<1s", false), // nothing measured: not met
        ] {
            assert_eq!(Objective::parse(text).unwrap().check(&measured).met, met, "{text}");
        }
    }

    #[test]
    fn scopes_are_read_whatever_the_name() {
        let page = |name: &str| Scope::Page(name.to_owned());
        let request = |name: &str| Scope::Request(name.to_owned());
        for (text, scope) in [
            ("p99<1s", Scope::All),
            ("page: p95<2s", Scope::Pages),
            ("pages/s>70", Scope::Pages),
            ("page: pages/s > 70", Scope::Pages),
            ("page: rate>70 pages/s", Scope::Pages),
            ("page /shop: p95<2s", page("/shop")),
            ("page http://h:80/a b: p95<2s", page("http://h:80/a b")),
            ("request log in: errors<1%", request("log in")),
            ("request a<b: failed<=0", request("a<b")),
            ("request a\"b: failed<1", request("a\"b")),
            ("request \" a: \"\"b\"\" \": failed<1", request(" a: \"b\" ")),
            (" request\tx:p99.9<=3m", request("x")),
        ] {
            let objective = Objective::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(objective.scope(), &scope, "{text}");
            assert_eq!(String::from(objective), text);
        }
    }

    #[test]
    fn figures_have_their_unit_and_bound() {
        for (text, unit, bound, is_met_at) in [
            ("service.p99<=2ms", "us", 2000.0, true),
            ("connect.max<2m", "us", 120e6, false),
            ("first_byte.mean<1s", "us", 1e6, false),
            ("client_delay.p50<1us", "us", 1.0, false),
            ("failed<=3", "count", 3.0, true),
            ("errors<=1%", "fraction", 0.01, true),
            ("rate>=70/s", "1/s", 70.0, true),
        ] {
            let objective = Objective::parse(text).unwrap();
            assert_eq!((objective.figure().unit(), objective.bound()), (unit, bound), "{text}");
            assert_eq!(objective.is_met_by(bound), is_met_at, "{text}");
            assert_eq!(objective.is_upper_bound(), text.contains('<'));
        }
    }

    /// Pages of `/` and `/b`, requests of `/`, `/b` and a picture.
    fn pages() -> RunReport {
        let dist = |count, p95| Dist { count, p95: Some(p95), p50: Some(p95 / 2), ..Dist::default() };
        let mut run = RunReport { elapsed_s: 10.0, ..run(30.0, 300, 0, Some(1)) };
        let page = |completed, failed, p95| NamedPageReport {
            completed,
            failed,
            rate: Some(completed as f64 / 10.0),
            time_us: dist(completed, p95),
        };
        run.pages = Some(PageReport {
            completed: 150,
            failed: 50,
            rate: Some(15.0),
            time_us: dist(150, 900_000),
            by_name: [("/".into(), page(100, 0, 500_000)), ("/b".into(), page(50, 50, 1_000_000))].into(),
            ..PageReport::default()
        });
        let named =
            |completed, failed| NamedReport { completed, failed, response_time_us: dist(completed, 7000) };
        run.requests_by_name = [("/".into(), named(100, 0)), ("/b".into(), named(50, 50))].into();
        run
    }

    #[test]
    fn each_scope_has_its_own_figures() {
        for (text, value, unsupported) in [
            ("page: p95<2s", Some(900_000.0), true),
            ("page: p50<2s", Some(450_000.0), false),
            ("pages/s>1", Some(15.0), false),
            ("page: errors<50%", Some(0.25), false),
            ("page /b: p95<2s", Some(1_000_000.0), true),
            ("page /b: rate>1", Some(5.0), false),
            ("page /b: failed<51", Some(50.0), false),
            ("request /b: errors<51%", Some(0.5), false),
            ("request /: p95<1s", Some(7000.0), true),
            ("request /: rate>9", Some(10.0), false),
            // Not sent, never found: nothing is known of it.
            ("request /c: p95<1s", None, false),
            ("page /c: rate>0", None, false),
        ] {
            let result = Objective::parse(text).unwrap().check(&pages());
            assert_eq!((result.value, result.unsupported), (value, unsupported), "{text}");
            assert_eq!(result.met, value.is_some(), "{text}");
        }
    }

    #[test]
    fn one_name_alone_has_the_figures_of_all() {
        let spec = |name: &str| RequestSpec { name: name.into(), ..RequestSpec::default() };
        let workload = Workload { requests: vec![spec("/a")], ..Workload::default() };
        let alone = RunReport { workload: Some(workload), ..run(500.0, 999, 1, Some(200_000)) };
        let check = |text: &str| Objective::parse(text).unwrap().check(&alone);
        assert_eq!(check("request /a: rate>1").value, Some(500.0));
        assert_eq!(check("request /b: rate>1").value, None);
        assert!(!check("page: rate>1").met);
    }

    #[test]
    fn percentiles_that_the_run_is_too_short_for_are_marked() {
        let mut short = run(500.0, 999, 1, Some(200_000));
        short.response_time_us.count = 5000;
        short.connect_time_us = Dist { count: 50, p99: Some(3), max: Some(4), ..Dist::default() };
        let check = |text: &str, run: &RunReport| Objective::parse(text).unwrap().check(run).unsupported;
        assert!(
            !check("p99<1s", &short) && check("connect.p99<1s", &short) && !check("connect.max<1s", &short)
        );
        // Enough answers, in too few seconds.
        short.unsupported_percentiles = vec!["p99".into()];
        assert!(check("p99<1s", &short) && !check("p50<1s", &short));
    }

    /// Of 1,000 requests that ended none took longer than 127 ms; what is still in flight has waited for up to 9.8 s.
    #[test]
    fn requests_in_flight_beyond_the_bound_miss_it() {
        let mut run = RunReport::default();
        let times = &mut run.response_time_us;
        (times.count, times.p95, times.p99, times.max) = (1000, Some(20_000), Some(127_000), Some(127_000));
        let waits = |count, p50, p90, max| Dist {
            count,
            min: Some(1000),
            p50: Some(p50),
            p90: Some(p90),
            max: Some(max),
            ..Dist::default()
        };
        for (censored, slo, met, beyond) in [
            (waits(28, 5_000_000, 9_000_000, 9_800_000), "p99<500ms", false, 14),
            (waits(28, 5_000_000, 9_000_000, 9_800_000), "p95<500ms", true, 0),
            (waits(28, 100_000, 200_000, 400_000), "p99<500ms", true, 0),
            (waits(28, 100_000, 200_000, 600_000), "p99<500ms", true, 0),
            (waits(28, 100_000, 200_000, 600_000), "max<500ms", false, 1),
            (waits(1, 9_000_000, 9_000_000, 9_000_000), "p99<500ms", true, 0),
            (Dist::default(), "p99<500ms", true, 0),
        ] {
            run.censored_time_us = censored;
            let result = Objective::parse(slo).unwrap().check(&run);
            assert_eq!(
                (result.met, result.in_flight_beyond),
                (met, beyond),
                "{slo} {:?}",
                run.censored_time_us
            );
        }
    }

    #[test]
    fn wrong_objectives_are_usage_errors_with_a_hint() {
        for text in [
            "",
            "p99",
            "p98<1s",
            "p99<200",
            "errors<5",
            "rate>fast",
            "errors<-1%",
            "failed<1.5",
            "failed<-1",
            "wait.p99<1s",
            "service.rate<1s",
            "page /shop p95<2s",
            "request: p95<2s",
            "request : p95<2s",
            "request \"a: p95<2s",
            "request \"a\"b\": p95<2s",
            "request \"\": p95<2s",
            "page: service.p99<1s",
            "request a: pages/s>1",
            "pages: rate>1",
        ] {
            let error = Objective::parse(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            assert!(error.hint.is_some());
        }
    }
}
