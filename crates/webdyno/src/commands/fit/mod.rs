//! `webdyno fit`: the scaling law, the plateau and the choice of points that were measured before, here or elsewhere.

mod sweeps;
mod table;

use crate::cli::export::is_stdout;
use crate::cli::fit::FitArgs;
use crate::finish;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use webdyno_analysis::sweep::chosen_curve;
use webdyno_model::error::io_error;
use webdyno_model::sweep::{Knob, SCHEMA, SweepPoint, SweepReport};
use webdyno_model::{Result, UserError};

/// No table of points is larger: it is read into memory.
const BYTES_MAX: u64 = 16 << 20;

/// Fits, and shows what it comes to: also that the points cannot tell.
pub fn fit(arguments: &FitArgs) -> Result<u8> {
    let source = &arguments.source;
    let measured =
        if !is_stdout(source) && source.is_dir() { sweeps::read(source)? } else { of_table(source)? };
    check_one_setting(source, &measured.knobs)?;
    let known = measured.points.iter().filter(|point| point.value.is_some() && point.rate.is_some());
    let mut values: Vec<f64> = known.filter_map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    if values.len() < 2 {
        let what = if values.is_empty() { "no value" } else { "one value only" };
        return Err(UserError::usage(format!(
            "{} holds {what} with a rate, which is no curve",
            source.display()
        ))
        .hint("measure at six values or more: `webdyno sweep`, or `webdyno run -c 1`, `-c 2`, `-c 4`, ..."));
    }
    let report = fitted(measured);
    let json = serde_json::to_string_pretty(&report);
    finish::show(arguments.json.as_deref(), json, &webdyno_report::sweep(&report))?;
    Ok(0)
}

fn fitted(measured: SweepReport) -> SweepReport {
    let has_objectives =
        !measured.objectives.is_empty() || measured.points.iter().any(|point| point.missed.is_some());
    let analysed = chosen_curve(&measured.points, has_objectives);
    SweepReport {
        plateau: analysed.plateau,
        choice: analysed.choice,
        unsure: analysed.unsure,
        usl: analysed.usl,
        notes: analysed.notes,
        ..measured
    }
}

/// Points of a grid or a study that have the first value in common are no repeats of each other.
fn check_one_setting(source: &Path, knobs: &[Knob]) -> Result<()> {
    if knobs.len() < 2 {
        return Ok(());
    }
    Err(UserError::usage(format!("{} varies more than one setting, and a curve is of one", source.display()))
        .hint("`webdyno report DIR` shows what such a sweep came to"))
}

fn of_table(source: &Path) -> Result<SweepReport> {
    let name = if is_stdout(source) { "stdin".to_owned() } else { source.display().to_string() };
    Ok(unfitted(table::points(&name, &bytes(source, &name)?)?))
}

fn unfitted(points: Vec<SweepPoint>) -> SweepReport {
    SweepReport { schema: SCHEMA.into(), knob: "value".into(), points, ..SweepReport::default() }
}

fn bytes(source: &Path, name: &str) -> Result<Vec<u8>> {
    let reader: Box<dyn Read> = if is_stdout(source) {
        Box::new(stdin().lock())
    } else {
        let hint = "give a CSV of value,rate, or the run directory of a sweep";
        Box::new(File::open(source).map_err(|error| io_error("read", name, &error).hint(hint))?)
    };
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| io_error("read", name, &error))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(UserError::usage(format!("{name} is larger than 16 MiB, which no table of points is"))
            .hint("give a row for each measurement: value,rate"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_no_curve() {
        let knob = Knob { name: "MaxRequestWorkers".into(), setting: None, unit: None };
        let knobs = [knob.clone(), Knob { name: "users".into(), ..knob }];
        for count in 0..=2 {
            let code =
                check_one_setting(Path::new("s"), &knobs[..count]).err().map(|error| error.exit_code());
            assert_eq!(code, (count == 2).then_some(2), "{count}");
        }
    }

    #[test]
    fn the_choice_of_a_sweep_with_objectives_meets_them() {
        let point = |(value, rate, missed): (f64, f64, Option<&str>)| SweepPoint {
            value: Some(value),
            rate: Some(rate),
            ci95: Some([0.99 * rate, 1.01 * rate]),
            missed: missed.map(str::to_owned),
            ..SweepPoint::default()
        };
        let slow = Some("p99<200ms");
        let points = [(10.0, 100.0, None), (20.0, 190.0, None), (40.0, 350.0, slow), (80.0, 600.0, slow)];
        assert_eq!(fitted(unfitted(points.map(point).to_vec())).choice, Some(20.0));
    }
}
