//! Flags of a load where none is made, by `diagnose --from DIR` and `--for TIME`: they would be ignored without a word. Which flags are of
//! a load is what their structs say, so that a new one is among them.

use super::load::LoadArgs;
use super::workers::OnArgs;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use webdyno_model::{Result, UserError};

/// The flags of `diagnose` that have it make no load: id, flag, and the flag with its value.
const WITHOUT_LOAD: [(&str, &str, &str); 2] =
    [("from", "--from", "--from DIR"), ("watch_for", "--for", "--for TIME")];

/// An error for the first flag of a load that is given where none is made.
pub fn refuse_load_flags(matches: &ArgMatches) -> Result<()> {
    let Some(("diagnose", given)) = matches.subcommand() else { return Ok(()) };
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let Some((_, without, shown)) = WITHOUT_LOAD.iter().find(|(id, ..)| is_given(id)) else { return Ok(()) };
    let all = load_flags();
    let Some(of_a_load) = all.get_arguments().find(|arg| is_given(arg.get_id().as_str())) else {
        return Ok(());
    };
    let flag = of_a_load.get_long().map_or_else(|| "a URL".to_owned(), |long| format!("--{long}"));
    Err(UserError::usage(format!("{flag} is for a load, and {without} makes none"))
        .hint(format!("leave {flag} out, or give a URL instead of {shown}")))
}

/// A command that has all flags of a load, and no other.
fn load_flags() -> Command {
    OnArgs::augment_args(LoadArgs::augment_args(Command::new("load")))
}

#[cfg(test)]
mod tests {
    use super::super::{help, parse_words};
    use super::*;
    use clap::Arg;
    use webdyno_model::ErrorKind;

    fn parsed(line: &str) -> Result<()> {
        let words = format!("webdyno {line}").split(' ').map(std::ffi::OsString::from).collect();
        parse_words(words).map(|_| ())
    }

    #[test]
    fn flags_of_a_load_are_refused_where_none_is_made() {
        for flag in [
            "-c 5",
            "-r 100",
            "-d 5s",
            "-n 100",
            "-t 2",
            "--warmup 2s",
            "--timeout 1s",
            "--seed 1",
            "--clock auto",
            "--users 5",
            "--page",
            "--no-keepalive",
            "--http2",
            "--insecure",
            "-H a:b",
            "-m PUT",
            "-b x",
            "--ok 200",
            "--redirects 3",
            "--poisson",
            "--nats-creds file",
            "--slo p99<1s",
            "http://h/",
        ] {
            for without in ["--from d", "--for 9s --port 80"] {
                let line = format!("diagnose {without} {flag}");
                let error = parsed(&line).unwrap_err();
                assert_eq!((error.kind, error.hint.is_some()), (ErrorKind::Usage, true), "{line}: {error}");
            }
        }
        let error = parsed("diagnose -c 5 --from d").unwrap_err();
        assert_eq!(error.message, "--connections is for a load, and --from makes none");
    }

    #[test]
    fn other_flags_go_with_them_and_with_a_load_all_do() {
        for line in [
            "diagnose --from d",
            "diagnose --from d --at 03:12 -v --json - --fail-on-fault",
            "diagnose --for 9s --port 80 --server ssh://web1 --sudo --out x -q",
            "diagnose -c 5 -d 5s http://h/",
            "run -c 5 http://h/",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
    }

    /// `value_source` knows the flags of its own command alone.
    #[test]
    fn a_diagnosis_has_all_flags_of_a_load() {
        let root = help::command(false);
        let diagnose = root.find_subcommand("diagnose").unwrap();
        let all = load_flags();
        let missing = all.get_arguments().map(Arg::get_id);
        let missing = missing.filter(|id| diagnose.get_arguments().all(|own| own.get_id() != *id));
        assert_eq!(missing.count(), 0);
        assert!(all.get_arguments().count() > 40, "{}", all.get_arguments().count());
    }
}
