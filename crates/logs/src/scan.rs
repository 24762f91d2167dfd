//! What a thread does with its blocks of whole lines: takes lines apart and counts what may be counted in any order. What needs the order
//! of the log (sessions, the working set) it leaves as [`BlockEvents`] for [`crate::Ordered`], of the sampled clients and objects alone.

use crate::class::{Agents, CLASSES, Class, bot_name};
use crate::distinct::Distinct;
use crate::entry::Entry;
use crate::format::Format;
use crate::ordered::{BlockEvents, Thresholds};
use crate::rates::Rates;
use crate::redact::redacted;
use crate::sessions::SessionRequest;
use crate::timestamp::TimeReader;
use crate::urls::{Response, Urls};
use crate::working_set::Reference;
use foldhash::quality::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use webdyno_model::histogram::TimeHistogram;

/// Lines that were not understood are shown up to this number.
const SAMPLES_MAX: usize = 3;
/// More methods or bots than these are no methods or bots.
const NAMES_MAX: usize = 1000;

/// What of the clients may be in the result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Privacy {
    /// The busiest clients, and addresses in lines that are shown.
    pub show_clients: bool,
    /// URLs with their query strings.
    pub keep_query: bool,
}

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
    /// First and last second.
    pub span_s: Option<[i64; 2]>,
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
    /// Their names.
    pub bot_names: BTreeMap<Vec<u8>, u64>,
}

impl Counts {
    /// Nothing yet.
    pub fn new(privacy: Privacy) -> Self {
        Self {
            hashes: FixedState::with_seed(0x77_65_62_64_79_6e_6f),
            privacy,
            times: TimeReader::default(),
            agents: Agents::default(),
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
            span_s: None,
            urls: Urls::default(),
            urls_distinct: Distinct::default(),
            clients: Distinct::default(),
            busiest: Urls::default(),
            bots: Sum::default(),
            bot_names: BTreeMap::new(),
        }
    }

    /// Counts the lines of a block; the first format that fits a line is its format.
    pub fn block(&mut self, block: &[u8], formats: &[Format], thresholds: Thresholds, events: &mut BlockEvents) {
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            self.line(&block[begin..end], formats, thresholds, events);
            begin = end + 1;
        }
        if begin < block.len() {
            self.line(&block[begin..], formats, thresholds, events);
        }
    }

    /// Counts a line that is too long to be looked at.
    pub fn too_long(&mut self, beginning: &[u8]) {
        self.lines += 1;
        self.refuse(beginning);
    }

    #[inline]
    fn line(&mut self, line: &[u8], formats: &[Format], thresholds: Thresholds, events: &mut BlockEvents) {
        self.lines += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match formats.iter().find_map(|format| format.entry(line, &mut self.times)) {
            Some(entry) => self.entry(&entry, thresholds, events),
            None if line.first().is_none_or(|first| *first == b'#') || line.trim_ascii().is_empty() => self.blank += 1,
            None => self.refuse(line),
        }
    }

    #[cold]
    fn refuse(&mut self, line: &[u8]) {
        self.not_understood += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(redacted(line, self.privacy));
        }
    }

    #[inline]
    fn entry(&mut self, entry: &Entry<'_>, thresholds: Thresholds, events: &mut BlockEvents) {
        let bytes = entry.bytes.unwrap_or(0);
        self.sum.add(bytes);
        self.unsized_requests += u64::from(entry.bytes.is_none());
        self.statuses[usize::from(entry.status)] += 1;
        if bytes > 0 {
            self.sizes.record(bytes);
        }
        if entry.method == self.last_method.0 {
            self.last_method.1 += 1;
        } else {
            self.method(entry.method);
        }
        if let Some(stamp) = entry.time {
            self.rates.add(stamp, bytes);
            let [first, last] = self.span_s.get_or_insert([stamp.utc_s; 2]);
            (*first, *last) = ((*first).min(stamp.utc_s), (*last).max(stamp.utc_s));
        }
        let class = self.url(entry, bytes, thresholds, events);
        self.classes[class as usize].add(bytes);
        let kind = &mut self.kinds[usize::from(class.is_static())];
        kind.sum.add(bytes);
        if let Some(time_us) = entry.service_time_us {
            kind.service_us.record(time_us);
        }
        self.client(entry, class, bytes, thresholds, events);
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

    /// Counts the URL; gives its class.
    #[inline]
    fn url(&mut self, entry: &Entry<'_>, bytes: u64, thresholds: Thresholds, events: &mut BlockEvents) -> Class {
        if entry.path.is_empty() {
            return Class::None;
        }
        let mut path = self.hashes.hash_one(entry.path);
        if !entry.host.is_empty() {
            path = path.rotate_left(17) ^ self.hashes.hash_one(entry.host);
        }
        let whole = if entry.query.is_empty() { path } else { path.rotate_left(29) ^ self.hashes.hash_one(entry.query) };
        let is_shown_whole = self.privacy.keep_query && !entry.query.is_empty();
        let shown = if is_shown_whole { whole } else { path };
        let response = Response { status: entry.status, bytes, time_us: entry.service_time_us };
        let (class, is_new) = self.urls.add(shown, &response, entry.path, |out| {
            out.extend_from_slice(entry.host);
            out.extend_from_slice(entry.path);
            if is_shown_whole {
                out.push(b'?');
                out.extend_from_slice(entry.query);
            }
        });
        if is_new {
            self.urls_distinct.insert(shown);
        }
        if matches!(entry.status, 200 | 206 | 304) && entry.method == b"GET" {
            let sent = if entry.status == 304 { 0 } else { u32::try_from(bytes).unwrap_or(u32::MAX) };
            events.references += 1;
            events.reference_bytes += u64::from(sent);
            if whole < thresholds.objects {
                events.objects.push(Reference { object: whole, bytes: sent });
            }
        }
        class
    }

    #[inline]
    fn client(&mut self, entry: &Entry<'_>, class: Class, bytes: u64, thresholds: Thresholds, events: &mut BlockEvents) {
        if entry.client.is_empty() {
            return;
        }
        let address = self.hashes.hash_one(entry.client);
        self.clients.insert(address);
        if self.privacy.show_clients {
            let response = Response { status: entry.status, bytes, time_us: entry.service_time_us };
            self.busiest.add(address, &response, b"", |out| out.extend_from_slice(entry.client));
        }
        let agent = self.hashes.hash_one(entry.agent);
        if !entry.agent.is_empty() && self.agents.is_bot(entry.agent, agent) {
            return self.bot(entry.agent, bytes);
        }
        // Several people may share an address.
        let client = address ^ agent.rotate_left(31);
        if client < thresholds.clients
            && let Some(stamp) = entry.time
        {
            let is_page = class.is_page() && entry.status < 400;
            events.clients.push(SessionRequest { client, at_s: stamp.utc_s, is_page });
        }
    }

    fn bot(&mut self, agent: &[u8], bytes: u64) {
        self.bots.add(bytes);
        let name = bot_name(agent);
        if let Some(count) = self.bot_names.get_mut(name) {
            *count += 1;
        } else if self.bot_names.len() < NAMES_MAX {
            self.bot_names.insert(name.to_vec(), 1);
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
        add_names(&mut self.methods, other.methods);
        add_names(&mut self.bot_names, other.bot_names);
        self.classes.iter_mut().zip(&other.classes).for_each(|(own, other)| own.merge(other));
        for (own, other) in self.kinds.iter_mut().zip(&other.kinds) {
            own.sum.merge(&other.sum);
            own.service_us.merge(&other.service_us);
        }
        self.sizes.merge(&other.sizes);
        self.rates.merge(&other.rates);
        if let Some([first, last]) = other.span_s {
            let [own_first, own_last] = self.span_s.get_or_insert([first, last]);
            (*own_first, *own_last) = ((*own_first).min(first), (*own_last).max(last));
        }
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

fn add_names(own: &mut BTreeMap<Vec<u8>, u64>, other: BTreeMap<Vec<u8>, u64>) {
    for (name, count) in other {
        *own.entry(name).or_default() += count;
    }
}
