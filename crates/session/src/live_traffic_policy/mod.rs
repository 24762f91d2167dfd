//! What is different while others use the server, as pure decisions.
//!
//! Whoever tunes a quiet server may try one setting after the other. With others there, each try and each way back is
//! theirs to bear, so nothing is switched back and forth: a change is measured after against before, never before again.
//! What is not clearly better at the first look is looked at once more with the same setting. Then, if it is not better,
//! the original is put back, once, and tuning ends: the next remedy would be the next try. Nothing is restarted to put
//! it back. What was kept before stays, as each of it was verified better.

use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::tuning::stop_loss::StopLoss;
use webdyno_model::UserError;
use webdyno_model::interval::EndReason;
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_model::tune::Verdict;

/// Whether a change is looked at once more with the same setting. On a quiet server `same` is an answer; with others there
/// their requests are part of the noise, and a switch back costs more than another look.
pub fn needs_remeasure(verdict: Verdict, live: bool) -> bool {
    match verdict {
        Verdict::Inconclusive => true,
        Verdict::Same => live,
        Verdict::Better | Verdict::Worse => false,
    }
}

/// Whether a round was the last one.
pub fn ends_tuning(kept: bool, live: bool) -> bool {
    live && !kept
}

/// Said when a round was the last one for that.
pub const ENDED: &str = "other clients use this server: after a change that did not help nothing more is tried on \
     them; the remedies that are left can be tried while the server is quiet";

/// What the session says of others when they are found, or when nothing tells whether they are there and it must be
/// known; `None` when there is nothing to say.
pub fn live_traffic_note(traffic: Option<&LiveTraffic>, must_know: bool) -> Option<String> {
    const THEN: &str = "settings are not switched back and forth, and nothing is restarted to put them back";
    match traffic {
        Some(traffic) if traffic.present => {
            Some(format!("other clients use this server ({}): {THEN}", traffic.to_text()))
        }
        Some(_) => None,
        None if must_know => Some(format!(
            "whether other clients use this server cannot be told (it has no status page that can be read, and its \
             connections cannot be seen), so it is treated as if they did: {THEN}"
        )),
        None => None,
    }
}

/// Why a sweep of settings is refused, or ends: others use the server, or it cannot be told whether they do. Once it was told that
/// nobody does, loads that are too short to tell are no reason.
pub fn sweep_refusal(traffic: Option<&LiveTraffic>, must_know: bool) -> Option<UserError> {
    let why = match traffic {
        None if !must_know => return None,
        Some(traffic) if traffic.present => {
            format!("other clients use this server ({}), and a sweep switches its settings back and forth", traffic.to_text())
        }
        Some(_) => return None,
        None => "whether other clients use this server cannot be told (it has no status page that can be read, and its connections \
                 cannot be seen), and a sweep switches its settings back and forth"
            .to_owned(),
    };
    Some(
        UserError::cannot_run(why)
            .hint("sweep while the server is quiet, or permit it with --allow-live-traffic"),
    )
}

/// Why the load that verified a change was ended, if the stop-loss did that.
pub fn stop_loss_reason(best: &Measurement, after: &Measurement) -> Option<String> {
    let end = after.end.as_ref().filter(|end| end.reason == EndReason::StopLoss)?;
    let why = StopLoss::new(best).check(&after.intervals)?;
    Some(format!("the load after the change was ended after {:.0} s: {why}", end.elapsed_us as f64 / 1e6))
}

#[cfg(test)]
mod tests;
