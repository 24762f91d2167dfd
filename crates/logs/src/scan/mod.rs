//! What a thread does with its blocks of whole lines: takes lines apart and counts what may be counted in any order. What needs the order
//! of the log (sessions, the working set) it leaves as [`BlockEvents`] for [`crate::Ordered`], of the sampled clients and objects alone.

use crate::class::{Agents, CLASSES, Class, bot_name};
use crate::distinct::Distinct;
use crate::entry::Entry;
use crate::format::Format;
use crate::ordered::{BlockEvents, Sampled};
use crate::rates::Rates;
use crate::redact::{Privacy, redacted, without_session};
use crate::sessions::{ByHash, SessionRequest};
use crate::timestamp::TimeReader;
use crate::urls::{Response, Urls};
use crate::working_set::Reference;
use foldhash::quality::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use webdyno_model::histogram::TimeHistogram;

/// Lines that were not understood are shown up to this number.
const SAMPLES_MAX: usize = 3;
/// More methods or agents of bots are not told apart.
const NAMES_MAX: usize = 4096;

/// So many lines are counted at once: what they need fits the nearest cache of a core.
const PART: usize = 128;

/// Requests and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// Requests of a kind with their service times.
#[derive(Debug, Clone, Default)]
pub struct Timed {
    /// Requests and bytes.
    pub sum: Sum,
    /// Where logged.
    pub service_us: TimeHistogram,
}

/// Counts of blocks, in any order.
#[derive(Debug, Clone)]
pub struct Counts {
    hashes: FixedState,
    privacy: Privacy,
    times: TimeReader,
    agents: Agents,
    records: Vec<Record>,
    scratch: Box<Scratch>,
    /// URLs of the block that were not in the table: to be counted as different ones, if they are.
    new_urls: Vec<u64>,
    /// Lines, whatever is in them.
    pub lines: u64,
    /// Empty ones, and comments (`#`).
    pub blank: u64,
    /// Lines of no known format.
    pub not_understood: u64,
    /// The first of these.
    pub samples: Vec<String>,
    /// All requests.
    pub sum: Sum,
    /// Requests without a size.
    pub unsized_requests: u64,
    /// By status.
    pub statuses: Vec<u64>,
    /// By method.
    pub methods: BTreeMap<Vec<u8>, u64>,
    last_method: (Vec<u8>, u64),
    /// By class, as [`CLASSES`].
    pub classes: [Sum; CLASSES.len()],
    /// Dynamic, then static.
    pub kinds: [Timed; 2],
    /// Sizes of responses with a body, bytes.
    pub sizes: TimeHistogram,
    /// Over time.
    pub rates: Rates,
    /// URLs that matter.
    pub urls: Urls,
    /// Different URLs.
    pub urls_distinct: Distinct,
    /// Different clients.
    pub clients: Distinct,
    /// The busiest clients, where they may be shown.
    pub busiest: Urls,
    /// Clients that declare themselves to be programs.
    pub bots: Sum,
    /// Their agents by hash: names and requests.
    bot_agents: ByHash<(Vec<u8>, u64)>,
}

/// Memory of the loops over a block.
#[derive(Debug, Clone, Default)]
struct Scratch {
    hashes: Vec<u64>,
    fetched: Vec<u64>,
    places: Vec<u32>,
}

/// What of a line is counted in loops over all lines of a block: in each loop what one line has to fetch from memory does not wait for
/// what the line before had to.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// Hash of the URL as it is shown; 0 without one.
    url: u64,
    /// Hash of the URL with its query.
    object: u64,
    /// Hash of the client's address; 0 without one.
    client: u64,
    agent_hash: u64,
    at_s: i64,
    bytes: u64,
    /// [`u64::MAX`] is not known.
    time_us: u64,
    /// Where site, path, query and agent are in the block.
    host: Span,
    path: Span,
    query: Span,
    agent: Span,
    status: u16,
    is_get: bool,
    has_time: bool,
}

/// A part of a block: where it begins and how long it is.
#[derive(Debug, Clone, Copy, Default)]
struct Span([u32; 2]);

impl Span {
    /// Where a part of the block is.
    #[inline]
    fn of(part: &[u8], block: &[u8]) -> Self {
        let begin = (part.as_ptr() as usize).wrapping_sub(block.as_ptr() as usize);
        Self([begin as u32, part.len() as u32])
    }

    #[inline]
    fn within(self, block: &[u8]) -> &[u8] {
        let [begin, length] = self.0.map(|one| one as usize);
        block.get(begin..begin + length).unwrap_or_default()
    }
}

impl Record {
    fn response(&self) -> Response {
        let time_us = (self.time_us != u64::MAX).then_some(self.time_us);
        Response { status: self.status, bytes: self.bytes, time_us }
    }
}

impl Counts {
    /// Nothing yet.
    pub fn new(privacy: Privacy) -> Self {
        Self {
            hashes: FixedState::with_seed(0x77_65_62_64_79_6e_6f),
            privacy,
            times: TimeReader::default(),
            agents: Agents::default(),
            records: vec![],
            scratch: Box::default(),
            new_urls: vec![],
            lines: 0,
            blank: 0,
            not_understood: 0,
            samples: vec![],
            sum: Sum::default(),
            unsized_requests: 0,
            statuses: vec![0; 1000],
            methods: BTreeMap::new(),
            last_method: (b"GET".to_vec(), 0),
            classes: [Sum::default(); CLASSES.len()],
            kinds: [Timed::default(), Timed::default()],
            sizes: TimeHistogram::new(),
            rates: Rates::default(),
            urls: Urls::default(),
            urls_distinct: Distinct::default(),
            clients: Distinct::default(),
            busiest: Urls::default(),
            bots: Sum::default(),
            bot_agents: ByHash::default(),
        }
    }

    /// Counts the lines of a block; the first format that fits a line is its format.
    pub fn block(&mut self, block: &[u8], formats: &[Format], sampled: &Sampled, events: &mut BlockEvents) {
        let (mut records, mut scratch) =
            (std::mem::take(&mut self.records), std::mem::take(&mut self.scratch));
        records.clear();
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', block).chain([block.len()]) {
            if begin < end || end < block.len() {
                records.extend(self.line(block, [begin, end], formats));
            }
            begin = end + 1;
        }
        for part in records.chunks(PART) {
            self.part(part, &mut scratch, block, sampled, events);
        }
        self.urls_distinct.insert_all(&self.new_urls, &mut scratch.fetched);
        self.new_urls.clear();
        (self.records, self.scratch) = (records, scratch);
    }

    /// Counts lines as far as that needs what is far away in memory: so many that all of it is near when it is needed.
    fn part(
        &mut self,
        records: &[Record],
        scratch: &mut Scratch,
        block: &[u8],
        sampled: &Sampled,
        events: &mut BlockEvents,
    ) {
        let Scratch { hashes, fetched, places } = scratch;
        records.iter().filter(|one| one.bytes > 0).for_each(|one| self.sizes.record(one.bytes));
        hashes.clear();
        hashes.extend(records.iter().map(|one| one.client).filter(|client| *client != 0));
        self.clients.insert_all(hashes, fetched);
        self.agents.fetch(records.iter().map(|one| one.agent_hash));
        hashes.clear();
        hashes.extend(records.iter().map(|one| one.url));
        self.urls.places(hashes, fetched, places);
        let generation = self.urls.generation();
        for (record, place) in records.iter().zip(&*places) {
            // Places of before are those of other URLs once some have gone.
            let place =
                if self.urls.generation() == generation { *place } else { self.urls.place(record.url) };
            let class = self.url(record, place, block);
            self.class(record, class);
            let agent = record.agent.within(block);
            let is_bot = !agent.is_empty() && self.is_bot(agent, record.agent_hash);
            self.events(record, class, is_bot, sampled, events);
        }
    }

    /// Counts a line that is too long to be looked at.
    pub fn too_long(&mut self, beginning: &[u8]) {
        self.lines += 1;
        self.refuse(beginning);
    }

    #[inline]
    fn line(&mut self, block: &[u8], [begin, end]: [usize; 2], formats: &[Format]) -> Option<Record> {
        self.lines += 1;
        let line = &block[begin..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(entry) = formats.iter().find_map(|format| format.entry(line, &mut self.times)) else {
            self.not_an_entry(line);
            return None;
        };
        self.sum.add(entry.bytes.unwrap_or(0));
        self.unsized_requests += u64::from(entry.bytes.is_none());
        self.statuses[usize::from(entry.status)] += 1;
        if entry.method == self.last_method.0 {
            self.last_method.1 += 1;
        } else {
            self.method(entry.method);
        }
        if let Some(stamp) = entry.time {
            self.rates.add(stamp, entry.bytes.unwrap_or(0));
        }
        if self.privacy.show_clients && !entry.client.is_empty() {
            self.busy_client(&entry);
        }
        Some(self.record(&entry, block))
    }

    #[inline]
    fn record(&mut self, entry: &Entry<'_>, block: &[u8]) -> Record {
        let hash = |bytes: &[u8]| self.hashes.hash_one(bytes) | 1;
        let path = if self.privacy.keep_query { entry.path } else { without_session(entry.path) };
        let session = &entry.path[path.len()..];
        let (mut url, mut object) = (0, 0);
        if !path.is_empty() {
            url = hash(path);
            if !entry.host.is_empty() {
                url = url.rotate_left(17) ^ hash(entry.host);
            }
            object = if entry.query.is_empty() { url } else { url.rotate_left(29) ^ hash(entry.query) };
            object = if session.is_empty() { object } else { object.rotate_left(11) ^ hash(session) };
            url = if self.privacy.keep_query { object } else { url };
        }
        let client = if entry.client.is_empty() { 0 } else { hash(entry.client) };
        Record {
            url,
            object,
            client,
            agent_hash: hash(entry.agent),
            at_s: entry.time.map_or(0, |stamp| stamp.utc_s),
            bytes: entry.bytes.unwrap_or(0),
            time_us: entry.service_time_us.unwrap_or(u64::MAX),
            host: Span::of(entry.host, block),
            path: Span::of(path, block),
            query: Span::of(entry.query, block),
            agent: Span::of(entry.agent, block),
            status: entry.status,
            is_get: entry.method == b"GET",
            has_time: entry.time.is_some(),
        }
    }

    fn busy_client(&mut self, entry: &Entry<'_>) {
        let response = Response {
            status: entry.status,
            bytes: entry.bytes.unwrap_or(0),
            time_us: entry.service_time_us,
        };
        let hash = self.hashes.hash_one(entry.client) | 1;
        if self.busiest.add(self.busiest.place(hash), &response).is_none() {
            self.busiest.add_new(hash, &response, Class::None, &[entry.client]);
        }
    }

    #[inline]
    fn is_bot(&mut self, agent: &[u8], hash: u64) -> bool {
        if !self.agents.is_bot(agent, hash) {
            return false;
        }
        if let Some((_, count)) = self.bot_agents.get_mut(&hash) {
            *count += 1;
        } else if self.bot_agents.len() < NAMES_MAX {
            self.bot_agents.insert(hash, (bot_name(agent).to_vec(), 1));
        }
        true
    }

    /// Bots by their names, those with the most requests first.
    pub fn bot_names(&self) -> Vec<(String, u64)> {
        let mut names = BTreeMap::<&[u8], u64>::new();
        self.bot_agents.values().for_each(|(name, count)| *names.entry(name).or_default() += count);
        let mut names: Vec<_> = names
            .into_iter()
            .map(|(name, count)| (String::from_utf8_lossy(name).into_owned(), count))
            .collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        names
    }

    #[cold]
    fn not_an_entry(&mut self, line: &[u8]) {
        if line.first().is_none_or(|first| *first == b'#') || line.trim_ascii().is_empty() {
            self.blank += 1;
        } else {
            self.refuse(line);
        }
    }

    fn refuse(&mut self, line: &[u8]) {
        self.not_understood += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(redacted(line, self.privacy));
        }
    }

    #[cold]
    fn method(&mut self, method: &[u8]) {
        self.flush_method();
        self.last_method = (method[..method.len().min(24)].to_vec(), 1);
    }

    fn flush_method(&mut self) {
        let (method, count) = std::mem::take(&mut self.last_method);
        if count > 0 {
            let is_known = self.methods.contains_key(&method) || self.methods.len() < NAMES_MAX;
            *self.methods.entry(if is_known { method } else { b"other".to_vec() }).or_default() += count;
        }
    }

    /// Counts the URL at its place; gives its class.
    #[inline]
    fn url(&mut self, record: &Record, place: u32, block: &[u8]) -> Class {
        if record.url == 0 {
            return Class::None;
        }
        match self.urls.add(place, &record.response()) {
            Some(class) => class,
            None => self.new_url(record, block),
        }
    }

    /// A URL that was not in the table when the block began.
    fn new_url(&mut self, record: &Record, block: &[u8]) -> Class {
        self.new_urls.push(record.url);
        let [host, path, query] = [record.host, record.path, record.query].map(|part| part.within(block));
        let is_shown_whole = self.privacy.keep_query && !query.is_empty();
        let query: [&[u8]; 2] = if is_shown_whole { [b"?", query] } else { [b"", b""] };
        self.urls.add_new(record.url, &record.response(), Class::of(path), &[host, path, query[0], query[1]])
    }

    #[inline]
    fn class(&mut self, record: &Record, class: Class) {
        self.classes[class as usize].add(record.bytes);
        let kind = &mut self.kinds[usize::from(class.is_static())];
        kind.sum.add(record.bytes);
        if record.time_us != u64::MAX {
            kind.service_us.record(record.time_us);
        }
    }

    /// What needs the order of the log, and bots.
    #[inline]
    fn events(
        &mut self,
        record: &Record,
        class: Class,
        is_bot: bool,
        sampled: &Sampled,
        events: &mut BlockEvents,
    ) {
        if record.is_get && record.url != 0 && matches!(record.status, 200 | 206 | 304) {
            let sent = if record.status == 304 { 0 } else { u32::try_from(record.bytes).unwrap_or(u32::MAX) };
            events.references += 1;
            events.reference_bytes += u64::from(sent);
            if sampled.objects.may_have(record.object) {
                events.objects.push(Reference { object: record.object, bytes: sent });
            }
        }
        if is_bot {
            return self.bots.add(record.bytes);
        }
        // Several people may share an address.
        let client = record.client ^ record.agent_hash.rotate_left(31);
        if client < sampled.clients && record.client != 0 && record.has_time {
            let is_page = class.is_page() && record.status < 400;
            events.clients.push(SessionRequest { client, at_s: record.at_s, is_page });
        }
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, mut other: Self) {
        self.settle();
        other.settle();
        self.lines += other.lines;
        self.blank += other.blank;
        self.not_understood += other.not_understood;
        self.samples.extend(other.samples);
        self.samples.truncate(SAMPLES_MAX);
        self.sum.merge(&other.sum);
        self.unsized_requests += other.unsized_requests;
        self.statuses.iter_mut().zip(&other.statuses).for_each(|(own, other)| *own += other);
        for (name, count) in other.methods {
            *self.methods.entry(name).or_default() += count;
        }
        for (hash, (name, count)) in other.bot_agents {
            self.bot_agents.entry(hash).or_insert((name, 0)).1 += count;
        }
        self.classes.iter_mut().zip(&other.classes).for_each(|(own, other)| own.merge(other));
        for (own, other) in self.kinds.iter_mut().zip(&other.kinds) {
            own.sum.merge(&other.sum);
            own.service_us.merge(&other.service_us);
        }
        self.sizes.merge(&other.sizes);
        self.rates.merge(&other.rates);
        self.urls.merge(&other.urls);
        self.urls_distinct.merge(&other.urls_distinct);
        self.clients.merge(&other.clients);
        self.busiest.merge(&other.busiest);
        self.bots.merge(&other.bots);
    }

    /// Puts what was counted last where it belongs: before anything is read.
    pub fn settle(&mut self) {
        self.flush_method();
        self.rates.flush();
    }
}

#[cfg(test)]
mod tests;
