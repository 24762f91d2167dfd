//! What every command that measures a server shares: the start of its session, the load with the server that is observed
//! meanwhile, objectives, and experiments.

pub mod changes;
pub mod experiments;
mod load;
pub mod objectives;
pub mod target;
pub mod workers;

pub use load::{MeasuredLoad, load_length};

use webdyno_model::Result;
use webdyno_model::environment::Environment;
use webdyno_model::objective::Objective;
use webdyno_model::topology::Access;
use webdyno_model::tune::Goal;
use webdyno_session::live::{LiveSession, Servers, SessionInfo};

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
