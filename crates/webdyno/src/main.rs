//! The program: reads the command line, runs one command, and ends with the exit code of docs/contract.md.

mod cli;
mod commands;
mod comparing;
mod exports;
mod finish;
mod helpers;
mod https;
mod live_metrics;
mod live_view;
mod measuring;
mod observe_view;
mod other_tools;
mod output;
mod process;
mod progress;
mod recent_levels;
mod run_directory;
mod terminal;
mod time_window;
mod web;

use cli::Command;
use std::process::ExitCode;
use webdyno_model::Result;

fn main() -> ExitCode {
    webdyno_host::agent::name_build(env!("WEBDYNO_BUILD"));
    webdyno_host::agent::show_lines_by(live_view::hold_line);
    if let Some(code) = other_tools::run(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let code = cli::parse().and_then(execute).unwrap_or_else(|error| {
        terminal::print_error(&error);
        error.exit_code()
    });
    ExitCode::from(code)
}

/// Runs a command, and before and after it what a session that was cut off left to do.
fn execute(command: Command) -> Result<u8> {
    let begins_a_session = command.needs_reverted_server();
    let ended = commands::rollback::revert_interrupted_before(&command).and_then(|()| run(command));
    if begins_a_session && ended != Ok(0) {
        commands::rollback::revert_interrupted_after();
    }
    ended
}

fn run(command: Command) -> Result<u8> {
    output::check(&command)?;
    match command {
        Command::Quickstart(arguments) => commands::quickstart::quickstart(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Check(arguments) => commands::check::check(&arguments),
        Command::Diagnose(arguments) => commands::diagnose::diagnose(&arguments),
        Command::Capacity(arguments) => commands::capacity::capacity(&arguments),
        Command::Sweep(arguments) => commands::sweep::sweep(&arguments),
        Command::Observe(arguments) => commands::observe::observe(&arguments),
        Command::Tune(arguments) => commands::tune::tune(&arguments),
        Command::Report(arguments) => commands::report::report(&arguments),
        Command::Export(arguments) => commands::export::export(&arguments),
        Command::Rollback(arguments) => commands::rollback::rollback(&arguments),
        Command::Explain(arguments) => commands::explain::explain(&arguments),
        Command::Schema(arguments) => commands::schema::schema(&arguments),
        Command::Workload(arguments) => commands::workload::workload(&arguments),
        Command::Lab(arguments) => commands::lab::lab(&arguments),
        Command::Compare(arguments) => commands::compare::compare(&arguments),
        Command::Predict(arguments) => commands::predict::predict(&arguments),
        Command::Size(arguments) => commands::size::size(&arguments),
        Command::Fit(arguments) => commands::fit::fit(&arguments),
        Command::History(arguments) => commands::history::history(&arguments),
        Command::Logs(arguments) => commands::logs::logs(&arguments),
        Command::Worker(arguments) => commands::worker::worker(&arguments),
        Command::Resume(arguments) => commands::resume::resume(&arguments),
        Command::Serve(arguments) => commands::serve::serve(&arguments),
        Command::Helper(helper) => helpers::run(helper),
    }
}
