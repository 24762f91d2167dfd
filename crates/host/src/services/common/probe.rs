//! Measures from outside whether a port answers: a thread that asks every few milliseconds, and the gap it saw.
//!
//! Any answer in HTTP counts, whatever its status: Apache answers plain text on a TLS port with 400. HTTP/1.0 (RFC
//! 1945), so that the server closes the connection.

use crate::os::timeouts;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between questions.
const PAUSE: Duration = Duration::from_millis(5);

/// The same for a reload, which is seldom missed at all and may be watched for many seconds: each question costs the site
/// an answer.
const PAUSE_GENTLE: Duration = Duration::from_millis(25);

/// Whether anything answers in HTTP at one of the addresses.
pub fn answers(addresses: &[SocketAddr]) -> bool {
    addresses.iter().any(|&address| request(address, timeouts::PROBE))
}

/// Asks `HEAD /` once. True when the answer begins as HTTP does.
fn request(address: SocketAddr, timeout: Duration) -> bool {
    let answer = || -> std::io::Result<bool> {
        let deadline = Instant::now() + timeout;
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        // Never zero, which would mean no limit at all.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))?;
        stream.write_all(b"HEAD / HTTP/1.0\r\nHost: localhost\r\nUser-Agent: webdyno\r\n\r\n")?;
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        Ok(&head == b"HTTP/")
    };
    answer().unwrap_or(false)
}

/// One question and its outcome, in microseconds since the measurement began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProbeResult {
    sent_us: u64,
    done_us: u64,
    answered: bool,
}

/// What was seen so far. Only the edges of the gap are kept, so it takes no room however long it goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Gap {
    last_answered_us: Option<u64>,
    last_missed_us: Option<u64>,
    began_us: Option<u64>,
    ended_us: Option<u64>,
}

impl Gap {
    fn record(&mut self, seen: ProbeResult) {
        if !seen.answered {
            // Before the first answer it is not known whether the port ever answered.
            self.began_us = self.began_us.or(self.last_answered_us);
            self.last_missed_us = self.last_missed_us.max(Some(seen.sent_us));
            self.ended_us = self.ended_us.filter(|&ended_us| ended_us > seen.sent_us);
        } else {
            // An answer ends the gap only if it was asked for after the last miss.
            if self.began_us.is_some() && self.ended_us.is_none() && Some(seen.sent_us) >= self.last_missed_us
            {
                self.ended_us = Some(seen.done_us);
            }
            self.last_answered_us = self.last_answered_us.max(Some(seen.done_us));
        }
    }

    /// From the last answer before anything was missed to the first answer after the last miss; 0 when every question
    /// was answered, `None` when an edge of the gap was not seen.
    fn outage_us(&self) -> Option<u64> {
        match self.last_missed_us {
            None => self.last_answered_us.map(|_| 0),
            Some(_) => Some(self.ended_us?.saturating_sub(self.began_us?)),
        }
    }
}

/// What the thread and its owner share.
struct Watch {
    address: SocketAddr,
    began: Instant,
    gap: Mutex<Gap>,
    stop: AtomicBool,
}

impl Watch {
    fn probe_once(&self) {
        let sent_us = self.now_us();
        let answered = request(self.address, timeouts::PROBE);
        let seen = ProbeResult { sent_us, done_us: self.now_us(), answered };
        self.gap.lock().unwrap_or_else(PoisonError::into_inner).record(seen);
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A running measurement.
pub struct Probe {
    watch: Option<Arc<Watch>>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Starts asking the first of the addresses that answers now; measures nothing when none does.
    pub fn start(addresses: &[SocketAddr]) -> Self {
        Self::every(PAUSE, addresses)
    }

    /// The same, with so few questions that they may go on for long.
    pub fn start_gently(addresses: &[SocketAddr]) -> Self {
        Self::every(PAUSE_GENTLE, addresses)
    }

    fn every(pause: Duration, addresses: &[SocketAddr]) -> Self {
        let address = addresses.iter().copied().find(|&address| request(address, timeouts::PROBE));
        let Some(address) = address else {
            return Self { watch: None, thread: None };
        };
        let (began, gap, stop) = (Instant::now(), Mutex::default(), AtomicBool::new(false));
        let watch = Arc::new(Watch { address, began, gap, stop });
        watch.probe_once();
        let shared = Arc::clone(&watch);
        let ask_on = move || {
            while !shared.stop.load(Ordering::Relaxed) {
                shared.probe_once();
                std::thread::sleep(pause);
            }
        };
        let thread = std::thread::Builder::new().name("probe".into()).spawn(ask_on).ok();
        Self { watch: Some(watch), thread }
    }

    /// Asks once more from here: for moments that the thread could sleep through.
    pub fn probe_once(&self) {
        if let Some(watch) = &self.watch {
            watch.probe_once();
        }
    }

    /// Ends the measurement: how long nothing answered, 0 when no question was missed. `None` when nothing answered at
    /// its begin, or does not answer again at its end.
    pub fn outage_us(mut self) -> Option<u64> {
        let watch = self.watch.take()?;
        watch.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()?;
        // One more question closes a gap that has just ended.
        watch.probe_once();
        let gap = *watch.gap.lock().unwrap_or_else(PoisonError::into_inner);
        gap.outage_us()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Questions as `(sent, done, answered)`.
    fn check(seen: &[(u64, u64, bool)], expected: Option<u64>) {
        let mut gap = Gap::default();
        seen.iter()
            .for_each(|&(sent_us, done_us, answered)| gap.record(ProbeResult { sent_us, done_us, answered }));
        assert_eq!(gap.outage_us(), expected, "{seen:?}");
    }

    #[test]
    fn the_outage_is_the_gap_between_answers() {
        check(&[], None);
        check(&[(1, 2, true), (3, 4, true)], Some(0));
        check(&[(1, 2, true), (5, 5, false), (9, 10, true)], Some(8));
        check(
            &[(1, 2, true), (5, 5, false), (7, 8, true), (9, 9, false), (12, 13, true), (20, 21, true)],
            Some(11),
        );
        check(&[(1, 2, false), (5, 6, true)], None);
        check(&[(1, 2, true), (5, 6, false)], None);
        // Asked before the miss, told after it: does not end the gap.
        check(&[(1, 2, true), (5, 6, false), (4, 7, true), (8, 20, true)], Some(18));
    }

    #[test]
    fn a_server_that_goes_and_comes_back_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!request(address, Duration::from_millis(50)));
        let gone = Arc::new(AtomicBool::new(false));
        let serve = |listener: TcpListener, until: Arc<AtomicBool>| {
            listener.set_nonblocking(true).unwrap();
            while !until.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        let _ = stream.read(&mut [0; 512]);
                        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        };
        let until = Arc::clone(&gone);
        let first = std::thread::spawn(move || serve(listener, until));
        let probe = Probe::start(&[address]);
        std::thread::sleep(Duration::from_millis(50));
        gone.store(true, Ordering::Relaxed);
        first.join().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let gone = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&gone);
        // The address stays in TIME_WAIT, which std's listener shares (SO_REUSEADDR).
        let listener = TcpListener::bind(address).unwrap();
        let second = std::thread::spawn(move || serve(listener, until));
        while !answers(&[address]) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let outage_us = probe.outage_us().unwrap();
        assert!(outage_us >= 90_000, "{outage_us}");
        gone.store(true, Ordering::Relaxed);
        second.join().unwrap();
    }
}
