//! The counters of TCP and IP, as `/proc/net/netstat` and `/proc/net/snmp` have them: all of them, by group and name.
//!
//! Facts: Documentation/networking/snmp_counter.rst, proc_pid_net(5). Kernels differ in which they have; lines come in
//! pairs, names and values. The files show the network namespace of the process whose `/proc/PID/net` they are in.

use crate::os::procfs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The groups that are read; the others tell of protocols that carry no request.
const GROUPS: [&str; 5] = ["Tcp", "Ip", "Udp", "TcpExt", "IpExt"];

/// Fields that are no totals but levels or settings: of RFC 4293 and RFC 4022.
const LEVELS: [&str; 7] =
    ["Forwarding", "DefaultTTL", "RtoAlgorithm", "RtoMin", "RtoMax", "MaxConn", "CurrEstab"];

/// A reading that is at most that old serves for another collector of the same turn.
const FRESH: Duration = Duration::from_millis(500);

/// One number of these files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counter {
    /// Group and field in one word, as `nstat` names it: `TcpExtListenOverflows`.
    pub name: String,
    /// Its value; a few are signed.
    pub value: i64,
    /// Whether it is a level, or a setting, and no total.
    pub is_level: bool,
}

/// The numbers of one moment.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Counters {
    /// All of them, in the order of the files.
    pub all: Vec<Counter>,
    /// Why some are missing.
    pub problems: Vec<String>,
}

impl Counters {
    /// The value of one; `None` where the kernel does not have it.
    pub fn value(&self, group: &str, field: &str) -> Option<f64> {
        let is_it = |counter: &&Counter| counter.name.strip_prefix(group) == Some(field);
        self.all.iter().find(is_it).map(|counter| counter.value as f64)
    }

    fn read(net: &str) -> Self {
        let mut counters = Self::default();
        for file in ["netstat", "snmp"] {
            let path = format!("{net}/{file}");
            match procfs::read_text(&path) {
                Ok(text) => parse(&text, &mut counters.all),
                Err(error) => counters.problems.push(super::super::io_error_text("read", &path, &error)),
            }
        }
        counters
    }
}

/// Takes the pairs of lines `Group: names..`, `Group: values..` apart. A pair that does not fit gives what fits.
pub(crate) fn parse(text: &str, counters: &mut Vec<Counter>) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        if group != same || !GROUPS.contains(&group) {
            continue;
        }
        let pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
        counters.extend(pairs.filter_map(|(field, value)| {
            let is_word = field.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let value = value.parse().ok().filter(|_| is_word)?;
            let is_level = LEVELS.contains(&field);
            Some(Counter { name: format!("{group}{field}"), value, is_level })
        }));
    }
}

/// The latest reading of each namespace that was asked for last.
#[derive(Debug, Default)]
pub(crate) struct Recent(Option<(String, Instant, Arc<Counters>)>);

impl Recent {
    /// The counters of the namespace of this directory, read at most half a second ago.
    pub fn of(&mut self, net: &str) -> Arc<Counters> {
        match &self.0 {
            Some((known, at, counters)) if known == net && at.elapsed() < FRESH => Arc::clone(counters),
            _ => {
                let counters = Arc::new(Counters::read(net));
                self.0 = Some((net.to_owned(), Instant::now(), Arc::clone(&counters)));
                counters
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.18, captured.
    const NETSTAT: &str = include_str!("../../../tests/fixtures/netstat-6.18.txt");
    const SNMP: &str = include_str!("../../../tests/fixtures/snmp-6.18.txt");

    fn parsed(text: &str) -> Counters {
        let mut counters = Counters::default();
        parse(text, &mut counters.all);
        counters
    }

    #[test]
    fn all_groups_are_read_by_name() {
        let (names, values) = ("TcpExt: A ListenOverflows B TCPReqQFullDrop", "TcpExt: 1 2 -3 4");
        let other = "Icmp: A\nIcmp: 5\nIpExt: ListenOverflows\nIpExt: 9\nTcp: CurrEstab Torn\nTcp: 3";
        let counters = parsed(&format!("{names}\n{values}\n{other}\n"));
        for (group, field, expected) in [
            ("TcpExt", "ListenOverflows", Some(2.0)),
            ("TcpExt", "TCPReqQFullDrop", Some(4.0)),
            ("TcpExt", "B", Some(-3.0)),
            ("TcpExt", "ListenDrops", None),
            ("IpExt", "ListenOverflows", Some(9.0)),
            ("Icmp", "A", None),
            ("Tcp", "CurrEstab", Some(3.0)),
            ("Tcp", "Torn", None),
        ] {
            assert_eq!(counters.value(group, field), expected, "{group}{field}");
        }
        let levels: Vec<_> = counters.all.iter().filter(|counter| counter.is_level).collect();
        assert_eq!(levels.iter().map(|level| level.name.as_str()).collect::<Vec<_>>(), ["TcpCurrEstab"]);
    }

    #[test]
    fn a_real_kernel_has_many() {
        let counters = parsed(&format!("{NETSTAT}{SNMP}"));
        assert!(counters.all.len() > 150, "{}", counters.all.len());
        let names: std::collections::BTreeSet<_> = counters.all.iter().map(|counter| &counter.name).collect();
        assert_eq!(names.len(), counters.all.len(), "a name is there twice");
    }

    #[test]
    fn one_reading_serves_two_collectors() {
        let mut recent = Recent::default();
        let first = recent.of("/proc/self/net");
        assert!(Arc::ptr_eq(&first, &recent.of("/proc/self/net")));
        assert!(!recent.of("/proc/4294967295/net").problems.is_empty());
    }

    proptest! {
        // Torn and strange texts give fewer counters, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..NETSTAT.len(), noise in "[ -~é\n]{0,80}") {
            let torn = NETSTAT.get(..cut).unwrap_or_default();
            let counters = parsed(&format!("{torn}{noise}\n{noise}"));
            prop_assert!(counters.all.len() < 400);
        }
    }
}
