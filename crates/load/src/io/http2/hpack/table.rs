//! The tables of HPACK: the static one (RFC 7541, appendix A) and the one that a connection builds (section 2.3.2).

use std::collections::VecDeque;

/// What an entry counts besides its name and value: section 4.1.
const ENTRY_OVERHEAD_BYTES: usize = 32;

/// Names and values by their index, from 1.
#[rustfmt::skip]
static STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""),
    ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""),
    ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""),
    ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""), ("retry-after", ""),
    ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""), ("transfer-encoding", ""),
    ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// Where a field, or only its name, stands in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Field(usize),
    Name(usize),
}

/// A field of a table.
#[derive(Debug)]
struct Entry {
    /// Name, then value.
    bytes: Vec<u8>,
    name_bytes: usize,
}

impl Entry {
    fn split(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.name_bytes)
    }

    fn size_bytes(&self) -> usize {
        self.bytes.len() + ENTRY_OVERHEAD_BYTES
    }
}

/// The table that a connection builds, the newest entry first.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    size_bytes: usize,
    max_bytes: usize,
}

impl Table {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), size_bytes: 0, max_bytes }
    }

    /// The size of an entry for this field.
    pub(super) fn field_bytes(name: &[u8], value: &[u8]) -> usize {
        name.len() + value.len() + ENTRY_OVERHEAD_BYTES
    }

    /// What it may still grow without losing an entry.
    pub(super) fn room_bytes(&self) -> usize {
        self.max_bytes - self.size_bytes
    }

    /// Changes the most that it may hold.
    pub(super) fn resize(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
        self.evict_to(max_bytes);
    }

    fn evict_to(&mut self, bytes: usize) {
        while self.size_bytes > bytes
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size_bytes -= oldest.size_bytes();
        }
    }

    /// Adds a field; older ones make room for it. One that is larger than the table empties it (section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size_bytes = Self::field_bytes(name, value);
        self.evict_to(self.max_bytes.saturating_sub(size_bytes));
        if size_bytes <= self.max_bytes {
            self.entries.push_front(Entry { bytes: [name, value].concat(), name_bytes: name.len() });
            self.size_bytes += size_bytes;
        }
    }

    /// Name and value at an index into both tables.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match STATIC.get(index.checked_sub(1)?) {
            Some((name, value)) => Some((name.as_bytes(), value.as_bytes())),
            None => self.entries.get(index - 1 - STATIC.len()).map(Entry::split),
        }
    }

    /// Where a field stands.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<Found> {
        let mut named = None;
        let first = STATIC.iter().position(|(known, _)| known.as_bytes() == name);
        for (index, (known, known_value)) in STATIC.iter().enumerate().skip(first.unwrap_or(STATIC.len())) {
            if known.as_bytes() != name {
                break;
            }
            if known_value.as_bytes() == value {
                return Some(Found::Field(index + 1));
            }
            named.get_or_insert(index + 1);
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let (known, known_value) = entry.split();
            if known == name {
                let index = STATIC.len() + index + 1;
                if known_value == value {
                    return Some(Found::Field(index));
                }
                named.get_or_insert(index);
            }
        }
        named.map(Found::Name)
    }

    #[cfg(test)]
    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}
