//! `webdyno lab-load`: the load of a scenario's round, observed as `webdyno diagnose` does, from the host of the clients.
//!
//! Unlike there nothing brakes it: harm is what the lab is for. And a server that does not answer is a result too.

use crate::cli::lab_run::LabLoadArgs;
use crate::measuring::{self, BEFORE_S, MeasuredLoad, record_servers};
use crate::process::interrupt_flag;
use crate::{finish, progress, run_directory};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::purpose::Purpose;
use webdyno_model::{Result, UserError};
use webdyno_session::live::LiveSession;

/// A service that was just reloaded or restarted answers within this time, or does not.
const READY: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// Makes the load. Gives the exit code.
pub fn load(arguments: &LabLoadArgs) -> Result<u8> {
    let output = &arguments.output;
    let directory = std::path::absolute(run_directory::run_directory(output, "lab"))
        .map_err(|error| io_error("find", "the current directory", &error))?;
    if let Some(place) = &arguments.directory {
        std::env::set_current_dir(place).map_err(|error| io_error("go to", place.display(), &error))?;
    }
    let draft = arguments.load.draft()?;
    let interrupted = interrupt_flag()?;
    let mut load = MeasuredLoad::without_probe(&arguments.load, &draft, &arguments.server)?;
    wait_for_response(&mut load, &interrupted)?;
    load.repeat_requests();
    let mut servers = load.connect()?;
    let pace = progress::ProgressPlan { measure_s: load.measure_s(), settles: true, changes: false };
    // It is a diagnosis like any other: `webdyno diagnose --from DIR` looks at it again.
    let about = measuring::session_info("diagnose", None, &draft.objectives);
    let mut session = LiveSession::begin(&directory, about, interrupted, progress::lines(output, pace))?;
    session.disable_harm_guard();
    let result = record_servers(&mut session, &mut servers, BEFORE_S).and_then(|()| {
        let load = &load;
        load.record_repeated_answers(&mut session)?;
        session
            .load(&load.prepared, &load.workload, Purpose::Diagnose, load.length, Some(&servers))
            .map(|_| ())
    });
    drop(servers);
    finish::finish(session, result, output, false)
}

/// Waits until the server answers one request. When it never does, the load shows that.
fn wait_for_response(load: &mut MeasuredLoad, interrupted: &AtomicBool) -> Result<()> {
    let begun = Instant::now();
    while load.probe().is_err() && begun.elapsed() < READY {
        if interrupted.load(Ordering::Relaxed) {
            return Err(UserError::interrupted());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
