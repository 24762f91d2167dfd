//! The URLs that matter, in a table of a fixed size: those with many requests, bytes or much service time.
//!
//! Exact while the URLs fit. Then Misra and Gries' frequent items in the form of Anderson et al. 2017, "A High-Performance Algorithm for
//! Identifying Frequent Items in Data Streams": when the table is full, the median weight is taken off all, and those without any left go.
//! A weight is a request and its bytes and time, so that one slow request of a minute remains as well as a thousand quick ones.

use crate::class::Class;

/// Most URLs that are kept; places have 20 bits.
const ENTRIES_MAX: usize = 1 << 17;
const SLOTS: usize = ENTRIES_MAX * 2;
/// Of a longer URL the beginning is shown.
const NAME_MAX: usize = 250;
const PLACE: u64 = 0xf_ffff;
/// No place in the table.
pub const NO_PLACE: u32 = u32::MAX;

/// What is known of a URL: a line of the cache, and not parts of two.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Url {
    hash: u64,
    weight: u64,
    name_at: u32,
    name_length: u16,
    /// What it is for.
    pub class: Class,
    /// How many requests.
    pub requests: u32,
    /// Those with a status of 500 and more.
    pub server_errors: u32,
    /// Those with 400 to 499.
    pub client_errors: u32,
    /// Requests whose service time is known, at most as many as `requests`.
    pub timed: u32,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Sum of the service times, microseconds.
    pub time_us: u64,
    /// The longest.
    pub time_us_max: u64,
}

/// A table of URLs.
#[derive(Debug, Clone)]
pub struct Urls {
    /// Upper bits of the hash, and the place in `entries`; 0 is empty.
    slots: Vec<u64>,
    entries: Vec<Url>,
    names: Vec<u8>,
    /// Weight that was taken off: no URL with more of it is missing.
    lost: u64,
    generation: u32,
}

impl Default for Urls {
    fn default() -> Self {
        Self { slots: vec![0; SLOTS], entries: vec![], names: vec![], lost: 0, generation: 0 }
    }
}

/// A response, as the table counts it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Response {
    /// Status, 0 not known.
    pub status: u16,
    /// Bytes sent.
    pub bytes: u64,
    /// Service time, where it is logged.
    pub time_us: Option<u64>,
}

impl Response {
    fn weight(&self) -> u64 {
        // A request counts as much as 16 kB or 65 ms.
        1024 + (self.bytes >> 4) + (self.time_us.unwrap_or(0) >> 6)
    }
}

impl Urls {
    /// The place of a URL by its hash, for [`Self::add`]; [`NO_PLACE`] when it is not in the table. Holds until [`Self::generation`]
    /// changes. 44 bits of the hash tell URLs apart.
    #[inline]
    pub fn place(&self, hash: u64) -> u32 {
        self.find(hash).map_or(NO_PLACE, |place| place as u32)
    }

    /// The places of many URLs, and what is known of these fetched: what is fetched for one does not wait for the one before.
    pub fn places(&self, hashes: &[u64], fetched: &mut Vec<u64>, places: &mut Vec<u32>) {
        fetched.clear();
        fetched.extend(hashes.iter().map(|hash| self.slots[first_slot(*hash)]));
        places.clear();
        places.extend(hashes.iter().zip(fetched).map(|(hash, held)| {
            let is_it = (*held ^ hash) & !PLACE == 0 && *held != 0;
            if is_it { (*held & PLACE) as u32 } else { self.place(*hash) }
        }));
        let known = places.iter().filter_map(|place| self.entries.get(*place as usize));
        std::hint::black_box(known.fold(0, |sum, url| sum ^ url.requests));
    }

    /// How often places have changed.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Counts a request for the URL at a place; gives its class, `None` without a place.
    #[inline]
    pub fn add(&mut self, place: u32, response: &Response) -> Option<Class> {
        let url = self.entries.get_mut(place as usize)?;
        url.count(response);
        Some(url.class)
    }

    /// Counts a request for a URL that had no place; gives its class. The parts are its text.
    pub fn add_new(&mut self, hash: u64, response: &Response, class: Class, parts: &[&[u8]]) -> Class {
        let place = match self.find(hash) {
            Ok(place) => place,
            Err(slot) => self.insert(slot, Url { class, ..Url::empty(hash) }, parts),
        };
        self.entries[place].count(response);
        class
    }

    /// The place of a hash, or the slot where it would be.
    #[inline]
    fn find(&self, hash: u64) -> Result<usize, usize> {
        let mut slot = first_slot(hash);
        loop {
            let held = self.slots[slot];
            if (held ^ hash) & !PLACE == 0 && held != 0 {
                return Ok((held & PLACE) as usize);
            }
            if held == 0 {
                return Err(slot);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    fn insert(&mut self, slot: usize, url: Url, parts: &[&[u8]]) -> usize {
        let slot = if self.entries.len() == ENTRIES_MAX {
            self.shrink();
            self.find(url.hash).unwrap_or_else(|slot| slot)
        } else {
            slot
        };
        let name_at = self.names.len();
        parts.iter().for_each(|part| self.names.extend_from_slice(part));
        self.names.truncate(name_at + NAME_MAX);
        let name_length = (self.names.len() - name_at) as u16;
        let place = self.entries.len();
        self.slots[slot] = url.hash & !PLACE | place as u64;
        self.entries.push(Url { name_at: name_at as u32, name_length, ..url });
        place
    }

    /// Takes the median weight off all, which makes room for half of them or more.
    fn shrink(&mut self) {
        let mut weights: Vec<u64> = self.entries.iter().map(|url| url.weight).collect();
        let (_, median, _) = weights.select_nth_unstable(ENTRIES_MAX / 2);
        let (median, before, names) =
            (*median, std::mem::take(&mut self.entries), std::mem::take(&mut self.names));
        self.lost += median;
        self.generation += 1;
        self.slots.fill(0);
        for url in before.into_iter().filter(|url| url.weight > median) {
            if let Err(slot) = self.find(url.hash) {
                let kept = Url { weight: url.weight - median, ..url };
                self.insert(slot, kept, &[name_of(&names, &url)]);
            }
        }
    }

    /// Adds all URLs of another table.
    pub fn merge(&mut self, other: &Self) {
        self.lost += other.lost;
        for url in &other.entries {
            match self.find(url.hash) {
                Ok(place) => self.entries[place].absorb(url),
                Err(slot) => {
                    self.insert(slot, *url, &[name_of(&other.names, url)]);
                }
            }
        }
    }

    /// Whether every URL is in it, with all its requests.
    pub fn is_exact(&self) -> bool {
        self.lost == 0
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All that are kept, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (String, &Url)> {
        self.entries.iter().map(|url| (String::from_utf8_lossy(name_of(&self.names, url)).into_owned(), url))
    }

    /// The first ones by a figure, the largest first; without those whose figure is 0.
    pub fn top(&self, count: usize, figure: impl Fn(&Url) -> u64) -> Vec<(String, Url)> {
        let mut order: Vec<&Url> = self.entries.iter().filter(|url| figure(url) > 0).collect();
        order.sort_by_key(|url| (std::cmp::Reverse(figure(url)), name_of(&self.names, url)));
        let named = |url: &&Url| (String::from_utf8_lossy(name_of(&self.names, url)).into_owned(), **url);
        order.iter().take(count).map(named).collect()
    }
}

#[inline]
fn first_slot(hash: u64) -> usize {
    (hash >> 20) as usize % SLOTS
}

fn name_of<'a>(names: &'a [u8], url: &Url) -> &'a [u8] {
    let from = url.name_at as usize;
    &names[from..from + usize::from(url.name_length)]
}

impl Url {
    fn empty(hash: u64) -> Self {
        Self {
            hash,
            weight: 0,
            name_at: 0,
            name_length: 0,
            class: Class::Other,
            requests: 0,
            server_errors: 0,
            client_errors: 0,
            timed: 0,
            bytes: 0,
            time_us: 0,
            time_us_max: 0,
        }
    }

    #[inline]
    fn count(&mut self, response: &Response) {
        self.weight += response.weight();
        self.requests += 1;
        self.bytes += response.bytes;
        if response.status >= 400 {
            let errors =
                if response.status >= 500 { &mut self.server_errors } else { &mut self.client_errors };
            *errors += 1;
        }
        if let Some(time_us) = response.time_us {
            self.timed += 1;
            self.time_us += time_us;
            self.time_us_max = self.time_us_max.max(time_us);
        }
    }

    fn absorb(&mut self, other: &Self) {
        self.weight += other.weight;
        self.requests += other.requests;
        self.server_errors += other.server_errors;
        self.client_errors += other.client_errors;
        self.timed += other.timed;
        self.bytes += other.bytes;
        self.time_us += other.time_us;
        self.time_us_max = self.time_us_max.max(other.time_us_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::quality::FixedState;
    use std::hash::BuildHasher;

    fn add(urls: &mut Urls, number: u64, response: &Response) {
        let hash = FixedState::with_seed(1).hash_one(number);
        if urls.add(urls.place(hash), response).is_none() {
            urls.add_new(hash, response, Class::Page, &[b"/", number.to_string().as_bytes()]);
        }
    }

    /// 600,000 URLs once each, and among them some that matter: all of these are found, nearly whole.
    #[test]
    fn urls_that_matter_survive_those_that_do_not() {
        let (mut first, mut second) = (Urls::default(), Urls::default());
        for number in 0..600_000u64 {
            let half = if number.is_multiple_of(2) { &mut first } else { &mut second };
            add(half, 1000 + number, &Response { status: 200, bytes: 500, time_us: Some(100) });
            if number % 100 < 2 {
                add(half, 1, &Response { status: 500, bytes: 10, time_us: Some(50) });
            }
            if number % 20_000 == 7 {
                add(half, 2, &Response { status: 200, bytes: 200_000_000, time_us: Some(3) });
            }
            if number % 50_000 == 9 {
                add(half, 3, &Response { status: 200, bytes: 0, time_us: Some(30_000_000) });
            }
        }
        first.merge(&second);
        assert!(!first.is_exact() && first.len() <= ENTRIES_MAX);
        let names = |figure: fn(&Url) -> u64| first.top(1, figure)[0].clone();
        let (name, most) = names(|url| u64::from(url.requests));
        assert_eq!((name.as_str(), most.requests, most.server_errors), ("/1", 12_000, 12_000));
        let (name, most) = names(|url| url.bytes);
        assert_eq!((name.as_str(), most.bytes), ("/2", 6_000_000_000));
        let (name, most) = names(|url| url.time_us);
        assert_eq!((name.as_str(), most.time_us_max, most.timed), ("/3", 30_000_000, 12));
    }

    #[test]
    fn a_table_that_is_large_enough_is_exact() {
        let mut urls = Urls::default();
        for number in 0..90_000 {
            add(&mut urls, number % 30_000, &Response { status: 404, bytes: 1, time_us: None });
        }
        assert!(urls.is_exact() && urls.len() == 30_000);
        assert!(urls.iter().all(|(_, url)| (url.requests, url.bytes, url.client_errors) == (3, 3, 3)));
    }
}
