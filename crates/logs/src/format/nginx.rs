//! log_format of nginx as parts. <https://nginx.org/en/docs/http/ngx_http_log_module.html#log_format>

use super::{Field, Part};
use crate::timestamp::TimeStyle;

/// The parts of a log_format, as its quotes enclose it or, over several lines, with them.
pub(super) fn parts(format: &str) -> Vec<Part> {
    let format = unquoted(format);
    let mut parts = vec![];
    let mut rest = format.as_str();
    while let Some(first) = rest.chars().next() {
        if let Some((meant, behind)) = escaped(rest) {
            parts.push(Part::Literal(meant));
            rest = behind;
            continue;
        }
        let Some(behind) = rest.strip_prefix('$') else {
            let (literal, behind) = rest.split_at(first.len_utf8());
            parts.extend(literal.bytes().map(Part::Literal));
            rest = behind;
            continue;
        };
        let (name, behind) = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, behind)) => (name, behind),
            None => {
                let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                behind.split_at(behind.find(|letter| !is_letter(letter)).unwrap_or(behind.len()))
            }
        };
        parts.push(Part::Field(field(name)));
        rest = behind;
    }
    parts
}

/// What an escape of the configuration means, and what follows it: `\t` where fields are labelled (LTSV).
fn escaped(text: &str) -> Option<(u8, &str)> {
    let behind = text.strip_prefix('\\')?;
    let meant = match behind.bytes().next()? {
        b't' => b'\t',
        b'r' => b'\r',
        b'n' => b'\n',
        itself @ (b'"' | b'\'' | b'\\') => itself,
        _ => return None,
    };
    Some((meant, &behind[1..]))
}

/// `'$a ' '"$b"'` as it is written one behind the other.
fn unquoted(format: &str) -> String {
    if !format.starts_with('\'') {
        return format.into();
    }
    format.split('\'').skip(1).step_by(2).collect()
}

fn field(name: &str) -> Field {
    match name {
        "remote_addr" => Field::Client,
        "time_local" => Field::Time(TimeStyle::Common),
        "time_iso8601" => Field::Time(TimeStyle::Iso8601),
        "msec" => Field::Time(TimeStyle::Epoch(1)),
        "request" => Field::Request,
        "request_method" => Field::Method,
        "request_uri" | "uri" => Field::Target,
        "args" | "query_string" => Field::Query,
        "host" | "http_host" | "server_name" => Field::Host,
        "status" => Field::Status,
        "body_bytes_sent" | "bytes_sent" => Field::Bytes,
        "request_time" => Field::ServiceTime(1e6),
        "http_user_agent" => Field::Agent,
        _ => Field::Skip,
    }
}
