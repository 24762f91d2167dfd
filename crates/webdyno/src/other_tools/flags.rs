//! Words of a command line in the order of getopt(3), and the load that flags of `webdyno run` mean.

use crate::cli::{self, Command};
use std::ffi::OsString;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// A usage error of a tool, with where its flags are.
pub fn usage(tool: &str, message: impl std::fmt::Display) -> UserError {
    UserError::usage(format!("{tool}: {message}")).hint(format!("`webdyno {tool} -h` lists the flags"))
}

/// What lexopt says, as a usage error of a tool.
pub fn wrong(tool: &str) -> impl Fn(lexopt::Error) -> UserError + '_ {
    move |error| usage(tool, error)
}

/// The value of a flag as text.
pub fn text(tool: &str, parser: &mut lexopt::Parser) -> Result<String> {
    let value = parser.value().map_err(wrong(tool))?;
    value.into_string().map_err(|value| usage(tool, format!("`{}` is no UTF-8", value.to_string_lossy())))
}

/// The largest number that a flag takes: of seconds or of requests of each user it is more than anybody waits for, and its
/// products fit.
const COUNT_MAX: u64 = 1_000_000_000;

/// A whole number from `min` on.
pub fn whole(tool: &str, flag: &str, value: &str, min: u64) -> Result<u64> {
    let number = value.trim().parse().ok().filter(|number| (min..=COUNT_MAX).contains(number));
    number.ok_or_else(|| {
        usage(tool, format!("{flag} takes a whole number from {min} to {COUNT_MAX}, not `{value}`"))
    })
}

/// The value of a flag as a whole number from `min` on.
pub fn count(tool: &str, flag: &str, parser: &mut lexopt::Parser, min: u64) -> Result<u64> {
    whole(tool, flag, &text(tool, parser)?, min)
}

/// The workload of these flags of `webdyno run`, URLs among them.
pub fn workload(flags: Vec<String>) -> Result<Workload> {
    let words =
        ["webdyno", "run"].into_iter().map(OsString::from).chain(flags.into_iter().map(OsString::from));
    match cli::parse_words(words.collect())? {
        Command::Run(arguments) => arguments.load.workload(&arguments.draft()?),
        _ => {
            Err(UserError::cannot_run("these flags are of another command")
                .hint("this is a defect: report it"))
        }
    }
}

/// A URL, with the scheme that the tools leave out.
pub fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}
