//! Facts of links and of the kernel's tables: rates against what a link may carry, tracked connections, ports.
//!
//! Sources: the collectors `nic`, `qdisc`, `tcp`, `conntrack`, `ports` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactRow};
use crate::measurement::series::SeriesSet;
use crate::measurement::statistics;

/// What follows from one metric each.
#[rustfmt::skip] // a table, one row a line
pub(super) const ROWS: &[FactRow] = &[
    ("conntrack_buckets", "buckets", "conntrack.buckets_count", Derivation::Latest),
    ("conntrack_full_messages", "messages", "kernel_log.conntrack_full.messages_count", Derivation::Rise),
    ("ports_available", "ports", "ports.available_count", Derivation::Latest),
    ("ports_used_max", "ports", "ports.*.used_count", Derivation::Max),
    ("ports_time_wait_max", "ports", "ports.*.time_wait_count", Derivation::Max),
    ("no_port_messages", "messages", "apache_log.cannot_assign_address.messages_count", Derivation::Rise),
    ("no_port_messages_of_program", "messages", "apache_log.cannot_assign_address_in_program.messages_count", Derivation::Rise),
    ("proxy_refused_messages", "messages", "apache_log.AH00957.messages_count", Derivation::Rise),
    ("received_packets_per_s", "packets/s", "nic.*.received_packets_count", Derivation::Rate(1.0)),
    ("service_received_packets_per_s", "packets/s", "nic.service.*.received_packets_count", Derivation::Rate(1.0)),
    ("packets_dropped_unread", "packets", "softnet.dropped_count", Derivation::Rise),
];

/// From this share of its size on a table is full: entries that have just ended make room for the next ones.
const TABLE_FULL_FRACTION: f64 = 0.98;
/// Two readings of a counter that are nearer to each other say nothing about a second.
const SECOND_MIN_S: f64 = 0.5;

impl FactBuilder<'_> {
    /// The table of tracked connections: of the service's network where that is another one than the observer's, else of
    /// the observer's. Its limit is the machine's, and holds for each network on its own.
    pub(super) fn conntrack(&mut self) {
        let size = |prefix: &str| self.series.latest(&format!("{prefix}.max_count"));
        let known = |prefix: &&str| size(prefix).is_some_and(|size| size > 0.0);
        let names = match ["conntrack.service", "conntrack"].into_iter().find(known) {
            Some(prefix) => (format!("{prefix}.entries_count"), format!("{prefix}.max_count"), prefix),
            None => ("sockets.conntrack_count".into(), "sockets.conntrack_limit_count".into(), "conntrack"),
        };
        let (entries, max, prefix) = names;
        self.derive("conntrack_entries_max", "connections", &entries, Derivation::Max);
        self.derive("conntrack_limit", "connections", &max, Derivation::Latest);
        self.derive("conntrack_closed_life_s", "s", &format!("{prefix}.closed_life_s"), Derivation::Latest);
        let limit = self.series.latest(&max).filter(|limit| *limit > 0.0);
        let levels = self.series.levels(&entries);
        let full = limit.filter(|_| !levels.is_empty()).map(|limit| {
            let full = levels.iter().filter(|level| **level >= TABLE_FULL_FRACTION * limit).count();
            full as f64 / levels.len() as f64
        });
        self.add_from("conntrack_full_fraction", "fraction", full, (&entries, Derivation::Mean));
        for (fact, counter) in [
            ("conntrack_drops", "drop_count"),
            ("conntrack_early_drops", "early_drop_count"),
            ("conntrack_insert_failures", "insert_failed_count"),
        ] {
            self.derive(fact, "packets", &format!("{prefix}.{counter}"), Derivation::Rise);
        }
        self.derive(
            "conntrack_drops_per_s",
            "packets/s",
            &format!("{prefix}.drop_count"),
            Derivation::Rate(1.0),
        );
    }

    /// Of the segments that were sent, the share that had to be sent again; and how much what an interface sends differs from
    /// one second to the other.
    pub(super) fn retransmissions(&mut self) {
        let again = self
            .series
            .increase("tcp.TcpRetransSegs.count")
            .or(self.series.increase("sockets.retransmits_count"));
        let sent = self.series.increase("tcp.TcpOutSegs.count").filter(|(sent, _)| *sent > 0.0);
        let share = again.zip(sent).map(|((again, _), (sent, _))| again / sent);
        self.add_from(
            "retransmitted_fraction",
            "fraction",
            share,
            ("tcp.TcpOutSegs.count", Derivation::Rate(1.0)),
        );
    }

    /// How full links are: interfaces against the speed that they have agreed on, shapers against their rate.
    pub(super) fn links(&mut self) {
        for prefix in ["nic.", "nic.service."] {
            self.link(prefix, "nic_sent", "sent_bytes", "speed_bits_per_s");
            self.link(prefix, "nic_received", "received_bytes", "speed_bits_per_s");
            for (fact, unit, metric) in [
                ("nic_supported_bits_per_s", "bits/s", "supported_speed_bits_per_s"),
                ("nic_partner_bits_per_s", "bits/s", "partner_speed_bits_per_s"),
                ("nic_full_duplex", "bool", "full_duplex_bool"),
            ] {
                self.derive_for_prefix(
                    prefix,
                    fact,
                    unit,
                    metric,
                    |series, name| series.latest(name),
                    Derivation::Latest,
                );
            }
        }
        for prefix in ["qdisc.", "qdisc.service.", "qdisc.part.", "qdisc.service.part."] {
            self.link(prefix, "shaper_sent", "sent_bytes", "rate_bits_per_s");
            let share = |series: &SeriesSet<'_>, name: &str| {
                let levels = series.levels(name);
                let waiting = levels.iter().filter(|level| **level > 0.0).count();
                (!levels.is_empty()).then(|| waiting as f64 / levels.len() as f64)
            };
            let mean = |series: &SeriesSet<'_>, name: &str| series.mean(name);
            let rise = |series: &SeriesSet<'_>, name: &str| series.increase(name).map(|(rise, _)| rise);
            let backlog = "backlog_bytes";
            self.derive_for_prefix(
                prefix,
                "shaper_backlog_mean_bytes",
                "bytes",
                backlog,
                mean,
                Derivation::Mean,
            );
            self.derive_for_prefix(
                prefix,
                "shaper_waiting_fraction",
                "fraction",
                backlog,
                share,
                Derivation::Mean,
            );
            self.derive_for_prefix(prefix, "shaper_drops", "packets", "drops_count", rise, Derivation::Rise);
        }
    }

    /// `NAME_bits_per_s`, `NAME_fraction` (of what the link may carry) and `NAME_limit_bits_per_s` of each link.
    fn link(&mut self, prefix: &str, name: &str, bytes: &str, limit: &str) {
        let found: Vec<(String, String)> = self.instances_with_prefix(prefix, bytes);
        for (instance, metric) in found {
            let limit = metric.replace(&format!(".{bytes}"), &format!(".{limit}"));
            let rate = self.series.rate(&metric).map(|rate| 8.0 * rate);
            let most = self.series.latest(&limit).filter(|most| *most > 0.0);
            let share = rate.zip(most).map(|(rate, most)| rate / most);
            let spread = relative_deviation(&self.series, &metric);
            let at = instance.as_str();
            self.add_of(&format!("{name}_bits_per_s"), "bits/s", rate, (&metric, Derivation::Rate(8.0)), at);
            self.add_of(
                &format!("{name}_limit_bits_per_s"),
                "bits/s",
                most,
                (&limit, Derivation::Latest),
                at,
            );
            self.add_of(&format!("{name}_fraction"), "fraction", share, (&metric, Derivation::Rate(8.0)), at);
            self.add_of(
                &format!("{name}_spread_fraction"),
                "fraction",
                spread,
                (&metric, Derivation::Rate(8.0)),
                at,
            );
        }
    }

    fn derive_for_prefix(
        &mut self,
        prefix: &str,
        fact: &str,
        unit: &str,
        metric: &str,
        value: impl Fn(&SeriesSet<'_>, &str) -> Option<f64>,
        how: Derivation,
    ) {
        for (instance, metric) in self.instances_with_prefix(prefix, metric) {
            let value = value(&self.series, &metric);
            self.add_of(fact, unit, value, (&metric, how), &instance);
        }
    }

    /// What there are readings of, of `PREFIX*.METRIC`: each one's name, with what tells it from those of the same name
    /// elsewhere, and that of its values.
    fn instances_with_prefix(&self, prefix: &str, metric: &str) -> Vec<(String, String)> {
        let Some(template) = self.series.template(&format!("{prefix}*.{metric}")) else { return vec![] };
        let place = prefix.split_once('.').map_or("", |(_, place)| place);
        let found = self.series.instances(template);
        found.map(|(instance, name)| (format!("{place}{instance}"), name.to_owned())).collect()
    }
}

/// The standard deviation of a counter's rise from reading to reading, as a share of its mean.
fn relative_deviation(series: &SeriesSet<'_>, name: &str) -> Option<f64> {
    let (first, last) = series.span(name)?;
    let readings: Vec<(f64, f64)> =
        series.all(name).iter().filter(|(time, _)| (first.0..=last.0).contains(time)).copied().collect();
    let seconds = readings.windows(2).filter(|pair| pair[1].0 - pair[0].0 >= SECOND_MIN_S);
    let rates: Vec<f64> = seconds.map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0)).collect();
    let described = statistics::describe(&rates).filter(|rates| rates.mean > 0.0)?;
    Some(described.variance.sqrt() / described.mean)
}
