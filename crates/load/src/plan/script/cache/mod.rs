//! The private cache of one visitor's browser: RFC 9111. Only how long a response is fresh and what confirms it is
//! kept, never its body: a load needs to know what is requested, not to show it.
//!
//! Browsers take a tenth of the time since the last change for responses without an expiry (RFC 9111, 4.2.2; Chromium's
//! `HttpResponseHeaders::GetFreshnessLifetimes`). `Vary` only matters when it is `*`: a visitor requests one thing with
//! the same fields each time.

use httparse::{Header, Response};
use std::time::UNIX_EPOCH;

/// Most responses that one visitor keeps.
const ENTRIES_MAX: usize = 4096;
/// Longest validators that are kept, together.
const VALIDATORS_BYTES_MAX: usize = 1024;
const HEADERS_MAX: usize = 128;

/// The cache of one visitor.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// By key, in their order.
    entries: Vec<(u32, Entry)>,
}

/// What the cache knows of a resource that is to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheLookup<'a> {
    /// Not cached: it is requested.
    Absent,
    /// Cached and fresh: no request is needed.
    Fresh,
    /// Cached and stale: it must be revalidated with `If-None-Match` or `If-Modified-Since`, at least one of them.
    Stale {
        /// For `If-None-Match`.
        etag: Option<&'a [u8]>,
        /// For `If-Modified-Since`.
        last_modified: Option<&'a [u8]>,
    },
}

#[derive(Debug)]
struct Entry {
    /// Fresh before this time.
    fresh_until_s: u64,
    /// How long it is fresh.
    freshness: Freshness,
    /// Entity tag, and behind it the time of the last change as it was written.
    validators: Box<[u8]>,
    etag_bytes: u16,
}

/// The freshness that a response declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// So long.
    Seconds(u64),
    /// Not declared; it was last changed then.
    LastChange(u64),
    /// It is stale at once, or its freshness is unknown.
    Never,
}

impl Cache {
    /// What is known of `key` at `now_s`, seconds since 1970.
    pub(crate) fn lookup(&self, key: u32, now_s: u64) -> CacheLookup<'_> {
        let Some((_, entry)) = self.place(key).ok().and_then(|place| self.entries.get(place)) else {
            return CacheLookup::Absent;
        };
        if now_s < entry.fresh_until_s {
            return CacheLookup::Fresh;
        }
        let (etag, changed) = entry.validators.split_at(usize::from(entry.etag_bytes));
        match (etag.is_empty(), changed.is_empty()) {
            (true, true) => CacheLookup::Absent,
            (etag_lacks, changed_lacks) => CacheLookup::Stale {
                etag: (!etag_lacks).then_some(etag),
                last_modified: (!changed_lacks).then_some(changed),
            },
        }
    }

    /// Keeps a successful response to a GET, or forgets the one before when this one may not be kept. `head` begins
    /// with the status line.
    pub(crate) fn store(&mut self, key: u32, head: &[u8], now_s: u64) {
        let entry = parse_fields(head).and_then(|fields| fields.entry(now_s));
        match (self.place(key), entry) {
            (Ok(place), Some(entry)) => self.entries[place].1 = entry,
            (Ok(place), None) => drop(self.entries.remove(place)),
            (Err(place), Some(entry)) if self.entries.len() < ENTRIES_MAX => {
                self.entries.insert(place, (key, entry));
            }
            (Err(_), _) => {}
        }
    }

    /// Notes that the server confirmed what is kept: `head` is that of a 304, whose fields replace those before (RFC
    /// 9111, 4.3.4).
    pub(crate) fn confirm(&mut self, key: u32, head: &[u8], now_s: u64) {
        let (Ok(place), Some(fields)) = (self.place(key), parse_fields(head)) else { return };
        if fields.no_store || fields.varies_always {
            self.entries.remove(place);
            return;
        }
        let entry = &mut self.entries[place].1;
        if fields.has_freshness() {
            entry.freshness = fields.freshness(now_s);
        }
        entry.fresh_until_s = fields.fresh_until_s(entry.freshness, now_s);
        if let Some((validators, etag_bytes)) = fields.validators()
            && !validators.is_empty()
        {
            (entry.validators, entry.etag_bytes) = (validators, etag_bytes);
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.entries = vec![];
    }

    fn place(&self, key: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(key, _)| *key)
    }
}

/// The fields of a response that matter.
#[derive(Debug, Default)]
struct CacheFields<'a> {
    status: u16,
    no_store: bool,
    no_cache: bool,
    must_revalidate: bool,
    has_cache_control: bool,
    pragma_no_cache: bool,
    varies_always: bool,
    max_age_s: Option<u64>,
    /// `Some(None)`: the value is not a date, which counts as in the past (RFC 9111, 5.3).
    expires_s: Option<Option<u64>>,
    date_s: Option<u64>,
    age_s: u64,
    last_modified: Option<&'a [u8]>,
    etag: Option<&'a [u8]>,
}

fn parse_fields(head: &[u8]) -> Option<CacheFields<'_>> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut lines);
    httparse::ParserConfig::default()
        .allow_obsolete_multiline_headers_in_responses(true)
        .parse_response(&mut response, head)
        .ok()?;
    let mut fields = CacheFields { status: response.code?, ..CacheFields::default() };
    for Header { name, value } in response.headers.iter() {
        fields.add(name, value.trim_ascii());
    }
    Some(fields)
}

impl<'a> CacheFields<'a> {
    fn add(&mut self, name: &str, value: &'a [u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match () {
            () if is("cache-control") => {
                self.has_cache_control = true;
                for directive in directives(value) {
                    self.directive(directive);
                }
            }
            () if is("pragma") => {
                self.pragma_no_cache |= directives(value).any(|one| one.eq_ignore_ascii_case(b"no-cache"));
            }
            () if is("vary") => self.varies_always |= directives(value).any(|one| one == b"*"),
            () if is("expires") => self.expires_s = self.expires_s.or(Some(date_s(value))),
            () if is("date") => self.date_s = self.date_s.or(date_s(value)),
            () if is("age") => self.age_s = seconds(value).unwrap_or(self.age_s),
            () if is("last-modified") => self.last_modified = self.last_modified.or(Some(value)),
            () if is("etag") => self.etag = self.etag.or(Some(value)),
            () => {}
        }
    }

    fn directive(&mut self, directive: &[u8]) {
        let end = directive.iter().position(|&byte| byte == b'=').unwrap_or(directive.len());
        let (name, value) = directive.split_at(end);
        let is = |known: &str| name.trim_ascii().eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("no-store") => self.no_store = true,
            () if is("no-cache") => self.no_cache = true,
            () if is("must-revalidate") => self.must_revalidate = true,
            () if is("max-age") => {
                let value = value.strip_prefix(b"=").unwrap_or_default().trim_ascii();
                let value =
                    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
                // RFC 9111, 4.2.1: an invalid value is stale, of several the first counts.
                self.max_age_s = self.max_age_s.or(Some(seconds(value).unwrap_or(0)));
            }
            () => {}
        }
    }

    fn has_freshness(&self) -> bool {
        self.has_cache_control || self.expires_s.is_some() || self.last_modified.is_some()
    }

    /// RFC 9111, 4.2.1 and 4.2.2.
    fn freshness(&self, now_s: u64) -> Freshness {
        if self.no_cache || self.pragma_no_cache && !self.has_cache_control {
            return Freshness::Never;
        }
        if let Some(seconds) = self.max_age_s {
            return Freshness::Seconds(seconds);
        }
        match self.expires_s {
            Some(Some(expires_s)) => {
                Freshness::Seconds(expires_s.saturating_sub(self.date_s.unwrap_or(now_s)))
            }
            Some(None) => Freshness::Never,
            None if self.must_revalidate => Freshness::Never,
            None => self.last_modified.and_then(date_s).map_or(Freshness::Never, Freshness::LastChange),
        }
    }

    /// RFC 9111, 4.2.3. The time that the response took is left out: it is below the second.
    fn fresh_until_s(&self, freshness: Freshness, now_s: u64) -> u64 {
        let date_s = self.date_s.unwrap_or(now_s);
        let lifetime_s = match freshness {
            Freshness::Seconds(seconds) => seconds,
            Freshness::LastChange(changed_s) => date_s.saturating_sub(changed_s) / 10,
            Freshness::Never => 0,
        };
        let age_s = self.age_s.max(now_s.saturating_sub(date_s));
        now_s.saturating_add(lifetime_s).saturating_sub(age_s)
    }

    fn validators(&self) -> Option<(Box<[u8]>, u16)> {
        let etag = self.etag.unwrap_or_default();
        // An invalid date validates nothing.
        let changed = self.last_modified.filter(|value| date_s(value).is_some()).unwrap_or_default();
        let length_bytes = etag.len() + changed.len();
        let etag_bytes = u16::try_from(etag.len()).ok()?;
        (length_bytes <= VALIDATORS_BYTES_MAX).then(|| ([etag, changed].concat().into(), etag_bytes))
    }

    /// RFC 9111, 3: what is kept, when it may be. Responses other than 200 and 203 are rare, and requested again.
    fn entry(&self, now_s: u64) -> Option<Entry> {
        if !matches!(self.status, 200 | 203) || self.no_store || self.varies_always {
            return None;
        }
        let (validators, etag_bytes) = self.validators().unwrap_or_default();
        let freshness = self.freshness(now_s);
        let fresh_until_s = self.fresh_until_s(freshness, now_s);
        (fresh_until_s > now_s || !validators.is_empty()).then_some(Entry {
            fresh_until_s,
            freshness,
            validators,
            etag_bytes,
        })
    }
}

/// The parts of a list; commas in quotes do not part.
fn directives(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let parts = value.split(move |&byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    });
    parts.map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

/// RFC 9111, 1.2.2: a number too large is as good as 2^31.
fn seconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(value).ok()?.parse::<u64>().unwrap_or(1 << 31);
    Some(number.min(1 << 31))
}

/// RFC 9110, 5.6.7: a date in one of three forms.
fn date_s(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests;
