//! `webdyno observe`: watch a host without load, take one look at it, or keep the last while and freeze what goes wrong.

use crate::cli::ObserveArgs;
use crate::measuring::{self, target};
use crate::process::interrupt_flag;
use crate::{finish, live_metrics, observe_view, run_directory, terminal, web};
use std::path::Path;
use webdyno_host::agent::Start;
use webdyno_model::{ErrorKind, Result, UserError};
use webdyno_report::TextStyle;
use webdyno_session::live::{LiveSession, ObserveUntil, ObservedHosts, Servers};
use webdyno_session::log::FrozenIncident;
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// The text beside the report of an incident.
const TEXT: &str = "report.txt";

/// Observes. Gives the exit code.
pub fn observe(arguments: &ObserveArgs) -> Result<u8> {
    arguments.output.exports.refuse_of_load("observing", "--json has all that was read")?;
    let list = arguments.server.list()?;
    let first = list.iter().next().ok_or_else(|| UserError::usage("no server was given"))?.1;
    let how = Start { reads_only: true, ..arguments.server.start(first)? };
    let watched = ObservedHosts {
        port: match &arguments.url {
            Some(url) => Some(target::port(url, &how.address)?),
            None => arguments.port,
        },
        access: arguments.server.access(),
    };
    let until = match (arguments.once, arguments.observe_for) {
        (true, _) => ObserveUntil::TwoReadings,
        (_, Some(length_us)) => ObserveUntil::Elapsed(length_us),
        (_, None) => ObserveUntil::Interrupted,
    };
    let interrupted = interrupt_flag()?;
    let mut servers = Servers::connect(&list, &how)?;
    let found = servers.topologies(&watched)?;
    let directory = run_directory::run_directory(&arguments.output, "observe");
    let watcher = observe_view::observer(&arguments.output, arguments.once);
    let watcher = live_metrics::exporting(&arguments.output, watcher)?;
    let about = measuring::session_info("observe", None, &[]);
    let _followed = web::follow(&arguments.output, &directory)?;
    let mut session = LiveSession::observe(&directory, about, interrupted, watcher, arguments.ring)?;
    let quiet = arguments.output.quiet;
    let mut frozen = |frozen: Result<FrozenIncident>| print_incident(frozen, arguments.ring.is_some(), quiet);
    let result = session
        .begin_observing(&mut servers, (&watched, found), until)
        .and_then(|()| session.observe_until(&mut servers, until, &mut frozen));
    drop(servers);
    end(session, result, until, arguments)
}

/// Ends the session and shows what was recorded. Who ends an observation without a given end has what was asked for.
fn end(session: LiveSession, result: Result<()>, until: ObserveUntil, arguments: &ObserveArgs) -> Result<u8> {
    let directory = session.directory().to_owned();
    let error = match result {
        Err(error) if error.kind == ErrorKind::Interrupted && until == ObserveUntil::Interrupted => None,
        other => other.err(),
    };
    let code = error.as_ref().map_or(0, UserError::exit_code);
    let ended = session.end(code, error.as_ref())?;
    let displayed = finish::write_outputs_from_disk(&directory, &arguments.output);
    finish::conclude(ended, code, error, displayed)
}

/// Diagnoses what was frozen and says what it came to in a line. What fails here ends no observation.
fn print_incident(frozen: Result<FrozenIncident>, is_ring: bool, quiet: bool) {
    if !is_ring {
        return;
    }
    let reported = frozen.and_then(|frozen| Ok((write_incident_report(&frozen.directory)?, frozen)));
    match reported {
        Ok((found, frozen)) if !quiet => {
            terminal::print_status(&format!(
                "diagnosed: {found}\n  {}",
                frozen.directory.join(TEXT).display()
            ));
        }
        Ok(_) => {}
        Err(error) => {
            terminal::print_status("webdyno: the incident could not be kept; the ring goes on");
            terminal::print_error(&error);
        }
    }
}

/// Writes the reports of a frozen incident. Gives the first finding in a line.
fn write_incident_report(directory: &Path) -> Result<String> {
    let view = View::of(&Recording::read(directory)?)?;
    finish::write_reports(&view, directory)?;
    let text = webdyno_report::text(&view, &finish::paths(&view, directory), TextStyle::FULL);
    finish::write(&directory.join(TEXT), &text)?;
    Ok(match &view.outcome {
        Outcome::Diagnosis(diagnosis) => match diagnosis.findings.first() {
            Some(finding) => format!("{}: {}", finding.id, finding.summary),
            None => diagnosis.bottleneck.clone(),
        },
        _ => "nothing was read".into(),
    })
}
