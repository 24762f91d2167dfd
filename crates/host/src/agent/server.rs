//! The agent's main: reads what the tool asks, and is the guardian that reverts everything when the tool is gone.
//!
//! Gone means: the stream ended or broke, nothing came for a while (the tool sends a heartbeat every second), or SIGTERM.
//! The agent leads a session of its own (setsid(2)), so that a Ctrl-C or a closed terminal ends the tool, not the
//! guardian. It never waits for the tool to read.

use crate::agent::framing::read_message;
use crate::agent::hardening::detach;
use crate::agent::outbox::Outbox;
use crate::agent::protocol::{Framed, FromAgent, ToAgent};
use crate::agent::worker::{Job, Options, Worker};
use crate::os::cancellation::Cancellation;
use crate::os::clock::clock_us;
use crate::os::timeouts;
use rustix::process::{Pid, getppid};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use webdyno_model::{Result, UserError};

/// How many questions may wait.
const QUESTIONS_COUNT_MAX: usize = 64;

/// How often signals and silence are looked at.
const TICK: Duration = Duration::from_millis(100);

/// What the reader hears.
enum Incoming {
    Message(Framed<ToAgent>),
    End(String),
}

/// Serves the tool that started this process. Here, and not where it is called from: what is generic is compiled, and
/// optimised, in the crate that names its types.
pub fn serve_stdio(options: Options) -> Result<()> {
    serve(std::io::stdin(), std::io::stdout(), options)
}

/// Serves one tool until it says goodbye or is gone. An error when hello failed, or when not everything could be put
/// back: then a rollback stays pending.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    options: Options,
) -> Result<()> {
    let terminated = Arc::new(AtomicBool::new(false));
    let parent = options.detach.then(getppid);
    if options.detach {
        detach(&terminated)?;
    }
    let (outbox, speaker) = Outbox::on(output);
    let (heard_sender, incoming) = sync_channel(QUESTIONS_COUNT_MAX);
    std::thread::spawn(move || listen(input, &heard_sender));
    let (jobs, waiting) = sync_channel(QUESTIONS_COUNT_MAX);
    let cancellation = Cancellation::default();
    let worker = Worker::new(&options, outbox.clone(), cancellation.clone());
    let work = std::thread::spawn(move || worker.run(&waiting));
    let silence = Silence { at_most: options.silence_max, parent };
    let dispatch = Dispatch { heard: incoming, jobs, outbox, terminated, cancellation, silence };
    // When the worker has ended by itself there is nobody left to end.
    let end = dispatch.run(|| work.is_finished());
    if let Some((jobs, why)) = end {
        // Waits for room: it must arrive.
        let _ = jobs.send(Job::End(why));
    }
    let result = work.join().unwrap_or_else(|_| {
        Err(UserError::cannot_run("the agent failed while it was at work").hint("run `webdyno rollback`"))
    });
    speaker.finish();
    result
}

/// Reads messages until the stream ends.
fn listen(mut input: impl Read, heard: &SyncSender<Incoming>) {
    loop {
        let next = match read_message(&mut input) {
            Ok(Some(message)) => Incoming::Message(message),
            Ok(None) => Incoming::End("the tool closed the connection".into()),
            Err(error) => Incoming::End(format!("the connection broke: {error}")),
        };
        let last = matches!(next, Incoming::End(_));
        if heard.send(next).is_err() || last {
            return;
        }
    }
}

/// Passes questions on to the worker, and notices when the tool is gone.
struct Dispatch {
    heard: Receiver<Incoming>,
    jobs: SyncSender<Job>,
    outbox: Outbox,
    terminated: Arc<AtomicBool>,
    cancellation: Cancellation,
    silence: Silence,
}

/// How long nothing may be heard of the tool.
struct Silence {
    at_most: Duration,
    /// The parent that the agent was started by, where the process is the agent's own.
    parent: Option<Option<Pid>>,
}

impl Silence {
    /// What carried the connection may have ended while somebody else holds its end of the stream open: then a few
    /// missing heartbeats are enough.
    fn at_most(&self) -> Duration {
        let is_orphan = self.parent.is_some_and(|parent| parent != getppid());
        if is_orphan { self.at_most.min(timeouts::ORPHAN_SILENCE) } else { self.at_most }
    }
}

impl Dispatch {
    /// Gives the way to the worker back, with the reason, when the worker must be told that the tool is gone.
    fn run(self, worker_ended: impl Fn() -> bool) -> Option<(SyncSender<Job>, String)> {
        let mut last_heard = Instant::now();
        loop {
            let why = match self.heard.recv_timeout(TICK) {
                Ok(Incoming::Message(message)) => {
                    last_heard = Instant::now();
                    if self.pass_on(message) {
                        return None;
                    }
                    continue;
                }
                Ok(Incoming::End(why)) => why,
                Err(RecvTimeoutError::Disconnected) => "the reader ended".into(),
                Err(RecvTimeoutError::Timeout) if worker_ended() => return None,
                Err(RecvTimeoutError::Timeout) if self.terminated.load(Ordering::SeqCst) => {
                    "the agent was ordered to end".into()
                }
                Err(RecvTimeoutError::Timeout) if last_heard.elapsed() > self.silence.at_most() => {
                    format!("nothing was heard of the tool for {} s", last_heard.elapsed().as_secs())
                }
                Err(RecvTimeoutError::Timeout) => continue,
            };
            // Whatever it still wanted is not done any more, not even the rest of what is being done.
            self.cancellation.set();
            return Some((self.jobs, why));
        }
    }

    /// Whether it was the last message.
    fn pass_on(&self, message: Framed<ToAgent>) -> bool {
        if message.body == ToAgent::Heartbeat {
            self.outbox.answer(message.id, FromAgent::Beat { clock_us: clock_us() });
            return false;
        }
        let last = message.body == ToAgent::Bye;
        let id = message.id;
        let job = Job::Ask(id, message.body);
        if last {
            let _ = self.jobs.send(job);
            return true;
        }
        if let Err(TrySendError::Full(_)) = self.jobs.try_send(job) {
            let error = UserError::cannot_run("the agent has too much to do to answer another question");
            self.outbox.answer(id, FromAgent::Failed { error });
        }
        false
    }
}
