//! `webdyno run`: load a server and report what was measured.

use crate::cli::RunArgs;
use crate::{finish, interrupt, objectives, place, progress};
use webdyno_load::Prepared;
use webdyno_model::Result;
use webdyno_model::event::{EventBody, Purpose};
use webdyno_model::interval::EndReason;
use webdyno_model::workload::Workload;
use webdyno_session::live::{Length, Session};

/// What is noted of a load that was given up.
const GIVEN_UP: &str = "the load was given up: for half a minute no connection to the server came about, so the other \
     requests were not sent";

/// Runs the load. Gives the exit code.
pub fn run(arguments: &RunArgs) -> Result<u8> {
    let draft = arguments.draft()?;
    let workload = arguments.load.workload(&draft)?;
    objectives::check(&draft.objectives, &workload)?;
    let mut prepared = webdyno_load::prepare(&workload)?;
    let interrupted = interrupt::flag()?;
    webdyno_load::probe(&mut prepared)?;
    let measure_s = workload.stop.duration_us.map_or(1.0, |us| us as f64 / 1e6);
    let pace = progress::Pace { measure_s, settles: false, changes: false };
    let mut session = Session::begin(
        &place::run_directory(&arguments.output, "run"),
        super::about("run", None, &draft.objectives),
        interrupted,
        progress::watcher(&arguments.output, pace),
    )?;
    if !arguments.to_the_end {
        session.give_up_when_hopeless();
    }
    // A number of requests is a promise to report them all.
    let nothing_cut = arguments.load.requests.map(|_| 0.0);
    let warmup_s = arguments.load.warmup.map(|us| us as f64 / 1e6).or(nothing_cut);
    let result = repeat(&mut session, &prepared, &workload, (arguments.repeat, warmup_s));
    finish::finish(session, result, &arguments.output, false)
}

/// Makes the load so many times. One that was given up is the last, and so is one that lost an objective.
fn repeat(
    session: &mut Session,
    prepared: &Prepared,
    workload: &Workload,
    (times, warmup_s): (u32, Option<f64>),
) -> Result<()> {
    for number in 1..=times {
        let load = session.load(prepared, workload, Purpose::Run, Length::Fixed { warmup_s }, None)?;
        if note_the_end(session, load)? {
            return Ok(());
        }
        if number < times {
            session.rest(prepared, workload)?;
        }
    }
    Ok(())
}

/// A load that ended before all its requests were sent says why. Gives whether it did.
fn note_the_end(session: &mut Session, load: u32) -> Result<bool> {
    let ended = session.recording().load(load).and_then(|record| record.end.as_ref());
    match ended.map(|(end, _)| end.reason) {
        Some(EndReason::Hopeless) => session.append(EventBody::Note { text: GIVEN_UP.into() }).map(|()| true),
        // It was noted when it ended.
        Some(EndReason::ObjectiveLost) => Ok(true),
        _ => Ok(false),
    }
}
