//! Sessions and steps: begun, ended, and what comes next.

use super::visitor::{Fetch, Phase};
use crate::engine::Engine;
use crate::engine::arrivals::pause_ns;
use crate::prepare::Script;
use crate::random::SplitMix;
use crate::recorder::Report;
use crate::script::think;
use crate::world::World;
use std::cmp::Reverse;

/// The kind of random numbers that sessions draw.
const SESSION_DRAWS: u64 = 1;

/// What a session draws at its beginning.
struct Drawn {
    random: SplitMix,
    /// Whether the visitor of the session before makes it.
    returning: bool,
    /// Which of the sessions it is.
    spec: u32,
}

impl Drawn {
    fn of(script: &Script, seed: u64, session: u64) -> Self {
        let mut random = SplitMix::stream(seed, SESSION_DRAWS, session);
        let returning = random.fraction() < script.returning_fraction;
        let spec = script.choice.draw(&mut random) as u32;
        Self { random, returning, spec }
    }
}

impl<W: World, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, W, X> {
    /// Whether it is known what a session of an open load begins with, before its visitor is let in: somebody who comes
    /// back may have it in a cache.
    pub(super) fn is_foreseen(&self, session: u64) -> bool {
        let script = self.plan.script.as_ref();
        script.is_some_and(|script| !Drawn::of(script, self.plan.seed, session).returning)
    }

    /// A start of an open load is due.
    pub(super) fn count_start(&mut self, session: u64, intended_ns: u64) {
        let Some(script) = &self.plan.script else { return };
        let drawn = Drawn::of(script, self.plan.seed, session);
        if !drawn.returning {
            self.recorder.report.visits.counts.sessions_started += 1;
            self.count_step(drawn.spec, 0, intended_ns);
        }
    }

    /// A step's first request is due.
    fn count_step(&mut self, spec: u32, step: u32, due_ns: u64) {
        let Some(script) = &self.plan.script else { return };
        if script.step_at(spec, step).page.is_some() {
            self.recorder.report.visits.page_started();
            self.visits.pages_in_flight += 1;
        }
        self.recorder.start(due_ns);
    }

    /// A visitor begins a session. `foreseeable`: it was counted, if it could be.
    pub(super) fn begin_session(&mut self, place: u32, due_ns: u64, could_ns: u64, foreseeable: bool) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &mut self.visits.visitors[place as usize];
        let drawn = Drawn::of(script, self.plan.seed, visitor.session);
        let counted = foreseeable && !drawn.returning;
        (visitor.random, visitor.spec, visitor.step, visitor.broken) = (drawn.random, drawn.spec, 0, false);
        if !drawn.returning {
            self.forget(place);
        }
        self.recorder.report.visits.counts.sessions_started += u64::from(!counted);
        self.begin_step(place, due_ns, could_ns, counted);
    }

    /// Somebody else takes a place: nothing is left of who was there.
    fn forget(&mut self, place: u32) {
        self.close_idle_of(place);
    }

    /// A step begins: its request is known.
    pub(super) fn begin_step(&mut self, place: u32, due_ns: u64, could_ns: u64, counted: bool) {
        let Some(script) = &self.plan.script else { return };
        let visitor = &mut self.visits.visitors[place as usize];
        let (spec, number) = (visitor.spec, visitor.step);
        let target = script.step_at(spec, number).request;
        let origin = self.targets.get(target as usize).origin;
        visitor.phase = Phase::Fetching;
        visitor.serial = visitor.serial.wrapping_add(1);
        (visitor.due_ns, visitor.page_failed) = (due_ns, false);
        (visitor.left, visitor.first_waiting) = (0, 0);
        visitor.fetches.clear();
        visitor.add(Fetch::new(target, origin, due_ns, could_ns));
        if !counted {
            self.count_step(spec, number, due_ns);
        }
    }

    /// Everything that a step fetches has ended.
    pub(super) fn step_ended(&mut self, place: u32) {
        let Some(script) = &self.plan.script else { return };
        let now_ns = self.now_ns;
        self.end_page(place);
        let visitor = &mut self.visits.visitors[place as usize];
        let session = &script.sessions[visitor.spec as usize];
        let step = script.step_at(visitor.spec, visitor.step);
        let think_ns = think::draw(&step.think, &mut visitor.random).saturating_mul(1000);
        // Whoever gets no connection does not try again at once.
        let pause_ns = if visitor.failures > 0 { pause_ns(visitor.failures - 1) } else { 0 };
        let due_ns = now_ns.saturating_add(think_ns.max(pause_ns));
        visitor.step += 1;
        if (visitor.step as usize) < session.steps.len() {
            visitor.phase = Phase::BeforeStep;
        } else {
            let counts = &mut self.recorder.report.visits.counts;
            match visitor.broken {
                true => counts.sessions_broken += 1,
                false => counts.sessions_completed += 1,
            }
            visitor.phase = Phase::BeforeSession;
            visitor.session += u64::from(script.users);
            if !(self.visits.entry.stays() && self.claim()) {
                return self.leave(place);
            }
        }
        if due_ns > now_ns {
            self.visits.timers.push(Reverse((due_ns, place)));
            return;
        }
        match self.visits.visitors[place as usize].phase {
            Phase::BeforeStep => self.begin_step(place, now_ns, self.wake_ns, false),
            _ => self.begin_session(place, now_ns, self.wake_ns, false),
        }
    }

    /// A visitor leaves for good.
    fn leave(&mut self, place: u32) {
        self.close_idle_of(place);
        let visitor = &mut self.visits.visitors[place as usize];
        visitor.phase = Phase::Away;
        visitor.serial = visitor.serial.wrapping_add(1);
        visitor.fetches.clear();
        self.visits.present -= 1;
        self.visits.away.push(place);
    }
}
