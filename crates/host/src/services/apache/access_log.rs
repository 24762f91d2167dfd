//! The access logs of an Apache, and how their lines are written: `CustomLog`, `GlobalLog`, `TransferLog`, `LogFormat`.
//!
//! https://httpd.apache.org/docs/2.4/mod/mod_log_config.html and modules/loggers/mod_log_config.c. A virtual host with
//! logs of its own does not write those of the server, except where `GlobalLog` says so. Names of formats are those of
//! the host, then of the server. `TransferLog` uses the last `LogFormat` without a name, or the common format. All
//! virtual hosts count, not those of one port only: they share the workers that a load takes. Of each host one log is
//! enough, as each holds all requests; a request that is counted twice would be two.

use super::config::{Evaluation, Placed, Section};
use crate::logs::line::{Field, LineFormat, Part, Unit};
use crate::brake::others::{AccessLog, AccessLogs};

/// What `TransferLog` writes by default, and `CLF` stands for.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;

/// Directives that name a log.
const LOGS: [&str; 3] = ["CustomLog", "GlobalLog", "TransferLog"];

/// The access logs of all hosts, those of `port` first.
pub fn access_logs(evaluation: &Evaluation, port: u16) -> AccessLogs {
    let mut hosts = hosts(evaluation);
    hosts.sort_by_key(|host| !serves(host.as_ref(), port));
    let mut logs = AccessLogs::default();
    for host in hosts {
        match log_of(evaluation, host.as_ref()) {
            Ok(Some(log)) if !logs.files.iter().any(|known| known.path == log.path) => logs.files.push(log),
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

/// All virtual hosts, and `None` for the server itself.
fn hosts(evaluation: &Evaluation) -> Vec<Option<Section>> {
    let mut hosts: Vec<Option<Section>> = vec![None];
    for host in evaluation.directives.iter().filter_map(host_of) {
        if !hosts.iter().flatten().any(|known| known.id == host.id) {
            hosts.push(Some(host.clone()));
        }
    }
    hosts
}

/// The virtual host that a directive stands in.
fn host_of(placed: &Placed) -> Option<&Section> {
    placed.scope.iter().find(|section| section.name.eq_ignore_ascii_case("VirtualHost"))
}

/// Whether a host answers on a port, as far as its addresses tell.
fn serves(host: Option<&Section>, port: u16) -> bool {
    let Some(host) = host else { return false };
    let on_port = |address: &String| match address.rsplit_once(':') {
        // `[::1]` without a port ends in a bracket.
        Some((_, told)) if !told.ends_with(']') => told == "*" || told.parse() == Ok(port),
        _ => true,
    };
    host.words.iter().any(on_port)
}

/// The log of a host that tells most, or why none can be read; `None` when it writes none.
fn log_of(evaluation: &Evaluation, host: Option<&Section>) -> Result<Option<AccessLog>, String> {
    let id = host.map(|host| host.id);
    let in_host = |placed: &&Placed| host_of(placed).map(|host| host.id) == id;
    let of_server = |placed: &&Placed| host_of(placed).is_none();
    let own: Vec<&Placed> = evaluation.all(&LOGS).filter(in_host).collect();
    let global: Vec<&Placed> = evaluation.all(&["GlobalLog"]).filter(of_server).collect();
    let named = match own.is_empty() {
        true => evaluation.all(&LOGS).filter(of_server).collect(),
        false => [own, global].concat(),
    };
    let mut read: Vec<(AccessLog, bool)> = vec![];
    let mut why = None;
    for placed in named {
        match log(evaluation, id, placed) {
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

/// One directive's log; an error says why it cannot be read.
fn log(evaluation: &Evaluation, host: Option<usize>, placed: &Placed) -> Result<AccessLog, String> {
    let words = placed.words();
    let name = words.first().cloned().unwrap_or_default();
    if name.starts_with('|') {
        return Err(format!("{name}: it is written to a program"));
    }
    // Later versions write to what a provider makes of it; a path has no colon so early.
    if name.split('/').next().is_some_and(|first| first.contains(':')) || name == "syslog" {
        return Err(format!("{name}: it is not written to a file"));
    }
    let format = match words.get(1).filter(|_| !placed.name.eq_ignore_ascii_case("TransferLog")) {
        Some(format) => named_format(evaluation, host, format).unwrap_or_else(|| format.clone()),
        None => default_format(evaluation, host),
    };
    let path = evaluation.path(&name);
    let format =
        line_format(&format).ok_or_else(|| format!("{}: it does not tell the status", path.display()))?;
    Ok(AccessLog { path, format })
}

/// The format of a name: the host's own, else the server's; of several the last one.
fn named_format(evaluation: &Evaluation, host: Option<usize>, name: &str) -> Option<String> {
    let defined = |host: Option<usize>| {
        let in_host = move |placed: &&Placed| host_of(placed).map(|host| host.id) == host;
        let formats = evaluation.all(&["LogFormat"]).filter(in_host);
        formats.map(Placed::words).rfind(|words| words.get(1).is_some_and(|defined| defined == name))
    };
    let found = defined(host).or_else(|| defined(None)).and_then(|words| words.into_iter().next());
    found.or_else(|| (name == "CLF").then(|| COMMON.to_owned()))
}

/// What `TransferLog` uses: the last `LogFormat` without a name, which may itself be a name.
fn default_format(evaluation: &Evaluation, host: Option<usize>) -> String {
    let unnamed = |host: Option<usize>| {
        let in_host = move |placed: &&Placed| host_of(placed).map(|host| host.id) == host;
        evaluation.all(&["LogFormat"]).filter(in_host).map(Placed::words).rfind(|words| words.len() == 1)
    };
    let found = unnamed(host).or_else(|| unnamed(None)).and_then(|words| words.into_iter().next());
    found.map_or(COMMON.to_owned(), |format| named_format(evaluation, host, &format).unwrap_or(format))
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
        's' | 'A' | 'l' | 'k' | 'p' | 'P' | 'I' | 'S' | 'v' | 'V' | 'H'
        | 'm' | 'X' | 'L' => Field::Word,
        _ => Field::Other,
    }
}

#[cfg(test)]
#[path = "access_log_tests.rs"]
mod tests;
