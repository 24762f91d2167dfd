//! The flags of a load that changes over time.

use super::load::DURATION_US_DEFAULT;
use super::{duration_us, with_hint};
use clap::Args;
use webdyno_model::stage::{self, Unit, Written};
use webdyno_model::workload::{Arrival, Workload};
use webdyno_model::{Result, UserError};

/// How the load changes.
#[derive(Debug, Clone, Default, Args)]
pub struct StageArgs {
    /// A part of the load, as 4m@0..100/s (a ramp), 5m@100/s, 1m@100..500..100/s (a spike), 9m@100..500/s,period=3m (waves),
    /// or with users or connections instead of /s (repeatable; ramps at both ends are not measured, unless
    /// measured=yes is added)
    #[arg(long = "stage", id = "stage", value_name = "TIME@LEVELS", group = "paced", value_parser = |text: &str| with_hint(stage::parse(text)), conflicts_with_all = ["duration", "requests", "warmup", "ramp", "ramp_down"])]
    pub stages: Vec<Written>,
    /// Before the measured part, from nothing to the full load
    #[arg(long, value_name = "TIME", value_parser = duration_us, allow_hyphen_values = true, conflicts_with_all = ["requests", "warmup"])]
    pub ramp: Option<u64>,
    /// After the measured part, down to nothing
    #[arg(long, value_name = "TIME", value_parser = duration_us, allow_hyphen_values = true, conflicts_with_all = ["requests", "warmup"])]
    pub ramp_down: Option<u64>,
}

impl StageArgs {
    /// Gives a workload its stages, if there are some. `connections` is what the command line says of them.
    pub fn apply(&self, workload: &mut Workload, connections: Option<u32>) -> Result<()> {
        if !self.stages.is_empty() {
            return self.apply_stages(workload, connections);
        }
        if self.ramp.is_none() && self.ramp_down.is_none() {
            return Ok(());
        }
        let (level, unit) = match (workload.arrival, &workload.visits) {
            (Arrival::Open { rate_per_s, .. }, _) => (rate_per_s, Unit::PerSecond),
            (Arrival::Closed, Some(visits)) => (f64::from(visits.users), Unit::Users),
            (Arrival::Closed, None) => (f64::from(workload.connections), Unit::Connections),
        };
        let measured_us = workload.stop.duration_us.unwrap_or(DURATION_US_DEFAULT);
        let times = (self.ramp.unwrap_or(0), measured_us, self.ramp_down.unwrap_or(0));
        workload.set_stages(stage::whole(&stage::ramped(level, unit, times))?);
        Ok(())
    }

    fn apply_stages(&self, workload: &mut Workload, connections: Option<u32>) -> Result<()> {
        let whole = stage::whole(&self.stages)?;
        let unit = whole.unit;
        if unit == Unit::Connections && workload.visits.is_some() {
            return Err(UserError::usage("a load of users has stages of users, not of connections")
                .hint("write them as in --stage 5m@50users"));
        }
        if unit != Unit::PerSecond && connections.is_some() && workload.visits.is_none() {
            return Err(UserError::usage(format!(
                "--stage says how many {} there are, and so does -c",
                unit.name()
            ))
            .hint("leave -c out"));
        }
        workload.set_stages(whole);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use webdyno_model::stage::{Shape, Stage, measured_s};
    use webdyno_model::workload::{Arrival, Workload};

    fn workload(arguments: &[&str]) -> Result<Workload, String> {
        let all = ["webdyno", "run", "http://a/"].iter().chain(arguments);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Run(run) => run.workload().map_err(|error| error.to_string()),
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
            (&["--stage", "5s@9users", "-c", "5"], "so does -c"),
            (&["--stage", "5s@9users", "--poisson"], "need a rate"),
            (&["--poisson"], "required"),
            (&["--stage", "5s@9"], "`9` does not end in its unit"),
            (&["--stage", "5s@9/s", "--stage", "5s@9users"], "stage 1 is in /s and stage 2 in users"),
            (&["--ramp", "500ms", "-d", "400ms"], "the first whole second"),
        ] {
            let told = workload(arguments).unwrap_err();
            assert!(told.contains(part), "{arguments:?}: {told}");
        }
    }
}
