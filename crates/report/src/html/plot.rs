//! Axes and curves as SVG, in the units of the reader: ticks on round numbers, no point outside of the frame, no
//! number that is not finite. A curve keeps at most the first, smallest, largest and last value of each pixel column, so
//! that an hour of readings costs no more than a minute and no peak is lost.

use super::markup::Markup;

/// Width of all plots in user units; the style sheet scales them.
pub(super) const WIDTH: f64 = 760.0;
/// Longer than any time that is measured (an hour): the end of a logarithmic axis.
const US_MAX: f64 = 9e9;
/// An axis from zero ends at 1 when there is nothing above this.
const SMALLEST: f64 = 1e-9;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 26.0;

/// One axis.
pub(super) struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to above `max`, labelled by `label`, in steps of 1, 2 or 5 times a power of ten.
    pub(super) fn zero_based(max: f64, label: impl Fn(f64) -> String) -> Self {
        let max = if max.is_finite() && max > SMALLEST { max.min(1e15) } else { 1.0 };
        let step = round_up(max / 4.0, &[1.0, 2.0, 2.5, 5.0, 10.0]);
        let count = (max / step - 1e-9).ceil().max(1.0);
        let ticks =
            (0..=count as u32).map(|index| f64::from(index) * step).map(|at| (at, label(at))).collect();
        Self { from: 0.0, to: count * step, logarithmic: false, ticks }
    }

    /// Seconds since the session began, in steps that clocks have.
    pub(super) fn seconds(max_s: f64) -> Self {
        const STEPS: [f64; 14] =
            [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0];
        let max_s = if max_s.is_finite() && max_s > 0.0 { max_s.min(1e9) } else { 1.0 };
        let step = STEPS.into_iter().find(|step| max_s / step <= 9.0);
        let step = step.unwrap_or_else(|| round_up(max_s / 8.0, &[1.0, 2.0, 5.0, 10.0]));
        let count = (max_s / step).floor() as u32;
        let label = |at: f64| crate::human::time_s(at);
        let ticks = (0..=count).map(|index| f64::from(index) * step).map(|at| (at, label(at))).collect();
        Self { from: 0.0, to: max_s, logarithmic: false, ticks }
    }

    /// Times in microseconds, logarithmic, from below `min_us` to above `max_us`.
    pub(super) fn log_us(min_us: f64, max_us: f64) -> Self {
        let [min_us, max_us] = [min_us, max_us].map(|us| us.clamp(1.0, US_MAX));
        let decades = (max_us / min_us).log10();
        let steps: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all: Vec<f64> =
            (0..11).flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))).collect();
        let first = all.partition_point(|&at| at <= min_us).saturating_sub(1);
        let last = all.partition_point(|&at| at < max_us).clamp(first + 1, all.len() - 1);
        let ticks = &all[first.min(last - 1)..=last];
        let labelled = ticks.iter().map(|&at| (at, crate::human::time_us(at))).collect();
        Self { from: ticks[0], to: ticks[ticks.len() - 1], logarithmic: true, ticks: labelled }
    }

    /// Shares of one, in quarters and tenths that readers of percentiles look for.
    pub(super) fn shares() -> Self {
        let ticks = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0].map(|at| (at, crate::human::percent(at))).to_vec();
        Self { from: 0.0, to: 1.0, logarithmic: false, ticks }
    }

    /// Where the labels stand.
    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Where a value lies, 0 to 1; values outside are at the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn round_up(value: f64, steps: &[f64]) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let step = steps.iter().find(|step| **step * power >= value * (1.0 - 1e-9));
    step.map_or(10.0, |step| *step) * power
}

/// A plot's frame.
pub(super) struct Frame {
    /// Along the bottom.
    pub(super) x: Axis,
    /// Along the left side.
    pub(super) y: Axis,
    /// Height in user units.
    pub(super) height: f64,
}

impl Frame {
    /// The SVG element with its title and description, the grid, and what the closure draws on it. `id` must be
    /// unique in the document.
    pub(super) fn draw(&self, m: &mut Markup, words: &PlotText<'_>, fill: impl FnOnce(&mut Markup)) {
        svg(m, words, self.height, |m| {
            self.grid(m);
            fill(m);
        });
    }

    fn grid(&self, m: &mut Markup) {
        let (bottom, right) = (self.height - BOTTOM, WIDTH - RIGHT);
        for (at, label) in &self.y.ticks {
            let y = self.y(*at);
            line(m, "grid", (LEFT, y), (right, y));
            write_label(m, "", "end", (LEFT - 8.0, y + 4.0), label);
        }
        for (at, label) in &self.x.ticks {
            let x = self.x(*at);
            line(m, "grid", (x, bottom), (x, bottom + 4.0));
            // The last label would hang over the edge.
            let anchor = if x > right - 20.0 { "end" } else { "middle" };
            write_label(m, "", anchor, (if anchor == "end" { right } else { x }, bottom + 18.0), label);
        }
    }

    /// A curve through points, thinned to what the width can show.
    pub(super) fn curve(&self, m: &mut Markup, class: &str, points: &[(f64, f64)]) {
        let placed = points
            .iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .map(|&(x, y)| (self.x(x), self.y(y)));
        let mut path = String::new();
        for (x, y) in reduce_points(placed) {
            path.push_str(if path.is_empty() { "M" } else { "L" });
            path.push_str(&format!("{} {}", coordinate(x), coordinate(y)));
        }
        if !path.is_empty() {
            m.empty("path", &[("class", &format!("curve {class}")), ("d", &path)]);
        }
    }

    /// A shaded stretch of the x axis, over the whole height.
    pub(super) fn shade(&self, m: &mut Markup, class: &str, from: f64, to: f64) {
        let (left, right) = (self.x(from), self.x(to));
        if right > left {
            let (x, width) = (coordinate(left), coordinate(right - left));
            let (y, height) = (coordinate(TOP), coordinate(self.height - TOP - BOTTOM));
            m.empty(
                "rect",
                &[("class", class), ("x", &x), ("y", &y), ("width", &width), ("height", &height)],
            );
        }
    }

    /// A mark across the plot at `at`, with the label of the stretch up to `to` above it where there is room.
    pub(super) fn mark(&self, m: &mut Markup, at: f64, to: f64, label: &str) {
        let (x, room) = (self.x(at), self.x(to) - self.x(at));
        line(m, "mark", (x, TOP - 14.0), (x, self.height - BOTTOM));
        // A letter of the labels' size is about 7 units wide.
        if room > 7.0 * label.chars().count() as f64 {
            write_label(m, "", "start", (x + 4.0, TOP - 6.0), label);
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = self.height - BOTTOM;
        bottom - self.y.place(value) * (bottom - TOP)
    }
}

/// An SVG element of the usual width, with its title and description.
pub(super) fn svg(m: &mut Markup, words: &PlotText<'_>, height: f64, fill: impl FnOnce(&mut Markup)) {
    let view_box = format!("0 0 {WIDTH} {}", coordinate(height));
    let (title, desc) = (format!("{}-title", words.id), format!("{}-desc", words.id));
    let labelled = format!("{title} {desc}");
    let attributes = [
        ("xmlns", "http://www.w3.org/2000/svg"),
        ("viewBox", view_box.as_str()),
        ("role", "img"),
        ("aria-labelledby", labelled.as_str()),
    ];
    m.element("svg", &attributes, |m| {
        m.text_element_with("title", &[("id", &title)], words.title);
        m.text_element_with("desc", &[("id", &desc)], words.desc);
        fill(m);
    });
}

/// The key of a plot's curves, set above it so that it hides none of them: `(class, label)`.
pub(super) fn key(m: &mut Markup, entries: &[(&str, String)]) {
    m.element("p", &[("class", "key")], |m| {
        for (class, label) in entries {
            m.element("span", &[], |m| {
                let square = [("viewBox", "0 0 10 10"), ("aria-hidden", "true")];
                let class = format!("key-{class}");
                let rect = [("class", class.as_str()), ("width", "10"), ("height", "10")];
                m.element("svg", &square, |m| m.empty("rect", &rect));
                m.text(label);
            });
        }
    });
}

/// What a plot says to those who cannot see it.
pub(super) struct PlotText<'a> {
    /// Unique in the document.
    pub(super) id: &'a str,
    /// What it shows.
    pub(super) title: &'a str,
    /// What can be read from it.
    pub(super) desc: &'a str,
}

/// First, smallest, largest and last point of each pixel column, in their order.
fn reduce_points(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    type IndexedPoint = (usize, (f64, f64));
    let flush = |kept: &mut [IndexedPoint; 4], out: &mut Vec<(f64, f64)>| {
        kept.sort_by_key(|(index, _)| *index);
        let mut before = None;
        for (index, point) in kept.iter() {
            if before.replace(*index) != Some(*index) {
                out.push(*point);
            }
        }
    };
    let mut out = vec![];
    let mut column: Option<[IndexedPoint; 4]> = None;
    for numbered in points.enumerate() {
        let (_, (x, y)) = numbered;
        match &mut column {
            Some(kept) if kept[0].1.0.floor() == x.floor() => {
                if y < kept[1].1.1 {
                    kept[1] = numbered;
                }
                if y > kept[2].1.1 {
                    kept[2] = numbered;
                }
                kept[3] = numbered;
            }
            _ => {
                column.iter_mut().for_each(|kept| flush(kept, &mut out));
                column = Some([numbered; 4]);
            }
        }
    }
    column.iter_mut().for_each(|kept| flush(kept, &mut out));
    out
}

/// A straight line.
pub(super) fn line(m: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
    m.empty("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
}

/// A label at a place.
pub(super) fn write_label(m: &mut Markup, class: &str, anchor: &str, at: (f64, f64), label: &str) {
    let (x, y) = (coordinate(at.0), coordinate(at.1));
    m.text_element_with("text", &[("class", class), ("text-anchor", anchor), ("x", &x), ("y", &y)], label);
}

/// A coordinate with one decimal; never `-0` and never anything that is not a number.
pub(super) fn coordinate(value: f64) -> String {
    let rounded = if value.is_finite() { (value * 10.0).round() / 10.0 + 0.0 } else { 0.0 };
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> String {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn ticks_are_on_round_numbers() {
        assert_eq!(
            labels(&Axis::zero_based(2190.0, crate::human::rate)),
            "0/s | 1,000/s | 2,000/s | 3,000/s"
        );
        assert_eq!(labels(&Axis::zero_based(1.0, crate::human::percent)), "0% | 25% | 50% | 75% | 100%");
        assert_eq!(labels(&Axis::zero_based(0.0, crate::human::number)), "0 | 0.25 | 0.5 | 0.75 | 1");
        assert_eq!(
            labels(&Axis::seconds(43.0)),
            "0 s | 5 s | 10 s | 15 s | 20 s | 25 s | 30 s | 35 s | 40 s"
        );
        assert_eq!(labels(&Axis::log_us(3_000.0, 45_000.0)), "2 ms | 5 ms | 10 ms | 20 ms | 50 ms");
        assert_eq!(labels(&Axis::log_us(0.0, 45_000.0)), "1 µs | 10 µs | 100 µs | 1 ms | 10 ms | 100 ms");
    }

    /// Also what `any::<f64>()` leaves out.
    fn any_number() -> impl Strategy<Value = f64> {
        prop_oneof![6 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(f64::NEG_INFINITY)]
    }

    proptest! {
        // Invariant: every axis holds its values, has ticks that rise and few of them, for any numbers at all.
        #[test]
        fn axes_hold_any_numbers(a in any_number(), b in 0f64..4e9) {
            for axis in [Axis::zero_based(a, crate::human::number), Axis::seconds(a), Axis::log_us(a, b), Axis::log_us(b, a), Axis::log_us(b, b)] {
                prop_assert!(axis.from < axis.to && axis.to.is_finite());
                prop_assert!((1..=34).contains(&axis.ticks.len()), "{}", axis.ticks.len());
                prop_assert!(axis.ticks.windows(2).all(|pair| pair[0].0 < pair[1].0));
                prop_assert!((0.0..=1.0).contains(&axis.place(a)));
            }
        }

        // Invariant: thinning keeps the peak and the trough, and no more than four points a pixel column.
        #[test]
        fn thinning_keeps_extremes(values in prop::collection::vec(0f64..100.0, 1..500)) {
            let points: Vec<_> = values.iter().enumerate().map(|(i, &y)| (i as f64 / 50.0, y)).collect();
            let thinned = reduce_points(points.iter().copied());
            let extreme = |points: &[(f64, f64)], pick: fn(f64, f64) -> f64, from: f64| points.iter().map(|p| p.1).fold(from, pick);
            prop_assert_eq!(extreme(&points, f64::max, 0.0), extreme(&thinned, f64::max, 0.0));
            prop_assert_eq!(extreme(&points, f64::min, 100.0), extreme(&thinned, f64::min, 100.0));
            prop_assert!(thinned.len() <= 4 * (values.len() / 50 + 1));
            prop_assert_eq!(thinned.last(), points.last());
        }
    }
}
