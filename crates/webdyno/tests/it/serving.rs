//! `webdyno serve` and `--web` over real sockets: who is served, what, and what a hostile client can do.

use crate::support::{Place, Server, children, run, shared_turn, signal, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
/// Within it everything has happened, also on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The program with a server for browsers in it.
struct Browsed {
    program: Child,
    /// `127.0.0.1:PORT`
    address: String,
    /// `/TOKEN/`
    base: String,
}

impl Browsed {
    /// `webdyno serve`, whose URL is its first line on stdout.
    fn serve(place: &Place, arguments: &[&str]) -> Self {
        let mut program = command(place, &["serve"], arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self::at(program, &line)
    }

    /// A command with `--web`, whose URL stands in its first line on stderr.
    fn session(place: &Place, arguments: &[&str]) -> Self {
        let mut program = command(place, arguments, &["--web"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // What follows is read by nobody, and is little.
        BufReader::new(program.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self::at(program, &line)
    }

    fn at(program: Child, line: &str) -> Self {
        let (_, url) = line.trim().split_once("http://").unwrap_or_else(|| panic!("{line}"));
        let (address, path) = url.split_once('/').unwrap();
        Self { program, address: address.into(), base: format!("/{path}") }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Sends a request with these lines of its head. Gives the status, the head and the body.
    fn request(&self, method: &str, path: &str, head: &[String]) -> (u16, String, String) {
        let mut stream = self.connect();
        let head = head.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        write!(stream, "{method} {path} HTTP/1.1\r\nConnection: close\r\n{head}\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {response}"));
        (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    fn host(&self) -> String {
        format!("Host: {}", self.address)
    }

    /// A path below the token, as a browser gets it.
    fn get(&self, path: &str) -> (u16, String, String) {
        self.request("GET", &format!("{}{path}", self.base), &[self.host()])
    }

    fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// What a script of our own page sends.
    fn post(&self, path: &str) -> (u16, String) {
        let origin = format!("Origin: http://{}", self.address);
        let head = [self.host(), origin, "Sec-Fetch-Site: same-origin".into(), "Content-Length: 0".into()];
        let (status, _, body) = self.request("POST", &format!("{}{path}", self.base), &head);
        (status, body)
    }

    /// The events of a session, a line at a time.
    fn events(&self, id: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let (base, host) = (&self.base, self.host());
        write!(stream, "GET {base}api/sessions/{id}/events HTTP/1.1\r\n{host}\r\n\r\n").unwrap();
        BufReader::new(stream)
    }
}

impl Drop for Browsed {
    fn drop(&mut self) {
        if matches!(self.program.try_wait(), Ok(None)) {
            signal(self.program.id(), Signal::TERM);
            let _ = self.program.wait();
        }
    }
}

fn command(place: &Place, first: &[&str], last: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("webdyno"));
    command.args(first).args(last).env("WEBDYNO_STATE", place.path("state")).current_dir(place.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Copies the recording of a tuning.
fn record(directory: &Path) {
    let recording =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recordings/v0.1.0-tune/events.jsonl");
    std::fs::create_dir_all(directory).unwrap();
    std::fs::copy(recording, directory.join("events.jsonl")).unwrap();
}

/// Reads lines until one is wanted. Gives those before it and that one.
fn lines_until(events: &mut BufReader<TcpStream>, wanted: &str) -> Vec<String> {
    let mut lines = vec![];
    loop {
        let mut line = String::new();
        let count = events.read_line(&mut line).unwrap();
        assert!(count > 0, "no {wanted} in {lines:?}");
        lines.push(line.trim_end().to_owned());
        if line.trim_end() == wanted {
            return lines;
        }
    }
}

#[test]
fn sessions_are_served_to_those_with_the_token_alone() {
    let place = Place::new();
    record(&place.path("runs/deep/a b"));
    record(&place.path("runs/c"));
    record(&place.path("outside"));
    let served = Browsed::serve(&place, &["runs"]);
    let (host, base) = (served.host(), served.base.clone());
    let wrong = format!("/{}/", "0".repeat(32));
    for (method, path, head, expected) in [
        ("GET", base.as_str(), vec![host.clone()], 200),
        ("HEAD", &base, vec![host.clone()], 200),
        ("GET", "/", vec![host.clone()], 404),
        ("GET", &wrong, vec![host.clone()], 404),
        ("GET", &base, vec!["Host: evil.example".into()], 403),
        ("GET", &base, vec![host.clone(), "Origin: http://evil.example".into()], 403),
        ("GET", &base, vec![host.clone(), "Sec-Fetch-Site: cross-site".into()], 403),
        ("POST", &base, vec![host.clone(), format!("Origin: http://{}", served.address)], 405),
        ("PUT", &base, vec![host.clone(), format!("Origin: http://{}", served.address)], 405),
    ] {
        let (status, head, body) = served.request(method, path, &head);
        assert_eq!(status, expected, "{method} {path}: {body}");
        for line in
            ["cache-control: no-store", "referrer-policy: no-referrer", "x-content-type-options: nosniff"]
        {
            assert!(head.contains(line), "{line}: {head}");
        }
        assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
        assert!(!head.contains("access-control"), "{head}");
    }

    let list = served.json("api/sessions");
    let ids: Vec<&str> =
        list["sessions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["deep/a b", "c"], "{list:#}");
    let page = served.json("api/sessions/deep%2Fa%20b");
    assert!(page["title"].as_str().unwrap().contains("tune"), "{}", page["title"]);
    let (status, head, html) = served.get("sessions/deep%2Fa%20b");
    assert_eq!(status, 200);
    assert!(html.contains(&format!("{base}api/sessions/deep%2Fa%20b")), "{html}");
    assert!(head.contains("frame-ancestors 'none'"), "{head}");
    // A name is looked up, and leads nowhere else.
    for name in ["..%2Foutside", "deep%2F..%2Fc", "%2Fetc", "..", "c%2F", "c%00", "no-such"] {
        for route in ["sessions/", "api/sessions/"] {
            assert_eq!(served.get(&format!("{route}{name}")).0, 404, "{name}");
        }
        assert_eq!(served.get(&format!("api/sessions/{name}/events")).0, 404, "{name}");
        assert_eq!(served.get(&format!("api/compare?a=c&b={name}")).0, 404, "{name}");
    }

    let both = served.json("api/compare?a=c&b=deep%2Fa+b");
    assert!(both["headline"].as_str().unwrap().starts_with("B serves the same rate as A"), "{both:#}");
    let tuned = served.json("api/compare?a=c");
    assert!(tuned["headline"].as_str().unwrap().starts_with("B serves 3.0x the rate of A"), "{tuned:#}");
    assert_eq!((served.get("api/compare").0, served.get("compare?a=c").0), (400, 200));
    assert_eq!((served.get("assets/sessions.js").0, served.get("assets/sessions.css").0), (200, 200));
}

#[test]
fn only_a_flag_opens_it_to_other_machines() {
    let place = Place::new();
    std::fs::create_dir(place.path("webdyno-runs")).unwrap();
    let serve = |arguments: &[&str]| run(place.webdyno().arg("serve").args(arguments));
    serve(&["--listen", "0.0.0.0:8123"])
        .with_code(2)
        .assert_error("0.0.0.0:8123 is reached", "ssh -L 8123:127.0.0.1:8123");
    serve(&["--listen", "localhost"])
        .with_code(2)
        .assert_error("wants an IP address with its port", "webdyno serve");
    serve(&["missing"]).with_code(1).assert_error("cannot read missing", "webdyno run URL");
    serve(&["--control"]).with_code(2).assert_error("nothing to start", "--workload FILE.toml");
    run(place.webdyno().args(["run", "http://127.0.0.1:1/", "--web=192.0.2.1:80"]))
        .with_code(2)
        .assert_error("--web wants a loopback address", "webdyno run");
    let remote = Browsed::serve(&place, &["--listen", "0.0.0.0:0", "--allow-remote"]);
    let address = remote.address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(remote.request("GET", &remote.base, &[format!("Host: {address}")]).0, 200);
    assert_eq!(remote.request("GET", &remote.base, &["Host: evil.example".into()]).0, 403);
}

#[test]
fn a_log_that_grows_is_followed() {
    let place = Place::new();
    record(&place.path("runs/old"));
    let whole = std::fs::read_to_string(place.path("runs/old/events.jsonl")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    fn is_interval(line: &&str) -> bool {
        line.contains(r#""kind":"interval""#)
    }
    let first = lines.iter().position(is_interval).unwrap();
    std::fs::create_dir(place.path("runs/new")).unwrap();
    let mut log = std::fs::File::create(place.path("runs/new/events.jsonl")).unwrap();
    let mut append = |lines: &[&str]| lines.iter().for_each(|line| writeln!(log, "{line}").unwrap());
    append(&lines[..=first]);

    let served = Browsed::serve(&place, &["runs"]);
    let mut events = served.events("new");
    let head = lines_until(&mut events, "event: second");
    assert!(
        head[0].contains(" 200 ") && head.iter().any(|line| line.contains("text/event-stream")),
        "{head:?}"
    );
    let second = |events: &mut BufReader<TcpStream>| -> Value {
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        serde_json::from_str(line.trim_start_matches("data: ")).unwrap()
    };
    let mut known = second(&mut events);
    // Before the load there are readings alone.
    while known["load"].is_null() {
        lines_until(&mut events, "event: second");
        known = second(&mut events);
    }
    let next = lines.iter().skip(first + 1).position(is_interval).unwrap() + first + 1;
    append(&lines[first + 1..=next]);
    lines_until(&mut events, "event: second");
    let added = second(&mut events);
    assert_eq!(added["load"], known["load"]);
    assert_eq!(
        added["t_s"].as_f64().unwrap().round(),
        known["t_s"].as_f64().unwrap().round() + 1.0,
        "{added} {known}"
    );
    assert!(added["rate"].as_f64().unwrap() > 0.0 && added["p99_us"].as_u64().unwrap() > 0, "{added}");
    assert!(added["signals"]["CPU: busy"].is_number(), "{added}");
    append(&lines[next + 1..]);
    lines_until(&mut events, "event: end");
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    // Of a session that is over the end is all that is new.
    lines_until(&mut served.events("old"), "event: end");
}

#[test]
fn a_session_under_way_is_shown_until_its_end() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let load = ["run", &server.url(), "-r", "50", "-d", "3s", "--warmup", "0s", "-q", "--out", "r"];
    let mut session = Browsed::session(&place, &load);
    let (status, head, _) = session.get("");
    assert!(status == 303 && head.contains(&format!("location: {}sessions/r", session.base)), "{head}");
    assert_eq!(session.get("sessions/s").0, 404);
    let mut events = session.events("r");
    let mut lines = lines_until(&mut events, "event: second");
    // That it has no end yet spoils nothing.
    let page = session.json("api/sessions/r");
    assert!(
        page["banners"] == serde_json::json!([]) && page["meta"].to_string().contains("under way"),
        "{page}"
    );
    lines.extend(lines_until(&mut events, "event: end"));
    let seconds = lines.iter().filter(|line| **line == "event: second").count();
    assert!(seconds >= 2, "{lines:#?}");
    // The page that followed it still has its report.
    let page = session.json("api/sessions/r");
    assert!(page["banners"].is_array(), "{page}");
    drop(events);
    assert!(wait_until(SOON, || matches!(session.program.try_wait(), Ok(Some(_)))), "it lingers");
    assert!(place.path("r/report.html").exists());
}

#[test]
fn saved_workloads_are_started_and_stopped() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let page = format!("base = \"{}\"\nusers = 2\nduration = \"60s\"\n[[page]]\nurl = \"/\"\n", server.url());
    std::fs::create_dir(place.path("runs")).unwrap();
    std::fs::write(place.path("runs/shop.toml"), page).unwrap();
    std::fs::write(place.path("runs/other.toml"), "[tool]\n").unwrap();
    let served = Browsed::serve(&place, &["runs", "--control"]);
    assert_eq!(served.json("api/workloads")["workloads"], serde_json::json!(["shop"]));
    let start = format!("{}api/workloads/start/shop", served.base);
    let (host, length) = (served.host(), "Content-Length: 0".to_owned());
    // Without an origin it is not from our page.
    assert_eq!(served.request("POST", &start, &[host, length]).0, 403);
    assert_eq!(served.post("api/workloads/start/..%2Fshop").0, 422);

    let (status, body) = served.post("api/workloads/start/shop");
    assert_eq!(status, 200, "{body}");
    let started: Value = serde_json::from_str(&body).unwrap();
    let id = started["run"]["session"].as_str().unwrap().to_owned();
    let (status, body) = served.post("api/workloads/start/shop");
    assert!(status == 422 && body.contains("shop runs"), "{body}");
    lines_until(&mut served.events_of_begun(&id), "event: second");
    assert_eq!(served.post("api/workloads/stop").0, 200);
    let is_over = || served.json("api/workloads")["run"]["is_over"] == true;
    assert!(wait_until(SOON, is_over));
    let run = &served.json("api/workloads")["run"];
    assert_eq!((&run["exit_code"], &run["error"]), (&130.into(), &"".into()), "{run}");
    let list = served.json("api/sessions");
    assert_eq!(
        (&list["sessions"][0]["id"], &list["sessions"][0]["state"]),
        (&id.into(), &"interrupted".into())
    );

    // What goes on ends with the server.
    assert_eq!(served.post("api/workloads/start/shop").0, 200);
    let child = children(served.program.id());
    assert_eq!(child.len(), 1);
    drop(served);
    assert!(!crate::support::is_alive(child[0]));
}

impl Browsed {
    /// The events of a session that is about to write its first one.
    fn events_of_begun(&self, id: &str) -> BufReader<TcpStream> {
        assert!(wait_until(SOON, || self.get(&format!("sessions/{id}")).0 == 200));
        self.events(id)
    }
}

#[test]
fn hostile_clients_hold_up_nobody_for_long() {
    let _turn = shared_turn();
    let place = Place::new();
    record(&place.path("runs/a"));
    let served = Browsed::serve(&place, &["runs"]);
    // A head without an end is refused while it is sent.
    let mut endless = served.connect();
    let line = format!("X: {}\r\n", "x".repeat(1000));
    let began = Instant::now();
    let sent = write!(endless, "GET / HTTP/1.1\r\n")
        .and_then(|()| (0..10_000).try_for_each(|_| endless.write_all(line.as_bytes())));
    let mut response = vec![];
    let _ = endless.read_to_end(&mut response);
    assert!(sent.is_err() || response.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&response));
    assert!(began.elapsed() < SOON);
    // More followers than there is room for are told so.
    let is_open = |events: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        line.contains(" 200 ")
    };
    std::fs::create_dir(place.path("runs/b")).unwrap();
    let log = std::fs::read_to_string(place.path("runs/a/events.jsonl")).unwrap();
    std::fs::write(place.path("runs/b/events.jsonl"), log.lines().next().unwrap().to_owned() + "\n").unwrap();
    let mut followers: Vec<_> = (0..16).map(|_| served.events("b")).collect();
    assert!(followers.iter_mut().all(is_open));
    assert_eq!(served.get("api/sessions/b/events").0, 503);
    drop(followers);
    assert!(wait_until(SOON, || is_open(&mut served.events("b"))), "those who left make room");
    // Connections on which nothing is sent take all places, and lose them.
    let idle: Vec<_> = (0..100).map(|_| served.connect()).collect();
    assert_eq!(served.get("api/sessions").0, 200);
    drop(idle);
}
