//! This process: the signals that end it, and the program that it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The flag that SIGINT, SIGTERM and SIGHUP set: the session ends in order, and reverts. A second Ctrl-C changes nothing:
/// reverting must not be cut short.
pub fn interrupt_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| UserError::cannot_run(format!("cannot handle signals: {error}")))?;
    }
    Ok(flag)
}

/// The program itself, to run as the agent.
pub fn own_executable() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| io_error("find", "this program", &error))
}
