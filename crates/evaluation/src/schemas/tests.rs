//! Schemas of types that are made up: every attribute of serde that the model uses.

use super::document::{document, text};
use super::*;
use serde_json::{Value, json};

const TYPES: &str = r#"
    /// All of it; see [`Kind`].
    #[derive(Debug, Serialize)]
    struct Root<'a> {
        schema: &'a str,
        /// Time.
        wait_us: Option<u64>,
        /// `None` where there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rare: Option<String>,
        #[serde(default)]
        later: Vec<(i32, i32)>,
        #[serde(serialize_with = "crate::number::serialize")]
        sum: f64,
        #[serde(flatten)]
        id: Id,
        #[serde(flatten)]
        kind: Kind,
        #[serde(skip)]
        secret: Secret,
    }
    #[derive(Serialize)]
    #[serde(into = "IdText")]
    struct Id;
    #[derive(Serialize)]
    struct IdText { place: BTreeMap<String, Number>, word: Option<Box<Word>> }
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case", tag = "kind")]
    enum Kind { NoLoad, OneLoad { /// Pair.
        ends_s: [f64; 2] } }
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word { /// First.
        AsFound, Value(Loose) }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Loose { Number(i64), Text(String) }
    #[derive(Deserialize)]
    enum Word { NotWritten }
"#;

fn source(text: &str) -> Source {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("types.rs"), text).unwrap();
    Source::read(&[folder.path().to_owned()]).unwrap()
}

fn schema(text: &str) -> Result<Value> {
    let source = source(text);
    let output = output("root", "webdyno/root/v1", "Root", "nobody");
    let root = root(&source, &output)?;
    Ok(document(&output, &root, &reachable(&source, &root)?))
}

#[test]
fn a_schema_says_what_serde_writes() {
    let schema = schema(TYPES).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text(&schema, 0)).unwrap(), schema, "as text it is the same");
    assert_eq!(schema["description"], "All of it; see `Kind`.");
    assert_eq!(schema["required"], json!(["schema", "wait_us", "sum", "place", "word"]));
    let properties = json!({
        "schema": {"const": "webdyno/root/v1", "description": "The name of this schema."},
        "wait_us": {"type": ["integer", "null"], "minimum": 0, "description": "Time. Unit: microseconds."},
        "rare": {"type": "string", "description": "Absent where there is none."},
        "later": {"type": "array", "items":
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
        "sum": {"type": ["number", "null"]},
        "place": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "word": {"anyOf": [{"$ref": "#/$defs/Word"}, {"type": "null"}]},
    });
    assert_eq!(schema["properties"], properties);
    assert_eq!(schema["allOf"], json!([{"$ref": "#/$defs/Kind"}]));
    let ends = json!({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2,
        "description": "Pair. Unit: seconds."});
    let kinds = json!([
        {"type": "object", "properties": {"kind": {"const": "no_load"}}, "required": ["kind"]},
        {"type": "object", "properties": {"kind": {"const": "one_load"}, "ends_s": ends},
            "required": ["kind", "ends_s"]},
    ]);
    assert_eq!(schema["$defs"]["Kind"]["oneOf"], kinds);
    let loose = json!({"anyOf": [{"type": "integer"}, {"type": "string"}]});
    let words = json!([{"const": "as-found", "description": "First."},
        {"type": "object", "properties": {"value": {"$ref": "#/$defs/Loose"}}, "required": ["value"]}]);
    assert_eq!((&schema["$defs"]["Loose"], &schema["$defs"]["Word"]["oneOf"]), (&loose, &words));
}

#[test]
fn what_is_not_known_here_is_an_error() {
    for (from, to, reported) in [
        ("#[serde(skip)]", "#[serde(rename = \"x\")]", "serde(rename) is not known"),
        ("crate::number::serialize", "other::serialize", "what other::serialize writes is not known"),
        ("Vec<(i32, i32)>", "Vec<(i32, String)>", "a tuple of different things"),
        ("Vec<(i32, i32)>", "HashMap<String, u8>", "what HashMap writes is not known"),
        ("tag = \"kind\"", "content = \"x\"", "serde(content) is not known"),
        ("kebab-case", "SHOUTING", "names in SHOUTING are not known"),
        ("enum Loose", "enum Missing", "Loose: not one type of this name was found"),
        ("#[derive(Deserialize)]", "#[derive(Serialize)]", "Word: not one type of this name was found"),
    ] {
        assert!(TYPES.contains(from));
        let error = schema(&TYPES.replace(from, to)).unwrap_err();
        assert!(error.message.contains(reported), "{to}: {error}");
    }
}
