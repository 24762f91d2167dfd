//! The commands: one file each, thin: arguments in, a session between, an exit code out.

pub mod agent;
pub mod check;
pub mod diagnose;
pub mod experiments;
pub mod explain;
pub mod lab;
pub mod lab_load;
pub mod lab_users;
pub mod observe;
pub mod quickstart;
pub mod report;
pub mod rollback;
pub mod run;
pub mod tune;
pub mod workload;

use webdyno_model::environment::Environment;
use webdyno_model::objective::Objective;
use webdyno_model::tune::Goal;
use webdyno_session::live::About;

/// The first event of a session by this command.
fn about(command: &str, goal: Option<Goal>, objectives: &[Objective]) -> About {
    let client =
        Environment { webdyno: env!("CARGO_PKG_VERSION").into(), ..webdyno_host::os::machine::environment() };
    About {
        command: command.into(),
        client,
        goal,
        objectives: objectives.to_vec(),
        operator: Some(webdyno_host::os::machine::operator()),
    }
}

/// The program itself, to run as the agent.
pub fn own_executable() -> webdyno_model::Result<std::path::PathBuf> {
    std::env::current_exe().map_err(|error| webdyno_model::error::io_error("find", "this program", &error))
}
