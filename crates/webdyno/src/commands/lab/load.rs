//! What a scenario says of its load, read as the command line that it is.

use crate::cli::lab_run::LabLoadArgs;
use crate::cli::usage::usage_error;
use clap::{Args, Command, FromArgMatches};
use webdyno_lab::scenario::{ScenarioFolder, ScenarioLoad, split_flags};
use webdyno_model::{Result, UserError};

/// Flags that a run gives itself.
const OURS: [&str; 5] = ["--server", "--out", "--quiet", "-q", "--directory"];

/// Checks the loads of a scenario before anything is built: their flags are those of `webdyno diagnose`.
pub fn check(folder: &ScenarioFolder) -> Result<()> {
    let scenario = &folder.scenario;
    let mut loads =
        std::iter::once(&scenario.load).chain(scenario.rounds.iter().filter_map(|round| round.load.as_ref()));
    loads.try_for_each(|load| check_load(folder, load))
}

fn check_load(folder: &ScenarioFolder, load: &ScenarioLoad) -> Result<()> {
    let words = split_flags(&load.flags)?;
    let wrong = |why: String| {
        UserError::usage(format!("{}: the load's flags `{}`: {why}", folder.name, load.flags))
            .hint("`webdyno diagnose --help` lists the flags of a load")
    };
    if let Some(word) = words.iter().find(|word| OURS.contains(&word.split('=').next().unwrap_or_default())) {
        return Err(wrong(format!("the run itself gives {word}")));
    }
    let command = LabLoadArgs::augment_args(Command::new("load").no_binary_name(true));
    let words: Vec<String> = load.urls.iter().cloned().chain(words).collect();
    let matches = command.try_get_matches_from(&words);
    let parsed = matches.and_then(|matches| LabLoadArgs::from_arg_matches(&matches));
    let line = [vec!["webdyno".to_owned(), "diagnose".to_owned()], words].concat();
    parsed.map(|_| ()).map_err(|error| wrong(usage_error(&error, &line).message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_lab::scenario::Catalogue;

    #[test]
    fn the_loads_of_all_scenarios_are_command_lines() {
        for name in Catalogue::BuiltIn.names().unwrap() {
            let folder = Catalogue::BuiltIn.open(&name).unwrap();
            check(&folder).unwrap();
        }
    }

    #[test]
    fn the_loads_of_servers_drawn_at_random_are_command_lines() {
        for seed in 0..60 {
            check(&Catalogue::BuiltIn.open(&format!("draw-{seed}")).unwrap()).unwrap();
        }
    }

    #[test]
    fn wrong_flags_are_told_before_anything_is_built() {
        let name = Catalogue::BuiltIn.names().unwrap().remove(0);
        let mut folder = Catalogue::BuiltIn.open(&name).unwrap();
        for (flags, part) in [
            ("-c", "-c wants a value"),
            ("-c 10 --no-keepalives", "has no flag `--no-keepalives`"),
            ("-c 'x", "quote that is not closed"),
            ("-c 10 --out /tmp/x", "the run itself gives --out"),
            ("-c 10 --server=local", "the run itself gives --server=local"),
        ] {
            folder.scenario.load.flags = flags.into();
            let reported = check(&folder).unwrap_err();
            assert!(reported.message.contains(part) && reported.exit_code() == 2, "{flags}: {reported}");
        }
    }
}
