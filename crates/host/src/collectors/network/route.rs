//! Network interfaces and queueing disciplines, as rtnetlink tells them for the network namespace of the reader.
//!
//! Facts: rtnetlink(7), include/uapi/linux/{if_link,rtnetlink,pkt_sched,gen_stats}.h. No rights are needed.

use super::shaping;
use crate::os::netlink::{attribute, attributes, dump, i32_at, text, u32_at, u64_at};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;

const RTM_GETLINK: u16 = 18;
const RTM_GETQDISC: u16 = 38;
const RTM_GETTCLASS: u16 = 42;

const IFINFOMSG_LEN: usize = 16;
const TCMSG_LEN: usize = 20;

/// `IFF_UP`, `IFF_LOOPBACK`.
const UP: u32 = 1;
const LOOPBACK: u32 = 8;

/// The parent of what is the root of an interface: `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Its number.
    pub index: i32,
    /// Its name.
    pub name: String,
    /// What drives it when no hardware does: `veth`, `bridge`, `bond`..; `None` also for what says nothing of it.
    pub kind: Option<String>,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// Whether it is switched on and hears the other side.
    pub is_up: bool,
}

/// All interfaces.
pub(crate) fn links() -> io::Result<Vec<Link>> {
    // IFLA_EXT_MASK with RTEXT_FILTER_SKIP_STATS: no counters, they are long.
    let mut body = vec![0; IFINFOMSG_LEN];
    body.extend(crate::os::netlink::encoded(29, &8u32.to_ne_bytes()));
    let mut links = vec![];
    dump(NETLINK_ROUTE, RTM_GETLINK, &body, |body| links.extend(parse_link(body)))?;
    Ok(links)
}

/// A message `ifinfomsg`, then attributes `IFLA_IFNAME` 3, `IFLA_LINKINFO` 18 with `IFLA_INFO_KIND` 1, `IFLA_CARRIER` 33.
fn parse_link(body: &[u8]) -> Option<Link> {
    let (index, flags) = (i32_at(body, 4)?, u32_at(body, 8)?);
    let rest = body.get(IFINFOMSG_LEN..)?;
    let mut link = Link { index, is_loopback: flags & LOOPBACK != 0, ..Link::default() };
    let mut carrier = false;
    for (kind, value) in attributes(rest) {
        match kind {
            3 => link.name = text(value),
            18 => link.kind = attribute(value, 1).map(text),
            33 => carrier = value.first() == Some(&1),
            _ => {}
        }
    }
    link.is_up = carrier && flags & UP != 0;
    (!link.name.is_empty()).then_some(link)
}

/// A queueing discipline, or a class of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Queue {
    /// The interface it sends through.
    pub interface: i32,
    /// Its handle, `MAJOR:MINOR` as 16 bits each.
    pub handle: u32,
    /// Whether it is the first one of its interface (a class: of its discipline).
    pub is_root: bool,
    /// `tbf`, `htb`, `fq_codel`..
    pub kind: String,
    /// The rate that it lets through at most, in bits per second.
    pub rate_bits_per_s: Option<f64>,
    /// What it counted.
    pub stats: Stats,
}

/// What a queue counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub backlog_packets: u32,
    pub backlog_bytes: u32,
    pub drops: u32,
    pub overlimits: u32,
}

impl Queue {
    /// Its handle as `tc` writes it: of a discipline without the zero.
    pub fn handle_text(&self) -> String {
        let (major, minor) = (self.handle >> 16, self.handle & 0xffff);
        match minor {
            0 => format!("{major:x}:"),
            minor => format!("{major:x}:{minor:x}"),
        }
    }
}

/// The queueing disciplines of all interfaces.
pub(crate) fn disciplines() -> io::Result<Vec<Queue>> {
    let mut found = vec![];
    dump(NETLINK_ROUTE, RTM_GETQDISC, &[0; TCMSG_LEN], |body| {
        found.extend(parse_queue(body, shaping::of_discipline));
    })?;
    Ok(found)
}

/// The classes of an interface.
pub(crate) fn classes(interface: i32) -> io::Result<Vec<Queue>> {
    let mut found = vec![];
    let mut body = [0; TCMSG_LEN];
    body[4..8].copy_from_slice(&interface.to_ne_bytes());
    dump(NETLINK_ROUTE, RTM_GETTCLASS, &body, |body| found.extend(parse_queue(body, shaping::of_class)))?;
    Ok(found)
}

/// A message `tcmsg`, then attributes `TCA_KIND` 1, `TCA_OPTIONS` 2, `TCA_STATS2` 7.
fn parse_queue(body: &[u8], rate: fn(&str, &[u8]) -> Option<f64>) -> Option<Queue> {
    let (interface, handle, parent) = (i32_at(body, 4)?, u32_at(body, 8)?, u32_at(body, 12)?);
    let rest = body.get(TCMSG_LEN..)?;
    let kind = text(attribute(rest, 1)?);
    let rate_bits_per_s = attribute(rest, 2).and_then(|options| rate(&kind, options));
    let stats = attribute(rest, 7).and_then(parse_stats)?;
    Some(Queue { interface, handle, is_root: parent == ROOT, kind, rate_bits_per_s, stats })
}

/// `TCA_STATS_BASIC` 1 (`gnet_stats_basic`), `TCA_STATS_QUEUE` 3 (`gnet_stats_queue`), `TCA_STATS_PKT64` 8.
fn parse_stats(stats: &[u8]) -> Option<Stats> {
    let basic = attribute(stats, 1)?;
    let packets64 = attribute(stats, 8).and_then(|value| u64_at(value, 0));
    let mut found = Stats {
        sent_bytes: u64_at(basic, 0)?,
        sent_packets: packets64.or_else(|| u32_at(basic, 8).map(u64::from))?,
        ..Stats::default()
    };
    let queue = attribute(stats, 3)?;
    found.backlog_packets = u32_at(queue, 0)?;
    found.backlog_bytes = u32_at(queue, 4)?;
    found.drops = u32_at(queue, 8)?;
    found.overlimits = u32_at(queue, 16)?;
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::netlink::encoded;
    use proptest::prelude::*;

    fn message(kind: &str, options: &[u8]) -> Vec<u8> {
        let basic = [&1_000u64.to_ne_bytes()[..], &7u32.to_ne_bytes()].concat();
        let queue = [3u32, 300, 5, 0, 9].map(u32::to_ne_bytes).concat();
        let stats = [encoded(1, &basic), encoded(3, &queue)].concat();
        let header = [0u32, 2, 0x1_0000, ROOT, 0].map(u32::to_ne_bytes).concat();
        let name = encoded(1, format!("{kind}\0").as_bytes());
        [header, name, encoded(2, options), encoded(7, &stats)].concat()
    }

    #[test]
    fn a_discipline_parses() {
        let found = parse_queue(&message("pfifo_fast", &[]), shaping::of_discipline).unwrap();
        let stats = Stats {
            sent_bytes: 1_000,
            sent_packets: 7,
            backlog_packets: 3,
            backlog_bytes: 300,
            drops: 5,
            overlimits: 9,
        };
        assert_eq!((found.stats, found.is_root, found.interface), (stats, true, 2));
        assert_eq!((found.handle_text(), found.rate_bits_per_s), ("1:".into(), None));
        assert_eq!(Queue { handle: 0x8001_00a0, ..found }.handle_text(), "8001:a0");
    }

    #[test]
    fn this_machine_has_a_loopback_interface() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(lo.is_loopback && lo.index == 1, "{lo:?}");
        disciplines().unwrap();
    }

    proptest! {
        // Torn and strange messages give nothing, never a panic.
        #[test]
        fn any_message_is_survived(cut in 0usize..160, noise in prop::collection::vec(any::<u8>(), 0..120)) {
            for kind in ["tbf", "htb", "netem", "cake"] {
                let whole = message(kind, &noise);
                parse_queue(&whole, shaping::of_discipline);
                parse_queue(&whole, shaping::of_class);
                parse_queue(&whole[..cut.min(whole.len())], shaping::of_discipline);
            }
            parse_queue(&noise, shaping::of_class);
            parse_link(&noise);
        }
    }
}
