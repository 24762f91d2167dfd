//! Bodies of requests in a workload file: a text, a file, a form, a form with files, JSON.

use super::keys::{TableKeys, Value};
use super::scope::Scope;
use super::source_span::{FileError, FileResult, SourceSpan};
use super::texts;
use super::texts::VariableUses;
use crate::workload::forms;
use crate::workload::forms::{File, Part};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use webdyno_model::error::io_error;

/// A body larger than this is not what this engine is for; as `--body-file`.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Every key of a field of a multipart form that is a file.
pub(super) const FILE_KEYS: &[&str] = &["file", "type", "filename"];

/// A body with its properties.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// `None` where unknown.
    pub(super) content_type: Option<String>,
    pub(super) is_multipart: bool,
    /// Nothing in it is to be replaced.
    pub(super) is_raw: bool,
}

/// The body of a request; `None` when it has none.
pub(super) fn read(
    scope: &Scope<'_>,
    keys: &TableKeys<'_>,
    uses: &mut VariableUses,
) -> FileResult<Option<Body>> {
    let Some(value) =
        keys.one_of(&["body", "body_file", "body_hex", "body_base64", "form", "multipart", "json"])?
    else {
        return Ok(None);
    };
    let plain = |bytes, content_type: Option<&str>| Body {
        bytes,
        content_type: content_type.map(str::to_owned),
        is_multipart: false,
        is_raw: false,
    };
    let body = match value.key {
        "body" => plain(uses.collect(value.at, value.text()?)?.into(), None),
        "body_file" => Body { is_raw: true, ..plain(file(scope, &value)?, None) },
        "body_hex" => Body { is_raw: true, ..plain(hex(&value)?, None) },
        "body_base64" => Body { is_raw: true, ..plain(base64(&value)?, None) },
        "form" => plain(urlencoded(&value, uses)?, Some(forms::URLENCODED)),
        "json" => plain(json(&value, uses)?, Some("application/json")),
        _ => multipart(scope, &value, uses)?,
    };
    if body.bytes.len() > BODY_BYTES_MAX {
        return Err(too_large(value.at, "the body"));
    }
    Ok(Some(body))
}

fn too_large(at: SourceSpan, what: &str) -> Box<FileError> {
    FileError::new(
        at,
        format!("{what} has more than {BODY_BYTES_MAX} bytes, which is the most that can be sent"),
    )
    .hint("send a smaller body")
}

/// The bytes of a file that a value names.
pub(super) fn file(scope: &Scope<'_>, value: &Value<'_>) -> FileResult<Vec<u8>> {
    let path = scope.files.resolve_relative(value.at.file, value.non_empty_text()?);
    let bytes = (scope.fetch)(&path).map_err(|error| {
        let error = io_error("read", path.display(), &error);
        FileError::from_user_error(value.at, error, "paths are relative to the file that names them")
    })?;
    if bytes.len() > BODY_BYTES_MAX {
        return Err(too_large(value.at, &path.display().to_string()));
    }
    Ok(bytes)
}

/// Bytes as hexadecimal digits, blanks between them ignored.
fn hex(value: &Value<'_>) -> FileResult<Vec<u8>> {
    let digits: Vec<u8> = value.text()?.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair)
            .ok()
            .filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        (text.len() == 2).then(|| u8::from_str_radix(text, 16).ok())?
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.ok_or_else(|| value.type_error("pairs of hexadecimal digits", "\"0a 05 68 65 6c 6c 6f\""))
}

fn base64(value: &Value<'_>) -> FileResult<Vec<u8>> {
    let text: String = value.text()?.split_ascii_whitespace().collect();
    STANDARD.decode(text).map_err(|_| value.type_error("base64 with its padding", "\"CgVoZWxsbw==\""))
}

/// The fields of a form: each value may be a list, which is as many fields of one name.
fn fields<'t>(value: &Value<'t>) -> FileResult<Vec<(&'t str, Value<'t>)>> {
    let mut fields = vec![];
    for (name, _, value) in value.entries("a form")? {
        let values = value.as_list().unwrap_or_else(|| vec![value]);
        fields.extend(values.into_iter().map(|value| (name, value)));
    }
    Ok(fields)
}

fn urlencoded(value: &Value<'_>, uses: &mut VariableUses) -> FileResult<Vec<u8>> {
    let mut pairs = vec![];
    for (name, value) in fields(value)? {
        let text = value.plain()?;
        uses.collect(value.at, name)?;
        uses.collect(value.at, &text)?;
        pairs.push(format!("{}={}", texts::form_text(name), texts::form_text(&text)));
    }
    Ok(pairs.join("&").into_bytes())
}

fn json(value: &Value<'_>, uses: &mut VariableUses) -> FileResult<Vec<u8>> {
    collect_texts(value, uses)?;
    let mut text = String::new();
    value.json(&mut text, &texts::json_text)?;
    Ok(text.into_bytes())
}

/// Notes the variables in all texts of a JSON value.
fn collect_texts(value: &Value<'_>, uses: &mut VariableUses) -> FileResult<()> {
    if let Some(text) = value.as_text() {
        uses.collect(value.at, text)?;
    } else if let Some(list) = value.as_list() {
        list.iter().try_for_each(|element| collect_texts(element, uses))?;
    } else if value.is_table() {
        for (name, at, value) in value.entries("a JSON object")? {
            uses.collect(at, name)?;
            collect_texts(&value, uses)?;
        }
    }
    Ok(())
}

fn multipart(scope: &Scope<'_>, value: &Value<'_>, uses: &mut VariableUses) -> FileResult<Body> {
    let mut parts = vec![];
    for (name, value) in fields(value)? {
        uses.collect(value.at, name)?;
        if !value.is_table() {
            let text = value.plain()?;
            uses.collect(value.at, &text)?;
            parts.push(Part { name: name.into(), bytes: text.into_bytes(), file: None });
            continue;
        }
        let keys = value.keys("a file of a form", FILE_KEYS)?;
        let path = keys.required("file", "{ file = \"photo.png\", type = \"image/png\" }")?;
        let bytes = escaped_bytes(&file(scope, &path)?);
        let own = path.text()?.rsplit('/').next().unwrap_or_default().to_owned();
        let filename =
            keys.read("filename", |value| Ok(uses.collect(value.at, value.non_empty_text()?)?.to_owned()))?;
        let content_type = keys.read("type", media_type)?;
        let file = File { name: filename.unwrap_or_else(|| texts::escaped(&own)), content_type };
        parts.push(Part { name: name.into(), bytes, file: Some(file) });
    }
    let (bytes, content_type) = forms::multipart(&parts);
    Ok(Body { bytes, content_type: Some(content_type), is_multipart: true, is_raw: false })
}

fn media_type(value: &Value<'_>) -> FileResult<String> {
    let text = value.text()?;
    if forms::is_media_type(text) {
        return Ok(text.to_owned());
    }
    Err(FileError::new(value.at, format!("`{text}` is not the type of a file"))
        .hint("write it as in \"image/png\""))
}

/// Bytes in which nothing is to be replaced, as they are written where variables are.
pub(super) fn escaped_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len());
    for (index, byte) in bytes.iter().enumerate() {
        if bytes[index..].starts_with(b"${") {
            escaped.push(b'$');
        }
        escaped.push(*byte);
    }
    escaped
}

/// The reverse, where nothing is replaced after all.
pub(super) fn unescaped_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        // The first dollar of `$${` goes.
        if rest.starts_with(b"$${") {
            plain.extend_from_slice(b"${");
            rest = &rest[3..];
        } else {
            plain.push(first);
            rest = behind;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back() {
        for text in ["", "${a}", "$${", "$$${${", "\u{0}$", "a$b{"] {
            let escaped = escaped_bytes(text.as_bytes());
            assert!(texts::names(std::str::from_utf8(&escaped).unwrap()).is_empty(), "{text}");
            assert_eq!(unescaped_bytes(&escaped), text.as_bytes());
        }
    }
}
