//! `webdyno tune`: change what limits a server, round by round, until the goal is met; only plans without `--apply`.

use super::diagnose::{MeasuredLoad, introduce};
use crate::cli::TuneArgs;
use crate::{finish, interrupt, place, progress, terminal};
use std::io::{IsTerminal, Write};
use webdyno_model::Result;
use webdyno_model::change::RenderedPlan;
use webdyno_session::live::{Confirm, LiveStand, Session};
use webdyno_session::rounds::{self, Options};

/// Tunes. Gives the exit code.
pub fn tune(arguments: &TuneArgs) -> Result<u8> {
    let load = MeasuredLoad::prepare(&arguments.load, &arguments.server.server)?;
    let interrupted = interrupt::flag()?;
    let mut server = load.connect()?;
    let pace = progress::Pace { measure_s: load.measure_s(), settles: true, changes: arguments.apply };
    let mut session = Session::begin(
        &place::run_directory(&arguments.output, "tune"),
        super::about("tune", Some(arguments.goal), &arguments.load.objectives),
        interrupted,
        progress::watcher(&arguments.output, pace),
    )?;
    let options = Options {
        goal: arguments.goal,
        apply: arguments.apply,
        allow_restart: arguments.allow_restart,
        budget_us: arguments.budget,
    };
    let result = introduce(&mut session, &server).and_then(|()| {
        let MeasuredLoad { prepared, workload, length, .. } = load;
        let confirm = confirmation(arguments);
        let mut stand =
            LiveStand { session: &mut session, server: &mut server, prepared, workload, length, confirm };
        rounds::tune(&mut stand, options).map(|_| ())
    });
    // Good bye before the report: what is not kept is put back now, and an error of that must be heard.
    let parted = server.agent().bye();
    let result = result.and(parted.map(|_| ()));
    finish::finish(session, result, &arguments.output, false)
}

/// Asks on a terminal, unless told not to; in scripts `--apply` is the consent.
fn confirmation(arguments: &TuneArgs) -> Option<Confirm> {
    (arguments.apply && !arguments.yes && std::io::stdin().is_terminal()).then(|| Box::new(ask) as Confirm)
}

fn ask(plan: &RenderedPlan) -> bool {
    terminal::tell(&format!("\n{}\nThis takes effect by: {}.", plan.diff.trim_end(), plan.class.name()));
    let _ = write!(std::io::stderr(), "Carry it out? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
