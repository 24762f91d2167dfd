//! Under which names the requests of a list are counted: so many that they can be distinguished, so few that a report
//! is readable them.
//!
//! The name is the first segment of the path, `/shop/*` for what lies below it; where there are too many of these, the
//! ending of the file, `*.html`. Before it stand the method, if it is not GET, and the server, if there are several.

use super::Kind;
use super::target::Servers;
use std::collections::HashMap;
use webdyno_model::workload::visit::ListEntries;

/// Most names; those beyond share one.
pub(super) const NAMES_MAX: usize = 20;
/// The name of the requests beyond them.
const OTHERS: &str = "(other)";
/// Longest ending of a file's name.
const ENDING_BYTES_MAX: usize = 8;

/// Names the entries.
pub(super) fn assign(list: &mut ListEntries, kinds: &[Kind], servers: &Servers) {
    let (labels, label_by_kind) = labels(kinds, servers);
    let mut named = name_by(first_segment, list, &label_by_kind);
    if named.keys.len() > NAMES_MAX {
        named = name_by(ending, list, &label_by_kind);
    }
    let label_text = |(label, key): &(u32, Vec<u8>)| {
        format!("{}{}", labels[*label as usize], String::from_utf8_lossy(key))
    };
    list.names = named.keys.iter().take(NAMES_MAX).map(label_text).collect();
    if named.keys.len() > NAMES_MAX {
        list.names.push(OTHERS.into());
    }
    for (entry, number) in list.entries.iter_mut().zip(named.numbers) {
        entry.name = number;
    }
}

/// What stands before the path, for each kind.
fn labels(kinds: &[Kind], servers: &Servers) -> (Vec<String>, Vec<u32>) {
    let several = kinds.iter().any(|kind| kind.server != kinds[0].server);
    let mut labels: Vec<String> = vec![];
    let of = |kind: &Kind| {
        let method = if kind.method == "GET" { String::new() } else { format!("{} ", kind.method) };
        let server = if several { servers.name(kind.server) } else { "" };
        let label = format!("{method}{server}");
        let known = labels.iter().position(|known| *known == label);
        known.unwrap_or_else(|| {
            labels.push(label);
            labels.len() - 1
        }) as u32
    };
    let by_kind = kinds.iter().map(of).collect();
    (labels, by_kind)
}

/// Names in the order in which they were met, up to one too many, and the number of each entry's.
struct Named {
    keys: Vec<(u32, Vec<u8>)>,
    numbers: Vec<u16>,
}

/// A part of the path and what stands around it.
type Key<'a> = (&'static [u8], &'a [u8], &'static [u8]);

/// Names all entries by this part of their paths.
fn name_by(key_of: fn(&[u8]) -> Key<'_>, list: &ListEntries, label_by_kind: &[u32]) -> Named {
    let mut known: HashMap<(u32, Key<'_>), u16> = HashMap::new();
    let mut keys: Vec<(u32, Vec<u8>)> = vec![];
    let mut last = None;
    let mut numbers = Vec::with_capacity(list.entries.len());
    for entry in &list.entries {
        let target = list.target(entry);
        let path = &target[..memchr::memchr(b'?', target).unwrap_or(target.len())];
        let key = (label_by_kind[entry.kind as usize], key_of(path));
        if let Some((before, number)) = last
            && before == key
        {
            numbers.push(number);
            continue;
        }
        let number = match known.get(&key) {
            Some(&number) => number,
            None => {
                if keys.len() <= NAMES_MAX {
                    let (before, part, behind) = key.1;
                    keys.push((key.0, [before, part, behind].concat()));
                }
                let number = (keys.len() - 1).min(NAMES_MAX) as u16;
                // Those beyond are not remembered: there may be a million of them.
                if usize::from(number) < NAMES_MAX {
                    known.insert(key, number);
                }
                number
            }
        };
        last = Some((key, number));
        numbers.push(number);
    }
    Named { keys, numbers }
}

/// `/shop` of `/shop`; `/shop/*` of `/shop/cart`.
fn first_segment(path: &[u8]) -> Key<'_> {
    match path.get(1..).and_then(|rest| memchr::memchr(b'/', rest)) {
        Some(slash) => (b"", &path[..=slash], b"/*"),
        None => (b"", path, b""),
    }
}

/// `*.html` of `/a/b.html`.
fn ending(path: &[u8]) -> Key<'_> {
    let file = &path[memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1)..];
    let ending = memchr::memrchr(b'.', file).map(|dot| &file[dot..]);
    let is_one = |ending: &&[u8]| {
        (2..=ENDING_BYTES_MAX + 1).contains(&ending.len())
            && ending[1..].iter().all(u8::is_ascii_alphanumeric)
    };
    match ending.filter(is_one) {
        Some(ending) => (b"*", ending, b""),
        None => (b"(no ending)", b"", b""),
    }
}
