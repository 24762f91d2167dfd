//! Where a second instance listens: on loopback only, with a port of its own for each port of the original, so that
//! the virtual host that answers a request is the same one.
//!
//! The address at which the original is asked becomes 127.0.0.1. Other addresses become loopback addresses that nobody
//! asks: a virtual host of such an address must not answer for the one that is asked. Forms of addresses:
//! `ap_set_listener` in server/listen.c, `get_addresses` in server/vhost.c and `apr_parse_addr_port`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port on which Apache speaks TLS without being told.
const HTTPS: u16 = 443;

/// The addresses of a second instance.
#[derive(Debug)]
pub struct Addresses {
    /// The port of each port of the original.
    ports: BTreeMap<u16, u16>,
    requested: IpAddr,
    stand_ins: BTreeMap<IpAddr, Ipv4Addr>,
    /// What is listened on, with the address of the original.
    taken: BTreeMap<(IpAddr, u16), String>,
}

/// An address as a configuration gives it.
struct Address<'a> {
    host: Option<&'a str>,
    port: Port,
}

#[derive(Clone, Copy)]
enum Port {
    Number(u16),
    /// `*`
    Any,
    /// The one of the server, if it has one.
    Unsaid,
}

/// The port of a `Listen`.
pub fn port_of(word: &str) -> Option<u16> {
    match parse(word).port {
        Port::Number(port) => Some(port),
        Port::Any | Port::Unsaid => None,
    }
}

impl Addresses {
    /// With the ports by port of the original; `asked` is the address at which the original is asked.
    pub fn new(ports: BTreeMap<u16, u16>, asked: IpAddr) -> Self {
        Self { ports, requested: asked, stand_ins: BTreeMap::new(), taken: BTreeMap::new() }
    }

    /// The arguments of a `Listen`; `None` when another one listens there already, although the original's addresses
    /// are two.
    pub fn listen(&mut self, words: &[String]) -> Option<String> {
        let (first, rest) = words.split_first()?;
        let (host, port) = (parse(first).host, port_of(first)?);
        let own = *self.ports.get(&port)?;
        let wanted = self.host_of_listener(host, own);
        let original = first.trim_start_matches("*:").to_owned();
        if self.taken.get(&(wanted, own)).is_some_and(|taken| *taken != original) {
            return None;
        }
        self.taken.insert((wanted, own), original);
        let mut message = vec![with_port(wanted, own)];
        let is_protocol = |word: &&String| !word.to_ascii_lowercase().starts_with("options=");
        let protocol = rest.iter().find(is_protocol).cloned();
        message.extend(protocol.or_else(|| (port == HTTPS).then(|| "https".to_owned())));
        message.extend(rest.iter().filter(|word| !is_protocol(word)).cloned());
        Some(message.join(" "))
    }

    /// All that listens everywhere listens here on 127.0.0.1; only what has that place taken by another address of
    /// IPv6 gets the one of IPv6.
    fn host_of_listener(&mut self, host: Option<&str>, own: u16) -> IpAddr {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        match host.map(ip) {
            Some(Some(ip)) if !ip.is_unspecified() => self.substitute(ip),
            Some(Some(ip)) if ip.is_ipv6() && self.taken.contains_key(&(loopback, own)) => {
                Ipv6Addr::LOCALHOST.into()
            }
            _ => loopback,
        }
    }

    /// An address of a virtual host; `server_port` is what one without a port means.
    pub fn virtual_host(&mut self, word: &str, server_port: Option<u16>) -> String {
        let Address { host: Some(host), port } = parse(word) else { return word.to_owned() };
        let host = self.host(host);
        match (port, server_port) {
            (Port::Number(port), _) | (Port::Unsaid, Some(port)) => {
                format!("{host}:{}", self.ports.get(&port).copied().unwrap_or(port))
            }
            (Port::Any, _) if word != "*" => format!("{host}:*"),
            _ => host,
        }
    }

    fn host(&mut self, host: &str) -> String {
        match ip(host) {
            Some(ip) if !ip.is_unspecified() => match self.substitute(ip) {
                IpAddr::V6(ip) => format!("[{ip}]"),
                IpAddr::V4(ip) => ip.to_string(),
            },
            _ => host.to_owned(),
        }
    }

    /// The address that stands for one of the original.
    fn substitute(&mut self, ip: IpAddr) -> IpAddr {
        if ip == self.requested {
            return Ipv4Addr::LOCALHOST.into();
        }
        if ip.is_loopback() && ip != IpAddr::from(Ipv4Addr::LOCALHOST) {
            return ip;
        }
        let next = self.stand_ins.len().min(65_000) as u16 + 1;
        let [high, low] = next.to_be_bytes();
        (*self.stand_ins.entry(ip).or_insert(Ipv4Addr::new(127, 87, high, low))).into()
    }
}

/// An IP address, in brackets or not.
fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

fn with_port(ip: IpAddr, port: u16) -> String {
    match ip {
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        IpAddr::V4(ip) => format!("{ip}:{port}"),
    }
}

/// `80`, `*:80`, `host:80`, `[::1]:80`, `host:*`, `host`, `*`.
fn parse(word: &str) -> Address<'_> {
    if let Ok(port) = word.parse() {
        return Address { host: None, port: Port::Number(port) };
    }
    let port = |text: &str| if text == "*" { Some(Port::Any) } else { text.parse().ok().map(Port::Number) };
    let cut = word.rsplit_once(':').and_then(|(host, text)| Some((host, port(text)?)));
    let whole = if word == "*" { Port::Any } else { Port::Unsaid };
    let (host, port) = cut.unwrap_or((word, whole));
    Address { host: Some(host), port }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(asked: &str) -> Addresses {
        Addresses::new(BTreeMap::from([(80, 5080), (443, 5443)]), asked.parse().unwrap())
    }

    /// What the arguments of several `Listen` become, in order.
    fn listens(asked: &str, listens: &[(&str, Option<&str>)]) {
        let mut addresses = addresses(asked);
        for (words, expected) in listens {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(addresses.listen(&words).as_deref(), *expected, "{words:?}");
        }
    }

    #[test]
    fn listeners_get_ports_of_their_own_on_loopback() {
        listens("127.0.0.1", &[("80", Some("127.0.0.1:5080")), ("443", Some("127.0.0.1:5443 https"))]);
        listens("127.0.0.1", &[("443 http", Some("127.0.0.1:5443 http")), ("*:80", Some("127.0.0.1:5080"))]);
        let options = ("80 https options=freebind", Some("127.0.0.1:5080 https options=freebind"));
        listens("127.0.0.1", &[options]);
        listens("127.0.0.1", &[("0.0.0.0:80", Some("127.0.0.1:5080")), ("[::]:80", Some("[::1]:5080"))]);
        listens("::1", &[("[::]:80", Some("127.0.0.1:5080"))]);
        let two = [("10.0.0.5:80", Some("127.0.0.1:5080")), ("10.0.0.6:80", Some("127.87.0.1:5080"))];
        listens("10.0.0.5", &two);
        listens("127.0.0.1", &[("[::1]:443 https", Some("[::1]:5443 https"))]);
        listens("127.0.0.1", &[("www.example.org:80", Some("127.0.0.1:5080"))]);
        // Two addresses that fall together here; one given twice does not start there either.
        listens("127.0.0.1", &[("80", Some("127.0.0.1:5080")), ("127.0.0.1:80", None)]);
        listens("127.0.0.1", &[("80", Some("127.0.0.1:5080")), ("80", Some("127.0.0.1:5080"))]);
    }

    #[test]
    fn virtual_hosts_keep_their_place() {
        let mut addresses = addresses("10.0.0.5");
        for (word, server_port, expected) in [
            ("*:80", None, "*:5080"),
            ("_default_:443", None, "_default_:5443"),
            ("*", None, "*"),
            ("*", Some(80), "*"),
            ("_default_", Some(80), "_default_:5080"),
            ("*:*", Some(80), "*:*"),
            ("10.0.0.5:80", None, "127.0.0.1:5080"),
            ("10.0.0.6:80", None, "127.87.0.1:5080"),
            ("10.0.0.6", Some(80), "127.87.0.1:5080"),
            ("10.0.0.6:*", None, "127.87.0.1:*"),
            ("[2001:db8::1]:443", None, "127.87.0.2:5443"),
            // Somebody asks 10.0.0.5, so the real 127.0.0.1 is another address.
            ("127.0.0.1:80", None, "127.87.0.3:5080"),
            ("[::1]:80", None, "[::1]:5080"),
            ("www.example.org:80", None, "www.example.org:5080"),
            ("*:8080", None, "*:8080"),
            ("10.0.0.6:$port", None, "10.0.0.6:$port"),
        ] {
            assert_eq!(addresses.virtual_host(word, server_port), expected, "{word}");
        }
    }
}
