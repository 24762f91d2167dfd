//! Flags of a load where none is made, by `diagnose --from DIR` and `--for TIME`, and of a session where there is none, by `--from`: they
//! would be ignored without a word. Which flags are of a load, or of a server, is what their structs say, so that a new one is among them.

use super::load::LoadArgs;
use super::server::ServerArgs;
use super::workers::OnArgs;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use webdyno_model::{Result, UserError};

const FROM: &str = "from";

/// The flags of `diagnose` that have it make no load: id, flag, and the flag with its value.
const WITHOUT_LOAD: [(&str, &str, &str); 2] =
    [(FROM, "--from", "--from DIR"), ("watch_for", "--for", "--for TIME")];

/// An error for the first flag that is given where it does nothing.
pub fn refuse_idle_flags(matches: &ArgMatches) -> Result<()> {
    let Some(("diagnose", given)) = matches.subcommand() else { return Ok(()) };
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let Some((id, without, shown)) = WITHOUT_LOAD.iter().find(|(id, ..)| is_given(id)) else { return Ok(()) };
    let first = |all: Command| all.get_arguments().find(|arg| is_given(arg.get_id().as_str())).map(displayed);
    if let Some(flag) = first(load_flags()) {
        return Err(UserError::usage(format!("{flag} is for a load, and {without} makes none"))
            .hint(format!("leave {flag} out, or give a URL instead of {shown}")));
    }
    if *id != FROM {
        return Ok(());
    }
    if let Some(flag) = first(server_flags()) {
        return Err(UserError::usage(format!(
            "{flag} is for a server, and {without} reads a recording alone"
        ))
        .hint(format!("leave {flag} out, or give a URL or --for TIME instead of {shown}")));
    }
    if is_given("out") {
        return Err(UserError::usage(format!(
            "--out is where a session is recorded, and {without} makes none"
        ))
        .hint("--json FILE writes the diagnosis; `webdyno report DIR --html FILE` writes the report"));
    }
    Ok(())
}

fn displayed(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| "a URL".to_owned(), |long| format!("--{long}"))
}

/// A command that has all flags that say where a server is and how it is read, and no other.
fn server_flags() -> Command {
    ServerArgs::augment_args(Command::new("server"))
}

/// A command that has all flags of a load, and no other.
fn load_flags() -> Command {
    OnArgs::augment_args(LoadArgs::augment_args(Command::new("load")))
}

#[cfg(test)]
mod tests {
    use super::super::{help, parse_words};
    use super::*;
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
    fn flags_of_a_session_are_refused_where_none_is_made() {
        for (flag, message) in [
            ("--server ssh://web1", "--server is for a server, and --from reads a recording alone"),
            ("--sudo", "--sudo is for a server, and --from reads a recording alone"),
            ("--db-option-file x", "--db-option-file is for a server, and --from reads a recording alone"),
            ("--out x", "--out is where a session is recorded, and --from makes none"),
        ] {
            let error = parsed(&format!("diagnose --from d {flag}")).unwrap_err();
            assert_eq!((error.exit_code(), error.hint.is_some()), (2, true), "{error}");
            assert_eq!(error.message, message);
        }
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
        let (all, of_servers) = (load_flags(), server_flags());
        let missing = all.get_arguments().chain(of_servers.get_arguments()).map(Arg::get_id);
        let missing = missing.filter(|id| diagnose.get_arguments().all(|own| own.get_id() != *id));
        assert_eq!(missing.count(), 0);
        assert!(all.get_arguments().count() > 40, "{}", all.get_arguments().count());
    }
}
