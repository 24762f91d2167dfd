//! What makes the load of a session: the engine of this machine, or something that has others make it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use webdyno_load::{Control, Prepared};
use webdyno_model::Result;
use webdyno_model::interval::{Interval, LoadEnd};
use webdyno_model::worker::WorkerPart;
use webdyno_model::workload::Workload;

/// A load that is to be made.
pub struct LoadTask<'a> {
    /// Its number in the session.
    pub load: u32,
    /// What the engine sends.
    pub prepared: &'a Prepared,
    /// The same as it was asked for.
    pub workload: &'a Workload,
    /// Seconds of it that are in the event log, on disk, with what they are of each worker ([`GeneratorEvent::Workers`]); all there can be
    /// as soon as its end is.
    pub logged_seconds: Arc<AtomicU64>,
}

/// What comes of a load while it goes on.
pub enum GeneratorEvent {
    /// A second of it, of everything that makes it.
    Interval(Box<Interval>),
    /// Something a reader of the session should know.
    Note(String),
    /// Where it is made, before it is.
    Placed {
        /// Names the results.
        session: String,
        /// Where its workers are connected.
        on: String,
    },
    /// Which machines make which part of it, and what of that is in the seconds before.
    Workers(Vec<WorkerPart>),
}

/// Makes loads, one at a time.
pub trait Generator: Send + Sync {
    /// Makes a load and blocks until it ends, at the latest soon after `control` stops it.
    fn run(
        &self,
        task: LoadTask<'_>,
        control: &Control,
        sink: &mut dyn FnMut(GeneratorEvent),
    ) -> Result<LoadEnd>;
}

/// The engine of this machine.
pub(super) struct LocalEngine;

impl Generator for LocalEngine {
    fn run(
        &self,
        task: LoadTask<'_>,
        control: &Control,
        sink: &mut dyn FnMut(GeneratorEvent),
    ) -> Result<LoadEnd> {
        let mut sink = |interval| sink(GeneratorEvent::Interval(Box::new(interval)));
        webdyno_load::run(task.prepared, control, &mut sink)
    }
}
