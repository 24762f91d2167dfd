//! The schemas against what there is of JSON: the kept recordings with all that is computed from them. What the commands write is checked
//! where the program's tests read it.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::corpus::CASES;
use crate::valid::{SCHEMAS, assert_valid, complaints};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_analysis::diagnosis::check::check;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_evaluation::judge::corpus::events;
use webdyno_evaluation::judge::passive::passive;
use webdyno_model::diagnosis::CheckOutput;
use webdyno_session::observation::observation;
use webdyno_session::recording::Recording;

fn assert_output(of: &impl Serialize) -> Value {
    let document = serde_json::to_value(of).unwrap();
    assert!(document["schema"].is_string());
    assert_valid(&document);
    document
}

/// An output of each kind that is a function of a recording.
fn outputs() -> BTreeMap<&'static str, Value> {
    let case = &CASES[0];
    let diagnosis = assert_output(&diagnose(&case.measurement).unwrap());
    let checked = check(&case.measurement).unwrap();
    BTreeMap::from([
        ("run", diagnosis["run"].clone()),
        ("diagnosis", diagnosis),
        ("check", serde_json::to_value(CheckOutput::of(&checked)).unwrap()),
    ])
}

#[test]
fn schemas_are_schemas_of_the_draft_that_they_name() {
    assert_eq!(SCHEMAS.len(), 16);
    for (name, schema) in &*SCHEMAS {
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        assert_eq!(schema["$id"], format!("urn:webdyno:schema:{name}:v1"));
        jsonschema::draft202012::meta::validate(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let wrong = json!({"type": "numeric"});
    assert!(jsonschema::draft202012::meta::validate(&wrong).is_err());
}

/// With load and, as if it were others', without; and the services, settings and metrics that were read meanwhile.
#[test]
fn all_that_comes_of_the_kept_recordings_is_valid() {
    for case in CASES.iter() {
        let diagnosis = assert_output(&diagnose(&case.measurement).unwrap());
        assert_valid(&diagnosis["run"]);
        assert_output(&diagnose(&passive(&case.measurement)).unwrap());
        assert_output(&CheckOutput::of(&check(&case.measurement).unwrap()));
    }
    for case in CASES.iter().step_by(8) {
        let mut recording = Recording::default();
        events(&case.place.file).unwrap().into_iter().for_each(|event| recording.add(event));
        assert_output(&observation(&recording).unwrap());
    }
}

/// Some lines of each kind; those of a recording are alike.
#[test]
fn lines_of_kept_recordings_are_valid() {
    let mut kinds = BTreeMap::new();
    for case in CASES.iter() {
        let packed = std::fs::File::open(&case.place.file).unwrap();
        let text = std::io::read_to_string(flate2::read::GzDecoder::new(packed)).unwrap();
        let mut seen = BTreeMap::new();
        for line in text.lines() {
            let kind = line.split("\"kind\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            let count = seen.entry(kind).or_insert(0);
            *count += 1;
            if *count <= 2 {
                let wrong = complaints("event", &serde_json::from_str(line).unwrap());
                assert!(wrong.is_empty(), "{:?}: {line}\n{}", case.place, wrong.join("\n"));
                *kinds.entry(kind.to_owned()).or_insert(0) += 1;
            }
        }
    }
    assert!(kinds.len() >= 9, "{kinds:?}");
    let watched = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/watched.jsonl");
    for line in std::fs::read_to_string(watched).unwrap().lines() {
        assert_valid(&serde_json::from_str(line).unwrap());
    }
}

#[test]
fn what_is_not_as_it_says_is_refused() {
    let outputs = outputs();
    for (name, place, value) in [
        ("run", "/rate", json!("815")),
        ("run", "/requests/started", json!(-1)),
        ("run", "/requests/started", json!(1.5)),
        ("run", "/response_time_us/p99", json!("12 ms")),
        ("run", "/schema", json!("webdyno/run/v2")),
        ("run", "/errors", json!(null)),
        ("run", "/workload/arrival/kind", json!("half-open")),
        ("run", "/intervals/0/t_s", json!("0")),
        ("diagnosis", "/findings/0/facts/0/value", json!("much")),
        ("diagnosis", "/findings", json!({})),
        ("diagnosis", "/run/rate", json!("815")),
        ("check", "/ceilings/0/limit", json!(7)),
    ] {
        let mut wrong = outputs[name].clone();
        assert_eq!(complaints(name, &wrong), Vec::<String>::new());
        *wrong.pointer_mut(place).unwrap_or_else(|| panic!("{name} has no {place}")) = value;
        let complaints = complaints(name, &wrong);
        let key = place.split('/').nth(1).unwrap();
        assert!(complaints.iter().any(|one| one.contains(key)), "{name} {place}: {complaints:?}");
    }
    // Outputs are added to.
    let mut more = outputs["run"].clone();
    more["added_later"] = json!({"rate": "x"});
    assert_eq!(complaints("run", &more), Vec::<String>::new());
}

/// What scripts may rely on. Keys are added to the outputs, and none of these ever leaves; what is added later is not among them, since
/// documents of before are without.
const REQUIRED: &[(&str, &str)] = &[
    (
        "run",
        "schema workload environment elapsed_s warmup_s requests pages rate bytes status errors \
        connections response_time_us service_time_us connect_time_us first_byte_us client_delay_us \
        failed_time_us censored_time_us client brake objectives requests_by_name intervals",
    ),
    ("diagnosis", "schema bottleneck findings next_limit ceilings time_breakdown_us missing run environment"),
    ("check", "schema bottleneck findings next_limit ceilings time_breakdown_us missing environment"),
    ("observe", "schema taken_at window_s host services facts collectors missing incidents"),
    (
        "tune",
        "schema goal goal_met limit limit_summary baseline best improvement rounds state ceilings \
        environment",
    ),
    ("compare", "schema a b a_load b_load comparable differences metrics max_regression regressions"),
    ("history", "schema directory sessions"),
    ("lab", "schema scenario title group rounds_in_all up_s run_s down_s rounds proved directory"),
    ("event", "v seq t_us"),
];

#[test]
fn the_keys_of_the_contract_are_required() {
    let outputs = outputs();
    for (name, keys) in REQUIRED {
        let mut keys: Vec<&str> = keys.split_whitespace().collect();
        keys.sort_unstable();
        let mut required: Vec<&str> =
            SCHEMAS[*name]["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        required.sort_unstable();
        assert_eq!(required, keys, "{name}");
        let Some(output) = outputs.get(name) else { continue };
        for key in keys {
            let mut without = output.clone();
            assert!(without.as_object_mut().unwrap().remove(key).is_some(), "{name} has no {key}");
            assert!(!complaints(name, &without).is_empty(), "{name} without {key}");
        }
    }
}
