//! `--follow`: a log that grows. On a terminal the report is drawn anew; else there is a line for each interval, on stderr both, so
//! that stdout has the report of the end alone.

use super::options;
use crate::cli::export::is_stdout;
use crate::cli::logs::LogsArgs;
use crate::process::interrupt_flag;
use crate::terminal;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use webdyno_logs::reading::follow::Followed;
use webdyno_model::logs::LogsReport;
use webdyno_model::number::human::{count, percent, rate};
use webdyno_model::{Result, UserError};

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// xterm's control sequences: to the top, and clear to the end.
const TOP: &str = "\x1b[H\x1b[J";

/// Follows the log until Ctrl-C; gives the report of all of it.
pub fn follow(arguments: &LogsArgs) -> Result<LogsReport> {
    let [path] = arguments.files.as_slice() else {
        return Err(UserError::usage("--follow takes one log")
            .hint("webdyno logs --follow /var/log/nginx/access.log"));
    };
    if is_stdout(path) {
        return Err(UserError::usage("--follow takes a file, not stdin")
            .hint("`webdyno logs -` reads stdin to its end"));
    }
    let interrupted = interrupt_flag()?;
    let mut followed = Followed::new(path, options(arguments)?)?;
    let interval = Duration::from_micros(arguments.interval);
    let is_terminal = terminal::is_stderr_terminal();
    let mut counted_before = 0;
    let mut due = Instant::now() + interval;
    let mut failed = None;
    while !interrupted.load(Ordering::Relaxed) && failed.is_none() {
        let has_more = has_more(&mut followed, &mut failed);
        if Instant::now() >= due {
            due += interval;
            let report = followed.report();
            let text = match is_terminal {
                true => frame(&webdyno_report::logs(&report), terminal::stderr_rows()),
                false => line(&report, report.requests - counted_before, interval),
            };
            counted_before = report.requests;
            // A closed stderr is no loss.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        if !has_more {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    // What was written until now.
    while failed.is_none() && has_more(&mut followed, &mut failed) {}
    if is_terminal {
        // The report of the end takes the place of the last one.
        let _ = std::io::stderr().write_all(TOP.as_bytes());
    }
    ended(followed.report(), failed)
}

/// Whether there were lines; why there are none any more goes to `failed`.
fn has_more(followed: &mut Followed, failed: &mut Option<UserError>) -> bool {
    followed.read().unwrap_or_else(|error| {
        *failed = Some(error);
        false
    })
}

/// The report of the end. What was counted for hours is not lost because the log cannot be read any more, as after a rotation.
fn ended(mut report: LogsReport, failed: Option<UserError>) -> Result<LogsReport> {
    match failed {
        Some(error) if report.requests == 0 => Err(error),
        Some(error) => {
            report.notes.insert(0, format!("{}: nothing that came later is counted.", error.message));
            Ok(report)
        }
        None => Ok(report),
    }
}

/// The beginning of a report, as much as the terminal has lines for: more would move the headline out of it.
fn frame(report: &str, rows: usize) -> String {
    let lines: Vec<&str> = report.lines().take(rows - 1).collect();
    format!("{TOP}{}\n", lines.join("\n"))
}

fn line(report: &LogsReport, added: u64, interval: Duration) -> String {
    let at = report.rates.last.as_deref().unwrap_or("no request yet");
    let errors = report
        .server_error_fraction
        .map_or(String::new(), |share| format!(", {} server errors in all", percent(share)));
    format!(
        "{at}: {} requests, {} added ({}){errors}\n",
        count(report.requests),
        count(added),
        rate(added as f64 / interval.as_secs_f64())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_not_lost_with_the_log() {
        let failed = || Some(UserError::cannot_run("cannot read access.log: permission denied"));
        let counted = LogsReport { requests: 7, ..LogsReport::default() };
        let told = ended(counted.clone(), failed()).unwrap().notes;
        assert_eq!(told, ["cannot read access.log: permission denied: nothing that came later is counted."]);
        assert_eq!(ended(counted.clone(), None).unwrap(), counted);
        assert!(ended(LogsReport::default(), failed()).is_err());
    }

    #[test]
    fn a_frame_leaves_the_headline_on_the_terminal() {
        assert_eq!(frame("a\nb\nc\n", 3), format!("{TOP}a\nb\n"));
        assert_eq!(frame("a\n", 24), format!("{TOP}a\n"));
    }
}
