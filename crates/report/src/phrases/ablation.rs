//! The same pages with and without their resources, as a table and a headline.

use crate::human::{UNKNOWN, number, plural, quantity, times, times_interval};
use webdyno_model::diagnosis::Experiment;
use webdyno_model::page::{Ablation, AblationFigure};

/// What the table means.
pub(crate) const ABLATION_MEANS: &str = "Both loads alternate, the second one with the documents of the pages only. Intervals: \
     95%.";

/// `Without resources: 263 pages/s, with them 58 pages/s: 4.5 times`.
pub(crate) fn ablation_headline(ablation: &Ablation) -> String {
    let pages = ablation.figures.iter().find(|figure| figure.name == "pages/s");
    let reported = pages.and_then(|pages| {
        let (with, without) = (number(pages.with?), number(pages.without?));
        Some(format!("{without} pages/s, with them {with} pages/s: {}", times(pages.ratio?)))
    });
    let reported = reported.unwrap_or_else(|| "nothing to compare".into());
    let runs = if ablation.runs > 1 {
        format!(" (means of {})", plural(u64::from(ablation.runs), "load"))
    } else {
        String::new()
    };
    format!("Without {}: {reported}{runs}", ablation.without)
}

/// A row for each figure, the first one with the titles.
pub(crate) fn ablation_table(ablation: &Ablation) -> Vec<Vec<String>> {
    let titles = ["", "with", "without", "ratio", "95%"].map(str::to_owned).to_vec();
    let row = |figure: &AblationFigure| {
        let value =
            |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), |value| quantity(value, &figure.unit));
        let interval = figure.ratio.zip(figure.ci95);
        vec![
            figure.name.clone(),
            value(figure.with),
            value(figure.without),
            figure.ratio.map_or_else(String::new, times),
            interval.map_or_else(String::new, |(ratio, ci95)| times_interval(ratio, ci95)),
        ]
    };
    std::iter::once(titles).chain(ablation.figures.iter().map(row)).collect()
}

/// What an experiment showed, with its figure.
pub(crate) fn experiment(experiment: &Experiment) -> String {
    let figure = &experiment.figure;
    match (figure.with.zip(figure.without), figure.ratio.zip(figure.ci95)) {
        (Some((with, without)), Some((ratio, ci95))) => {
            let displayed = |value: f64| quantity(value, &figure.unit);
            let name = &figure.name;
            let interval = times_interval(ratio, ci95);
            format!(
                "{} ({name}: {} before, {} then: {interval})",
                experiment.means,
                displayed(with),
                displayed(without)
            )
        }
        _ => experiment.means.clone(),
    }
}
