//! Which format the first lines of a log are of.

use super::{Format, PRESETS};
use crate::number::{time_us, whole};
use crate::timestamp::TimeReader;

/// A field that servers are configured to write behind the combined format, most of all the time that a request took.
const BEHIND: [&str; 4] = ["", " %D", " $request_time", " %{ignored}n"];

/// The formats of these lines, the one of most of them first: several where lines of several formats are among them; none where
/// no line is of a known one.
pub fn recognise<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<Format> {
    let lines: Vec<&[u8]> = lines.filter(|line| !line.trim_ascii().is_empty() && line[0] != b'#').collect();
    let mut open: Vec<&[u8]> = lines.clone();
    let mut found: Vec<(usize, Format)> = vec![];
    for format in candidates() {
        let mut times = TimeReader::default();
        let before = open.len();
        open.retain(|line| format.entry(line, &mut times).is_none() || !is_such(line, &format.name));
        if open.len() < before {
            found.push((before - open.len(), format));
        }
    }
    // A line or two of another format are broken ones of this.
    let share_min = lines.len() / 50;
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    found.into_iter().filter(|(count, _)| *count > share_min).map(|(_, format)| format).collect()
}

/// In the order in which they are tried: a format before those that are its beginning.
fn candidates() -> Vec<Format> {
    let mut candidates: Vec<Format> = Format::parse("json").into_iter().collect();
    for (name, text) in PRESETS {
        for behind in BEHIND {
            let is_nginx = behind.starts_with(" $");
            let text = if is_nginx { as_nginx(text) } else { Some(text.to_owned()) };
            let format = text.and_then(|text| Format::compile(&(text + behind)).ok());
            candidates.extend(format.map(|format| Format { name: named(name, behind), ..format }));
        }
    }
    candidates
}

/// Whether a time behind the known fields is written as its directive writes it: `%D` whole, `$request_time` with decimals.
fn is_such(line: &[u8], name: &str) -> bool {
    let last = line.trim_ascii_end().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    match name {
        _ if name.ends_with(" %D") => whole(last).is_some(),
        _ if name.ends_with(" $request_time") => last.contains(&b'.') && time_us(last, 1e6).is_some(),
        _ => true,
    }
}

fn named(name: &str, behind: &str) -> String {
    match behind {
        "" => name.into(),
        " %{ignored}n" => format!("{name}, with more behind it"),
        _ => format!("{name}{behind}"),
    }
}

/// The same in nginx's words.
fn as_nginx(text: &str) -> Option<String> {
    let words = [
        ("%h %l %u %t", "$remote_addr - $remote_user [$time_local]"),
        ("%r", "$request"),
        ("%>s", "$status"),
        ("%b", "$body_bytes_sent"),
        ("%{Referer}i", "$http_referer"),
        ("%{User-Agent}i", "$http_user_agent"),
    ];
    let text = words.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    (!text.contains('%')).then_some(text)
}
