//! Values captured from a response: a pattern, a JSON pointer, a header field, or an attribute of an HTML element.
//!
//! What was captured are bytes: a body need not be UTF-8. Character references in attributes are decoded as the HTML
//! standard says (13.2.5.72), by `htmlize`; elements are found by `lol_html`.

mod html;
mod json;

use super::variables::{Names, VariableId, Variables};
use crate::http::response_head::header_value;
use html::Attributes;
pub(crate) use html::decoded;
use regex::bytes::Regex;
use webdyno_model::workload::visit::{CaptureFrom, CaptureSpec};
use webdyno_model::{Result, UserError};

/// Most captures of one step.
pub(crate) const CAPTURES_MAX: usize = u64::BITS as usize;

/// The captures of a step, prepared.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    captures: Vec<(VariableId, CaptureSource)>,
    /// HTML attributes are extracted in one pass.
    attributes: Attributes,
}

#[derive(Debug)]
enum CaptureSource {
    Regex(Regex),
    Json(json::Pointer),
    Header(String),
    /// The place among the attributes.
    Attribute(usize),
}

impl Captures {
    /// Declares the variables. A usage error for an invalid pattern, pointer, field or selector.
    pub(crate) fn compile(specs: &[CaptureSpec], names: &mut Names) -> Result<Self> {
        if specs.len() > CAPTURES_MAX {
            return Err(UserError::usage(format!(
                "a step captures {} values, more than {CAPTURES_MAX}",
                specs.len()
            )));
        }
        let mut captures = Self::default();
        for spec in specs {
            let with_name = |error: UserError| UserError {
                message: format!("capture `{}`: {}", spec.name, error.message),
                ..error
            };
            let id = names.declare(&spec.name).map_err(with_name)?;
            let from = captures.from(&spec.from).map_err(with_name)?;
            captures.captures.push((id, from));
        }
        Ok(captures)
    }

    fn from(&mut self, from: &CaptureFrom) -> Result<CaptureSource> {
        Ok(match from {
            CaptureFrom::Regex(pattern) => CaptureSource::Regex(compile_regex(pattern)?),
            CaptureFrom::JsonPointer(pointer) => CaptureSource::Json(json::Pointer::parse(pointer)?),
            CaptureFrom::Header(name) if is_field_name(name) => CaptureSource::Header(name.clone()),
            CaptureFrom::Header(name) => {
                return Err(UserError::usage(format!("`{name}` cannot be the name of a header")));
            }
            CaptureFrom::HtmlAttribute { selector, attribute } => {
                CaptureSource::Attribute(self.attributes.add(selector, attribute)?)
            }
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.captures.is_empty()
    }

    /// Whether the decoded body is needed.
    pub(crate) fn needs_body(&self) -> bool {
        self.captures.iter().any(|(_, from)| !matches!(from, CaptureSource::Header(_)))
    }

    /// Extracts the values of a response: `head` begins with its status line, `body` is decoded. Returns the places, in
    /// the order of the specification, of those that matched nothing; their variables have no value then.
    pub(crate) fn extract(
        &self,
        head: &[u8],
        body: &[u8],
        variables: &mut Variables,
    ) -> impl Iterator<Item = usize> + use<> {
        let mut found = self.attributes.extract(body);
        let mut missed = 0u64;
        for (place, (id, from)) in self.captures.iter().enumerate() {
            let taken = match from {
                CaptureSource::Regex(pattern) => pattern.captures(body).and_then(|groups| {
                    let group = if groups.len() > 1 { groups.get(1) } else { groups.get(0) };
                    group.map(|group| variables.set(*id, group.as_bytes()))
                }),
                CaptureSource::Json(pointer) => {
                    pointer.find(body).map(|value| variables.set(*id, value.as_bytes()))
                }
                CaptureSource::Header(name) => {
                    header_value(head, name).map(|value| variables.set(*id, value))
                }
                CaptureSource::Attribute(number) => {
                    let value = found.get_mut(*number).and_then(Option::take);
                    value.map(|value| variables.set(*id, value.as_bytes()))
                }
            };
            if taken.is_none() {
                variables.unset(*id);
                missed |= 1 << place;
            }
        }
        (0..self.captures.len()).filter(move |place| missed >> place & 1 == 1)
    }
}

fn compile_regex(pattern: &str) -> Result<Regex> {
    let problem = match Regex::new(pattern) {
        Ok(compile_regex) => return Ok(compile_regex),
        Err(problem) => problem.to_string(),
    };
    // The library's message has several lines; the last one is the cause.
    let last = problem.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Err(UserError::usage(format!("`{pattern}` is no regular expression: {last}"))
        .hint("the syntax is that of Rust's regex, without look-around and back references"))
}

/// RFC 9110, 5.6.2: a token.
fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests;
