//! Makes Apache take the configuration on disk: a graceful reload, or a stop and a start.
//!
//! https://httpd.apache.org/docs/2.4/stopping.html: USR1 reloads and lets running requests finish; TERM stops.
//! ParentServerConfigGeneration of the status page rises by one at each reload: the proof that it happened. A
//! configuration that passes `-t` may still end the parent at a reload (AH00019, AH00020), so it is watched.

use super::control::Apache;
use super::probe::Probe;
use super::process;
use super::start::{PAUSE, found, launch, unit_command};
use super::status::{self, addresses};
use crate::services::Activation;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use webdyno_model::change::ApplyClass;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// How long a reload may take until it shows.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Without a status page: how long to wait for new children. When all are busy there is none until one has finished,
/// so their absence is no failure.
const CHILDREN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the parent is watched after a reload showed: it may end while it sets up its modules.
const WATCH: Duration = Duration::from_millis(300);

/// How long a stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes the configuration on disk take effect.
pub fn activate(control: &Control, class: ApplyClass, port: u16) -> Result<Activation> {
    match class {
        ApplyClass::Live => Ok(Activation { control: control.clone(), outage_us: None }),
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
    let children = process::children(control.pid);
    let near: Vec<_> =
        addresses(&apache.evaluation, port).into_iter().filter(|address| address.port() == port).collect();
    let probe = Probe::start(&near);
    match &control.unit {
        Some(unit) => unit_command(&["reload", unit])?,
        None => process::signal(control.pid, control.start_ticks, Signal::USR1)?,
    }
    let before = page.as_ref().and_then(|page| Some((page.url.as_str(), page.generation?)));
    match before {
        Some((url, generation)) => wait_for_generation(control, url, generation, &children)?,
        None => wait_for_children(control, &children)?,
    }
    let watched = Instant::now() + WATCH;
    while Instant::now() < watched {
        alive(control)?;
        std::thread::sleep(PAUSE);
    }
    Ok(Activation { control: control.clone(), outage_us: probe.outage_us() })
}

fn alive(control: &Control) -> Result<()> {
    if process::lives(control.pid, control.start_ticks) {
        return Ok(());
    }
    Err(UserError::cannot_run(format!(
        "apache (process {}) ended when it reloaded its configuration",
        control.pid
    ))
    .hint("its error log says why; webdyno rollback restores the configuration and starts it again"))
}

/// Waits until the status page shows another generation. When the page falls silent, because all workers are held,
/// new children must do as a proof.
fn wait_for_generation(control: &Control, url: &str, before: u64, children: &[(u32, u64)]) -> Result<()> {
    let deadline = Instant::now() + RELOAD_TIMEOUT;
    let mut answered = false;
    loop {
        alive(control)?;
        let generation = status::read(url).ok().and_then(|page| page.generation);
        answered |= generation.is_some();
        if generation.is_some_and(|generation| generation > before) {
            return Ok(());
        }
        if Instant::now() >= deadline && !answered {
            return wait_for_children(control, children);
        }
        if Instant::now() >= deadline {
            return Err(UserError::cannot_run(format!(
                "apache did not show within {} s that it reloaded: generation {before} on {url}",
                RELOAD_TIMEOUT.as_secs()
            ))
            .hint("its error log says what it did"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for a child that was not there before, and a moment more.
fn wait_for_children(control: &Control, before: &[(u32, u64)]) -> Result<()> {
    let deadline = Instant::now() + CHILDREN_TIMEOUT;
    while Instant::now() < deadline {
        alive(control)?;
        if process::children(control.pid).iter().any(|child| !before.contains(child)) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn restart(control: &Control, port: u16) -> Result<Activation> {
    let apache = Apache::of_control(control.clone())?;
    let near: Vec<_> =
        addresses(&apache.evaluation, port).into_iter().filter(|address| address.port() == port).collect();
    let probe = Probe::start(&near);
    match &control.unit {
        Some(unit) => unit_command(&["restart", unit])?,
        None => {
            stop(control)?;
            // A small server is back in milliseconds: make sure that the gap is seen.
            probe.look();
            launch(control)?;
        }
    }
    let control = found(control, &apache.evaluation, port)?;
    Ok(Activation { control, outage_us: probe.outage_us() })
}

/// Stops with TERM and waits. It is never killed: a worker in the middle of a write would leave half of it.
fn stop(control: &Control) -> Result<()> {
    process::signal(control.pid, control.start_ticks, Signal::TERM)?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    while process::lives(control.pid, control.start_ticks) {
        if Instant::now() >= deadline {
            return Err(UserError::cannot_run(format!(
                "apache (process {}) did not stop within {} s, and webdyno does not kill it",
                control.pid,
                STOP_TIMEOUT.as_secs()
            ))
            .hint("look for requests that hang; the configuration on disk takes effect at its next start"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
