//! What a session had to meet, as JUnit XML: a test case for each objective, and for what makes a run worth anything.
//!
//! The shape is the one that Jenkins and others read (testsuites, testsuite with properties, testcase, failure;
//! <https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd>).
//! Names of test cases hold no figures: they are the same from run to run.

use crate::human::{plural, quantity};
use crate::phrases;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;
use webdyno_model::capacity::CapacityReport;
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::run::ObjectiveResult;
use webdyno_model::run::RunReport;
use webdyno_model::tune::{Goal, TuneReport, TuneState};
use webdyno_model::{Result, UserError};
use webdyno_session::view::{Outcome, View};

/// The verdicts of a session. An error when there was no load.
pub fn junit(view: &View) -> Result<String> {
    let none = || {
        UserError::cannot_run(format!(
            "the `{}` of {} made no load, so that there is nothing for JUnit",
            view.command, view.started_at
        ))
        .hint("`webdyno report DIR` shows what was recorded")
    };
    let run = match &view.outcome {
        Outcome::Run(run) => run,
        Outcome::Diagnosis(diagnosis) => diagnosis.run.as_ref().ok_or_else(none)?,
        Outcome::Tune(tune) => &tune.best,
        Outcome::Capacity(_) => &view.reported_load().ok_or_else(none)?.report,
        Outcome::Observation(_) | Outcome::Sweep(_) | Outcome::Nothing => return Err(none()),
    };
    let class = format!("webdyno.{}", view.command);
    let mut suite = TestSuite::new(format!("webdyno {}", view.command));
    suite.set_time(Duration::from_secs_f64(run.elapsed_s.clamp(0.0, 1e9)));
    for (name, value) in properties(view, run) {
        suite.add_property((name, value));
    }
    let mut cases = vec![generator(run), requests(run)];
    cases.extend(pages(run));
    cases.extend(sessions(run));
    cases.extend(run.objectives.iter().map(|objective| self::objective(objective, run)));
    match &view.outcome {
        Outcome::Capacity(found) => cases.push(capacity(found)),
        Outcome::Tune(tune) => cases.extend([harm(run)].into_iter().chain(goal(tune))),
        _ => cases.push(harm(run)),
    }
    for mut case in cases {
        case.set_classname(class.clone());
        suite.add_test_case(case);
    }
    let mut report = Report::new("webdyno");
    report.add_test_suite(suite);
    let wrong = |error| UserError::cannot_run(format!("cannot write the results as JUnit XML: {error}"));
    report.to_string().map_err(wrong)
}

fn case(name: &str, failure: Option<(&str, String)>) -> TestCase {
    let status = failure.map_or_else(TestCaseStatus::success, |(kind, message)| {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type(kind).set_message(message.clone()).set_description(message);
        status
    });
    TestCase::new(name, status)
}

fn generator(run: &RunReport) -> TestCase {
    let failure = (!run.client.valid).then(|| ("generator", phrases::generator(run)));
    case("generator is valid", failure)
}

fn requests(run: &RunReport) -> TestCase {
    let failed = run.requests.failed;
    let message = match failed {
        0 => "no request had an answer".to_owned(),
        failed => format!("every request failed: {}", plural(failed, "request")),
    };
    case("requests succeed", (run.requests.completed == 0).then_some(("requests", message)))
}

/// Of pages that all lack a part, nobody has seen one.
fn pages(run: &RunReport) -> Option<TestCase> {
    let pages = run.pages.as_ref()?;
    let message = phrases::page_headline(run).filter(|_| pages.completed == 0);
    Some(case("pages succeed", message.map(|message| ("pages", message))))
}

fn sessions(run: &RunReport) -> Option<TestCase> {
    run.visits.as_ref()?;
    let message = phrases::session_headline(run);
    Some(case("sessions succeed", message.map(|message| ("sessions", message))))
}

/// Whether the load was not stopped before it did harm.
fn harm(run: &RunReport) -> TestCase {
    let stopped = |trip: &HarmGuardTrip| ("harm", format!("the load was stopped: {}", trip.text));
    case("load does no harm", run.brake.as_ref().map(stopped))
}

fn capacity(found: &CapacityReport) -> TestCase {
    let is_found = found.rate.is_some() && found.generator.is_none();
    case("capacity is found", (!is_found).then(|| ("capacity", phrases::capacity_headline(found))))
}

fn objective(result: &ObjectiveResult, run: &RunReport) -> TestCase {
    let measured = match result.value {
        Some(_) => {
            format!("measured {}, which does not meet {}", phrases::objective_value(result), result.slo)
        }
        None => format!("not measured, so that {} is not met", result.slo),
    };
    let chance = phrases::objectives_too_short(run).filter(|_| result.unsupported);
    let message = chance.iter().fold(measured, |message, chance| format!("{message} ({chance})"));
    let mut case = case(&result.slo, (!result.met).then_some(("objective", message)));
    if result.met {
        let chance = chance.map_or_else(String::new, |chance| format!(" ({chance})"));
        case.set_system_out(format!("measured {}{chance}", phrases::objective_value(result)));
    }
    case
}

/// A session that only plans has no goal to meet yet, and `max` is met when it ends.
fn goal(tune: &TuneReport) -> Option<TestCase> {
    let Goal::Rate(rate) = tune.goal else { return None };
    let applies = tune.state != TuneState::Planned;
    let measured = tune.best.rate.map_or_else(|| "nothing".to_owned(), |rate| quantity(rate, "1/s"));
    let failure = format!("measured {measured}, the goal is {}", quantity(rate, "1/s"));
    applies.then(|| case("goal is met", (!tune.goal_met).then_some(("goal", failure))))
}

/// What the figures are of: machine, server, load.
fn properties(view: &View, run: &RunReport) -> Vec<(String, String)> {
    let mut properties = vec![
        ("webdyno.version".to_owned(), view.webdyno_version.clone()),
        ("webdyno.command".to_owned(), view.command.clone()),
        ("started_at".to_owned(), view.started_at.clone()),
    ];
    properties.extend(view.directory.iter().map(|directory| ("directory".to_owned(), directory.clone())));
    properties.extend(machine("client", &run.environment));
    properties.extend(view.server.iter().flat_map(|server| machine("server", server)));
    if let Some(workload) = &run.workload {
        let urls =
            workload.requests.iter().take(URLS_MAX).map(|request| ("url".to_owned(), request.url.clone()));
        properties.extend(urls);
        properties.push(("seed".to_owned(), workload.seed.to_string()));
    }
    properties
}

/// A mix may have thousands.
const URLS_MAX: usize = 20;

fn machine(whose: &str, environment: &Environment) -> Vec<(String, String)> {
    let known = [
        ("hostname", environment.hostname.clone()),
        ("os", environment.os.clone()),
        ("kernel", environment.kernel.clone()),
        ("cpu", environment.cpu_model.clone()),
        ("cores", environment.cores.map(|cores| cores.to_string())),
        ("memory_bytes", environment.memory_bytes.map(|bytes| bytes.to_string())),
    ];
    known.into_iter().filter_map(|(name, value)| Some((format!("{whose}.{name}"), value?))).collect()
}
