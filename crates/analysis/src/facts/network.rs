//! Facts of links and of the kernel's tables: rates against what a link may carry, tracked connections, ports.
//!
//! Sources: the collectors `nic`, `qdisc`, `tcp`, `conntrack`, `ports` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::series::SeriesSet;
use crate::measurement::statistics;

fact_table! {
    (conntrack_buckets, "buckets", "conntrack.buckets_count", Derivation::Latest),
    (conntrack_full_messages, "messages", "kernel_log.conntrack_full.messages_count", Derivation::Rise),
    (ports_available, "ports", "ports.available_count", Derivation::Latest),
    (ports_used_max, "ports", "ports.*.used_count", Derivation::Max),
    (ports_time_wait_max, "ports", "ports.*.time_wait_count", Derivation::Max),
    (no_port_messages, "messages", "apache_log.cannot_assign_address.messages_count", Derivation::Rise),
    (no_port_messages_of_program, "messages", "apache_log.cannot_assign_address_in_program.messages_count", Derivation::Rise),
    (proxy_refused_messages, "messages", "apache_log.AH00957.messages_count", Derivation::Rise),
    (received_packets_per_s, "packets/s", "nic.*.received_packets_count", Derivation::Rate(1.0)),
    (service_received_packets_per_s, "packets/s", "nic.service.*.received_packets_count", Derivation::Rate(1.0)),
    (packets_dropped_unread, "packets", "softnet.dropped_count", Derivation::Rise),
    "connections": conntrack_entries_max, conntrack_limit;
    "s": conntrack_closed_life_s;
    "packets": conntrack_drops, conntrack_early_drops, shaper_drops;
    "packets/s": conntrack_drops_per_s;
    "bits/s": nic_sent_bits_per_s, nic_sent_limit_bits_per_s, nic_received_bits_per_s,
        nic_received_limit_bits_per_s, shaper_sent_bits_per_s, shaper_sent_limit_bits_per_s,
        nic_supported_bits_per_s, nic_partner_bits_per_s;
    "fraction": conntrack_full_fraction, retransmitted_fraction, nic_sent_fraction, nic_sent_spread_fraction,
        nic_received_fraction, nic_received_spread_fraction, shaper_sent_fraction, shaper_sent_spread_fraction,
        shaper_waiting_fraction;
    "bool": nic_full_duplex;
    "bytes": shaper_backlog_mean_bytes;
}

/// The facts of one direction of a link.
#[derive(Debug, PartialEq)]
pub(crate) struct LinkFacts {
    pub(crate) bits_per_s: FactId,
    pub(crate) limit_bits_per_s: FactId,
    /// Of what the link may carry.
    pub(crate) fraction: FactId,
    spread_fraction: FactId,
}

impl LinkFacts {
    /// What a finding cites of it.
    pub(crate) const fn cited(&self) -> [FactId; 3] {
        [self.bits_per_s, self.limit_bits_per_s, self.fraction]
    }
}

pub(crate) const NIC_SENT: LinkFacts = LinkFacts {
    bits_per_s: FactId::nic_sent_bits_per_s,
    limit_bits_per_s: FactId::nic_sent_limit_bits_per_s,
    fraction: FactId::nic_sent_fraction,
    spread_fraction: FactId::nic_sent_spread_fraction,
};
pub(crate) const NIC_RECEIVED: LinkFacts = LinkFacts {
    bits_per_s: FactId::nic_received_bits_per_s,
    limit_bits_per_s: FactId::nic_received_limit_bits_per_s,
    fraction: FactId::nic_received_fraction,
    spread_fraction: FactId::nic_received_spread_fraction,
};
pub(crate) const SHAPER_SENT: LinkFacts = LinkFacts {
    bits_per_s: FactId::shaper_sent_bits_per_s,
    limit_bits_per_s: FactId::shaper_sent_limit_bits_per_s,
    fraction: FactId::shaper_sent_fraction,
    spread_fraction: FactId::shaper_sent_spread_fraction,
};

/// Derivation this share of its size on a table is full: entries that have just ended make room for the next ones.
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
        self.derive(FactId::conntrack_entries_max, &entries, Derivation::Max);
        self.derive(FactId::conntrack_limit, &max, Derivation::Latest);
        self.derive(FactId::conntrack_closed_life_s, &format!("{prefix}.closed_life_s"), Derivation::Latest);
        let limit = self.series.latest(&max).filter(|limit| *limit > 0.0);
        let levels = self.series.levels(&entries);
        let full = limit.filter(|_| !levels.is_empty()).map(|limit| {
            let full = levels.iter().filter(|level| **level >= TABLE_FULL_FRACTION * limit).count();
            full as f64 / levels.len() as f64
        });
        self.add_from(FactId::conntrack_full_fraction, full, (&entries, Derivation::Mean));
        self.derive(FactId::conntrack_drops, &format!("{prefix}.drop_count"), Derivation::Rise);
        self.derive(FactId::conntrack_early_drops, &format!("{prefix}.early_drop_count"), Derivation::Rise);
        self.derive(FactId::conntrack_drops_per_s, &format!("{prefix}.drop_count"), Derivation::Rate(1.0));
    }

    /// Of the segments that were sent, the share that had to be sent again. What opens connections is not among them: a SYN whose answer
    /// is dropped by a full queue of this machine is answered again, too (RFC 6298, 2.4; `TCPSynRetrans` counts both kinds).
    pub(super) fn retransmissions(&mut self) {
        let again = self
            .series
            .increase("tcp.TcpRetransSegs.count")
            .or(self.series.increase("sockets.retransmits_count"));
        let sent = self.series.increase("tcp.TcpOutSegs.count").filter(|(sent, _)| *sent > 0.0);
        let syns = self.series.increase("tcp.TcpExtTCPSynRetrans.count").map_or(0.0, |(syns, _)| syns);
        let share = again.zip(sent).map(|((again, _), (sent, _))| (again - syns).max(0.0) / sent);
        self.add_from(FactId::retransmitted_fraction, share, ("tcp.TcpOutSegs.count", Derivation::Rate(1.0)));
    }

    /// How full links are: interfaces against the speed that they have agreed on, shapers against their rate.
    pub(super) fn links(&mut self) {
        for prefix in ["nic.", "nic.service."] {
            self.link(prefix, &NIC_SENT, "sent_bytes", "speed_bits_per_s");
            self.link(prefix, &NIC_RECEIVED, "received_bytes", "speed_bits_per_s");
            for (fact, metric) in [
                (FactId::nic_supported_bits_per_s, "supported_speed_bits_per_s"),
                (FactId::nic_partner_bits_per_s, "partner_speed_bits_per_s"),
                (FactId::nic_full_duplex, "full_duplex_bool"),
            ] {
                self.derive_for_prefix(
                    prefix,
                    fact,
                    metric,
                    |series, name| series.latest(name),
                    Derivation::Latest,
                );
            }
        }
        for prefix in ["qdisc.", "qdisc.service.", "qdisc.part.", "qdisc.service.part."] {
            self.link(prefix, &SHAPER_SENT, "sent_bytes", "rate_bits_per_s");
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
                FactId::shaper_backlog_mean_bytes,
                backlog,
                mean,
                Derivation::Mean,
            );
            self.derive_for_prefix(prefix, FactId::shaper_waiting_fraction, backlog, share, Derivation::Mean);
            self.derive_for_prefix(prefix, FactId::shaper_drops, "drops_count", rise, Derivation::Rise);
        }
    }

    /// What there is of each link.
    fn link(&mut self, prefix: &str, facts: &LinkFacts, bytes: &str, limit: &str) {
        let found: Vec<(String, String)> = self.instances_with_prefix(prefix, bytes);
        for (instance, metric) in found {
            let limit = metric.replace(&format!(".{bytes}"), &format!(".{limit}"));
            let rate = self.series.rate(&metric).map(|rate| 8.0 * rate);
            let most = self.series.latest(&limit).filter(|most| *most > 0.0);
            let share = rate.zip(most).map(|(rate, most)| rate / most);
            let spread = relative_deviation(&self.series, &metric);
            let at = instance.as_str();
            let from = (metric.as_str(), Derivation::Rate(8.0));
            self.add_of(facts.bits_per_s, rate, from, at);
            self.add_of(facts.limit_bits_per_s, most, (&limit, Derivation::Latest), at);
            self.add_of(facts.fraction, share, from, at);
            self.add_of(facts.spread_fraction, spread, from, at);
        }
    }

    fn derive_for_prefix(
        &mut self,
        prefix: &str,
        fact: FactId,
        metric: &str,
        value: impl Fn(&SeriesSet<'_>, &str) -> Option<f64>,
        how: Derivation,
    ) {
        for (instance, metric) in self.instances_with_prefix(prefix, metric) {
            let value = value(&self.series, &metric);
            self.add_of(fact, value, (&metric, how), &instance);
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
