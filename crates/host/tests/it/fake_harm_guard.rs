//! Pretended watches: one that reads nothing, and a brake that is pulled at once by every load while the file `harm` is in
//! the simulated server's folder.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use webdyno_host::agent::host::{HarmGuard, Watch};
use webdyno_host::collectors::Target;
use webdyno_host::harm_guard::watch::HarmHandler;
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip, SiteUnderLoad};
use webdyno_model::number::Number;
use webdyno_model::sample::MissingSignal;

/// Reads nothing.
pub struct NoWatch;

impl Watch for NoWatch {
    fn set_target(&self, _: Target) {}
}

/// The harm guard.
pub struct FakeHarmGuard {
    folder: PathBuf,
    pull: Mutex<HarmHandler>,
}

impl FakeHarmGuard {
    pub fn in_folder(folder: &Path, pull: HarmHandler) -> Self {
        Self { folder: folder.to_owned(), pull: Mutex::new(pull) }
    }
}

impl HarmGuard for FakeHarmGuard {
    fn set_target(&self, _: &Target) {}

    fn begin(&self, site: &SiteUnderLoad) -> Vec<MissingSignal> {
        if self.disturbance().is_some() {
            let brake = HarmGuardTrip {
                cause: HarmCause::Swapping,
                metric: "memory.swapped_out_pages".into(),
                value: Number(5000.0),
                limit: Number(4096.0),
                text: format!("{} swaps", site.host),
            };
            (self.pull.lock().unwrap())(brake);
        }
        vec![]
    }

    fn end(&self) {}

    fn disturbance(&self) -> Option<String> {
        self.folder.join("harm").exists().then(|| "it swaps".into())
    }
}
