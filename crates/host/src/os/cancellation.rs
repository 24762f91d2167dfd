//! Whether the tool is gone: a change that is under way then goes no further, and is undone.
//!
//! Nobody is left who measures what a change does, so what has not begun is not done any more. Undoing never asks this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use webdyno_model::{Result, UserError};

/// A flag that, once set, stays set. Its copies are one flag.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// The tool is gone.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the tool is gone.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error when the tool is gone.
    pub fn check(&self) -> Result<()> {
        match self.is_set() {
            false => Ok(()),
            true => Err(UserError::cannot_run("the tool is gone")),
        }
    }
}
