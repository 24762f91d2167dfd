//! What every command that measures a server shares: the start of its session, the load with the server that is observed
//! meanwhile, objectives, and experiments.

pub mod changes;
pub mod experiments;
mod load;
pub mod objectives;
pub mod target;
pub mod workers;

pub use load::{MeasuredLoad, load_length};

use crate::cli::OutputArgs;
use crate::cli::workers::OnArgs;
use crate::progress::ProgressPlan;
use crate::web::FollowedSession;
use crate::{live_metrics, progress, run_directory, web};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_model::Result;
use webdyno_model::environment::Environment;
use webdyno_model::objective::Objective;
use webdyno_model::topology::Access;
use webdyno_model::tune::Goal;
use webdyno_session::live::{LiveSession, Servers, SessionInfo};
use workers::Workers;

/// Seconds of observation before a load, so that counters have a reading before it.
pub const BEFORE_S: f64 = 1.2;
/// Seconds of observation before anything is changed: who else uses the server shows best while no load of ours runs. It
/// takes two requests to be sure; clients that send two a second at random send them within one second in 59 of 100
/// cases, within three in 98.
pub const BEFORE_CHANGES_S: f64 = 3.2;
/// The first event of a session by this command.
pub fn session_info(command: &str, goal: Option<Goal>, objectives: &[Objective]) -> SessionInfo {
    let client =
        Environment { webdyno: env!("CARGO_PKG_VERSION").into(), ..webdyno_host::os::machine::environment() };
    SessionInfo {
        command: command.into(),
        client,
        goal,
        objectives: objectives.to_vec(),
        operator: Some(webdyno_host::os::machine::operator()),
    }
}

/// What ends with a session: its workers, and then who follows it in a browser.
pub type Companions = (Option<Workers>, Option<FollowedSession>);

/// Begins a session in its run directory, shown as the output flags say; its loads are made by the workers of `--on`, if it has any,
/// with so many threads.
pub fn begin(
    (about, pace): (SessionInfo, ProgressPlan),
    output: &OutputArgs,
    on: Option<(&OnArgs, Option<u32>)>,
    interrupted: Arc<AtomicBool>,
) -> Result<(Companions, LiveSession)> {
    let directory = run_directory::run_directory(output, &about.command);
    let followed = web::follow(output, &directory)?;
    let workers = on.map_or(Ok(None), |(on, threads)| Workers::start(on, threads))?;
    let watcher = live_metrics::exporting(output, progress::observer(output, pace))?;
    let mut session = LiveSession::begin(&directory, about, interrupted, watcher)?;
    Workers::attach(workers.as_ref(), &mut session);
    Ok(((workers, followed), session))
}

/// Writes who is observed into the log, and gathers the readings before the load.
pub fn record_servers(session: &mut LiveSession, servers: &mut Servers, before_s: f64) -> Result<()> {
    for event in servers.introduction() {
        session.append(event)?;
    }
    session.observe_for(before_s, servers)
}

/// Finds the service behind the port, and begins to observe it and the hosts behind it.
pub fn observe(servers: &mut Servers, port: u16, access: &Access) -> Result<()> {
    servers.front_mut().discover(port)?;
    servers.front_mut().observe_with(Some(port), access.clone())?;
    servers.observe_others(access)
}
