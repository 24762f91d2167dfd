//! What is missing on the command line, asked one by one on a terminal. Each question is a flag as well.

use crate::cli::size::{SizeArgs, goal, growth, headroom, seconds, years};
use crate::terminal;
use std::io::Write;
use std::path::{Path, PathBuf};
use webdyno_model::sizing::SizeGoal;
use webdyno_model::{Result, UserError};

/// Asks on stderr, and reads a line of stdin; `None` at its end.
pub fn on_terminal(question: &str) -> Result<Option<String>> {
    let _ = write!(std::io::stderr(), "{question} ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let read = read.map_err(|error| webdyno_model::error::io_error("read", "stdin", &error))?;
    Ok((read > 0).then(|| answer.trim().to_owned()))
}

/// Who is asked.
type Prompt<'a> = &'a mut dyn FnMut(&str) -> Result<Option<String>>;

/// Asks for what is not given. An empty answer leaves the default, where there is one.
pub fn complete(arguments: &mut SizeArgs, ask: Prompt<'_>) -> Result<()> {
    if arguments.directory.is_empty() {
        let given = |text: &str| {
            let all: Vec<PathBuf> = text.split_whitespace().map(PathBuf::from).collect();
            let wanted = "the directory of a load: those that `webdyno run --server S --out DIR` wrote";
            if all.iter().all(|path| path.is_dir()) { Ok(all) } else { Err(wanted.to_owned()) }
        };
        arguments.directory =
            until_read(ask, "Run directories of loads, with blanks between them:", "DIR", given)?;
    }
    if arguments.goal.is_none() && arguments.users.is_none() {
        let question = "What it has to carry (500/s, 70 pages/s, 2000 users):";
        arguments.goal = Some(until_read(ask, question, "--goal", goal)?);
    }
    let has_users = arguments.users.is_some() || matches!(arguments.goal, Some(SizeGoal::Users(_)));
    if has_users {
        optional(ask, &mut arguments.think, "Mean think time of a user [as recorded]:", seconds)?;
    }
    optional(ask, &mut arguments.growth, "Growth, as 20%/year [0%]:", growth)?;
    if arguments.growth.is_some() {
        optional(ask, &mut arguments.years, "For how many years [1]:", years)?;
    }
    optional(ask, &mut arguments.headroom, "What stays free at the goal [30%]:", headroom)?;
    let count = |text: &str| text.parse().map_err(|_| "a whole number, as 1".to_owned());
    optional(ask, &mut arguments.spare, "Servers that may be missing [0]:", count)?;
    let file = |text: &str| match Path::new(text).is_file() {
        true => Ok(PathBuf::from(text)),
        false => Err("a file".to_owned()),
    };
    optional(ask, &mut arguments.catalogue, "Catalogue of machines, TOML or CSV [generic sizes]:", file)
}

fn optional<T>(
    ask: Prompt<'_>,
    value: &mut Option<T>,
    question: &str,
    read: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<()> {
    while value.is_none() {
        let Some(answer) = ask(question)?.filter(|answer| !answer.is_empty()) else { return Ok(()) };
        match read(&answer) {
            Ok(found) => *value = Some(found),
            Err(wanted) => terminal::print_status(&format!("`{answer}` is not {wanted}")),
        }
    }
    Ok(())
}

fn until_read<T>(
    ask: Prompt<'_>,
    question: &str,
    flag: &str,
    read: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    loop {
        let missing = || UserError::usage(format!("{flag} is missing")).hint("webdyno size DIR --goal 500/s");
        let answer = ask(question)?.ok_or_else(missing)?;
        match read(&answer) {
            _ if answer.is_empty() => {}
            Ok(found) => return Ok(found),
            Err(wanted) => terminal::print_status(&format!("`{answer}` is not {wanted}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_and_again_where_it_cannot_be_read() {
        let asked = |given: SizeArgs, answers: &[&str]| {
            let (mut arguments, mut answers, mut count) = (given, answers.iter(), 0);
            let mut ask = |_: &str| {
                count += 1;
                Ok(answers.next().map(|answer| (*answer).to_owned()))
            };
            let ended = complete(&mut arguments, &mut ask).map_err(|error| error.message);
            (ended, arguments, count)
        };
        let (ended, all, count) = asked(
            SizeArgs::default(),
            &["a b", "src tests", "", "fast", "2000 users", "3s", "20%/year", "3", "", "1", ""],
        );
        assert_eq!(
            (ended, count, all.directory.len(), all.goal),
            (Ok(()), 11, 2, Some(SizeGoal::Users(2000.0)))
        );
        assert_eq!(
            (all.think, all.growth, all.years, all.headroom, all.spare),
            (Some(3.0), Some(0.2), Some(3.0), None, Some(1))
        );
        let given = SizeArgs { directory: vec!["a".into()], headroom: Some(0.5), ..SizeArgs::default() };
        assert_eq!(asked(given.clone(), &["500/s", "", "", ""]).2, 4);
        assert_eq!(asked(given, &[]).0, Err("--goal is missing".into()));
    }
}
