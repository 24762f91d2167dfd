//! The table of tracked connections: how full it is, and what it could not take; of our network namespace, and of the
//! service's where that is another one.
//!
//! Facts: Documentation/networking/nf_conntrack-sysctl.rst; net/netfilter/nf_conntrack_standalone.c for
//! `/proc/net/stat/nf_conntrack`: a line of names, then one line of hexadecimal numbers per core, `entries` being that of
//! the whole table in each. Every namespace has a table and counts of its own; the limit is set in the first one and
//! holds in all: `__nf_conntrack_alloc` compares each namespace's count with it. Files are there once the module is.

use crate::collectors::network::{Place, Whereabouts};
use crate::collectors::on_change::{Changes, on_change};
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge, io_error_text};
use crate::os::procfs;
use std::io;

/// Metric and file below `/proc/sys/net/netfilter`.
const TABLE: [(&str, &str); 4] = [
    ("entries_count", "nf_conntrack_count"),
    ("max_count", "nf_conntrack_max"),
    ("buckets_count", "nf_conntrack_buckets"),
    (CLOSED_LIFE, "nf_conntrack_tcp_timeout_time_wait"),
];

/// How long the entry of a connection that was closed is kept. Some kernels and containers do not show it.
const CLOSED_LIFE: &str = "closed_life_s";

/// The columns of `/proc/net/stat/nf_conntrack` that are totals and still kept.
const STATISTICS: [&str; 9] = [
    "clashres",
    "found",
    "invalid",
    "insert",
    "insert_failed",
    "drop",
    "early_drop",
    "icmp_error",
    "search_restart",
];

/// The totals of all cores.
fn parse(text: &str) -> Vec<(&'static str, u64)> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    let cores: Vec<Vec<&str>> = lines.map(|line| line.split_ascii_whitespace().collect()).collect();
    let total = |name: &'static str| {
        let column = names.iter().position(|known| *known == name)?;
        let numbers = cores.iter().map(|core| u64::from_str_radix(core.get(column)?, 16).ok());
        let sum = numbers.sum::<Option<u64>>().filter(|_| !cores.is_empty())?;
        Some((name, sum))
    };
    STATISTICS.into_iter().filter_map(total).collect()
}

/// The numbers of the table that this thread sees.
fn table() -> io::Result<Vec<(&'static str, u64)>> {
    let mut found = vec![];
    for (what, file) in TABLE {
        let text = match procfs::read_text(format!("/proc/sys/net/netfilter/{file}")) {
            Err(_) if what == CLOSED_LIFE => continue,
            text => text?,
        };
        let number = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        found.push((what, number));
    }
    Ok(found)
}

/// Reads one namespace. The limit of a namespace below the first one can never be above that one's: `ours` is the limit
/// here.
fn read(place: Place, prefix: &str, reading: &mut Reading) {
    let signal = || format!("conntrack.{prefix}").trim_end_matches('.').to_owned();
    let limit_here =
        table().ok().and_then(|here| Some(here.iter().find(|(what, _)| *what == "max_count")?.1));
    match place.within(table) {
        Ok(found) => {
            for (what, number) in found {
                let limit = limit_here.filter(|_| what == "max_count");
                let number = limit.map_or(number, |limit| number.min(limit));
                reading.push(format!("conntrack.{prefix}{what}"), number as f64);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && place == Place::Own => {
            let why = "connections are not tracked here: nf_conntrack is not loaded";
            return reading.lacks(signal(), why, "nothing is needed: what is not tracked fills no table");
        }
        Err(error) => {
            let why = format!("the table of tracked connections cannot be read: {error}");
            return reading.lacks(signal(), why, "run webdyno as root");
        }
    }
    let path = format!("{}/stat/nf_conntrack", place.net());
    match procfs::read_text(&path) {
        Ok(text) => {
            for (name, total) in parse(&text) {
                reading.push(format!("conntrack.{prefix}{name}_count"), total as f64);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("the kernel has no {path}");
            reading.lacks(
                format!("{}.insert_failed_count", signal()),
                why,
                "a kernel with CONFIG_NF_CONNTRACK_PROCFS",
            );
        }
        Err(error) => reading.problem(io_error_text("read", &path, &error)),
    }
}

/// The collector.
#[derive(Debug, Default)]
pub struct Conntrack {
    whereabouts: Whereabouts,
    changes: Changes,
}

impl Collector for Conntrack {
    fn name(&self) -> &'static str {
        "conntrack"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![];
        for (prefix, enter, net) in
            [("", "", "/proc/net"), ("service.", "nsenter -t PID -n ", "/proc/PID/net")]
        {
            for (what, file) in TABLE {
                let path = format!("/proc/sys/net/netfilter/{file}");
                let level = gauge(format!("conntrack.{prefix}{what}"), &path, format!("{enter}cat {path}"));
                metrics.push(if what == "entries_count" { level } else { on_change(level) });
            }
            for name in STATISTICS {
                let path = format!("{net}/stat/nf_conntrack");
                // The column by its name, summed over cores.
                let show = format!(
                    "c=$(head -1 {path} | tr -s ' ' '\\n' | grep -nx {name} | cut -d: -f1); s=0; for n in $(tail -n +2 \
                     {path} | awk -v c=$c '{{print $c}}'); do s=$((s + 0x$n)); done; echo $s"
                );
                metrics.push(on_change(counter(format!("conntrack.{prefix}{name}_count"), &path, show)));
            }
        }
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let places = self.whereabouts.places(target, &mut reading);
        for (place, prefix) in places {
            read(place, prefix, &mut reading);
        }
        self.changes.only(reading, |name| !name.ends_with("entries_count"))
    }

    fn mark_undelivered(&mut self) {
        self.changes = Changes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.18, two cores.
    const NEW: &str = "\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
00000005  00000001 00000000 00000000 00000002 00000000 00000000 00000000 00000000 0000000a 00000003 00000000 00000000  00000000 00000000 00000000 00000000
00000005  00000000 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000006 00000001 00000000 00000000  00000000 00000000 00000000 00000000
";
    /// Linux 3.10 calls the first columns otherwise.
    const OLD: &str = "entries searched found drop\n00000005 00000009 00000001 00000002\n";

    #[test]
    fn columns_are_found_by_name_and_summed_over_cores() {
        let value =
            |text: &str, name: &str| parse(text).into_iter().find(|(n, _)| *n == name).map(|(_, v)| v);
        for (text, name, expected) in [
            (NEW, "insert_failed", Some(16)),
            (NEW, "drop", Some(4)),
            (NEW, "invalid", Some(3)),
            (OLD, "drop", Some(2)),
            (OLD, "insert_failed", None),
            ("", "drop", None),
            ("drop\n", "drop", None),
            ("drop\nx\n", "drop", None),
        ] {
            assert_eq!(value(text, name), expected, "{name}");
        }
    }

    #[test]
    fn of_a_service_that_is_gone_nothing_is_told() {
        let mut conntrack = Conntrack::default();
        conntrack.whereabouts.other_namespace_pid = Some(u32::MAX);
        let target = Target { service_pid: Some(u32::MAX), ..Target::default() };
        let reading = conntrack.read(&target);
        assert!(reading.values.iter().all(|(name, _)| !name.contains("service")), "{reading:?}");
        assert!(reading.error.unwrap().contains("gone"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(cut in 0..NEW.len(), noise in "[0-9a-fx é\n]{0,60}") {
            parse(&format!("{}{noise}", &NEW[..cut]));
        }
    }
}
