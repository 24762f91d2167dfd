//! Ctrl-C and its relatives: they set a flag; the session ends in order, and reverts. A second Ctrl-C changes nothing:
//! reverting must not be cut short.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_model::{Result, UserError};

/// The flag that SIGINT, SIGTERM and SIGHUP set.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| UserError::cannot_run(format!("cannot handle signals: {error}")))?;
    }
    Ok(flag)
}
