//! Cables between hosts: which addresses and routes each host has, and the commands that make them.
//!
//! Facts: ip-link(8), ip-route(8), veth(4), tc-tbf(8) (`latency`: the longest wait in its queue; `burst` must hold what is
//! sent between two ticks), ip-sysctl.rst (ip_forward).

use super::ToolRunner;
use crate::packages;
use crate::scenario::Link;
use crate::units;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use webdyno_host::visibility::network_namespace::on_own_thread;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// What a shaper without a given one lets wait.
const QUEUE: &str = "50ms";

/// The shaper's bucket holds this long of its rate, and two full frames at least.
const BURST_S: f64 = 0.005;
/// Two Ethernet frames.
const BURST_BYTES_MIN: u64 = 3100;

/// The most links of a scenario: each has a number in its addresses.
const LINKS_MAX: usize = 200;

/// The end of a link in a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnd {
    /// Number of the link.
    pub link: usize,
    /// 0 or 1.
    pub side: usize,
    /// Its interface: `eth0`.
    pub interface: String,
}

impl LinkEnd {
    fn address(&self) -> String {
        address(self.link, self.side)
    }
}

fn address(link: usize, side: usize) -> String {
    format!("10.80.{link}.{}", side + 1)
}

/// All links, seen from the hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnds {
    ends: BTreeMap<String, Vec<LinkEnd>>,
    links: Vec<[String; 2]>,
}

impl LinkEnds {
    /// The net of a scenario's hosts. A usage error when a link ends at a host that is not there.
    pub fn of(hosts: &[String], links: &[Link]) -> Result<Self> {
        if links.len() > LINKS_MAX {
            return Err(UserError::usage(format!(
                "{} links are too many: {LINKS_MAX} is the most",
                links.len()
            )));
        }
        let mut ends: BTreeMap<String, Vec<LinkEnd>> =
            hosts.iter().map(|host| (host.clone(), vec![])).collect();
        for (number, link) in links.iter().enumerate() {
            for (side, host) in link.ends.iter().enumerate() {
                let of_host = ends
                    .get_mut(host)
                    .ok_or_else(|| UserError::usage(format!("a link ends at `{host}`, which is no host")))?;
                let interface = format!("eth{}", of_host.len());
                of_host.push(LinkEnd { link: number, side, interface });
            }
        }
        Ok(Self { ends, links: links.iter().map(|link| link.ends.clone()).collect() })
    }

    /// The ends in a host.
    pub fn ends_of_host(&self, host: &str) -> &[LinkEnd] {
        self.ends.get(host).map_or(&[], Vec::as_slice)
    }

    /// The first step from a host to every other one that can be reached: the link to leave by.
    fn first_steps(&self, from: &str) -> BTreeMap<&str, usize> {
        let mut steps: BTreeMap<&str, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for end in self.ends_of_host(at) {
                let Some(other) = self.links.get(end.link).map(|ends| ends[1 - end.side].as_str()) else {
                    continue;
                };
                let first = steps.get(at).copied().unwrap_or(end.link);
                if other != from && !steps.contains_key(other) {
                    steps.insert(other, first);
                    queue.push_back(other);
                }
            }
        }
        steps
    }

    /// The names that a host knows, with addresses: of the others the one on the common link, else the one that faces it.
    pub fn names(&self, host: &str) -> Vec<(String, String)> {
        let mut names = vec![];
        for other in self.ends.keys().filter(|other| *other != host) {
            // The last step towards the host is the first one from it.
            let facing = self.first_steps(other).get(host).copied();
            let end = self.ends_of_host(other).iter().find(|end| Some(end.link) == facing);
            names.extend(end.map(|end| (other.clone(), end.address())));
        }
        names
    }

    /// The networks that a host reaches through others: network and next address.
    pub fn routes(&self, host: &str) -> Vec<(String, String)> {
        let own: BTreeSet<usize> = self.ends_of_host(host).iter().map(|end| end.link).collect();
        let steps = self.first_steps(host);
        let mut routes = vec![];
        for (number, ends) in self.links.iter().enumerate().filter(|(number, _)| !own.contains(number)) {
            let first = ends.iter().find_map(|end| steps.get(end.as_str()));
            let by = first.and_then(|first| self.ends_of_host(host).iter().find(|end| end.link == *first));
            routes.extend(by.map(|end| (format!("10.80.{number}.0/24"), address(end.link, 1 - end.side))));
        }
        routes
    }

    /// What ip(8) does in a host once the links are there.
    fn commands(&self, host: &str) -> String {
        let mut text = "link set lo up\n".to_owned();
        for end in self.ends_of_host(host) {
            text += &format!(
                "address add {}/24 dev {}\nlink set {} up\n",
                end.address(),
                end.interface,
                end.interface
            );
        }
        text
    }

    fn route_commands(&self, host: &str) -> String {
        self.routes(host).iter().map(|(network, next)| format!("route add {network} via {next}\n")).collect()
    }

    /// Lays all cables. `pids` are the hosts' processes 1.
    pub fn connect(&self, tools: &ToolRunner, pids: &BTreeMap<String, u32>) -> Result<()> {
        let pid = |host: &str| pids.get(host).copied().unwrap_or_default();
        let mut text = String::new();
        for (number, ends) in self.links.iter().enumerate() {
            let interface = |side: usize| {
                let own =
                    self.ends_of_host(&ends[side]).iter().find(|end| (end.link, end.side) == (number, side));
                own.map(|end| end.interface.as_str()).unwrap_or_default()
            };
            text += &format!(
                "link add name {} netns {} type veth peer name {} netns {}\n",
                interface(0),
                pid(&ends[0]),
                interface(1),
                pid(&ends[1])
            );
        }
        tools.run_with_input(packages::IP, &["-batch", "-"], &text)?;
        for (host, pid) in pids {
            in_network_of(*pid, || {
                tools.run_with_input(packages::IP, &["-batch", "-"], &self.commands(host))
            })?;
            if self.ends_of_host(host).len() > 1 {
                set(*pid, "net.ipv4.ip_forward", "1")?;
            }
        }
        // A way leads only through what is up.
        for (host, pid) in pids.iter().filter(|(host, _)| !self.route_commands(host).is_empty()) {
            in_network_of(*pid, || {
                tools.run_with_input(packages::IP, &["-batch", "-"], &self.route_commands(host))
            })?;
        }
        Ok(())
    }

    /// Shapes what the ends of a link send, also anew.
    pub fn shape(&self, tools: &ToolRunner, link: &Link, pids: &BTreeMap<String, u32>) -> Result<()> {
        let number = self.links.iter().position(|ends| *ends == link.ends).ok_or_else(|| {
            UserError::usage(format!("there is no link between `{}` and `{}`", link.ends[0], link.ends[1]))
        })?;
        for (side, rate) in [&link.rate_there, &link.rate_back].into_iter().enumerate() {
            let end =
                self.ends_of_host(&link.ends[side]).iter().find(|end| (end.link, end.side) == (number, side));
            let (Some(rate), Some(end)) = (rate, end) else { continue };
            let words = shaper(&end.interface, rate, link.queue.as_deref())?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            in_network_of(pids.get(&link.ends[side]).copied().unwrap_or_default(), || {
                tools.run(packages::TC, &words)
            })?;
        }
        Ok(())
    }
}

/// The arguments of tc(8) that shape what an interface sends.
fn shaper(interface: &str, rate: &str, queue: Option<&str>) -> Result<Vec<String>> {
    let bits_per_s = units::bits_per_s(rate)?;
    let burst = ((bits_per_s as f64 / 8.0 * BURST_S) as u64).max(BURST_BYTES_MIN);
    let words = format!(
        "qdisc replace dev {interface} root tbf rate {bits_per_s}bit burst {burst} latency {}",
        queue.unwrap_or(QUEUE)
    );
    Ok(words.split(' ').map(str::to_owned).collect())
}

/// Runs something in the network of a process.
pub fn in_network_of<T: Send>(pid: u32, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    on_own_thread(pid, act)
        .map_err(|error| io_error("enter", format!("the network of process {pid}"), &error))?
}

/// Sets a kernel setting of the network of a process.
pub fn set(pid: u32, name: &str, value: &str) -> Result<()> {
    in_network_of(pid, || super::settings::write_setting(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(hosts: &[&str], links: &[[&str; 2]]) -> LinkEnds {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let link = |ends: &[&str; 2]| Link {
            ends: ends.map(str::to_owned),
            rate_there: None,
            rate_back: None,
            queue: None,
        };
        LinkEnds::of(&hosts, &links.iter().map(link).collect::<Vec<_>>()).unwrap()
    }

    fn shown(pairs: &[(String, String)]) -> String {
        pairs.iter().map(|(a, b)| format!("{a}={b}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn two_hosts_see_each_other() {
        let net = net(&["client", "server"], &[["client", "server"]]);
        assert_eq!(shown(&net.names("client")), "server=10.80.0.2");
        assert_eq!(shown(&net.names("server")), "client=10.80.0.1");
        assert_eq!(net.routes("client"), []);
        assert_eq!(
            net.commands("server"),
            "link set lo up\naddress add 10.80.0.2/24 dev eth0\nlink set eth0 up\n"
        );
    }

    #[test]
    fn a_host_behind_another_is_reached_through_it() {
        let net = net(&["client", "database", "server"], &[["client", "server"], ["server", "database"]]);
        assert_eq!(shown(&net.names("client")), "database=10.80.1.2 server=10.80.0.2");
        assert_eq!(shown(&net.names("database")), "client=10.80.0.1 server=10.80.1.1");
        assert_eq!(shown(&net.routes("client")), "10.80.1.0/24=10.80.0.2");
        assert_eq!(shown(&net.routes("database")), "10.80.0.0/24=10.80.1.1");
        assert_eq!(net.routes("server"), []);
        assert_eq!(
            net.ends_of_host("server").iter().map(|end| end.interface.as_str()).collect::<Vec<_>>(),
            ["eth0", "eth1"]
        );
    }

    #[test]
    fn in_a_ring_the_common_link_is_taken() {
        let links = [["a", "b"], ["b", "c"], ["c", "a"]];
        let net = net(&["a", "b", "c"], &links);
        assert_eq!(shown(&net.names("a")), "b=10.80.0.2 c=10.80.2.1");
        assert_eq!(shown(&net.routes("a")), "10.80.1.0/24=10.80.0.2");
    }

    #[test]
    fn a_host_that_nobody_reaches_has_no_address() {
        let net = net(&["a", "b", "c"], &[["a", "b"]]);
        assert_eq!(shown(&net.names("c")), "");
        assert_eq!(shown(&net.names("a")), "b=10.80.0.2");
    }

    #[test]
    fn rates_are_shaped() {
        let words = shaper("eth0", "120mbit", None).unwrap().join(" ");
        assert_eq!(words, "qdisc replace dev eth0 root tbf rate 120000000bit burst 75000 latency 50ms");
        let words = shaper("eth1", "1500kbit", Some("10ms")).unwrap().join(" ");
        assert_eq!(words, "qdisc replace dev eth1 root tbf rate 1500000bit burst 3100 latency 10ms");
        assert!(shaper("eth0", "fast", None).is_err());
    }
}
