//! The access logs of an Apache, and how their lines are written: `CustomLog`, `GlobalLog`, `TransferLog`, `LogFormat`.
//!
//! https://httpd.apache.org/docs/2.4/mod/mod_log_config.html and modules/loggers/mod_log_config.c. A virtual host with
//! logs of its own does not write those of the server, except where `GlobalLog` says so. Names of formats are those of
//! the host, then of the server. `TransferLog` uses the last `LogFormat` without a name, or the common format. All
//! virtual hosts count, not those of one port only: they share the workers that a load takes. Of each host one log is
//! enough, as each holds all requests; a request that is counted twice would be two.

use super::config::syntax::words;
use super::config::{Evaluation, Placed};
use super::in_force::{Host, Site};
use crate::logs::line::{Field, LineFormat, Part, Unit};
use crate::logs::{AccessLog, AccessLogs};
use crate::services::apache::in_force::site::named;
use std::collections::BTreeSet;

/// What `TransferLog` writes by default, and `CLF` stands for.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;

/// Directives that name a log.
const LOGS: [&str; 3] = ["CustomLog", "GlobalLog", "TransferLog"];

/// The access logs of all hosts, those of `port` first.
pub fn access_logs(evaluation: &Evaluation, port: u16) -> AccessLogs {
    let site = Site::of(evaluation);
    let mut logs = AccessLogs::default();
    let mut known = BTreeSet::new();
    for id in ids(&site, port) {
        match log_of(&site, id) {
            Ok(Some(log)) if known.insert(log.path.clone()) => logs.files.push(log),
            Ok(_) => {}
            Err(why) if !logs.unread.contains(&why) => logs.unread.push(why),
            Err(_) => {}
        }
    }
    if logs.files.is_empty() && logs.unread.is_empty() {
        logs.unread.push("Apache's configuration names no access log (CustomLog, TransferLog)".into());
    }
    let buffered = evaluation.global(&["BufferedLogs"]);
    if buffered.is_some_and(|placed| placed.arguments.trim().eq_ignore_ascii_case("on")) {
        logs.unread.push("BufferedLogs is on: what happens is written late".into());
    }
    logs
}

/// The sections of all virtual hosts and of the server itself (0), those that answer on a port first.
pub fn ids(site: &Site<'_>, port: u16) -> Vec<usize> {
    let hosts = || site.hosts.list.iter();
    let on_port = hosts().filter(|host| host.is_on(port));
    let others = hosts().filter(|host| !host.is_on(port));
    let id = |host: &Host<'_>| host.opened.section.id;
    on_port.map(id).chain([0]).chain(others.map(id)).collect()
}

/// The directives of a host that name logs of requests: its own, else those of the server.
pub fn named_logs<'a>(site: &Site<'a>, id: usize) -> Vec<&'a Placed> {
    let own: Vec<&Placed> = named(site.inside(id), &LOGS).collect();
    match own.is_empty() {
        true => named(site.inside(0), &LOGS).collect(),
        false if id == 0 => own,
        false => own.into_iter().chain(named(site.inside(0), &["GlobalLog"])).collect(),
    }
}

/// The log of a host that tells most, or why none can be read; `None` when it writes none.
fn log_of(site: &Site<'_>, id: usize) -> Result<Option<AccessLog>, String> {
    let mut read: Vec<(AccessLog, bool)> = vec![];
    let mut why = None;
    for placed in named_logs(site, id) {
        match log(site, id, placed) {
            Ok(log) => read.push((log, placed.words().len() > 2)),
            Err(unread) => why = why.or(Some(unread)),
        }
    }
    // A log with a condition leaves requests out.
    let best = read.into_iter().min_by_key(|(log, conditional)| {
        (*conditional, !log.format.has(Field::UserAgent), !log.format.has(Field::Client))
    });
    match (best, why) {
        (Some((log, _)), _) => Ok(Some(log)),
        (None, Some(why)) => Err(why),
        (None, None) => Ok(None),
    }
}

/// Why a log is not a file that can be read; `None` when it is one. Of a program only its name is told: its arguments may
/// hold secrets.
pub fn not_a_file(name: &str) -> Option<String> {
    if let Some(command) = name.strip_prefix('|') {
        let command = command.trim_start_matches(['|', '$']).trim_start();
        let program = words(command).into_iter().next().unwrap_or_default();
        return Some(format!("|{program}: it is written to a program"));
    }
    // Later versions write to what a provider makes of it; a path has no colon so early.
    let is_provider = name.split('/').next().is_some_and(|first| first.contains(':')) || name == "syslog";
    is_provider.then(|| format!("{name}: it is not written to a file"))
}

/// One directive's log; an error says why it cannot be read.
fn log(site: &Site<'_>, id: usize, placed: &Placed) -> Result<AccessLog, String> {
    let name = placed.words().first().cloned().unwrap_or_default();
    if let Some(why) = not_a_file(&name) {
        return Err(why);
    }
    let path = site.evaluation.path(&name);
    let format = format_of(site, id, placed);
    let format =
        line_format(&format).ok_or_else(|| format!("{}: it does not tell the status", path.display()))?;
    Ok(AccessLog { path, format })
}

/// How the lines of a log are built, names of formats resolved.
pub fn format_of(site: &Site<'_>, id: usize, placed: &Placed) -> String {
    let words = placed.words();
    match words.get(1).filter(|_| !placed.name.eq_ignore_ascii_case("TransferLog")) {
        Some(format) => named_format(site, id, format).unwrap_or_else(|| format.clone()),
        None => default_format(site, id),
    }
}

/// The formats of a host and then of the server.
fn formats<'a>(site: &Site<'a>, id: usize) -> impl Iterator<Item = Vec<&'a Placed>> {
    let layers = if id == 0 { vec![0] } else { vec![id, 0] };
    let formats = |id: usize| named(site.inside(id), &["LogFormat"]).collect();
    layers.into_iter().map(formats).collect::<Vec<_>>().into_iter()
}

/// The format of a name: the host's own, else the server's; of several the last one.
fn named_format(site: &Site<'_>, id: usize, name: &str) -> Option<String> {
    let defined = |formats: Vec<&Placed>| {
        let words = formats.into_iter().map(Placed::words);
        words.into_iter().rfind(|words| words.get(1).is_some_and(|defined| defined == name))
    };
    let found = formats(site, id).find_map(defined).and_then(|words| words.into_iter().next());
    found.or_else(|| (name == "CLF").then(|| COMMON.to_owned()))
}

/// What `TransferLog` uses: the last `LogFormat` without a name, which may itself be a name.
fn default_format(site: &Site<'_>, id: usize) -> String {
    let unnamed =
        |formats: Vec<&Placed>| formats.into_iter().map(Placed::words).rfind(|words| words.len() == 1);
    let found = formats(site, id).find_map(unnamed).and_then(|words| words.into_iter().next());
    found.map_or(COMMON.to_owned(), |format| named_format(site, id, &format).unwrap_or(format))
}

/// A format string as parts; `None` when it does not tell the status, or is not one.
pub fn line_format(format: &str) -> Option<LineFormat> {
    let final_status = format.contains("%>s");
    let mut parts: Vec<Part> = vec![];
    let mut rest = format;
    while let Some(first) = rest.chars().next() {
        let (part, after) = match first {
            '%' => item(&rest[1..], final_status)?,
            _ => text(rest),
        };
        match (parts.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(more)) => before.push_str(&more),
            (_, part) => parts.push(part),
        }
        rest = after;
    }
    LineFormat::new(parts)
}

/// A character that stands for itself, or an escape (`parse_log_misc_string`).
fn text(rest: &str) -> (Part, &str) {
    for (escape, meant) in [("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\\\", "\\")] {
        if let Some(after) = rest.strip_prefix(escape) {
            return (Part::Text(meant.into()), after);
        }
    }
    let length = rest.chars().next().map_or(0, char::len_utf8);
    (Part::Text(rest[..length].to_owned()), &rest[length..])
}

/// What follows a `%` (`parse_log_item`): modifiers, an argument in braces, and a letter; or another `%`.
fn item(rest: &str, final_status: bool) -> Option<(Part, &str)> {
    if let Some(after) = rest.strip_prefix('%') {
        return Some((Part::Text("%".into()), after));
    }
    let (mut rest, mut argument, mut conditional, mut last) = (rest, "", false, false);
    loop {
        let letter = rest.chars().next()?;
        match letter {
            '{' => {
                let end = rest.find('}')?;
                argument = &rest[1..end];
                rest = &rest[end + 1..];
                continue;
            }
            '>' => last = true,
            '0'..='9' => conditional = true,
            '<' | '!' | ',' => {}
            '^' => return Some((Part::Field(Field::Other), rest.get(3..)?)),
            letter => {
                let field =
                    if conditional { Field::Other } else { field(letter, argument, last || !final_status) };
                return Some((Part::Field(field), &rest[letter.len_utf8()..]));
            }
        }
        rest = &rest[1..];
    }
}

fn field(letter: char, argument: &str, is_status: bool) -> Field {
    match letter {
        's' if is_status => Field::Status,
        'h' | 'a' => Field::Client,
        'i' if argument.eq_ignore_ascii_case("User-Agent") => Field::UserAgent,
        'r' | 'U' => Field::Request,
        't' if argument.is_empty() => Field::Time,
        'b' | 'B' | 'O' => Field::Bytes,
        'D' => Field::Took(Unit::Us),
        'T' => match argument {
            "us" => Field::Took(Unit::Us),
            "ms" => Field::Took(Unit::Ms),
            _ => Field::Took(Unit::S),
        },
        's' | 'A' | 'l' | 'k' | 'p' | 'P' | 'I' | 'S' | 'v' | 'V' | 'H' | 'm' | 'X' | 'L' => Field::Word,
        _ => Field::Other,
    }
}

#[cfg(test)]
mod tests;
