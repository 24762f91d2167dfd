//! Network interfaces: what went through them, what they lost, and what the card agreed on with its other side; of our
//! network namespace, and of the service's where that is another one.
//!
//! Facts: `/proc/PID/net/dev` (proc_pid_net(5); `drop` holds what the card missed, too) shows the namespace of a process;
//! /sys/class/net only the one it was mounted in, so that links are asked for by rtnetlink(7) and ethtool netlink. What is
//! made of software has no line speed: a veth says 10 Gb/s whatever it carries (drivers/net/veth.c).

use crate::collectors::network::ethtool;
use crate::collectors::network::ethtool::Agreed;
use crate::collectors::network::route;
use crate::collectors::network::route::Link;
use crate::collectors::network::{Place, SERVICE, Whereabouts};
use crate::collectors::on_change::{Changes, on_change};
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge, io_error_text};
use crate::os::procfs;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// Interfaces of a namespace that are told, beside the loopback one: those through which the most goes.
const INSTANCES_MAX: usize = 7;

/// Readings after which links are asked for anew, and speeds: for those drivers may ask their card.
const LINKS_EVERY: u64 = 5;
const SPEEDS_EVERY: u64 = 60;

/// What there is of each interface in `/proc/net/dev`, and its column.
const COUNTERS: [(&str, usize); 8] = [
    ("received_bytes", 0),
    ("received_packets_count", 1),
    ("received_errors_count", 2),
    ("received_drops_count", 3),
    ("sent_bytes", 8),
    ("sent_packets_count", 9),
    ("sent_errors_count", 10),
    ("sent_drops_count", 11),
];

/// Kinds of interfaces without hardware that pass on the speed of the cards below them.
const ABOVE_CARDS: [&str; 6] = ["bond", "team", "vlan", "macvlan", "ipvlan", "dsa"];

type Counters = [u64; COUNTERS.len()];

/// The counters of all interfaces.
fn parse(text: &str) -> BTreeMap<String, Counters> {
    let interface = |line: &str| {
        // Names hold no colon but that of an alias.
        let (name, columns) = line.rsplit_once(':')?;
        let columns: Vec<u64> =
            columns.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let mut counters = [0; COUNTERS.len()];
        for (counter, (_, column)) in counters.iter_mut().zip(COUNTERS) {
            *counter = *columns.get(column)?;
        }
        let name = name.trim();
        (!name.is_empty()).then(|| (name.to_owned(), counters))
    };
    text.lines().skip(2).filter_map(interface).collect()
}

/// What is known of the interfaces of one namespace.
#[derive(Debug, Default)]
struct Interfaces {
    /// The sum of bytes at the reading before, and how much went through lately.
    traffic: HashMap<String, (u64, u64)>,
    links: Vec<Link>,
    agreed: Vec<Agreed>,
    /// Why links, and speeds, are not known.
    lacks_links: Option<String>,
    lacks_speeds: Option<String>,
    readings_count: u64,
}

impl Interfaces {
    /// The interfaces to tell, the busiest lately first and the loopback one last, and how many are left out.
    fn choose(&mut self, all: &BTreeMap<String, Counters>) -> (Vec<String>, usize) {
        let mut order: Vec<(u64, &String)> = vec![];
        for (name, counters) in all {
            let bytes = counters[0].saturating_add(counters[4]);
            let (before, lately) = self.traffic.get(name).copied().unwrap_or_default();
            // Half of it is forgotten with each reading. At first what ever went through counts.
            let lately = (lately / 2).saturating_add(bytes.saturating_sub(before));
            self.traffic.insert(name.clone(), (bytes, lately));
            if name != "lo" {
                order.push((lately, name));
            }
        }
        self.traffic.retain(|name, _| all.contains_key(name));
        order.sort_by_key(|&(lately, name)| (std::cmp::Reverse(lately), name));
        let left_out = order.len().saturating_sub(INSTANCES_MAX);
        let mut chosen: Vec<String> =
            order.into_iter().take(INSTANCES_MAX).map(|(_, name)| name.clone()).collect();
        chosen.extend(all.contains_key("lo").then(|| "lo".to_owned()));
        (chosen, left_out)
    }

    /// Asks for links now and then, and for speeds more rarely, or when a link came or went.
    fn query(&mut self, place: Place) {
        let mut changed = false;
        if self.readings_count.is_multiple_of(LINKS_EVERY) {
            let links = place.within(route::links);
            self.lacks_links = links.as_ref().err().map(io::Error::to_string);
            let links = links.unwrap_or_default();
            changed = links != self.links;
            self.links = links;
        }
        if changed || self.readings_count.is_multiple_of(SPEEDS_EVERY) {
            let agreed = place.within(ethtool::all);
            self.lacks_speeds = agreed.as_ref().err().map(io::Error::to_string);
            self.agreed = agreed.unwrap_or_default();
        }
        self.readings_count += 1;
    }

    fn read(&mut self, place: Place, prefix: &str, reading: &mut Reading) {
        let path = format!("{}/dev", place.net());
        let all = match procfs::read_text(&path) {
            Ok(text) => parse(&text),
            Err(error) => return reading.problem(io_error_text("read", &path, &error)),
        };
        self.query(place);
        let (chosen, left_out) = self.choose(&all);
        for name in &chosen {
            let counters = all.get(name).into_iter().flatten();
            for ((what, _), &value) in COUNTERS.iter().zip(counters) {
                reading.push(format!("nic.{prefix}{name}.{what}"), value as f64);
            }
            self.link(place, prefix, name, reading);
        }
        if left_out > 0 {
            let why = format!("of the interfaces, {left_out} through which less goes are left out");
            reading.lacks(format!("nic.{prefix}*"), why, format!("cat {path}"));
        }
        if let Some(why) = &self.lacks_links {
            let why = format!("the kernel does not tell its links: {why}");
            reading.lacks(format!("nic.{prefix}*.link_up_bool"), why, "run webdyno as root");
        }
    }

    /// The state of a link, and what its card agreed on.
    fn link(&self, place: Place, prefix: &str, name: &str, reading: &mut Reading) {
        let Some(link) = self.links.iter().find(|link| link.name == name) else {
            return;
        };
        let metric = |what: &str| format!("nic.{prefix}{name}.{what}");
        reading.push(metric("link_up_bool"), f64::from(u8::from(link.is_up)));
        if link.is_loopback {
            return;
        }
        if let Some(kind) = link.kind.as_deref().filter(|kind| !ABOVE_CARDS.contains(kind)) {
            let why = format!("{name} is virtual ({kind}): it has no line speed");
            return reading.lacks(
                metric("speed_bits_per_s"),
                why,
                "tc -s qdisc show shows the rate of a shaped link",
            );
        }
        let mut agreed =
            self.agreed.iter().find(|agreed| agreed.index == link.index).cloned().unwrap_or_default();
        if agreed.speed_bits_per_s.is_none() && place == Place::Own {
            // Kernels before 5.6 tell by sysfs alone.
            agreed.speed_bits_per_s = sysfs_speed(name);
        }
        let as_number = |flag: Option<bool>| flag.map(|flag| f64::from(u8::from(flag)));
        reading.push_some(metric("speed_bits_per_s"), agreed.speed_bits_per_s);
        reading.push_some(metric("supported_speed_bits_per_s"), agreed.supported_bits_per_s);
        reading.push_some(metric("partner_speed_bits_per_s"), agreed.partner_bits_per_s);
        reading.push_some(metric("full_duplex_bool"), as_number(agreed.is_full_duplex));
        reading.push_some(metric("autonegotiation_bool"), as_number(agreed.negotiates));
        if agreed.speed_bits_per_s.is_none() {
            let why = match (&self.lacks_speeds, link.is_up) {
                (Some(error), _) => format!("the kernel does not tell what cards agreed on: {error}"),
                (None, false) => format!("{name} has no link"),
                (None, true) => {
                    format!("the driver of {name} does not tell its speed, as those of virtual machines")
                }
            };
            reading.lacks(metric("speed_bits_per_s"), why, format!("ethtool {name}"));
        } else if agreed.supported_bits_per_s.is_none() {
            let why = format!("the driver of {name} does not tell what the card supports");
            reading.lacks(metric("supported_speed_bits_per_s"), why, format!("ethtool {name}"));
        }
    }
}

/// The speed in /sys/class/net; -1 is unknown, and a link that is down gives an error.
fn sysfs_speed(name: &str) -> Option<f64> {
    let text = procfs::read_text(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits = text.trim().parse::<i64>().ok().filter(|&megabits| megabits > 0)?;
    Some(megabits as f64 * 1e6)
}

/// The collector.
#[derive(Debug, Default)]
pub struct Nic {
    whereabouts: Whereabouts,
    changes: Changes,
    known: HashMap<Place, Interfaces>,
}

/// Whether a value always changes: bytes and packets.
fn is_always_reported(name: &str) -> bool {
    ["_bytes", "_packets_count"].iter().any(|end| name.ends_with(end))
}

impl Collector for Nic {
    fn name(&self) -> &'static str {
        "nic"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![];
        for (prefix, net, enter) in [("", "/proc/net", ""), (SERVICE, "/proc/PID/net", "nsenter -t PID -n ")]
        {
            let source = format!("{net}/dev");
            for (what, column) in COUNTERS {
                let column = column + 1;
                let show = format!("sed -n 's/^ *INSTANCE: *//p' {source} | awk '{{print ${column}}}'");
                let metric = counter(format!("nic.{prefix}*.{what}"), &source, show);
                metrics.push(if is_always_reported(what) { metric } else { on_change(metric) });
            }
            let modes = |section: &str| {
                let end = if section == "Supported" { "pause" } else { "pause frame use\\|auto-neg" };
                format!(
                    "{enter}ethtool INSTANCE | sed -n '/{section} link modes/,/{end}/p' | grep -o '[0-9]*base' | sort -n \
                     | tail -1 | sed 's/base/000000/'"
                )
            };
            let ethtool = |pipe: &str| format!("{enter}ethtool INSTANCE | {pipe}");
            for (what, source, show) in [
                (
                    "link_up_bool",
                    "rtnetlink(7)",
                    format!("{enter}ip -o link show dev INSTANCE | grep -c LOWER_UP"),
                ),
                ("speed_bits_per_s", "ethtool", ethtool("sed -n 's/.*Speed: \\([0-9]*\\)Mb.*/\\1000000/p'")),
                ("supported_speed_bits_per_s", "ethtool", modes("Supported")),
                ("partner_speed_bits_per_s", "ethtool", modes("Link partner advertised")),
                ("full_duplex_bool", "ethtool", ethtool("grep -c 'Duplex: Full'")),
                ("autonegotiation_bool", "ethtool", ethtool("grep -c 'Auto-negotiation: on'")),
            ] {
                metrics.push(on_change(gauge(format!("nic.{prefix}*.{what}"), source, show)));
            }
        }
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let places = self.whereabouts.places(target, &mut reading);
        self.known.retain(|known, _| places.iter().any(|(place, _)| place == known));
        for (place, prefix) in places {
            self.known.entry(place).or_default().read(place, prefix, &mut reading);
        }
        self.changes.only(reading, |name| !is_always_reported(name))
    }

    fn mark_undelivered(&mut self) {
        self.changes = Changes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
eth0.100:5000 50 1 2 0 0 0 0 700 7 3 4 0 0 0 0
 short: 1 2 3
";

    #[test]
    fn counters_parse() {
        let all = parse(DEV);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["eth0.100", "lo"]);
        assert_eq!(all["eth0.100"], [5000, 50, 1, 2, 700, 7, 3, 4]);
    }

    #[test]
    fn the_busiest_are_told_and_the_loopback_one_is_last() {
        let mut interfaces = Interfaces::default();
        let all = |busy: &str, bytes: u64| -> BTreeMap<String, Counters> {
            let names = (0..20).map(|index| format!("veth{index:02}")).chain(["lo".into(), "eth0".into()]);
            names
                .map(|name| (name.clone(), [if name == busy { bytes } else { 10 }, 0, 0, 0, 0, 0, 0, 0]))
                .collect()
        };
        let (chosen, left_out) = interfaces.choose(&all("eth0", 5_000));
        assert_eq!((chosen[0].as_str(), chosen.last().unwrap().as_str()), ("eth0", "lo"));
        assert_eq!((chosen.len(), left_out), (INSTANCES_MAX + 1, 14));
        // A load that begins on another one is told from then on.
        let (chosen, _) = interfaces.choose(&all("veth19", 9_000));
        assert_eq!(chosen[0], "veth19");
        assert!(chosen.contains(&"eth0".to_owned()));
    }

    #[test]
    fn a_link_is_told_with_what_it_lacks() {
        let link = |index, name: &str, kind: Option<&str>, is_up| Link {
            index,
            name: name.into(),
            kind: kind.map(str::to_owned),
            is_up,
            is_loopback: name == "lo",
        };
        let card = Agreed {
            index: 7,
            speed_bits_per_s: Some(1e8),
            is_full_duplex: Some(false),
            supported_bits_per_s: Some(1e9),
            ..Agreed::default()
        };
        let veth = Agreed { index: 9, speed_bits_per_s: Some(1e10), ..Agreed::default() };
        let interfaces = Interfaces {
            links: vec![
                link(7, "card", None, true),
                link(8, "down", None, false),
                link(9, "veth", Some("veth"), true),
                link(1, "lo", None, true),
            ],
            agreed: vec![card, veth],
            ..Interfaces::default()
        };
        for (name, speed, lacks) in [
            ("card", Some(1e8), None),
            ("down", None, Some("down has no link")),
            ("veth", None, Some("veth is virtual (veth): it has no line speed")),
            ("lo", None, None),
        ] {
            let mut reading = Reading::default();
            interfaces.link(Place::Of(1), SERVICE, name, &mut reading);
            assert_eq!(reading.value(&format!("nic.service.{name}.speed_bits_per_s")), speed);
            assert_eq!(reading.missing.first().map(|missing| missing.why.as_str()), lacks);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(cut in 0..DEV.len(), noise in "[0-9a-z: é\n]{0,60}") {
            parse(&format!("{}{noise}", &DEV[..cut]));
        }
    }
}
