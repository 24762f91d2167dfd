//! Which virtual host serves a request.
//!
//! server/vhost.c of httpd: the addresses of `<VirtualHost>` are collected in the order of the configuration; a
//! connection looks for its exact address and port, then for its address with any port, then for a wildcard with its
//! port, then for one with any port, then takes the server itself. Where several hosts share such an address, the
//! `Host` of the request is compared with ServerName and ServerAlias of each in order, and the first host is for the
//! rest. <https://httpd.apache.org/docs/2.4/vhosts/details.html>

use crate::services::apache::config::model::Opened;
use crate::services::apache::config::{Evaluation, Placed};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use webdyno_model::service::SettingScope;

/// An address of a virtual host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `None` for all addresses.
    pub ip: Option<IpAddr>,
    /// 0 for all ports.
    pub port: u16,
    /// The host as it is written: requests may ask for it by that.
    pub text: String,
}

/// A virtual host.
#[derive(Debug, Clone)]
pub struct Host<'a> {
    /// Its section.
    pub opened: &'a Opened,
    /// Its addresses; those that are names are not looked up.
    pub addresses: Vec<Address>,
    /// Its ServerName without scheme and port.
    pub name: Option<String>,
    /// Its ServerAlias, patterns as well.
    pub aliases: Vec<String>,
}

impl Host<'_> {
    /// Its first addresses, its name, and its first other ones.
    pub fn scope(&self) -> SettingScope {
        const WORDS_MAX: usize = 4;
        let addresses = self.opened.section.words.iter().take(WORDS_MAX).map(String::as_str);
        let aliases = self.aliases.iter().take(WORDS_MAX).map(String::as_str);
        SettingScope::VirtualHost(
            addresses.chain(self.name.as_deref()).chain(aliases).collect::<Vec<_>>().join(" "),
        )
    }

    /// Whether it may answer on a port.
    pub fn is_on(&self, port: u16) -> bool {
        self.addresses.iter().any(|address| address.port == 0 || address.port == port)
    }

    /// Whether it is the one of a name, without a port.
    pub fn is_named(&self, host: &str) -> bool {
        let named = self.name.iter().any(|name| name.eq_ignore_ascii_case(host));
        named || self.aliases.iter().any(|alias| is_alias(alias, host))
    }
}

/// The hosts behind one address, in the order of the configuration.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Their address.
    pub ip: Option<IpAddr>,
    /// Their port, 0 for all.
    pub port: u16,
    /// Their places in [`Hosts::list`], with the text of the address at each. The first is for requests without a name
    /// that is known.
    pub hosts: Vec<(usize, String)>,
}

/// All virtual hosts.
#[derive(Debug, Clone, Default)]
pub struct Hosts<'a> {
    /// In the order of the configuration.
    pub list: Vec<Host<'a>>,
    chains: HashMap<(Option<IpAddr>, u16), Chain>,
    /// What is not known of them, in words.
    pub undetermined: Vec<String>,
}

impl<'a> Hosts<'a> {
    /// The hosts of a configuration. `inside` gives the directives that stand directly in a section.
    pub fn of(evaluation: &'a Evaluation, inside: &dyn Fn(usize) -> Vec<&'a Placed>) -> Self {
        let mut hosts = Self::default();
        let server_ports = server_ports(inside(0));
        // A host within another is refused by Apache.
        let opened = evaluation.sections.iter().filter(|opened| opened.is(&["VirtualHost"]));
        for opened in opened.filter(|opened| opened.parent.is_none()) {
            let earlier = server_ports.iter().rfind(|(order, _)| *order < opened.order);
            let host = host(opened, &inside(opened.section.id), earlier.map_or(0, |(_, port)| *port));
            let unknown = opened.section.words.len() - host.addresses.len();
            if unknown > 0 {
                hosts.undetermined.push(format!(
                    "{unknown} of the addresses of the virtual host at {} are names, which are not looked up",
                    opened.place()
                ));
            }
            hosts.add(host);
        }
        hosts
    }

    fn add(&mut self, host: Host<'a>) {
        let at = self.list.len();
        let mut before: Option<&Address> = None;
        for address in &host.addresses {
            // `0.0.0.0:80 [::]:80` is one wildcard.
            let again = address.ip.is_none()
                && before.is_some_and(|before| before.ip.is_none() && before.port == address.port);
            before = Some(address);
            if !again {
                let key = (address.ip, address.port);
                let empty = || Chain { ip: key.0, port: key.1, hosts: vec![] };
                self.chains.entry(key).or_insert_with(empty).hosts.push((at, address.text.clone()));
            }
        }
        self.list.push(host);
    }

    /// The host of a section.
    pub fn by_id(&self, id: usize) -> Option<&Host<'a>> {
        let at = self.list.binary_search_by_key(&id, |host| host.opened.section.id).ok()?;
        self.list.get(at)
    }

    /// The addresses with their hosts, in no order.
    pub fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.chains.values()
    }

    /// The hosts among which a connection chooses; `None` when the server itself answers. Without an address, one that
    /// only wildcards name.
    pub fn chain(&self, ip: Option<IpAddr>, port: u16) -> Option<&Chain> {
        let ip = ip.map(|ip| ip.to_canonical());
        let own = ip.and_then(|ip| {
            let exact = self.chains.get(&(Some(ip), port));
            exact.or_else(|| self.chains.get(&(Some(ip), 0)))
        });
        own.or_else(|| self.chains.get(&(None, port))).or_else(|| self.chains.get(&(None, 0)))
    }

    /// The host that serves a request; `None` when the server itself does.
    pub fn serving(&self, ip: Option<IpAddr>, port: u16, name: Option<&str>) -> Option<&Host<'a>> {
        let chain = self.chain(ip, port)?;
        let first = chain.hosts.first().and_then(|(at, _)| self.list.get(*at));
        let (Some(name), 2..) = (name, chain.hosts.len()) else {
            return first;
        };
        let name = without_port(name);
        let name = name.strip_suffix('.').unwrap_or(name);
        let named = |(at, _): &&(usize, String)| self.list.get(*at).is_some_and(|host| host.is_named(name));
        let written = |(_, text): &&(usize, String)| text.eq_ignore_ascii_case(name);
        let found = chain.hosts.iter().find(named).or_else(|| chain.hosts.iter().find(written));
        found.and_then(|(at, _)| self.list.get(*at)).or(first)
    }
}

/// `example.org:80` without its port; `[::1]:80` with its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((before, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !before.ends_with(':') => {
            if before.starts_with('[') == before.ends_with(']') {
                before
            } else {
                host
            }
        }
        _ => host,
    }
}

fn host<'a>(opened: &'a Opened, inside: &[&'a Placed], port: u16) -> Host<'a> {
    let last = |name: &str| inside.iter().rfind(|placed| placed.name.eq_ignore_ascii_case(name));
    let aliases = inside.iter().filter(|placed| placed.name.eq_ignore_ascii_case("ServerAlias"));
    Host {
        opened,
        addresses: opened.section.words.iter().filter_map(|word| address(word, port)).collect(),
        name: last("ServerName").and_then(|placed| server_name(&placed.words().into_iter().next()?)),
        aliases: aliases.flat_map(|placed| placed.words()).collect(),
    }
}

/// The ports that the server's own ServerName gives, with the order of each: a host that tells no port has that of the
/// last one before it.
fn server_ports(inside: Vec<&Placed>) -> Vec<(usize, u16)> {
    let named = inside.into_iter().filter(|placed| placed.name.eq_ignore_ascii_case("ServerName"));
    let port = |placed: &Placed| {
        let word = placed.words().into_iter().next().unwrap_or_default();
        let host = word.split_once("://").map_or(word.as_str(), |(_, host)| host);
        host.split_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    };
    named.map(|placed| (placed.order, port(placed))).collect()
}

/// A ServerName without its scheme and port.
fn server_name(word: &str) -> Option<String> {
    let host = word.split_once("://").map_or(word, |(_, host)| host);
    let host = host.split(':').next().unwrap_or(host);
    (!host.is_empty()).then(|| host.to_owned())
}

/// An address as `<VirtualHost>` has it; `None` for a name, which would have to be looked up.
fn address(word: &str, port: u16) -> Option<Address> {
    let (host, message) = match word.rsplit_once(':') {
        // A star alone is both.
        None if word == "*" => (word, Some(0)),
        Some((host, "*")) => (host, Some(0)),
        Some((host, text)) if !host.contains(':') || host.ends_with(']') => match text.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => return None,
        },
        _ => (word, None),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip = match bare {
        "*" => None,
        _ if bare.eq_ignore_ascii_case("_default_") => None,
        _ => Some(bare.parse::<IpAddr>().ok()?.to_canonical()),
    };
    let is_any = |ip: &IpAddr| ip.is_unspecified() || *ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    Some(Address { ip: ip.filter(|ip| !is_any(ip)), port: message.unwrap_or(port), text: bare.to_owned() })
}

/// Whether a ServerAlias names a host: `*` and `?` in it stand for any characters, in any case.
fn is_alias(alias: &str, host: &str) -> bool {
    if !alias.contains(['*', '?']) {
        return alias.eq_ignore_ascii_case(host);
    }
    let (alias, host) = (alias.to_ascii_lowercase(), host.to_ascii_lowercase());
    crate::services::apache::config::pattern::is_match(&alias, &host)
}
