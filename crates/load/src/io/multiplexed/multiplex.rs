//! A connection whose streams are lanes, without a socket: bytes of the peer come in, responses and bytes for the peer go out.

use super::lanes::Lanes;
use crate::io::network_io::{Handshake, SocketError};
use crate::io::origin::Origin;

/// What a protocol of streams gives to the layer.
pub(crate) trait Multiplex: Sized {
    /// What the connections of a thread have in common.
    type Context;
    /// Whether its socket carries datagrams: each `unsent` is one of them, and each `receive` another.
    const DATAGRAMS: bool = false;

    /// A connection to this server, before anything was sent.
    fn open(context: &mut Self::Context, origin: &Origin, now_ns: u64) -> Result<Self, SocketError>;

    /// Its lanes.
    fn lanes(&self) -> &Lanes;
    /// Its lanes.
    fn lanes_mut(&mut self) -> &mut Lanes;

    /// Gives a lane up; its stream, if one is open, is cancelled.
    fn detach(&mut self, lane: u32);
    /// Takes bytes of a request (a whole head, as the engine has it for HTTP/1.1, or more of a body). `AGAIN` when there
    /// is no stream or no window for it yet: the lane is touched when there is.
    fn send(&mut self, lane: u32, bytes: &[u8]) -> Result<usize, SocketError>;
    /// Takes bytes of the peer.
    fn receive(&mut self, bytes: &[u8]);
    /// The connection is over: closed by the peer, or broken. What came before can still be read.
    fn hang_up(&mut self, end: Result<(), SocketError>) {
        self.lanes_mut().hang_up(end);
    }
    /// Ends the connection from our side.
    fn close(&mut self);
    /// Whether the peer broke a rule; the connection is over then.
    fn is_faulty(&self) -> bool;

    /// Bytes for the peer.
    fn unsent(&self) -> &[u8];
    /// So many of them were sent.
    fn sent(&mut self, count: usize);
    /// Bytes that wait to be sent, some of which may not be among `unsent` before `prepare`.
    #[inline]
    fn gathered_bytes(&self) -> usize {
        self.unsent().len()
    }
    /// Has `unsent` give what there is.
    #[inline]
    fn prepare(&mut self) {}

    /// Tells it the time, before it receives or prepares something, and when it is due.
    #[inline]
    fn tick(&mut self, _now_ns: u64) {}
    /// When it has something to do though nothing comes.
    #[inline]
    fn due_ns(&mut self) -> Option<u64> {
        None
    }
    /// Whether it can carry requests, once what it sends first was sent; an error when it never will.
    #[inline]
    fn is_established(&self) -> Result<bool, SocketError> {
        Ok(true)
    }
    /// How far its own handshake is; `None` where that below it is the only one.
    #[inline]
    fn handshake(&self) -> Option<Handshake> {
        None
    }

    /// A lane for the engine's slot of this token.
    fn attach(&mut self, token: u64) -> u32 {
        self.lanes_mut().attach(token)
    }
    /// Whether a request is in progress on a lane.
    fn is_active(&self, lane: u32) -> bool {
        self.lanes().ids[lane as usize] != 0
    }
    /// No further request is begun here: the peer has said so, or there are no numbers left for streams.
    fn is_draining(&self) -> bool {
        self.lanes().draining
    }
    /// The lanes that have something new since the last call, each with its token and whether a read gives anything.
    fn take_touched(&mut self, tell: impl FnMut(u64, bool, bool)) {
        self.lanes_mut().take_touched(tell);
    }
    /// The token of a lane.
    fn token(&self, lane: u32) -> u64 {
        self.lanes()[lane as usize].token
    }
    /// The tokens of the lanes that are taken.
    fn tokens(&self) -> impl Iterator<Item = u64> {
        self.lanes().tokens()
    }
    /// Reads of a response into `buffer`, or drops up to `room` bytes of it.
    #[inline]
    fn read(&mut self, lane: u32, buffer: Option<&mut [u8]>, room: usize) -> Result<usize, SocketError> {
        self.lanes_mut().read(lane, buffer, room)
    }
}
