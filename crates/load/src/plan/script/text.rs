//! Texts with variables: `${name}`, or `${name|filter}`; `$${` stands for `${` itself.
//!
//! Filters are `form` (application/x-www-form-urlencoded, the URL standard's serializer), `url` (all but RFC 3986's
//! unreserved characters percent-encoded), `json` (inside of a JSON string, RFC 8259) and `base64` (RFC 4648). Without
//! one a value is written as its place needs it: see [`TextContext`].

use super::variables::{Names, VariableId, Variables, is_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use webdyno_model::UserError;

/// The context of a text, which decides how a value without a filter is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextContext {
    /// In a URL: what can stand in no URL is percent-encoded, and so is `#`; what separates its parts stays, and so
    /// does what is encoded already.
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
    place: TextContext,
}

impl Text {
    /// Reads a text. A usage error that names the column when `${` is not closed, or when there is no such variable or
    /// filter.
    pub(crate) fn parse(text: &str, names: &Names, place: TextContext) -> webdyno_model::Result<Self> {
        Self::of_bytes(text.as_bytes(), names, place)
    }

    /// The same of a body, which need not be UTF-8: a form with a picture in it.
    pub(crate) fn of_bytes(text: &[u8], names: &Names, place: TextContext) -> webdyno_model::Result<Self> {
        let mut pieces = vec![];
        let mut literal = vec![];
        let mut rest = text;
        while let Some(at) = position(rest, b"${") {
            let column =
                || String::from_utf8_lossy(&text[..text.len() - rest.len() + at]).chars().count() + 1;
            let (before, inner) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix(b"$") {
                literal.extend_from_slice(before);
                literal.extend_from_slice(b"${");
                rest = inner;
                continue;
            }
            literal.extend_from_slice(before);
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
            }
            let end =
                inner.iter().position(|byte| matches!(byte, b'}' | b'{')).filter(|&end| inner[end] == b'}');
            let end = end.ok_or_else(|| {
                text_error(text, column(), "`${` is not closed by `}`").hint("`$${` stands for `${` itself")
            })?;
            let name = String::from_utf8_lossy(&inner[..end]);
            pieces.push(variable(&name, names).map_err(|problem| {
                let error = text_error(text, column(), &problem.message);
                problem.hint.map_or(error.clone(), |hint| error.hint(hint))
            })?);
            rest = &inner[end + 1..];
        }
        literal.extend_from_slice(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
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
    pub(crate) fn single_variable(&self) -> Option<VariableId> {
        match self.pieces.as_ref() {
            [Piece::Variable(id, Filter::None)] => Some(*id),
            _ => None,
        }
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
                TextContext::Url => url_encode_unsafe(value, into),
                TextContext::Header => {
                    into.extend(value.iter().map(|&byte| if is_control(byte) { b' ' } else { byte }));
                }
                TextContext::Body => into.extend_from_slice(value),
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
                // It has the room that the standard requires.
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

fn text_error(text: &[u8], column: usize, problem: &str) -> UserError {
    // Text behind what is shown is not examined: it may be long. A letter has at most four bytes.
    let begin = String::from_utf8_lossy(&text[..text.len().min(4 * (SHOWN_CHARS + 1))]);
    let mut shown: String = begin.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    let shown = shown.replace(|c: char| c.is_control(), " ");
    UserError::usage(format!("`{shown}`, column {column}: {problem}"))
}

/// Where `wanted` begins.
fn position(bytes: &[u8], wanted: &[u8; 2]) -> Option<usize> {
    bytes.windows(2).position(|two| two == wanted)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> Names {
        let mut names = Names::default();
        for name in ["a", "b", "csrf_token"] {
            names.declare(name).unwrap();
        }
        names
    }

    /// The text with `a` and `b` set.
    fn rendered(text: &str, place: TextContext, a: &[u8], b: &[u8]) -> Vec<u8> {
        let names = names();
        let mut variables = Variables::default();
        variables.set(names.find("a").unwrap(), a);
        variables.set(names.find("b").unwrap(), b);
        let mut into = b"before ".to_vec();
        Text::parse(text, &names, place).unwrap().render(&variables, &mut into).unwrap();
        into.strip_prefix(b"before ").unwrap().to_vec()
    }

    #[test]
    fn values_take_the_place_of_their_names() {
        for (text, expected) in [
            ("", ""),
            ("plain $ { } $a", "plain $ { } $a"),
            ("${a}", "1"),
            ("${a}${b}-${a}", "12-1"),
            ("x${ a }y", "x1y"),
            ("$${a}", "${a}"),
            ("$${a}${a}", "${a}1"),
            ("$$${a}", "$${a}"),
            ("$$ ${a}$", "$$ 1$"),
            ("ü${a}ü", "ü1ü"),
            ("{\"x\": ${a}}", "{\"x\": 1}"),
            ("${a|form}${b | url}", "12"),
        ] {
            let written = rendered(text, TextContext::Body, b"1", b"2");
            assert_eq!(String::from_utf8(written).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_written_as_its_place_needs_it() {
        let value = "a b&c=d/e?f#g%h%20\"<>{}|\\^`é+\r\n".as_bytes();
        let check = |text: &str, place, expected: &str| {
            assert_eq!(String::from_utf8(rendered(text, place, value, b"")).unwrap(), expected);
        };
        check("${a}", TextContext::Body, "a b&c=d/e?f#g%h%20\"<>{}|\\^`é+\r\n");
        check("${a}", TextContext::Header, "a b&c=d/e?f#g%h%20\"<>{}|\\^`é+  ");
        check("${a}", TextContext::Url, "a%20b&c=d/e?f%23g%25h%20%22%3C%3E%7B%7D%7C%5C%5E%60%C3%A9+%0D%0A");
        let form = "a+b%26c%3Dd%2Fe%3Ff%23g%25h%2520%22%3C%3E%7B%7D%7C%5C%5E%60%C3%A9%2B%0D%0A";
        let url = "a%20b%26c%3Dd%2Fe%3Ff%23g%25h%2520%22%3C%3E%7B%7D%7C%5C%5E%60%C3%A9%2B%0D%0A";
        for place in [TextContext::Body, TextContext::Header, TextContext::Url] {
            check("${a|form}", place, form);
            check("${a|url}", place, url);
        }
        check("${a|json}", TextContext::Body, "a b&c=d/e?f#g%h%20\\\"<>{}|\\\\^`é+\\r\\n");
        assert_eq!(rendered("${a|base64}-${b|base64}", TextContext::Body, b"\xff\xfe", b""), b"//4=-");
        assert_eq!(rendered("${a}", TextContext::Url, b"%4", b""), b"%254");
        assert_eq!(
            rendered("${a|json}", TextContext::Body, b"\x00\x1f\xff", b""),
            "\\u0000\\u001f\u{fffd}".as_bytes()
        );
        assert_eq!(rendered("${a}", TextContext::Body, b"\xff", b""), b"\xff");
    }

    #[test]
    fn a_faulty_text_is_refused_with_its_place() {
        for (text, message) in [
            ("/a?x=${b", "`/a?x=${b`, column 6: `${` is not closed by `}`"),
            ("ü${", "`ü${`, column 2: `${` is not closed by `}`"),
            ("${a${b}}", "`${a${b}}`, column 1: `${` is not closed by `}`"),
            ("${a}${}", "`${a}${}`, column 5: `` cannot be the name of a variable"),
            ("${1}", "`${1}`, column 1: `1` cannot be the name of a variable"),
            ("${x y}", "`${x y}`, column 1: `x y` cannot be the name of a variable"),
            ("${nobody}", "`${nobody}`, column 1: no variable is called `nobody`"),
            ("${a|html}", "`${a|html}`, column 1: no filter is called `html`"),
            ("${a|}", "`${a|}`, column 1: no filter is called ``"),
            ("${a|form|url}", "`${a|form|url}`, column 1: no filter is called `form|url`"),
            ("$${a} ${A}", "`$${a} ${A}`, column 7: no variable is called `A`"),
        ] {
            let error = Text::parse(text, &names(), TextContext::Body).unwrap_err();
            assert_eq!((error.message.as_str(), error.exit_code()), (message, 2));
        }
        let error = Text::parse("${csrfToken}", &names(), TextContext::Body).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("did you mean `${csrf_token}`?"));
        let long = format!("{}${{", "x".repeat(500));
        let error = Text::parse(&long, &names(), TextContext::Body).unwrap_err();
        assert!(error.message.len() < 150 && error.message.contains("column 501"), "{}", error.message);
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let names = names();
        let mut variables = Variables::default();
        variables.set(names.find("a").unwrap(), b"1");
        let text = Text::of_bytes(b"\xff${a}\x00\xfe$${\r\n${a}\xc3", &names, TextContext::Body).unwrap();
        let mut into = vec![];
        text.render(&variables, &mut into).unwrap();
        assert_eq!(into, b"\xff1\x00\xfe${\r\n1\xc3");
        let error = Text::of_bytes(b"\xff\r\n${", &names, TextContext::Body).unwrap_err();
        assert_eq!(error.message, "`\u{fffd}  ${`, column 4: `${` is not closed by `}`");
    }

    #[test]
    fn without_a_value_nothing_is_written() {
        let names = names();
        let text = Text::parse("x${a}y${b}", &names, TextContext::Body).unwrap();
        let (a, b) = (names.find("a").unwrap(), names.find("b").unwrap());
        assert_eq!(text.variables().collect::<Vec<_>>(), [a, b]);
        let mut variables = Variables::default();
        variables.set(a, b"1");
        let mut into = b"before".to_vec();
        assert_eq!(text.render(&variables, &mut into), Err(b));
        assert_eq!(into, b"before");
        assert_eq!(Text::parse("${a}", &names, TextContext::Url).unwrap().single_variable(), Some(a));
        for text in ["${a|url}", "${a}b", "a", ""] {
            assert_eq!(
                Text::parse(text, &names, TextContext::Url).unwrap().single_variable(),
                None,
                "{text}"
            );
        }
    }

    proptest! {
        /// Any text is read or refused, and with `$${` for `${` it is what it was.
        #[test]
        fn an_escaped_text_is_itself(text in "[$\\{\\}ab|ü ]{0,30}") {
            let _ = Text::parse(&text, &names(), TextContext::Body);
            // Only a dollar that would be taken for part of an escape cannot be written so.
            prop_assume!(!text.contains("$${"));
            let escaped = text.replace("${", "$${");
            prop_assert_eq!(rendered(&escaped, TextContext::Body, b"", b""), text.into_bytes());
        }

        /// What a filter wrote is read back by another reader as what it was.
        #[test]
        fn filters_are_undone_by_other_readers(value in any::<Vec<u8>>(), text in any::<String>()) {
            let form = rendered("k=${a|form}", TextContext::Body, text.as_bytes(), b"");
            let read: Vec<_> = url::form_urlencoded::parse(&form).collect();
            prop_assert_eq!(read, vec![("k".into(), text.as_str().into())]);
            let json = rendered("\"${a|json}\"", TextContext::Body, text.as_bytes(), b"");
            prop_assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text.as_str());
            let base64 = rendered("${a|base64}", TextContext::Body, &value, b"");
            prop_assert_eq!(STANDARD.decode(base64).unwrap(), value.as_slice());
            let url = rendered("http://h/${a}?${a|url}", TextContext::Url, &value, b"");
            let url = url::Url::parse(std::str::from_utf8(&url).unwrap()).unwrap();
            prop_assert!(url.fragment().is_none());
            // `url` encodes everything else by itself; had it anything left to do, it would have changed what was
            // written.
            let written = rendered("${a|url}", TextContext::Url, &value, b"");
            prop_assert!(url.as_str().as_bytes().ends_with(&written));
        }
    }
}
