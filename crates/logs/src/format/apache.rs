//! LogFormat of Apache as parts. <https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#formats>

use super::{Field, Part};
use crate::timestamp::TimeStyle;
use webdyno_model::{Result, UserError};

/// The parts of a LogFormat. `\"` is a quote, as the configuration writes it.
pub(super) fn parts(format: &str) -> Result<Vec<Part>> {
    let mut parts = vec![];
    let mut rest = format.bytes().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => parts.extend(rest.next().map(|escaped| {
                Part::Literal(match escaped {
                    b't' => b'\t',
                    b'n' => b'\n',
                    other => other,
                })
            })),
            b'%' => directive(&mut rest, &mut parts).ok_or_else(|| {
                UserError::usage(format!("the LogFormat `{format}` ends within a `%`")).hint("--format")
            })?,
            byte => parts.push(Part::Literal(byte)),
        }
    }
    Ok(parts)
}

/// What follows a `%`: modifiers, a parameter in braces, a letter.
fn directive(rest: &mut std::iter::Peekable<std::str::Bytes<'_>>, parts: &mut Vec<Part>) -> Option<()> {
    let mut parameter = String::new();
    loop {
        match rest.next()? {
            b'%' => parts.push(Part::Literal(b'%')),
            b'<' | b'>' | b'!' | b',' | b'0'..=b'9' => continue,
            b'{' => {
                parameter = rest.by_ref().take_while(|byte| *byte != b'}').map(char::from).collect();
                continue;
            }
            b'^' => {
                // `^FB`, `^ti`, `^to`: two letters.
                rest.nth(1)?;
                parts.push(Part::Field(Field::Skip));
            }
            letter => time_or_field(letter, &parameter, parts),
        }
        return Some(());
    }
}

fn time_or_field(letter: u8, parameter: &str, parts: &mut Vec<Part>) {
    if letter == b't' && parameter.is_empty() {
        let bracketed =
            [Part::Literal(b'['), Part::Field(Field::Time(TimeStyle::Common)), Part::Literal(b']')];
        parts.extend(bracketed);
    } else {
        parts.push(Part::Field(field(letter, parameter)));
    }
}

fn field(letter: u8, parameter: &str) -> Field {
    match letter {
        b'h' | b'a' if parameter.is_empty() => Field::Client,
        b't' => time(parameter),
        b'r' => Field::Request,
        b'm' => Field::Method,
        b'U' => Field::Target,
        b'q' => Field::Query,
        b's' => Field::Status,
        b'b' | b'B' | b'O' => Field::Bytes,
        b'D' => Field::ServiceTime(1.0),
        b'T' => Field::ServiceTime(match parameter {
            "us" => 1.0,
            "ms" => 1e3,
            _ => 1e6,
        }),
        b'v' | b'V' => Field::Host,
        b'i' if parameter.eq_ignore_ascii_case("User-Agent") => Field::Agent,
        b'i' if parameter.eq_ignore_ascii_case("Host") => Field::Host,
        _ => Field::Skip,
    }
}

fn time(parameter: &str) -> Field {
    let parameter = parameter.strip_prefix("begin:").or(parameter.strip_prefix("end:")).unwrap_or(parameter);
    match parameter {
        "sec" => Field::Time(TimeStyle::Epoch(1)),
        "msec" => Field::Time(TimeStyle::Epoch(1000)),
        "usec" => Field::Time(TimeStyle::Epoch(1_000_000)),
        // Fractions of the second that another field has.
        "msec_frac" | "usec_frac" => Field::Skip,
        "%z" => Field::Zone,
        "%d/%b/%Y:%H:%M:%S %z" | "%d/%b/%Y:%T %z" => Field::Time(TimeStyle::Common),
        "%FT%T%z" | "%Y-%m-%dT%H:%M:%S%z" | "%F %T %z" | "%F %T" | "%Y-%m-%d %H:%M:%S" => {
            Field::Time(TimeStyle::Iso8601)
        }
        pattern => Field::Time(TimeStyle::Pattern(pattern.into())),
    }
}
