//! What goes to and fro between the client and its agent: questions with their answers, heartbeats, and what it reports of itself.
//!
//! Facts: `agent/protocol.rs`. Everything that is heard ends a silence; after a stream has ended nobody waits any more.

use crate::agent::clock::{ClockReading, Clocks};
use crate::agent::framing::{read_message, write_message};
use crate::agent::protocol::{Framed, FromAgent, ToAgent};
use crate::os::clock::clock_us;
use crate::os::timeouts;
use std::collections::{HashMap, VecDeque};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::sample::Sample;
use webdyno_model::topology::Topology;

/// Heartbeats whose answers are waited for: more than come in the time after which the agent counts as gone.
const BEATS_COUNT_MAX: usize = 64;

/// The most warnings that are kept until somebody asks for them.
const WARNINGS_COUNT_MAX: usize = 100;

pub(super) struct Shared {
    next_id: AtomicU64,
    pub(super) stdin: Mutex<Option<ChildStdin>>,
    received: Mutex<ReceivedState>,
}

#[derive(Default)]
pub(super) struct ReceivedState {
    pub(super) ended: bool,
    pub(super) waiting: HashMap<u64, SyncSender<FromAgent>>,
    pub(super) samples: Option<Sender<(u64, Sample)>>,
    pub(super) clocks: Clocks,
    /// Heartbeats that are not answered yet: their ids, and when they were sent.
    beats: VecDeque<(u64, u64)>,
    pub(super) warnings: Vec<String>,
    pub(super) harm: Option<HarmGuardTrip>,
    pub(super) topology: Option<Topology>,
    /// When the agent was heard last; `None` before heartbeats begin, which it must answer.
    pub(super) last: Option<Instant>,
}

impl Shared {
    pub(super) fn new(stdin: ChildStdin) -> Self {
        Self { next_id: AtomicU64::new(1), stdin: Mutex::new(Some(stdin)), received: Mutex::default() }
    }

    pub(super) fn received(&self) -> MutexGuard<'_, ReceivedState> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn send(&self, id: u64, body: ToAgent) -> std::io::Result<()> {
        let mut stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin = stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        write_message(stdin, &Framed { id, body })
    }

    /// Hears the agent until its stream ends; then nobody waits any more.
    pub(super) fn listen(&self, mut stdout: ChildStdout) {
        while let Ok(Some(Framed { id, body })) = read_message::<Framed<FromAgent>>(&mut stdout) {
            let heard_us = clock_us();
            let mut heard = self.received();
            heard.last = heard.last.map(|_| Instant::now());
            match body {
                FromAgent::Beat { clock_us: theirs_us } => {
                    let sent = heard.beats.iter().position(|(beat, _)| *beat == id);
                    // Those before it were answered by it, too.
                    let answered = sent.and_then(|sent| heard.beats.drain(..=sent).next_back());
                    if let Some((_, asked_us)) = answered {
                        heard.clocks.add(ClockReading { asked_us, theirs_us, heard_us });
                    }
                }
                FromAgent::Sample { clock_us, sample } => {
                    let offset = heard.clocks.offset(heard_us);
                    let ours_us = offset.map_or(clock_us, |offset| offset.ours(clock_us));
                    if let Some(samples) = &heard.samples {
                        // Whoever asked for samples may have stopped listening.
                        let _ = samples.send((ours_us, sample));
                    }
                }
                FromAgent::Warning { text } if heard.warnings.len() < WARNINGS_COUNT_MAX => {
                    heard.warnings.push(text)
                }
                FromAgent::Warning { .. } => {}
                // The first one tells the cause; what follows may be its consequence.
                FromAgent::Brake { brake } => drop(heard.harm.get_or_insert(brake)),
                FromAgent::Topology { topology } if id == 0 => heard.topology = Some(*topology),
                answer => {
                    // Nobody waits for the answers to heartbeats, nor for those that came too late.
                    if let Some(waiting) = heard.waiting.remove(&id) {
                        let _ = waiting.try_send(answer);
                    }
                }
            }
        }
        let mut heard = self.received();
        heard.ended = true;
        heard.waiting.clear();
        heard.samples = None;
    }

    /// Waits for an answer as long as the agent lives and may still be at it.
    pub(super) fn wait_for(
        &self,
        answer: &Receiver<FromAgent>,
        at_most: Duration,
    ) -> std::result::Result<FromAgent, RecvTimeoutError> {
        let deadline = Instant::now() + at_most;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left.min(timeouts::HEARTBEAT_EVERY)) {
                Err(RecvTimeoutError::Timeout) if !left.is_zero() && !self.is_silent() => {}
                other => return other,
            }
        }
    }

    /// Whether the agent does not even answer heartbeats any more.
    fn is_silent(&self) -> bool {
        self.received().last.is_some_and(|last| last.elapsed() > timeouts::AGENT_SILENCE)
    }

    pub(super) fn beat(&self, stop: &Receiver<()>) {
        while stop.recv_timeout(timeouts::HEARTBEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
            let id = self.next_id();
            let mut heard = self.received();
            if heard.beats.len() == BEATS_COUNT_MAX {
                heard.beats.pop_front();
            }
            heard.beats.push_back((id, clock_us()));
            drop(heard);
            if self.send(id, ToAgent::Heartbeat).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// An agent that is at work for long is waited for; one that does not even answer heartbeats is not.
    #[test]
    fn a_silent_agent_is_given_up_long_before_the_limit() {
        let long_ago = Instant::now().checked_sub(timeouts::AGENT_SILENCE + Duration::from_secs(1));
        let heard = ReceivedState { last: Some(long_ago.unwrap()), ..ReceivedState::default() };
        let shared =
            Shared { next_id: AtomicU64::new(1), stdin: Mutex::new(None), received: Mutex::new(heard) };
        let (sender, answer) = sync_channel(1);
        assert_eq!(shared.wait_for(&answer, timeouts::APPLY_ANSWER), Err(RecvTimeoutError::Timeout));
        sender.send(FromAgent::Done).unwrap();
        assert_eq!(shared.wait_for(&answer, timeouts::APPLY_ANSWER), Ok(FromAgent::Done));
        shared.received().last = Some(Instant::now());
        assert!(!shared.is_silent());
    }
}
