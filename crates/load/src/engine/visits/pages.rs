//! Pages: the parts that a document brings with it, and how a page ended.

use super::visitor::Fetch;
use crate::engine::Engine;
use crate::recorder::{PageEnd, Report, microseconds};
use crate::world::World;
use webdyno_model::page::{PageTrace, PartTrace, TraceKind};
use webdyno_model::visit::Resources;
use webdyno_model::workload::redact_query;

impl<W: World, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, W, X> {
    /// A page's document has come: its parts are known.
    pub(super) fn ask_for_parts(&mut self, place: u32) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &self.visits.visitors[place as usize];
        let step = script.step_at(visitor.spec, visitor.step);
        match step.page.as_ref().map(|page| &page.resources) {
            Some(Resources::Listed(parts)) => {
                for part in parts {
                    self.add_part(place, part.request as u32, part.required);
                }
            }
            Some(Resources::Found | Resources::Left) | None => {}
        }
    }

    /// A part of a page is known.
    fn add_part(&mut self, place: u32, target: u32, required: bool) {
        let origin = self.targets.get(target as usize).origin;
        let fetch = Fetch { required, ..Fetch::new(target, origin, self.now_ns, self.wake_ns) };
        self.recorder.start(self.now_ns);
        self.visits.visitors[place as usize].add(fetch);
    }

    /// Counts a page whose last part has ended.
    pub(super) fn end_page(&mut self, place: u32) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &self.visits.visitors[place as usize];
        let Some(page) = &script.step_at(visitor.spec, visitor.step).page else { return };
        let ended_ns = visitor.fetches.iter().map(|fetch| fetch.ended_ns).max().unwrap_or(self.now_ns);
        let time_us = microseconds(visitor.due_ns, ended_ns);
        self.visits.pages_in_flight -= 1;
        let end = PageEnd { name: page.name, time_us, failed: visitor.page_failed };
        if self.recorder.report.visits.page_ended(end) {
            let name = script.pages.get(page.name).cloned().unwrap_or_default();
            let trace = self.trace(place, name, time_us);
            self.recorder.report.visits.keep(trace);
        }
    }

    /// How the page went that a visitor has fetched just now.
    fn trace(&self, place: u32, name: String, time_us: u64) -> PageTrace {
        let visitor = &self.visits.visitors[place as usize];
        let home = visitor.fetches.first().map(|fetch| self.targets.get(fetch.asked as usize).origin);
        let part = |fetch: &Fetch| {
            let target = self.targets.get(fetch.asked as usize);
            let at_us = |at_ns: u64| (at_ns > 0).then(|| microseconds(visitor.due_ns, at_ns));
            PartTrace {
                name: match Some(target.origin) == home {
                    true => redact_query(&target.url()[url::Position::BeforePath..]),
                    false => redact_query(target.url().as_str()),
                },
                known_us: microseconds(visitor.due_ns, fetch.known_ns),
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
            name,
            time_us,
            failed: visitor.page_failed,
            parts: visitor.fetches.iter().map(part).collect(),
        }
    }
}
