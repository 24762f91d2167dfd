//! The sequence of sessions and steps: beginning, end, and the next one.

use super::visitor::{Fetch, Phase, State};
use crate::engine::Engine;
use crate::engine::arrivals::pause_ns;
use crate::io::network_io::NetworkIo;
use crate::io::origin::authority;
use crate::plan::script::think;
use crate::plan::{Dynamic, Script};
use crate::random::SplitMix;
use crate::results::recorder::Report;
use std::cmp::Reverse;

/// The random stream of sessions.
const SESSION_DRAWS: u64 = 1;

/// The random stream of the visitors' initial think times.
const INITIAL_THINK_DRAWS: u64 = 2;

/// The pause before the next session when no step of a session can be taken.
const EMPTY_SESSION_PAUSE_NS: u64 = 10_000_000;

/// What a session draws at its beginning.
struct SessionDraw {
    random: SplitMix,
    /// Whether the visitor of the session before makes it.
    returning: bool,
    /// Which of the sessions it is.
    spec: u32,
}

impl SessionDraw {
    fn new(script: &Script, seed: u64, session: u64) -> Self {
        let mut random = SplitMix::stream(seed, SESSION_DRAWS, session);
        let returning = random.fraction() < script.returning_fraction;
        let spec = script.spec_of(session, &mut random);
        Self { random, returning, spec }
    }

    /// Whether its first step can be taken and is certain to send a request.
    fn is_predictable(&self, script: &Script) -> bool {
        !self.returning && script.step_at(self.spec, 0).is_always_possible
    }
}

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Whether the first request of a session of an open load is known before its visitor is admitted: a visitor that
    /// comes back may have it in a cache.
    pub(super) fn is_predictable(&self, session: u64) -> bool {
        let script = self.plan.script.as_ref();
        script.is_some_and(|script| SessionDraw::new(script, self.plan.seed, session).is_predictable(script))
    }

    /// A start of an open load is due.
    pub(super) fn count_start(&mut self, session: u64, intended_ns: u64) {
        let Some(script) = &self.plan.script else { return };
        let draw = SessionDraw::new(script, self.plan.seed, session);
        if draw.is_predictable(script) {
            self.recorder.report.visits.counts.sessions_started += 1;
            self.count_step(draw.spec, 0);
            self.recorder.start(intended_ns);
        }
    }

    /// A step is due.
    fn count_step(&mut self, spec: u32, step: u32) {
        let Some(script) = &self.plan.script else { return };
        if script.step_at(spec, step).page.is_some() {
            self.recorder.report.visits.page_started();
            self.visits.pages_in_flight += 1;
        }
    }

    /// A visitor begins a session. `predictable`: it was counted, if it could be.
    pub(super) fn begin_session(&mut self, index: u32, due_ns: u64, sendable_ns: u64, predictable: bool) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &mut self.visits.visitors[index as usize];
        let draw = SessionDraw::new(script, self.plan.seed, visitor.session);
        let counted = predictable && draw.is_predictable(script);
        (visitor.random, visitor.spec, visitor.incomplete, visitor.url) =
            (draw.random, draw.spec, false, None);
        visitor.begun_ns = due_ns;
        script.set_variables(visitor.number, visitor.session, &mut visitor.random, &mut visitor.variables);
        if !draw.returning {
            self.reset_place(index);
        }
        self.recorder.report.visits.counts.sessions_started += u64::from(!counted);
        match self.next_step(index, 0) {
            true => self.begin_step(index, due_ns, sendable_ns, counted),
            // Nothing at all can be done.
            false => self.end_session(index, due_ns, EMPTY_SESSION_PAUSE_NS),
        }
    }

    /// The residual think time of a closed load's visitor when the load begins: all of them
    /// at once would come in waves from then on. With a ramp the stages decide when each begins.
    pub(super) fn initial_think_us(&self, number: u64) -> u64 {
        let Some(script) = self.plan.script.as_ref().filter(|_| self.plan.stages.is_empty()) else {
            return 0;
        };
        let spec = SessionDraw::new(script, self.plan.seed, number).spec;
        let last = script.sessions[spec as usize].steps.last();
        let mut random = SplitMix::stream(self.plan.seed, INITIAL_THINK_DRAWS, number);
        last.map_or(0, |step| think::residual(&step.think, &mut random))
    }

    /// A visitor that is not present yet waits for the first session.
    pub(super) fn wait_before_session(&mut self, index: u32, due_ns: u64) {
        self.wait_for(index, Phase::BeforeSession, due_ns);
    }

    /// Resets the state of a place for a new visitor.
    fn reset_place(&mut self, index: u32) {
        self.close_idle_of(index);
        let visitor = &mut self.visits.visitors[index as usize];
        visitor.jar.clear();
        visitor.cache.clear();
    }

    /// Sets the next step that can be taken, from this one on; the others are skipped. False when there is none.
    fn next_step(&mut self, index: u32, from: u32) -> bool {
        let Some(script) = &self.plan.script else { return false };
        let visitor = &mut self.visits.visitors[index as usize];
        let steps = &script.sessions[visitor.spec as usize].steps;
        for (number, step) in steps.iter().enumerate().skip(from as usize) {
            visitor.step = number as u32;
            let counts = &mut self.recorder.report.visits.counts;
            let has_values = step.needs.iter().all(|&id| visitor.variables.get(id).is_some());
            let mut leads = |dynamic: &Dynamic| {
                let Some(url) = dynamic.url(&visitor.variables, visitor.url.as_deref()) else { return false };
                let is_loaded = self.plan.origin_at(&url).is_some();
                if !is_loaded {
                    counts.add_not_loaded(&authority(&url), 1);
                }
                is_loaded
            };
            if has_values && script.dynamic_at(step.request).is_none_or(&mut leads) {
                return true;
            }
            visitor.incomplete = true;
            counts.steps_skipped += 1;
        }
        false
    }

    /// A step begins: its request is known.
    pub(super) fn begin_step(&mut self, index: u32, due_ns: u64, sendable_ns: u64, counted: bool) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &mut self.visits.visitors[index as usize];
        let (spec, number) = (visitor.spec, visitor.step);
        let target = script.step_at(spec, number).request;
        let dynamic = script.dynamic_at(target);
        let url = dynamic.and_then(|dynamic| dynamic.url(&visitor.variables, visitor.url.as_deref()));
        let origin = url.as_ref().and_then(|url| self.plan.origin_at(url));
        let origin = origin.unwrap_or_else(|| self.targets.get(target as usize).origin);
        visitor.phase = Phase::Fetching;
        visitor.serial = visitor.serial.wrapping_add(1);
        (visitor.due_ns, visitor.page_failed) = (due_ns, false);
        (visitor.left, visitor.first_waiting) = (0, 0);
        visitor.fetches.clear();
        let mut fetch = Fetch::new(target, origin, due_ns, sendable_ns);
        fetch.url = url.map(Box::new);
        self.check_cache(index, &mut fetch);
        if !counted {
            self.count_step(spec, number);
            if fetch.state == State::Waiting {
                self.recorder.start(due_ns);
            }
        }
        self.visits.visitors[index as usize].add(fetch);
    }

    /// Everything that a step fetches has ended.
    pub(super) fn step_ended(&mut self, index: u32) {
        let Some(script) = &self.plan.script else { return };
        let now_ns = self.now_ns;
        self.end_page(index);
        let visitor = &mut self.visits.visitors[index as usize];
        let (spec, begun_ns) = (visitor.spec, visitor.begun_ns);
        let step = script.step_at(visitor.spec, visitor.step);
        let think_ns = think::draw(&step.think, &mut visitor.random).saturating_mul(1000);
        // A visitor without a connection backs off.
        let pause_ns = if visitor.failures > 0 { pause_ns(visitor.failures - 1) } else { 0 };
        let due_ns = now_ns.saturating_add(think_ns.max(pause_ns));
        visitor.fetches.clear();
        let next = visitor.step + 1;
        match self.next_step(index, next) {
            true => {
                let at_ns = script.step_at(spec, self.visits.visitors[index as usize].step).at_ns;
                self.wait_for(index, Phase::BeforeStep, due_ns.max(begun_ns.saturating_add(at_ns)));
            }
            false => self.end_session(index, due_ns, 0),
        }
    }

    /// A session has ended. Its visitor begins another one at `due_ns`, or `pause_ns` later, if it stays active.
    fn end_session(&mut self, index: u32, due_ns: u64, pause_ns: u64) {
        let users = self.plan.script.as_ref().map_or(0, |script| script.users);
        let visitor = &mut self.visits.visitors[index as usize];
        let counts = &mut self.recorder.report.visits.counts;
        match visitor.incomplete {
            true => counts.sessions_broken += 1,
            false => counts.sessions_completed += 1,
        }
        visitor.session += u64::from(users);
        visitor.serial = visitor.serial.wrapping_add(1);
        match self.visits.entry.stays_active(index, self.now_ns) && self.claim() {
            true => self.wait_for(index, Phase::BeforeSession, due_ns.saturating_add(pause_ns)),
            false => self.leave(index),
        }
    }

    /// A visitor waits for its next step or session, or begins it.
    fn wait_for(&mut self, index: u32, phase: Phase, due_ns: u64) {
        self.visits.visitors[index as usize].phase = phase;
        match (due_ns > self.now_ns, phase) {
            (true, _) => self.visits.timers.push(Reverse((due_ns, index))),
            (false, Phase::BeforeStep) => self.begin_step(index, due_ns, self.wake_ns, false),
            (false, _) => self.begin_session(index, due_ns, self.wake_ns, false),
        }
    }

    /// A visitor leaves.
    pub(super) fn leave(&mut self, index: u32) {
        self.close_idle_of(index);
        let visitor = &mut self.visits.visitors[index as usize];
        visitor.phase = Phase::Absent;
        visitor.serial = visitor.serial.wrapping_add(1);
        visitor.fetches.clear();
        self.visits.present -= 1;
        if !self.visits.entry.is_closed() {
            self.visits.away.push(index);
        }
    }
}
