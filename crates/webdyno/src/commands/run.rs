//! `webdyno run`: load a server and report what was measured.

use crate::cli::RunArgs;
use crate::measuring::{self, objectives};
use crate::process::interrupt_flag;
use crate::{finish, progress};
use webdyno_load::Prepared;
use webdyno_model::event::EventBody;
use webdyno_model::interval::EndReason;
use webdyno_model::objective::Objective;
use webdyno_model::purpose::Purpose;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};
use webdyno_session::live::{LiveSession, LoadLength};

/// What is noted of a load that was given up.
const GIVEN_UP: &str = "the load was given up: for half a minute no connection to the server came about, so the other \
     requests were not sent";

/// Runs the load. Gives the exit code.
pub fn run(arguments: &RunArgs) -> Result<u8> {
    let draft = arguments.draft()?;
    let workload = arguments.load.workload(&draft)?;
    let without = arguments.compare_documents_only.then(|| without_resources(&workload)).transpose()?;
    let interrupted = interrupt_flag()?;
    let mut made =
        vec![LoadResult::prepare(workload, Purpose::Run, (&draft.objectives, &draft.objective_places))?];
    let without =
        without.map(|workload| LoadResult::prepare(workload, Purpose::WithoutResources, (&[], &[])));
    made.extend(without.transpose()?);
    let measure_s = made[0].workload.stop.duration_us.map_or(1.0, |us| us as f64 / 1e6);
    let pace = progress::ProgressPlan { measure_s, settles: false, changes: false };
    let about = measuring::session_info("run", None, &draft.objectives);
    let on = Some((&arguments.on, arguments.load.threads));
    let (_companions, mut session) = measuring::begin((about, pace), &arguments.output, on, interrupted)?;
    if !arguments.no_early_stop {
        session.enable_slo_abort();
    }
    // A number of requests is a promise to report them all.
    let nothing_cut = arguments.load.requests.map(|_| 0.0);
    let warmup_s = arguments.load.warmup.map(|us| us as f64 / 1e6).or(nothing_cut);
    let result = repeat(&mut session, &made, (arguments.repeat, warmup_s));
    finish::finish(session, result, &arguments.output, false)
}

/// One kind of load of a session.
struct LoadResult {
    workload: Workload,
    prepared: Prepared,
    purpose: Purpose,
}

impl LoadResult {
    fn prepare(
        workload: Workload,
        purpose: Purpose,
        (objectives, places): (&[Objective], &[String]),
    ) -> Result<Self> {
        let mut prepared = webdyno_load::prepare(&workload)?;
        objectives::check_before_probe(objectives, places, &workload, prepared.names())?;
        webdyno_load::probe(&mut prepared)?;
        // What the pages embed has names now.
        objectives::check(objectives, places, &workload, prepared.names())?;
        Ok(Self { workload, prepared, purpose })
    }
}

/// The pages with their documents only.
fn without_resources(workload: &Workload) -> Result<Workload> {
    workload.without_resources().ok_or_else(|| {
        let what = if workload.page_names().is_empty() { "pages" } else { "resources of its pages" };
        UserError::usage(format!(
            "--compare-documents-only compares pages with their documents, and this workload has no {what}"
        ))
        .hint("--page loads each URL with what it embeds; a workload file lists it with --workload")
    })
}

/// Makes the loads so many times, in turns. One that was given up is the last, and so is one that lost an objective.
fn repeat(
    session: &mut LiveSession,
    made: &[LoadResult],
    (times, warmup_s): (u32, Option<f64>),
) -> Result<()> {
    let all = (0..times).flat_map(|_| made);
    for (number, LoadResult { workload, prepared, purpose }) in all.enumerate() {
        if number > 0 {
            session.pause_between_loads(prepared, workload)?;
        }
        let load = session.load(prepared, workload, *purpose, LoadLength::Fixed { warmup_s }, None)?;
        if note_the_end(session, load)? {
            return Ok(());
        }
    }
    Ok(())
}

/// A load that ended before all its requests were sent says why. Gives whether it did.
fn note_the_end(session: &mut LiveSession, load: u32) -> Result<bool> {
    let ended = session.recording().load(load).and_then(|record| record.end.as_ref());
    match ended.map(|(end, _)| end.reason) {
        Some(EndReason::Hopeless) => session.append(EventBody::Note { text: GIVEN_UP.into() }).map(|()| true),
        // It was noted when it ended.
        Some(EndReason::ObjectiveLost | EndReason::WorkerLost) => Ok(true),
        _ => Ok(false),
    }
}
