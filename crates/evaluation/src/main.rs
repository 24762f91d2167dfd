//! `webdyno-evaluation`: judges recordings of the lab, asks other advisers, and writes the generated pages of `docs/`.
//!
//! The lab's hosts and loads are made by the program `webdyno`, which lies beside this one.

mod cli;
mod commands;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Cli { scenarios, webdyno, command } = Cli::parse();
    let catalogue = cli::catalogue(scenarios);
    let ended = match command {
        Command::Draw(arguments) => commands::draw::draw(webdyno, &arguments),
        Command::Judge(arguments) => commands::judge::judge(&catalogue, &arguments),
        Command::Pages(arguments) => commands::pages::pages(&catalogue, &arguments),
        Command::Table(arguments) => commands::pages::table(&arguments),
        Command::Rivals(arguments) => commands::rivals::rivals(&catalogue, webdyno, &arguments),
        Command::Tune(arguments) => commands::tune::tune(&catalogue, webdyno, &arguments),
        Command::Watch(arguments) => commands::watch::watch(&catalogue, webdyno, &arguments),
    };
    let code = ended.unwrap_or_else(|error| {
        commands::print_error(&error);
        error.exit_code()
    });
    ExitCode::from(code)
}
