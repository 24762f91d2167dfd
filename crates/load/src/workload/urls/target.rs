//! The URL of a line: its server, known from the lines before, and path and query as they are sent.
//!
//! What goes over the wire is what the url crate makes of a URL (WHATWG URL: blanks and letters beyond ASCII
//! percent-encoded, `/./` and `/../` resolved). Where nothing is to be resolved that is done here, faster.

use super::line::displayable;
use super::line_errors::LineError;
use std::collections::HashMap;
use url::Url;
use webdyno_model::Result;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct UrlParts<'a> {
    pub(super) secure: bool,
    /// Host and port.
    pub(super) authority: &'a [u8],
    /// Where that begins.
    pub(super) authority_at: usize,
    /// Path and query.
    pub(super) target: &'a [u8],
    pub(super) fragment: Option<&'a [u8]>,
}

/// Splits a URL. Without a scheme it is `http://`, as siege and browsers have it.
pub(super) fn split(url: &[u8]) -> std::result::Result<UrlParts<'_>, LineError> {
    if let Some(at) = url.iter().position(u8::is_ascii_control) {
        return Err(LineError::at_byte(at, "a control character is no part of a URL")
            .hint("write it percent-encoded"));
    }
    let (secure, authority_at) = scheme(url)?;
    let rest = &url[authority_at..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (target, fragment) = match memchr::memchr(b'#', rest) {
        None => (rest, None),
        Some(hash) => (&rest[..hash], Some(&rest[hash + 1..])),
    };
    Ok(UrlParts { secure, authority, authority_at, target, fragment })
}

/// Whether TLS is spoken, and the length of the scheme.
fn scheme(url: &[u8]) -> std::result::Result<(bool, usize), LineError> {
    let begins = |with: &[u8]| url.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    if begins(b"http://") {
        return Ok((false, 7));
    }
    if begins(b"https://") {
        return Ok((true, 8));
    }
    if begins(b"//") {
        return Ok((false, 2));
    }
    let before = &url[..url.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(url.len())];
    let is_lone = begins(b"http:") || begins(b"https:");
    if is_lone || before.ends_with(b":") && url[before.len()..].starts_with(b"//") {
        let error = LineError::at_byte(
            0,
            format!("`{}` has another scheme than http:// and https://", displayable(url)),
        );
        return Err(error.hint("only http and https can be loaded, as in http://localhost:8080/path"));
    }
    if before.is_empty() {
        return Err(LineError::at_byte(0, format!("`{}` names no host", displayable(url)))
            .hint("write it in full, as in http://localhost:8080/path"));
    }
    Ok((false, 0))
}

/// Its weight, if its fragment has one.
pub(super) fn weight(place: &UrlParts<'_>) -> std::result::Result<Option<f32>, LineError> {
    let Some(text) = place.fragment.and_then(|fragment| fragment.strip_prefix(b"weight=")) else {
        return Ok(None);
    };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
    match number.filter(|number| number.is_finite() && *number > 0.0) {
        Some(weight) => Ok(Some(weight)),
        None => {
            let at = place.authority_at + place.authority.len() + place.target.len() + 1;
            Err(LineError::at_byte(at, format!("`{}` is not the weight of a request", displayable(text)))
                .hint("write a number above 0, as in http://localhost/#weight=2.5"))
        }
    }
}

/// The servers of a list.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// As the url crate writes them: `http://host:port`.
    names: Vec<String>,
    number_by_name: HashMap<String, u32>,
    /// By what was written.
    name_by: HashMap<(bool, Vec<u8>), u32>,
    /// What was written last.
    last: Option<(bool, Vec<u8>, u32)>,
}

impl Servers {
    /// Its scheme, host and port.
    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// The server of a URL; `check` validates a new one.
    pub(super) fn of(
        &mut self,
        place: &UrlParts<'_>,
        check: impl Fn(&str) -> Result<()>,
    ) -> std::result::Result<u32, LineError> {
        if let Some((secure, authority, number)) = &self.last
            && *secure == place.secure
            && authority.as_slice() == place.authority
        {
            return Ok(*number);
        }
        let key = (place.secure, place.authority.to_vec());
        let number = match self.name_by.get(&key) {
            Some(&number) => number,
            None => {
                let number = self.add(place, check)?;
                self.name_by.insert(key.clone(), number);
                number
            }
        };
        self.last = Some((key.0, key.1, number));
        Ok(number)
    }

    fn add(
        &mut self,
        place: &UrlParts<'_>,
        check: impl Fn(&str) -> Result<()>,
    ) -> std::result::Result<u32, LineError> {
        let scheme = if place.secure { "https" } else { "http" };
        let host_error = |message: String| LineError::at_byte(place.authority_at, message);
        let authority = std::str::from_utf8(place.authority)
            .map_err(|_| host_error(format!("`{}` is not UTF-8", displayable(place.authority))))?;
        let text = format!("{scheme}://{authority}/");
        check(&text).map_err(|error| LineError::from(error).shifted(place.authority_at))?;
        let url =
            Url::parse(&text).map_err(|error| host_error(format!("`{authority}` is no host: {error}")))?;
        let name = url.origin().ascii_serialization();
        let next = self.names.len() as u32;
        let number = *self.number_by_name.entry(name.clone()).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        Ok(number)
    }

    /// Appends path and query as they are sent.
    pub(super) fn push_target(
        &self,
        server: u32,
        place: &UrlParts<'_>,
        text: &mut Vec<u8>,
    ) -> std::result::Result<(), LineError> {
        let target = place.target;
        let kind = kind_of(target);
        if kind == Kind::Plain {
            text.extend_from_slice(if target.is_empty() { b"/" } else { target });
            return Ok(());
        }
        let at = place.authority_at + place.authority.len();
        let written = std::str::from_utf8(target).map_err(|error| {
            LineError::at_byte(at + error.valid_up_to(), "a byte that is not UTF-8 is no part of a URL")
                .hint("write it percent-encoded, as %E9")
        })?;
        if kind == Kind::Encoded {
            encode(target, text);
            return Ok(());
        }
        let url = Url::parse(&format!("{}{written}", self.name(server))).map_err(|error| {
            LineError::at_byte(at, format!("`{}` is no path: {error}", displayable(target)))
        })?;
        text.extend_from_slice(url.path().as_bytes());
        if let Some(query) = url.query() {
            text.push(b'?');
            text.extend_from_slice(query.as_bytes());
        }
        Ok(())
    }
}

/// What becomes of a path and query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is sent as it was written.
    Plain,
    /// Some of its bytes are percent-encoded, and that is all.
    Encoded,
    /// It is for the url crate: it does not begin with a slash, has a backslash, or may have segments of dots.
    Other,
}

const PATH: u8 = 1;
const QUERY: u8 = 2;
const OTHER: u8 = 4;

/// What is percent-encoded in a path and in a query: the path and special-query percent-encode sets of the WHATWG URL
/// standard as the url crate has them.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            // The standard encodes ^ in paths since 2023, the url crate not yet: whatever it does is right.
            b'\\' | b'^' => OTHER,
            0..=b' ' | 0x7f..=0xff | b'"' | b'<' | b'>' => PATH | QUERY,
            b'`' | b'{' | b'}' => PATH,
            b'\'' => QUERY,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

fn kind_of(target: &[u8]) -> Kind {
    if target.first().is_some_and(|first| *first != b'/') {
        return Kind::Other;
    }
    let (mut before, mut found, mut dots) = (0, 0, false);
    for &byte in target {
        found |= CLASSES[usize::from(byte)];
        // `/.` and `/%2e` may begin a segment of dots.
        dots |= before == b'/' && (byte == b'.' || byte == b'%');
        before = byte;
    }
    match (dots || found & OTHER != 0, found) {
        (true, _) => Kind::Other,
        (false, 0) => Kind::Plain,
        (false, _) => Kind::Encoded,
    }
}

/// Percent-encodes what must be.
fn encode(target: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let query = memchr::memchr(b'?', target).unwrap_or(target.len());
    for (index, &byte) in target.iter().enumerate() {
        let class = if index > query { QUERY } else { PATH };
        match CLASSES[usize::from(byte)] & class {
            0 => text.push(byte),
            _ => text.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Invariant: path and query are those of the url crate, whichever way they are made.
        #[test]
        fn targets_are_those_of_the_url_crate(target in r"(/[ -~é]{0,12}(\.|%2e|%2E|/){0,3}){0,3}(\?[ -~é]{0,12})?") {
            // Lines are trimmed, so no URL ends with a blank.
            let target = target.replace('#', "").trim_end().to_owned();
            let whole = format!("http://h{target}");
            let place = split(whole.as_bytes()).unwrap();
            let mut text = vec![];
            let mut servers = Servers::default();
            let server = servers.of(&place, |_| Ok(())).unwrap();
            servers.push_target(server, &place, &mut text).unwrap();
            let url = Url::parse(&whole).unwrap();
            let expected = format!("{}{}", url.path(), url.query().map(|query| format!("?{query}")).unwrap_or_default());
            prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_plain_is_not_parsed() {
        for (target, plain) in [
            ("", true),
            ("/", true),
            ("/a.b/c?d=e%20&f", true),
            ("?a", false),
            ("/../a", false),
            ("/a b", false),
        ] {
            assert_eq!(kind_of(target.as_bytes()) == Kind::Plain, plain, "{target}");
        }
    }
}
