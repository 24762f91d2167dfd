//! The schemas of all JSON outputs, and their reference: made from the types that the outputs are serialised from, so that they say
//! what these say. The program embeds the files that come of it (`docs/schemas`), and has nothing to do with making them.

mod document;
mod reference;
mod source;

use source::{Definition, Field, Shape, Source, Type};
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_lab::run::{outcome, passive, tuned};
use webdyno_model::{
    Result, capacity, compare, diagnosis, logs, observation, prediction, run, sizing, sweep, tune,
};
use webdyno_session::history;

/// Types by their names.
type Reachable = BTreeMap<String, Type>;

/// Where the types of outputs are defined, as seen from `crates`.
const PLACES: [&str; 7] = [
    "model/src",
    "session/src/history/mod.rs",
    "lab/src/evidence/mod.rs",
    "lab/src/run/outcome.rs",
    "lab/src/run/passive.rs",
    "lab/src/run/tuned.rs",
    "lab/src/scenario/mod.rs",
];

/// A JSON output.
struct Output {
    /// What `webdyno schema` calls it.
    name: &'static str,
    /// What its key `schema` says; `None` for one that has none.
    id: Option<&'static str>,
    /// The name of its type.
    of: &'static str,
    /// A type with some of its keys, where only these are written.
    keys_of: Option<&'static str>,
    /// Which commands write it.
    written_by: &'static str,
}

const fn output(name: &'static str, id: &'static str, of: &'static str, written_by: &'static str) -> Output {
    Output { name, id: Some(id), of, keys_of: None, written_by }
}

/// All of them, in the order of the reference.
const OUTPUTS: [Output; 16] = [
    output("run", run::SCHEMA, "RunReport", "`webdyno run --json`"),
    output("diagnosis", diagnosis::SCHEMA, "Diagnosis", "`webdyno diagnose --json`"),
    Output {
        keys_of: Some("CheckOutput"),
        ..output("check", diagnosis::CHECK_SCHEMA, "Diagnosis", "`webdyno check --json`")
    },
    output("observe", observation::SCHEMA, "Observation", "`webdyno observe --json`"),
    output("tune", tune::SCHEMA, "TuneReport", "`webdyno tune --json`, `webdyno quickstart --json`"),
    output("capacity", capacity::SCHEMA, "CapacityReport", "`webdyno capacity --json`"),
    output("compare", compare::SCHEMA, "CompareReport", "`webdyno compare --json`"),
    output("sweep", sweep::SCHEMA, "SweepReport", "`webdyno sweep --json`, `webdyno fit --json`"),
    output("predict", prediction::SCHEMA, "PredictReport", "`webdyno predict --json`"),
    output("logs", logs::SCHEMA, "LogsReport", "`webdyno logs --json`"),
    output("size", sizing::SCHEMA, "SizeReport", "`webdyno size --json`"),
    output("history", history::SCHEMA, "HistoryReport", "`webdyno history --json`"),
    output("lab", outcome::SCHEMA, "ScenarioOutcome", "`webdyno lab run --json`, a line for each run"),
    output(
        "lab-tuned",
        tuned::SCHEMA,
        "TunedOutcome",
        "`webdyno-evaluation tune` (development), a line for each scenario",
    ),
    output(
        "lab-users",
        passive::SCHEMA,
        "PassiveOutcome",
        "`webdyno-evaluation watch` (development), a line for each scenario",
    ),
    Output {
        name: "event",
        id: None,
        of: "Event",
        keys_of: None,
        written_by: "every session: a line of `events.jsonl` in its run directory",
    },
];

/// What the key `schema` of a type says, where it is always the same.
fn schema_id(of: &str) -> Option<&'static str> {
    OUTPUTS.iter().find(|output| output.of == of && output.keys_of.is_none()).and_then(|output| output.id)
}

/// The files of all schemas and the page of their reference, by their paths below `docs`. Reads the sources beside this crate.
pub fn pages() -> Result<Vec<(String, String)>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let source = Source::read(&PLACES.map(|place| crates.join(place)))?;
    let (mut pages, mut roots, mut all) = (vec![], vec![], Reachable::new());
    for output in &OUTPUTS {
        let root = root(&source, output)?;
        let types = reachable(&source, &root)?;
        let text = document::text(&document::document(output, &root, &types), 0) + "\n";
        pages.push((format!("schemas/{}.schema.json", output.name), text));
        roots.push((output, root));
        all.extend(types);
    }
    pages.push(("schemas.md".to_owned(), reference::reference(&roots, &all)));
    Ok(pages)
}

fn root(source: &Source, output: &Output) -> Result<Type> {
    let mut root = source.find(output.of)?;
    let Definition::Fields(fields) = &mut root.definition else { return Ok(root) };
    if let (Some(id), Some(name)) = (output.id, fields.iter_mut().find(|field| field.name == "schema")) {
        name.doc = format!("`{id}`.");
    }
    if let Some(keys_of) = output.keys_of {
        let written = source.find(keys_of)?;
        let is_written = |name: &str| match &written.definition {
            Definition::Fields(written) => written.iter().any(|one| one.name == name),
            Definition::Alias(_) | Definition::Variants(..) => false,
        };
        fields.retain(|field| is_written(&field.name));
        root.doc = written.doc;
    }
    Ok(root)
}

/// The types that one is made of, and those that these are made of.
fn reachable(source: &Source, root: &Type) -> Result<Reachable> {
    let mut found = Reachable::new();
    let mut open: Vec<String> = root.names().into_iter().map(str::to_owned).collect();
    while let Some(name) = open.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let one = source.find(&name)?;
        open.extend(one.names().into_iter().map(str::to_owned));
        found.insert(name, one);
    }
    Ok(found)
}

/// The unit of a figure, as its name ends.
fn unit(field: &Field) -> Option<&'static str> {
    let mut shape = &field.shape;
    while let Shape::Nullable(inner) | Shape::List { of: inner, .. } | Shape::Map(inner) = shape {
        shape = inner;
    }
    if matches!(shape, Shape::Flag | Shape::Text) {
        return None;
    }
    let name = field.name.as_str();
    let units = [
        ("_per_s", "per second"),
        ("_us", "microseconds"),
        ("_us_max", "microseconds"),
        ("_us2", "microseconds squared"),
        ("_s", "seconds"),
        ("_bytes", "bytes"),
        ("_fraction", "share, 0 to 1"),
    ];
    let of_rate = name == "rate" || name.ends_with("_rate");
    let ending = units.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, unit)| *unit);
    ending.or(of_rate.then_some("per second"))
}

#[cfg(test)]
mod tests;
