//! `webdyno diagnose`: load and observe a server, watch the traffic that is there, or look at a recording.

use crate::cli::DiagnoseArgs;
use crate::measuring::{self, BEFORE_S, MeasuredLoad, experiments, target};
use crate::process::interrupt_flag;
use crate::{exports, finish, progress, time_window};
use jiff::tz::TimeZone;
use std::path::Path;
use webdyno_analysis::diagnosis;
use webdyno_host::agent::Start;
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::{Result, UserError};
use webdyno_session::live::Servers;
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// Diagnoses. Gives the exit code.
pub fn diagnose(arguments: &DiagnoseArgs) -> Result<u8> {
    refuse_flag_conflicts(arguments)?;
    match (&arguments.from, arguments.watch_for) {
        (Some(directory), _) => from_recording(directory, arguments),
        (None, Some(window_us)) => diagnose_window(window_us, arguments),
        (None, None) => with_load(arguments),
    }
}

fn from_recording(directory: &Path, arguments: &DiagnoseArgs) -> Result<u8> {
    let recording = Recording::read(directory)?;
    let diagnosis = match &arguments.at {
        Some(text) => {
            let window = time_window::window(&recording, text, &TimeZone::system())?;
            diagnosis::diagnose(&recording.passive_measurement(window))?
        }
        None => recording.diagnosis()?.ok_or_else(|| finish::no_result_error(directory))?,
    };
    let view =
        View { command: "diagnose".into(), outcome: Outcome::Diagnosis(diagnosis), ..View::of(&recording)? };
    exports::write(&arguments.output.exports, &recording, &view)?;
    if !arguments.output.exports.takes_stdout() {
        finish::print(&view, directory, finish::style(&arguments.output))?;
    }
    Ok(finish::exit_code(&view.outcome, arguments.fail_on_fault))
}

fn with_load(arguments: &DiagnoseArgs) -> Result<u8> {
    let draft = arguments.load.draft()?;
    let mut load = MeasuredLoad::prepare(&arguments.load, &draft, &arguments.server)?;
    load.repeat_requests();
    let interrupted = interrupt_flag()?;
    let mut servers = load.connect()?;
    let pace = progress::ProgressPlan { measure_s: load.measure_s(), settles: true, changes: false };
    let about = measuring::session_info("diagnose", None, &draft.objectives);
    let on = Some((&arguments.on, arguments.load.threads));
    let (_companions, mut session) = measuring::begin((about, pace), &arguments.output, on, interrupted)?;
    let result = measuring::record_servers(&mut session, &mut servers, BEFORE_S).and_then(|()| {
        load.record_repeated_answers(&mut session)?;
        let MeasuredLoad { prepared, workload, length, .. } = &load;
        session.load_or_recover(prepared, workload, Purpose::Diagnose, *length, &mut servers)?;
        if arguments.disambiguate { experiments::make(&mut session, &load, &servers) } else { Ok(()) }
    });
    drop(servers);
    finish::finish(session, result, &arguments.output, arguments.fail_on_fault)
}

fn diagnose_window(window_us: u64, arguments: &DiagnoseArgs) -> Result<u8> {
    let hint = "--json has the whole diagnosis; a URL instead of --for loads the server";
    arguments.output.exports.refuse_of_load("--for", hint)?;
    let list = arguments.server.list()?;
    let how = Start { reads_only: true, ..arguments.server.start(list.web()?)? };
    let port = match (arguments.port, &arguments.url) {
        (Some(port), _) => port,
        (None, Some(url)) => target::port(url, &how.address)?,
        (None, None) => {
            return Err(UserError::usage("which listener is meant?")
                .hint("give --port N or --url URL; `ss -ltnp` lists the listeners of this host"));
        }
    };
    let interrupted = interrupt_flag()?;
    let mut servers = Servers::connect(&list, &how)?;
    measuring::observe(&mut servers, port, &arguments.server.access())?;
    let seconds = window_us as f64 / 1e6;
    let pace = progress::ProgressPlan { measure_s: seconds, settles: false, changes: false };
    let about = measuring::session_info("diagnose", None, &[]);
    let (_companions, mut session) = measuring::begin((about, pace), &arguments.output, None, interrupted)?;
    let result = measuring::record_servers(&mut session, &mut servers, BEFORE_S)
        .and_then(|()| session.observe_for(seconds, &mut servers))
        .and_then(|()| session.append(EventBody::Watch { length_us: window_us }));
    drop(servers);
    finish::finish(session, result, &arguments.output, arguments.fail_on_fault)
}

/// clap drops a requirement where the flag that is required conflicts with one that is given.
fn refuse_flag_conflicts(arguments: &DiagnoseArgs) -> Result<()> {
    if arguments.disambiguate && (arguments.from.is_some() || arguments.watch_for.is_some()) {
        return Err(UserError::usage("--disambiguate makes loads, and --for and --from make none")
            .hint("give a URL instead; `webdyno diagnose --help` says which flags go together"));
    }
    if arguments.output.web.is_some() && arguments.from.is_some() {
        return Err(UserError::usage("--web shows a session under way, and --from makes none")
            .hint("`webdyno serve DIR` shows the sessions below DIR"));
    }
    let wrong = |flag: &str, with: &str| {
        let text = format!("{flag} goes with {with}, which is not given");
        Err(UserError::usage(text).hint("`webdyno diagnose --help` says which flags go together"))
    };
    if arguments.at.is_some() && arguments.from.is_none() {
        return wrong("--at", "--from DIR");
    }
    match (arguments.watch_for, arguments.port, &arguments.url) {
        (None, Some(_), _) => wrong("--port", "--for TIME"),
        (None, _, Some(_)) => wrong("--url", "--for TIME"),
        _ => Ok(()),
    }
}
