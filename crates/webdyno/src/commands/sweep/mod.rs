//! `webdyno sweep`: one setting, or the load, at several values, or a study of several; the original is in force again at the end.

mod knobs;
mod study;

use crate::cli::load::DURATION_US_DEFAULT;
use crate::cli::sweep::{KnobArg, SweepArgs};
use crate::measuring::{self, BEFORE_CHANGES_S, MeasuredLoad, changes, load_length, record_servers};
use crate::process::interrupt_flag;
use crate::{finish, progress, terminal};
use knobs::LoadKnob;
use std::sync::atomic::AtomicBool;
use webdyno_analysis::sweep::{AxisValues, POINTS_MAX, Planner, SweepOptions};
use webdyno_load::workload::file::{self, Draft, Study};
use webdyno_model::change::ApplyOptions;
use webdyno_model::event::EventBody;
use webdyno_model::objective::Objective;
use webdyno_model::service::SettingValue;
use webdyno_model::sweep::{KnobValue, PAGE_CACHE, StudyPlan, SweepPlan};
use webdyno_model::workload::{Stop, Workload};
use webdyno_model::{Result, UserError};
use webdyno_session::live::{
    LiveSession, LiveSide, LiveSweep, LiveTarget, LoadLength, Servers, UnobservedTarget,
};
use webdyno_session::sweep::{self as sweeping, SweepKnob, SweepOrder, carried_loads, check_values};

/// The setting that is a service's limit of memory.
const MEMORY: &str = "MemoryMax";
/// The order of the points, where no seed was given.
const SEED_DEFAULT: u64 = 1;

/// What is loaded at each point.
enum PointLoads {
    /// What the flags say, as the knobs of the load change it.
    Flags(Box<Draft>),
    /// What the contents of a study say.
    Study(Box<Study>),
}

impl PointLoads {
    fn study(&self) -> Option<&Study> {
        match self {
            Self::Study(study) => Some(study),
            Self::Flags(_) => None,
        }
    }

    /// How long each of them is measured.
    fn measure_us(&self) -> Option<u64> {
        match self {
            Self::Flags(draft) => draft.settings.duration_us,
            Self::Study(study) => study.contents.first().and_then(|one| one.draft.settings.duration_us),
        }
    }

    /// That of a point, by the values of the knobs.
    fn draft(&self, arguments: &SweepArgs, values: &[KnobValue]) -> Result<Draft> {
        let mut draft = match self {
            Self::Flags(draft) => Draft::clone(draft),
            Self::Study(study) => study::draft(study, arguments, values)?,
        };
        apply_load(arguments, &mut draft, values)?;
        Ok(draft)
    }
}

/// Sweeps. Gives the exit code.
pub fn sweep(arguments: &SweepArgs) -> Result<u8> {
    let study = arguments.study.as_deref().map(file::read_study).transpose()?;
    let of_study = study.as_ref().map(|study| study::arguments(arguments, study)).transpose()?;
    let arguments = of_study.as_ref().unwrap_or(arguments);
    check_flags(arguments, study.as_ref())?;
    let loads = match study {
        Some(study) => PointLoads::Study(Box::new(study)),
        None => PointLoads::Flags(Box::new(arguments.load.draft()?)),
    };
    // The load of the first point is as good as any to begin with.
    let first: Vec<KnobValue> =
        arguments.knobs.iter().filter_map(|knob| knob.values.first_values().into_iter().next()).collect();
    let draft = loads.draft(arguments, &first)?;
    let interrupted = interrupt_flag()?;
    let (load, servers) = observed(arguments, &draft, loads.study())?;
    let varied = varied(arguments, loads.study(), load.as_ref().zip(servers.as_ref()))?;
    let contents = loads.study().map(|study| study::check(study, arguments, servers.as_ref())).transpose()?;
    let has_setting = varied.knobs.iter().any(|knob| matches!(knob, SweepKnob::Setting(_)));
    let waits = match servers.as_ref().filter(|_| has_setting) {
        Some(servers) => changes::waiting_note(servers.front(), true, arguments.accept_pending)?,
        None => None,
    };
    let base = workload(arguments, &draft)?;
    let order = order(arguments, varied, (&base, &draft.objectives[..]), contents)?;
    if has_setting && changes::needs_consent(arguments.yes) && !consents(&order, &interrupted)? {
        return Err(UserError::cannot_run("nothing was measured: the changes were declined"));
    }
    let measure_s = draft.settings.duration_us.unwrap_or(DURATION_US_DEFAULT) as f64 / 1e6;
    let pace =
        progress::ProgressPlan { measure_s, settles: arguments.load.warmup.is_none(), changes: has_setting };
    let about = measuring::session_info("sweep", None, &draft.objectives);
    let on = Some((&arguments.on, arguments.load.threads));
    let (_companions, mut session) = measuring::begin((about, pace), &arguments.output, on, interrupted)?;
    let began = waits.map_or(Ok(()), |text| session.append(EventBody::Note { text }));
    let result =
        began.and_then(|()| measure_points(arguments, &mut session, (load, servers), (&loads, base), order));
    finish::finish(session, result, &arguments.output, false)
}

/// Measures the points, and says good bye to the agents: what could not be restored is the error that counts most.
fn measure_points(
    arguments: &SweepArgs,
    session: &mut LiveSession,
    (load, mut servers): (Option<MeasuredLoad>, Option<Servers>),
    (loads, base): (&PointLoads, Workload),
    order: SweepOrder,
) -> Result<()> {
    let load_of = |values: &[KnobValue]| workload(arguments, &loads.draft(arguments, values)?);
    let refuses_others = needs_agent(arguments, loads.study()) && !arguments.allow_live_traffic;
    let measure_us = loads.measure_us();
    let page_cache_paths = loads.study().map(study::page_cache_paths).unwrap_or_default();
    let of_memory =
        |knob: &SweepKnob| matches!(knob, SweepKnob::Setting(setting) if setting.setting.name == MEMORY);
    if order.knobs.iter().any(of_memory) {
        // Less memory than a load asks for is what is to be seen.
        session.set_varies_memory();
    }
    let introduced = match &mut servers {
        Some(servers) => record_servers(session, servers, BEFORE_CHANGES_S),
        None => Ok(()),
    };
    let result = introduced.and_then(|()| {
        let side = match (load, &mut servers) {
            (Some(load), Some(servers)) => {
                LiveSide::Observed(Box::new(live_target(load, session, servers, arguments)))
            }
            _ => LiveSide::Unobserved(Box::new(unobserved(arguments, session, (base, measure_us))?)),
        };
        let (was_alone, was_unverified, quiet_us) = (false, false, None);
        let load_of = &load_of;
        let mut target = LiveSweep {
            side,
            load_of,
            page_cache_paths,
            refuses_others,
            was_alone,
            was_unverified,
            quiet_us,
        };
        sweeping::sweep(&mut target, order).map(|_| ())
    });
    let Some(servers) = &servers else { return result };
    let (done, closed) = servers.close();
    let reported = changes::record_reverted(session, done);
    closed.and(reported).and(result)
}

fn check_flags(arguments: &SweepArgs, study: Option<&Study>) -> Result<()> {
    let load = &arguments.load;
    let refuse = |message: &str, hint: &str| Err(UserError::usage(message.to_owned()).hint(hint));
    if load.requests.is_some() {
        return refuse(
            "sweep measures for a time, not a number of requests",
            "give -d TIME instead of -n; as in -d 10s",
        );
    }
    let names: Vec<&str> = arguments.knobs.iter().map(|knob| knob.name.as_str()).collect();
    if study.is_none() && names.len() > 2 || (names.len() == 2 && names[0] == names[1]) {
        return refuse("one knob is varied, or two different ones", "give --knob once, or twice for a grid");
    }
    let options = SweepOptions {
        axes: arguments.knobs.iter().map(|knob| knob.values.clone()).collect(),
        load_axes: vec![],
        points: study.map(|study| study::points(study, &arguments.knobs)).unwrap_or_default(),
        repeat: arguments.repeats(),
        seed: 0,
        budget_s: 0.0,
    };
    match Planner::first_points(&options) {
        0 | 1 => refuse(
            "one point is no curve",
            "give two values or more, as in --knob MaxRequestWorkers=50,100,200",
        ),
        count if count > POINTS_MAX => refuse(
            &format!("{count} points are more than {POINTS_MAX}"),
            "give fewer values, or a range A..B",
        ),
        _ => Ok(()),
    }
}

/// Gives the load what the knobs of it say.
fn apply_load(arguments: &SweepArgs, draft: &mut Draft, values: &[KnobValue]) -> Result<()> {
    for (knob, value) in arguments.knobs.iter().zip(values) {
        if let Some(load) = LoadKnob::of(&knob.name) {
            load.set(&mut draft.settings, value)?;
        }
    }
    Ok(())
}

fn workload(arguments: &SweepArgs, draft: &Draft) -> Result<Workload> {
    let length = load_length(&arguments.load, draft.settings.duration_us.unwrap_or(DURATION_US_DEFAULT));
    let measure_us = draft.settings.duration_us.unwrap_or(DURATION_US_DEFAULT);
    let duration_us = match length {
        LoadLength::Fixed { warmup_s } => Some(measure_us + (warmup_s.unwrap_or(0.0) * 1e6) as u64),
        LoadLength::Settled { .. } => None,
    };
    arguments.load.workload_until(draft, Stop { duration_us, requests: None })
}

/// Whether something is done at the server: a setting is changed, or its page cache dropped.
fn needs_agent(arguments: &SweepArgs, study: Option<&Study>) -> bool {
    arguments.knobs.iter().any(|knob| knobs::is_setting(&knob.name)) || study.is_some_and(study::drops_pages)
}

/// The load and the agents of its server, where it is observed: a setting is changed by nobody else.
fn observed(
    arguments: &SweepArgs,
    draft: &Draft,
    study: Option<&Study>,
) -> Result<(Option<MeasuredLoad>, Option<Servers>)> {
    let server = match needs_agent(arguments, study) {
        true => Some(arguments.observed.server_or_local()),
        false => arguments.observed.server(),
    };
    let Some(server) = server else { return Ok((None, None)) };
    let load = MeasuredLoad::prepare(&arguments.load, draft, &server)?;
    let mut servers = load.connect()?;
    load.connect_machine(&mut servers)?;
    Ok((Some(load), Some(servers)))
}

/// What is varied, checked against the server.
#[derive(Default)]
struct Varied {
    knobs: Vec<SweepKnob>,
    described: Vec<webdyno_model::sweep::Knob>,
    axes: Vec<AxisValues>,
    original: Vec<Option<KnobValue>>,
}

fn varied(
    arguments: &SweepArgs,
    study: Option<&Study>,
    server: Option<(&MeasuredLoad, &Servers)>,
) -> Result<Varied> {
    let services = server.map_or(Ok(vec![]), |(load, servers)| load.services(servers))?;
    let mut varied = Varied::default();
    for argument in &arguments.knobs {
        let axis = argument.values.clone();
        let (Some((_, servers)), true) = (server, knobs::is_setting(&argument.name)) else {
            varied.described.push(knobs::described(argument, None));
            let is_cache = study.is_some() && argument.name == PAGE_CACHE;
            varied.knobs.push(if is_cache { SweepKnob::PageCache } else { SweepKnob::Load });
            varied.axes.push(axis);
            varied.original.push(None);
            continue;
        };
        let placed = |error: UserError| study::placed(error, study, &argument.name);
        let (knob, step) = knobs::setting_knob(&argument.name, &services).map_err(placed)?;
        let axis = axis.in_steps_of(step);
        if knobs::needs_restart_downwards(&knob.setting, &services) && !arguments.allow_restart {
            return Err(placed(UserError::usage(format!("{} of prefork goes down by a restart only", argument.name))
                .hint("a reload does not free the places of its workers; --allow-restart permits it, and each point then has a downtime")));
        }
        let prepare = |changes: &[webdyno_model::change::SettingChange]| servers.prepare(changes);
        let now = check_values(&prepare, &knob, &axis.to_check(), arguments.allow_restart).map_err(placed)?;
        varied.described.push(knobs::described(argument, Some(&knob.setting)));
        let now = knobs::running(&knob.setting, &services).or(now);
        varied.original.push(now.map(|value| known(&value, argument)));
        varied.knobs.push(SweepKnob::Setting(Box::new(knob)));
        varied.axes.push(axis);
    }
    Ok(varied)
}

fn known(value: &SettingValue, argument: &KnobArg) -> KnobValue {
    let is_word = matches!(&argument.values, AxisValues::List(values) if values.iter().any(|one| one.number().is_none()));
    match value.number().filter(|_| !is_word) {
        Some(number) => KnobValue::Number(number),
        None => KnobValue::Word(value.to_string()),
    }
}

fn order(
    arguments: &SweepArgs,
    varied: Varied,
    (base, objectives): (&Workload, &[Objective]),
    contents: Option<(StudyPlan, Vec<Vec<KnobValue>>)>,
) -> Result<SweepOrder> {
    let seed = arguments.load.seed.unwrap_or(SEED_DEFAULT);
    let (study, points) = contents.unzip();
    let plan = SweepPlan {
        knobs: varied.described,
        ranges: arguments.knobs.iter().map(|knob| knob.range.clone()).collect(),
        objectives: objectives.to_vec(),
        workload: base.redacted(),
        repeat: arguments.repeats(),
        seed,
        original: varied.original,
        study,
    };
    let carried =
        arguments.resume.as_deref().map_or(Ok(vec![]), |directory| carried_loads(directory, &plan))?;
    let options = SweepOptions {
        axes: varied.axes,
        load_axes: arguments.knobs.iter().map(|knob| LoadKnob::of(&knob.name).is_some()).collect(),
        points: points.unwrap_or_default(),
        repeat: arguments.repeats(),
        seed,
        budget_s: arguments.budget_s(),
    };
    Ok(SweepOrder { plan, knobs: varied.knobs, options, allow_restart: arguments.allow_restart, carried })
}

/// Asks once for all points: the command itself is the order in scripts.
fn consents(order: &SweepOrder, interrupted: &AtomicBool) -> Result<bool> {
    for ((knob, range), original) in order.plan.knobs.iter().zip(&order.plan.ranges).zip(&order.plan.original)
    {
        let Some(setting) = &knob.setting else { continue };
        let now = match original {
            Some(KnobValue::Number(number)) => format!(" (now {number})"),
            Some(KnobValue::Word(word)) => format!(" (now {word})"),
            None => String::new(),
        };
        terminal::print_status(&format!("{}: {range}{now}; restored at the end", setting.full_name()));
    }
    changes::confirm("Change the server for each point?", interrupted)
}

fn live_target<'a>(
    load: MeasuredLoad,
    session: &'a mut LiveSession,
    servers: &'a mut Servers,
    arguments: &SweepArgs,
) -> LiveTarget<'a> {
    LiveTarget {
        session,
        servers,
        prepared: load.prepared,
        workload: load.workload,
        length: load.length,
        options: ApplyOptions { yes_reload: arguments.accept_pending, ..ApplyOptions::default() },
        confirm: None,
        export: None,
        // A sweep looks itself whether others are there, and ends; who permits them, permits the way back, too.
        private: true,
    }
}

fn unobserved<'a>(
    arguments: &SweepArgs,
    session: &'a mut LiveSession,
    (workload, measure_us): (Workload, Option<u64>),
) -> Result<UnobservedTarget<'a>> {
    let mut prepared = webdyno_load::prepare(&workload)?;
    webdyno_load::probe(&mut prepared)?;
    webdyno_load::measure_alone(&mut prepared);
    let measure_us = measure_us.unwrap_or(DURATION_US_DEFAULT);
    Ok(UnobservedTarget { session, prepared, workload, length: load_length(&arguments.load, measure_us) })
}
