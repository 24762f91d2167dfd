//! What the agent says: a queue and a thread of its own, so that a tool that does not listen any more (stopped, or gone
//! with the pipe still open) can never keep the guardian from its work.
//!
//! Answers wait as long as it takes. Samples come whether anybody reads or not: of them the newest are kept, within a
//! number of bytes, and how many were not is told when it flows again. Of heartbeats the last one says all.

use crate::agent::framing::encode;
use crate::agent::protocol::{Framed, FromAgent};
use crate::os::process::wait_until;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use webdyno_model::UserError;

/// How many bytes of samples may wait for the tool to read them: more than a minute of all collectors.
pub const SAMPLE_BYTES_MAX: usize = 2 << 20;

/// How long the last answer may take on its way.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

/// Says things to the tool, without ever waiting for it.
#[derive(Clone)]
pub struct Outbox {
    open: Arc<Open>,
}

/// The thread behind a [`Outbox`].
pub struct OutboxWriter {
    thread: JoinHandle<()>,
}

/// As long as it lives there may be more to say.
struct Open(Arc<Queue>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.changed.notify_all();
    }
}

#[derive(Default)]
struct Queue {
    state: Mutex<PendingMessages>,
    changed: Condvar,
}

/// What waits, each with its place in the order.
#[derive(Default)]
struct PendingMessages {
    sent_count: u64,
    answers: VecDeque<(u64, Vec<u8>)>,
    samples: VecDeque<(u64, Vec<u8>)>,
    beat: Option<(u64, Vec<u8>)>,
    sample_bytes: usize,
    dropped_count: u64,
    closed: bool,
    /// Nobody listens any more.
    deaf: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, PendingMessages> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next message; `None` at the end.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        loop {
            if let Some(message) = state.next() {
                return Some(message);
            }
            if state.closed || state.deaf {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl PendingMessages {
    fn add(&mut self, message: &Framed<FromAgent>) {
        if self.deaf {
            return;
        }
        self.sent_count += 1;
        let placed = |bytes| (self.sent_count, bytes);
        match (encode(message), &message.body) {
            (Ok(bytes), FromAgent::Sample { .. }) => {
                self.sample_bytes += bytes.len();
                self.samples.push_back(placed(bytes));
                while self.sample_bytes > SAMPLE_BYTES_MAX
                    && let Some((_, oldest)) = self.samples.pop_front()
                {
                    self.sample_bytes -= oldest.len();
                    self.dropped_count += 1;
                }
            }
            (Ok(bytes), FromAgent::Beat { .. }) => self.beat = Some(placed(bytes)),
            (Ok(bytes), _) => self.answers.push_back(placed(bytes)),
            (Err(_), FromAgent::Sample { .. }) => self.dropped_count += 1,
            // Who asked must not wait for it in vain.
            (Err(error), _) => {
                let error = UserError::cannot_run(format!("the agent's answer cannot be sent: {error}"));
                let instead = Framed { id: message.id, body: FromAgent::Failed { error } };
                self.answers.extend(encode(&instead).ok().map(placed));
            }
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.dropped_count > 0 {
            let count = std::mem::take(&mut self.dropped_count);
            let text = format!(
                "{count} samples were dropped: the connection did not take them, and what waits is bounded"
            );
            return encode(&Framed { id: 0, body: FromAgent::Warning { text } }).ok();
        }
        let place = |queue: &VecDeque<(u64, Vec<u8>)>| queue.front().map(|(place, _)| *place);
        let (answer, sample) = (place(&self.answers), place(&self.samples));
        let beat = self.beat.as_ref().map(|(place, _)| *place);
        let first = [answer, sample, beat].into_iter().flatten().min()?;
        let (_, bytes) = match Some(first) {
            next if next == answer => self.answers.pop_front(),
            next if next == beat => self.beat.take(),
            _ => self.samples.pop_front().inspect(|(_, bytes)| self.sample_bytes -= bytes.len()),
        }?;
        Some(bytes)
    }
}

impl Outbox {
    /// Speaks on an output.
    pub fn on(output: impl Write + Send + 'static) -> (Self, OutboxWriter) {
        let queue = Arc::new(Queue::default());
        let open = Arc::new(Open(Arc::clone(&queue)));
        (Self { open }, OutboxWriter { thread: std::thread::spawn(move || write_queue(output, &queue)) })
    }

    /// Answers a question.
    pub fn answer(&self, id: u64, body: FromAgent) {
        let Open(queue) = &*self.open;
        queue.state().add(&Framed { id, body });
        queue.changed.notify_one();
    }

    /// Says something unasked.
    pub fn send(&self, body: FromAgent) {
        self.answer(0, body);
    }
}

impl OutboxWriter {
    /// Waits until everything is said, a bounded time. Every [`Outbox`] must be dropped before.
    pub fn finish(self) {
        if wait_until(FLUSH_TIME_MAX, || self.thread.is_finished()) {
            // It ends by itself, and has nothing to tell.
            let _ = self.thread.join();
        }
    }
}

/// When nobody listens any more, what waits is forgotten.
fn write_queue(mut output: impl Write, queue: &Queue) {
    while let Some(message) = queue.next() {
        if output.write_all(&message).and_then(|()| output.flush()).is_err() {
            *queue.state() = PendingMessages { deaf: true, ..PendingMessages::default() };
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::framing::read_message;
    use std::io::{Read, pipe};
    use webdyno_model::sample::Sample;

    fn sample(n: u64, bytes: usize) -> FromAgent {
        let sample = Sample { source: "x".repeat(bytes), ..Sample::default() };
        FromAgent::Sample { clock_us: n, sample }
    }

    fn received(mut input: impl Read) -> Vec<Framed<FromAgent>> {
        std::iter::from_fn(|| read_message(&mut input).unwrap()).collect()
    }

    /// Nothing is read until everything was said: the oldest samples are dropped and counted, and no answer is.
    #[test]
    fn a_stalled_connection_keeps_all_answers_and_the_newest_samples() {
        const SAMPLES: u64 = 5000;
        let (input, output) = pipe().unwrap();
        let (outbox, speaker) = Outbox::on(output);
        for n in 0..SAMPLES {
            outbox.send(sample(n, 1000));
            if n % 5 == 0 {
                outbox.answer(n + 1, FromAgent::Done);
            }
            outbox.answer(SAMPLES + n, FromAgent::Beat { clock_us: n });
        }
        assert!(outbox.open.0.state().sample_bytes <= SAMPLE_BYTES_MAX);
        let ears = std::thread::spawn(move || received(input));
        drop(outbox);
        speaker.finish();
        let heard = ears.join().unwrap();
        let answered: Vec<u64> = heard
            .iter()
            .filter(|message| message.body == FromAgent::Done)
            .map(|message| message.id)
            .collect();
        assert_eq!(answered, (0..SAMPLES).step_by(5).map(|n| n + 1).collect::<Vec<_>>());
        let samples: Vec<u64> = heard
            .iter()
            .filter_map(|message| match message.body {
                FromAgent::Sample { clock_us, .. } => Some(clock_us),
                _ => None,
            })
            .collect();
        assert!(samples.is_sorted() && samples.last() == Some(&(SAMPLES - 1)));
        let dropped: Vec<u64> = heard
            .iter()
            .filter_map(|message| match &message.body {
                FromAgent::Warning { text } => text.split(' ').next()?.parse().ok(),
                _ => None,
            })
            .collect();
        assert_eq!(dropped.iter().sum::<u64>() + samples.len() as u64, SAMPLES, "all are accounted for");
        assert_eq!(dropped.len(), 1, "told once");
        let beats: Vec<_> =
            heard.iter().filter(|message| matches!(message.body, FromAgent::Beat { .. })).collect();
        assert!(beats.len() < 200 && beats.last().unwrap().id == 2 * SAMPLES - 1, "{}", beats.len());
    }

    #[test]
    fn what_is_said_comes_in_its_order() {
        let (input, output) = pipe().unwrap();
        let (outbox, speaker) = Outbox::on(output);
        outbox.answer(1, FromAgent::Done);
        outbox.send(sample(7, 1));
        outbox.answer(2, FromAgent::Beat { clock_us: 1 });
        outbox.send(sample(8, 1));
        outbox.answer(3, FromAgent::Done);
        drop(outbox);
        speaker.finish();
        let ids: Vec<u64> = received(input).iter().map(|message| message.id).collect();
        assert_eq!(ids, [1, 0, 2, 0, 3]);
    }

    #[test]
    fn an_answer_that_is_too_long_is_told_as_that() {
        let (input, output) = pipe().unwrap();
        let (outbox, speaker) = Outbox::on(output);
        let text = "x".repeat(17 << 20);
        outbox.answer(5, FromAgent::Unrest { why: Some(text) });
        drop(outbox);
        speaker.finish();
        let heard = received(input);
        assert!(
            matches!(&heard[..], [Framed { id: 5, body: FromAgent::Failed { error } }] if error.message.contains("at most")),
            "{heard:?}"
        );
    }

    #[test]
    fn who_does_not_listen_costs_nothing() {
        let (input, output) = pipe().unwrap();
        drop(input);
        let (outbox, speaker) = Outbox::on(output);
        outbox.send(sample(0, 10));
        assert!(wait_until(Duration::from_secs(10), || outbox.open.0.state().deaf));
        outbox.send(sample(1, 10));
        assert_eq!(outbox.open.0.state().samples.len(), 0);
        drop(outbox);
        speaker.finish();
    }
}
