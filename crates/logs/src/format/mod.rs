//! Formats of access logs: compiled to the steps that take a line apart, without an allocation for a line.
//!
//! Facts: <https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#formats>,
//! <https://nginx.org/en/docs/http/ngx_http_log_module.html>. Apache writes a quote inside of a quoted field as `\"`, nginx as `\x22`.

mod apache;
mod json;
mod nginx;
mod recognise;

pub use recognise::recognise;

use crate::entry::Entry;
use crate::number::{position, time_us, whole};
use crate::timestamp::{TimeReader, TimeStyle, offset};
use webdyno_model::{Result, UserError};

/// What a field holds.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Client,
    Time(TimeStyle),
    /// How far from UTC the clock was of a time before it that does not say so.
    Zone,
    /// Method, target and protocol.
    Request,
    Method,
    /// Path, with a query or without.
    Target,
    /// With its `?` (Apache) or without (nginx).
    Query,
    Host,
    Status,
    Bytes,
    /// Units of so many microseconds.
    ServiceTime(f64),
    Agent,
    /// Nothing that is counted.
    Skip,
}

/// Where a field ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// At the first such byte.
    Byte(u8),
    /// At the first quote that is not escaped.
    Quote,
    /// With the line.
    Line,
}

/// A field, and the text between it and the next one.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    field: Field,
    end: End,
    behind: Literal,
    /// Of fields that nothing is counted of, one behind the other: what they mostly are (`- - [`), and how many they are.
    usual: Option<(Literal, usize)>,
}

/// Text that must be there; short ones are compared as a number.
#[derive(Debug, Clone, PartialEq)]
struct Literal {
    text: Box<[u8]>,
    word: u64,
    mask: u64,
}

impl Literal {
    fn new(text: &[u8]) -> Self {
        let mut word = [0; 8];
        let mut mask = [0; 8];
        for (at, byte) in text.iter().take(8).enumerate() {
            (word[at], mask[at]) = (*byte, 0xff);
        }
        Self { text: text.into(), word: u64::from_le_bytes(word), mask: u64::from_le_bytes(mask) }
    }

    #[inline]
    fn strip<'a>(&self, rest: &'a [u8]) -> Option<&'a [u8]> {
        if let Some((first, _)) = rest.split_first_chunk::<8>()
            && self.text.len() <= 8
        {
            let is_same = u64::from_le_bytes(*first) & self.mask == self.word;
            return is_same.then(|| &rest[self.text.len()..]);
        }
        rest.strip_prefix(&*self.text)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Layout {
    Text { prefix: Literal, steps: Vec<Step> },
    Json,
}

/// A format of an access log.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    name: String,
    layout: Layout,
}

/// Formats that have a name.
const PRESETS: [(&str, &str); 4] = [
    ("combined", r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#),
    ("common", r#"%h %l %u %t "%r" %>s %b"#),
    ("vhost-combined", r#"%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i""#),
    ("vhost-common", r#"%v %h %l %u %t "%r" %>s %b"#),
];

impl Format {
    /// A preset (`combined`, `common`, `vhost-combined`, `json`), a LogFormat of Apache, or a log_format of nginx.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if text == "json" {
            return Ok(Self { name: "json".into(), layout: Layout::Json });
        }
        if let Some((name, format)) = PRESETS.iter().find(|(name, _)| *name == text) {
            return Ok(Self { name: (*name).into(), ..Self::compile(format)? });
        }
        if !text.contains(['%', '$']) {
            let hint = "give combined, common, vhost-combined, json, or the format as the server's configuration has it";
            return Err(UserError::usage(format!("`{text}` is no format of an access log")).hint(hint));
        }
        Self::compile(text)
    }

    fn compile(text: &str) -> Result<Self> {
        // Of JSON the names of the keys matter, whatever the server writes in front of them.
        if text.trim_start().starts_with('{') || text.contains("escape=json") {
            return Ok(Self { name: "json".into(), layout: Layout::Json });
        }
        let is_nginx = text.contains('$') && !text.contains("%>s") && !text.contains("%s");
        let parts = if is_nginx { nginx::parts(text) } else { apache::parts(text)? };
        let layout = layout(&parts).map_err(|why| {
            UserError::usage(format!("the format `{text}` cannot be read back: {why}")).hint("--format")
        })?;
        Ok(Self { name: text.into(), layout })
    }

    /// As it was given, or its short name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fields of a line without its end; `None` when it is not of this format.
    #[inline]
    pub fn entry<'a>(&self, line: &'a [u8], times: &mut TimeReader) -> Option<Entry<'a>> {
        match &self.layout {
            Layout::Text { prefix, steps } => text_entry(prefix, steps, line, times),
            Layout::Json => json::entry(line, times),
        }
    }
}

/// A part of a format.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Literal(u8),
    Field(Field),
}

/// The steps of a format's parts; an error says why they could not be told apart.
fn layout(parts: &[Part]) -> std::result::Result<Layout, &'static str> {
    let (mut prefix, mut steps): (Vec<u8>, Vec<(Field, Vec<u8>)>) = (vec![], vec![]);
    for part in parts {
        match (part, steps.last_mut()) {
            (Part::Literal(byte), None) => prefix.push(*byte),
            (Part::Literal(byte), Some((_, behind))) => behind.push(*byte),
            // One behind the other they are a target.
            (Part::Field(Field::Query), Some((Field::Target, behind))) if behind.is_empty() => {}
            (Part::Field(_), Some((_, behind))) if behind.is_empty() => {
                return Err("two of its fields have nothing between them");
            }
            (Part::Field(field), _) => steps.push((field.clone(), vec![])),
        }
    }
    prefer(&mut steps);
    let has = |wanted: fn(&Field) -> bool| steps.iter().any(|(field, _)| wanted(field));
    if !has(|field| matches!(field, Field::Time(_))) {
        return Err("it has no time");
    }
    if !has(|field| matches!(field, Field::Status | Field::Request | Field::Target)) {
        return Err("it has neither a request nor a status");
    }
    let mut before = prefix.last().copied();
    let steps = steps.into_iter().map(|(field, behind)| {
        let end = match behind.first() {
            None => End::Line,
            Some(b'"') if before == Some(b'"') => End::Quote,
            Some(byte) => End::Byte(*byte),
        };
        before = behind.last().copied();
        Step { field, end, behind: Literal::new(&behind), usual: None }
    });
    let mut steps: Vec<Step> = steps.collect();
    for at in 0..steps.len() {
        let skipped =
            steps[at..].iter().take_while(|step| step.field == Field::Skip && step.end == End::Byte(b' '));
        let usual: Vec<&[u8]> = skipped.map(|step| &*step.behind.text).collect();
        let text: Vec<u8> =
            usual.iter().flat_map(|behind| [b"-".as_slice(), behind]).flatten().copied().collect();
        steps[at].usual = (!usual.is_empty()).then(|| (Literal::new(&text), usual.len()));
    }
    Ok(Layout::Text { steps, prefix: Literal::new(&prefix) })
}

/// Of fields that tell the same the one that tells it best: the request line as it was asked for, and not `$uri` or `%U`, which are
/// rewritten (all pages are `/index.php` there) or decoded; and of service times those in the smallest unit.
fn prefer(steps: &mut [(Field, Vec<u8>)]) {
    let has_request = steps.iter().any(|(field, _)| *field == Field::Request);
    let unit_us =
        |field: &Field| if let Field::ServiceTime(unit_us) = field { *unit_us } else { f64::INFINITY };
    let smallest_us = steps.iter().map(|(field, _)| unit_us(field)).fold(f64::INFINITY, f64::min);
    for (field, _) in steps {
        let is_told = match field {
            Field::Target | Field::Query => has_request,
            Field::ServiceTime(unit_us) => *unit_us > smallest_us,
            _ => false,
        };
        if is_told {
            *field = Field::Skip;
        }
    }
}

#[inline]
fn text_entry<'a>(
    prefix: &Literal,
    steps: &[Step],
    line: &'a [u8],
    times: &mut TimeReader,
) -> Option<Entry<'a>> {
    let mut entry = Entry::default();
    let mut rest = prefix.strip(line)?;
    let mut steps = steps.iter();
    while let Some(step) = steps.next() {
        if let Some((usual, count)) = &step.usual
            && let Some(behind) = usual.strip(rest)
        {
            rest = behind;
            steps = steps.as_slice()[count - 1..].iter();
            continue;
        }
        let length = match step.end {
            End::Byte(byte) => match step.field {
                // Of a fixed length.
                Field::Time(TimeStyle::Common) if rest.get(26) == Some(&byte) => 26,
                _ => position(rest, byte)?,
            },
            End::Quote => quote(rest)?,
            End::Line => rest.len(),
        };
        let (value, behind) = rest.split_at(length);
        set(&mut entry, &step.field, value, times)?;
        rest = step.behind.strip(behind)?;
    }
    rest.is_empty().then_some(entry)
}

/// The first quote that is not escaped.
#[inline]
fn quote(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', &text[from..])?;
        if !text[..at].ends_with(b"\\") {
            return Some(at);
        }
        let escapes = text[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes.is_multiple_of(2) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Sets a field; `None` when its text cannot be one.
#[inline]
fn set<'a>(entry: &mut Entry<'a>, field: &Field, value: &'a [u8], times: &mut TimeReader) -> Option<()> {
    match field {
        Field::Skip => {}
        Field::Client => entry.client = value,
        Field::Time(style) => entry.time = Some(times.read(value, style)?),
        Field::Zone => {
            let offset_s = offset(value)?;
            entry.time = entry.time.map(|stamp| stamp.in_zone(offset_s));
        }
        Field::Request => entry.set_request(value),
        Field::Method => entry.method = value,
        Field::Target if !value.is_empty() => entry.set_target(value),
        Field::Target => {}
        Field::Query => entry.query = value.strip_prefix(b"?").unwrap_or(value),
        Field::Host => entry.host = value,
        Field::Status => entry.status = status(value)?,
        Field::Bytes => entry.bytes = if value == b"-" { Some(0) } else { Some(whole(value)?) },
        Field::ServiceTime(unit_us) => entry.service_time_us = time_us(value, *unit_us),
        Field::Agent => entry.agent = value,
    }
    Some(())
}

/// Three digits; `-` where there was no response is 0.
#[inline]
fn status(value: &[u8]) -> Option<u16> {
    match value {
        b"-" => Some(0),
        _ => whole(value)
            .filter(|status| (100..1000).contains(status) || *status == 0)
            .map(|status| status as u16),
    }
}

#[cfg(test)]
mod tests;
