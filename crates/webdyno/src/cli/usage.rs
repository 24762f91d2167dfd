//! Wrong usage in the project's form: a line that names the flag or word, and a hint with what helps. What is wrong comes from
//! clap; forms and examples of values come from their parsers.

use super::{help, other_tools};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::error::Error as _;
use webdyno_model::UserError;

/// Where the command line went wrong.
struct Place<'a> {
    words: &'a [String],
    /// The command that was typed, as far as it exists, and its name with those before it.
    command: Command,
    path: String,
}

/// The error with its hint, for these words of a command line, the program's name first.
pub fn usage_error(error: &Error, words: &[String]) -> UserError {
    let place = Place::of(words);
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => vec![],
    };
    let flag = context(ContextKind::InvalidArg).join(", ");
    let prior = context(ContextKind::PriorArg).join(", ");
    // Behind it may stand `<VALUE>`, or `[=<VALUE>]`.
    let name =
        |flag: &str| flag.split(" <").flat_map(|part| part.split("[=")).next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            place.unknown_command(&context(ContextKind::InvalidSubcommand).concat())
        }
        ErrorKind::UnknownArgument if flag.starts_with('-') => place.unknown_flag(&flag),
        ErrorKind::UnknownArgument => {
            UserError::usage(format!("`{}` takes no `{flag}`", place.path)).hint(place.help())
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let choices = context(ContextKind::ValidValue).join(" or ");
            place.refused_value(&name(&flag), &context(ContextKind::InvalidValue).concat(), &choices, error)
        }
        ErrorKind::ArgumentConflict if flag == prior => {
            UserError::usage(format!("{} cannot be given multiple times", name(&flag))).hint("give it once")
        }
        ErrorKind::ArgumentConflict => {
            let others: Vec<String> = context(ContextKind::PriorArg).iter().map(|one| name(one)).collect();
            let text = format!("{} cannot be used with {}", name(&flag), others.join(", "));
            UserError::usage(text).hint(format!("leave one of them out; `{} --help` says more", place.path))
        }
        ErrorKind::MissingRequiredArgument => {
            UserError::usage(format!("`{}` wants {flag}", place.path)).hint(place.help())
        }
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            UserError::usage(first.trim_start_matches("error: ")).hint(place.help())
        }
    }
}

impl<'a> Place<'a> {
    fn of(words: &'a [String]) -> Self {
        let (mut command, mut path) = (help::command(false), "webdyno".to_owned());
        for word in words.iter().skip(1) {
            let Some(inner) = command.find_subcommand(word).cloned() else { break };
            path = format!("{path} {}", inner.get_name());
            command = inner;
        }
        Self { words, command, path }
    }

    /// The command that says more, with an example where there is one.
    fn help(&self) -> String {
        let more = format!("`{} --help` says more", self.path);
        match help::examples(&self.path) {
            [first, ..] => format!("as in {first}; {more}"),
            [] => more,
        }
    }

    fn unknown_command(&self, word: &str) -> UserError {
        let names = self.command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
        let list = format!("`{} --help` lists the commands", self.path);
        UserError::usage(format!("there is no command `{word}`")).hint(match nearest(word, names) {
            Some(name) => format!("did you mean `{} {name}`? {list}", self.path),
            None if word.contains("://") => format!("to load it: webdyno run {word}"),
            None => list,
        })
    }

    fn unknown_flag(&self, flag: &str) -> UserError {
        let list = format!("`{} --help` lists all flags", self.path);
        let longs = self.command.get_arguments().filter(|one| !one.is_hide_set()).filter_map(Arg::get_long);
        let loads = self.command.get_arguments().any(|one| one.get_id() == "connections");
        let known = other_tools::unknown_flag_hint(flag, self.word_behind(flag)).filter(|_| loads);
        let hint = known.or_else(|| {
            let similar = nearest(flag.trim_start_matches('-'), longs).filter(|_| flag.starts_with("--"));
            similar.map(|name| format!("did you mean `--{name}`? {list}"))
        });
        let root = help::command(false);
        let others = root.get_subcommands().filter(|one| !one.is_hide_set() && has_flag(one, flag));
        let others: Vec<&str> = others.map(Command::get_name).collect();
        UserError::usage(format!("`{}` has no flag `{flag}`", self.path)).hint(
            match (hint, others.as_slice()) {
                (Some(hint), _) => hint,
                (None, []) => list,
                (None, _) if self.path == "webdyno" => {
                    format!("the command comes first, as in webdyno run {flag}")
                }
                (None, others) => format!("it is a flag of {}; {list}", others.join(", ")),
            },
        )
    }

    /// The word behind a flag that may be its value: `-z 10s`, `-z10s`, `--time=10s`.
    fn word_behind(&self, flag: &str) -> &'a str {
        let at = self.words.iter().position(|word| word.starts_with(flag));
        let inside = at.map(|at| self.words[at][flag.len()..].trim_start_matches('='));
        let next = at.and_then(|at| self.words.get(at + 1)).map(String::as_str);
        match inside {
            Some("") => next.filter(|word| !word.starts_with('-')).unwrap_or_default(),
            other => other.unwrap_or_default(),
        }
    }

    fn refused_value(&self, flag: &str, value: &str, choices: &str, error: &Error) -> UserError {
        let long = flag.trim_start_matches("--");
        let short = self.command.get_arguments().find(|one| one.get_long() == Some(long));
        let short = short.and_then(Arg::get_short).map(|letter| format!("-{letter}"));
        let typed = short.as_deref().and_then(|short| {
            Some((short, self.words.iter().find(|word| word.starts_with(short) && !word.starts_with("--"))?))
        });
        let flag = typed.map_or(flag, |(short, _)| short);
        let source = error.source();
        let own = source.and_then(|source| source.downcast_ref::<UserError>());
        let text = match (own, source) {
            (Some(own), _) => format!("{flag}: {}", own.message),
            (None, Some(wanted)) => format!("{flag} wants {wanted}, not `{value}`"),
            (None, None) if value.is_empty() => format!("{flag} wants a value"),
            (None, None) => format!("{flag} wants {choices}, not `{value}`"),
        };
        // Go's long flags have one dash: -disable-keepalive is read as -d and a value.
        let whole =
            typed.and_then(|(_, word)| other_tools::unknown_flag_hint(word, "").filter(|_| word.len() > 2));
        let is_time = source.is_some_and(|wanted| wanted.to_string().starts_with("a time with its unit"));
        let in_seconds =
            (is_time && value.parse::<f64>().is_ok()).then(|| format!("for seconds: {flag} {value}s"));
        let hints = [in_seconds, whole.or_else(|| other_tools::refused_value_hint(flag, value))];
        let hint = hints.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
        let own_hint = own.and_then(|own| own.hint.clone());
        UserError::usage(text).hint(hint.or(own_hint).unwrap_or_else(|| self.help()))
    }
}

fn has_flag(command: &Command, flag: &str) -> bool {
    command.get_arguments().filter(|one| !one.is_hide_set()).any(|one| {
        one.get_long().is_some_and(|long| flag == format!("--{long}"))
            || one.get_short().is_some_and(|short| flag == format!("-{short}"))
    })
}

/// The name that was probably meant: the one that takes the fewest changes for its length, at most a third of it.
pub fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let changes = |name: &str| strsim::damerau_levenshtein(word, name) * 1000 / name.len().max(1);
    names.map(|name| (changes(name), name)).min().filter(|(changes, _)| *changes <= 334).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(line: &str) -> (String, String) {
        let words: Vec<String> = format!("webdyno {line}").split(' ').map(str::to_owned).collect();
        let error = help::command(false).try_get_matches_from(&words).unwrap_err();
        let reported = usage_error(&error, &words);
        assert_eq!(reported.exit_code(), 2);
        assert!(!reported.message.contains('\n') && !reported.message.ends_with('.'), "{line}: {reported}");
        (reported.message, reported.hint.unwrap())
    }

    #[test]
    fn errors_name_the_word_and_what_helps() {
        for (line, message, hint) in [
            ("rnu", "there is no command `rnu`", "did you mean `webdyno run`?"),
            ("lab lst", "there is no command `lst`", "did you mean `webdyno lab list`?"),
            ("http://h/", "there is no command `http://h/`", "webdyno run http://h/"),
            ("frobnicate", "there is no command `frobnicate`", "`webdyno --help` lists the commands"),
            ("-c 5 run", "`webdyno` has no flag `-c`", "the command comes first"),
            (
                "run --no-keepaliv",
                "`webdyno run` has no flag `--no-keepaliv`",
                "did you mean `--no-keepalive`?",
            ),
            ("run --apply", "`webdyno run` has no flag `--apply`", "a flag of tune"),
            ("check -n 5", "`webdyno check` has no flag `-n`", "a flag of run, diagnose;"),
            ("rollback all", "`webdyno rollback` takes no `all`", "as in webdyno rollback"),
            ("run -z 20s http://h/", "has no flag `-z`", "-z 20s of hey is -d 20s here"),
            ("run --time=30S", "has no flag `--time`", "--time 30S of siege is -d 30s here"),
            ("run -4 -6", "--ipv4 cannot be used with --ipv6", "leave one of them out"),
            ("diagnose --from d --slo p99<1s", "cannot be used with", "leave one of them out"),
            ("diagnose --for 9s --port 80 --slo p99<1s", "cannot be used with", "leave one of them out"),
            ("run -c 1 -c 2", "--connections cannot be given multiple times", "once"),
            ("run --key a", "`webdyno run` wants --cert <FILE>", "`webdyno run --help`"),
            ("report", "`webdyno report` wants <DIR>", "as in webdyno report"),
        ] {
            let (text, help) = reported(line);
            assert!(text.contains(message), "{line}: {text}");
            assert!(help.contains(hint), "{line}: {help}");
        }
    }

    #[test]
    fn a_wrong_value_is_answered_with_form_and_example() {
        for (line, message, hint) in [
            ("run -c ten", "-c wants a whole number from 1 to 1000000, as 50, not `ten`", "--help"),
            (
                "run --connections 0",
                "--connections wants a whole number from 1 to 1000000, as 50, not `0`",
                "",
            ),
            ("run -d 10", "-d wants a time with its unit, as 500ms, 10s or 2m, not `10`", "-d 10s"),
            ("run -r fast", "-r wants a rate per second above 0, at most 10000000, as 500, not `fast`", ""),
            ("run --returning 3", "--returning wants a share from 0 to 1, as 30% or 0.3, not `3`", ""),
            ("check --port web", "--port wants a whole number from 1 to 65535, as 8080, not `web`", ""),
            ("run --resolve never", "--resolve wants once or each, not `never`", ""),
            ("run -c", "-c wants a value", "--help"),
            ("run --slo p98<1s", "--slo: `p98<1s` is not an objective", "--slo 'p99<200ms'"),
            ("run -t 30S", "-t wants a whole number", "-t 30S of siege is -d 30s here"),
            ("run -disable-keepalive", "-d wants a time", "-disable-keepalive of hey is --no-keepalive here"),
            (
                "workload make-tree d --total 1x",
                "--total wants a size, as 6k, 64M or 1.5G, not `1x`",
                "--help",
            ),
        ] {
            let (text, help) = reported(line);
            assert!(text.contains(message), "{line}: {text}");
            assert!(help.contains(hint), "{line}: {help}");
        }
    }

    /// No value of any flag is refused in the words of a library.
    #[test]
    fn every_flag_names_what_it_wants() {
        let words = |path: &str, arg: &Arg| {
            let flag = format!("--{}", arg.get_long().unwrap());
            path.split(' ').map(str::to_owned).chain([format!("{flag}=?:?")]).collect::<Vec<_>>()
        };
        let root = help::command(false);
        for command in root.get_subcommands() {
            let path = format!("webdyno {}", command.get_name());
            for arg in command.get_arguments().filter(|one| one.get_long().is_some() && !one.is_hide_set()) {
                let words = words(&path, arg);
                let Err(error) = root.clone().try_get_matches_from(&words) else { continue };
                let text = usage_error(&error, &words).message;
                assert!(!text.contains("invalid"), "{words:?}: {text}");
                if error.kind() == ErrorKind::ValueValidation {
                    assert!(text.contains(" wants ") || text.contains("`?:?`"), "{words:?}: {text}");
                }
            }
        }
    }
}
