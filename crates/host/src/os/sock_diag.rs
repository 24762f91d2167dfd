//! The sockets of the reader's network namespace, asked for through netlink.
//!
//! Facts: sock_diag(7), include/uapi/linux/inet_diag.h; net/ipv4/inet_diag.c, whose `inet_diag_dump_icsk` leaves out what
//! has another port than the one that is asked for, and walks no connections when only listeners are asked for. No
//! rights are needed; a sandbox may refuse it.
//!
//! Fields are read in place, without building a value of each socket: a table of 20,000 is read every few seconds.

use super::netlink::{attribute, dump, encoded, u32_at};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// `IPPROTO_TCP`, `IPPROTO_UDP`.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Connection states of include/net/tcp_states.h, as bits: `1 << state`.
pub(crate) mod state {
    pub(crate) const ESTABLISHED: u8 = 1;
    pub(crate) const SYN_SENT: u8 = 2;
    pub(crate) const TIME_WAIT: u8 = 6;
    pub(crate) const CLOSE: u8 = 7;
    pub(crate) const CLOSE_WAIT: u8 = 8;
    pub(crate) const LISTEN: u8 = 10;
    pub(crate) const CLOSING: u8 = 11;
}

/// A set of states.
pub(crate) fn states(all: impl IntoIterator<Item = u8>) -> u32 {
    all.into_iter().fold(0, |set, state| set | 1 << state)
}

/// Every state that a connection may be in.
pub(crate) fn connected() -> u32 {
    states((state::ESTABLISHED..=state::CLOSING).filter(|s| ![state::CLOSE, state::LISTEN].contains(s)))
}

/// Which sockets are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Query {
    pub protocol: u8,
    pub states: u32,
    /// 0 is any.
    pub own_port: u16,
    /// 0 is any.
    pub peer_port: u16,
    /// The first and the last of the own ports; `None` is any. The kernel leaves the others out, which is cheaper by far
    /// than to tell them.
    pub own_ports: Option<(u16, u16)>,
    /// Whether the state of each connection is told, too ([`Entry::awaits_answer`]).
    pub with_info: bool,
}

/// A socket in the kernel's answer: `struct inet_diag_msg`, 72 bytes, and attributes behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a>(&'a [u8; ENTRY_LEN], &'a [u8]);

const ENTRY_LEN: usize = 72;

impl<'a> Entry<'a> {
    pub(crate) fn of(body: &'a [u8]) -> Option<Self> {
        body.split_first_chunk().map(|(entry, attributes)| Self(entry, attributes))
    }

    pub(crate) fn state(self) -> u8 {
        self.0[1]
    }

    /// Its own address and port.
    pub(crate) fn own(self) -> (IpAddr, u16) {
        (self.address(8), self.port(4))
    }

    /// Address and port of the other side.
    pub(crate) fn peer(self) -> (IpAddr, u16) {
        (self.address(24), self.port(6))
    }

    /// Names the socket as long as the machine runs.
    pub(crate) fn cookie(self) -> [u8; 8] {
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&self.0[44..52]);
        cookie
    }

    /// Of a listening socket: the connections that wait to be accepted.
    pub(crate) fn receive_queue(self) -> u32 {
        self.number(56)
    }

    /// Of a listening socket: the most that may wait. Of a connection: bytes that were handed over and that the other side has
    /// not confirmed.
    pub(crate) fn send_queue(self) -> u32 {
        self.number(60)
    }

    pub(crate) fn uid(self) -> u32 {
        self.number(64)
    }

    /// 0 when no process has it.
    pub(crate) fn inode(self) -> u32 {
        self.number(68)
    }

    pub(crate) fn own_port(self) -> u16 {
        self.port(4)
    }

    /// Whether something was sent on the connection that is not answered; `None` where the kernel was not asked, or cannot tell.
    pub(crate) fn awaits_answer(self) -> Option<bool> {
        awaits_answer(attribute(self.1, INFO)?)
    }

    /// How long ago the question was sent that is not answered, in milliseconds. `None` where none is known to wait.
    pub(crate) fn waited_ms(self) -> Option<u32> {
        times(attribute(self.1, INFO)?)?.0.filter(|_| self.awaits_answer() == Some(true))
    }

    /// Whether the other side waits for an answer: something came in, and nothing was sent since. `None` where the kernel was
    /// not asked, or cannot tell.
    pub(crate) fn owes_answer(self) -> Option<bool> {
        owes_answer(attribute(self.1, INFO)?)
    }

    /// The bytes that came in so far, and those that went out and were confirmed; `None` where the kernel was not asked.
    pub(crate) fn bytes(self) -> Option<(u64, u64)> {
        let info = attribute(self.1, INFO)?;
        let at = |offset| Some(u64::from_ne_bytes(info.get(offset..offset + 8)?.try_into().ok()?));
        Some((at(BYTES_RECEIVED)?, at(BYTES_CONFIRMED)?))
    }

    /// How long a packet to the other side and its confirmation take, smoothed and at the shortest, in microseconds. `None` where
    /// nothing was sent lately, or the kernel was not asked.
    pub(crate) fn round_trip_us(self) -> Option<(u32, u32)> {
        round_trip_us(attribute(self.1, INFO)?)
    }

    fn port(self, offset: usize) -> u16 {
        u16::from_be_bytes([self.0[offset], self.0[offset + 1]])
    }

    fn number(self, offset: usize) -> u32 {
        u32_at(self.0, offset).unwrap_or_default()
    }

    fn address(self, offset: usize) -> IpAddr {
        let bytes = &self.0[offset..offset + 16];
        if self.0[0] == AF_INET {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[..4]);
            return IpAddr::V4(Ipv4Addr::from(four));
        }
        let mut six = [0; 16];
        six.copy_from_slice(bytes);
        IpAddr::V6(Ipv6Addr::from(six))
    }
}

/// `INET_DIAG_INFO`, whose value is a `struct tcp_info` (include/uapi/linux/tcp.h), and the bit that asks for it.
const INFO: u16 = 2;
const ASK_INFO: u8 = 1 << (INFO - 1);
/// Where it has the bytes that were sent and confirmed, and those that came in.
const BYTES_CONFIRMED: usize = 120;
const BYTES_RECEIVED: usize = 128;
/// Where it has the milliseconds since something was sent and since something was received, and the segments with data that came
/// in and went out.
const LAST_SENT: usize = 44;
const LAST_RECEIVED: usize = 52;
/// The round trip as it is smoothed, and the shortest one of the last minutes, in microseconds.
const ROUND_TRIP: usize = 68;
const ROUND_TRIP_MIN: usize = 148;
/// What was sent longer ago tells of another time.
const SENT_LATELY_MS: u32 = 5_000;
const SEGMENTS_IN: usize = 152;
const SEGMENTS_OUT: usize = 156;

/// The last that happened was that something was sent. Within one tick of the kernel's clock (1 to 10 ms) both happened at
/// once, a quick answer to a question or the next question after an answer: then it is known only where nothing ever came.
fn awaits_answer(info: &[u8]) -> Option<bool> {
    was_last(times(info)?)
}

/// The same from the other end.
fn owes_answer(info: &[u8]) -> Option<bool> {
    let (sent, received) = times(info)?;
    was_last((received, sent))
}

/// How long ago something was sent and received; `None` for never.
type Times = (Option<u32>, Option<u32>);

fn times(info: &[u8]) -> Option<Times> {
    let at = |time, segments| u32_at(info, time).filter(|_| u32_at(info, segments) > Some(0));
    u32_at(info, SEGMENTS_OUT)?;
    Some((at(LAST_SENT, SEGMENTS_OUT), at(LAST_RECEIVED, SEGMENTS_IN)))
}

fn round_trip_us(info: &[u8]) -> Option<(u32, u32)> {
    times(info)?.0.filter(|sent_ms| *sent_ms <= SENT_LATELY_MS)?;
    // Before anything was confirmed the one is 0 and the other the largest number.
    let (smoothed, shortest) = u32_at(info, ROUND_TRIP).zip(u32_at(info, ROUND_TRIP_MIN))?;
    (smoothed > 0 && shortest < u32::MAX).then_some((smoothed, shortest))
}

/// Whether the first happened after the second; `None` where both did at once.
fn was_last(times: Times) -> Option<bool> {
    match times {
        (None, _) => Some(false),
        (Some(_), None) => Some(true),
        (Some(one), Some(other)) if one == other => None,
        (Some(one), Some(other)) => Some(one < other),
    }
}

/// Asks for the sockets of both families.
pub(crate) fn each(query: Query, mut read: impl FnMut(Entry<'_>)) -> io::Result<()> {
    let mut read = |body: &[u8]| {
        if let Some(entry) = Entry::of(body) {
            read(entry);
        }
    };
    dump(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &request(query, AF_INET), &mut read)?;
    // A kernel without IPv6 refuses the second question.
    match dump(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &request(query, AF_INET6), &mut read) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, and the socket, ports in network order.
fn request(query: Query, family: u8) -> Vec<u8> {
    let mut bytes = vec![family, query.protocol, if query.with_info { ASK_INFO } else { 0 }, 0];
    bytes.extend(query.states.to_ne_bytes());
    bytes.extend(query.own_port.to_be_bytes());
    bytes.extend(query.peer_port.to_be_bytes());
    // No addresses, any interface, and no cookie, which is all ones.
    bytes.extend([0; 36]);
    bytes.extend([0xff; 8]);
    if let Some((first, last)) = query.own_ports {
        bytes.extend(encoded(REQ_BYTECODE, &ports_between(first, last)));
    }
    bytes
}

/// `INET_DIAG_REQ_BYTECODE`, and its tests of the own port: at least, at most.
const REQ_BYTECODE: u16 = 1;
const PORT_AT_LEAST: u8 = 2;
const PORT_AT_MOST: u8 = 3;

/// The program that lets through what has an own port of a range: each test is two `inet_diag_bc_op`, of which the second
/// holds the port. Who passes goes on by `yes` bytes; who does not jumps by `no`, to four bytes behind the end, and is out.
fn ports_between(first: u16, last: u16) -> Vec<u8> {
    let test = |code: u8, no: u16, port: u16| {
        let mut bytes = vec![code, 8];
        bytes.extend(no.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(port.to_ne_bytes());
        bytes
    };
    [test(PORT_AT_LEAST, 20, first), test(PORT_AT_MOST, 12, last)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_connection_is_seen_from_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let ends = |own_port, peer_port| {
            let mut found = vec![];
            let query = Query { protocol: TCP, states: connected(), own_port, peer_port, ..Query::default() };
            each(query, |entry| found.push((entry.own(), entry.peer(), entry.state()))).unwrap();
            found
        };
        let as_pair = |address: std::net::SocketAddr| (address.ip(), address.port());
        let (here, there) = (as_pair(client.local_addr().unwrap()), as_pair(server));
        assert_eq!(ends(0, server.port()), [(here, there, state::ESTABLISHED)]);
        assert_eq!(ends(server.port(), 0), [(there, here, state::ESTABLISHED)]);
    }

    #[test]
    fn the_kernel_leaves_out_other_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let own = client.local_addr().unwrap().port();
        for (own_ports, count) in [
            (Some((own, own)), 1),
            (Some((1, u16::MAX)), 1),
            (Some((own.saturating_add(1), u16::MAX)), 0),
            (Some((1, own - 1)), 0),
        ] {
            let mut found = 0;
            let query = Query {
                protocol: TCP,
                states: connected(),
                peer_port: server.port(),
                own_ports,
                ..Query::default()
            };
            each(query, |_| found += 1).unwrap();
            assert_eq!(found, count, "{own_ports:?} of {own}");
        }
    }

    #[test]
    fn sockets_of_udp_are_seen_by_the_port_of_the_other_side() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let clients: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        clients.iter().for_each(|client| client.connect(("127.0.0.1", port)).unwrap());
        let mut count = 0;
        let states = states([state::ESTABLISHED]);
        each(Query { protocol: UDP, states, peer_port: port, ..Query::default() }, |_| count += 1).unwrap();
        assert_eq!(count, 3);
    }

    #[test]
    fn a_connection_awaits_an_answer_until_it_is_there() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(server).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let states = states([state::ESTABLISHED]);
        // From the client's end and from the server's.
        let awaits = || {
            let (mut found, mut owed) = (None, None);
            let query = Query { protocol: TCP, states, with_info: true, ..Query::default() };
            each(Query { peer_port: server.port(), ..query }, |entry| found = entry.awaits_answer()).unwrap();
            each(Query { own_port: server.port(), ..query }, |entry| owed = entry.owes_answer()).unwrap();
            assert_eq!(found, owed);
            found
        };
        let bytes = || {
            let (mut found, query) =
                (None, Query { protocol: TCP, states, with_info: true, ..Query::default() });
            each(Query { own_port: server.port(), ..query }, |entry| found = entry.bytes()).unwrap();
            found
        };
        assert_eq!(bytes(), Some((0, 0)));
        let round_trip = || {
            let (mut found, query) =
                (None, Query { protocol: TCP, states, with_info: true, ..Query::default() });
            each(Query { own_port: server.port(), ..query }, |entry| found = entry.round_trip_us()).unwrap();
            found
        };
        assert_eq!(round_trip(), None, "nothing was sent yet");
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        assert_eq!(awaits(), Some(false), "nothing was asked yet");
        let mut buffer = [0; 1];
        for turn in 0..2 {
            client.write_all(b"?").unwrap();
            other.read_exact(&mut buffer).unwrap();
            pause();
            assert_eq!(awaits(), Some(true), "{turn}");
            other.write_all(b"!").unwrap();
            client.read_exact(&mut buffer).unwrap();
            assert_eq!(awaits(), Some(false), "{turn}");
            pause();
            let (smoothed_us, shortest_us) = round_trip().unwrap();
            assert!(0 < shortest_us && shortest_us < 1_000_000 && smoothed_us < 1_000_000, "{turn}");
        }
        assert_eq!(bytes().map(|(received, _)| received), Some(2));
        assert_eq!(awaits_answer(&[0; 60]), None);
    }

    #[test]
    fn round_trips_are_of_connections_that_sent_something_lately() {
        let of = |segments_out: u32, sent_ms: u32, smoothed_us: u32, shortest_us: u32| {
            let mut info = [0; 232];
            for (offset, value) in [
                (SEGMENTS_OUT, segments_out),
                (LAST_SENT, sent_ms),
                (ROUND_TRIP, smoothed_us),
                (ROUND_TRIP_MIN, shortest_us),
            ] {
                info[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
            }
            round_trip_us(&info)
        };
        assert_eq!(of(3, 4_000, 900, 700), Some((900, 700)));
        assert_eq!(of(0, 0, 900, 700), None, "nothing was sent");
        assert_eq!(of(3, 9_000, 900, 700), None, "long ago");
        assert_eq!(of(3, 0, 0, 700), None, "nothing was confirmed");
        assert_eq!(of(3, 0, 900, u32::MAX), None, "nothing was confirmed");
        assert_eq!(round_trip_us(&[0; 60]), None);
    }

    #[test]
    fn what_is_too_short_is_no_socket() {
        assert!(Entry::of(&[0; 71]).is_none() && Entry::of(&[0; 80]).is_some());
        assert_eq!(request(Query::default(), AF_INET).len(), 56);
    }
}
