//! Pages of several versions, answers that are none, and a server that does not answer in time.

use super::*;
use crate::probes::apache_status::fetch::{parse_answer, parse_url};
use crate::probes::apache_status::fetch_status;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

/// Apache 2.4.71, event, captured.
const EVENT: &str = include_str!("../../../../tests/fixtures/apache-status-2.4.71-event.txt");

/// Made by hand after what 2.4.6 leaves out (name, MPM, durations), with every state and one unknown.
const OLD: &str = "\
Total Accesses: 1025
Total kBytes: 3
CPULoad: .0833333
Uptime: 60
ReqPerSec: 17.08
BytesPerSec: 51.2
BytesPerReq: 2.99
BusyWorkers: 4
IdleWorkers: 2
Scoreboard: _W_KRGI.SDCLX
";

/// `ExtendedStatus Off`.
const SHORT: &str = "BusyWorkers: 1\nIdleWorkers: 1\nScoreboard: _W..\n";

const URL: &str = "http://127.0.0.1/server-status";

#[test]
fn pages_of_all_versions_parse() {
    let event = values(&parse_status(URL, EVENT).unwrap());
    let old = values(&parse_status(URL, OLD).unwrap());
    for (reading, name, expected) in [
        (&event, "apache.slots_count", Some(400.0)),
        (&event, "apache.slots_open_count", Some(325.0)),
        (&event, "apache.workers_busy_count", Some(1.0)),
        (&event, "apache.workers_idle_count", Some(74.0)),
        (&event, "apache.processes_count", Some(3.0)),
        (&event, "apache.connections_count", Some(0.0)),
        (&event, "apache.busy_duration_ms", Some(0.0)),
        (&event, "apache.config_generation_count", Some(1.0)),
        (&event, "apache.uptime_s", Some(1.0)),
        (&old, "apache.accesses_count", Some(1025.0)),
        (&old, "apache.bytes_served_bytes", Some(3072.0)),
        (&old, "apache.uptime_s", Some(60.0)),
        (&old, "apache.busy_duration_ms", None),
        (&old, "apache.connections_count", None),
        (&old, "apache.slots_count", Some(13.0)),
        (&old, "apache.workers_busy_count", Some(6.0)),
        (&old, "apache.workers_finishing_count", Some(1.0)),
        (&old, "apache.workers_cleanup_count", Some(1.0)),
        (&old, "apache.workers_starting_count", Some(1.0)),
    ] {
        assert_eq!(reading.value(name), expected, "{name}");
    }
    assert_eq!((event.error, old.error), (None, None));
    let status = parse_status(URL, EVENT).unwrap();
    assert_eq!(status.version.as_deref(), Some("Apache/2.4.71 (Debian)"));
    assert_eq!(status.mpm.as_deref(), Some("event"));
}

// As prefork showed it, with 10 workers allowed after there were 40: those behind them ended long ago.
#[test]
fn workers_that_ended_behind_a_lowered_limit_are_not_idle() {
    let board = "WWWWWWWWWWGGGGGGGGGGGGGGGGGGG__________";
    let page = format!("BusyWorkers: 29\nIdleWorkers: 0\nScoreboard: {board}\n");
    let idle = |page: &str| values(&parse_status(URL, page).unwrap()).value("apache.workers_idle_count");
    assert_eq!(idle(&page), Some(0.0));
    assert_eq!(idle(&page.replace("IdleWorkers: 0\n", "")), Some(10.0), "a page without that line");
    assert_eq!(idle("IdleWorkers: 7\nScoreboard: __W.\n"), Some(2.0), "no more than are shown");
}

#[test]
fn totals_that_are_switched_off_are_missing_and_told() {
    let reading = values(&parse_status(URL, SHORT).unwrap());
    assert_eq!(reading.value("apache.accesses_count"), None);
    assert_eq!(reading.value("apache.slots_count"), Some(4.0));
    assert!(reading.error.unwrap().contains("ExtendedStatus"));
}

#[test]
fn other_pages_are_named() {
    for (page, expected) in [
        ("<!DOCTYPE HTML><html>Apache Status</html>", "HTML instead of the automatic format"),
        ("", "answers nothing"),
        ("pool: www\naccepted conn: 3\n", "not the automatic format"),
    ] {
        let error = parse_status(URL, page).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
        assert!(error.hint.unwrap().contains("curl"));
    }
}

#[test]
fn urls_are_split() {
    for (url, authority, host, port, path) in [
        ("http://127.0.0.1:8080/server-status", "127.0.0.1:8080", "127.0.0.1", 8080, "/server-status"),
        ("http://localhost/s?refresh=1", "localhost", "localhost", 80, "/s"),
        ("http://[::1]:81/s", "[::1]:81", "::1", 81, "/s"),
        ("http://[::1]", "[::1]", "::1", 80, "/"),
    ] {
        let parts = parse_url(url).unwrap();
        let found = (parts.authority.as_str(), parts.host.as_str(), parts.port, parts.path.as_str());
        assert_eq!(found, (authority, host, port, path));
    }
    for url in
        ["", "https://h/s", "http://", "http://h:0/", "http://h:x/", "http://u@h/", "http://h/a b\r\nX: y"]
    {
        assert_eq!(parse_url(url).unwrap_err().exit_code(), 2, "{url}");
    }
}

/// A server that reads one request, sends `answer`, and then keeps the connection open for `hold`.
fn server(answer: &str, hold: Duration) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/server-status", listener.local_addr().unwrap());
    let answer = answer.to_owned();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        // The client may have left in the middle of a long answer.
        let _ = stream.write_all(answer.as_bytes());
        std::thread::sleep(hold);
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    (url, thread)
}

fn check_error(answer: &str, hold: Duration, timeout: Duration, expected: &str) {
    let (url, thread) = server(answer, hold);
    let error = fetch_status(&url, timeout).unwrap_err();
    assert!(error.message.contains(expected) && error.message.contains(&url), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_page_is_fetched_with_its_host() {
    let (url, thread) = server(&format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{OLD}"), Duration::ZERO);
    let status = fetch_status(&url, Duration::from_secs(5)).unwrap();
    assert_eq!(status.accesses_count, Some(1025));
    let request = thread.join().unwrap();
    let authority = url.strip_prefix("http://").unwrap().strip_suffix("/server-status").unwrap();
    assert!(request.starts_with("GET /server-status?auto HTTP/1.0\r\n"), "{request}");
    assert!(request.contains(&format!("\r\nHost: {authority}\r\n")), "{request}");
}

#[test]
fn what_goes_wrong_is_named() {
    let check = |answer: &str, expected: &str| {
        check_error(answer, Duration::ZERO, Duration::from_secs(10), expected);
    };
    check("HTTP/1.1 403 Forbidden\r\n\r\n", "answers 403");
    check("HTTP/1.1 404 Not Found\r\n\r\n", "answers 404");
    check("HTTP/1.1 301 Moved\r\nLocation: https://h/\r\n\r\n", "answers 301");
    check("HTTP/1.1 200 OK\r\n\r\n<html>", "HTML instead of the automatic format");
    check("SSH-2.0-OpenSSH\r\n", "does not answer in HTTP");
    check("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nTotal", "does not answer in HTTP");
    check(&format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(2 << 20)), "longer than");
}

#[test]
fn a_server_without_a_free_worker_is_not_waited_for() {
    for answer in ["", "HTTP/1.1 200 OK\r\n"] {
        let (hold, timeout) = (Duration::from_millis(300), Duration::from_millis(100));
        check_error(answer, hold, timeout, "did not answer within 0.1 s");
    }
}

// A page that comes late comes on the request that was sent first: no second one is put into the queue.
#[test]
fn a_late_page_is_waited_for_on_the_same_request() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/server-status", listener.local_addr().unwrap());
    let mut collector = ApacheStatus::default();
    for _ in 0..3 {
        let error = collector.fetch(&url, None, Duration::from_millis(20)).unwrap_err();
        assert!(error.message.contains("did not answer within"), "{error}");
    }
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 20]).unwrap();
    stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{SHORT}").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (page, waited) = collector.fetch(&url, None, Duration::from_secs(10)).unwrap();
    assert_eq!(page, SHORT);
    assert!(waited >= Duration::from_millis(60), "{waited:?} is counted from the first reading");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "there was one request only");
    assert!(collector.pending.is_none());
}

// A busy server passes its old count before the next reading: its age tells that it is another life.
#[test]
fn a_restart_is_noticed_however_fast_the_new_one_counts() {
    let mut collector = ApacheStatus::default();
    let mut accesses = |uptime_s, accesses_count| {
        let status = ServerStatus { uptime_s, accesses_count, ..ServerStatus::default() };
        let mut reading = values(&status);
        collector.rise("http://h/status", &status, &mut reading);
        reading.value("apache.accesses_count").unwrap()
    };
    assert_eq!(accesses(Some(50), Some(1000)), 1000.0);
    assert_eq!(accesses(Some(51), Some(1100)), 1100.0);
    assert_eq!(accesses(Some(1), Some(5000)), 1100.0, "what the new one counted is not the old one's");
    assert_eq!(accesses(Some(2), Some(5010)), 1110.0);
    assert_eq!(accesses(None, Some(5)), 1110.0);
    assert_eq!(accesses(None, Some(6)), 1111.0);
}

#[test]
fn a_refused_connection_is_named() {
    // A port that was given back may be another program's by now.
    let error = fetch_status("http://127.0.0.1:1/server-status", Duration::from_secs(1)).unwrap_err();
    assert!(error.message.contains("connection refused"), "{error}");
}

#[test]
fn no_status_page_is_no_values() {
    let reading = ApacheStatus::default().read(&Target::default());
    assert_eq!((reading.error, reading.missing[0].why.as_str()), (None, "no Apache was found"));
    let service = webdyno_model::service::ServiceSnapshot { service: "apache".into(), ..Default::default() };
    let target = Target { service: Some(std::sync::Arc::new(service)), ..Target::default() };
    assert_eq!(ApacheStatus::default().read(&target), Reading::failed("no status page"));
}

/// Boards of real servers: 8 workers after there were 12, on prefork with ghosts, on event with a process that took
/// the third place while the second was held.
#[test]
fn the_limit_is_told_from_what_stands_behind_it() {
    for (slots, configured, expected) in [
        ("........", Some(8), 8),
        ("......W_CGGC", Some(8), 8),
        ("...._.W.LLLL", Some(8), 8),
        ("___W....____", Some(8), 8),
        // A file that was changed and not reloaded, in both directions.
        ("____W.......", Some(8), 12),
        ("____W...", Some(12), 8),
        // A full board does not tell: the file is believed.
        ("WWWWWWWWWWWW", Some(8), 8),
        ("____W...", None, 8),
        ("____", Some(0), 4),
    ] {
        assert_eq!(Scoreboard::parse(slots).limit_count(configured), expected, "{slots} {configured:?}");
    }
}

proptest! {
    // Whatever a server answers: an error or a status whose parts add up, never a panic.
    #[test]
    fn any_answer_is_survived(cut in 0..EVENT.len(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let torn = EVENT.get(..cut).unwrap_or_default();
        let noise = String::from_utf8_lossy(&bytes).into_owned();
        for page in [torn.to_owned(), format!("{noise}\nScoreboard: {noise}\nTotal Accesses: {noise}")] {
            if let Some(board) = parse_status(URL, &page).ok().and_then(|status| status.scoreboard) {
                prop_assert!(board.busy_count() + board.idle_count + board.open_count <= board.slots_count);
            }
        }
        let _ = parse_answer(&bytes);
        let _ = parse_answer(&[b"HTTP/1.1 200 OK\r\n", bytes.as_slice(), b"\r\n\r\n"].concat());
        let _ = parse_url(&noise);
        let _ = parse_url(&format!("http://{noise}"));
    }
}
