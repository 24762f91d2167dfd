//! Redirects: the requests that responses lead to, made off the hot path and kept for the next time.
//!
//! A chain of redirects is one request: it was started once, it has one outcome, and one timeout covers all of it. A
//! redirect that cannot be followed (too many, to a server that the load may not go to, not HTTP, longer than a
//! `Location` may be) counts as the response, and as a failure.

use super::Engine;
use super::conn::Conn;
use crate::io::network_io::NetworkIo;
use crate::plan::{Plan, Template};
use crate::results::recorder::Report;
use std::collections::{HashMap, VecDeque};
use url::Url;

/// Targets that are kept besides those in use. Targets usually repeat; where each one is new, the oldest is evicted.
const SPARE_TARGETS: usize = 256;
/// From here on a serial is that of a list's entry.
const LIST_ENTRY_SERIALS: u64 = 1 << 63;
/// As many more where documents are searched for what they embed.
const FOUND_TARGETS: usize = 8192;
/// Most targets of a thread that lists hold. Beyond the others only as many are kept as the pages in progress have at
/// once.
const HELD_MAX: usize = 1 << 18;
/// First byte of the keys of parts that were found; those of redirects are longer than they.
const PART_KEY: &[u8] = b"part";
/// The same of redirects of requests that are built each time.
const DYNAMIC_KEY: &[u8] = b"dynamic";

/// The requests of one thread: those of the plan and behind them those that redirects led to, under one numbering.
#[derive(Debug)]
pub(crate) struct Targets<'p> {
    planned: &'p [Template],
    found: Vec<FoundTarget>,
    found_max: usize,
    by_key: HashMap<Vec<u8>, usize>,
    /// Where the next key is built.
    key: Vec<u8>,
    /// Targets without users when they were added here, the oldest first.
    unused: VecDeque<usize>,
    created: u64,
}

#[derive(Debug)]
struct FoundTarget {
    template: Template,
    /// A number of its own: the place is used again, this is not.
    serial: u64,
    key: Vec<u8>,
    /// Requests in progress to it, and lists that it is on.
    users: u32,
    /// Whether it is among the unused.
    is_listed: bool,
}

impl<'p> Targets<'p> {
    /// The requests of the plan, for a thread with this many connections.
    pub(crate) fn new(plan: &'p Plan, open_max: u32) -> Self {
        Self {
            planned: &plan.templates,
            found: vec![],
            found_max: open_max as usize
                + SPARE_TARGETS
                + if plan.script.as_ref().is_some_and(|script| script.discovers) { FOUND_TARGETS } else { 0 },
            by_key: HashMap::new(),
            key: vec![],
            unused: VecDeque::new(),
            created: 0,
        }
    }

    /// The request of this number.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &Template {
        match self.planned.get(number) {
            Some(template) => template,
            None => &self.found[number - self.planned.len()].template,
        }
    }

    /// Whether the request of this number is one of the plan.
    #[inline]
    pub(crate) fn is_planned(&self, number: usize) -> bool {
        number < self.planned.len()
    }

    /// A number for a target that stays the same while the target is kept, and is never reused.
    pub(super) fn key(&self, number: usize) -> u32 {
        match number.checked_sub(self.planned.len()) {
            None => number as u32,
            Some(index) => self.found[index].serial as u32,
        }
    }

    /// A part of the page that `from` is the document of: its number, and whether it is new. `None` when there is no
    /// room.
    pub(super) fn part(
        &mut self,
        plan: &Plan,
        from: usize,
        url: &Url,
        origin: usize,
    ) -> Option<(usize, bool)> {
        let template = self.get(from);
        let propagation_hash = template.propagation_hash();
        self.key.clear();
        self.key.extend_from_slice(PART_KEY);
        self.key.extend_from_slice(&propagation_hash.to_ne_bytes());
        self.key.extend_from_slice(url.as_str().as_bytes());
        if let Some(&known) = self.by_key.get(&self.key) {
            return Some((known, false));
        }
        let name = plan.part_name(url.path());
        let template = Template::new(self.get(from).part(url.clone()), origin, name);
        Some((self.add(template)?, true))
    }

    /// Where a redirect of a request leads that was built for this one sending.
    pub(super) fn target_of_rendered(
        &mut self,
        plan: &Plan,
        own: &Template,
        status: u16,
        location: &[u8],
    ) -> Option<(usize, bool)> {
        let template = redirected(plan, own, status, location)?;
        self.key.clear();
        self.key.extend_from_slice(DYNAMIC_KEY);
        self.key.extend_from_slice(&self.created.to_ne_bytes());
        Some((self.add(template)?, true))
    }

    /// A request to it is in progress, or it is on a list.
    pub(super) fn retain(&mut self, number: usize) {
        if let Some(found) =
            number.checked_sub(self.planned.len()).and_then(|index| self.found.get_mut(index))
        {
            found.users += 1;
        }
    }

    /// A request to it has ended.
    #[inline]
    pub(crate) fn release(&mut self, number: usize) {
        if let Some(index) = number.checked_sub(self.planned.len()) {
            let found = &mut self.found[index];
            found.users -= 1;
            if found.users == 0 && !std::mem::replace(&mut found.is_listed, true) {
                self.unused.push_back(index);
            }
        }
    }

    /// Where a redirect of request `from` leads: its number, and whether it is new. `None` when it cannot be followed.
    /// `item` is the entry of the list that it is, if there is one.
    pub(super) fn target(
        &mut self,
        plan: &Plan,
        (from, item): (usize, u32),
        status: u16,
        location: &[u8],
    ) -> Option<(usize, bool)> {
        let list = plan.choice.list();
        let serial = match from.checked_sub(self.planned.len()) {
            // Entries of one kind differ in what a relative location means.
            None if list.is_some() => LIST_ENTRY_SERIALS + u64::from(item),
            None => from as u64,
            Some(index) => self.found[index].serial,
        };
        self.key.clear();
        self.key.extend_from_slice(&serial.to_ne_bytes());
        // 301 and 302, 307 and 308 do not differ in what is sent next.
        self.key.push(match status {
            303 => 0,
            307 | 308 => 1,
            _ => 2,
        });
        self.key.extend_from_slice(location);
        if let Some(&known) = self.by_key.get(&self.key) {
            return Some((known, false));
        }
        let entry = if self.is_planned(from) { plan.entry(item as usize) } else { None };
        let template = entry.as_ref().unwrap_or_else(|| self.get(from));
        let template = redirected(plan, template, status, location)?;
        Some((self.add(template)?, true))
    }

    /// The place of the target that was left unused first.
    fn pop_unused(&mut self) -> Option<usize> {
        while let Some(index) = self.unused.pop_front() {
            self.found[index].is_listed = false;
            if self.found[index].users == 0 {
                return Some(index);
            }
        }
        None
    }

    /// Makes room for one more target than those that are kept, which are all in use. False when there are too many.
    pub(super) fn grow(&mut self) -> bool {
        let grows = self.found_max < HELD_MAX;
        self.found_max += usize::from(grows);
        grows
    }

    /// Keeps a target under the key built last; the longest unused one is evicted.
    fn add(&mut self, template: Template) -> Option<usize> {
        self.created += 1;
        let serial = self.planned.len() as u64 + self.created;
        let found = FoundTarget { template, serial, key: self.key.clone(), users: 0, is_listed: true };
        let index = if self.found.len() < self.found_max {
            self.found.push(found);
            self.found.len() - 1
        } else {
            let index = self.pop_unused()?;
            let old = std::mem::replace(&mut self.found[index], found);
            self.by_key.remove(&old.key);
            index
        };
        // Unused until a request or a list retains it.
        self.unused.push_back(index);
        let number = self.planned.len() + index;
        self.by_key.insert(self.key.clone(), number);
        Some(number)
    }
}

/// What a redirect makes of a request.
fn redirected(plan: &Plan, template: &Template, status: u16, location: &[u8]) -> Option<Template> {
    let redirect = template.redirected(status, location)?;
    let origin = match redirect.same_origin {
        true => template.origin,
        false => plan.origin_at(redirect.source.url())?,
    };
    Some(Template::new(redirect.source, origin, template.name))
}

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Follows the redirect on this slot. False when the response is not a redirect, or it cannot be followed.
    pub(super) fn follow_redirect(&mut self, slot: u32) -> bool {
        let conn = &self.conns[slot as usize];
        let request = conn.request;
        if !is_redirected(conn) || request.hops >= self.plan.redirects_max {
            return false;
        }
        let status = conn.response.status();
        let from = (request.template, request.item);
        let target = match self.has_visits().then(|| self.rendered_template(request)).flatten() {
            Some(own) => self.targets.target_of_rendered(self.plan, &own, status, &conn.location),
            None => self.targets.target(self.plan, from, status, &conn.location),
        };
        let Some((number, new)) = target else { return false };
        let (bytes, sent_ns) = (conn.received_bytes, conn.sent_ns);
        if new {
            self.reset_head_cache(number);
        }
        self.targets.retain(number);
        self.targets.release(request.template);
        self.recorder.report.redirects += 1;
        let mut next = request;
        if request.hops == 0 {
            next.sent_ns = sent_ns;
        }
        (next.template, next.sendable_ns, next.retried) = (number, self.wake_ns, false);
        next.hops += 1;
        self.deadlines.remove(slot);
        self.keep_or_close(slot, true);
        match self.has_visits() {
            true => self.fetch_redirected(next, bytes),
            false => self.dispatch(next),
        }
        self.update_room(self.wake_ns);
        true
    }
}

impl<N, X> Engine<'_, N, X> {
    /// A new target took this number: the meaning of a head depends on what it answers.
    pub(super) fn reset_head_cache(&mut self, number: usize) {
        match self.head_cache.get_mut(number) {
            Some(head_cache) => *head_cache = Default::default(),
            None => self.head_cache.push(Default::default()),
        }
    }
}

/// Whether the response on this connection names another place.
pub(super) fn is_redirected(conn: &Conn) -> bool {
    !conn.location.is_empty()
}
