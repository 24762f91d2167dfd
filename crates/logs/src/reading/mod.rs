//! Reading: files and stdin to blocks of whole lines, scanned by several threads. The only room of this crate with I/O.
//!
//! One reader at a time takes the next block, whatever it is made of; a thread scans its block while another one reads. What needs order is
//! laid aside; one thread at a time counts what has its turn, and nobody waits for it.

mod blocks;
mod decompress;
pub mod follow;

use crate::entry::Entry;
use crate::format::Format;
use crate::ordered::{BlockEvents, Ordered, Sampled};
use crate::redact::Privacy;
use crate::scan::Counts;
use crate::timestamp::TimeReader;
use blocks::Blocks;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use webdyno_model::Result;
use webdyno_model::logs::LogSource as ReadLog;

/// Where lines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file, compressed or not.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

impl Input {
    /// As a user wrote it.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "stdin".into(),
        }
    }
}

/// How logs are read.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The formats of all lines; empty: recognised, in each file by itself.
    pub formats: Vec<Format>,
    /// What of the clients may be in the result.
    pub privacy: Privacy,
    /// Threads that scan; at least one does.
    pub threads: usize,
}

/// What was counted.
#[derive(Debug)]
pub struct Counted {
    /// Counts in any order, settled.
    pub counts: Counts,
    /// Sessions and working set.
    pub ordered: Ordered,
    /// The logs, in the order in which they were read: by their first time.
    pub logs: Vec<ReadLog>,
}

/// Reads and counts logs, the one with the earliest first line first.
pub fn count(inputs: &[Input], options: &Options) -> Result<Counted> {
    let blocks = Mutex::new(Blocks::open(inputs, &options.formats)?);
    let in_order = InOrder::default();
    let scan = || scan(&blocks, &in_order, options.privacy);
    let scanned: Vec<Result<Counts>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..options.threads.max(1)).map(|_| scope.spawn(scan)).collect();
        let own = scan();
        let others =
            others.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(own).chain(others).collect()
    });
    let mut counts = Counts::new(options.privacy);
    for one in scanned {
        counts.merge(one?);
    }
    let blocks = blocks.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ordered = in_order.ordered.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Counted { counts, ordered, logs: blocks.logs() })
}

/// Gives each line that is understood, in the order of [`count`], and counts those that are not.
pub fn each_entry(inputs: &[Input], formats: &[Format], mut take: impl FnMut(&Entry<'_>)) -> Result<u64> {
    let mut blocks = Blocks::open(inputs, formats)?;
    let (mut buffer, mut times, mut not_understood) = (vec![], TimeReader::default(), 0);
    while let Some(block) = blocks.next(&mut buffer)? {
        not_understood += block.too_long.len() as u64;
        for line in buffer[..block.length].split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match block.formats.iter().find_map(|format| format.entry(line, &mut times)) {
                Some(entry) => take(&entry),
                None => not_understood += u64::from(!line.trim_ascii().is_empty() && line[0] != b'#'),
            }
        }
    }
    Ok(not_understood)
}

/// Scanned blocks that may wait for an earlier one; more of them would only be memory.
const LAID_ASIDE_MAX: usize = 16;

/// What needs order: events that were laid aside, and what was counted of those before them.
#[derive(Default)]
struct InOrder {
    pending: Mutex<Pending>,
    /// Signalled when fewer wait.
    counted: Condvar,
    ordered: Mutex<Ordered>,
}

#[derive(Default)]
struct Pending {
    /// Number of the block whose turn it is.
    next: u64,
    events: BTreeMap<u64, BlockEvents>,
    /// Those that were counted, for their memory.
    used: Vec<BlockEvents>,
    sampled: Sampled,
}

impl InOrder {
    /// Lays the events of a block aside, and counts all whose turn it is, unless another thread does; gives what is sampled now, and
    /// empty events.
    fn add(&self, number: u64, events: BlockEvents) -> (Sampled, BlockEvents) {
        lock(&self.pending).events.insert(number, events);
        // Whoever counts looks again after it has let go, so that none is left that came in between.
        while self.has_next()
            && let Ok(mut ordered) = self.ordered.try_lock()
        {
            while let Some(events) = self.take_next() {
                let sampled = ordered.add(&events);
                self.put_back(sampled, events);
            }
        }
        let mut pending = lock(&self.pending);
        while pending.events.len() > LAID_ASIDE_MAX {
            pending = self.counted.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        (pending.sampled.clone(), pending.used.pop().unwrap_or_default())
    }

    fn has_next(&self) -> bool {
        let pending = lock(&self.pending);
        pending.events.contains_key(&pending.next)
    }

    fn take_next(&self) -> Option<BlockEvents> {
        let mut pending = lock(&self.pending);
        let next = pending.next;
        pending.events.remove(&next)
    }

    fn put_back(&self, sampled: Sampled, mut events: BlockEvents) {
        events.clear();
        let mut pending = lock(&self.pending);
        pending.next += 1;
        pending.sampled = sampled;
        pending.used.push(events);
        self.counted.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Who panicked takes the program with it, by the join.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scan(blocks: &Mutex<Blocks>, in_order: &InOrder, privacy: Privacy) -> Result<Counts> {
    let mut counts = Counts::new(privacy);
    let (mut sampled, mut events, mut buffer) = (Sampled::default(), BlockEvents::default(), Vec::new());
    loop {
        let Some(block) = lock(blocks).next(&mut buffer)? else { return Ok(counts) };
        counts.block(&buffer[..block.length], &block.formats, &sampled, &mut events);
        block.too_long.iter().for_each(|line| counts.too_long(line));
        (sampled, events) = in_order.add(block.number, events);
    }
}
