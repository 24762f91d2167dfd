//! A curve in a terminal: points with their intervals, the line behind them, the plateau and the choice on the axis. ASCII alone, so that it
//! is the same in every terminal, in logs and in mails.

use super::page::{COLUMNS, TextPage};

const ROWS: usize = 13;
/// What stands around the labels of the vertical axis.
const FRAME: usize = 5;
/// Labels of the vertical axis stand in every so many rows.
const LABEL_EVERY: usize = 4;
/// Values that span more than this ratio are laid out by their logarithm.
const LOGARITHMIC_FROM: f64 = 20.0;

/// How a figure is written on an axis.
pub(super) type Label<'a> = &'a dyn Fn(f64) -> String;

/// A measured point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlotPoint {
    pub x: f64,
    pub y: f64,
    pub ci95: Option<[f64; 2]>,
}

/// What is drawn.
pub(super) struct CurvePlot<'a> {
    /// What the axes count, with units.
    pub axes: [String; 2],
    pub labels: [Label<'a>; 2],
    pub points: Vec<PlotPoint>,
    /// The law, or nothing.
    pub line: Vec<(f64, f64)>,
    /// The plateau, marked on the axis.
    pub span: Option<[f64; 2]>,
    /// The choice, or the capacity, with its name.
    pub mark: Option<(f64, &'a str)>,
    /// A bound of the vertical figure: that of an objective.
    pub bound: Option<f64>,
}

/// From figures to places.
struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    steps: usize,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, steps: usize, may_be_logarithmic: bool) -> Option<Self> {
        let (from, to) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), value| (from.min(value), to.max(value)));
        let is_logarithmic = may_be_logarithmic && from > 0.0 && to / from > LOGARITHMIC_FROM;
        (from < to).then_some(Self { from, to, is_logarithmic, steps })
    }

    fn place(&self, value: f64) -> usize {
        let share = match self.is_logarithmic {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        (share.clamp(0.0, 1.0) * (self.steps - 1) as f64).round() as usize
    }

    /// The figure at a place.
    fn value(&self, place: usize) -> f64 {
        let share = place as f64 / (self.steps - 1) as f64;
        match self.is_logarithmic {
            true => self.from * (self.to / self.from).powf(share),
            false => self.from + share * (self.to - self.from),
        }
    }
}

/// The plot with its axes; nothing where the points do not span an area.
pub(super) fn write_curve(page: &mut TextPage, plot: &CurvePlot<'_>) {
    let heights =
        plot.points.iter().flat_map(|point| [point.y].into_iter().chain(point.ci95.into_iter().flatten()));
    let heights = heights.chain(plot.line.iter().map(|(_, y)| *y)).chain(plot.bound);
    let Some(y) = Scale::of(heights, ROWS, false) else { return };
    let label = |row: usize| match row % LABEL_EVERY {
        0 => (plot.labels[1])(y.value(ROWS - 1 - row)),
        _ => String::new(),
    };
    let labels: Vec<String> = (0..ROWS).map(label).collect();
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let places = COLUMNS.saturating_sub(widest + FRAME).max(2);
    let Some(x) = Scale::of(plot.points.iter().map(|point| point.x), places, true) else { return };
    page.gap();
    page.paragraph(&plot.axes[1]);
    for (label, cells) in labels.iter().zip(cells(plot, &x, &y)) {
        page.verbatim(&format!("{label:>widest$} |{}", cells.iter().collect::<String>()));
    }
    for line in axis(plot, &x) {
        page.verbatim(&format!("{:>widest$} {line}", ""));
    }
    page.paragraph(&legend(plot));
}

/// The area, row by row from the top. What matters more is drawn later.
fn cells(plot: &CurvePlot<'_>, x: &Scale, y: &Scale) -> Vec<Vec<char>> {
    let mut cells = vec![vec![' '; x.steps]; ROWS];
    let row = |value: f64| ROWS - 1 - y.place(value);
    if let Some(bound) = plot.bound {
        cells[row(bound)].iter_mut().step_by(2).for_each(|cell| *cell = '-');
    }
    let heights =
        (0..x.steps).filter_map(|column| Some((column, interpolated(&plot.line, x.value(column))?)));
    heights.for_each(|(column, height)| cells[row(height)][column] = '.');
    for point in &plot.points {
        let column = x.place(point.x);
        if let Some([low, high]) = point.ci95 {
            (row(high)..=row(low)).for_each(|row| cells[row][column] = '|');
        }
    }
    plot.points.iter().for_each(|point| cells[row(point.y)][x.place(point.x)] = 'o');
    cells
}

/// The line's height; `None` beside it.
fn interpolated(line: &[(f64, f64)], x: f64) -> Option<f64> {
    let pair = line.windows(2).find(|pair| pair[0].0 <= x && x <= pair[1].0 * (1.0 + 1e-9))?;
    let share = (x - pair[0].0) / (pair[1].0 - pair[0].0);
    Some(pair[0].1 + share * (pair[1].1 - pair[0].1))
}

/// The horizontal axis, with the plateau as `=` and the choice as `^`, and the figures of the points that have room below it.
fn axis(plot: &CurvePlot<'_>, x: &Scale) -> [String; 2] {
    let mut axis = vec!['-'; x.steps];
    if let Some([low, high]) = plot.span.filter(|[low, high]| low <= high) {
        axis[x.place(low)..=x.place(high)].fill('=');
    }
    if let Some((mark, _)) = plot.mark {
        axis[x.place(mark)] = '^';
    }
    let mut ticks = String::new();
    let mut values: Vec<f64> = plot.points.iter().map(|point| point.x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    for value in values {
        let label = (plot.labels[0])(value);
        let begins = x.place(value).saturating_sub(label.len() / 2).min(x.steps.saturating_sub(label.len()));
        if ticks.is_empty() || begins > ticks.len() {
            ticks = format!("{ticks:begins$}{label}");
        }
    }
    [format!("+{}", axis.iter().collect::<String>()), format!(" {ticks}")]
}

fn legend(plot: &CurvePlot<'_>) -> String {
    let mark = plot.mark.map(|(_, name)| format!("^ {name}")).unwrap_or_default();
    let drawn = [
        (true, "o measured"),
        (plot.points.iter().any(|point| point.ci95.is_some()), "| 95% interval"),
        (!plot.line.is_empty(), ". law"),
        (plot.bound.is_some(), "- bound"),
        (plot.span.is_some(), "= plateau"),
        (plot.mark.is_some(), mark.as_str()),
    ];
    let drawn: Vec<&str> =
        drawn.into_iter().filter(|(is_drawn, _)| *is_drawn).map(|(_, text)| text).collect();
    format!("{}: {}", plot.axes[0], drawn.join(", "))
}
