//! What a server's program says of itself, where it may be asked: on our own file system, and the one that runs.

use crate::os::program::{Finished, Invocation, run};
use crate::os::timeouts;
use crate::visibility::{listeners, mount_namespace};
use webdyno_model::sample::MissingSignal;

/// Asks the program of a process (its path, and whether another one lies there by now) with these arguments. What is missing
/// where it cannot be asked; a `/tmp` of its own (PrivateTmp=) makes no container.
pub(crate) fn query_program(
    name: &str,
    pid: u32,
    executable: Option<&(String, bool)>,
    arguments: impl FnOnce() -> Vec<String>,
) -> Result<Finished, MissingSignal> {
    let missing = |why: String, how: String| MissingSignal {
        signal: format!("{}.version", name.replace('-', "_")),
        why,
        how_to_enable: how,
    };
    let Some((path, replaced)) = executable else {
        return Err(missing(
            format!("the executable of {name} cannot be seen"),
            listeners::NEEDS_RIGHTS.into(),
        ));
    };
    if mount_namespace::has_other_root(pid) {
        let why = format!("{name} runs in a container, whose programs are not started from outside");
        return Err(missing(why, "run webdyno in there".into()));
    }
    if *replaced {
        let why = format!("the executable of {name} was replaced since it was started");
        return Err(missing(why, format!("restart {name}")));
    }
    let arguments = arguments();
    let by_hand = format!("look at the output of: {path} {}", arguments.join(" "));
    let invocation = Invocation { executable: path, arguments, environment: None, directory: None };
    run(&invocation, timeouts::QUERY).map_err(|error| missing(error.message, by_hand))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_asked_or_it_is_told_why_not() {
        let ask = |executable: Option<(&str, bool)>| {
            let executable = executable.map(|(path, replaced)| (path.to_owned(), replaced));
            query_program("php-fpm", std::process::id(), executable.as_ref(), || vec!["hello".into()])
        };
        assert_eq!(ask(Some(("/bin/echo", false))).unwrap().stdout, "hello\n");
        for (executable, why, how) in [
            (None, "cannot be seen", listeners::NEEDS_RIGHTS),
            (Some(("/bin/echo", true)), "was replaced", "restart php-fpm"),
            (Some(("/nonexistent", false)), "/nonexistent", "look at the output of: /nonexistent hello"),
        ] {
            let missing = ask(executable).unwrap_err();
            assert_eq!((missing.signal.as_str(), missing.how_to_enable.as_str()), ("php_fpm.version", how));
            assert!(missing.why.contains(why), "{missing:?}");
        }
    }
}
