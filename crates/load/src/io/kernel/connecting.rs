//! How a slot gets its socket: at once, when its name is resolved, or when the queue of the server's unix socket has room.
//! connect(2), unix(7).

use super::{DelayReason, Delayed, KernelIo};
use crate::io::network_io::{Ready, SocketError};
use crate::io::sockets;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

impl KernelIo {
    /// Has a connecting socket's readiness told.
    fn register_socket(&mut self, slot: u32, token: u64, socket: OwnedFd) -> Result<(), SocketError> {
        let asks_for_room = self.sends_at_once && !self.uses_tls(slot) && !self.delayed.contains_key(&slot);
        self.kernel.readiness.add(slot, token, &socket, asks_for_room)?;
        self.sockets[slot as usize] = Some(socket);
        Ok(())
    }

    pub(super) fn connect_to(
        &mut self,
        slot: u32,
        token: u64,
        address: &SocketAddr,
    ) -> Result<(), SocketError> {
        let source = self.next_source_address(address);
        let open = if self.sends_datagrams { sockets::udp } else { sockets::tcp };
        let socket = open(address, source).or_else(|errno| match errno {
            // Those that were closed since the last wait may be open yet.
            Errno::MFILE if self.kernel.readiness.hand_over() => open(address, source),
            errno => Err(errno),
        })?;
        self.kernel.timestamps.begin(slot, &socket);
        self.register_socket(slot, token, socket)
    }

    /// Where the next connection to this address begins: each source of its family in turn.
    fn next_source_address(&mut self, address: &SocketAddr) -> Option<IpAddr> {
        let count = self.sources.len();
        let at = (0..count).map(|step| (self.next_source + step) % count).find(|at| {
            let source = self.sources[*at];
            source.is_ipv4() == address.is_ipv4()
        })?;
        self.next_source = at + 1;
        Some(self.sources[at])
    }

    /// A new connection queues behind those that wait already: else some would starve.
    pub(super) fn connect_unix(&mut self, slot: u32, token: u64, path: &Path) -> Result<(), SocketError> {
        if self.queue.is_empty() && self.try_connect_unix(slot, token, path)? {
            return Ok(());
        }
        self.delayed.insert(slot, Delayed { token, reason: DelayReason::BacklogFull(path.to_owned()) });
        self.queue.push_back((slot, token));
        Ok(())
    }

    /// Whether the server's queue had room.
    fn try_connect_unix(&mut self, slot: u32, token: u64, path: &Path) -> Result<bool, SocketError> {
        match sockets::unix(path) {
            Ok(socket) => self.register_socket(slot, token, socket).map(|()| true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Goes on with the connections that had to wait for something else than their socket.
    #[cold]
    pub(super) fn resume_delayed(&mut self) {
        let results: Vec<_> = self
            .kernel
            .resolver
            .iter()
            .flat_map(|(resolver, _)| std::iter::from_fn(|| resolver.try_result()))
            .collect();
        for result in results {
            let (slot, token) = (result.slot, result.token);
            if self.delayed.get(&slot).is_some_and(|delayed| delayed.token == token) {
                let result = match result.address {
                    Some(address) => self.connect_to(slot, token, &address),
                    None => Err(SocketError::Dns),
                };
                self.finish_delayed(slot, token, result);
            }
        }
        self.retry_unix_queue();
    }

    fn retry_unix_queue(&mut self) {
        while let Some(&(slot, token)) = self.queue.front() {
            if let Some(Delayed { token: waiting, reason: DelayReason::BacklogFull(path) }) =
                self.delayed.get(&slot)
                && *waiting == token
            {
                let path = path.clone();
                match self.try_connect_unix(slot, token, &path) {
                    Ok(false) => return,
                    result => self.finish_delayed(slot, token, result.map(|_| ())),
                }
            }
            self.queue.pop_front();
        }
    }

    /// A connection that had to wait has its socket now, or never will.
    fn finish_delayed(&mut self, slot: u32, token: u64, result: Result<(), SocketError>) {
        match result {
            Ok(()) => drop(self.delayed.remove(&slot)),
            Err(error) => {
                self.delayed.insert(slot, Delayed { token, reason: DelayReason::Failed(error) });
                self.synthetic_events.push(Ready { token, readable: false, hangup: false });
            }
        }
    }
}
