//! Whether documents are valid under their schemas, the files of `docs/schemas`. The tests of the program use this file, too.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use jsonschema::Validator;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// More complaints than this are not listed.
const COMPLAINTS_MAX: usize = 5;

/// The schemas by their names.
pub static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let schema = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name =
            path.file_name().unwrap().to_str().unwrap().strip_suffix(".schema.json").unwrap().to_owned();
        (name, serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(schema).collect()
});

static VALIDATORS: LazyLock<BTreeMap<&str, Validator>> = LazyLock::new(|| {
    let validator = |(name, schema): (&'static String, &Value)| {
        (name.as_str(), jsonschema::draft202012::new(schema).unwrap())
    };
    SCHEMAS.iter().map(validator).collect()
});

/// What is wrong with a document under the schema of this name; empty for a valid one.
pub fn complaints(name: &str, document: &Value) -> Vec<String> {
    let complaint = |error: jsonschema::ValidationError| format!("{} at `{}`", error, error.instance_path());
    let validator = VALIDATORS.get(name).unwrap_or_else(|| panic!("there is no schema {name}"));
    validator.iter_errors(document).take(COMPLAINTS_MAX).map(complaint).collect()
}

/// Fails for a document that is not valid under the schema that it names. One that names none is no output.
pub fn assert_valid(document: &Value) {
    let Some(id) = document["schema"].as_str() else { return };
    let name = id.strip_prefix("webdyno/").and_then(|name| name.strip_suffix("/v1"));
    let wrong = complaints(name.unwrap_or(id), document);
    assert!(wrong.is_empty(), "{id}:\n{}", wrong.join("\n"));
}
