//! The flags of a load that changes over time.

use super::duration_us;
use clap::Args;
use webdyno_load::workload::file::Settings;
use webdyno_model::workload::stage;
use webdyno_model::workload::stage::StageDraft;

/// How the load changes.
#[derive(Debug, Clone, Default, Args)]
pub struct StageArgs {
    /// Stage of the load, such as 5m@100/s or 4m@0..100/s (repeatable)
    ///
    /// 4m@0..100/s is a ramp, 1m@100..500..100/s a spike, 9m@100..500/s,period=3m are waves; `users` or `connections` instead
    /// of /s make a closed loop. Ramps at both ends are excluded unless measured=yes is added
    #[arg(long = "stage", id = "stage", value_name = "TIME@LEVELS", group = "paced", value_parser = stage::parse, conflicts_with_all = ["duration", "requests", "warmup", "ramp", "ramp_down", "users"])]
    pub stages: Vec<StageDraft>,
    /// Ramp up before the measured part, from 0 to the full load
    #[arg(long, value_name = "TIME", value_parser = duration_us, allow_hyphen_values = true, conflicts_with_all = ["requests", "warmup"])]
    pub ramp: Option<u64>,
    /// Ramp down after the measured part, to 0
    #[arg(long, value_name = "TIME", value_parser = duration_us, allow_hyphen_values = true, conflicts_with_all = ["requests", "warmup"])]
    pub ramp_down: Option<u64>,
}

impl StageArgs {
    /// What the flags say counts, whatever a file says: stages stand for everything about how much is loaded.
    pub fn apply_flags(&self, settings: &mut Settings) {
        if !self.stages.is_empty() {
            settings.stages.clone_from(&self.stages);
            (settings.users, settings.rate_per_s) = (None, None);
            (settings.duration_us, settings.ramp_us, settings.ramp_down_us) = (None, None, None);
        }
        for (slot, given) in
            [(&mut settings.ramp_us, self.ramp), (&mut settings.ramp_down_us, self.ramp_down)]
        {
            *slot = given.or(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use webdyno_model::workload::stage::{Shape, Stage, measured_s};
    use webdyno_model::workload::{Arrival, Workload};

    fn workload(arguments: &[&str]) -> Result<Workload, String> {
        let all = ["webdyno", "run", "http://a/"].iter().chain(arguments);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Run(run) => {
                let draft = run.draft().map_err(|error| error.to_string())?;
                run.load.workload(&draft).map_err(|error| error.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stages_say_all_of_the_load() {
        let load =
            workload(&["--stage", "1m@0..90/s", "--stage", "2m@90/s", "--poisson", "-c", "7"]).unwrap();
        assert_eq!(load.arrival, Arrival::Open { rate_per_s: 90.0, poisson: true });
        assert_eq!((load.connections, load.stop.duration_us), (7, Some(180_000_000)));
        assert_eq!(measured_s(&load.stages), Some((60, None)));
        for unit in ["users", "connections"] {
            let load = workload(&["--stage", &format!("5s@20{unit}")]).unwrap();
            assert_eq!((load.arrival, load.connections), (Arrival::Closed, 20));
        }
    }

    #[test]
    fn ramps_lie_around_the_measured_part() {
        let load = workload(&["--ramp", "4m", "-d", "5m", "--ramp-down", "1m", "-c", "20"]).unwrap();
        assert_eq!((load.arrival, load.connections), (Arrival::Closed, 20));
        assert_eq!(load.stop.duration_us, Some(600_000_000));
        assert_eq!(measured_s(&load.stages), Some((240, Some(540))));
        let ramp =
            Stage { duration_us: 240_000_000, shape: Shape::Ramp { from: 0.0, to: 20.0 }, measured: false };
        assert_eq!(load.stages[0], ramp);
        let load = workload(&["--ramp", "2s", "-r", "100"]).unwrap();
        assert_eq!((load.stages.len(), load.stop.duration_us), (2, Some(12_000_000)));
        assert_eq!(load.arrival, Arrival::Open { rate_per_s: 100.0, poisson: false });
    }

    #[test]
    fn what_does_not_go_with_stages_is_told() {
        for (arguments, part) in [
            (&["--stage", "5s@9/s", "-d", "5s"][..], "cannot be used with"),
            (&["--stage", "5s@9/s", "-n", "5"], "cannot be used with"),
            (&["--stage", "5s@9/s", "-r", "5"], "cannot be used with"),
            (&["--stage", "5s@9/s", "--warmup", "1s"], "cannot be used with"),
            (&["--stage", "5s@9/s", "--ramp", "1s"], "cannot be used with"),
            (&["--ramp", "1s", "-n", "5"], "cannot be used with"),
            (&["--ramp", "1s", "--warmup", "1s"], "cannot be used with"),
            (&["--stage", "5s@9users", "-c", "5"], "also a number of connections"),
            (&["--stage", "5s@9connections", "-c", "5"], "also a number of connections"),
            (&["--stage", "5s@9connections", "--page"], "requests alone"),
            (&["--stage", "5s@9users", "--users", "5"], "cannot be used with"),
            (&["--stage", "5s@9users", "--poisson"], "need a rate"),
            (&["--poisson"], "need a rate"),
            (&["--stage", "5s@9"], "`9` does not end in its unit"),
            (&["--stage", "5s@9/s", "--stage", "5s@9users"], "stage 1 is in /s and stage 2 in users"),
            (&["--ramp", "500ms", "-d", "400ms"], "the first whole second"),
        ] {
            let reported = workload(arguments).unwrap_err();
            assert!(reported.contains(part), "{arguments:?}: {reported}");
        }
    }
}
