//! What a step keeps of its response: read and checked, so that a pattern that cannot be used is reported before the
//! load.

use super::keys::{TableKeys, Value};
use super::source_span::{FileError, FileResult, SourceSpan};
use super::texts::is_name;
use webdyno_model::workload::visit::{CaptureFrom, CaptureSpec};

/// Every key of a capture.
pub(super) const CAPTURE_KEYS: &[&str] = &["name", "regex", "json", "header", "html", "attribute"];
/// Built-in variables: the number of the visitor, and of the session.
pub(super) const BUILT_IN: [&str; 2] = ["user", "session"];

/// Checks a user-defined name of a variable.
pub(super) fn new_name(at: SourceSpan, name: &str) -> FileResult<()> {
    if !is_name(name) {
        return Err(FileError::new(at, format!("`{name}` cannot be the name of a variable"))
            .hint("names are made of letters, digits, _ and -, and begin with a letter or _"));
    }
    if BUILT_IN.contains(&name) {
        let message =
            format!("`{name}` is the name of a variable that is always there: the number of the {name}");
        return Err(FileError::new(at, message).hint(format!("choose another name, such as `{name}_name`")));
    }
    Ok(())
}

/// The captures of a step.
pub(super) fn read(value: &Value<'_>) -> FileResult<Vec<(SourceSpan, CaptureSpec)>> {
    let mut captures: Vec<(SourceSpan, CaptureSpec)> = vec![];
    for element in value.tables("session.step.capture")? {
        let keys = element.keys("a capture", CAPTURE_KEYS)?;
        let name = keys.required("name", "{ name = \"token\", json = \"/token\" }")?;
        let text = name.non_empty_text()?;
        new_name(name.at, text)?;
        if captures.iter().any(|(_, before)| before.name == text) {
            return Err(FileError::new(name.at, format!("this step captures `{text}` twice"))
                .hint("give the two of them different names"));
        }
        captures.push((name.at, CaptureSpec { name: text.to_owned(), from: from(&keys)? }));
    }
    Ok(captures)
}

/// Where the value is found.
fn from(keys: &TableKeys<'_>) -> FileResult<CaptureFrom> {
    let attribute = keys.get("attribute");
    let Some(value) = keys.one_of(&["regex", "json", "header", "html"])? else {
        return Err(FileError::new(keys.at, "a capture needs `regex`, `json`, `header` or `html`")
            .hint("they say where the value is found, as in { name = \"id\", json = \"/order/id\" }"));
    };
    if let Some(attribute) = attribute.filter(|_| value.key != "html") {
        let message = format!("`attribute` belongs to `html`, and this capture has `{}`", value.key);
        return Err(FileError::new(attribute.at, message).hint("leave it out"));
    }
    let text = value.text()?;
    Ok(match value.key {
        "regex" => {
            check_pattern(value.at, text)?;
            CaptureFrom::Regex(text.to_owned())
        }
        "json" => {
            check_pointer(value.at, text)?;
            CaptureFrom::JsonPointer(text.to_owned())
        }
        "header" => {
            check_header(value.at, text)?;
            CaptureFrom::Header(text.to_owned())
        }
        _ => {
            check_selector(value.at, text)?;
            let attribute =
                keys.required("attribute", "{ name = \"token\", html = \"input\", attribute = \"value\" }")?;
            let selector = text.to_owned();
            CaptureFrom::HtmlAttribute {
                selector,
                attribute: attribute.non_empty_text()?.to_ascii_lowercase(),
            }
        }
    })
}

/// A regular expression on bytes.
pub(super) fn check_pattern(at: SourceSpan, pattern: &str) -> FileResult<()> {
    match regex::bytes::Regex::new(pattern) {
        Ok(_) => Ok(()),
        Err(error) => {
            // The last line is the cause; those before show where, in a copy of the pattern.
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Err(FileError::new(at, format!("`{pattern}` is not a regular expression: {why}")).hint(
                "the syntax is that of the Rust crate regex; write it between '...', where \\ is itself",
            ))
        }
    }
}

/// RFC 6901, section 3.
fn check_pointer(at: SourceSpan, pointer: &str) -> FileResult<()> {
    let tilde = |part: &str| !part.starts_with(['0', '1']);
    let is_wrong = !pointer.is_empty() && !pointer.starts_with('/') || pointer.split('~').skip(1).any(tilde);
    if !is_wrong {
        return Ok(());
    }
    Err(FileError::new(at, format!("`{pointer}` is not a JSON pointer"))
        .hint("write it as \"/order/items/0/id\"; ~ is written ~0 and / within a name ~1"))
}

fn check_header(at: SourceSpan, name: &str) -> FileResult<()> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(token) {
        return Ok(());
    }
    Err(FileError::new(at, format!("`{name}` is not the name of a header"))
        .hint("write it as in \"Location\""))
}

fn check_selector(at: SourceSpan, selector: &str) -> FileResult<()> {
    match selector.parse::<lol_html::Selector>() {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = error.to_string().to_lowercase();
            let why = why.trim_end_matches('.');
            Err(FileError::new(at, format!("`{selector}` is not a selector: {why}"))
                .hint("write it as in \"form#login input[name=csrf]\""))
        }
    }
}
