//! Whether the site still answers: a thread of its own that asks it while a load is on.
//!
//! One connection at a time and at most five questions in two seconds: `HEAD /` in HTTP/1.0 (RFC 1945), any answer
//! counts. When a server is saturated the question waits like any other request, so that it costs one place among those
//! of the load, and asks less often. That is no reason for alarm: a full accept queue makes the kernel drop what begins
//! a connection, and connecting takes seconds (tcp(7), tcp_abort_on_overflow). So a site is gone only when
//! - connections are refused (nobody listens any more) twice in a row, a tenth of a second apart: then 0.5 s suffice;
//! - or no question was answered for as long as the load itself waits for an answer, and 10 s at least. Whoever makes the
//!   load still has to say that it gets no answer either, before this means anything.
//!
//! What is wrong at this end (no free local port, no descriptors) says nothing about the site.

use super::reading::SiteState;
use crate::os::clock::clock_us;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use webdyno_model::UserError;
use webdyno_model::harm_guard::SiteUnderLoad;

/// Between an answer and the next question.
const PAUSE: Duration = Duration::from_millis(400);

/// After a refusal.
const PAUSE_REFUSED: Duration = Duration::from_millis(100);

/// An attempt to connect; then another one, which is sooner than the kernel would repeat it.
const CONNECT: Duration = Duration::from_secs(1);

/// How often a thread that waits for an answer looks whether it is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A site that answers nothing for less than this may be busy.
const SILENCE_US_MIN: u64 = 10_000_000;

/// What became of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeOutcome {
    /// Anything came back, or the connection was at least taken and closed: somebody is there.
    Answered,
    /// Nobody listens, or there is no way there.
    Refused,
    /// Nothing came yet, or this end could not ask.
    Silent,
}

/// A thread that asks a site until it is dropped.
#[derive(Debug)]
pub struct Probe {
    shared: Arc<Shared>,
    silent_max_us: u64,
    /// Dropping it ends the thread's pause.
    _end: mpsc::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    site: SiteUnderLoad,
    refused_count: AtomicU32,
    /// When it was heard of last.
    heard_us: AtomicU64,
    stop: AtomicBool,
}

impl Probe {
    /// Asks from now on. An error when the site cannot be reached from here even now: then nothing can be told of it.
    pub fn start(site: &SiteUnderLoad) -> Result<Self, UserError> {
        let address = site.addresses.first().ok_or_else(|| UserError::cannot_run("no address is known"))?;
        TcpStream::connect_timeout(address, CONNECT).map(drop).or_else(|error| match error.kind() {
            // Busy already: then it is there.
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Ok(()),
            _ => Err(webdyno_model::error::io_error("connect to", address, &error)),
        })?;
        let shared = Arc::new(Shared {
            site: site.clone(),
            refused_count: AtomicU32::new(0),
            heard_us: AtomicU64::new(clock_us()),
            stop: AtomicBool::new(false),
        });
        let (end, ended) = mpsc::channel();
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("site".into())
            .spawn(move || thread.probe_repeatedly(&ended))
            .map_err(|error| UserError::cannot_run(format!("cannot start a thread: {error}")))?;
        Ok(Self { shared, silent_max_us: site.timeout_us.max(SILENCE_US_MIN), _end: end })
    }

    /// What is known now.
    pub fn state(&self) -> SiteState {
        SiteState {
            refused_count: self.shared.refused_count.load(Ordering::Relaxed),
            silent_us: clock_us().saturating_sub(self.shared.heard_us.load(Ordering::Relaxed)),
            silent_max_us: self.silent_max_us,
        }
    }
}

impl Drop for Probe {
    /// The thread ends by itself, within [`CONNECT`].
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Whether the site answers one question within a time.
pub fn answers(site: &SiteUnderLoad, at_most: Duration) -> bool {
    let deadline = Instant::now() + at_most;
    let late = || Instant::now() >= deadline;
    site.addresses
        .iter()
        .any(|address| request(*address, &site.host, CONNECT.min(at_most), &late) == ProbeOutcome::Answered)
}

impl Shared {
    fn probe_repeatedly(&self, ended: &mpsc::Receiver<()>) {
        let mut addresses = self.site.addresses.iter().cycle();
        let stopped = || self.stop.load(Ordering::Relaxed);
        while let Some(address) = addresses.next().filter(|_| !stopped()) {
            let pause = match request(*address, &self.site.host, CONNECT, &stopped) {
                ProbeOutcome::Answered => {
                    self.refused_count.store(0, Ordering::Relaxed);
                    self.heard_us.store(clock_us(), Ordering::Relaxed);
                    PAUSE
                }
                ProbeOutcome::Refused => {
                    self.refused_count.fetch_add(1, Ordering::Relaxed);
                    PAUSE_REFUSED
                }
                ProbeOutcome::Silent => PAUSE_REFUSED,
            };
            if ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }
}

/// Asks once; waits for the answer until `enough`.
fn request(address: SocketAddr, host: &str, connect: Duration, enough: &dyn Fn() -> bool) -> ProbeOutcome {
    let mut stream = match TcpStream::connect_timeout(&address, connect) {
        Ok(stream) => stream,
        Err(error) => return refusal(error.kind()),
    };
    let question = format!("HEAD / HTTP/1.0\r\nHost: {host}\r\nUser-Agent: webdyno\r\n\r\n");
    let prepared =
        stream.set_read_timeout(Some(POLL_INTERVAL)).and_then(|()| stream.set_write_timeout(Some(connect)));
    if prepared.is_err() || stream.write_all(question.as_bytes()).is_err() {
        return ProbeOutcome::Silent;
    }
    loop {
        match stream.read(&mut [0; 512]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if enough() {
                    return ProbeOutcome::Silent;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Also a connection that was closed or reset: a process took it, or a kernel whose queue is full.
            Ok(_) | Err(_) => return ProbeOutcome::Answered,
        }
    }
}

/// What an attempt says that brought no connection.
fn refusal(kind: ErrorKind) -> ProbeOutcome {
    match kind {
        ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            ProbeOutcome::Refused
        }
        // Taken and reset: the queue is full.
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => ProbeOutcome::Answered,
        _ => ProbeOutcome::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::wait_until;
    use std::net::TcpListener;

    fn site(address: SocketAddr) -> SiteUnderLoad {
        SiteUnderLoad {
            addresses: vec![address],
            host: "localhost".into(),
            user_agents: vec![],
            generators: vec![],
            timeout_us: 1,
            varies_memory: false,
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_listener_that_goes_away_refuses_twice_within_a_second() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let probe = Probe::start(&site(address)).unwrap();
        // It takes nothing from its queue: somebody is there all the same.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(probe.state().refused_count, 0);
        drop(listener);
        assert!(wait_until(PATIENCE, || probe.state().refused_count >= 2), "{:?}", probe.state());
    }

    #[test]
    fn silence_lasts_until_anything_is_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let probe = Probe::start(&site(listener.local_addr().unwrap())).unwrap();
        assert_eq!(probe.state().silent_max_us, SILENCE_US_MIN);
        assert!(wait_until(PATIENCE, || probe.state().silent_us > 700_000));
        // Both connections: that of the start, which asked nothing, and the question.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\n\r\n");
        }
        assert!(wait_until(PATIENCE, || probe.state().silent_us < 600_000), "{:?}", probe.state());
    }

    #[test]
    fn a_site_that_cannot_be_reached_from_here_is_not_called_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!answers(&site(address), Duration::from_millis(150)));
        // Where nobody listens: a port that was given back may be another program's by now.
        let address = "127.0.0.1:1".parse().unwrap();
        let error = Probe::start(&site(address)).unwrap_err();
        assert!(error.message.starts_with(&format!("cannot connect to {address}: ")), "{error}");
        let local = [ErrorKind::AddrNotAvailable, ErrorKind::PermissionDenied, ErrorKind::Other];
        assert!(local.into_iter().all(|kind| refusal(kind) == ProbeOutcome::Silent));
    }
}
