//! One line of a list: comments, variables, methods and bodies.
//!
//! Facts: src/cfg.c (what is a comment, what a variable), src/eval.c (how it is replaced) and src/url.c (methods, `-T`)
//! of siege. Where siege ignores a mistake (an undefined variable is replaced by nothing), it is an error here.

use super::line_errors::LineError;

/// Methods that a line may name; those with a body behind them come first.
pub(super) const METHODS: [&str; 7] = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "GET", "HEAD"];
/// From this one on there is no body.
const WITHOUT_BODY: usize = 5;

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The URL as it was written.
    pub(super) url: &'a [u8],
    /// Which of [`METHODS`].
    pub(super) method: Option<usize>,
    /// What follows `-T`.
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) sent: LineBody<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineBody<'a> {
    Nothing,
    Text(&'a [u8]),
    /// In a file, which was named at this byte of the line.
    File {
        path: &'a str,
        at: usize,
    },
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\x0b' | b'\x0c')
}

/// A text without the blanks at its ends, and how many were at its beginning.
pub(super) fn trimmed(text: &[u8]) -> (&[u8], usize) {
    let begin = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(begin, |last| last + 1);
    (&text[begin..end], begin)
}

/// `NAME=value`: the length of the name, and where the value begins. `None` for a line that is a request.
pub(super) fn parse_assignment(text: &[u8]) -> Result<Option<(usize, usize)>, LineError> {
    let name = name_bytes(text);
    if text.get(name) != Some(&b'=') {
        return Ok(None);
    }
    if name == 0 {
        return Err(
            LineError::at_byte(0, "there is no name before the `=`").hint("write it as HOST=localhost:8080")
        );
    }
    Ok(Some((name, text.len() - trimmed(&text[name + 1..]).0.len())))
}

fn name_bytes(text: &[u8]) -> usize {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.iter().position(|byte| !is_of_name(byte)).unwrap_or(text.len())
}

/// The text before a comment: a blank and `#`.
pub(super) fn strip_comment(text: &[u8]) -> &[u8] {
    let mut hashes = memchr::memchr_iter(b'#', text);
    match hashes.find(|&at| at == 0 || is_blank(&text[at - 1])) {
        Some(at) => trimmed(&text[..at]).0,
        None => text,
    }
}

/// Replaces `${NAME}` and `$(NAME)`; `\$` is a `$`, and so is one that begins neither.
pub(super) fn expand(
    text: &[u8],
    value: impl Fn(&[u8]) -> Option<Vec<u8>>,
    into: &mut Vec<u8>,
) -> Result<(), LineError> {
    let mut from = 0;
    while let Some(found) = memchr::memchr(b'$', &text[from..]) {
        let at = from + found;
        let escaped = at > from && text[at - 1] == b'\\';
        into.extend_from_slice(&text[from..at - usize::from(escaped)]);
        let close = match text.get(at + 1) {
            _ if escaped => None,
            Some(b'{') => Some(b'}'),
            Some(b'(') => Some(b')'),
            _ => None,
        };
        let Some(close) = close else {
            into.push(b'$');
            from = at + 1;
            continue;
        };
        let name = &text[at + 2..];
        let name = &name[..name_bytes(name)];
        let name_text = String::from_utf8_lossy(name);
        if name.is_empty() || text.get(at + 2 + name.len()) != Some(&close) {
            let opened = char::from(text[at + 1]);
            return Err(LineError::at_byte(at, format!("`${opened}{name_text}` is no variable"))
                .hint("write it as ${NAME} or $(NAME), and \\$ for a dollar that is none"));
        }
        let value = value(name).ok_or_else(|| {
            LineError::at_byte(
                at,
                format!("`{name_text}` has no value: neither a line before nor the environment gives one"),
            )
            .hint(format!("write {name_text}=VALUE on a line of its own before it"))
        })?;
        into.extend_from_slice(&value);
        from = at + 3 + name.len();
    }
    into.extend_from_slice(&text[from..]);
    Ok(())
}

/// A line, trimmed, that is a request.
pub(super) fn split(text: &[u8]) -> Result<Line<'_>, LineError> {
    let mut from = 0;
    while let Some(found) = memchr::memchr2(b' ', b'\t', &text[from..]) {
        let (end, blanks) = (from + found, trimmed(&text[from + found..]).1);
        let begin = end + blanks;
        let url = &text[..end];
        if text[begin] == b'#' {
            return Ok(Line { url, method: None, content_type: None, sent: LineBody::Nothing });
        }
        if let Some(method) = parse_method(&text[begin..]) {
            let behind = begin + METHODS[method].len();
            return body(url, method, &text[behind..], behind);
        }
        from = begin;
    }
    Ok(Line { url: text, method: None, content_type: None, sent: LineBody::Nothing })
}

fn parse_method(text: &[u8]) -> Option<usize> {
    let is_it = |method: &&str| {
        text.starts_with(method.as_bytes())
            && text.get(method.len()).is_none_or(|next| is_blank(next) || *next == b'<')
    };
    METHODS.iter().position(is_it)
}

/// What follows a method, from this byte on.
fn body<'a>(url: &'a [u8], method: usize, behind: &'a [u8], from: usize) -> Result<Line<'a>, LineError> {
    let (mut text, blanks) = trimmed(behind);
    let mut at = from + blanks;
    let mut content_type = None;
    if let Some(rest) = text.strip_prefix(b"-T").filter(|rest| rest.first().is_none_or(is_blank)) {
        let (given, blanks) = trimmed(rest);
        let end = given.iter().position(is_blank).unwrap_or(given.len());
        let named = given[..end].strip_suffix(b";").unwrap_or(&given[..end]);
        if named.is_empty() || !named.iter().all(u8::is_ascii_graphic) {
            return Err(LineError::at_byte(at, "`-T` names no type of content")
                .hint("as in URL POST -T application/json {}"));
        }
        content_type = Some(named);
        let (rest, begin) = trimmed(&given[end..]);
        at += 2 + blanks + end + begin;
        text = rest;
    }
    if method >= WITHOUT_BODY {
        let rest = strip_comment(text);
        if !rest.is_empty() {
            let message =
                format!("{} carries no body, and `{}` follows it", METHODS[method], displayable(rest));
            return Err(LineError::at_byte(at, message));
        }
        return Ok(Line { url, method: Some(method), content_type: None, sent: LineBody::Nothing });
    }
    let sent = match text.strip_prefix(b"<") {
        None => LineBody::Text(text),
        Some(path) => {
            let (path, blanks) = trimmed(path);
            at += 1 + blanks;
            match std::str::from_utf8(path) {
                Ok(path) if !path.is_empty() => LineBody::File { path, at },
                _ => return Err(LineError::at_byte(at, "`<` is followed by the name of no file")),
            }
        }
    };
    Ok(Line { url, method: Some(method), content_type, sent })
}

/// The beginning of what was written, as it may be shown.
pub(super) fn displayable(text: &[u8]) -> String {
    let all = String::from_utf8_lossy(text);
    let plain = all.chars().map(|letter| if letter.is_control() { '\u{FFFD}' } else { letter });
    let short: String = plain.clone().take(60).collect();
    if plain.count() > 60 { format!("{short}...") } else { short }
}
