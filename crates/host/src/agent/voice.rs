//! What the agent says: a queue and a thread of its own, so that a tool that does not listen any more (stopped, or gone
//! with the pipe still open) can never keep the guardian from its work.

use crate::agent::framing::write_message;
use crate::agent::protocol::{Framed, FromAgent};
use crate::process::wait_until;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many messages may wait for the tool to read them.
const QUEUE_COUNT_MAX: usize = 4096;

/// How long the last answer may take on its way.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

/// Says things to the tool, without ever waiting for it.
#[derive(Clone)]
pub struct Voice {
    queue: SyncSender<Framed<FromAgent>>,
}

/// The thread behind a [`Voice`].
pub struct Speaker {
    thread: JoinHandle<()>,
}

impl Voice {
    /// Speaks on an output.
    pub fn on(output: impl Write + Send + 'static) -> (Self, Speaker) {
        let (queue, messages) = sync_channel(QUEUE_COUNT_MAX);
        (Self { queue }, Speaker { thread: std::thread::spawn(move || speak(output, &messages)) })
    }

    /// Answers a question. Lost when the tool has not read thousands of messages: then it is gone.
    pub fn answer(&self, id: u64, body: FromAgent) {
        match self.queue.try_send(Framed { id, body }) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Says something unasked.
    pub fn say(&self, body: FromAgent) {
        self.answer(0, body);
    }
}

impl Speaker {
    /// Waits until everything is said, a bounded time. Every [`Voice`] must be dropped before.
    pub fn finish(self) {
        if wait_until(FLUSH_TIME_MAX, || self.thread.is_finished()) {
            // It ends by itself, and has nothing to tell.
            let _ = self.thread.join();
        }
    }
}

/// A message that is too long is left out; when nobody listens, the rest is taken from the queue and forgotten.
fn speak(mut output: impl Write, messages: &Receiver<Framed<FromAgent>>) {
    let mut open = true;
    for message in messages {
        if open && let Err(error) = write_message(&mut output, &message) {
            open = error.kind() == std::io::ErrorKind::InvalidData;
        }
    }
}
