//! Where the processors' time goes: bars by what it is for, and a flame graph by program, shared object and function.
//!
//! The layout is B. Gregg's (<https://queue.acm.org/detail.cfm?id=2927301>): the width of a frame is its share of the samples,
//! its order that of names. Crates that draw one make a document with a script of its own, which a page that shows strings of a
//! recording as text alone cannot take in.

use super::blocks::{Bar, BarGroup, BarTone, Block, Blocks, FlameFrame, figure, interval};
use std::collections::BTreeMap;
use webdyno_analysis::facts::processor_time::word;
use webdyno_model::number::Number;
use webdyno_model::number::human::{count, percent_coarse};
use webdyno_model::processor_time::{ProcessorTime, ProcessorTimePart};

/// A narrower frame is no more than a line.
const WIDTH_MIN: f64 = 0.002;

/// What is below a frame.
#[derive(Debug, Default)]
struct Node<'a> {
    samples_count: u64,
    inner: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Node<'a> {
    fn add(&mut self, mut frames: impl Iterator<Item = &'a str>, samples_count: u64) {
        self.samples_count += samples_count;
        if let Some(frame) = frames.next() {
            self.inner.entry(frame).or_default().add(frames, samples_count);
        }
    }

    /// Adds the frames of this row and those below it.
    fn lay_out(&self, row: usize, mut from: f64, all: f64, frames: &mut Vec<FlameFrame>) {
        for (name, node) in &self.inner {
            let share = node.samples_count as f64 / all;
            if share >= WIDTH_MIN {
                let hint =
                    format!("{name}: {}, {} samples", percent_coarse(share), count(node.samples_count));
                let at = |place: f64| figure(Some(place)).unwrap_or(Number(0.0));
                frames.push(FlameFrame {
                    row,
                    from: at(from),
                    to: at(from + share),
                    name: (*name).into(),
                    hint,
                });
                node.lay_out(row + 1, from, all, frames);
            }
            from += share;
        }
    }
}

fn frames(time: &ProcessorTime) -> Vec<FlameFrame> {
    let mut root = Node::default();
    for stack in &time.stacks {
        root.add(stack.frames.split(';'), stack.samples_count);
    }
    let mut frames = vec![];
    root.lay_out(0, 0.0, root.samples_count.max(1) as f64, &mut frames);
    frames
}

/// The bars and the graph.
pub(super) fn processor_time(b: &mut Blocks, time: &ProcessorTime) {
    let bar = |part: &ProcessorTimePart| Bar {
        label: word(part.work).into(),
        value: figure(Some(part.fraction)),
        interval: interval(Some(part.ci95)),
        text: format!("{}, mostly {}", percent_coarse(part.fraction), part.mostly),
        tone: BarTone::Plain,
    };
    let without = if time.with_kernel { "" } else { ", without what the kernel does for it" };
    let title = format!(
        "CPU time of the service and what is behind it{without}: {} samples",
        count(time.samples_count)
    );
    let rows = time.parts.iter().map(bar).collect();
    b.bars("Where the CPU time goes", vec![BarGroup { title, most: figure(Some(1.0)), rows }]);
    b.fold("Flame graph: by program, object and function", false, |b| {
        b.add(Block::Flame {
            label: "CPU time by program, object and function".into(),
            frames: frames(time),
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::processor_time::StackSamples;

    // A frame is as wide as all below it, and what is alike at its beginning stands together.
    #[test]
    fn frames_are_as_wide_as_their_share() {
        let stack =
            |(frames, samples_count): (&str, u64)| StackSamples { frames: frames.into(), samples_count };
        let stacks = [("a;x;f", 500), ("a-b;x", 200), ("a;x", 100), ("a;y", 199), ("z", 1)].map(stack);
        let time = ProcessorTime { stacks: stacks.into(), ..ProcessorTime::default() };
        let drawn: Vec<_> =
            frames(&time).into_iter().map(|one| (one.row, one.name, one.from.0, one.to.0)).collect();
        let expected = [
            (0, "a", 0.0, 0.799),
            (1, "x", 0.0, 0.6),
            (2, "f", 0.0, 0.5),
            (1, "y", 0.6, 0.799),
            (0, "a-b", 0.799, 0.999),
            (1, "x", 0.799, 0.999),
        ];
        assert_eq!(drawn, expected.map(|(row, name, from, to)| (row, name.to_owned(), from, to)));
    }
}
