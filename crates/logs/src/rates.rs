//! Requests over time: seconds with requests, kept an hour to a page, so that times may come in any order and parts of a log be
//! added. What comes of them: peaks, the day and the week, bursts.

use crate::timestamp::Stamp;
use std::collections::{BTreeMap, HashMap};

const HOUR_S: i64 = 3600;
/// Hours whose seconds are kept: over a year of them, 80 MB. Of those beyond there are hours alone.
const PAGES_MAX: usize = 10_000;

/// The seconds of an hour.
#[derive(Debug, Clone)]
struct Page {
    hour: i64,
    /// Requests of each second, the lowest 16 bits.
    seconds: Vec<u16>,
    /// Bytes of each minute.
    minute_bytes: [u64; 60],
}

/// Requests over time.
#[derive(Debug, Clone)]
pub struct Rates {
    /// What was counted last and is not in its page yet: lines of a second follow each other.
    stamp: Stamp,
    requests: u32,
    bytes: u64,
    pages: Vec<Page>,
    places: HashMap<i64, usize>,
    last_place: usize,
    /// Of seconds with more than 65,535 requests: what is above.
    carry: HashMap<i64, u64>,
    beyond: BTreeMap<i64, u64>,
    /// Requests by hour of the local week, Monday first.
    week: Vec<u64>,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            stamp: Stamp::default(),
            requests: 0,
            bytes: 0,
            pages: vec![],
            places: HashMap::new(),
            last_place: 0,
            carry: HashMap::new(),
            beyond: BTreeMap::new(),
            week: vec![0; 168],
        }
    }
}

/// The most within a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peak {
    /// When it begins, seconds since 1970.
    pub at_s: i64,
    /// How many in it.
    pub count: u64,
}

impl Peak {
    fn raise(&mut self, at_s: i64, count: u64) {
        // The first of several, whatever the order in which they come.
        if count > self.count || (count == self.count && count > 0 && at_s < self.at_s) {
            *self = Self { at_s, count };
        }
    }
}

impl Rates {
    /// Counts a request.
    #[inline]
    pub fn add(&mut self, stamp: Stamp, bytes: u64) {
        if stamp != self.stamp {
            self.flush();
            self.stamp = stamp;
        }
        self.requests += 1;
        self.bytes += bytes;
    }

    /// Puts what was counted last into its page: before anything is read.
    pub fn flush(&mut self) {
        let (requests, bytes) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.bytes));
        if requests == 0 {
            return;
        }
        let local_hour = (self.stamp.utc_s + i64::from(self.stamp.offset_s)).div_euclid(HOUR_S);
        // 1970-01-01 was a Thursday.
        self.week[(local_hour + 3 * 24).rem_euclid(168) as usize] += u64::from(requests);
        self.put(self.stamp.utc_s, u64::from(requests), bytes);
    }

    fn put(&mut self, utc_s: i64, requests: u64, bytes: u64) {
        let hour = utc_s.div_euclid(HOUR_S);
        let Some(place) = self.place(hour) else {
            *self.beyond.entry(hour).or_default() += requests;
            return;
        };
        let page = &mut self.pages[place];
        let second = utc_s.rem_euclid(HOUR_S) as usize;
        let sum = u64::from(page.seconds[second]) + requests;
        page.seconds[second] = sum as u16;
        page.minute_bytes[second / 60] += bytes;
        if sum > u64::from(u16::MAX) {
            *self.carry.entry(utc_s).or_default() += sum & !u64::from(u16::MAX);
        }
    }

    fn place(&mut self, hour: i64) -> Option<usize> {
        if self.pages.get(self.last_place).is_some_and(|page| page.hour == hour) {
            return Some(self.last_place);
        }
        let known = self.places.get(&hour).copied();
        let place = known.or_else(|| {
            (self.pages.len() < PAGES_MAX && !self.beyond.contains_key(&hour)).then(|| {
                self.pages.push(Page { hour, seconds: vec![0; HOUR_S as usize], minute_bytes: [0; 60] });
                self.places.insert(hour, self.pages.len() - 1);
                self.pages.len() - 1
            })
        })?;
        self.last_place = place;
        Some(place)
    }

    /// Adds what another one counted. Both must be flushed.
    pub fn merge(&mut self, other: &Self) {
        for page in &other.pages {
            for (second, requests) in page.seconds.iter().enumerate().filter(|(_, requests)| **requests > 0) {
                self.put(page.hour * HOUR_S + second as i64, u64::from(*requests), 0);
            }
            if let Some(place) = self.place(page.hour) {
                let own = self.pages[place].minute_bytes.iter_mut();
                own.zip(page.minute_bytes).for_each(|(own, other)| *own += other);
            }
        }
        for (utc_s, requests) in &other.carry {
            *self.carry.entry(*utc_s).or_default() += requests;
        }
        for (hour, requests) in &other.beyond {
            *self.beyond.entry(*hour).or_default() += requests;
        }
        self.week.iter_mut().zip(&other.week).for_each(|(own, other)| *own += other);
    }

    /// The first and the last second with requests; `None` without any.
    pub fn span_s(&self) -> Option<[i64; 2]> {
        let mut pages: Vec<&Page> = self.pages.iter().collect();
        pages.sort_by_key(|page| page.hour);
        let seconds = |page: &&Page| {
            self.seconds(page).filter(|(_, requests)| *requests > 0).map(|(at_s, _)| at_s).collect::<Vec<_>>()
        };
        let kept = pages.first().map(seconds).zip(pages.last().map(seconds));
        let kept = kept.and_then(|(first, last)| first.first().copied().zip(last.last().copied()));
        let beyond = self.beyond.keys().next().zip(self.beyond.keys().next_back());
        let beyond = beyond.map(|(first, last)| (first * HOUR_S, (last + 1) * HOUR_S - 1));
        let spans = kept.into_iter().chain(beyond);
        spans.map(|(first, last)| [first, last]).reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])])
    }

    /// Whether the seconds of some hours were not kept.
    pub fn is_complete(&self) -> bool {
        self.beyond.is_empty()
    }

    /// Requests of each second of an hour.
    fn seconds<'a>(&'a self, page: &'a Page) -> impl Iterator<Item = (i64, u64)> + 'a {
        page.seconds.iter().enumerate().map(|(second, requests)| {
            let at_s = page.hour * HOUR_S + second as i64;
            let more = if self.carry.is_empty() { None } else { self.carry.get(&at_s) };
            (at_s, u64::from(*requests) + more.copied().unwrap_or(0))
        })
    }

    /// The most requests of a second, a minute (of the clock), an hour, and the most bytes of a minute.
    pub fn peaks(&self) -> [Peak; 4] {
        let [mut second, mut minute, mut hour, mut bytes] = [Peak::default(); 4];
        for page in &self.pages {
            let mut minutes = [0; 60];
            for (at_s, requests) in self.seconds(page) {
                second.raise(at_s, requests);
                minutes[at_s.rem_euclid(HOUR_S) as usize / 60] += requests;
            }
            let begin = page.hour * HOUR_S;
            for (at, (requests, sent)) in minutes.iter().zip(page.minute_bytes).enumerate() {
                minute.raise(begin + at as i64 * 60, *requests);
                bytes.raise(begin + at as i64 * 60, sent);
            }
            hour.raise(begin, minutes.iter().sum());
        }
        self.beyond.iter().for_each(|(at, requests)| hour.raise(at * HOUR_S, *requests));
        [second, minute, hour, bytes]
    }

    /// Requests by hour of the local day.
    pub fn by_hour(&self) -> [u64; 24] {
        let mut hours = [0; 24];
        self.week.iter().enumerate().for_each(|(at, requests)| hours[at % 24] += requests);
        hours
    }

    /// Requests by local weekday, Monday first.
    pub fn by_weekday(&self) -> [u64; 7] {
        let mut days = [0; 7];
        self.week.iter().enumerate().for_each(|(at, requests)| days[at / 24] += requests);
        days
    }

    /// Requests of each second from `from_s` on, so many: what an arrival pattern is made of.
    pub fn pattern(&self, from_s: i64, seconds: usize) -> Vec<u64> {
        let mut pattern = vec![0; seconds];
        for (at_s, requests) in
            self.pages.iter().flat_map(|page| self.seconds(page)).filter(|(_, requests)| *requests > 0)
        {
            let place = usize::try_from(at_s - from_s).ok();
            if let Some(slot) = place.and_then(|place| pattern.get_mut(place)) {
                *slot += requests;
            }
        }
        pattern
    }

    /// Requests and bytes of each span from `from_s` on, so many; a span is of whole minutes. Bytes of hours whose seconds were not
    /// kept are missing.
    pub fn timeline(&self, from_s: i64, span_s: i64, spans: usize) -> [Vec<u64>; 2] {
        let mut timeline = [vec![0; spans], vec![0; spans]];
        let mut add = |figure: usize, at_s: i64, count: u64| {
            let place = usize::try_from((at_s - from_s).div_euclid(span_s)).ok();
            if let Some(slot) = place.and_then(|place| timeline[figure].get_mut(place)) {
                *slot += count;
            }
        };
        for page in &self.pages {
            self.seconds(page).for_each(|(at_s, requests)| add(0, at_s, requests));
            let minutes = page.minute_bytes.iter().enumerate();
            minutes.for_each(|(at, bytes)| add(1, page.hour * HOUR_S + at as i64 * 60, *bytes));
        }
        self.beyond.iter().for_each(|(hour, requests)| add(0, hour * HOUR_S, *requests));
        timeline
    }

    /// Index of dispersion of the counts in spans of `span_s`: variance over mean within each hour, so that the course of the day is
    /// no burst, and the mean of the hours by their requests. 1 is a Poisson process. `None` without hours of 10 spans and requests in
    /// as many. Of the first and last hour (`from_s`, `to_s`) what lies within the log.
    pub fn dispersion(&self, span_s: i64, from_s: i64, to_s: i64) -> Option<f64> {
        let (mut weighted, mut weights) = (0.0, 0.0);
        for page in &self.pages {
            let begin = page.hour * HOUR_S;
            let mut spans = vec![0u64; (HOUR_S / span_s) as usize];
            for (at_s, requests) in self.seconds(page) {
                spans[((at_s - begin) / span_s) as usize] += requests;
            }
            let is_inside = |at: usize| {
                let at_s = begin + at as i64 * span_s;
                at_s >= from_s && at_s + span_s <= to_s + 1
            };
            let counts: Vec<f64> =
                (0..spans.len()).filter(|at| is_inside(*at)).map(|at| spans[at] as f64).collect();
            let sum: f64 = counts.iter().sum();
            let count = counts.len() as f64;
            if counts.len() < 10 || sum < 10.0 {
                continue;
            }
            let mean = sum / count;
            let variance = counts.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
            weighted += variance / mean * sum;
            weights += sum;
        }
        (weights > 0.0).then(|| weighted / weights)
    }
}
