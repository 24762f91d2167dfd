//! Stages as a whole: one unit, something to do, and one measured stretch.

use super::{Shape, Stage, StageDraft, Unit, highest};
use crate::error::{Result, UserError};
use crate::workload::{Arrival, Workload};

/// The longest load.
const DURATION_US_MAX: u64 = 1_000_000_000_000_000;
/// Most stages of a load.
const STAGES_MAX: usize = 1000;
const US_PER_S: u64 = 1_000_000;

/// All stages of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedStages {
    /// What all levels count.
    pub unit: Unit,
    /// At least one.
    pub stages: Vec<Stage>,
}

/// Puts stages together. Where it was not said, ramps that lead up at the beginning, and ramps that lead down at the
/// end, are not measured; all others are. An error when units are mixed, when no level is above 0, when the measured
/// ones are not one stretch, or when nothing is measured.
pub fn check_stages(written: &[StageDraft]) -> Result<CheckedStages> {
    let unit = common_unit(written)?;
    for (index, stage) in written.iter().enumerate() {
        stage.check().map_err(|why| UserError::usage(format!("stage {}: {why}", index + 1)))?;
    }
    let up = written.iter().take_while(|stage| matches!(stage.shape, Shape::Ramp { from, to } if to > from));
    let down =
        written.iter().rev().take_while(|stage| matches!(stage.shape, Shape::Ramp { from, to } if to < from));
    let (first, last) = (up.count(), written.len() - down.count());
    let stage = |(index, stage): (usize, &StageDraft)| Stage {
        duration_us: stage.duration_us,
        shape: stage.shape,
        measured: stage.measured.unwrap_or((first..last).contains(&index)),
    };
    let stages: Vec<Stage> = written.iter().enumerate().map(stage).collect();
    if highest(&stages) <= 0.0 {
        return Err(UserError::usage("no stage has a level above 0, so nothing would be sent"));
    }
    check_measured(&stages)?;
    Ok(CheckedStages { unit, stages })
}

fn common_unit(written: &[StageDraft]) -> Result<Unit> {
    let first = written.first().ok_or_else(|| UserError::usage("there is no stage"))?;
    let total = written.iter().fold(0, |sum: u64, stage| sum.saturating_add(stage.duration_us));
    if total > DURATION_US_MAX || written.len() > STAGES_MAX {
        return Err(UserError::usage(format!(
            "{} stages of {} s are too much: at most {STAGES_MAX} stages of 277777 h together",
            written.len(),
            total / US_PER_S
        )));
    }
    match written.iter().position(|stage| stage.unit != first.unit) {
        None => Ok(first.unit),
        Some(index) => Err(UserError::usage(format!(
            "stage 1 is in {} and stage {} in {}: a load is either",
            first.unit.name(),
            index + 1,
            written[index].unit.name()
        ))
        .hint("write all stages with /s (starts a second, whatever the server does), all with users, or all with connections")),
    }
}

/// Measured stages are one stretch that holds a whole second, as a load is recorded by the second.
fn check_measured(stages: &[Stage]) -> Result<()> {
    let how = "say which stages count, as in --stage 4m@0..100/s,measured=yes";
    let first = stages.iter().position(|stage| stage.measured);
    let Some((first, (from_s, to_s))) = first.zip(measured_s(stages)) else {
        return Err(
            UserError::usage("no stage is measured: ramps at the beginning and at the end are not").hint(how)
        );
    };
    let stretch = stages[first..].iter().take_while(|stage| stage.measured).count();
    if let Some(again) = stages[first + stretch..].iter().position(|stage| stage.measured) {
        return Err(UserError::usage(format!(
            "stages {} and {} are measured, and stage {} between them is not: the measured part is one stretch",
            first + stretch,
            first + stretch + again + 1,
            first + stretch + 1
        ))
        .hint(how));
    }
    if to_s.is_some_and(|to_s| to_s <= from_s) {
        return Err(UserError::usage(
            "the measured stages hold no whole second: what is measured is cut in whole seconds of the load",
        )
        .hint("give them more time"));
    }
    if to_s.is_none() && from_s * US_PER_S >= super::duration_us(stages) {
        return Err(UserError::usage(
            "the load ends before the first whole second of its measured stages: what is measured is cut in whole seconds of the load",
        )
        .hint("give them more time"));
    }
    Ok(())
}

/// Beginning and end of the measured part in whole seconds of the load, which lie within the measured stages; `None`
/// for the end when it is that of the load. `None` when nothing is measured, or when the stages say nothing about it, as
/// there are none.
pub fn measured_s(stages: &[Stage]) -> Option<(u64, Option<u64>)> {
    let (from_us, to_us) = super::measured_us(stages)?;
    let is_last = to_us >= super::duration_us(stages);
    Some((from_us.div_ceil(US_PER_S), (!is_last).then_some(to_us / US_PER_S)))
}

/// A ramp up to `level`, the measured part there, and a ramp down; a ramp of no length is left out.
pub fn ramped(level: f64, unit: Unit, (up_us, measured_us, down_us): (u64, u64, u64)) -> Vec<StageDraft> {
    let stage =
        |duration_us, shape, measured| StageDraft { duration_us, shape, unit, measured: Some(measured) };
    let mut stages = vec![
        stage(up_us, Shape::Ramp { from: 0.0, to: level }, false),
        stage(measured_us, Shape::Hold { level }, true),
        stage(down_us, Shape::Ramp { from: level, to: 0.0 }, false),
    ];
    stages.retain(|stage| stage.duration_us > 0);
    stages
}

impl Workload {
    /// Gives the load these stages: they say how it arrives, how much of it there is at most, and how long it lasts. In
    /// open arrival `connections` stays the most connections at once; with users it is their number, or, with visits,
    /// stays what it is.
    pub fn set_stages(&mut self, whole: CheckedStages) {
        let most = highest(&whole.stages);
        match whole.unit {
            Unit::PerSecond => {
                let poisson = matches!(self.arrival, Arrival::Open { poisson: true, .. });
                self.arrival = Arrival::Open { rate_per_s: most, poisson };
            }
            Unit::Users | Unit::Connections => {
                self.arrival = Arrival::Closed;
                match &mut self.visits {
                    Some(visits) => visits.users = most as u32,
                    None => self.connections = most as u32,
                }
            }
        }
        self.stop.duration_us = Some(super::duration_us(&whole.stages));
        self.stages = whole.stages;
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn read(texts: &[&str]) -> Result<CheckedStages> {
        check_stages(&texts.iter().map(|text| parse(text).unwrap()).collect::<Vec<_>>())
    }

    fn measured(texts: &[&str]) -> String {
        read(texts).unwrap().stages.iter().map(|stage| if stage.measured { 'm' } else { '-' }).collect()
    }

    #[test]
    fn ramps_up_to_and_down_from_the_load_are_not_measured() {
        for (texts, expected) in [
            (&["4m@0..9/s", "5m@9/s", "1m@9..0/s"][..], "-m-"),
            (&["1m@0..5/s", "1m@5..9/s", "5m@9/s", "1m@9..5/s", "1m@5..0/s"], "--m--"),
            (&["5m@9/s"], "m"),
            // Within the load they are what it is made of.
            (&["1m@5/s", "1m@5..9/s", "1m@9/s"], "mmm"),
            (&["1m@9..5/s", "1m@5/s"], "mm"),
            (&["1m@0..9/s,measured=yes"], "m"),
            (&["1m@0..9/s", "1m@9/s,measured=no", "1m@9/s", "1m@9..0/s"], "--m-"),
            (&["1m@5/s", "1m@5..9..5/s", "1m@5..9/s,period=10s"], "mmm"),
        ] {
            assert_eq!(measured(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        for (texts, part) in [
            (&["1m@0..9/s"][..], "no stage is measured"),
            (&["1m@0..9/s", "1m@9..0/s"], "no stage is measured"),
            (&["1m@9/s", "1m@9users"], "stage 1 is in /s and stage 2 in users"),
            (&["1m@9users", "1m@9connections"], "stage 1 is in users and stage 2 in connections"),
            (&["1m@0/s", "1m@0/s"], "no stage has a level above 0"),
            (
                &["1m@9/s", "1m@9/s", "1m@9/s,measured=no", "1m@9/s,measured=no", "1m@9/s"],
                "stages 2 and 5 are measured, and stage 3 between them is not",
            ),
            (&["1500ms@0..9/s", "400ms@9/s"], "ends before the first whole second"),
            (&["1500ms@0..9/s", "1400ms@9/s", "1s@9..0/s"], "hold no whole second"),
            (&["277777h@1/s", "277777h@1/s"], "too much"),
        ] {
            let error = read(texts).unwrap_err();
            assert!(error.message.contains(part), "{texts:?}: {}", error.message);
            assert_eq!(error.exit_code(), 2);
        }
        assert!(check_stages(&[]).is_err());
    }

    #[test]
    fn the_measured_part_is_cut_in_whole_seconds_within_its_stages() {
        for (texts, expected) in [
            (&["4m@0..9/s", "5m@9/s", "1m@9..0/s"][..], (240, Some(540))),
            (&["1500ms@0..9/s", "2s@9/s"], (2, None)),
            (&["1500ms@0..9/s", "2s@9/s", "1s@9..0/s"], (2, Some(3))),
            (&["5s@9/s"], (0, None)),
        ] {
            assert_eq!(measured_s(&read(texts).unwrap().stages), Some(expected), "{texts:?}");
        }
        assert_eq!(measured_s(&[]), None);
    }

    #[test]
    fn stages_say_how_the_load_arrives_and_how_long_it_lasts() {
        let open = Arrival::Open { rate_per_s: 1.0, poisson: true };
        let mut workload = Workload { arrival: open, connections: 7, ..Workload::default() };
        workload.set_stages(read(&["1m@0..90/s", "5m@30/s"]).unwrap());
        assert_eq!(workload.arrival, Arrival::Open { rate_per_s: 90.0, poisson: true });
        assert_eq!((workload.connections, workload.stop.duration_us), (7, Some(360 * US_PER_S)));
        workload.set_stages(read(&["1m@0..90users", "5m@30users"]).unwrap());
        assert_eq!((workload.arrival, workload.connections), (Arrival::Closed, 90));
    }

    #[test]
    fn a_ramped_load_measures_what_lies_between_the_ramps() {
        let times = (240 * US_PER_S, 300 * US_PER_S, 60 * US_PER_S);
        let all = check_stages(&ramped(50.0, Unit::Users, times)).unwrap();
        assert_eq!(measured_s(&all.stages), Some((240, Some(540))));
        assert_eq!(super::super::integral(&all.stages, 600.0), 120.0 * 50.0 + 300.0 * 50.0 + 30.0 * 50.0);
        let only_up = check_stages(&ramped(2.5, Unit::PerSecond, (US_PER_S, 2 * US_PER_S, 0))).unwrap();
        assert_eq!((only_up.stages.len(), measured_s(&only_up.stages)), (2, Some((1, None))));
    }
}
