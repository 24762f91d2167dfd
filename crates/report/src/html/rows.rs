//! A chart of rows over a time axis as SVG: names on the left, bars in the middle, what is told of each on the right.

use super::markup::Markup;
use super::plot::{Axis, PlotText, WIDTH, coordinate, line, svg, write_label};

/// Where the bars lie, in user units.
const LEFT: f64 = 232.0;
const RIGHT: f64 = WIDTH - 170.0;
/// Height of a row, and of its bar.
const ROW: f64 = 18.0;
const BAR: f64 = 11.0;
/// Room for the labels of the axis, above the rows.
const TOP: f64 = 22.0;
/// A bar that is too short to be seen is so wide.
const WIDTH_MIN: f64 = 1.5;

/// The chart.
pub(super) struct RowChart<'a> {
    /// Along the top.
    pub(super) axis: &'a Axis,
    /// How many rows there are.
    pub(super) count: usize,
}

impl RowChart<'_> {
    /// The SVG element with its title, its description and its grid, and what the closure draws on it.
    pub(super) fn draw(&self, m: &mut Markup, words: &PlotText<'_>, fill: impl FnOnce(&mut Markup)) {
        let height = TOP + ROW * self.count as f64 + 4.0;
        svg(m, words, height, |m| {
            for (at, label) in self.axis.ticks() {
                let x = x(self.axis, *at);
                line(m, "grid", (x, TOP - 4.0), (x, height));
                write_label(m, "", "middle", (x, TOP - 9.0), label);
            }
            fill(m);
        });
    }
}

fn x(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.place(value) * (RIGHT - LEFT)
}

/// The name of a row, and what is told of it.
pub(super) fn label(m: &mut Markup, row: usize, name: &str, reported: &str) {
    let y = TOP + ROW * row as f64 + 13.0;
    write_label(m, "name", "end", (LEFT - 8.0, y), name);
    write_label(m, "", "start", (RIGHT + 10.0, y), reported);
}

/// A bar of a row between two values.
pub(super) fn bar(m: &mut Markup, class: &str, axis: &Axis, row: usize, (from, to): (f64, f64)) {
    let (left, right) = (x(axis, from), x(axis, to));
    let width = (right - left).max(WIDTH_MIN);
    let y = TOP + ROW * row as f64 + (ROW - BAR) / 2.0;
    let [x, y, width, height] = [left.min(RIGHT - WIDTH_MIN), y, width, BAR].map(coordinate);
    m.empty("rect", &[("class", class), ("x", &x), ("y", &y), ("width", &width), ("height", &height)]);
}
