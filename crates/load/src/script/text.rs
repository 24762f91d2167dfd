//! Texts with variables: `${name}`, or `${name|filter}`; `$${` stands for `${` itself.
//!
//! Filters are `form` (application/x-www-form-urlencoded, the URL standard's serializer), `url` (all but RFC 3986's
//! unreserved characters percent-encoded), `json` (inside of a JSON string, RFC 8259) and `base64` (RFC 4648). Without
//! one a value is written as its place needs it: see [`Place`].

use super::variables::{Names, VariableId, Variables, is_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use webdyno_model::UserError;

/// Where a text stands, which decides how a value without a filter is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a URL: what can stand in no URL is percent-encoded, and so is `#`; what separates its parts stays, and so does
    /// what is encoded already.
    Url,
    /// In a header field: what would end the line becomes a blank.
    Header,
    /// In a body, or a password: nothing is changed.
    Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    None,
    Form,
    Url,
    Json,
    Base64,
}

const FILTERS: [(&str, Filter); 4] =
    [("form", Filter::Form), ("url", Filter::Url), ("json", Filter::Json), ("base64", Filter::Base64)];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<[u8]>),
    Variable(VariableId, Filter),
}

/// A text, ready to be written with a visitor's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pieces: Box<[Piece]>,
    place: Place,
}

impl Text {
    /// Reads a text. A usage error that names the column when `${` is not closed, or when there is no such variable or
    /// filter.
    pub(crate) fn parse(text: &str, names: &Names, place: Place) -> webdyno_model::Result<Self> {
        let mut pieces = vec![];
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                literal.push_str(&rest[..at - 1]);
                literal.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            literal.push_str(&rest[..at]);
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into_bytes().into()));
            }
            let column = || text[..text.len() - rest.len() + at].chars().count() + 1;
            let inner = &rest[at + 2..];
            let end = inner.find(['}', '{']).filter(|&end| inner[end..].starts_with('}'));
            let end = end.ok_or_else(|| {
                wrong(text, column(), "`${` is not closed by `}`").hint("`$${` stands for `${` itself")
            })?;
            pieces.push(variable(&inner[..end], names).map_err(|problem| {
                let error = wrong(text, column(), &problem.message);
                problem.hint.map_or(error.clone(), |hint| error.hint(hint))
            })?);
            rest = &inner[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into_bytes().into()));
        }
        Ok(Self { pieces: pieces.into(), place })
    }

    /// The variables in it, in their order.
    pub(crate) fn variables(&self) -> impl Iterator<Item = VariableId> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(id, _) => Some(*id),
            Piece::Literal(_) => None,
        })
    }

    /// The variable that is the whole text, without a filter: a URL like that is resolved against the one before.
    pub(crate) fn whole(&self) -> Option<VariableId> {
        match self.pieces.as_ref() {
            [Piece::Variable(id, Filter::None)] => Some(*id),
            _ => None,
        }
    }

    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends the text to `into`. The error is a variable that has no value; `into` is then as before.
    pub(crate) fn render(&self, variables: &Variables, into: &mut Vec<u8>) -> Result<(), VariableId> {
        let before = into.len();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => into.extend_from_slice(bytes),
                Piece::Variable(id, filter) => match variables.get(*id) {
                    Some(value) => self.write(value, *filter, into),
                    None => {
                        into.truncate(before);
                        return Err(*id);
                    }
                },
            }
        }
        Ok(())
    }

    fn write(&self, value: &[u8], filter: Filter, into: &mut Vec<u8>) {
        match filter {
            Filter::None => match self.place {
                Place::Url => url_encode_unsafe(value, into),
                Place::Header => {
                    into.extend(value.iter().map(|&byte| if is_control(byte) { b' ' } else { byte }));
                }
                Place::Body => into.extend_from_slice(value),
            },
            Filter::Form => {
                url::form_urlencoded::byte_serialize(value)
                    .for_each(|part| into.extend_from_slice(part.as_bytes()));
            }
            Filter::Url => percent_encode(value, into, |byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
            }),
            Filter::Json => json_inside(value, into),
            Filter::Base64 => {
                let before = into.len();
                into.resize(before + value.len().div_ceil(3) * 4, 0);
                // It has the room that the standard says.
                let written = STANDARD.encode_slice(value, &mut into[before..]).unwrap_or(0);
                into.truncate(before + written);
            }
        }
    }
}

/// RFC 9110, 5.5: what no field value holds, but for the tab.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

struct Problem {
    message: String,
    hint: Option<String>,
}

fn variable(inner: &str, names: &Names) -> Result<Piece, Problem> {
    let (name, filter) = inner.split_once('|').map_or((inner, None), |(name, filter)| (name, Some(filter)));
    let (name, filter) = (name.trim(), filter.map(str::trim));
    if !is_name(name) {
        return Err(Problem {
            message: format!("`{name}` cannot be the name of a variable"),
            hint: Some("`$${` stands for `${` itself".into()),
        });
    }
    let filter = match filter {
        None => Filter::None,
        Some(wanted) => {
            let found = FILTERS.iter().find(|(name, _)| *name == wanted).ok_or_else(|| Problem {
                message: format!("no filter is called `{wanted}`"),
                hint: Some("filters are form, url, json and base64".into()),
            })?;
            found.1
        }
    };
    let id = names.find(name).ok_or_else(|| Problem {
        message: format!("no variable is called `{name}`"),
        hint: names.nearest(name).map(|near| format!("did you mean `${{{near}}}`?")),
    })?;
    Ok(Piece::Variable(id, filter))
}

/// Longest part of a text that an error shows.
const SHOWN_CHARS: usize = 60;

fn wrong(text: &str, column: usize, problem: &str) -> UserError {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    UserError::usage(format!("`{shown}`, column {column}: {problem}"))
}

/// Percent-encodes what RFC 3986 lets stand nowhere in path and query, and `#`, which would end them.
fn url_encode_unsafe(value: &[u8], into: &mut Vec<u8>) {
    let mut rest = value;
    while let Some((&byte, behind)) = rest.split_first() {
        let encoded_already =
            byte == b'%' && matches!(behind, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
        percent_encode(&[byte], into, |byte| {
            encoded_already
                || byte.is_ascii_graphic()
                    && !matches!(
                        byte,
                        b'"' | b'#' | b'%' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
                    )
        });
        rest = behind;
    }
}

fn percent_encode(value: &[u8], into: &mut Vec<u8>, stays: impl Fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in value {
        if stays(byte) {
            into.push(byte);
        } else {
            into.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// The inside of a JSON string. JSON is UTF-8: what is not becomes U+FFFD.
fn json_inside(value: &[u8], into: &mut Vec<u8>) {
    for letter in String::from_utf8_lossy(value).chars() {
        match letter {
            '"' | '\\' => into.extend_from_slice(&[b'\\', letter as u8]),
            '\n' => into.extend_from_slice(b"\\n"),
            '\r' => into.extend_from_slice(b"\\r"),
            '\t' => into.extend_from_slice(b"\\t"),
            '\0'..='\x1f' => {
                let mut escaped = String::new();
                // Writing to a string does not fail.
                let _ = write!(escaped, "\\u{:04x}", letter as u32);
                into.extend_from_slice(escaped.as_bytes());
            }
            _ => into.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}
