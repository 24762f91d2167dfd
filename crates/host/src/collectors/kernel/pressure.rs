//! Pressure stall information: how long something waited for a processor, for memory, for a disk.
//!
//! Facts: Documentation/accounting/psi.rst. `total` is microseconds since boot; `some` counts time in which at least
//! one task waited, `full` time in which all did. A `full` line for the processor means nothing for the machine and
//! is not read; for a group it is time in which all of it waited, for other groups or for its quota. Groups have the same files in version 2 (cgroup-v2.rst: cpu.pressure, memory.pressure, io.pressure).
//! Kernels before 4.20, and those started with psi=0, have none.

use crate::collectors::{Collector, Metric, Reading, Target, counter, io_error_text};
use crate::os::control_group::Finder;
use crate::os::procfs;
use std::io;
use std::path::Path;

const SWITCHED_OFF: &str = "start the kernel with psi=1 on its command line (CONFIG_PSI)";

/// Resource, kind of line. The machine's are without the first one.
const LINES: [(&str, &str); 6] = [
    ("cpu", "full"),
    ("cpu", "some"),
    ("memory", "some"),
    ("memory", "full"),
    ("io", "some"),
    ("io", "full"),
];

const MACHINE_LINES: &[(&str, &str)] = LINES.split_at(1).1;

const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

/// The total of one kind of line (`some`, `full`) in microseconds.
pub fn parse_total_us(text: &str, kind: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    let mut totals = lines.filter_map(|rest| rest.split(' ').find_map(|word| word.strip_prefix("total=")));
    totals.next()?.trim().parse().ok()
}

/// Adds the totals of those lines that are of one resource, under `prefix`.
fn values(prefix: &str, lines: &[(&str, &str)], resource: &str, text: &str, reading: &mut Reading) {
    for (_, kind) in lines.iter().filter(|(of, _)| *of == resource) {
        let total = parse_total_us(text, kind).map(|total| total as f64);
        reading.push_some(format!("pressure.{prefix}{resource}_{kind}_us"), total);
    }
}

/// The collector.
#[derive(Debug, Default)]
pub struct Pressure {
    finder: Finder,
}

impl Pressure {
    /// The service's own group, where it has one in version 2 with these files.
    fn read_group(&mut self, pid: u32, reading: &mut Reading) {
        let run = "run it as a systemd unit or in a container on a system with control groups of version 2";
        // A process that ended is told by the collector of processes.
        let Ok(groups) = self.finder.of(pid) else { return };
        let Some(group) = groups.unified.as_ref().filter(|group| !group.is_machine()) else {
            reading.lacks("pressure.group", "the service has no control group of its own in version 2", run);
            return;
        };
        for resource in RESOURCES {
            // Files of a group cannot be opened (EOPNOTSUPP) or are not there when it is switched off for the group.
            match procfs::read_text(group.directory.join(format!("{resource}.pressure"))) {
                Ok(text) => values("group_", &LINES, resource, &text, reading),
                Err(_) => reading.lacks(
                    format!("pressure.group_{resource}"),
                    format!("the service's control group has no {resource}.pressure"),
                    "start the kernel with psi=1, and write 1 to cgroup.pressure of the group",
                ),
            }
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
        // The place of version 2 beside hierarchies of version 1 differs.
        let mount = "$(awk '$3==\"cgroup2\" {print $2; exit}' /proc/mounts)";
        let group = |(resource, kind): &(&str, &str)| {
            let file = format!("{mount}$(sed -n 's/^0:://p' /proc/PID/cgroup)/{resource}.pressure");
            let source = format!("{resource}.pressure of the service's control group");
            counter(format!("pressure.group_{resource}_{kind}_us"), &source, total(kind, &file))
        };
        MACHINE_LINES.iter().map(machine).chain(LINES.iter().map(group)).collect()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        if !Path::new("/proc/pressure").exists() {
            reading.lacks("pressure", "this kernel tells no pressure", SWITCHED_OFF);
            return reading;
        }
        for resource in RESOURCES {
            let path = format!("/proc/pressure/{resource}");
            match procfs::read_text(&path) {
                Ok(text) => values("", MACHINE_LINES, resource, &text, &mut reading),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    reading.lacks(format!("pressure.{resource}"), "it is switched off", SWITCHED_OFF);
                }
                Err(error) => reading.problem(io_error_text("read", &path, &error)),
            }
        }
        if let Some(pid) = target.service_pid {
            self.read_group(pid, &mut reading);
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
    fn the_processor_has_a_full_line_in_groups_only() {
        let mut reading = Reading::default();
        values("", MACHINE_LINES, "cpu", IO, &mut reading);
        values("group_", &LINES, "cpu", IO, &mut reading);
        values("group_", &LINES, "io", IO, &mut reading);
        let names: Vec<_> = reading.values.iter().map(|(name, _)| name.as_str()).collect();
        let group =
            ["cpu_full", "cpu_some", "io_some", "io_full"].map(|it| format!("pressure.group_{it}_us"));
        assert_eq!(names[0], "pressure.cpu_some_us");
        assert_eq!(names[1..], group);
    }

    proptest! {
        // A torn or strange file gives no value or the one it says, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..IO.len(), noise in ".{0,40}") {
            parse_total_us(&format!("{}{noise}", &IO[..cut]), "full");
        }
    }
}
