//! What sections of a page are made of: sentences, lists, tables, code, bars and plots, as data.

use super::with_unicode_arrows;
use serde::Serialize;
use webdyno_model::number::{Number, significant};

/// A section with its title.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Section {
    /// What links lead to.
    id: &'static str,
    title: String,
    blocks: Vec<Block>,
}

impl Section {
    /// What is written in it; `None` where that is nothing.
    pub(super) fn of(id: &'static str, title: &str, write: &dyn Fn(&mut Blocks)) -> Option<Self> {
        let mut blocks = Blocks::default();
        write(&mut blocks);
        (!blocks.0.is_empty()).then(|| Self { id, title: title.into(), blocks: blocks.0 })
    }
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Block {
    Text { text: String, style: TextStyle },
    List { items: Vec<String> },
    Table { label: String, columns: Vec<Column>, rows: Vec<Vec<String>> },
    Code { text: String, label: String, is_diff: bool },
    Fold { title: String, is_open: bool, blocks: Vec<Block> },
    Bars { label: String, groups: Vec<BarGroup> },
    Plots { plots: Vec<TimePlot> },
    HeatMap { heat_map: HeatMapData },
    Percentiles { id: &'static str, title: String, percentiles: Vec<Number>, lines: Vec<PercentileLine> },
    Curve { plot: Box<CurvePlot> },
    Waterfall { title: String, time_us: u64, parts: Vec<Part> },
    Flame { label: String, frames: Vec<FlameFrame> },
}

/// How a sentence is set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TextStyle {
    Plain,
    Quiet,
    Strong,
    Heading,
}

/// How a column of a table is set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Align {
    Words,
    /// Set right.
    Number,
    /// Paths, names of settings.
    Code,
    /// With a button that copies it.
    Command,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Column {
    title: String,
    align: Align,
}

/// Bars on one scale.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BarGroup {
    pub(super) title: String,
    /// The end of the scale; `None`: the longest of them.
    pub(super) most: Option<Number>,
    pub(super) rows: Vec<Bar>,
}

/// A bar with what it says in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bar {
    pub(super) label: String,
    /// `None` is unknown.
    pub(super) value: Option<Number>,
    /// 95%.
    pub(super) interval: Option<[Number; 2]>,
    pub(super) text: String,
    pub(super) tone: BarTone,
}

/// The colour of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BarTone {
    Before,
    After,
    Plain,
    Bad,
}

/// A part of a page over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) name: String,
    /// Its end and size, in words.
    pub(super) text: String,
    /// All that is known of it.
    pub(super) hint: String,
    pub(super) tone: PartTone,
    /// Known, sent, first byte, ended, since the page was due.
    pub(super) at_us: [u64; 4],
}

/// A frame of a flame graph: its row from the top, and where it begins and ends, as shares of the width.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FlameFrame {
    pub(super) row: usize,
    pub(super) from: Number,
    pub(super) to: Number,
    pub(super) name: String,
    /// All that is known of it.
    pub(super) hint: String,
}

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PartTone {
    Plain,
    Failed,
    /// Several, summed up.
    Rest,
}

/// A plot over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TimePlot {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) note: String,
    pub(super) unit: String,
    /// Whether a line goes on where a moment has no value of it: readings of several sources have moments of their own.
    pub(super) is_joined: bool,
    pub(super) t_s: Vec<Option<Number>>,
    pub(super) lines: Vec<Line>,
}

/// A line, a value for each moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Line {
    /// What live readings are named by.
    pub(super) key: String,
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) values: Vec<Option<Number>>,
}

/// A figure over a setting or a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CurvePlot {
    pub(super) id: &'static str,
    pub(super) title: String,
    pub(super) note: String,
    /// What is varied, and its unit: `bytes`, or none.
    pub(super) axis: String,
    pub(super) axis_unit: &'static str,
    pub(super) unit: &'static str,
    /// What was measured, in order.
    pub(super) points: Vec<CurvePoint>,
    /// The law with its band.
    pub(super) line: Vec<CurvePoint>,
    pub(super) span: Option<[Number; 2]>,
    pub(super) mark: Option<(Number, &'static str)>,
    /// That an objective sets to the figure.
    pub(super) bound: Option<Number>,
}

/// A point of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CurvePoint {
    pub(super) at: Number,
    pub(super) value: Number,
    pub(super) ci95: Option<[Number; 2]>,
}

/// Requests by moment and latency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HeatMapData {
    pub(super) from_s: f64,
    pub(super) step_s: f64,
    pub(super) edges_us: Vec<u64>,
    pub(super) counts: Vec<Vec<u64>>,
}

/// Latency by percentile, of one load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PercentileLine {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) values: Vec<Option<u64>>,
}

/// Parts of a section as they are written.
#[derive(Default)]
pub(super) struct Blocks(Vec<Block>);

impl Blocks {
    /// A sentence of our own.
    pub(super) fn text(&mut self, text: &str) {
        self.styled(text, TextStyle::Plain);
    }

    /// What need not be read.
    pub(super) fn quiet(&mut self, text: &str) {
        self.styled(text, TextStyle::Quiet);
    }

    /// What must be.
    pub(super) fn strong(&mut self, text: &str) {
        self.styled(text, TextStyle::Strong);
    }

    /// Above a part of a section.
    pub(super) fn heading(&mut self, text: &str) {
        self.styled(text, TextStyle::Heading);
    }

    fn styled(&mut self, text: &str, style: TextStyle) {
        self.0.push(Block::Text { text: with_unicode_arrows(text), style });
    }

    /// Sentences below each other; nothing without any.
    pub(super) fn list(&mut self, items: &[String]) {
        if !items.is_empty() {
            self.0.push(Block::List { items: items.iter().map(|item| with_unicode_arrows(item)).collect() });
        }
    }

    /// A table; nothing without rows.
    pub(super) fn table(&mut self, label: &str, columns: &[(&str, Align)], rows: Vec<Vec<String>>) {
        if rows.is_empty() {
            return;
        }
        let columns = columns.iter().map(|(title, align)| Column { title: (*title).into(), align: *align });
        self.0.push(Block::Table { label: label.into(), columns: columns.collect(), rows });
    }

    /// Lines as they are, to be copied.
    pub(super) fn code(&mut self, label: &str, text: &str) {
        self.0.push(Block::Code { text: text.into(), label: label.into(), is_diff: false });
    }

    /// Lines of a diff.
    pub(super) fn diff(&mut self, label: &str, text: &str) {
        self.0.push(Block::Code { text: text.into(), label: label.into(), is_diff: true });
    }

    /// What is shown when it is opened; nothing where nothing is in it.
    pub(super) fn fold(&mut self, title: &str, is_open: bool, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        if !inner.0.is_empty() {
            self.0.push(Block::Fold { title: title.into(), is_open, blocks: inner.0 });
        }
    }

    /// Bars; nothing without any.
    pub(super) fn bars(&mut self, label: &str, groups: Vec<BarGroup>) {
        if groups.iter().any(|group| !group.rows.is_empty()) {
            self.0.push(Block::Bars { label: label.into(), groups });
        }
    }

    /// Anything else.
    pub(super) fn add(&mut self, block: Block) {
        self.0.push(block);
    }
}

/// A figure with as many digits as a picture shows; `None` for one that is not known or none at all.
pub(super) fn figure(value: Option<f64>) -> Option<Number> {
    // What is smaller means nothing, and would overflow the rounding.
    let rounded = |value: f64| if value.abs() < 1e-9 { 0.0 } else { significant(value, 4) };
    value.map(rounded).filter(|value| value.is_finite()).map(Number)
}

/// An interval, where both of its ends are known.
pub(super) fn interval(bounds: Option<[f64; 2]>) -> Option<[Number; 2]> {
    let [low, high] = bounds?.map(|bound| figure(Some(bound)));
    Some([low?, high?])
}
