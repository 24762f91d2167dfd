//! What the cores did with received packets: taken, dropped because the queue of a core was full, and left for later
//! because its turn was over.
//!
//! Facts: `/proc/net/softnet_stat` is net/core/net-procfs.c: one line per core that is on, hexadecimal columns: processed,
//! dropped (`netdev_max_backlog`), squeezed (`netdev_budget`), .., the core's number in the 13th since Linux 5.10.
//! Documentation/networking/scaling.rst.

use crate::collectors::on_change::{Changes, on_change};
use crate::collectors::{Collector, Metric, Reading, Target, counter};

const PATH: &str = "/proc/net/softnet_stat";

/// Cores that are told one by one.
const CORES_MAX: usize = 128;

/// Metric, of one core and of all, and its column.
const COLUMNS: [(&str, usize); 3] = [("processed", 0), ("dropped", 1), ("squeezed", 2)];

/// The column with the number of the core.
const CORE: usize = 12;

/// A line: the core's number and the columns.
fn parse_line(row: usize, line: &str) -> Option<(u64, [u64; 3])> {
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let columns: Vec<u64> = line.split_ascii_whitespace().map_while(hexadecimal).collect();
    let numbers = COLUMNS.map(|(_, column)| columns.get(column).copied());
    let [Some(processed), Some(dropped), Some(squeezed)] = numbers else {
        return None;
    };
    let core = columns.get(CORE).copied().or_else(|| u64::try_from(row).ok())?;
    Some((core, [processed, dropped, squeezed]))
}

fn parse(text: &str, reading: &mut Reading) {
    let lines = text.lines().enumerate().filter_map(|(row, line)| parse_line(row, line));
    let cores: std::collections::BTreeMap<u64, [u64; 3]> = lines.collect();
    if cores.is_empty() {
        return reading.problem(format!("{PATH} is not in a known format"));
    }
    for (index, (what, _)) in COLUMNS.into_iter().enumerate() {
        let sum: u64 = cores.values().map(|numbers| numbers[index]).sum();
        reading.push(format!("softnet.{what}_count"), sum as f64);
        // What a core processed always moves, and its share of time is told by its soft interrupts.
        if what != "processed" {
            for (core, numbers) in cores.iter().take(CORES_MAX) {
                reading.push(format!("softnet.{core}.{what}_count"), numbers[index] as f64);
            }
        }
    }
    if cores.len() > CORES_MAX {
        let why = format!("there are {}, of which the first {CORES_MAX} are told one by one", cores.len());
        reading.lacks("softnet.*", why, format!("cat {PATH}"));
    }
}

/// The collector.
#[derive(Debug, Default)]
pub struct Softnet {
    changes: Changes,
}

impl Collector for Softnet {
    fn name(&self) -> &'static str {
        "softnet"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![];
        for (what, column) in COLUMNS {
            // Shells read 0x numbers; not every awk does.
            let sum = format!(
                "s=0; while read -r {}n rest; do s=$((s + 0x$n)); done < {PATH}; echo $s",
                "x ".repeat(column)
            );
            metrics.push(counter(format!("softnet.{what}_count"), PATH, sum));
            if what != "processed" {
                let column = column + 1;
                let own =
                    format!("echo $((0x$(sed -n \"$((INSTANCE + 1))p\" {PATH} | cut -d' ' -f{column})))");
                metrics.push(on_change(counter(format!("softnet.*.{what}_count"), PATH, own)));
            }
        }
        metrics
    }

    fn read(&mut self, _: &Target) -> Reading {
        let mut reading = Reading::default();
        reading.take(PATH, parse);
        // Names of single cores have two dots.
        self.changes.only(reading, |name| name.matches('.').count() > 1)
    }

    fn mark_undelivered(&mut self) {
        self.changes = Changes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.18, shortened; its second core is off.
    const NEW: &str = "\
12677f6e 0000008e 00000006 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
1154349a 00000001 00000010 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000002 00000000 00000000
";
    /// Linux 3.10 has no number of the core.
    const OLD: &str = "0000000a 00000001 00000002 0 0 0 0 0 0 0\n0000000b 00000003 00000004 0 0 0 0 0 0 0\n";

    #[test]
    fn cores_and_sums_are_read() {
        for (text, name, expected) in [
            (NEW, "softnet.dropped_count", Some(143.0)),
            (NEW, "softnet.squeezed_count", Some(22.0)),
            (NEW, "softnet.2.squeezed_count", Some(16.0)),
            (NEW, "softnet.1.squeezed_count", None),
            (OLD, "softnet.processed_count", Some(21.0)),
            (OLD, "softnet.1.dropped_count", Some(3.0)),
            ("nonsense", "softnet.dropped_count", None),
        ] {
            let mut reading = Reading::default();
            parse(text, &mut reading);
            assert_eq!(reading.value(name), expected, "{name}");
            assert_eq!(reading.error.is_some(), text == "nonsense");
        }
    }

    #[test]
    fn single_cores_are_told_again_only_when_they_moved() {
        let mut softnet = Softnet::default();
        let first = softnet.read(&Target::default());
        assert!(first.value("softnet.0.dropped_count").is_some(), "{first:?}");
        assert!(softnet.read(&Target::default()).value("softnet.processed_count").is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(cut in 0..NEW.len(), noise in "[0-9a-fx é\n]{0,60}") {
            let mut reading = Reading::default();
            parse(&format!("{}{noise}", &NEW[..cut]), &mut reading);
        }
    }
}
