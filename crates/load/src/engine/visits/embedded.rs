//! What documents and style sheets embed: found once for each content, and kept.
//!
//! A thread keeps the lists of the contents received last. A list retains the targets on it; a target without users
//! is evicted for new ones.

use crate::engine::Engine;
use crate::io::network_io::NetworkIo;
use crate::plan::script::discover;
use crate::plan::script::discover::{FOUND_MAX, FoundUrl, ResourceKind};
use crate::results::recorder::Report;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use url::Url;

/// Most lists that a thread keeps.
const LISTS_MAX: usize = 512;
/// Lists that are examined to find one that can be forgotten.
const EVICTION_SCAN_MAX: usize = 64;
/// Most targets whose last content is remembered.
const LATEST_TARGETS_MAX: usize = 8192;

/// What something is fetched as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A step's own request.
    Step,
    /// Something that embeds nothing.
    Part,
    StyleSheet,
    Frame,
}

/// What a content embeds.
#[derive(Debug)]
pub(super) struct EmbeddedResources {
    /// Targets, each once, and what they are fetched as.
    pub(super) parts: Vec<(u32, Kind)>,
    /// Some of it could not be kept: it names too much, or there are too many targets.
    pub(super) is_incomplete: bool,
}

/// The lists of one thread.
#[derive(Debug, Default)]
pub(super) struct EmbeddedCache {
    /// By a hash of content and URL.
    known: HashMap<u64, Rc<EmbeddedResources>>,
    /// The hashes, the oldest first.
    order: VecDeque<u64>,
    /// The hash of the last content of a target.
    latest: HashMap<u32, u64>,
}

impl EmbeddedCache {
    /// The list of a target's last content, if it is still there.
    pub(super) fn latest(&self, key: u32) -> Option<Rc<EmbeddedResources>> {
        self.latest.get(&key).and_then(|hash| self.known.get(hash)).cloned()
    }

    fn note_latest(&mut self, key: u32, hash: u64) {
        if self.latest.len() >= LATEST_TARGETS_MAX {
            self.latest.clear();
        }
        self.latest.insert(key, hash);
    }

    /// Removes an old list that no page in progress uses.
    fn oldest(&mut self) -> Option<Rc<EmbeddedResources>> {
        for _ in 0..self.order.len().min(EVICTION_SCAN_MAX) {
            let hash = self.order.pop_front()?;
            match self.known.get(&hash) {
                Some(list) if Rc::strong_count(list) > 1 => self.order.push_back(hash),
                Some(_) => return self.known.remove(&hash),
                None => {}
            }
        }
        None
    }
}

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// The resources that the content of target `key` embeds.
    pub(super) fn embedded_in(
        &mut self,
        from: usize,
        key: u32,
        url: &Url,
        kind: Kind,
        body: &[u8],
    ) -> Rc<EmbeddedResources> {
        let mut hasher = DefaultHasher::new();
        url.as_str().hash(&mut hasher);
        body.hash(&mut hasher);
        // Parts are requested with the header fields of the page, and a frame embeds other things than a style sheet.
        self.targets.get(from).propagation_hash().hash(&mut hasher);
        (kind == Kind::StyleSheet).hash(&mut hasher);
        let hash = hasher.finish();
        self.visits.lists.note_latest(key, hash);
        if let Some(list) = self.visits.lists.known.get(&hash) {
            return list.clone();
        }
        let found = match kind {
            Kind::StyleSheet => discover::css(body, url),
            _ => discover::html(body, url),
        };
        let list = Rc::new(self.resolve_embedded(from, &found));
        while self.visits.lists.known.len() >= LISTS_MAX && self.evict_oldest() {}
        self.visits.lists.known.insert(hash, list.clone());
        self.visits.lists.order.push_back(hash);
        list
    }

    /// The targets of what was found, retained. Resources on servers that are not loaded are left out.
    fn resolve_embedded(&mut self, from: usize, found: &[FoundUrl]) -> EmbeddedResources {
        let mut list = EmbeddedResources {
            parts: Vec::with_capacity(found.len()),
            is_incomplete: found.len() >= FOUND_MAX,
        };
        for FoundUrl { url, kind } in found {
            let Some(origin) = self.plan.origin_at(url) else { continue };
            let target = loop {
                match self.targets.part(self.plan, from, url, origin) {
                    Some(target) => break Some(target),
                    None if self.evict_oldest() || self.targets.grow() => {}
                    None => break None,
                }
            };
            let Some((number, is_new)) = target else {
                list.is_incomplete = true;
                continue;
            };
            if is_new {
                self.reset_head_cache(number);
            }
            let kind = match kind {
                ResourceKind::StyleSheet => Kind::StyleSheet,
                ResourceKind::Frame => Kind::Frame,
                _ => Kind::Part,
            };
            self.targets.retain(number);
            list.parts.push((number as u32, kind));
        }
        list
    }

    /// Evicts the oldest list. False when all lists are in use.
    fn evict_oldest(&mut self) -> bool {
        let Some(list) = self.visits.lists.oldest() else { return false };
        for &(number, _) in &list.parts {
            self.targets.release(number as usize);
        }
        true
    }
}
