//! The layer over a network and a protocol that do what a test wants of them.

use super::lanes::Lanes;
use super::multiplex::Multiplex;
use super::{MultiplexedIo, StreamLimits};
use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::io::origin::{Origin, Origins};
use crate::io::tcp_info::TcpReading;
use rustix::io::Errno;
use url::Url;
use webdyno_model::transport::Transport;

/// Sockets on which datagrams come without end, each wait says so of all.
#[derive(Default)]
struct Network {
    ready: Vec<Ready>,
    /// Nobody listens.
    refuses: bool,
}

impl NetworkIo for Network {
    fn now_ns(&self) -> u64 {
        0
    }
    fn cpu_ns(&self) -> u64 {
        0
    }
    fn connect(&mut self, _: u32, token: u64, _: &Origin) -> Result<(), SocketError> {
        self.ready.push(Ready { token, readable: true, hangup: false });
        Ok(())
    }
    fn is_resolving(&self, _: u32) -> bool {
        false
    }
    fn handshake(&self, _: u32) -> Handshake {
        Handshake::None
    }
    fn send(&mut self, _: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        if self.refuses { Err(Errno::CONNREFUSED.into()) } else { Ok(bytes.len()) }
    }
    fn recv(&mut self, _: u32, _: &mut [u8]) -> Result<usize, SocketError> {
        Ok(1)
    }
    fn discard(&mut self, _: u32, _: &mut [u8]) -> Result<usize, SocketError> {
        Ok(1)
    }
    fn has_rx_timestamps(&self, _: u32) -> bool {
        false
    }
    fn received_ns(&mut self, _: u32, _: u64, _: u64) -> Option<u64> {
        None
    }
    fn tcp_info(&self, _: u32) -> Option<TcpReading> {
        None
    }
    fn close(&mut self, _: u32) {}
    fn wait(&mut self, _: u64, _: bool) -> usize {
        self.ready.len()
    }
    fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }
}

/// A connection that has something to send at first and when a lane is given up; each datagram is for its first lane.
struct Connection {
    lanes: Lanes,
    out: Vec<u8>,
    is_established: bool,
}

impl Multiplex for Connection {
    /// Whether they are established.
    type Context = bool;
    const DATAGRAMS: bool = true;

    fn open(is_established: &mut bool, _: &Origin, _: u64) -> Result<Self, SocketError> {
        Ok(Self { lanes: Lanes::new(9), out: vec![1], is_established: *is_established })
    }
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }
    fn lanes_mut(&mut self) -> &mut Lanes {
        &mut self.lanes
    }
    fn detach(&mut self, lane: u32) {
        self.lanes.vacate(lane as usize);
        self.out.push(1);
    }
    fn send(&mut self, _: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        Ok(bytes.len())
    }
    fn receive(&mut self, _: &[u8]) {
        self.lanes.touch(0);
    }
    fn close(&mut self) {}
    fn is_faulty(&self) -> bool {
        false
    }
    fn unsent(&self) -> &[u8] {
        &self.out
    }
    fn sent(&mut self, _: usize) {
        self.out.clear();
    }
    fn is_established(&self) -> Result<bool, SocketError> {
        Ok(self.is_established)
    }
}

/// So many slots, each named by its number, on one connection; and their server.
fn connected(slots: u32, is_established: bool) -> (MultiplexedIo<Network, Connection>, Vec<Origin>) {
    let transport = Transport::default();
    let mut origins = Origins::new(&transport).unwrap();
    origins.index_of(&Url::parse("http://127.0.0.1:1/").unwrap()).unwrap();
    let origins = origins.into_vec();
    let limits = StreamLimits { connections_max: 1, streams_max: 9 };
    let mut io = MultiplexedIo::new(Network::default(), is_established, limits, 9);
    for slot in 0..slots {
        io.connect(slot, slot.into(), &origins[0]).unwrap();
    }
    (io, origins)
}

#[test]
fn a_connection_that_is_never_read_empty_has_one_turn_at_a_time() {
    let (mut io, _origins) = connected(1, true);
    assert_eq!(io.send(0, b"x"), Ok(1));
    for _ in 0..20 {
        assert_eq!(io.wait(0, false), 1);
    }
    assert_eq!(io.unread.len(), 1);
    io.close(0);
    assert!(io.unread.is_empty(), "its number is that of another one soon");
}

#[test]
fn no_slot_joins_a_connection_that_takes_no_further_request() {
    let (mut io, origins) = connected(2, true);
    assert_eq!(io.slots[0].link, io.slots[1].link);
    io.links[io.slots[0].link as usize].as_mut().unwrap().connection.lanes.draining = true;
    io.connect(2, 2, &origins[0]).unwrap();
    assert_ne!(io.slots[0].link, io.slots[2].link);
}

#[test]
fn all_who_wait_for_a_connection_learn_that_there_is_none() {
    let (mut io, _origins) = connected(3, false);
    assert_eq!(io.send(0, b"x"), Err(SocketError::AGAIN));
    io.inner.refuses = true;
    // What is sent of it is gathered, and nobody waits for how that goes.
    io.close(0);
    let count = io.wait(0, false);
    let told: Vec<u64> = (0..count).map(|index| io.ready(index).token).collect();
    assert!(told.contains(&1) && told.contains(&2), "{told:?}");
    assert_eq!(io.send(2, b"x"), Err(Errno::CONNREFUSED.into()));
}
