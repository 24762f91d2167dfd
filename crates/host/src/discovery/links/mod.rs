//! Who serves the connections of a service's processes: pure, on sockets and processes that were read.
//!
//! A client's end is one whose own address nobody listens on. Its server is the process that listens on the other end's
//! address, here or in another network namespace of this machine; else it is on another machine.

use super::diag::{Tcp, TcpState, Unix};
use super::processes::Processes;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// Sockets of the system that any program may have open, and that serve no request of a site.
const SYSTEM: [&str; 6] =
    ["/run/systemd/", "/run/dbus/", "/var/run/dbus/", "/run/nscd/", "/var/run/nscd/", "/var/lib/sss/"];

/// The sockets of one network namespace.
#[derive(Debug, Clone, Default)]
pub struct Space {
    /// The inode that names it.
    pub id: u64,
    /// TCP.
    pub tcp: Vec<Tcp>,
    /// Unix stream sockets.
    pub unix: Vec<Unix>,
}

/// Sockets by what is asked of them.
#[derive(Debug)]
pub struct View<'a> {
    spaces: &'a [Space],
    listening: HashMap<(u64, u16), Vec<(IpAddr, u64)>>,
    /// The connected TCP sockets by their own address and the other side's: the places of namespace and socket. There may be
    /// tens of thousands, so that nothing else is kept of each.
    ends: Vec<(u32, u32)>,
    unix: HashMap<u64, &'a Unix>,
    names: HashMap<&'a str, Vec<u64>>,
    waits_at: HashMap<u64, &'a Unix>,
}

/// A service's processes, as clients.
#[derive(Debug, Clone, Default)]
pub struct Party {
    /// The sockets that they hold.
    pub sockets: HashSet<u64>,
    /// The users that nobody else acts as: a connection that ended before it was seen whose it is, is of its user.
    pub users: BTreeSet<u32>,
    /// The network namespaces that they are in.
    pub spaces: BTreeSet<u64>,
}

/// By what, and whom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contact {
    /// The address: `127.0.0.1:3306`, `unix:/run/mysqld/mysqld.sock`.
    pub by: String,
    /// The sockets of the server: those that listen, and its end of the connection; none when it is elsewhere.
    pub server: Vec<u64>,
    /// The address on another machine.
    pub remote: Option<SocketAddr>,
}

impl<'a> View<'a> {
    /// Orders the sockets of these namespaces.
    pub fn of(spaces: &'a [Space]) -> Self {
        let mut view = Self {
            spaces,
            listening: HashMap::new(),
            ends: vec![],
            unix: HashMap::new(),
            names: HashMap::new(),
            waits_at: HashMap::new(),
        };
        for (space, place) in spaces.iter().zip(0..) {
            for (socket, at) in space.tcp.iter().zip(0..) {
                match socket.state {
                    TcpState::Listening => {
                        let listening = view.listening.entry((space.id, socket.own.port())).or_default();
                        listening.push((socket.own.ip(), socket.inode));
                    }
                    TcpState::Connected => view.ends.push((place, at)),
                }
            }
            for socket in &space.unix {
                view.unix.insert(socket.inode, socket);
                if let Some(name) = socket.name.as_deref().filter(|_| socket.listening) {
                    view.names.entry(name).or_default().push(socket.inode);
                    view.waits_at.extend(socket.waiting.iter().map(|client| (*client, socket)));
                }
            }
        }
        let mut ends = std::mem::take(&mut view.ends);
        ends.sort_by_key(|end| view.sides(*end));
        view.ends = ends;
        view
    }

    /// A connected socket's own address and the other side's.
    fn sides(&self, (space, socket): (u32, u32)) -> Option<(SocketAddr, SocketAddr)> {
        let socket = self.spaces.get(space as usize)?.tcp.get(socket as usize)?;
        Some((socket.own, socket.peer))
    }

    /// The sockets with these sides, each with its namespace.
    fn ends_of(&self, own: SocketAddr, peer: SocketAddr) -> Vec<(u64, u64)> {
        let wanted = Some((own, peer));
        let from = self.ends.partition_point(|end| self.sides(*end) < wanted);
        let ends = self.ends.iter().skip(from).take_while(|end| self.sides(**end) == wanted);
        let known = |(space, socket): &(u32, u32)| {
            let space = self.spaces.get(*space as usize)?;
            Some((space.id, space.tcp.get(*socket as usize)?.inode))
        };
        ends.filter_map(known).collect()
    }

    /// The sockets that listen on an address: those that are bound to it, else those that are bound to all.
    pub fn listening_at(&self, space: u64, address: SocketAddr) -> Vec<u64> {
        let of_port = self.listening.get(&(space, address.port())).map(Vec::as_slice).unwrap_or_default();
        let of = |fits: &dyn Fn(&IpAddr) -> bool| -> Vec<u64> {
            of_port.iter().filter(|(bound, _)| fits(bound)).map(|(_, inode)| *inode).collect()
        };
        let exact = of(&|bound| *bound == address.ip());
        // One that is bound to all of IPv6 most often takes IPv4 as well.
        let of_family = |bound: &IpAddr| bound.is_unspecified() && (bound.is_ipv6() || address.is_ipv4());
        if exact.is_empty() { of(&of_family) } else { exact }
    }

    /// The sockets that listen on the address of a configuration: `127.0.0.1:9000`, `[::1]:9000`, `localhost:9000`,
    /// `unix:/run/x.sock`. `file` tells which of several sockets of that path is meant.
    pub fn listening_as(&self, space: u64, address: &str, file: Option<u64>) -> Vec<u64> {
        if let Some(path) = address.strip_prefix("unix:") {
            return self.listening_at_path(path, file);
        }
        addresses(address)
            .into_iter()
            .map(|one| self.listening_at(space, one))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    /// Another file of the same path is another server, in a mount namespace of its own.
    fn listening_at_path(&self, path: &str, file: Option<u64>) -> Vec<u64> {
        let found = self.names.get(path).cloned().unwrap_or_default();
        let is_it = |inode: &u64| self.unix.get(inode).is_some_and(|socket| socket.file == file);
        let exact: Vec<u64> = found.iter().copied().filter(is_it).collect();
        // A file of an overlay has two numbers: where there is just one of that path, that is it.
        if file.is_some() && (!exact.is_empty() || found.len() > 1) { exact } else { found }
    }

    /// The addresses on which these sockets listen, in the form of [`Contact::by`].
    pub fn addresses_of(&self, sockets: &BTreeSet<u64>) -> Vec<String> {
        let of_tcp = |space: &'a Space| space.tcp.iter().filter(|socket| socket.state == TcpState::Listening);
        let tcp = self.spaces.iter().flat_map(of_tcp).filter(|socket| sockets.contains(&socket.inode));
        let unix = sockets.iter().filter_map(|inode| self.unix.get(inode)).filter(|socket| socket.listening);
        let unix = unix.filter_map(|socket| Some(format!("unix:{}", socket.name.as_ref()?)));
        let all: BTreeSet<String> = tcp.map(|socket| socket.own.to_string()).chain(unix).collect();
        all.into_iter().collect()
    }

    /// All sockets that listen, in every namespace.
    pub fn listening(&self) -> impl Iterator<Item = u64> {
        let tcp = self.listening.values().flatten().map(|(_, inode)| *inode);
        tcp.chain(self.names.values().flatten().copied())
    }

    /// Whom these processes talk to, with the number of connections.
    pub fn contacts(&self, party: &Party, processes: &Processes) -> BTreeMap<Contact, u64> {
        let mut found: BTreeMap<Contact, u64> = BTreeMap::new();
        let mut add = |contact: Option<Contact>| {
            if let Some(contact) = contact {
                *found.entry(contact).or_default() += 1;
            }
        };
        for space in self.spaces.iter().filter(|space| party.spaces.contains(&space.id)) {
            for socket in space.tcp.iter().filter(|socket| socket.state == TcpState::Connected) {
                let held = party.sockets.contains(&socket.inode);
                if held || (party.users.contains(&socket.uid) && is_lost(socket.inode, processes)) {
                    add(self.by_tcp(space.id, socket).filter(|contact| held || contact.remote.is_none()));
                }
            }
        }
        for (inode, socket) in &self.unix {
            let is_of_user = || socket.uid.is_some_and(|uid| party.users.contains(&uid));
            if party.sockets.contains(inode) || (is_of_user() && is_lost(*inode, processes)) {
                add(self.by_unix(socket));
            }
        }
        found
    }

    /// `None` for the server's end of a connection.
    fn by_tcp(&self, space: u64, socket: &Tcp) -> Option<Contact> {
        if !self.listening_at(space, socket.own).is_empty() {
            return None;
        }
        let by = socket.peer.to_string();
        let ends = self.ends_of(socket.peer, socket.own);
        let is_here = ends.iter().any(|(end_space, _)| *end_space == space)
            || socket.peer.ip().is_loopback()
            || socket.peer.ip() == socket.own.ip();
        // A namespace of this machine that has the other end: a container's.
        let server_space = if is_here { Some(space) } else { ends.first().map(|(space, _)| *space) };
        let Some(server_space) = server_space else {
            return Some(Contact { by, server: vec![], remote: Some(socket.peer) });
        };
        let mut server = self.listening_at(server_space, socket.peer);
        if server.is_empty() {
            server.extend(ends.iter().map(|(_, inode)| *inode).filter(|inode| *inode != 0));
        }
        Some(Contact { by, server, remote: None })
    }

    /// `None` for the server's end of a connection, and for a pair that was never bound.
    fn by_unix(&self, socket: &Unix) -> Option<Contact> {
        let (end, waits) = match socket.peer? {
            0 => (None, self.waits_at.get(&socket.inode)?),
            peer => (Some(peer), self.unix.get(&peer)?),
        };
        let name = waits.name.as_deref()?;
        let is_server =
            socket.listening || socket.name.as_deref().is_some_and(|own| self.names.contains_key(own));
        if is_server || SYSTEM.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let mut server = self.listening_at_path(name, waits.file);
        if server.is_empty() {
            server.extend(end);
        }
        Some(Contact { by: format!("unix:{name}"), server, remote: None })
    }
}

/// Whether a connection was seen, and nobody who holds it: it ended, or came, between the two looks.
fn is_lost(inode: u64, processes: &Processes) -> bool {
    inode != 0 && !processes.is_held(inode)
}

/// The addresses that are meant by one of a configuration; none when that is a name of the network.
pub fn addresses(text: &str) -> Vec<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return vec![SocketAddr::new(address.ip().to_canonical(), address.port())];
    }
    let Some((host, port)) = text.rsplit_once(':') else { return vec![] };
    let (Ok(port), "localhost" | "*" | "") = (port.parse(), host) else { return vec![] };
    let loopback: [IpAddr; 2] = [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
    loopback.map(|address| SocketAddr::new(address, port)).into()
}

#[cfg(test)]
mod tests;
