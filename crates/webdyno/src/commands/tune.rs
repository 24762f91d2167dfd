//! `webdyno tune`: change what limits a server, round by round, until the goal is met; only plans without `--apply`.

use crate::cli::TuneArgs;
use crate::measuring::{self, BEFORE_CHANGES_S, BEFORE_S, MeasuredLoad, changes, record_servers};
use crate::process::interrupt_flag;
use crate::{finish, progress, terminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_load::workload::file::Draft;
use webdyno_model::change::{ApplyOptions, RenderedPlan};
use webdyno_model::event::EventBody;
use webdyno_model::tune::{Goal, GoalRequest};
use webdyno_model::{Result, UserError};
use webdyno_session::export::Export;
use webdyno_session::live::{ConfirmPlan, LiveTarget};
use webdyno_session::rounds::{self, TuneOptions};

/// Tunes. Gives the exit code.
pub fn tune(arguments: &TuneArgs) -> Result<u8> {
    if arguments.load.requests.is_some() {
        return Err(UserError::usage("tune measures for a time, not a number of requests")
            .hint("give -d TIME instead of -n; as in -d 10s"));
    }
    let draft = draft(arguments)?;
    let export = arguments.export.as_deref().map(Export::begin).transpose()?;
    let mut load = MeasuredLoad::prepare(&arguments.load, &draft, &arguments.server)?;
    load.repeat_requests();
    let interrupted = interrupt_flag()?;
    let mut servers = load.connect()?;
    load.connect_machine(&mut servers)?;
    let waits = changes::waiting_note(servers.front(), arguments.apply, arguments.accept_pending)?;
    let pace =
        progress::ProgressPlan { measure_s: load.measure_s(), settles: true, changes: arguments.apply };
    let about = measuring::session_info("tune", Some(arguments.goal.goal), &draft.objectives);
    let on = Some((&arguments.on, arguments.load.threads));
    let (_companions, mut session) =
        measuring::begin((about, pace), &arguments.output, on, interrupted.clone())?;
    let options = TuneOptions {
        goal: arguments.goal.goal,
        apply: arguments.apply,
        allow_restart: arguments.allow_restart,
        budget_us: arguments.budget,
    };
    let before_s = if arguments.apply { BEFORE_CHANGES_S } else { BEFORE_S };
    let result = record_servers(&mut session, &mut servers, before_s).and_then(|()| {
        load.record_repeated_answers(&mut session)?;
        waits.map(|text| session.append(EventBody::Note { text })).transpose()?;
        let MeasuredLoad { prepared, workload, length, .. } = load;
        let allowed = ApplyOptions { yes_reload: arguments.accept_pending, ..ApplyOptions::default() };
        let confirm = confirmation(arguments, interrupted);
        let mut target = LiveTarget {
            session: &mut session,
            servers: &mut servers,
            prepared,
            workload,
            length,
            options: allowed,
            confirm,
            export,
            private: false,
        };
        let tuned = rounds::tune(&mut target, options).map(|_| ());
        // Also what was planned before an error is of use.
        let exported = target.export.as_ref().map_or(Ok(()), |export| write(export, arguments));
        tuned.and(exported)
    });
    // Good bye before the report: what is not kept is put back by now at the latest. What could not be put back is
    // the error that counts most.
    let (done, closed) = servers.close();
    let reported = changes::record_reverted(&mut session, done);
    let result = closed.and(reported).and(result);
    finish::finish(session, result, &arguments.output, false)
}

/// The load, with what the goal says of it.
fn draft(arguments: &TuneArgs) -> Result<Draft> {
    let GoalRequest { goal, objective, rate_per_s, users } = &arguments.goal;
    let mut draft = arguments.load.draft()?;
    draft.objectives.extend(objective.clone());
    // Of none at all each would be met.
    if *goal == Goal::Objectives && draft.objectives.is_empty() {
        let what = if users.is_some() { "a goal in users" } else { "the goal `objectives`" };
        return Err(UserError::usage(format!("{what} is met when its objectives are, and there is none"))
            .hint("add what they shall have, as in --slo 'p95<1s'"));
    }
    let settings = &mut draft.settings;
    if rate_per_s.is_none() && users.is_none() {
        return Ok(draft);
    }
    let other = |ours: bool, what: String| (!ours).then_some(what);
    let named = [
        settings.rate_per_s.and_then(|rate| other(*rate_per_s == Some(rate), format!("{rate} req/s"))),
        settings.users.and_then(|own| other(*users == Some(own), format!("{own} users"))),
        (!settings.stages.is_empty()).then(|| "stages".to_owned()),
    ];
    if let Some(load) = named.into_iter().flatten().next() {
        let goal = rate_per_s.map(|rate| format!("{rate} req/s"));
        let goal = goal.or(users.map(|users| format!("{users} users"))).unwrap_or_default();
        return Err(UserError::usage(format!("the goal is about {goal}, and the load is of {load}"))
            .hint("leave the rate, users and stages out of the load, or the same out of the goal"));
    }
    (settings.rate_per_s, settings.users) = (*rate_per_s, *users);
    Ok(draft)
}

fn write(export: &Export, arguments: &TuneArgs) -> Result<()> {
    export.write()?;
    if !arguments.output.quiet {
        terminal::print_status(&format!("The plan as files: {}", export.directory().display()));
    }
    Ok(())
}

/// Asks on a terminal, unless told not to; in scripts `--apply` is the consent.
fn confirmation(arguments: &TuneArgs, interrupted: Arc<AtomicBool>) -> Option<ConfirmPlan> {
    let asks = arguments.apply && changes::needs_consent(arguments.yes);
    asks.then(|| Box::new(move |plan: &RenderedPlan| confirm_plan(plan, &interrupted)) as ConfirmPlan)
}

fn confirm_plan(plan: &RenderedPlan, interrupted: &AtomicBool) -> Result<bool> {
    let on = plan.server().map(|role| format!("On {role}:\n")).unwrap_or_default();
    terminal::print_status(&format!("\n{on}{}\nApplied by: {}.", plan.diff.trim_end(), plan.class.name()));
    changes::confirm("Apply?", interrupted)
}
