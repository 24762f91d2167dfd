//! Queueing disciplines: the rate to which a link is shaped, what waits there, and what was dropped; of our network
//! namespace, and of the service's where that is another one.
//!
//! Facts: rtnetlink(7), tc(8). The root discipline of an interface counts all that leaves through it. What shapes below it,
//! and the classes of htb, are told as parts: `INTERFACE.HANDLE`. Values are numbers, so the kind is not among them: a
//! rate is told for those that shape.

use crate::collectors::network::route;
use crate::collectors::network::route::{Link, Queue};
use crate::collectors::network::{Place, SERVICE, Whereabouts};
use crate::collectors::on_change::{Changes, on_change};
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;

/// Interfaces of a namespace that are told, and parts of them.
const INTERFACES_MAX: usize = 8;
const PARTS_MAX: usize = 8;

/// Readings after which the names of interfaces are asked for anew.
const LINKS_EVERY: u64 = 30;

/// Disciplines of which only the classes have rates, and those are not read.
const OTHER_SHAPERS: [&str; 2] = ["hfsc", "cbq"];

/// What there is to tell of one namespace.
#[derive(Debug, Default, PartialEq)]
struct Queues {
    /// Root disciplines by the name of their interface.
    roots: Vec<(String, Queue)>,
    /// What shapes below them, by interface and handle.
    parts: Vec<(String, Queue)>,
}

impl Queues {
    /// Takes from all disciplines, and from the classes of those that shape by class, what is told.
    fn of(links: &[Link], disciplines: Vec<Queue>, classes: &[Queue]) -> Self {
        let name = |queue: &Queue| {
            let link = links.iter().find(|link| link.index == queue.interface)?;
            Some(link.name.clone())
        };
        let mut queues = Self::default();
        for mut queue in disciplines {
            // What has no queue counts nothing.
            let Some(interface) = name(&queue).filter(|_| queue.kind != "noqueue") else {
                continue;
            };
            if queue.is_root {
                let mut roots =
                    classes.iter().filter(|class| class.is_root && class.interface == queue.interface);
                if let (Some(class), None) = (roots.next(), roots.next()) {
                    // All goes through the only class at the root: its ceiling is that of the link.
                    queue.rate_bits_per_s = queue.rate_bits_per_s.or(class.rate_bits_per_s);
                }
                queues.roots.push((interface, queue));
            } else if queue.rate_bits_per_s.is_some() {
                queues.parts.push((format!("{interface}.{}", queue.handle_text()), queue));
            }
        }
        for class in classes.iter().filter(|class| class.rate_bits_per_s.is_some()) {
            if let Some(interface) = name(class) {
                queues.parts.push((format!("{interface}.{}", class.handle_text()), class.clone()));
            }
        }
        let busiest = |all: &mut Vec<(String, Queue)>, most: usize| {
            all.sort_by_key(|(name, q)| {
                (q.rate_bits_per_s.is_none(), Reverse(q.stats.sent_bytes), name.clone())
            });
            all.truncate(most);
        };
        busiest(&mut queues.roots, INTERFACES_MAX);
        busiest(&mut queues.parts, PARTS_MAX);
        queues
    }
}

fn push(metric: &str, queue: &Queue, reading: &mut Reading) {
    let stats = &queue.stats;
    reading.push_some(format!("{metric}.rate_bits_per_s"), queue.rate_bits_per_s);
    reading.push(format!("{metric}.sent_bytes"), stats.sent_bytes as f64);
    reading.push(format!("{metric}.sent_packets_count"), stats.sent_packets as f64);
    reading.push(format!("{metric}.backlog_bytes"), f64::from(stats.backlog_bytes));
    reading.push(format!("{metric}.backlog_packets_count"), f64::from(stats.backlog_packets));
    reading.push(format!("{metric}.drops_count"), f64::from(stats.drops));
    reading.push(format!("{metric}.overlimits_count"), f64::from(stats.overlimits));
}

/// The collector.
#[derive(Debug, Default)]
pub struct Qdisc {
    whereabouts: Whereabouts,
    changes: Changes,
    links: HashMap<Place, Vec<Link>>,
    readings_count: u64,
}

impl Qdisc {
    /// What shapes in the namespace of this thread.
    fn queues(links: &mut Vec<Link>, readings_count: u64) -> io::Result<(Queues, Vec<String>)> {
        let disciplines = route::disciplines()?;
        let unknown = |queue: &Queue| !links.iter().any(|link| link.index == queue.interface);
        if readings_count.is_multiple_of(LINKS_EVERY) || disciplines.iter().any(unknown) {
            *links = route::links()?;
        }
        let (mut classes, mut others) = (vec![], vec![]);
        for queue in &disciplines {
            if queue.kind == "htb" {
                // The interface may be gone by now.
                classes.extend(route::classes(queue.interface).unwrap_or_default());
            }
            others.extend(OTHER_SHAPERS.contains(&queue.kind.as_str()).then(|| queue.kind.clone()));
        }
        classes.sort_by_key(|class: &Queue| (class.interface, class.handle));
        classes.dedup_by_key(|class| (class.interface, class.handle));
        others.sort();
        others.dedup();
        Ok((Queues::of(links, disciplines, &classes), others))
    }

    fn read_place(&mut self, place: Place, prefix: &str, reading: &mut Reading) {
        let links = self.links.entry(place).or_default();
        let count = self.readings_count;
        match place.within(|| Self::queues(links, count)) {
            Ok((queues, others)) => {
                for (interface, queue) in &queues.roots {
                    push(&format!("qdisc.{prefix}{interface}"), queue, reading);
                }
                for (part, queue) in &queues.parts {
                    push(&format!("qdisc.{prefix}part.{part}"), queue, reading);
                }
                for kind in others {
                    let why = format!("the rates of {kind} classes are not read");
                    reading.lacks(
                        format!("qdisc.{prefix}*.rate_bits_per_s"),
                        why,
                        "tc -s class show dev INTERFACE",
                    );
                }
            }
            Err(error) => {
                let why = format!("the kernel does not tell its queueing disciplines: {error}");
                let signal = format!("qdisc.{prefix}").trim_end_matches('.').to_owned();
                reading.lacks(signal, why, "run webdyno as root");
            }
        }
    }
}

/// What is told of a queue, how it combines, and how a line of `tc -s` shows it, from that of its handle on.
const METRICS: [(&str, bool, &str); 7] = [
    ("rate_bits_per_s", false, RATE),
    ("sent_bytes", true, "/Sent/ {print $2; exit}"),
    ("sent_packets_count", true, "/Sent/ {print $4; exit}"),
    ("backlog_bytes", false, BACKLOG),
    ("backlog_packets_count", false, "$1 == \"backlog\" {print $3+0; exit}"),
    ("drops_count", true, "/dropped/ {sub(/.*dropped /, \"\"); print $1+0; exit}"),
    ("overlimits_count", true, "/overlimits/ {sub(/.*overlimits /, \"\"); print $1+0; exit}"),
];

/// tc writes rates as `1500Kbit`, and the ceiling of a class where there is one.
const RATE: &str = "/ (rate|bandwidth|ceil) / {for (i = 1; i < NF; i++) if ($i ~ /^(rate|bandwidth|ceil)$/) r = $(i+1); \
                    u = 1; if (r ~ /Kbit/) u = 1e3; if (r ~ /Mbit/) u = 1e6; if (r ~ /Gbit/) u = 1e9; printf \
                    \"%.0f\\n\", r * u; exit}";

/// tc writes lengths from 10 KiB on as `12Kb`: only then is the figure rounded.
const BACKLOG: &str =
    "$1 == \"backlog\" {u = 1; if ($2 ~ /Kb/) u = 1024; if ($2 ~ /Mb/) u = 1048576; print $2 * u; exit}";

impl Collector for Qdisc {
    fn name(&self) -> &'static str {
        "qdisc"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![];
        for (prefix, enter) in [("", ""), (SERVICE, "nsenter -t PID -n ")] {
            for (what, rises, show) in METRICS {
                // Of an interface: its classes come after the root discipline, with the rate that htb itself does not have.
                let classes = if what == "rate_bits_per_s" {
                    format!("; {enter}tc class show dev INSTANCE | grep ' root '")
                } else {
                    String::new()
                };
                let root =
                    format!("{{ {enter}tc -s qdisc show dev INSTANCE root{classes}; }} | awk '{show}'");
                let part = format!(
                    "i=INSTANCE; {{ {enter}tc -s qdisc show dev ${{i%.*}}; {enter}tc -s class show dev ${{i%.*}}; }} | awk \
                     -v h=${{i##*.}} '$3 == h {{f = 1}} f && {show}'"
                );
                for (name, command) in [
                    (format!("qdisc.{prefix}*.{what}"), root),
                    (format!("qdisc.{prefix}part.*.{what}"), part),
                ] {
                    let metric = if rises {
                        counter(name, "rtnetlink(7)", command)
                    } else {
                        gauge(name, "rtnetlink(7)", command)
                    };
                    metrics.push(on_change(metric));
                }
            }
        }
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let places = self.whereabouts.places(target, &mut reading);
        self.links.retain(|known, _| places.iter().any(|(place, _)| place == known));
        for (place, prefix) in places {
            self.read_place(place, prefix, &mut reading);
        }
        self.readings_count += 1;
        self.changes.only(reading, |_| true)
    }

    fn mark_undelivered(&mut self) {
        self.changes = Changes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::network::route::Stats;

    fn queue(interface: i32, handle: u32, is_root: bool, kind: &str, rate: Option<f64>, sent: u64) -> Queue {
        let stats = Stats { sent_bytes: sent, ..Stats::default() };
        Queue { interface, handle, is_root, kind: kind.into(), rate_bits_per_s: rate, stats }
    }

    fn links() -> Vec<Link> {
        let link = |index, name: &str| Link { index, name: name.into(), ..Link::default() };
        vec![link(1, "lo"), link(2, "eth0"), link(3, "eth1")]
    }

    #[test]
    fn the_rate_of_the_only_class_is_that_of_the_link() {
        let root = queue(2, 0x1_0000, true, "htb", None, 10);
        let class = |minor: u32, is_root, rate| {
            queue(2, 0x1_0000 + minor, is_root, "htb", Some(rate), u64::from(minor))
        };
        let one = [class(1, true, 1e7), class(10, false, 5e6)];
        let two = [class(1, true, 1e7), class(2, true, 5e6)];
        for (classes, rate) in [(&one, Some(1e7)), (&two, None)] {
            let queues = Queues::of(&links(), vec![root.clone()], classes);
            assert_eq!(queues.roots[0].0, "eth0");
            assert_eq!(queues.roots[0].1.rate_bits_per_s, rate);
            assert_eq!(queues.parts.len(), 2);
        }
        let names: Vec<_> =
            Queues::of(&links(), vec![root], &one).parts.into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["eth0.1:a", "eth0.1:1"]);
    }

    #[test]
    fn what_shapes_comes_first_and_what_has_no_queue_is_left_out() {
        let disciplines = vec![
            queue(1, 0, true, "noqueue", None, 0),
            queue(2, 0x1_0000, true, "prio", None, 1_000),
            queue(2, 0x20_0000, false, "tbf", Some(1e6), 5),
            queue(2, 0x30_0000, false, "pfifo", None, 5),
            queue(3, 0x1_0000, true, "tbf", Some(1e9), 1),
            queue(9, 0x1_0000, true, "tbf", Some(1e9), 1),
        ];
        let queues = Queues::of(&links(), disciplines, &[]);
        let names =
            |all: &[(String, Queue)]| all.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!((names(&queues.roots), names(&queues.parts)), ("eth1 eth0".into(), "eth0.20:".into()));
    }
}
