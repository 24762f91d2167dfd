//! `webdyno workload from-log`: a workload file that sends what an access log has: the same requests, in their order, as many in each
//! second; or the same sessions.

mod sessions;

use super::workload_file::{new_file, relative_path, toml_string};
use crate::cli::workload::FromLogArgs;
use crate::terminal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use url::Url;
use webdyno_logs::entry::Entry;
use webdyno_logs::format::Format;
use webdyno_logs::reading::{Input, each_entry};
use webdyno_logs::replay::sessions::Sessions;
use webdyno_logs::replay::{Filter, LeftOut, Seconds, Stretch, stages};
use webdyno_model::number::human::{count, plural, rate};
use webdyno_model::{Result, UserError};

/// Stages of a workload file: one for each second that differs from the one before.
const LENGTH_S_MAX: u64 = 6 * 3600;
/// Connections of a load, at least and at most: enough for answers of two seconds in the busiest one.
const CONNECTIONS: [u64; 2] = [50, 10_000];

/// Reads the logs twice, once for their seconds and once for what is sent in the busiest stretch. Gives the exit code.
pub fn from_log(arguments: &FromLogArgs) -> Result<u8> {
    let base = base(&arguments.url)?;
    let length_s = arguments.length.div_ceil(1_000_000);
    if !(1..=LENGTH_S_MAX).contains(&length_s) {
        return Err(UserError::usage(format!("--length is {length_s} s, and may be from 1 s to 6 h"))
            .hint("--speed N sends a longer log in less time"));
    }
    let inputs = inputs(arguments)?;
    let formats: Vec<_> = arguments.format.iter().cloned().collect();
    let filter = Filter { host: arguments.site.clone(), keep_query: arguments.keep_query };
    let (mut seconds, mut left_out) = (Seconds::default(), BTreeMap::new());
    let not_understood = each_entry(&inputs, &formats, |entry| match filter.takes(entry) {
        Ok(at_s) => seconds.add(at_s),
        Err(why) => *left_out.entry(why).or_insert(0_u64) += 1,
    })?;
    let stretch =
        seconds.busiest(length_s as u32).ok_or_else(|| nothing(arguments, &left_out, not_understood))?;
    let counts = seconds.of(stretch);
    let log = Log { inputs, formats, filter, stretch };
    let base = base.as_str().trim_end_matches('/');
    let figures = match arguments.sessions {
        true => {
            let sessions = log.sessions()?;
            sessions::write(&arguments.output, base, &sessions, stretch.length_s, arguments.speed)?
        }
        false => write_requests(arguments, &log, base, &counts)?,
    };
    terminal::print(&summary(arguments, &counts, seconds.requests()))?;
    terminal::print(&figures)?;
    terminal::print(&notes(&left_out, not_understood))?;
    terminal::print(&format!("load them with: webdyno run --workload {}\n", arguments.output.display()))?;
    Ok(0)
}

/// The stretch of a log that is sent again.
struct Log {
    inputs: Vec<Input>,
    formats: Vec<Format>,
    filter: Filter,
    stretch: Stretch,
}

impl Log {
    /// Reads it: what is sent of each line, with its second.
    fn each(&self, mut take: impl FnMut(usize, &Entry<'_>, String)) -> Result<()> {
        let each = |entry: &Entry<'_>| {
            let second = self.filter.takes(entry).ok().and_then(|at_s| self.stretch.second(at_s));
            second.into_iter().for_each(|second| take(second, entry, self.filter.target(entry)));
        };
        each_entry(&self.inputs, &self.formats, each).map(|_| ())
    }

    fn sessions(&self) -> Result<Sessions> {
        let (mut sessions, mut has_clients) = (Sessions::default(), true);
        self.each(|second, entry, target| {
            if has_clients && sessions.requests() <= sessions::REQUESTS_MAX {
                has_clients = sessions.add(second, entry, target);
            }
        })?;
        match (has_clients, sessions.requests() <= sessions::REQUESTS_MAX) {
            (false, _) => Err(sessions::no_clients()),
            (true, false) => Err(sessions::too_many()),
            (true, true) => Ok(sessions),
        }
    }
}

/// Writes a list of all requests, and the workload file that sends them in turn. Nothing more is to be said of them.
fn write_requests(arguments: &FromLogArgs, log: &Log, base: &str, counts: &[u64]) -> Result<String> {
    let list = arguments.output.with_extension("urls");
    let peak = counts.iter().copied().max().unwrap_or(0);
    let connections = ((2.0 * peak as f64 * arguments.speed) as u64).clamp(CONNECTIONS[0], CONNECTIONS[1]);
    write_list(log, base, &list)?;
    let written = new_file(&arguments.output, |to| {
        let (requests, seconds) = (counts.iter().sum::<u64>(), counts.len());
        writeln!(to, "# {requests} requests of {seconds} s of an access log, by webdyno workload from-log.")?;
        writeln!(to, "connections = {connections}")?;
        writeln!(to, "stage = [")?;
        stages(counts, arguments.speed).iter().try_for_each(|stage| writeln!(to, "    \"{stage}\","))?;
        let file = relative_path(&arguments.output, &list);
        writeln!(to, "]\n\n[urls]\nfile = {}", toml_string(&file.to_string_lossy()))
    });
    if let Err(error) = written {
        // A list alone is of no use.
        drop(std::fs::remove_file(&list));
        return Err(error);
    }
    Ok(String::new())
}

fn summary(arguments: &FromLogArgs, counts: &[u64], all: u64) -> String {
    let (requests, peak): (u64, u64) = (counts.iter().sum(), counts.iter().copied().max().unwrap_or(0));
    let part = if requests == all { String::new() } else { format!(" of {}", count(all)) };
    let speed =
        if arguments.speed == 1.0 { String::new() } else { format!(", {} times as fast", arguments.speed) };
    format!(
        "{}: {}{part} in the busiest {} s{speed}\npeak second {}, mean {}\n",
        arguments.output.display(),
        plural(requests, "request"),
        counts.len(),
        rate(peak as f64 * arguments.speed),
        rate(requests as f64 / counts.len() as f64 * arguments.speed),
    )
}

fn notes(left_out: &BTreeMap<LeftOut, u64>, not_understood: u64) -> String {
    let mut notes: String = left_out
        .iter()
        .map(|(why, number)| format!("left out: {} {}\n", plural(*number, "request"), why.text()))
        .collect();
    if not_understood > 0 {
        notes.push_str(&format!("left out: {} that were not understood\n", plural(not_understood, "line")));
    }
    notes
}

fn nothing(arguments: &FromLogArgs, left_out: &BTreeMap<LeftOut, u64>, not_understood: u64) -> UserError {
    let why = notes(left_out, not_understood);
    let why = if why.is_empty() { "no line is in it".into() } else { why.trim_end().replace('\n', "; ") };
    let hint = match not_understood > 0 && left_out.is_empty() {
        true => "give --format as the server's configuration has it",
        false => "webdyno logs FILE says what is in it",
    };
    UserError::usage(format!("{} has no request to send again: {why}", arguments.files[0].display()))
        .hint(hint)
}

fn base(text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.filter(|url| url.path() == "/" && url.query().is_none() && url.username().is_empty()).ok_or_else(
        || {
            UserError::usage(format!("--url wants scheme, host and port, not `{text}`"))
                .hint("as in --url http://127.0.0.1:8080; paths are those of the log")
        },
    )
}

fn inputs(arguments: &FromLogArgs) -> Result<Vec<Input>> {
    if arguments.files.iter().any(|file| crate::cli::export::is_stdout(file)) {
        return Err(UserError::usage("a log is read twice, and stdin can be read once")
            .hint("write it to a file first"));
    }
    Ok(arguments.files.iter().map(|path: &PathBuf| Input::File(path.clone())).collect())
}

/// One line for each request, in the order of the log.
fn write_list(log: &Log, base: &str, list: &Path) -> Result<()> {
    // Logs may have times out of order: each second keeps what was asked for in it.
    let mut targets: Vec<Vec<String>> = vec![vec![]; log.stretch.length_s as usize];
    log.each(|second, entry, mut target| {
        target.push_str(if entry.method == b"HEAD" { " HEAD" } else { "" });
        targets[second].push(target);
    })?;
    new_file(list, |to| targets.iter().flatten().try_for_each(|target| writeln!(to, "{base}{target}")))
}
