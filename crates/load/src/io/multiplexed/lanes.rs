//! The lanes of a connection: which are taken, which stream is open on each, who waits, and of whom the engine is to be told.

use super::lane::Lane;
use crate::io::network_io::SocketError;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// All lanes of a connection.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    all: Vec<Lane>,
    /// By lane: the stream that is open on it, 0 for none.
    pub(crate) ids: Vec<u32>,
    /// Streams that are open.
    pub(crate) active: u32,
    /// So many may be, as far as that is known here: when one ends, who waits is told below it.
    pub(crate) streams_max: u32,
    /// No further stream is begun.
    pub(crate) draining: bool,
    /// Lanes of which the engine is to be told.
    touched: Vec<u32>,
    /// Lanes that wait for a stream.
    waiting: VecDeque<u32>,
    /// The lane that is the first to try again when several may.
    turn: usize,
}

impl Index<usize> for Lanes {
    type Output = Lane;

    #[inline]
    fn index(&self, at: usize) -> &Lane {
        &self.all[at]
    }
}

impl IndexMut<usize> for Lanes {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut Lane {
        &mut self.all[at]
    }
}

impl Lanes {
    /// None yet, of which so many may have a stream.
    pub(crate) fn new(streams_max: u32) -> Self {
        Self { streams_max, ..Self::default() }
    }

    /// A lane for the engine's slot of this token.
    pub(super) fn attach(&mut self, token: u64) -> u32 {
        let index = self.all.iter().position(|lane| !lane.taken).unwrap_or_else(|| {
            self.all.push(Lane::default());
            self.ids.push(0);
            self.all.len() - 1
        });
        let lane = &mut self.all[index];
        lane.begin(false, 0, 0);
        (lane.token, lane.taken, lane.waits) = (token, true, false);
        index as u32
    }

    /// Nobody has this lane any more; no stream is open on it.
    pub(crate) fn vacate(&mut self, at: usize) {
        let lane = &mut self.all[at];
        lane.begin(false, 0, 0);
        (lane.taken, lane.waits) = (false, false);
    }

    /// The lane of a stream.
    #[inline]
    pub(crate) fn position(&self, id: u32) -> Option<usize> {
        self.ids.iter().position(|&known| known == id).filter(|_| id != 0)
    }

    /// The lanes with an open stream.
    pub(crate) fn open_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.all.iter_mut().zip(&self.ids).filter(|(_, id)| **id != 0).map(|(lane, _)| lane)
    }

    /// The tokens of the lanes that are taken.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter(|lane| lane.taken).map(|lane| lane.token)
    }

    /// The lanes that have something new since the last call, each with its token and whether a read gives anything.
    pub(super) fn take_touched(&mut self, mut tell: impl FnMut(u64, bool, bool)) {
        for index in 0..self.touched.len() {
            let at = self.touched[index] as usize;
            let gone = self.draining && self.ids[at] == 0;
            let lane = &mut self.all[at];
            lane.touched = false;
            if lane.taken {
                tell(lane.token, gone || lane.is_readable(), gone);
            }
        }
        self.touched.clear();
    }

    /// Reads of a response into `buffer`, or drops up to `room` bytes of it.
    #[inline]
    pub(super) fn read(
        &mut self,
        lane: u32,
        buffer: Option<&mut [u8]>,
        room: usize,
    ) -> Result<usize, SocketError> {
        let at = lane as usize;
        match self.all[at].read(buffer, room) {
            Err(SocketError::AGAIN) if self.draining && self.ids[at] == 0 => Ok(0),
            done => done,
        }
    }

    #[inline]
    pub(crate) fn touch(&mut self, at: usize) {
        let lane = &mut self.all[at];
        if lane.taken && !std::mem::replace(&mut lane.touched, true) {
            self.touched.push(at as u32);
        }
    }

    /// There is no stream for a lane: one that waits longer has its turn first.
    pub(crate) fn wait(&mut self, at: usize) {
        if !std::mem::replace(&mut self.all[at].waits, true) {
            self.waiting.push_back(at as u32);
        }
    }

    /// Lets all that wait try again.
    pub(crate) fn touch_waiting(&mut self) {
        self.waiting.clear();
        // Another one is the first each time, as the first may take all that there is.
        let (count, first) = (self.all.len(), self.turn);
        self.turn = if first + 1 < count { first + 1 } else { 0 };
        for at in (first..count).chain(0..first.min(count)) {
            if std::mem::take(&mut self.all[at].waits) {
                self.touch(at);
            }
        }
    }

    /// A stream is open on a lane, which begins with it.
    pub(crate) fn open(&mut self, at: usize, id: u32) {
        self.ids[at] = id;
        self.active += 1;
    }

    /// The stream of a lane failed.
    pub(crate) fn fail(&mut self, at: usize, end: Result<(), SocketError>) {
        // One that has its whole response has not failed.
        if !self.all[at].ended {
            self.all[at].failed = Some(end);
        }
        self.release(at);
        self.touch(at);
    }

    /// The stream of a lane is over: another one may begin.
    pub(crate) fn release(&mut self, at: usize) {
        self.ids[at] = 0;
        self.active -= 1;
        while self.active < self.streams_max
            && let Some(next) = self.waiting.pop_front()
        {
            if std::mem::take(&mut self.all[next as usize].waits) {
                self.touch(next as usize);
                break;
            }
        }
        if self.draining {
            self.touch(at);
        }
    }

    /// The connection is over: closed by the peer, or broken. What came before can still be read.
    pub(crate) fn hang_up(&mut self, end: Result<(), SocketError>) {
        self.draining = true;
        for at in 0..self.all.len() {
            match self.ids[at] {
                0 => self.touch(at),
                _ => self.fail(at, end),
            }
        }
    }

    /// The peer begins nothing behind the stream `last`: those were not processed and never will be.
    pub(crate) fn refuse_after(&mut self, last: u32) {
        self.draining = true;
        for at in 0..self.all.len() {
            match self.ids[at] {
                0 => self.touch(at),
                id if id > last => self.fail(at, Err(SocketError::Refused)),
                _ => {}
            }
        }
    }

    /// Memory that they hold.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.all.iter().map(Lane::memory_bytes).sum()
    }
}
