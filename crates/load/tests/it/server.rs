//! A scripted server on std::net, one thread per connection, and the load that is put on it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use webdyno_load::{Control, Interval, LoadEnd, Prepared, prepare, run};
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::ErrorCounts;
use webdyno_model::workload::{RequestSpec, Stop, Workload};

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One step of a connection's script.
#[derive(Debug, Clone)]
pub enum Step {
    /// Reads one request up to its blank line; the connection ends if the client closes instead.
    Request,
    /// Reads up to the first blank line, and what came with it of a body; the same at a close.
    Head,
    Send(Vec<u8>),
    /// Sends byte by byte with a pause between.
    Drip(Vec<u8>, Duration),
    Sleep(Duration),
    /// Closes the sending side only.
    HalfClose,
    /// Closes with a reset.
    Reset,
    /// From here on, again from the first step.
    Again,
    /// Waits until the client closes.
    Hold,
    /// Sends this again and again until the client goes away.
    Endless(Vec<u8>),
    /// Sends one byte of urgent data, tcp(7).
    Urgent(u8),
    /// Neither reads nor writes any more.
    Stall,
}

/// A server that lives as long as this value.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Every connection follows the script and is closed at its end.
    pub fn start(script: Vec<Step>) -> Self {
        Self::by_turn(move |_| script.clone())
    }

    /// Each connection follows the script of its number, from 0.
    pub fn by_turn(script_of: impl Fn(u64) -> Vec<Step> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (over, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (seen_over, count) = (over.clone(), connections.clone());
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming() {
                if seen_over.load(Ordering::Acquire) {
                    return;
                }
                let script = script_of(count.fetch_add(1, Ordering::AcqRel));
                let over = seen_over.clone();
                // A client that goes away ends the script; nobody needs to hear of it.
                thread::spawn(move || stream.map(|stream| follow(stream, &script, &over)));
            }
        });
        Self { address, connections, over, acceptor: Some(acceptor) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Follows a script to its end; `None` when the client went away before.
fn follow(mut stream: TcpStream, script: &[Step], over: &AtomicBool) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    // Bounds the thread's life whatever the client does.
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(20))).ok()?;
    let mut at = 0;
    while let Some(step) = script.get(at) {
        at += 1;
        match step {
            Step::Request => read_until(&mut stream, |seen| seen.ends_with(b"\r\n\r\n"))?,
            Step::Head => {
                read_until(&mut stream, |seen| seen.windows(4).any(|four| four == b"\r\n\r\n"))?;
            }
            Step::Send(bytes) => stream.write_all(bytes).ok()?,
            Step::Drip(bytes, pause) => {
                for byte in bytes {
                    stream.write_all(&[*byte]).ok()?;
                    thread::sleep(*pause);
                }
            }
            Step::Sleep(time) => thread::sleep(*time),
            Step::HalfClose => stream.shutdown(Shutdown::Write).ok()?,
            Step::Reset => {
                let socket = socket2::SockRef::from(&stream);
                socket.set_linger(Some(Duration::ZERO)).ok()?;
            }
            Step::Again => at = 0,
            Step::Hold => while stream.read(&mut [0; 1024]).ok()? > 0 {},
            Step::Endless(bytes) => {
                // Without end, but not so fast that everybody else on the machine starves.
                let block = bytes.repeat((16 << 10) / bytes.len() + 1);
                loop {
                    stream.write_all(&block).ok()?;
                    thread::sleep(Duration::from_micros(300));
                }
            }
            Step::Urgent(byte) => {
                socket2::SockRef::from(&stream).send_out_of_band(&[*byte]).ok()?;
            }
            Step::Stall => {
                while !over.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
    Some(())
}

fn read_until(stream: &mut TcpStream, enough: fn(&[u8]) -> bool) -> Option<()> {
    let mut seen = Vec::new();
    let mut byte = [0; 1024];
    while !enough(&seen) {
        let count = stream.read(&mut byte).ok().filter(|&count| count > 0)?;
        seen.extend_from_slice(&byte[..count]);
    }
    Some(())
}

/// A closed load of GET requests for one second, to be changed by the test.
pub fn workload(url: &str) -> Workload {
    Workload {
        requests: vec![RequestSpec { name: "/".into(), url: url.into(), ..RequestSpec::default() }],
        stop: Stop { duration_us: Some(1_000_000), requests: None },
        connections: 2,
        threads: Some(1),
        timeout_us: 5_000_000,
        ..Workload::default()
    }
}

/// What a load gave.
pub struct Outcome {
    pub intervals: Vec<Interval>,
    pub end: LoadEnd,
}

impl Outcome {
    /// How all requests failed that did.
    pub fn errors(&self) -> ErrorCounts {
        let mut errors = ErrorCounts::default();
        self.intervals.iter().for_each(|interval| errors.add(&interval.errors));
        errors
    }

    pub fn sum(&self, of: impl Fn(&Interval) -> u64) -> u64 {
        self.intervals.iter().map(of).sum()
    }

    pub fn merged(&self, of: impl Fn(&Interval) -> &Option<EncodedHistogram>) -> TimeHistogram {
        let mut merged = TimeHistogram::new();
        for encoded in self.intervals.iter().filter_map(|interval| of(interval).as_ref()) {
            merged.merge_encoded(encoded).unwrap();
        }
        merged
    }

    pub fn completed(&self) -> u64 {
        self.sum(|interval| interval.completed)
    }

    pub fn failed(&self) -> u64 {
        self.sum(|interval| interval.failed)
    }
}

/// Runs a load and checks that nothing was lost or doubled.
pub fn load(workload: &Workload) -> Outcome {
    load_with(workload, &Control::new())
}

pub fn load_with(workload: &Workload, control: &Control) -> Outcome {
    load_prepared(&prepare(workload).unwrap(), control)
}

/// As [`load`], of a workload that was made ready.
pub fn load_prepared(prepared: &Prepared, control: &Control) -> Outcome {
    let mut intervals = vec![];
    let end = run(prepared, control, &mut |interval| intervals.push(interval)).unwrap();
    let outcome = Outcome { intervals, end };
    check_conservation(&outcome);
    outcome
}

/// At every boundary: started = completed + failed + in flight; every end is in exactly one histogram.
fn check_conservation(outcome: &Outcome) {
    let (mut started, mut ended) = (0, 0);
    for interval in &outcome.intervals {
        started += interval.started;
        ended += interval.completed + interval.failed;
        assert_eq!(started, ended + interval.in_flight, "{interval:?}");
        assert_eq!(interval.errors.total(), interval.failed);
    }
    let last = outcome.intervals.last().unwrap();
    assert_eq!(last.in_flight, outcome.end.in_flight_at_end);
    let response = outcome.merged(|interval| &interval.response_time).count();
    let failed = outcome.merged(|interval| &interval.failed_time).count();
    assert_eq!(response + failed, ended);
    let length_us = outcome.sum(|interval| interval.length_us);
    assert!(length_us.abs_diff(outcome.end.elapsed_us) < 1000);
}
