//! What the whole machine may have: open files, inodes, processes and threads, against their limits.
//!
//! Facts: Documentation/admin-guide/sysctl/fs.rst (file-nr, file-max, nr_open, inode-nr) and sysctl/kernel.rst
//! (threads-max, pid_max), proc_loadavg(5): the fourth word tells how many threads there are. Each thread takes a number
//! below pid_max. In a container the numbers of files are the machine's, and those of threads the container's own.

use crate::collectors::{Collector, Metric, Reading, Target, gauge};

const FILE_NR: &str = "/proc/sys/fs/file-nr";
const INODE_NR: &str = "/proc/sys/fs/inode-nr";
const LOADAVG: &str = "/proc/loadavg";

/// Metrics that are the only number of a file.
const LIMITS: [(&str, &str); 3] = [
    ("files.per_process_max_count", "/proc/sys/fs/nr_open"),
    ("files.threads_max_count", "/proc/sys/kernel/threads-max"),
    ("files.pid_max_count", "/proc/sys/kernel/pid_max"),
];

/// The word of a text as a number.
fn word(text: &str, index: usize) -> Option<u64> {
    text.split_ascii_whitespace().nth(index)?.parse().ok()
}

/// How many threads there are: `0.20 0.18 0.12 1/80 11206`.
fn parse_threads(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The collector.
#[derive(Debug, Default)]
pub struct Files;

impl Collector for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![
            gauge("files.open_count", FILE_NR, format!("awk '{{print $1}}' {FILE_NR}")),
            gauge("files.max_count", FILE_NR, format!("awk '{{print $3}}' {FILE_NR}")),
            gauge("files.inodes_count", INODE_NR, format!("awk '{{print $1}}' {INODE_NR}")),
            gauge(
                "files.threads_count",
                LOADAVG,
                format!("awk '{{sub(/.*\\//, \"\", $4); print $4}}' {LOADAVG}"),
            ),
        ];
        metrics.extend(LIMITS.map(|(name, file)| gauge(name, file, format!("cat {file}"))));
        metrics
    }

    fn read(&mut self, _: &Target) -> Reading {
        let mut reading = Reading::default();
        let number = |value: Option<u64>| value.map(|value| value as f64);
        reading.take(FILE_NR, |text, reading| {
            reading.push_some("files.open_count", number(word(text, 0)));
            reading.push_some("files.max_count", number(word(text, 2)));
        });
        reading.take(INODE_NR, |text, reading| {
            reading.push_some("files.inodes_count", number(word(text, 0)));
        });
        reading.take(LOADAVG, |text, reading| {
            reading.push_some("files.threads_count", number(parse_threads(text)));
        });
        for (name, file) in LIMITS {
            reading.take(file, |text, reading| reading.push_some(name, number(word(text, 0))));
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_parse() {
        for (text, index, expected) in [
            ("592\t0\t2466183\n", 0, Some(592)),
            ("592\t0\t9223372036854775807\n", 2, Some(9_223_372_036_854_775_807)),
            ("592", 2, None),
            ("x", 0, None),
        ] {
            assert_eq!(word(text, index), expected, "{text}");
        }
        for (text, expected) in
            [("0.30 0.43 0.67 1/95 22847\n", Some(95)), ("0.30 0.43 0.67 1", None), ("", None)]
        {
            assert_eq!(parse_threads(text), expected, "{text}");
        }
    }

    #[test]
    fn this_machine_is_within_its_limits() {
        let reading = Files.read(&Target::default());
        for (name, limit) in [("open_count", "max_count"), ("threads_count", "threads_max_count")] {
            let value = |name: &str| reading.value(&format!("files.{name}")).unwrap();
            assert!(value(name) > 0.0 && value(name) <= value(limit), "{name}: {reading:?}");
        }
    }

    proptest! {
        // Any text is survived.
        #[test]
        fn any_text_is_survived(text in ".{0,60}|[0-9 /.]{0,40}", index in 0usize..4) {
            word(&text, index);
            parse_threads(&text);
        }
    }
}
