//! A type as JSON Schema, draft 2020-12 (<https://json-schema.org/draft/2020-12>). Objects may have more keys than are listed: outputs are
//! added to within a version.

use super::source::{Content, Definition, Field, Shape, Tagging, Type, Variant};
use super::{Output, Reachable, schema_id, unit};
use serde_json::{Map, Value, json};

/// Longer lines are broken where JSON permits it.
const LINE_MAX: usize = 140;

/// The schema of an output.
pub(super) fn document(output: &Output, root: &Type, types: &Reachable) -> Value {
    let mut document = described(of_type(root, output.id), &root.doc);
    let defs: Map<String, Value> = types
        .iter()
        .map(|(name, one)| (name.clone(), described(of_type(one, schema_id(name)), &one.doc)))
        .collect();
    let entries = [
        ("$schema", json!("https://json-schema.org/draft/2020-12/schema")),
        ("$id", json!(format!("urn:webdyno:schema:{}:v1", output.name))),
        ("$comment", json!(output.written_by.replace('`', ""))),
        ("title", json!(output.id.unwrap_or(output.name))),
        ("$defs", Value::Object(defs)),
    ];
    for (key, value) in entries {
        document[key] = value;
    }
    document
}

/// As text: what fits on a line is on one.
pub(super) fn text(of: &Value, indent: usize) -> String {
    let line = of.to_string();
    if indent + line.len() <= LINE_MAX {
        return line;
    }
    let inner = |key: &str, value: &Value| format!("{:1$}{key}{2}", "", indent + 1, text(value, indent + 1));
    let (begin, lines, end) = match of {
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| inner(&format!("{}: ", json!(key)), value);
            ("{", entries.iter().map(entry).collect::<Vec<_>>(), "}")
        }
        Value::Array(values) => ("[", values.iter().map(|value| inner("", value)).collect(), "]"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return line,
    };
    format!("{begin}\n{}\n{:2$}{end}", lines.join(",\n"), "", indent)
}

fn described(mut schema: Value, doc: &str) -> Value {
    if !doc.is_empty() {
        schema["description"] = json!(doc);
    }
    schema
}

/// `id` is what its key `schema` says, where it has one.
fn of_type(of: &Type, id: Option<&str>) -> Value {
    match &of.definition {
        Definition::Alias(shape) => of_shape(shape),
        Definition::Fields(fields) => {
            let mut object = object(fields);
            if let Some(id) = id {
                object["properties"]["schema"] =
                    json!({"const": id, "description": "The name of this schema."});
            }
            object
        }
        Definition::Variants(Tagging::Untagged, variants) => {
            json!({"anyOf": variants.iter().map(|one| described(content(one), &one.doc)).collect::<Vec<_>>()})
        }
        Definition::Variants(Tagging::External, variants) => {
            json!({"oneOf": variants.iter().map(|one| described(external(one), &one.doc)).collect::<Vec<_>>()})
        }
        Definition::Variants(Tagging::Internal(key), variants) => {
            let tagged = |one: &Variant| described(internal(key, one), &one.doc);
            json!({"oneOf": variants.iter().map(tagged).collect::<Vec<_>>()})
        }
    }
}

fn content(variant: &Variant) -> Value {
    match &variant.content {
        Content::Nothing => json!({"type": "null"}),
        Content::Value(shape) => of_shape(shape),
        Content::Fields(fields) => object(fields),
    }
}

fn external(variant: &Variant) -> Value {
    match &variant.content {
        Content::Nothing => json!({"const": variant.name}),
        _ => json!({
            "type": "object",
            "properties": {variant.name.as_str(): content(variant)},
            "required": [variant.name],
        }),
    }
}

fn internal(key: &str, variant: &Variant) -> Value {
    let fields = match &variant.content {
        Content::Fields(fields) => fields.as_slice(),
        Content::Nothing | Content::Value(_) => &[],
    };
    let mut object = object(fields);
    object["properties"][key] = json!({"const": variant.name});
    let required = fields.iter().filter(|field| field.is_required).map(|field| field.name.as_str());
    object["required"] = json!(std::iter::once(key).chain(required).collect::<Vec<_>>());
    object
}

fn object(fields: &[Field]) -> Value {
    let (flattened, own): (Vec<&Field>, Vec<&Field>) = fields.iter().partition(|field| field.is_flattened);
    let property = |field: &&Field| (field.name.clone(), described(of_shape(&field.shape), &meaning(field)));
    let mut object = json!({
        "type": "object",
        "properties": own.iter().map(property).collect::<Map<_, _>>(),
    });
    let required: Vec<&str> =
        own.iter().filter(|field| field.is_required).map(|field| field.name.as_str()).collect();
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if !flattened.is_empty() {
        object["allOf"] = flattened.iter().map(|field| of_shape(&field.shape)).collect();
    }
    object
}

/// What a key means, with its unit.
fn meaning(field: &Field) -> String {
    match unit(field) {
        Some(unit) => format!("{} Unit: {unit}.", field.doc).trim_start().to_owned(),
        None => field.doc.clone(),
    }
}

fn of_shape(shape: &Shape) -> Value {
    match shape {
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Text => json!({"type": "string"}),
        Shape::Integer { is_signed: true } => json!({"type": "integer"}),
        Shape::Integer { is_signed: false } => json!({"type": "integer", "minimum": 0}),
        Shape::Number => json!({"type": "number"}),
        Shape::List { of, length: None } => json!({"type": "array", "items": of_shape(of)}),
        Shape::List { of, length } => {
            json!({"type": "array", "items": of_shape(of), "minItems": length, "maxItems": length})
        }
        Shape::Map(of) => json!({"type": "object", "additionalProperties": of_shape(of)}),
        Shape::Nullable(of) => {
            let mut inner = of_shape(of);
            match inner["type"].take() {
                Value::Null => json!({"anyOf": [{"$ref": inner["$ref"]}, {"type": "null"}]}),
                kind => {
                    inner["type"] = json!([kind, "null"]);
                    inner
                }
            }
        }
        Shape::Named(name) => json!({"$ref": format!("#/$defs/{name}")}),
    }
}
