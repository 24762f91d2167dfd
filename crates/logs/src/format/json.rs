//! Lines of JSON: each an object whose keys are those of nginx's variables, of Apache's usual names, of Caddy or Traefik. Objects
//! within it are entered (`request.uri`); of lists the first text counts. Nothing is allocated: texts stay as they are escaped.

use super::status;
use crate::entry::Entry;
use crate::number::{time_us, whole};
use crate::timestamp::{Stamp, TimeReader, TimeStyle};

/// Deeper objects are not entered.
const DEPTH_MAX: usize = 8;

/// The fields of a line; `None` when it is no object with a time and a request or status.
pub(super) fn entry<'a>(line: &'a [u8], times: &mut TimeReader) -> Option<Entry<'a>> {
    let mut found = Entry::default();
    let mut reader = Reader { rest: line.trim_ascii() };
    reader.object(0, &mut |key, value| set(&mut found, key, value, times))?;
    let is_request = found.status > 0 || !found.path.is_empty();
    (reader.rest.is_empty() && found.time.is_some() && is_request).then_some(found)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn skip(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.trim_ascii_start();
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first() == Some(&byte)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        self.skip(b'"')?;
        let end = super::quote(self.rest)?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(text)
    }

    fn object(&mut self, depth: usize, found: &mut impl FnMut(&[u8], &'a [u8])) -> Option<()> {
        self.skip(b'{')?;
        if self.next_is(b'}') {
            return self.skip(b'}');
        }
        loop {
            let key = self.text()?;
            self.skip(b':')?;
            self.value(key, depth, found)?;
            if self.next_is(b'}') {
                return self.skip(b'}');
            }
            self.skip(b',')?;
        }
    }

    fn value(&mut self, key: &[u8], depth: usize, found: &mut impl FnMut(&[u8], &'a [u8])) -> Option<()> {
        self.rest = self.rest.trim_ascii_start();
        match self.rest.first()? {
            b'"' => {
                let text = self.text()?;
                found(key, text);
            }
            b'{' if depth < DEPTH_MAX => self.object(depth + 1, found)?,
            b'[' if depth < DEPTH_MAX => {
                self.skip(b'[')?;
                while !self.next_is(b']') {
                    self.value(key, depth + 1, found)?;
                    if self.next_is(b',') {
                        self.skip(b',')?;
                    }
                }
                self.skip(b']')?;
            }
            b'{' | b'[' => return None,
            _ => {
                let end = self.rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b' '));
                // Of a value without a byte a list would have endlessly many.
                let (value, rest) = self.rest.split_at(end.filter(|end| *end > 0)?);
                self.rest = rest;
                found(key, value);
            }
        }
        Some(())
    }
}

/// Keys in lower case, without what separates their words.
fn set<'a>(entry: &mut Entry<'a>, key: &[u8], value: &'a [u8], times: &mut TimeReader) {
    let mut name = [0; 24];
    let letters = key.iter().filter(|letter| letter.is_ascii_alphanumeric());
    let mut length = 0;
    for letter in letters.take(name.len()) {
        name[length] = letter.to_ascii_lowercase();
        length += 1;
    }
    let is_empty = value.is_empty() || value == b"-" || value == b"null";
    match &name[..length] {
        _ if is_empty => {}
        b"remoteaddr" | b"remoteip" | b"clientip" | b"clienthost" | b"client" | b"remotehost" | b"ip"
            if entry.client.is_empty() =>
        {
            entry.client = value;
        }
        b"timelocal" | b"timeiso8601" | b"time" | b"timestamp" | b"ts" | b"msec" | b"startutc"
        | b"datetime"
            if entry.time.is_none() =>
        {
            entry.time = any_time(value, times);
        }
        b"request" | b"requestline" if memchr::memchr(b' ', value).is_some() => entry.set_request(value),
        // As Apache's `%U` is called in formats that many have copied.
        b"request" if value.starts_with(b"/") && entry.path.is_empty() => entry.set_target(value),
        b"method" | b"requestmethod" => entry.method = value,
        b"requesturi" | b"uri" | b"url" | b"path" | b"requestpath" | b"target" if entry.path.is_empty() => {
            entry.set_target(value)
        }
        b"args" | b"querystring" | b"query" => entry.query = value.strip_prefix(b"?").unwrap_or(value),
        b"status" | b"downstreamstatus" | b"statuscode" | b"responsestatus" => {
            entry.status = status(value).unwrap_or(0)
        }
        b"bodybytessent" | b"bytessent" | b"bytes" | b"size" | b"downstreamcontentsize" | b"responsesize" => {
            entry.bytes = whole(value);
        }
        b"requesttime" | b"servicetimes" => entry.service_time_us = time_us(value, 1e6),
        // Caddy's are seconds, Traefik's whole nanoseconds: a redirect takes it a few thousand.
        b"duration" => {
            let is_nanoseconds = whole(value).is_some_and(|number| number > 100_000 || key == b"Duration");
            entry.service_time_us = time_us(value, if is_nanoseconds { 1e-3 } else { 1e6 });
        }
        b"servicetimeus" | b"requesttimeus" | b"durationus" => entry.service_time_us = time_us(value, 1.0),
        b"requesttimems" | b"durationms" => entry.service_time_us = time_us(value, 1e3),
        b"httpuseragent" | b"useragent" | b"agent" => entry.agent = value,
        b"host" | b"httphost" | b"servername" | b"vhost" | b"requesthost" if entry.host.is_empty() => {
            entry.host = value
        }
        _ => {}
    }
}

fn any_time(value: &[u8], times: &mut TimeReader) -> Option<Stamp> {
    let value = value.strip_prefix(b"[").and_then(|value| value.strip_suffix(b"]")).unwrap_or(value);
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_number = digits >= 9 && value[digits..].iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let style = match digits {
        16.. if is_number => TimeStyle::Epoch(1_000_000),
        12..16 if is_number => TimeStyle::Epoch(1000),
        _ if is_number => TimeStyle::Epoch(1),
        4 => TimeStyle::Iso8601,
        _ => TimeStyle::Common,
    };
    times.read(value, &style)
}
