//! How connections end, seen from the server: by FIN, as those of any client. A reset (from SO_LINGER of 0, or from
//! bytes that lie unread when a socket is closed) would throw away what the other side still reads, and hide TIME_WAIT.

use crate::server::{OK, Step, load, load_prepared, workload};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use webdyno_load::{Control, prepare};
use webdyno_model::workload::Workload;

/// How a connection ended: the end of the stream, or an error.
type Ending = Result<(), ErrorKind>;

/// Follows the script on each of this many connections, then reads to the end of each and tells how that was.
fn watched(connections: usize, script: Vec<Step>) -> (SocketAddr, Receiver<Ending>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().take(connections).flatten() {
            let (script, sender) = (script.clone(), sender.clone());
            // Nobody listens any more when the test has failed already.
            thread::spawn(move || sender.send(follow(stream, &script)).is_ok());
        }
    });
    (address, receiver)
}

fn follow(mut stream: TcpStream, script: &[Step]) -> Ending {
    let told = |error: std::io::Error| error.kind();
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(told)?;
    let mut at = 0;
    loop {
        match script.get(at) {
            Some(Step::Request) => {
                let (mut seen, mut buffer) = (vec![], [0; 4096]);
                while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
                    match stream.read(&mut buffer).map_err(told)? {
                        0 => return Ok(()),
                        count => seen.extend_from_slice(&buffer[..count]),
                    }
                }
            }
            Some(Step::Send(bytes)) => stream.write_all(bytes).map_err(told)?,
            Some(Step::HalfClose) => stream.shutdown(Shutdown::Write).map_err(told)?,
            Some(Step::Again) => {
                at = 0;
                continue;
            }
            Some(step) => unreachable!("{step:?} is not a step of this server"),
            None => {
                let mut buffer = [0; 65536];
                while stream.read(&mut buffer).map_err(told)? > 0 {}
                return Ok(());
            }
        }
        at += 1;
    }
}

/// Loads the script with eight requests of two users, and checks that each of this many connections ended by FIN.
pub fn check(connections: usize, script: Vec<Step>, change: fn(&mut Workload)) {
    let (address, endings) = watched(connections, script);
    let mut load_of = workload(&format!("http://{address}/"));
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(8), None);
    change(&mut load_of);
    let outcome = load(&load_of);
    assert_eq!(outcome.completed() + outcome.failed(), 8);
    let errors = outcome.intervals[0].errors;
    assert_eq!(outcome.failed(), errors.status, "{errors:?}");
    for number in 0..connections {
        let ending = endings.recv_timeout(Duration::from_secs(20)).expect("a connection never ended");
        assert_eq!(ending, Ok(()), "connection {number}");
    }
}

fn send(text: &str) -> Step {
    Step::Send(text.replace('\n', "\r\n").into_bytes())
}

#[test]
fn connections_end_by_fin() {
    let ok = Step::Send(OK.to_vec());
    let kept = vec![Step::Request, ok.clone(), Step::Again];
    check(2, kept, |_| {});
    // A server that waits for the client's close, and one that closes first and lingers, as Apache and nginx do.
    check(8, vec![Step::Request, ok.clone()], |load| load.keepalive = false);
    let last = send("HTTP/1.1 200 OK\nConnection: close\nContent-Length: 2\n\nok");
    check(8, vec![Step::Request, last, Step::HalfClose], |_| {});
    let to_the_end = send("HTTP/1.1 200 OK\n\nall there is");
    check(8, vec![Step::Request, to_the_end, Step::HalfClose], |_| {});
}

#[test]
fn bodies_that_are_dropped_leave_nothing_unread() {
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".to_vec();
    response.resize(response.len() + 3_000_000, b'x');
    check(2, vec![Step::Request, Step::Send(response), Step::Again], |_| {});
}

/// The response is there while the request is still on its way; what lay in the kernel arrives, and then the end.
#[test]
fn an_early_response_to_a_large_request_is_a_response() {
    let no = send("HTTP/1.1 413 Content Too Large\nConnection: close\nContent-Length: 2\n\nno");
    check(8, vec![Step::Request, no, Step::HalfClose], |load| {
        load.requests[0].method = "POST".into();
        load.requests[0].body = vec![b'x'; 8_000_000].into();
    });
}

#[test]
fn a_body_does_not_wait_for_a_continue() {
    let answers = [send("HTTP/1.1 100 Continue\n\n"), Step::Send(OK.to_vec())];
    for script in [answers.to_vec(), answers[1..].to_vec()] {
        let script = [vec![Step::Request], script].concat();
        check(8, script, |load| {
            load.requests[0].method = "POST".into();
            load.requests[0].headers = vec![("Expect".into(), "100-continue".into())];
            load.requests[0].body = "abc".into();
            load.keepalive = false;
        });
    }
}

#[test]
fn the_end_of_a_load_is_no_reset_either() {
    // One request in one second: at its end the connection has long been idle.
    let (address, endings) = watched(1, vec![Step::Request, Step::Send(OK.to_vec()), Step::Again]);
    let mut load_of = workload(&format!("http://{address}/"));
    load_of.arrival = webdyno_model::workload::Arrival::Open { rate_per_s: 1.0, poisson: false };
    load_of.connections = 1;
    load_prepared(&prepare(&load_of).unwrap(), &Control::new());
    assert_eq!(endings.recv_timeout(Duration::from_secs(20)), Ok(Ok(())));
}
