//! Fetches of visitors: assigned to a connection, redirected, ended; and the connections that visitors keep.

use super::embedded::Kind;
use super::visitor::{FetchEnd, State};
use crate::engine::Engine;
use crate::engine::conn::{Phase, Request, token};
use crate::io::network_io::NetworkIo;
use crate::plan::Template;
use crate::results::recorder::Report;
use webdyno_model::page::FetchedBy;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Sends the waiting fetches of a visitor that can be sent. `since_ns`: since when it can.
    pub(super) fn send_waiting(&mut self, index: u32, since_ns: u64) {
        self.use_cached_document(index);
        let visitor = &self.visits.visitors[index as usize];
        let (serial, mut from) = (visitor.serial, visitor.first_waiting);
        let mut blocked = None;
        while self.load_end.is_none()
            && let Some(number) = self.visits.visitors[index as usize].waiting_from(from)
        {
            let sent = self.send_fetch(index, number, since_ns);
            if self.visits.visitors[index as usize].serial != serial {
                // It failed at once, and was the last one of its step.
                return self.update_room(self.wake_ns);
            }
            from = number + 1;
            if !sent {
                blocked.get_or_insert(number);
                if self.plan.origins.len() == 1 {
                    break;
                }
            }
        }
        let visitor = &mut self.visits.visitors[index as usize];
        let first = blocked.unwrap_or(from);
        // One that was redirected meanwhile may wait before it.
        visitor.first_waiting = visitor.waiting_from(0).map_or(first, |waiting| waiting.min(first));
        self.update_room(self.wake_ns);
    }

    /// Assigns a connection to a fetch. False when none is free for it.
    fn send_fetch(&mut self, index: u32, number: u32, since_ns: u64) -> bool {
        let fetch = &self.visits.visitors[index as usize].fetches[number as usize];
        let origin = fetch.origin as usize;
        if let Some(slot) = self.acquire_visitor_connection(index, origin) {
            let request = self.request_of(index, number, since_ns);
            self.assign_to_connection(slot, request);
            self.update_clock();
            if self.load_end.is_none() {
                self.transmit(slot, request.sendable_ns);
            }
            return true;
        }
        let Some(script) = &self.plan.script else { return false };
        let room = self.has_room();
        let visitor = &mut self.visits.visitors[index as usize];
        if u32::from(visitor.open_to(origin)) >= script.connections_per_host {
            return false;
        }
        if !room {
            if !std::mem::replace(&mut visitor.queued, true) {
                self.visits.queue.push_back(index);
            }
            return false;
        }
        let request = self.request_of(index, number, since_ns);
        self.open(request);
        true
    }

    /// Assigns a connection to the visitor that has waited longest. False when no visitor can have one.
    pub(super) fn serve_queue(&mut self) -> bool {
        if self.visits.queue.is_empty() || !self.has_room() {
            return false;
        }
        let Some(index) = self.visits.queue.pop_front() else { return false };
        let since_ns = self.visits.room_since_ns.unwrap_or(self.wake_ns);
        self.visits.visitors[index as usize].queued = false;
        let serial = self.visits.visitors[index as usize].serial;
        let mut from = 0;
        let mut served = false;
        while let Some(number) = self.visits.visitors[index as usize].waiting_from(from) {
            from = number + 1;
            if !self.may_open_connection(index, number) {
                continue;
            }
            if served {
                // The next connection goes to another waiting visitor, if there is one.
                self.visits.visitors[index as usize].queued = true;
                self.visits.queue.push_back(index);
                break;
            }
            served = self.send_fetch(index, number, since_ns);
            if self.visits.visitors[index as usize].serial != serial || self.load_end.is_some() {
                break;
            }
        }
        self.update_room(self.wake_ns);
        true
    }

    /// Whether a fetch may have a connection: its visitor has fewer than it may have.
    fn may_open_connection(&self, index: u32, number: u32) -> bool {
        let visitor = &self.visits.visitors[index as usize];
        let origin = visitor.fetches[number as usize].origin as usize;
        let max = self.plan.script.as_ref().map_or(0, |script| script.connections_per_host);
        u32::from(visitor.open_to(origin)) < max || self.idle_index(index, origin).is_some()
    }

    /// The request that a fetch is, from now on in progress.
    fn request_of(&mut self, index: u32, number: u32, since_ns: u64) -> Request {
        let deadline_ns = self.now_ns.saturating_add(self.plan.timeout_ns);
        let (body_handling, keep_head) = self.response_handling(index, number);
        let fetch = &mut self.visits.visitors[index as usize].fetches[number as usize];
        fetch.state = State::InProgress;
        if fetch.deadline_ns == 0 {
            fetch.deadline_ns = deadline_ns;
        }
        Request {
            user: index,
            template: fetch.target as usize,
            item: number,
            intended_ns: fetch.discovered_ns,
            sendable_ns: fetch.sendable_ns.max(since_ns),
            deadline_ns: fetch.deadline_ns,
            retried: false,
            hops: fetch.hops,
            confirms: fetch.confirms,
            body_handling,
            keep_head,
            sent_ns: fetch.sent_ns,
        }
    }

    /// A fetch follows a redirect; its connection was released.
    pub(in crate::engine) fn fetch_redirected(&mut self, next: Request, bytes: u64) {
        let origin = self.targets.get(next.template).origin;
        let visitor = &mut self.visits.visitors[next.user as usize];
        let fetch = &mut visitor.fetches[next.item as usize];
        (fetch.state, fetch.url, fetch.confirms) = (State::Waiting, None, false);
        (fetch.target, fetch.origin) = (next.template as u32, origin as u32);
        (fetch.hops, fetch.sent_ns, fetch.sendable_ns) = (next.hops, next.sent_ns, next.sendable_ns);
        fetch.bytes += bytes;
        visitor.first_waiting = visitor.first_waiting.min(next.item);
        self.send_waiting(next.user, next.sendable_ns);
    }

    /// The request of a fetch as it was built for this one sending, if it was.
    pub(in crate::engine) fn rendered_template(&self, request: Request) -> Option<Template> {
        let visitor = &self.visits.visitors[request.user as usize];
        let fetch = &visitor.fetches[request.item as usize];
        let url = fetch.url.as_deref()?;
        let dynamic = self.plan.script.as_ref()?.dynamic_at(fetch.target)?;
        let source = dynamic.source(url.clone(), &visitor.variables)?;
        Some(Template::new(source, fetch.origin as usize, self.targets.get(request.template).name))
    }

    /// A fetch has its outcome.
    pub(in crate::engine) fn fetch_ended(&mut self, request: Request, ended: &mut FetchEnd) {
        // Its slot must not be reused while it is examined.
        self.targets.retain(request.template);
        self.store_response(request, ended);
        self.record_fetch_end(request, ended);
        if ended.failure.is_none() {
            self.process_content(request, ended);
        }
        if self.visits.visitors[request.user as usize].left == 0 {
            self.step_ended(request.user);
        }
        self.targets.release(request.template);
    }

    /// Processes the content of a successful response.
    fn process_content(&mut self, request: Request, ended: &FetchEnd) {
        let kind = self.visits.visitors[request.user as usize].fetches[request.item as usize].kind;
        if kind == Kind::Step {
            self.record_url(request);
        }
        if kind != Kind::Part {
            self.fetch_embedded(request, ended);
        }
    }

    /// Notes how a fetch ended.
    fn record_fetch_end(&mut self, request: Request, ended: &FetchEnd) {
        let visitor = &mut self.visits.visitors[request.user as usize];
        let fetch = &mut visitor.fetches[request.item as usize];
        fetch.state = State::Ended;
        fetch.ended_ns = ended.end_ns;
        fetch.sent_ns = ended.sent_ns.unwrap_or(0);
        (fetch.first_byte_ns, fetch.status) = (ended.first_byte_ns, ended.status);
        fetch.bytes += ended.bytes;
        fetch.by = match ended.kept_connection {
            true => FetchedBy::KeptConnection,
            false => FetchedBy::NewConnection,
        };
        fetch.failure = ended.failure;
        visitor.page_failed |= fetch.required && ended.failure.is_some();
        // Where the document came, there is a server that bounds how often its parts are tried.
        match ended.failure {
            _ if request.item > 0 => {}
            Some(failure) if failure.is_connect() => visitor.failures = visitor.failures.saturating_add(1),
            _ => visitor.failures = 0,
        }
        visitor.left -= 1;
    }

    /// After a response: what its visitor does next.
    pub(in crate::engine) fn continue_visitor(&mut self, request: Request, serial: u32) {
        let visitor = &self.visits.visitors[request.user as usize];
        // A new step begins after those that have waited longer.
        match visitor.serial == serial || self.visits.queue.is_empty() {
            true => self.send_waiting(request.user, self.wake_ns),
            false => self.make_ready(request.user, self.wake_ns),
        }
    }

    /// After a failure: its visitor continues after the others had their turn.
    pub(in crate::engine) fn visitor_failed(&mut self, request: Request) {
        let visitor = &self.visits.visitors[request.user as usize];
        if visitor.waiting_from(0).is_some() {
            self.make_ready(request.user, self.wake_ns);
        }
    }

    /// The step serial of the visitor of a request.
    pub(in crate::engine) fn step_serial(&self, request: Request) -> u32 {
        self.visits.visitors[request.user as usize].serial
    }

    /// A kept connection of a visitor to this server: its place among them.
    fn idle_index(&self, index: u32, origin: usize) -> Option<usize> {
        let idle = &self.visits.visitors[index as usize].idle;
        idle.iter().rposition(|&kept| self.conns[kept as u32 as usize].origin == origin)
    }

    /// Acquires a visitor's idle connection to this server, the one used last.
    fn acquire_visitor_connection(&mut self, index: u32, origin: usize) -> Option<u32> {
        let at = self.idle_index(index, origin)?;
        let slot = self.visits.visitors[index as usize].idle.remove(at) as u32;
        self.visits.idle.remove(slot);
        self.idle_count -= 1;
        Some(slot)
    }

    /// A visitor's connection carries nothing for now.
    pub(in crate::engine) fn keep_visitor_connection(&mut self, slot: u32) {
        let conn = &self.conns[slot as usize];
        let kept = token(slot, conn.generation);
        self.visits.idle.add(slot, self.now_ns);
        self.visits.visitors[conn.request.user as usize].idle.push(kept);
    }

    /// A visitor has one more connection.
    pub(in crate::engine) fn visitor_connection_opened(&mut self, request: Request, origin: usize) {
        self.visits.visitors[request.user as usize].opened(origin);
    }

    /// A connection is about to be closed or parked: its visitor loses it.
    pub(in crate::engine) fn visitor_connection_closed(&mut self, slot: u32) {
        let conn = &self.conns[slot as usize];
        let gone = token(slot, conn.generation);
        self.visits.idle.remove(slot);
        self.visits.visitors[conn.request.user as usize].closed(conn.origin, gone);
    }

    /// Closes the connection that has carried nothing for the longest time.
    pub(in crate::engine) fn close_longest_idle(&mut self) {
        if let Some((slot, _)) = self.visits.idle.first() {
            self.close(slot);
        }
    }

    /// Closes what a visitor has kept.
    pub(super) fn close_idle_of(&mut self, index: u32) {
        while let Some(&kept) = self.visits.visitors[index as usize].idle.last() {
            match self.slot_of(kept, Phase::Idle) {
                Some(slot) => self.close(slot),
                // Unreachable: closed connections are removed.
                None => {
                    self.visits.visitors[index as usize].idle.pop();
                }
            }
        }
    }
}
