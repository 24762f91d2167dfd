//! Pressure stall information: how long something waited for a processor, for memory, for a disk.
//!
//! Facts: Documentation/accounting/psi.rst. `total` is microseconds since boot; `some` counts time in which at least
//! one task waited, `full` time in which all did. A `full` line for the processor means nothing for the machine and
//! is not read. Groups have the same files in version 2 (cgroup-v2.rst: cpu.pressure, memory.pressure, io.pressure).
//! Kernels before 4.20, and those started with psi=0, have none.

use super::{Collector, Metric, Reading, Target, control_group, counter, told};
use crate::procfs;
use std::io;
use std::path::Path;

/// Resource, kind of line.
const LINES: [(&str, &str); 5] =
    [("cpu", "some"), ("memory", "some"), ("memory", "full"), ("io", "some"), ("io", "full")];

const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

/// The total of one kind of line (`some`, `full`) in microseconds.
pub fn parse_total_us(text: &str, kind: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    let mut totals = lines.filter_map(|rest| rest.split(' ').find_map(|word| word.strip_prefix("total=")));
    totals.next()?.trim().parse().ok()
}

/// Adds the totals of one resource under `prefix`.
fn values(prefix: &str, resource: &str, text: &str, reading: &mut Reading) {
    for (_, kind) in LINES.iter().filter(|(of, _)| *of == resource) {
        let total = parse_total_us(text, kind).map(|total| total as f64);
        reading.push_some(format!("pressure.{prefix}{resource}_{kind}_us"), total);
    }
}

/// The collector.
#[derive(Debug)]
pub struct Pressure;

impl Pressure {
    /// The service's own group, where it has one in version 2 with these files.
    fn read_group(pid: u32, reading: &mut Reading) {
        let group = control_group::of(pid).ok().and_then(|groups| groups.unified);
        let Some(group) = group.filter(|group| !group.is_root()) else {
            return;
        };
        for resource in RESOURCES {
            // A group without the file is no fault: the machine's figures are there.
            let text = procfs::read_text(group.directory.join(format!("{resource}.pressure")));
            values("group_", resource, &text.unwrap_or_default(), reading);
        }
    }
}

impl Collector for Pressure {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn metrics(&self) -> Vec<Metric> {
        let total =
            |kind: &str, file: &str| format!("awk '$1==\"{kind}\" {{sub(/.*total=/, \"\"); print}}' {file}");
        let machine = |(resource, kind): &(&str, &str)| {
            let file = format!("/proc/pressure/{resource}");
            counter(format!("pressure.{resource}_{kind}_us"), &file, total(kind, &file))
        };
        let group = |(resource, kind): &(&str, &str)| {
            let file = format!("/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/PID/cgroup)/{resource}.pressure");
            let source = format!("{resource}.pressure of the service's control group");
            counter(format!("pressure.group_{resource}_{kind}_us"), &source, total(kind, &file))
        };
        LINES.iter().map(machine).chain(LINES.iter().map(group)).collect()
    }

    fn read(&mut self, target: &Target) -> Reading {
        if !Path::new("/proc/pressure").exists() {
            return Reading::failed("this kernel tells no pressure (CONFIG_PSI, or started with psi=0)");
        }
        let mut reading = Reading::default();
        for resource in RESOURCES {
            let path = format!("/proc/pressure/{resource}");
            match procfs::read_text(&path) {
                Ok(text) => values("", resource, &text, &mut reading),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    reading.problem(format!("cannot read {path}: switched off, start the kernel with psi=1"));
                }
                Err(error) => reading.problem(told("read", &path, &error)),
            }
        }
        if let Some(pid) = target.service_pid {
            Self::read_group(pid, &mut reading);
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IO: &str = "\
some avg10=0.00 avg60=0.40 avg300=0.45 total=6327280
full avg10=0.00 avg60=0.39 avg300=0.43 total=6162113
";

    #[test]
    fn totals_parse() {
        for (text, kind, expected) in [
            (IO, "some", Some(6_327_280)),
            (IO, "full", Some(6_162_113)),
            ("some avg10=0.00 total=1\n", "full", None),
            ("some avg10=0.00 tot", "some", None),
            ("", "some", None),
        ] {
            assert_eq!(parse_total_us(text, kind), expected, "{text}");
        }
    }

    #[test]
    fn the_processor_has_no_full_line() {
        let mut reading = Reading::default();
        values("", "cpu", IO, &mut reading);
        values("group_", "io", IO, &mut reading);
        let names: Vec<_> = reading.values.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["pressure.cpu_some_us", "pressure.group_io_some_us", "pressure.group_io_full_us"]);
    }

    proptest! {
        // A torn or strange file gives no value or the one it says, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..IO.len(), noise in ".{0,40}") {
            parse_total_us(&format!("{}{noise}", &IO[..cut]), "full");
        }
    }
}
