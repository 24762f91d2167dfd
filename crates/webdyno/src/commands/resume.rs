//! `webdyno resume DIR`: finishes the recording of a command with --on that was cut off, with what NATS still keeps of its load.

use crate::cli::resume::ResumeArgs;
use crate::measuring::workers::signed_broker;
use crate::process::interrupt_flag;
use crate::{finish, terminal};
use webdyno_distributed::coordinator::ResumeOrder;
use webdyno_distributed::nats::DistributedGenerator;
use webdyno_model::interval::EndReason;
use webdyno_model::{Result, UserError};
use webdyno_session::live::LiveSession;
use webdyno_session::view::View;

/// Fetches what is missing, and reports. Gives the exit code.
pub fn resume(arguments: &ResumeArgs) -> Result<u8> {
    let directory = &arguments.directory;
    let (mut session, unfinished) = LiveSession::resume(directory, interrupt_flag()?, Box::new(|_| {}))?;
    let on = arguments.on.as_ref().unwrap_or(&unfinished.start.on);
    let (broker, signer) = signed_broker(on, arguments.nats_creds.as_deref(), arguments.nats_ca.as_deref())?;
    let generator = DistributedGenerator::reconnect(broker, signer, &unfinished.start.session)?;
    if !arguments.quiet {
        let (logged, workers) = (unfinished.logged_seconds, unfinished.parts.len());
        terminal::print_status(&format!(
            "webdyno: {logged} s of load {} are in the log; asking {on} for what its {workers} workers sent since",
            unfinished.load
        ));
    }
    let order = ResumeOrder {
        load: unfinished.load,
        parts: unfinished.parts.clone(),
        logged_seconds: unfinished.logged_seconds,
    };
    let fetched = session
        .resume_load(&unfinished, |logged, control, sink| generator.resume(order, logged, control, sink));
    let reason = fetched.map_err(|error| kept(error, arguments))?;
    // It stopped as its command was gone: no figure of it is of the load that was asked for.
    let code = match reason {
        EndReason::Interrupted => finish::NOT_MET,
        _ => finish::exit_code(&View::of(session.recording())?.outcome, false),
    };
    let ended = session.end(code, None)?;
    drop(generator);
    let style = terminal::style(arguments.verbose, arguments.color);
    let displayed = finish::write_outputs(&ended.recording, directory, &arguments.exports, style);
    finish::conclude(ended, code, None, displayed)
}

/// Nothing that was kept is gone by an attempt that failed.
fn kept(error: UserError, arguments: &ResumeArgs) -> UserError {
    match error.hint {
        Some(_) => error,
        None => error.hint(format!(
            "what was not logged is still kept: webdyno resume {}",
            arguments.directory.display()
        )),
    }
}
