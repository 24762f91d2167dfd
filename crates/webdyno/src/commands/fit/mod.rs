//! `webdyno fit`: the scaling law, the plateau and the choice of points that were measured before, here or elsewhere.

mod sweeps;
mod table;

use crate::cli::export::is_stdout;
use crate::cli::fit::FitArgs;
use crate::finish;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use webdyno_analysis::sweep::curve_of;
use webdyno_model::error::io_error;
use webdyno_model::sweep::{SCHEMA, SweepPoint, SweepReport};
use webdyno_model::{Result, UserError};

/// No table of points is larger: it is read into memory.
const BYTES_MAX: u64 = 16 << 20;

/// Fits, and shows what it comes to: also that the points cannot tell.
pub fn fit(arguments: &FitArgs) -> Result<u8> {
    let source = &arguments.source;
    let measured =
        if !is_stdout(source) && source.is_dir() { sweeps::read(source)? } else { of_table(source)? };
    check_knobs(&measured, source)?;
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

/// Points of a grid are no repeats of the first knob's values.
fn check_knobs(measured: &SweepReport, source: &Path) -> Result<()> {
    if measured.knobs.len() <= 1 && measured.study.is_none() {
        return Ok(());
    }
    Err(UserError::usage(format!("{} varies several knobs, which is no curve", source.display()))
        .hint("`webdyno report DIR` shows what each of them does; a sweep of one --knob is a curve"))
}

fn fitted(measured: SweepReport) -> SweepReport {
    let analysed = curve_of(&measured.points, &measured.objectives);
    SweepReport {
        plateau: analysed.plateau,
        choice: analysed.choice,
        unsure: analysed.unsure,
        usl: analysed.usl,
        notes: analysed.notes,
        ..measured
    }
}

fn of_table(source: &Path) -> Result<SweepReport> {
    let name = if is_stdout(source) { "stdin".to_owned() } else { source.display().to_string() };
    Ok(of_points(table::points(&name, &bytes(source, &name)?)?))
}

fn of_points(points: Vec<SweepPoint>) -> SweepReport {
    SweepReport {
        schema: SCHEMA.into(),
        knob: "value".into(),
        knobs: vec![],
        points,
        plateau: None,
        choice: None,
        best: None,
        unsure: None,
        objectives: vec![],
        usl: None,
        notes: vec![],
        original: None,
        environment: None,
        study: None,
    }
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
    use webdyno_model::objective::Objective;
    use webdyno_model::sweep::Knob;

    #[test]
    fn a_grid_is_no_curve() {
        let mut measured = of_points(table::points("-", b"10,200\n20,400\n").unwrap());
        let knob = |name: &str| Knob { name: name.into(), setting: None, unit: None };
        for (names, refused) in [(&["a"][..], false), (&["a", "b"], true)] {
            measured.knobs = names.iter().map(|name| knob(name)).collect();
            assert_eq!(check_knobs(&measured, Path::new("s")).is_err(), refused, "{names:?}");
        }
    }

    #[test]
    fn the_choice_is_among_the_points_that_meet_the_objectives() {
        let mut measured = of_points(table::points("-", b"10,200\n20,400\n40,390\n80,410\n").unwrap());
        assert_eq!(fitted(measured.clone()).choice, None);
        measured.points[3].missed = Some("p99<200ms".into());
        measured.objectives = vec![Objective::parse("p99<200ms").unwrap()];
        let report = fitted(measured);
        assert_eq!(report.choice, Some(20.0));
        assert!(report.notes.iter().any(|note| note.contains("1 of 4 points miss p99<200ms")), "{report:?}");
    }
}
