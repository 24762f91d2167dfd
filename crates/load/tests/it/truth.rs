//! Open arrival tells the truth about a server that freezes: a closed loop would hide most of it (coordinated
//! omission), because nobody asks while the server does not answer.

use crate::server::{OK, load, workload};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use webdyno_model::workload::Arrival;

const PERIOD: Duration = Duration::from_millis(2000);
const FREEZE: Duration = Duration::from_millis(500);

/// Answers at once, except in the last 500 ms of every 2 s.
fn serve(mut stream: TcpStream, begun: Instant) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(15))).ok()?;
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).ok()? > 0 {
        let in_period = Duration::from_nanos((begun.elapsed().as_nanos() % PERIOD.as_nanos()) as u64);
        if in_period >= PERIOD - FREEZE {
            thread::sleep(PERIOD - in_period);
        }
        stream.write_all(OK).ok()?;
    }
    Some(())
}

#[test]
fn a_freeze_shows_in_every_request_that_was_due() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let seen_over = over.clone();
    let begun = Instant::now();
    let acceptor = thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if seen_over.load(Ordering::Acquire) {
                return;
            }
            thread::spawn(move || serve(stream, begun));
        }
    });
    let mut load_of = workload(&format!("http://{address}/"));
    load_of.arrival = Arrival::Open { rate_per_s: 200.0, poisson: false };
    load_of.connections = 10;
    load_of.stop.duration_us = Some(6_200_000);
    let outcome = load(&load_of);
    over.store(true, Ordering::Release);
    let _ = TcpStream::connect(address);
    acceptor.join().unwrap();
    // Not one start was left out, whatever the server did.
    assert_eq!(outcome.sum(|interval| interval.started), 1240);
    let response = outcome.merged(|interval| &interval.response_time);
    // Three freezes of 100 starts each, a quarter of all, with waits spread evenly up to 500 ms.
    let slow = |over_us: u64| {
        let below = response.cumulative();
        let below = below.iter().take_while(|&&(time_us, _)| time_us < over_us).last();
        below.map_or(1.0, |&(_, share)| 1.0 - share) * response.count() as f64
    };
    assert!((200.0..400.0).contains(&slow(50_000)), "{}", slow(50_000));
    assert!((90.0..220.0).contains(&slow(250_000)), "{}", slow(250_000));
    let max_us = response.dist().max.unwrap();
    assert!((400_000..900_000).contains(&max_us), "{max_us}");
    // Ten connections carry ten of the hundred; service time alone would hide the others.
    let service = outcome.merged(|interval| &interval.service_time);
    assert!(service.mean_us().unwrap() * 3.0 < response.mean_us().unwrap());
}
