//! Other clients on the server: they are seen, and tuning does not cost them a request. Nobody is seen who is not there.

use crate::support::{Apache, Place, run, shared_turn, turn};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LOAD: [&str; 5] = ["-c", "40", "--no-keepalive", "-d", "10s"];

/// Somebody else who asks for a page 20 times a second, each time on a connection of its own.
struct OtherClient {
    stop: Arc<AtomicBool>,
    asking: Option<JoinHandle<()>>,
    answered: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl OtherClient {
    fn of(port: u16) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failures = Arc::new(Mutex::new(vec![]));
        let state = (Arc::clone(&stop), Arc::clone(&answered), Arc::clone(&failures));
        let asking = std::thread::spawn(move || {
            let (stop, answered, failures) = state;
            let (begun, mut requests) = (Instant::now(), vec![]);
            for number in 0.. {
                let due = begun + Duration::from_millis(50) * number;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (answered, failures) = (Arc::clone(&answered), Arc::clone(&failures));
                requests.retain(|request: &JoinHandle<()>| !request.is_finished());
                requests.push(std::thread::spawn(move || match check_response(port) {
                    Ok(()) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    Err(why) => failures.lock().unwrap().push(format!("{:?}: {why}", begun.elapsed())),
                }));
            }
            requests.into_iter().for_each(|request| request.join().unwrap());
        });
        Self { stop, asking: Some(asking), answered, failures }
    }

    /// Ends it: how many requests were answered, and what failed.
    fn end(&mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.asking.take().map(JoinHandle::join).transpose().unwrap();
        (self.answered.load(Ordering::Relaxed), self.failures.lock().unwrap().clone())
    }
}

impl Drop for OtherClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One request; an error when it is not answered well and in full.
fn check_response(port: u16) -> Result<(), String> {
    let reported = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(reported)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(reported)?;
    stream
        .write_all(b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .map_err(reported)?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer).map_err(reported)?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("half an answer: {text}"))?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let whole = length.and_then(|length| length.parse().ok()) == Some(body.len());
    if head.starts_with("HTTP/1.1 200") && whole { Ok(()) } else { Err(text) }
}

/// An Apache whose page takes about so long, and another time once a change of webdyno is on disk: it waits and computes
/// nothing, so that whatever else the machine is at decides little.
fn apache_that_waits(place: &Place, before_ms: u32, after_ms: u32) -> Apache {
    let apache = Apache::start(&place.path("server"), 20);
    let application = format!(
        "function handle(r)\n    local changed = io.open(\"{}\")\n    if changed then changed:close() end\n    \
         local about = changed and {after_ms} or {before_ms}\n    \
         r.usleep(math.random(about * 500, about * 1500))\n    \
         r.content_type = \"text/plain\"\n    r:puts(\"hi\")\n    return apache2.OK\nend\n",
        apache.files.root.join("conf-enabled/zzz-webdyno.conf").display()
    );
    std::fs::write(apache.files.root.join("app.lua"), application).unwrap();
    apache
}

/// Measures again where other programs took so much of the machine that no worker limit was proven, and nothing was changed.
fn until_changed(attempt: impl Fn() -> serde_json::Value) {
    let limits: Vec<_> = (0..3)
        .map(|_| attempt())
        .take_while(|json| json["rounds"].as_array().is_some_and(Vec::is_empty))
        .map(|json| json["limit"].clone())
        .collect();
    assert!(limits.len() < 3, "nothing was changed, as other limits showed on this machine: {limits:?}");
}

#[test]
fn a_change_by_reload_costs_others_nothing() {
    let _turn = shared_turn();
    until_changed(change_by_reload);
}

fn change_by_reload() -> serde_json::Value {
    let place = Place::shielded();
    let apache = apache_that_waits(&place, 300, 300);
    let pid = apache.pid();
    let mut other = OtherClient::of(apache.files.port);
    let arguments = ["--apply", "--goal", "80 req/s", "--json", "-"];
    let ended = run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(arguments));
    let (answered, failures) = other.end();
    assert!(failures.is_empty(), "{} of {answered}: {failures:?}", failures.len());
    let json = ended.json();
    let traffic = &json["live_traffic"];
    assert_eq!(traffic["present"], true, "{traffic:#}");
    let rate = traffic["requests_per_s"].as_f64().unwrap();
    assert!((10.0..30.0).contains(&rate), "{traffic:#}");
    assert!(!traffic["evidence"][0]["reproduce"].as_str().unwrap().is_empty(), "{traffic:#}");
    if !json["rounds"].as_array().unwrap().is_empty() {
        assert_eq!((json["state"].as_str(), apache.pid()), (Some("applied"), pid), "{json:#}");
    }
    json
}

/// The change makes the site slow for everybody: the load that shows it ends early, the change is put back by a reload, and
/// nothing else is tried on others.
#[test]
fn a_change_that_hurts_is_put_back_at_once() {
    let _turn = shared_turn();
    until_changed(change_that_hurts);
}

fn change_that_hurts() -> serde_json::Value {
    let place = Place::shielded();
    let apache = apache_that_waits(&place, 300, 2500);
    let (before, pid) = (apache.configuration(), apache.pid());
    let mut other = OtherClient::of(apache.files.port);
    let arguments = ["--apply", "--allow-restart", "--json", "-"];
    let ended = run(place.webdyno().args(["tune", &apache.url()]).args(LOAD).args(arguments));
    let (answered, failures) = other.end();
    assert!(failures.is_empty(), "{} of {answered}: {failures:?}", failures.len());
    let json = ended.json();
    let rounds = json["rounds"].as_array().unwrap();
    if rounds.is_empty() {
        return json;
    }
    assert_eq!(json["state"], "reverted", "{json:#}");
    for reported in [
        "other clients use this server",
        "the load after the change was ended after",
        "nothing more is tried",
    ] {
        assert!(ended.stderr.contains(reported), "{reported}: {}", ended.stderr);
    }
    assert_eq!(
        rounds.iter().map(|round| round["verdict"].as_str().unwrap()).collect::<Vec<_>>(),
        ["worse"],
        "{json:#}"
    );
    assert_eq!((apache.configuration(), apache.pid()), (before, pid));
    json
}

#[test]
fn nobody_is_seen_who_is_not_there() {
    // This process is a server of other tests, and talks to their servers: whoever looks behind it finds ours, and asks it.
    let _turn = turn();
    let (place, apache, _) = Apache::placed();
    // Each one right after the load of the one before, whose workers Apache is ending with requests of its own.
    for turn in 0..2 {
        let load = ["-c", "60", "--no-keepalive", "-d", "4s", "-q", "--json", "-"];
        let json = run(place.webdyno().args(["diagnose", &apache.url()]).args(load)).with_code(0).json();
        assert_eq!(json["live_traffic"]["present"], false, "{turn}: {:#}", json["live_traffic"]);
    }
}
