//! Connections to the port under load whose first packet (SYN) came more than once: their clients got no answer, as a
//! packet filter of this machine, a full queue or the way back lost it.
//!
//! Facts: packet(7): a socket of one protocol sees what comes in, before the packet filter does; with SOCK_DGRAM from
//! the network header on. Its own filter ([`filter`]) takes the first packets of connections only, so that all others cost
//! some tens of nanoseconds. socket(7): SO_TIMESTAMP. What is lost before it reaches this machine is not seen.
//!
//! Of many connections a share is read, by the client's port ([`SYNS_MAX`]), and the counts are those of all by that share.

mod attempts;
mod filter;

use self::attempts::{Attempts, Counted};
use self::filter::{PACKET_BYTES_MAX, Syn, Version};
use crate::collectors::network::{Place, Whereabouts};
use crate::collectors::{Collector, Metric, Reading, Target, counter};
use nix::cmsg_space;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CONNECTIONS: &str = "syns.connections_count";
const RETRANSMITTED: &str = "syns.retransmitted_count";

/// More in one reading, and half as many are read from then on.
const SYNS_MAX: usize = 1_000;
/// Of so many clients' ports at most one is read.
const SHARE_MAX: u16 = 1 << 10;
/// What waits between two readings: each packet takes about a kilobyte of it.
const BUFFER_BYTES: usize = 4 << 20;

/// The sockets that see what comes to a port, and what was learnt of it.
#[derive(Debug)]
struct Tap {
    port: u16,
    /// The network namespace of the service, as /proc names it; `None` where that is not known.
    namespace: Option<String>,
    /// One in so many clients' ports is read.
    share: u16,
    sockets: Vec<Socket>,
    attempts: Attempts,
}

impl Tap {
    /// Begins in the network namespace of the calling thread.
    fn open(port: u16, namespace: Option<String>, share: u16) -> io::Result<Self> {
        let sockets = Version::ALL.into_iter().map(|version| socket(version, port, share));
        let sockets = sockets.collect::<io::Result<_>>()?;
        Ok(Self { port, namespace, share, sockets, attempts: Attempts::default() })
    }

    /// Takes what has come; says how many that were.
    fn drain(&mut self, counted: &mut Counted) -> io::Result<usize> {
        let mut read_count = 0;
        for socket in &self.sockets {
            while let Some((packet, at)) = receive(socket)? {
                if let Some(syn) = Syn::parse(&packet, self.port) {
                    self.attempts.add(syn, at, counted);
                }
                read_count += 1;
                // Whoever sends faster than they are read is read at a smaller share.
                if read_count > 4 * SYNS_MAX {
                    return Ok(read_count);
                }
            }
        }
        Ok(read_count)
    }
}

/// A socket that sees the first packets of connections to a port.
fn socket(version: Version, port: u16, share: u16) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(version.ethertype().to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
    socket.attach_filter(&filter::program(version, port, share - 1))?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    // Only CAP_NET_ADMIN may have more than others; without it more is lost of a burst.
    setsockopt(&socket, RcvBufForce, &BUFFER_BYTES)
        .or_else(|_| setsockopt(&socket, RcvBuf, &BUFFER_BYTES))?;
    Ok(socket)
}

/// The next packet, and when the kernel received it; `None` where nothing waits.
fn receive(socket: &Socket) -> io::Result<Option<(Vec<u8>, Duration)>> {
    let (mut buffer, mut control) = ([0; PACKET_BYTES_MAX], cmsg_space!(TimeSpec));
    let mut pieces = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let got = match recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags) {
        Ok(got) => got,
        Err(nix::errno::Errno::EAGAIN) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let stamp = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let length = got.bytes.min(PACKET_BYTES_MAX);
    Ok(Some((buffer[..length].to_vec(), stamp.unwrap_or_else(now))))
}

/// The clock of the kernel's timestamps.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The collector.
#[derive(Debug, Default)]
pub struct Syns {
    whereabouts: Whereabouts,
    tap: Option<Tap>,
    connections: f64,
    retransmitted: f64,
}

impl Syns {
    /// The tap of the target's port, begun anew where the port or the network is another one.
    fn tap(&mut self, port: u16, target: &Target, place: Place) -> io::Result<&mut Tap> {
        let namespace = target.service_pid.and_then(|pid| crate::os::procfs::net_namespace(pid).ok());
        let is_same = |tap: &Tap| tap.port == port && tap.namespace == namespace;
        let tap = match self.tap.take().filter(is_same) {
            Some(tap) => tap,
            None => place.within(|| Tap::open(port, namespace, 1))?,
        };
        Ok(self.tap.insert(tap))
    }

    fn count(&mut self, port: u16, target: &Target, place: Place) -> io::Result<()> {
        let tap = self.tap(port, target, place)?;
        let (share, mut counted) = (tap.share, Counted::default());
        let read_count = tap.drain(&mut counted)?;
        tap.attempts.settle(now(), &mut counted);
        if read_count > SYNS_MAX && share < SHARE_MAX {
            let namespace = tap.namespace.clone();
            self.tap = Some(place.within(|| Tap::open(port, namespace, share * 2))?);
        }
        self.connections += f64::from(share) * counted.connections as f64;
        self.retransmitted += f64::from(share) * counted.retransmitted as f64;
        Ok(())
    }
}

impl Collector for Syns {
    fn name(&self) -> &'static str {
        "syns"
    }

    fn metrics(&self) -> Vec<Metric> {
        let syns = "tcpdump -ni any 'dst port PORT and tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn'";
        vec![
            counter(CONNECTIONS, "packet(7)", syns),
            counter(RETRANSMITTED, "packet(7)", format!("{syns} # those with the same source and seq again")),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let Some(port) = target.port else {
            return Reading::without_service("syns", target);
        };
        let place = match self.whereabouts.place(target) {
            Ok(place) => place,
            Err(why) => return Reading::failed(why),
        };
        let mut reading = Reading::default();
        match self.count(port, target, place) {
            Ok(()) => {
                reading.push(CONNECTIONS, self.connections);
                reading.push(RETRANSMITTED, self.retransmitted);
            }
            Err(error) => {
                let why = format!("the first packets of connections cannot be read: {error}");
                reading.lacks("syns", why, "run webdyno as root");
            }
        }
        reading
    }
}
