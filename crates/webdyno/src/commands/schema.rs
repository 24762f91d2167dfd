//! `webdyno schema [NAME]`: the JSON Schema of an output, as it stands in docs/schemas, where `make pages` writes it.

use crate::cli::SchemaArgs;
use crate::cli::usage::nearest;
use crate::terminal;
use std::io::Read as _;
use webdyno_model::{Result, UserError};

/// Of each its name and its text, with a NUL behind either, deflated by the build script: a sixth of the files.
const SCHEMAS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schemas"));

/// Prints one, or the list of all with what writes each.
pub fn schema(arguments: &SchemaArgs) -> Result<u8> {
    terminal::print(&text_of(arguments.name.as_deref())?).map(|()| 0)
}

fn text_of(given: Option<&str>) -> Result<String> {
    let mut inflated = String::new();
    let read = flate2::read::DeflateDecoder::new(SCHEMAS).read_to_string(&mut inflated);
    read.map_err(|error| UserError::cannot_run(format!("the schemas in the program are damaged: {error}")))?;
    let parts: Vec<&str> = inflated.split_terminator('\0').collect();
    let schemas: Vec<(&str, &str)> = parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let Some(given) = given else { return Ok(schemas.iter().map(line).collect()) };
    // As documents name theirs: `webdyno/run/v1`.
    let name = given.trim_start_matches("webdyno/").trim_end_matches("/v1");
    if let Some((_, text)) = schemas.iter().find(|(one, _)| *one == name) {
        return Ok((*text).to_owned());
    }
    let meant = nearest(name, schemas.iter().map(|(name, _)| *name));
    let meant = meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
    Err(UserError::usage(format!("there is no schema `{given}`"))
        .hint(format!("{meant}`webdyno schema` lists all")))
}

/// A line of the list.
fn line((name, text): &(&str, &str)) -> String {
    let schema: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    format!("{name:10} {}\n", schema["$comment"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_printed_and_listed_with_what_writes_it() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
        let list = text_of(None).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), list.lines().count());
        for line in list.lines() {
            let (name, written_by) = line.split_once(' ').unwrap();
            assert!(written_by.contains("webdyno") || written_by.contains("session"), "{line}");
            let file = std::fs::read_to_string(folder.join(format!("{name}.schema.json"))).unwrap();
            for given in [name, &format!("webdyno/{name}/v1")] {
                assert_eq!(text_of(Some(given)).as_ref(), Ok(&file));
            }
        }
    }

    #[test]
    fn an_unknown_name_suggests_the_right_one() {
        for (given, hint) in [
            ("diagnose", "did you mean `diagnosis`? `webdyno schema` lists all"),
            ("runs", "did you mean `run`? `webdyno schema` lists all"),
            ("nothing", "`webdyno schema` lists all"),
        ] {
            let error = text_of(Some(given)).unwrap_err();
            assert_eq!((error.exit_code(), error.hint.as_deref()), (2, Some(hint)), "{given}");
        }
    }
}
