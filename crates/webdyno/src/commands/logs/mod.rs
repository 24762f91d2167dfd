//! `webdyno logs FILE...`: what access logs say of a site: rates, mix, sessions, the working set.

mod follow;
mod server;

use crate::cli::export::is_stdout;
use crate::cli::logs::LogsArgs;
use crate::finish;
use std::path::Path;
use std::thread::available_parallelism;
use webdyno_logs::reading::{Input, Options, count};
use webdyno_logs::redact::Privacy;
use webdyno_logs::report::report;
use webdyno_model::logs::LogsReport;
use webdyno_model::{Result, UserError};

/// Counts the logs, and shows what they say.
pub fn logs(arguments: &LogsArgs) -> Result<u8> {
    let report = if arguments.follow { follow::follow(arguments)? } else { counted(arguments)? };
    check_understood(&report)?;
    let made = concat!("webdyno ", env!("CARGO_PKG_VERSION"), " logs");
    let page =
        arguments.html.as_ref().map(|html| finish::write(html, &webdyno_report::logs_html(&report, made)));
    let json = serde_json::to_string_pretty(&report);
    finish::show(arguments.json.as_deref(), json, &webdyno_report::logs(&report))?;
    page.unwrap_or(Ok(())).map(|()| 0)
}

fn counted(arguments: &LogsArgs) -> Result<LogsReport> {
    let inputs: Vec<Input> = arguments.files.iter().map(|path| input(path)).collect();
    if inputs.iter().filter(|input| **input == Input::Stdin).count() > 1 {
        return Err(UserError::usage("stdin is given twice").hint("cat the logs into one `webdyno logs -`"));
    }
    let threads =
        arguments.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let counted = count(&inputs, &Options { threads, ..options(arguments)? })?;
    Ok(report(&counted.counts, &counted.ordered, counted.logs))
}

fn input(path: &Path) -> Input {
    if is_stdout(path) { Input::Stdin } else { Input::File(path.to_owned()) }
}

fn options(arguments: &LogsArgs) -> Result<Options> {
    let formats = match &arguments.server {
        Some(server) => server::formats(arguments, server)?,
        None => arguments.format.iter().cloned().collect(),
    };
    Ok(Options {
        formats,
        privacy: Privacy { show_clients: arguments.show_clients, keep_query: arguments.keep_query },
        threads: 1,
    })
}

/// Logs of which no line was understood are an error: an answer of nothing would look like one.
fn check_understood(report: &LogsReport) -> Result<()> {
    let lines = &report.lines;
    if report.requests > 0 || lines.not_understood == 0 {
        return Ok(());
    }
    let names: Vec<&str> = report.logs.iter().map(|log| log.name.as_str()).collect();
    let sample = lines.samples.first().map_or(String::new(), |line| format!(", the first one: {line}"));
    let message =
        format!("none of the {} lines of {} is of a known format{sample}", lines.total, names.join(", "));
    Err(UserError::usage(message)
        .hint("give --format as the server's configuration has it: LogFormat of Apache, log_format of nginx"))
}
