//! What visitors add to requests and keep of responses: cookies, cache validators, captured values.

use super::embedded::Kind;
use super::visitor::{Fetch, FetchEnd, State};
use crate::engine::Engine;
use crate::engine::conn::{KeepHead, Request};
use crate::http::content_check::BodyHandling;
use crate::http::response_head::for_each_value;
use crate::io::network_io::NetworkIo;
use crate::plan::script::cache::CacheLookup;
use crate::plan::{Dynamic, Script, StepPlan};
use crate::results::recorder::Report;
use url::Url;
use webdyno_model::workload::visit::Resources;

const NS_PER_S: u64 = 1_000_000_000;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// The time of day, in seconds.
    fn now_s(&self) -> u64 {
        self.visits.epoch_s + self.now_ns / NS_PER_S
    }

    /// The current step of a visitor.
    pub(super) fn step_of(&self, index: u32) -> Option<&StepPlan> {
        let visitor = self.visits.visitors.get(index as usize)?;
        Some(self.plan.script.as_ref()?.step_at(visitor.spec, visitor.step))
    }

    /// What is wanted of the response to a fetch.
    pub(super) fn response_handling(&self, index: u32, number: u32) -> (BodyHandling, KeepHead) {
        let (Some(script), Some(step)) = (&self.plan.script, self.step_of(index)) else {
            return (BodyHandling::default(), KeepHead::Never);
        };
        let fetch = &self.visits.visitors[index as usize].fetches[number as usize];
        let is_step = number == 0;
        let discovers = step.page.as_ref().is_some_and(|page| page.resources == Resources::Found);
        let body_handling = BodyHandling {
            checked: is_step,
            kept: match fetch.kind {
                Kind::Step => discovers || step.captures.needs_body(),
                Kind::Part => false,
                Kind::StyleSheet | Kind::Frame => true,
            },
            needed: is_step && discovers,
        };
        let head = match script {
            _ if is_step && !step.captures.is_empty() => KeepHead::Always,
            Script { cache: true, .. } => KeepHead::Always,
            Script { cookies: true, .. } => KeepHead::IfSetsCookies,
            _ => KeepHead::Never,
        };
        (body_handling, head)
    }

    /// Builds the message of a fetch, where it differs from its template.
    pub(in crate::engine) fn build_message(&mut self, slot: u32, request: Request) {
        let Some(script) = &self.plan.script else { return };
        let template = self.targets.get(request.template);
        let key = self.targets.key(request.template);
        let now_s = self.now_s();
        let visitor = &mut self.visits.visitors[request.user as usize];
        let fetch = &visitor.fetches[request.item as usize];
        let message = &mut self.conns[slot as usize].message;
        let lines = &mut self.visits.lines;
        lines.clear();
        let url = fetch.url.as_deref().unwrap_or_else(|| template.url());
        let dynamic = script.dynamic_at(fetch.target).filter(|_| fetch.url.is_some());
        let sends_own_cookies = dynamic.map_or(template.sends_own_cookies, Dynamic::sends_own_cookies);
        if script.cookies && !sends_own_cookies {
            visitor.jar.write_header(url, lines);
        }
        if fetch.confirms {
            write_conditions(visitor.cache.lookup(key, now_s), lines);
        }
        if let Some(dynamic) = dynamic {
            message.is_own = true;
            // Its variables had values when it was begun.
            message.body =
                dynamic.write(url, &visitor.variables, lines, &mut message.head).unwrap_or_default();
            return;
        }
        // A discovered part is requested with the document's credentials, on the document's own server.
        if let (Some(document), true) = (visitor.fetches.first(), request.item > 0)
            && fetch.kind != Kind::Step
            && script.dynamic_at(fetch.first_target).is_none()
            && fetch.origin == document.first_origin
            && let Some(dynamic) = script.dynamic_at(document.first_target)
            && !script.is_listed(fetch.first_target)
        {
            let before = lines.len();
            if dynamic.write_auth(&visitor.variables, lines).is_none() {
                lines.truncate(before);
            }
        }
        if !lines.is_empty() {
            message.is_own = true;
            message.body = template.write_with(lines, &mut message.head);
        }
    }

    /// Keeps the cookies that a response sets, wherever it leads.
    pub(in crate::engine) fn store_cookies(&mut self, slot: u32) {
        let conn = &self.conns[slot as usize];
        if conn.head.is_empty() || !self.plan.script.as_ref().is_some_and(|script| script.cookies) {
            return;
        }
        let template = self.targets.get(conn.request.template);
        let visitor = &mut self.visits.visitors[conn.request.user as usize];
        let fetch = &visitor.fetches[conn.request.item as usize];
        let url = fetch.url.as_deref().unwrap_or_else(|| template.url());
        let jar = &mut visitor.jar;
        for_each_value(&conn.head, "set-cookie", |value| jar.store(url, value));
    }

    /// Looks a fetch up in the cache: a fresh response needs no request, a stale one a conditional request.
    pub(super) fn check_cache(&self, index: u32, fetch: &mut Fetch) {
        let Some(step) = self.step_of(index) else { return };
        if fetch.kind == Kind::Step && !step.captures.is_empty() {
            // Values are captured from what comes.
            return;
        }
        let discovers = step.page.as_ref().is_some_and(|page| page.resources == Resources::Found);
        let discovers = discovers && fetch.kind != Kind::Part;
        if !self.plan.script.as_ref().is_some_and(|script| script.cache) || fetch.url.is_some() {
            return;
        }
        let (number, key) = (fetch.first_target as usize, self.targets.key(fetch.first_target as usize));
        if !self.targets.get(number).is_cacheable() {
            return;
        }
        fetch.list = self.visits.lists.latest(key).filter(|_| discovers);
        if discovers && fetch.list.is_none() {
            // Without its content it is unknown what it embeds.
            return;
        }
        match self.visits.visitors[index as usize].cache.lookup(key, self.now_s()) {
            CacheLookup::Absent => {}
            CacheLookup::Fresh => fetch.state = State::Cached,
            CacheLookup::Stale { .. } => fetch.confirms = true,
        }
    }

    /// Keeps of a successful response what the cache and the step want.
    pub(super) fn store_response(&mut self, request: Request, ended: &FetchEnd) {
        let head = std::mem::take(&mut self.conns[ended.slot as usize].head);
        if !head.is_empty() && ended.failure.is_none() {
            self.store_in_cache(request, ended.status, &head);
            if request.item == 0 {
                self.capture(request.user, &head, ended.body.as_deref().unwrap_or_default());
            }
        }
        self.conns[ended.slot as usize].head = head;
    }

    fn store_in_cache(&mut self, request: Request, status: u16, head: &[u8]) {
        let now_s = self.now_s();
        let visitor = &mut self.visits.visitors[request.user as usize];
        let fetch = &visitor.fetches[request.item as usize];
        let cacheable = fetch.url.is_none()
            && request.hops == 0
            && self.targets.get(request.template).is_cacheable()
            && self.plan.script.as_ref().is_some_and(|script| script.cache);
        if !cacheable {
            return;
        }
        let key = self.targets.key(request.template);
        if status == 304 && fetch.confirms {
            visitor.cache.confirm(key, head, now_s);
            self.recorder.report.visits.counts.cache_confirmed += 1;
        } else {
            visitor.cache.store(key, head, now_s);
        }
    }

    /// Captures the values of a step's response.
    fn capture(&mut self, index: u32, head: &[u8], body: &[u8]) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &mut self.visits.visitors[index as usize];
        let step = script.step_at(visitor.spec, visitor.step);
        for missed in step.captures.extract(head, body, &mut visitor.variables) {
            if let Some(count) =
                self.recorder.report.visits.captures_missed.get_mut(step.first_label + missed)
            {
                *count += 1;
            }
        }
    }

    /// Remembers where the step's response came from, for links.
    pub(super) fn record_url(&mut self, request: Request) {
        if !self.plan.script.as_ref().is_some_and(|script| script.has_links) {
            return;
        }
        let template = self.targets.get(request.template);
        let visitor = &mut self.visits.visitors[request.user as usize];
        let fetch = &visitor.fetches[request.item as usize];
        let url: &Url = fetch.url.as_deref().unwrap_or_else(|| template.url());
        visitor.url = Some(Box::new(url.clone()));
    }

    /// The same of a response that the cache has.
    pub(super) fn record_cached_url(&mut self, index: u32, first_target: u32) {
        if self.plan.script.as_ref().is_some_and(|script| script.has_links) {
            let url = self.targets.get(first_target as usize).url().clone();
            self.visits.visitors[index as usize].url = Some(Box::new(url));
        }
    }
}

/// The header lines of a conditional request: RFC 9110, 13.1.
fn write_conditions(lookup: CacheLookup<'_>, lines: &mut Vec<u8>) {
    let CacheLookup::Stale { etag, last_modified } = lookup else { return };
    for (name, value) in [("If-None-Match", etag), ("If-Modified-Since", last_modified)] {
        if let Some(value) = value {
            lines.extend_from_slice(name.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value);
            lines.extend_from_slice(b"\r\n");
        }
    }
}
