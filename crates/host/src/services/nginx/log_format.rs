//! How the lines of nginx's access logs are written.
//!
//! Facts: <https://nginx.org/en/docs/http/ngx_http_log_module.html#log_format>. Quotes in values are written as `\x22`, so that a
//! quoted field ends with the next one.

use crate::logs::line::{Field, LineFormat, Part, Unit};

/// The format that holds where none is named; it cannot be defined anew.
pub const COMBINED: &str = "combined";

/// Whether a format is one of nginx: it has the status as a variable.
pub fn is_of_nginx(format: &str) -> bool {
    format.contains("$status") || format.contains("${status}")
}

/// A format as parts; `None` when it does not tell the status.
pub fn line_format(format: &str) -> Option<LineFormat> {
    let mut pieces = format.split('$');
    let mut parts: Vec<Part> = vec![];
    let text = |text: &str| (!text.is_empty()).then(|| Part::Text(text.to_owned()));
    parts.extend(pieces.next().and_then(text));
    for piece in pieces {
        let braced = piece.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = piece.find(|letter| !is_name(letter)).unwrap_or(piece.len());
        let (name, behind) = braced.unwrap_or_else(|| piece.split_at(end));
        parts.push(Part::Field(field(name)));
        parts.extend(text(behind));
    }
    LineFormat::new(parts)
}

fn field(name: &str) -> Field {
    match name {
        "status" => Field::Status,
        "remote_addr" => Field::Client,
        "http_user_agent" => Field::UserAgent,
        "request" | "request_uri" => Field::Request,
        "body_bytes_sent" | "bytes_sent" => Field::Bytes,
        "request_time" => Field::Took(Unit::S),
        "host" | "msec" | "request_length" | "server_name" | "time_iso8601" => Field::Word,
        _ => Field::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `main`, as nginx's packages define it, and more behind it.
    const MAIN: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for""#;

    #[test]
    fn lines_are_read_by_their_format() {
        let line =
            r#"192.0.2.7 - - [27/Nov/2026:13:15:00 +0000] "GET /a?b HTTP/1.1" 502 157 "-" "curl/8" "-""#;
        let timed = format!("{MAIN} $request_time $upstream_response_time");
        for (format, line, took_us) in [
            (MAIN, line.to_owned(), None),
            (timed.as_str(), format!("{line} 0.250 0.001, 0.240"), Some(250_000)),
        ] {
            let format = line_format(format).unwrap();
            let read = format.read(line.as_bytes()).unwrap();
            assert_eq!((read.status, read.bytes, read.took_us), (Some(502), Some(157), took_us), "{line}");
            assert_eq!(read.request, Some(&b"GET /a?b HTTP/1.1"[..]));
            assert_eq!((read.client, read.user_agent), (Some(&b"192.0.2.7"[..]), Some(&b"curl/8"[..])));
        }
        let json = line_format(r#"{"status": $status, "time": ${request_time}}"#).unwrap();
        let read = json.read(br#"{"status": 200, "time": 1.5}"#).unwrap();
        assert_eq!((read.status, read.took_us), (Some(200), Some(1_500_000)));
        assert_eq!(line_format("$remote_addr $request"), None, "it does not tell the status");
    }
}
