//! The layer as the engine sees it.

use super::link::LinkState;
use super::multiplex::Multiplex;
use super::{GATHERED_BYTES_MAX, MultiplexedIo, NONE, Slot};
use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::io::origin::Origin;
use crate::io::tcp_info::TcpReading;
use rustix::io::Errno;

impl<N: NetworkIo, C: Multiplex> NetworkIo for MultiplexedIo<N, C> {
    const GATHERS: bool = true;

    #[inline]
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn cpu_ns(&self) -> u64 {
        self.inner.cpu_ns()
    }

    fn woke_ns(&self, _: u64) -> u64 {
        self.woke_ns
    }

    fn set_owner(&mut self, owner: u32) {
        self.owner = owner;
    }

    fn connect(&mut self, slot: u32, token: u64, origin: &Origin) -> Result<(), SocketError> {
        let number = self.link_for(origin)?;
        if let Some(link) = self.links[number as usize].as_deref_mut() {
            link.slots += 1;
            let lane = link.connection.attach(token);
            self.slots[slot as usize] = Slot { link: number, lane, reads: link.reads };
        }
        Ok(())
    }

    fn opens_connection(&self, slot: u32) -> bool {
        self.link(slot).is_some_and(|link| link.opener == Some(slot))
    }

    fn ends_connection(&self, slot: u32, _: bool) -> bool {
        self.link(slot).is_some_and(|link| link.slots == 1 && link.opener.is_some())
    }

    fn is_resolving(&self, slot: u32) -> bool {
        self.inner.is_resolving(self.slots[slot as usize].link)
    }

    /// A slot that waits for its turn on an established connection is past the handshake that others made.
    fn handshake(&self, slot: u32) -> Handshake {
        match self.link(slot) {
            Some(link)
                if link.state == LinkState::Connecting || link.opener.is_none_or(|opener| opener == slot) =>
            {
                let own = link.connection.handshake();
                own.unwrap_or_else(|| self.inner.handshake(self.slots[slot as usize].link))
            }
            _ => Handshake::InProgress { started_ns: 0 },
        }
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        let Slot { link: number, lane, .. } = self.slots[slot as usize];
        let Some(link) = self.links.get_mut(number as usize).and_then(Option::as_deref_mut) else {
            return Err(Errno::BADF.into());
        };
        match link.state {
            LinkState::Connecting => {
                let token = link.connection.token(lane);
                self.establish(number, token)?;
            }
            LinkState::Failed(error) => return Err(error),
            LinkState::Open | LinkState::Ended => {}
        }
        let Some(link) = self.links[number as usize].as_deref_mut() else { return Err(Errno::BADF.into()) };
        let reads = link.reads;
        let done = link.connection.send(lane, bytes);
        if done.is_ok() {
            link.opener.get_or_insert(slot);
            self.slots[slot as usize].reads = reads;
        }
        let gathered = link.connection.gathered_bytes();
        match gathered {
            0 => {}
            GATHERED_BYTES_MAX.. => self.flush_link(number),
            _ => self.mark_dirty(number),
        }
        done
    }

    #[inline]
    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        let Slot { link, lane, .. } = self.slots[slot as usize];
        let link = self.links.get_mut(link as usize).and_then(Option::as_deref_mut);
        let room = buffer.len();
        link.map_or(Err(Errno::BADF.into()), |link| link.connection.read(lane, Some(buffer), room))
    }

    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        let Slot { link, lane, .. } = self.slots[slot as usize];
        let link = self.links.get_mut(link as usize).and_then(Option::as_deref_mut);
        link.map_or(Err(Errno::BADF.into()), |link| link.connection.read(lane, None, buffer.len()))
    }

    fn has_rx_timestamps(&self, slot: u32) -> bool {
        self.link(slot).is_some() && self.inner.has_rx_timestamps(self.slots[slot as usize].link)
    }

    /// That of the last read of the connection: it gave the bytes of all its streams that are handled now.
    fn received_ns(&mut self, slot: u32, sent_ns: u64, read_ns: u64) -> Option<u64> {
        self.link(slot)?;
        self.inner.received_ns(self.slots[slot as usize].link, sent_ns, read_ns)
    }

    fn tcp_info(&self, slot: u32) -> Option<TcpReading> {
        self.link(slot)?;
        self.inner.tcp_info(self.slots[slot as usize].link)
    }

    fn has_ended(&mut self, slot: u32) -> bool {
        self.link(slot).is_none_or(|link| link.connection.is_draining())
    }

    fn close(&mut self, slot: u32) {
        let Slot { link: number, lane, reads } =
            std::mem::replace(&mut self.slots[slot as usize], Slot { link: NONE, lane: 0, reads: 0 });
        let Some(link) = self.links.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
        // Nothing has come since the request that is given up was sent: the peer may be gone, and who comes next does not
        // join those that wait for it.
        let is_stalled = link.connection.is_active(lane) && link.reads == reads;
        link.connection.detach(lane);
        link.slots -= 1;
        if link.opener == Some(slot) {
            link.opener = Some(NONE);
        }
        if link.slots > 0 {
            if link.state == LinkState::Connecting {
                // It may have been the one that was to go on with the handshake.
                let next = link.connection.tokens().next();
                self.pending.extend(next.map(|token| Ready { token, readable: false, hangup: false }));
            }
            if is_stalled || link.state == LinkState::Connecting {
                self.ungroup(number);
            }
            return self.mark_dirty(number);
        }
        link.connection.close();
        self.flush_link(number);
        self.ungroup(number);
        self.inner.close(number);
        if self.links[number as usize].take().is_some_and(|link| link.is_unread) {
            self.unread.retain(|unread| *unread != number);
        }
        self.generations[number as usize] = self.generations[number as usize].wrapping_add(1) & 0x7fff_ffff;
        self.free.push(number);
    }

    fn wait(&mut self, until_ns: u64, precise: bool) -> usize {
        self.flush();
        self.events.clear();
        self.take_events(until_ns, precise);
        self.events.len()
    }

    fn has_more(&self) -> bool {
        self.waited || self.inner.has_more()
    }

    #[inline]
    fn ready(&self, index: usize) -> Ready {
        self.events[index]
    }
}
