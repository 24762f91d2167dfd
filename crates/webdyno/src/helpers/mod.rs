//! Processes that the program starts of itself: the agent on a server, and the loads of the lab in its hosts. And what
//! makes packages of it.

mod agent;
mod lab_load;
mod lab_users;
mod packaging;

use crate::cli::Helper;
use webdyno_model::Result;

/// Is such a process. Gives the exit code.
pub fn run(helper: Helper) -> Result<u8> {
    match helper {
        Helper::Agent(arguments) => agent::agent(&arguments),
        Helper::LabLoad(arguments) => lab_load::load(&arguments),
        Helper::LabUsers(arguments) => lab_users::users(&arguments),
        Helper::Packaging(arguments) => packaging::write(&arguments.share),
    }
}
