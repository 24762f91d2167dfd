//! `webdyno diagnose --disambiguate`: loads with one thing changed, where two explanations remain.

use super::MeasuredLoad;
use webdyno_analysis::diagnosis::experiments;
use webdyno_analysis::diagnosis::experiments::MOST;
use webdyno_model::Result;
use webdyno_model::event::EventBody;
use webdyno_session::live::{LiveSession, LoadLength, Servers};

/// The longest part that is measured of one, seconds: enough to see by how much a load differs, not how well it does.
const MEASURE_S: u32 = 5;
/// What it may take until its rate has settled.
const SETTLE_S: u32 = 10;

/// Makes the experiments that tell the first two explanations apart, as long as two remain. The recording has each as a
/// load, so that a diagnosis of it says the same.
pub fn make(session: &mut LiveSession, load: &MeasuredLoad, servers: &Servers) -> Result<()> {
    let possible = experiments::possible(&load.workload, load.is_this_machine_by_network());
    for _ in 0..MOST {
        let recording = session.recording();
        let made = recording.experiments();
        let is_left = |what: &&_| !made.iter().any(|(made, _)| made == *what);
        let left: Vec<_> = possible.iter().filter(is_left).copied().collect();
        let diagnosis = recording.diagnosis()?;
        // A load that had to be stopped is not made again.
        let braked = recording.last_load().is_none_or(|load| load.harm_guard_trip.is_some());
        let findings = diagnosis.map_or(vec![], |diagnosis| diagnosis.findings);
        let Some(choice) = experiments::choose_experiment(&findings, &left).filter(|_| !braked) else {
            return Ok(());
        };
        let Some(mut workload) = experiments::changed(&load.workload, choice.what) else { return Ok(()) };
        let measure_s = MEASURE_S.min(load.measure_s().ceil() as u32);
        let length = LoadLength::Settled { measure_s, at_most_s: measure_s + SETTLE_S };
        (workload.stop.requests, workload.stop.duration_us) = (None, None);
        let mut prepared = webdyno_load::prepare(&workload)?;
        if let Err(why) = webdyno_load::probe(&mut prepared) {
            let text = format!("{} could not be tried: {why}", choice.what.name());
            return session.append(EventBody::Note { text });
        }
        session.pause_between_loads(&prepared, &workload)?;
        session.load(&prepared, &workload, choice.what, length, Some(servers))?;
    }
    Ok(())
}
