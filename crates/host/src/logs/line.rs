//! A line of an access log, read by the format that it was written in.
//!
//! The format is a row of texts and fields, whichever program wrote it: services make it of their own notation. A field
//! ends where the text after it begins; where that is not the only way to read a line, the shortest fields that fit are
//! taken. Lines are written by strangers: reading one takes a bounded number of steps, and what does not fit is refused.

/// Most ways to read one line that are tried.
const STEPS_COUNT_MAX: u32 = 2000;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The status: three digits, or `-`.
    Status,
    /// The address or name of the client; no blanks.
    Client,
    /// The `User-Agent`.
    UserAgent,
    /// The request line, or the path alone.
    Request,
    /// A time in brackets.
    Time,
    /// How many bytes were sent, or `-` for none; no blanks.
    Bytes,
    /// How long the request took, in this unit; no blanks.
    Took(Unit),
    /// Something without blanks.
    Word,
    /// Anything.
    Other,
}

/// In which unit a log tells times, the finest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds, maybe with a fraction.
    S,
}

impl Unit {
    /// A number of this unit in microseconds.
    fn us(self, text: &[u8]) -> Option<u64> {
        let factor = match self {
            Self::Us => 1.0,
            Self::Ms => 1e3,
            Self::S => 1e6,
        };
        let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        let us = number * factor;
        (number.is_finite() && (0.0..TOOK_US_MAX).contains(&us)).then(|| us.round() as u64)
    }
}

/// A request that took a year is none.
const TOOK_US_MAX: f64 = 3.2e13;

/// A part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Stands as it is in every line; never empty.
    Text(String),
    /// Differs from line to line.
    Field(Field),
}

/// How the lines of a log are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFormat {
    parts: Vec<Part>,
}

/// What a line says. Bytes, as nobody promises that it is text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Line<'a> {
    /// `None` for requests that were broken off before they had one.
    pub status: Option<u16>,
    /// The address or name of the client.
    pub client: Option<&'a [u8]>,
    /// Who the client says it is.
    pub user_agent: Option<&'a [u8]>,
    /// The request line, or the path alone.
    pub request: Option<&'a [u8]>,
    /// How many bytes were sent; of several such fields the largest, which is the one with the headers.
    pub bytes: Option<u64>,
    /// How long the request took; of several such fields the finest, and of these the last.
    pub took_us: Option<u64>,
}

impl LineFormat {
    /// A format of these parts; `None` when it does not tell the status.
    pub fn new(parts: Vec<Part>) -> Option<Self> {
        let format = Self { parts };
        format.has(Field::Status).then_some(format)
    }

    /// Whether a field is in it.
    pub fn has(&self, field: Field) -> bool {
        self.parts.contains(&Part::Field(field))
    }

    /// Whether it tells how long requests took.
    pub fn has_times(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Field(Field::Took(_))))
    }

    /// Reads a line without its end; `None` when it is not of this format.
    pub fn read<'a>(&self, line: &'a [u8]) -> Option<Line<'a>> {
        let mut matcher =
            Matcher { parts: &self.parts, line, found: Line::default(), took_unit: None, steps: 0 };
        matcher.fits(0, 0).then_some(matcher.found)
    }
}

struct Matcher<'f, 'a> {
    parts: &'f [Part],
    line: &'a [u8],
    found: Line<'a>,
    /// The unit of the time that was found.
    took_unit: Option<Unit>,
    steps: u32,
}

impl<'a> Matcher<'_, 'a> {
    /// Whether the rest of the line, from `at` on, is the rest of the format.
    fn fits(&mut self, part: usize, at: usize) -> bool {
        match self.parts.get(part) {
            None => at == self.line.len(),
            Some(Part::Text(text)) => {
                self.line[at..].starts_with(text.as_bytes()) && self.fits(part + 1, at + text.len())
            }
            Some(Part::Field(field)) => self.field_fits(*field, part, at),
        }
    }

    fn field_fits(&mut self, field: Field, part: usize, at: usize) -> bool {
        let rest = &self.line[at..];
        if let Some(length) = self.certain_length(field, part, rest) {
            return length.is_some_and(|length| self.ends_after(field, part, at, length));
        }
        let blank = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let longest = if matches!(field, Field::Client | Field::Word | Field::Bytes | Field::Took(_)) {
            blank
        } else {
            rest.len()
        };
        let mut length = 0;
        while let Some(skip) = self.next_end(part, rest, length) {
            length = skip;
            self.steps += 1;
            if length > longest || self.steps > STEPS_COUNT_MAX {
                return false;
            }
            if self.ends_after(field, part, at, length) {
                return true;
            }
            length += 1;
        }
        false
    }

    /// The only length that a field can have, `Some(None)` when it cannot be here at all; `None` when it is to be tried.
    fn certain_length(&self, field: Field, part: usize, rest: &[u8]) -> Option<Option<usize>> {
        if field == Field::Status {
            let digits = rest.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit));
            let length = if digits.is_some() { Some(3) } else { rest.starts_with(b"-").then_some(1) };
            return Some(length);
        }
        if field == Field::Time && rest.starts_with(b"[") {
            return Some(rest.iter().position(|byte| *byte == b']').map(|at| at + 1));
        }
        self.is_quoted(part).then(|| quoted_length(rest))
    }

    /// Whether quotes stand around a part.
    fn is_quoted(&self, part: usize) -> bool {
        let before = part.checked_sub(1).and_then(|before| self.parts.get(before));
        matches!(before, Some(Part::Text(text)) if text.ends_with('"'))
            && matches!(self.parts.get(part + 1), Some(Part::Text(text)) if text.starts_with('"'))
    }

    /// The next length from `from` on after which the text behind the field stands.
    fn next_end(&self, part: usize, rest: &[u8], from: usize) -> Option<usize> {
        match self.parts.get(part + 1) {
            None => Some(rest.len()).filter(|end| from <= *end),
            Some(Part::Field(_)) => Some(from).filter(|end| *end <= rest.len()),
            Some(Part::Text(text)) => {
                let windows = rest.get(from..)?.windows(text.len());
                windows.into_iter().position(|window| window == text.as_bytes()).map(|at| from + at)
            }
        }
    }

    fn ends_after(&mut self, field: Field, part: usize, at: usize, length: usize) -> bool {
        if !self.fits(part + 1, at + length) {
            return false;
        }
        let value = &self.line[at..at + length];
        match field {
            Field::Status => {
                self.found.status = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok())
            }
            Field::Client => self.found.client = Some(value),
            Field::UserAgent => self.found.user_agent = Some(value),
            Field::Request => self.found.request = Some(value),
            Field::Bytes => self.found.bytes = self.found.bytes.max(bytes(value)),
            // Parts are filled in from the last to the first.
            Field::Took(unit) if self.took_unit.is_none_or(|found| unit < found) => {
                if let Some(took_us) = unit.us(value) {
                    (self.found.took_us, self.took_unit) = (Some(took_us), Some(unit));
                }
            }
            Field::Took(_) | Field::Time | Field::Word | Field::Other => {}
        }
        true
    }
}

/// A number of bytes; `-` stands for none.
fn bytes(value: &[u8]) -> Option<u64> {
    if value == b"-" { Some(0) } else { std::str::from_utf8(value).ok()?.parse().ok() }
}

/// Up to the quote that is not escaped.
fn quoted_length(rest: &[u8]) -> Option<usize> {
    let mut escaped = false;
    rest.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn format(text: &str) -> LineFormat {
        let field = |letter: char| match letter {
            's' => Field::Status,
            'h' => Field::Client,
            'a' => Field::UserAgent,
            'r' => Field::Request,
            't' => Field::Time,
            'w' => Field::Word,
            'b' => Field::Bytes,
            'D' => Field::Took(Unit::Us),
            'T' => Field::Took(Unit::S),
            _ => Field::Other,
        };
        let mut parts = vec![];
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match (letter, parts.last_mut()) {
                ('%', _) => parts.push(Part::Field(field(letters.next().unwrap()))),
                (letter, Some(Part::Text(text))) => text.push(letter),
                (letter, _) => parts.push(Part::Text(letter.to_string())),
            }
        }
        LineFormat::new(parts).unwrap()
    }

    const COMBINED: &str = "%h %w %o %t \"%r\" %s %w \"%o\" \"%a\"";

    fn check(format_text: &str, line: &str, expected: Option<(Option<u16>, &str, &str)>) {
        let format = format(format_text);
        let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
        let found = format.read(line.as_bytes());
        let found = found.map(|line| (line.status, text(line.client), text(line.user_agent)));
        let expected = expected.map(|(status, client, agent)| (status, client.to_owned(), agent.to_owned()));
        assert_eq!(found, expected, "{format_text}: {line}");
    }

    #[test]
    fn lines_are_read_by_their_format() {
        let good = r#"192.0.2.7 - joe [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 503 299 "-" "curl/8.5""#;
        check(COMBINED, good, Some((Some(503), "192.0.2.7", "curl/8.5")));
        // Quotes in what the client says, blanks in a name, a request that was never sent.
        let odd = r#"::1 - a b [1/Jan/2026:00:00:00 +0000] "GET /\" 200 1 \"x\" HTTP/1.1" 500 - "\"" "a \\""#;
        check(COMBINED, odd, Some((Some(500), "::1", r"a \\")));
        check(COMBINED, r#"::1 - - [t] "-" 408 - "-" "-""#, Some((Some(408), "::1", "-")));
        check(COMBINED, r#"::1 - - [t] "-" - - "-" "-""#, Some((None, "::1", "-")));
        check("%s", "500", Some((Some(500), "", "")));
        // The time in between is not taken for a status.
        check("%t %w %s %w", "[10/Oct/2000:13:55:36 -0700] 512 200 7", Some((Some(200), "", "")));
        check("%h:%w %s", "192.0.2.7:40000 500", Some((Some(500), "192.0.2.7", "")));
        check("%o%o|%s|%o", "a|b|500|c|", Some((Some(500), "", "")));
    }

    #[test]
    fn bytes_and_times_are_told() {
        for (text, line, expected) in [
            ("%h %s %b %D", "::1 200 17 1500", (Some(17), Some(1500))),
            ("%s %b %T", "200 - 0.25", (Some(0), Some(250_000))),
            ("%s %b %b %T %D", "200 17 230 2 1999999", (Some(230), Some(1_999_999))),
            ("%s %D %T", "200 1999999 2", (None, Some(1_999_999))),
            ("%s %T %D %T", "200 2 - 1", (None, Some(1_000_000))),
            ("%s %b %D", "200 x -5", (None, None)),
            ("%s %b %T", "200 99999999999999999999 1e300", (None, None)),
            ("%s %h", "200 ::1", (None, None)),
        ] {
            let format = format(text);
            let line = format.read(line.as_bytes()).unwrap();
            assert_eq!((line.bytes, line.took_us), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_of_the_format_is_refused() {
        for line in ["", "x", r#"::1 - - [t] "GET / HTTP/1.1" 50 - "-" "-""#, r#"::1 - - [t "GET"#] {
            check(COMBINED, line, None);
        }
        let other = r#"::1 - - [t] "GET / HTTP/1.1" 200 5"#;
        check(COMBINED, other, None);
        assert_eq!(LineFormat::new(vec![Part::Field(Field::Client)]), None);
    }

    #[test]
    fn reading_takes_bounded_time() {
        let hard = format("%o %o %o %o %o %o %s!");
        let begin = std::time::Instant::now();
        assert_eq!(hard.read("a ".repeat(5000).as_bytes()), None);
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    }

    proptest! {
        /// Whatever a client says of itself: it is escaped by the server, and can neither hide nor invent a status.
        #[test]
        fn a_client_cannot_change_what_is_read(status in 100u16..600, agent in "[ -~]{0,40}", path in "[ -~]{0,40}") {
            let escape = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"");
            let line = format!("192.0.2.7 - - [t] \"GET {} HTTP/1.1\" {status} 7 \"-\" \"{}\"", escape(&path), escape(&agent));
            let format = format(COMBINED);
            let found = format.read(line.as_bytes()).unwrap();
            let agent = escape(&agent);
            prop_assert_eq!((found.status, found.user_agent), (Some(status), Some(agent.as_bytes())));
        }

        /// Any bytes are a line or none, never a panic.
        #[test]
        fn any_line_is_survived(line in prop::collection::vec(any::<u8>(), 0..80), text in "[%srhatwobDT \"|-]{0,20}") {
            let text = format!("{}%s", text.replace('%', ""));
            format(&text).read(&line);
            format(COMBINED).read(&line);
        }
    }
}
