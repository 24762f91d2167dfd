//! Makes Apache take the configuration on disk: a graceful reload, or a stop and a start.
//!
//! https://httpd.apache.org/docs/2.4/stopping.html: USR1 reloads and lets running requests finish; TERM stops.
//! ParentServerConfigGeneration of the status page rises by one at each reload: the proof that it happened. A
//! configuration that passes `-t` may still end the parent at a reload (AH00019, AH00020), so it is watched. Workers of
//! the old generation that finish their requests keep their places in the scoreboard, whose length is then larger than
//! the setting: they are waited for, a bounded time.

use super::control::Apache;
use super::environment;
use super::snapshot;
use super::start::{found, launch, place_of};
use super::status::{self, near};
use crate::os::process::{ProcessName, wait_polling};
use crate::os::timeouts;
use crate::services::Activation;
use crate::services::common::probe::Probe;
use crate::services::common::taking_effect::{MainProcess, PAUSE};
use crate::services::common::unit::unit_command;
use rustix::process::Signal;
use webdyno_model::change::ApplyClass;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// Makes the configuration on disk take effect.
pub fn activate(control: &Control, class: ApplyClass, port: u16) -> Result<Activation> {
    match class {
        ApplyClass::Live => Ok(Activation { control: control.clone(), outage_us: None, unsettled: None }),
        ApplyClass::Reload => reload(control, port),
        ApplyClass::Restart => restart(control, port),
        ApplyClass::Manual => Err(UserError::cannot_run(
            "apache runs in the foreground under a supervisor, and a restart is needed: webdyno leaves that to you",
        )
        .hint("restart its container or service, then run the command again")),
    }
}

fn reload(control: &Control, port: u16) -> Result<Activation> {
    let apache = Apache::of_control(control.clone())?;
    let page = status::find(&apache.evaluation, port).ok();
    let main = MainProcess::of("Apache", control);
    let old = main.name.children();
    let probe = Probe::start_gently(&near(&apache.evaluation, port));
    match &control.unit {
        Some(unit) => unit_command(&["reload", unit])?,
        None => {
            // It may end of what it reads, and is to be started again as it was.
            let _ = environment::remember(control);
            main.signal(Signal::USR1)?;
        }
    }
    match page.as_ref().and_then(|page| Some((page.url.as_str(), page.generation?))) {
        Some((url, generation)) => wait_for_generation(main, url, generation, &old)?,
        None => main.wait_for_children(&old)?,
    }
    main.watch()?;
    let unsettled = match page.filter(|page| page.board.is_some()) {
        Some(page) => settle(&apache, &page.url, &old)?,
        None => None,
    };
    Ok(Activation { control: control.clone(), outage_us: probe.outage_us(), unsettled })
}

/// Waits until the status page shows another generation. When the page is silent in the end, because all workers are
/// held, new children must do as a proof.
fn wait_for_generation(main: MainProcess, url: &str, before: u64, old: &[ProcessName]) -> Result<()> {
    let mut shown = None;
    let risen = wait_polling(PAUSE, timeouts::RELOAD, || {
        // Workers of the old generation may answer for a moment.
        shown = status::read(url).ok().and_then(|page| page.generation);
        shown.is_some_and(|generation| generation > before) || !main.name.is_alive()
    });
    main.alive()?;
    match shown {
        _ if risen => Ok(()),
        None => main.wait_for_children(old),
        Some(shown) => Err(UserError::cannot_run(format!(
            "apache did not show within {} s that it reloaded: generation {shown} on {url}",
            timeouts::RELOAD.as_secs()
        ))
        .hint("its error log says what it did")),
    }
}

/// Waits until the status page shows as many workers as the files give, or the old generation is gone: then it shows
/// what Apache makes of them, be it clipped. Gone is what the parent has taken note of, as that empties its place in
/// the scoreboard. Says what the page shows when neither came in time.
fn settle(apache: &Apache, url: &str, old: &[ProcessName]) -> Result<Option<String>> {
    let main = MainProcess::of("Apache", &apache.control);
    let configured = snapshot::workers_on_disk(&apache.evaluation, &apache.compiled);
    let mut shown = None;
    let settled = wait_polling(PAUSE * 5, timeouts::SETTLE, || {
        if old.iter().all(|worker| !worker.exists()) || !main.name.is_alive() {
            return true;
        }
        shown = status::read(url).ok().and_then(|page| page.slots());
        shown.is_some() && shown == configured
    });
    main.alive()?;
    if settled {
        return Ok(None);
    }
    let left_count = old.iter().filter(|worker| worker.exists()).count();
    let shown = match (shown, configured) {
        (Some(shown), Some(configured)) => {
            format!("the status page shows {shown} slots where the configuration gives {configured}")
        }
        _ => "the status page does not answer".to_owned(),
    };
    Ok(Some(format!(
        "{left_count} process(es) of its old generation still finish their requests after {} s, and {shown}",
        timeouts::SETTLE.as_secs()
    )))
}

fn restart(control: &Control, port: u16) -> Result<Activation> {
    // While it runs: what only it was in would be gone with it.
    let place = place_of(control)?;
    let apache = Apache::of_control(control.clone())?;
    let probe = Probe::start(&near(&apache.evaluation, port));
    match &control.unit {
        Some(unit) => unit_command(&["restart", unit])?,
        None => {
            let variables = environment::remember(control)?;
            environment::hold(control, &variables)?;
            MainProcess::of("Apache", control).stop()?;
            // A small server is back in milliseconds: make sure that the gap is seen.
            probe.probe_once();
            launch(&Control { environment: variables, ..control.clone() }, &place)?;
        }
    }
    let control = found(control, &apache.evaluation, port)?;
    Ok(Activation { control, outage_us: probe.outage_us(), unsettled: None })
}
