//! Pages: the parts that a document brings with it, and how a page ended.

use super::embedded::EmbeddedResources;
use super::embedded::Kind;
use super::visitor::{Fetch, FetchEnd, State};
use crate::engine::Engine;
use crate::engine::conn::Request;
use crate::io::network_io::NetworkIo;
use crate::plan::script::discover::FOUND_MAX;
use crate::results::recorder::{PageEnd, Report, microseconds};
use std::rc::Rc;
use webdyno_model::page::{FetchedBy, PageTrace, PartTrace, TraceKind};
use webdyno_model::workload::redact_query;
use webdyno_model::workload::visit::Resources;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// A document or a style sheet is complete: adds the resources that it embeds.
    pub(super) fn fetch_embedded(&mut self, request: Request, ended: &FetchEnd) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &self.visits.visitors[request.user as usize];
        let fetch = &visitor.fetches[request.item as usize];
        match script.step_at(visitor.spec, visitor.step).page.as_ref().map(|page| &page.resources) {
            Some(Resources::Listed(_)) => self.add_listed(request.user),
            Some(Resources::Found) => {
                let list = match (&ended.body, &fetch.list) {
                    // It has not changed.
                    (None, Some(list)) => Some(list.clone()),
                    (None, None) => None,
                    (Some(body), _) => {
                        let key = self.targets.key(fetch.first_target as usize);
                        let url =
                            fetch.url.as_deref().unwrap_or_else(|| self.targets.get(request.template).url());
                        let (url, kind) = (url.clone(), fetch.kind);
                        Some(self.embedded_in(request.template, key, &url, kind, body))
                    }
                };
                list.into_iter().for_each(|list| self.add_list(request.user, request.item, &list));
            }
            Some(Resources::Left) | None => {}
        }
    }

    /// What was found on a page, or in a style sheet of it, is known.
    fn add_list(&mut self, index: u32, by: u32, list: &Rc<EmbeddedResources>) {
        let visitor = &mut self.visits.visitors[index as usize];
        visitor.fetches[by as usize].list = Some(list.clone());
        visitor.page_failed |= list.is_incomplete;
        for &(target, kind) in &list.parts {
            let visitor = &mut self.visits.visitors[index as usize];
            if visitor.has_fetch(target) {
                continue;
            }
            // Style sheets and frames may name ever new ones.
            if visitor.fetches.len() > FOUND_MAX {
                visitor.page_failed = true;
                return;
            }
            self.add_part(index, target, true, kind);
        }
    }

    /// A part of a page is known.
    fn add_part(&mut self, index: u32, target: u32, required: bool, kind: Kind) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &mut self.visits.visitors[index as usize];
        let mut fetch = Fetch { required, kind, ..Fetch::new(target, 0, self.now_ns, self.wake_ns) };
        let mut origin = Some(self.targets.get(target as usize).origin);
        if let Some(dynamic) = script.dynamic_at(target) {
            // A header or a body may lack a value, too: half a request would be waited for until it times out.
            let url = dynamic.url(&visitor.variables, visitor.url.as_deref());
            fetch.url = url.filter(|_| dynamic.has_values(&visitor.variables)).map(Box::new);
            origin = fetch.url.as_deref().and_then(|url| self.plan.origin_at(url));
        }
        let Some(origin) = origin else {
            // It leads nowhere: a value is missing.
            visitor.page_failed |= required;
            return;
        };
        (fetch.origin, fetch.first_origin) = (origin as u32, origin as u32);
        self.check_cache(index, &mut fetch);
        if fetch.state != State::Cached {
            self.recorder.start(self.now_ns);
            self.targets.retain(target as usize);
            self.visits.visitors[index as usize].add(fetch);
            return;
        }
        let list = fetch.list.take();
        fetch = cached_fetch(fetch, self.now_ns);
        self.recorder.report.visits.counts.cache_hits += 1;
        let visitor = &mut self.visits.visitors[index as usize];
        visitor.add(fetch);
        let number = visitor.fetches.len() as u32 - 1;
        list.into_iter().for_each(|list| self.add_list(index, number, &list));
    }

    /// A step's own response is in the cache: its parts are known at once.
    pub(super) fn use_cached_document(&mut self, index: u32) {
        let visitor = &mut self.visits.visitors[index as usize];
        let Some(fetch) = visitor.fetches.first_mut().filter(|fetch| fetch.state == State::Cached) else {
            return;
        };
        let list = fetch.list.take();
        let discovered_ns = fetch.discovered_ns;
        let first_target = fetch.first_target;
        *fetch = cached_fetch(fetch.clone(), discovered_ns);
        visitor.left -= 1;
        self.recorder.report.visits.counts.cache_hits += 1;
        self.record_cached_url(index, first_target);
        match list {
            Some(list) => self.add_list(index, 0, &list),
            None => self.add_listed(index),
        }
        if self.visits.visitors[index as usize].left == 0 {
            self.step_ended(index);
            self.make_ready(index, 0);
        }
    }

    /// The parts of a page that names them itself.
    fn add_listed(&mut self, index: u32) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &self.visits.visitors[index as usize];
        let page = script.step_at(visitor.spec, visitor.step).page.as_ref();
        if let Some(Resources::Listed(parts)) = page.map(|page| &page.resources) {
            for part in parts {
                self.add_part(index, part.request as u32, part.required, Kind::Part);
            }
        }
    }

    /// Counts a page whose last part has ended.
    pub(super) fn end_page(&mut self, index: u32) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &self.visits.visitors[index as usize];
        let Some(page) = &script.step_at(visitor.spec, visitor.step).page else { return };
        let ended_ns = visitor.fetches.iter().map(|fetch| fetch.ended_ns).max().unwrap_or(self.now_ns);
        let time_us = microseconds(visitor.due_ns, ended_ns);
        self.visits.pages_in_flight -= 1;
        let end = PageEnd { name: page.name, time_us, failed: visitor.page_failed };
        if self.recorder.report.visits.page_ended(end) {
            let name = script.pages.get(page.name).cloned().unwrap_or_default();
            let trace = self.trace(index, name, time_us);
            self.recorder.report.visits.keep(trace);
        }
    }

    /// How the page went that a visitor has fetched just now.
    fn trace(&self, index: u32, name: String, time_us: u64) -> PageTrace {
        let visitor = &self.visits.visitors[index as usize];
        let home = visitor.fetches.first().map(|fetch| self.targets.get(fetch.first_target as usize).origin);
        let part = |fetch: &Fetch| {
            let target = self.targets.get(fetch.first_target as usize);
            let at_us = |at_ns: u64| (at_ns > 0).then(|| microseconds(visitor.due_ns, at_ns));
            PartTrace {
                name: match Some(target.origin) == home {
                    // Its URL lacks what variables stand for.
                    _ if self.plan.is_dynamic(fetch.first_target as usize) => {
                        let known = self.plan.names.get(target.name).or_else(|| self.plan.names.first());
                        known.cloned().unwrap_or_else(|| name.clone())
                    }
                    true => redact_query(&target.url()[url::Position::BeforePath..]),
                    false => redact_query(target.url().as_str()),
                },
                known_us: microseconds(visitor.due_ns, fetch.discovered_ns),
                sent_us: at_us(fetch.sent_ns),
                first_byte_us: at_us(fetch.first_byte_ns),
                ended_us: microseconds(visitor.due_ns, fetch.ended_ns),
                status: Some(fetch.status).filter(|&status| status > 0),
                bytes: fetch.bytes,
                by: fetch.by,
                failure: fetch.failure.map(|failure| failure.name().to_owned()),
            }
        };
        PageTrace {
            kind: TraceKind::Slowest,
            name: name.clone(),
            time_us,
            failed: visitor.page_failed,
            parts: visitor.fetches.iter().map(part).collect(),
        }
    }
}

/// A fetch that the cache answers, at this moment.
fn cached_fetch(fetch: Fetch, at_ns: u64) -> Fetch {
    Fetch { state: State::Ended, by: FetchedBy::Cache, ended_ns: at_ns, ..fetch }
}
