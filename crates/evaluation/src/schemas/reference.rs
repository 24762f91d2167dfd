//! The reference of all outputs as a page: a table of keys for each, then the types that they share.

use super::source::{Content, Definition, Field, Shape, Tagging, Type, Variant};
use super::{OUTPUTS, Output, Reachable, schema_id, unit};
use crate::cell;
use std::fmt::Write as _;

const HEAD: &str = "<!-- Made by `make pages` from the types of the model. -->\n# Schemas\n\n\
    Every JSON output has a [JSON Schema](https://json-schema.org) (draft 2020-12): the files in [schemas](schemas), which \
    `webdyno schema NAME` prints. Any validator checks a result with them, as in\n\n\
    ```sh\n\
    webdyno schema run > run.schema.json\n\
    webdyno run --json run.json http://127.0.0.1:8080/\n\
    pipx run check-jsonschema --schemafile run.schema.json run.json\n\
    ```\n\n\
    A key that every document has is marked `yes`; the others are missing where they do not apply, or in documents of before \
    they were added. Unknown is `null`, never zero. Keys, and values of enumerations, are added within a version; none is \
    renamed or removed, and readers skip what they do not know. A percentile has the unit of its distribution.\n\n\
    | name | schema | written by |\n|---|---|---|\n";

/// The page.
pub(super) fn reference(outputs: &[(&Output, Type)], types: &Reachable) -> String {
    let mut page = HEAD.to_owned();
    for (output, _) in outputs {
        let _ = writeln!(
            page,
            "| [{name}](#{name}) | [{}](schemas/{name}.schema.json) | {} |",
            output.id.unwrap_or("its lines name none"),
            cell(output.written_by),
            name = output.name,
        );
    }
    for (output, root) in outputs {
        let _ = write!(page, "\n## {}\n\n{}\n", output.name, table(root));
    }
    page.push_str("\n## Types\n");
    for (name, one) in types.iter().filter(|(name, _)| output_of(name).is_none()) {
        let _ = write!(page, "\n### {name}\n\n{}\n", table(one));
    }
    page
}

/// The output that a type is the root of.
fn output_of(name: &str) -> Option<&'static Output> {
    OUTPUTS.iter().find(|output| output.of == name && output.id == schema_id(name))
}

fn table(of: &Type) -> String {
    let body = match &of.definition {
        Definition::Alias(shape) => format!("Written as {}.\n", kind(shape)),
        Definition::Fields(fields) => keys(fields),
        Definition::Variants(tagging, variants) => variants_text(tagging, variants),
    };
    let doc = if of.doc.is_empty() { String::new() } else { format!("{}\n\n", of.doc) };
    format!("{doc}{body}").trim_end().to_owned()
}

fn keys(fields: &[Field]) -> String {
    let mut table = String::from("| key | always | type | unit | meaning |\n|---|---|---|---|---|\n");
    for field in fields {
        let always = if field.is_required { "yes" } else { "" };
        let name = if field.is_flattened { "...".to_owned() } else { format!("`{}`", field.name) };
        let (kind, unit) = (kind(&field.shape), unit(field).unwrap_or(""));
        let _ = writeln!(table, "| {name} | {always} | {kind} | {unit} | {} |", cell(&field.doc));
    }
    table
}

fn variants_text(tagging: &Tagging, variants: &[Variant]) -> String {
    if variants.iter().all(|one| one.content == Content::Nothing) && *tagging == Tagging::External {
        let rows = variants.iter().map(|one| format!("| `\"{}\"` | {} |\n", one.name, cell(&one.doc)));
        return format!("| value | meaning |\n|---|---|\n{}", rows.collect::<String>());
    }
    let of = |one: &Variant| {
        let head = match tagging {
            Tagging::Internal(key) => format!("- `\"{key}\": \"{}\"`: {}", one.name, one.doc),
            Tagging::Untagged => format!("- {}", one.doc),
            Tagging::External if one.content == Content::Nothing => {
                format!("- `\"{}\"`: {}", one.name, one.doc)
            }
            Tagging::External => format!("- `{{\"{}\": ...}}`: {}", one.name, one.doc),
        };
        match &one.content {
            Content::Nothing => head + "\n",
            Content::Value(shape) => format!("{head} ({})\n", kind(shape)),
            Content::Fields(fields) => {
                let table = keys(fields);
                let indented = table.lines().map(|line| format!("  {line}\n")).collect::<String>();
                format!("{head}\n\n{indented}\n")
            }
        }
    };
    variants.iter().map(of).collect()
}

/// What a value is, in words, with a link to its type.
fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Flag => "boolean".into(),
        Shape::Text => "string".into(),
        Shape::Integer { .. } => "integer".into(),
        Shape::Number => "number".into(),
        Shape::List { of, length: None } => format!("list of {}", kind(of)),
        Shape::List { of, length: Some(length) } => format!("list of {length}: {}", kind(of)),
        Shape::Map(of) => format!("map of {}", kind(of)),
        Shape::Nullable(of) => format!("{} or null", kind(of)),
        Shape::Named(name) => match output_of(name) {
            Some(output) => format!("[{}](#{})", output.name, output.name),
            None => format!("[{name}](#{})", name.to_lowercase()),
        },
    }
}
