//! What one engine thread of this machine can send: the engine itself against a small server of our own over loopback, for a moment.
//! It is the engine's CPU time that counts, so that neither that server nor a neighbour lowers the figure.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use webdyno_load::Control;
use webdyno_model::workload::{RequestSpec, Stop, Workload};

const LENGTH_US: u64 = 300_000;
const CONNECTIONS: u32 = 16;
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Requests per second of one thread that does nothing else; `None` where that cannot be measured.
pub fn requests_per_s() -> Option<u32> {
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let url = format!("http://{}/", listener.local_addr().ok()?);
    thread::spawn(move || serve(&listener));
    let workload = Workload {
        requests: vec![RequestSpec { name: "/".into(), url, ..RequestSpec::default() }],
        stop: Stop { duration_us: Some(LENGTH_US), requests: None },
        connections: CONNECTIONS,
        threads: Some(1),
        ..Workload::default()
    };
    let prepared = webdyno_load::prepare(&workload).ok()?;
    let mut completed = 0;
    let mut count = |interval: webdyno_model::interval::Interval| completed += interval.completed;
    let end = webdyno_load::run_at(&prepared, &Control::new(), None, &mut count).ok()?;
    let cpu_us = end.thread_cpu_us.first().filter(|cpu_us| **cpu_us > 0)?;
    u32::try_from(completed * 1_000_000 / cpu_us).ok().filter(|rate| *rate > 0)
}

/// Until all connections of the load are over.
fn serve(listener: &TcpListener) {
    let streams = (0..CONNECTIONS).map_while(|_| listener.accept().ok());
    let threads: Vec<_> = streams.map(|(stream, _)| thread::spawn(move || respond(stream))).collect();
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// One request at a time, each in one piece, as the engine sends them over loopback.
fn respond(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) && stream.write_all(RESPONSE).is_ok() {}
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_sends_what_such_machines_send() {
        let rate = super::requests_per_s().unwrap();
        // Unoptimised on an old machine, and beyond what any could.
        assert!((500..5_000_000).contains(&rate), "{rate}");
    }
}
