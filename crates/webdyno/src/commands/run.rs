//! `webdyno run`: load a server and report what was measured.

use crate::cli::RunArgs;
use crate::{finish, interrupt, place, progress};
use webdyno_model::Result;
use webdyno_model::event::Purpose;
use webdyno_session::live::{Length, Session};

/// Runs the load. Gives the exit code.
pub fn run(arguments: &RunArgs) -> Result<u8> {
    let workload = arguments.load.workload()?;
    let prepared = webdyno_load::prepare(&workload)?;
    let interrupted = interrupt::flag()?;
    webdyno_load::probe(&prepared)?;
    let measure_s = workload.stop.duration_us.map_or(1.0, |us| us as f64 / 1e6);
    let pace = progress::Pace { measure_s, settles: false, changes: false };
    let mut session = Session::begin(
        &place::run_directory(&arguments.output, "run"),
        super::about("run", None, &arguments.load.objectives),
        interrupted,
        progress::watcher(&arguments.output, pace),
    )?;
    // A number of requests is a promise to report them all.
    let nothing_cut = arguments.load.requests.map(|_| 0.0);
    let warmup_s = arguments.load.warmup.map(|us| us as f64 / 1e6).or(nothing_cut);
    let loaded = session.load(&prepared, &workload, Purpose::Run, Length::Fixed { warmup_s }, None);
    finish::finish(session, loaded.map(|_| ()), &arguments.output, false)
}
