//! `webdyno sweep --study`: the axes of a study file as knobs, its contents as loads, and what has to hold before anything begins.

use crate::cli::load::DURATION_US_DEFAULT;
use crate::cli::sweep::{KnobArg, SweepArgs};
use crate::measuring::target;
use crate::terminal;
use std::path::PathBuf;
use webdyno_analysis::sweep::{AxisValues, combinations};
use webdyno_load::workload::file::{Draft, StoreLevel, Study, StudyAxis, StudyContent};
use webdyno_model::number::human::{bytes, count};
use webdyno_model::sweep::{
    CONTENT, KnobValue, NOT_FOLLOWED, PAGE_CACHE, PageCache, STORE, StudyContent as PlannedContent, StudyPlan,
};
use webdyno_model::workload::Stop;
use webdyno_model::{Result, UserError};
use webdyno_session::live::Servers;

/// The command line that a study stands for. Flags that are given count, whatever the file says.
pub fn arguments(given: &SweepArgs, study: &Study) -> Result<SweepArgs> {
    given.load.refuse_with_file("--study")?;
    if given.load.visits.workload.is_some() {
        return Err(UserError::usage(
            "--study names a file that says what is sent, and --workload another one",
        )
        .hint("write it into the study: [[content]] with workload = \"FILE\""));
    }
    let mut arguments = given.clone();
    arguments.knobs = study.axes.iter().map(knob).collect::<Result<_>>()?;
    arguments.repeat = given.repeat.or(study.repeats);
    arguments.budget = given.budget.or(study.budget_us);
    arguments.load.warmup = given.load.warmup.or(study.warmup_us);
    arguments.load.seed = given.load.seed.or(study.seed);
    Ok(arguments)
}

fn knob(axis: &StudyAxis) -> Result<KnobArg> {
    let words = || AxisValues::List(axis.levels.iter().cloned().map(KnobValue::Word).collect());
    let range = axis.levels.join(",");
    let wrong = |why: String| UserError::usage(format!("{}: {}: {why}", axis.place, axis.name));
    let (values, is_bytes) = match axis.name.as_str() {
        CONTENT | PAGE_CACHE => (words(), false),
        _ => AxisValues::parse(&range).map_err(wrong)?,
    };
    if values.first_values().len() < axis.levels.len() {
        return Err(wrong(format!("two of the levels {range} are the same")).hint("leave one of them out"));
    }
    Ok(KnobArg { name: axis.name.clone(), range, values, is_bytes })
}

/// Whether the agent drops pages: for a cold page cache, and for a warm one where it is said of which files.
pub fn drops_pages(study: &Study) -> bool {
    has_state(study, PageCache::Cold)
        || !study.page_cache_paths.is_empty() && has_state(study, PageCache::Warm)
}

fn has_state(study: &Study, state: PageCache) -> bool {
    let mut levels = study.axes.iter().filter(|axis| axis.name == PAGE_CACHE).flat_map(|axis| &axis.levels);
    levels.any(|level| PageCache::parse(level) == Some(state))
}

/// The points: every level of each axis with every level of the others, but for a store that a content does not follow.
pub fn points(study: &Study, knobs: &[KnobArg]) -> Vec<Vec<KnobValue>> {
    let place = |name: &str| knobs.iter().position(|knob| knob.name == name);
    let mut all: Vec<Vec<KnobValue>> = vec![];
    for mut values in combinations(knobs.iter().map(|knob| knob.values.first_values())) {
        let follows = content(study, knobs, &values).is_some_and(|one| one.mean_size_bytes.is_some());
        if let Some(at) = place(STORE).filter(|_| !follows) {
            values[at] = KnobValue::Word(NOT_FOLLOWED.into());
        }
        if !all.contains(&values) {
            all.push(values);
        }
    }
    all
}

/// The content at a point.
fn content<'s>(study: &'s Study, knobs: &[KnobArg], values: &[KnobValue]) -> Option<&'s StudyContent> {
    let at = knobs.iter().position(|knob| knob.name == CONTENT)?;
    let name = values.get(at)?;
    study.contents.iter().find(|one| KnobValue::Word(one.name.clone()) == *name)
}

/// The load of a point, without what its knobs of the load say.
pub fn draft(study: &Study, arguments: &SweepArgs, values: &[KnobValue]) -> Result<Draft> {
    let knobs = &arguments.knobs;
    let unknown = || UserError::cannot_run("the study has no content of this name");
    let content = content(study, knobs, values).ok_or_else(unknown)?;
    let level = knobs.iter().position(|knob| knob.name == STORE).and_then(|at| values.get(at));
    let store = level.filter(|_| content.mean_size_bytes.is_some()).and_then(|level| match level {
        KnobValue::Number(size) => Some(StoreLevel::Bytes(*size)),
        KnobValue::Word(word) => StoreLevel::parse(word),
    });
    let draft = match store {
        Some(store) => content.of_store(store).map_err(UserError::usage)?,
        None => content.draft.clone(),
    };
    Ok(arguments.load.over(&draft))
}

/// The files of which a cold page cache holds nothing.
pub fn page_cache_paths(study: &Study) -> Vec<PathBuf> {
    study.page_cache_paths.iter().map(PathBuf::from).collect()
}

/// An error about an axis of a study, with the place of the axis.
pub fn placed(error: UserError, study: Option<&Study>, axis: &str) -> UserError {
    let axis = study.and_then(|study| study.axes.iter().find(|one| one.name == axis));
    match axis {
        Some(axis) => UserError { message: format!("{}: {}", axis.place, error.message), ..error },
        None => error,
    }
}

/// Sees whether every content can be loaded, and the page cache be brought into the states that are wanted. Gives what the plan
/// says of the study, and its points.
pub fn check(
    study: &Study,
    arguments: &SweepArgs,
    servers: Option<&Servers>,
) -> Result<(StudyPlan, Vec<Vec<KnobValue>>)> {
    let is_warmed = has_state(study, PageCache::Warm);
    let mut contents = vec![];
    let mut destinations = vec![];
    for content in &study.contents {
        let placed = |error: UserError| UserError {
            message: format!("{}: {}", content.place, error.message),
            ..error
        };
        let draft = arguments.load.over(&content.draft);
        let duration_us = Some(draft.settings.duration_us.unwrap_or(DURATION_US_DEFAULT));
        let workload =
            arguments.load.workload_until(&draft, Stop { duration_us, requests: None }).map_err(placed)?;
        if is_warmed && workload.visits.is_some() {
            return Err(placed(UserError::usage(format!(
                "the content `{}` has pages or users, and only requests warm a page cache",
                content.name
            )))
            .hint("give it requests or a list with `connections`, or page_cache = \"as-is\""));
        }
        let prepared = webdyno_load::prepare(&workload).map_err(placed)?;
        destinations.extend(prepared.destinations());
        contents.push(PlannedContent {
            name: content.name.clone(),
            workload: workload.redacted(),
            mean_size_bytes: content.mean_size_bytes,
        });
    }
    target::common_port(&destinations)?;
    if drops_pages(study) {
        check_page_cache(study, servers)?;
    }
    let levels = arguments.knobs.iter().map(|knob| knob.values.first_values()).collect();
    let plan = StudyPlan { levels, contents, page_cache_paths: study.page_cache_paths.clone() };
    Ok((plan, points(study, &arguments.knobs)))
}

fn check_page_cache(study: &Study, servers: Option<&Servers>) -> Result<()> {
    let paths = page_cache_paths(study);
    let named = study.page_cache_paths.join(", ");
    if paths.is_empty() {
        return Err(UserError::usage("a cold page cache needs to know of which files it holds nothing")
            .hint("name them or their directories on the server, as in page_cache_paths = [\"/var/www\"]"));
    }
    let Some(servers) = servers else { return Ok(()) };
    let found = servers.front().agent().drop_pages(&paths, true)?;
    if found.files_count == 0 || found.unreadable_count > 0 {
        return Err(UserError::usage(format!(
            "the page cache of {named} cannot be dropped: {} files are there, and {} cannot be opened",
            found.files_count, found.unreadable_count
        ))
        .hint("name files that the agent may read; it is root with --sudo"));
    }
    terminal::print_status(&format!(
        "page cache: {} files in {named}, {}, are dropped from memory before each load",
        count(found.files_count),
        bytes(found.bytes as f64)
    ));
    Ok(())
}
