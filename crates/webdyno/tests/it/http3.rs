//! HTTP/3 as users meet it: against Caddy of the distribution, whose access log says what it was asked over which protocol.

use crate::http2::{Http2Server, prepare, started};
use crate::ports::free_port;
use crate::support::{Ended, Place, run, shared_turn, skip, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// Caddy with HTTP/3 on the first port and without it on the two others.
fn caddy(place: &Place, attempt: usize) -> (Command, [u16; 3]) {
    let folder = place.path(&format!("caddy-{attempt}"));
    std::fs::create_dir(&folder).unwrap();
    let ports @ [quic, tcp, other] = [(); 3].map(|()| free_port());
    let (cert, key, tree) = (place.path("cert.pem"), place.path("key.pem"), place.path("tree"));
    let text = format!(
        "{{\nadmin off\nauto_https disable_redirects\n\
         servers 127.0.0.1:{quic} {{\nprotocols h1 h2 h3\n}}\n\
         servers 127.0.0.1:{tcp} {{\nprotocols h1 h2\n}}\nservers 127.0.0.1:{other} {{\nprotocols h1 h2\n}}\n}}\n\
         https://127.0.0.1:{quic}, https://127.0.0.1:{tcp}, https://127.0.0.1:{other} {{\nbind 127.0.0.1\n\
         tls {} {}\nroot * {}\nfile_server\nrespond /echo \"{{http.request.body}}\"\nlog {{\noutput file {}\n}}\n}}\n",
        cert.display(),
        key.display(),
        tree.display(),
        place.path("access.log").display()
    );
    std::fs::write(folder.join("Caddyfile"), text).unwrap();
    let mut command = Command::new("/usr/bin/caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.join("Caddyfile"));
    for home in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(home, &folder);
    }
    command.stdout(Stdio::null());
    (command, ports)
}

/// Lines of the access log with this in them.
fn logged(place: &Place, part: &str) -> usize {
    let log = std::fs::read_to_string(place.path("access.log")).unwrap_or_default();
    log.lines().filter(|line| line.contains(part)).count()
}

fn number(report: &serde_json::Value, path: &str) -> u64 {
    report.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("no {path}"))
}

fn loaded(place: &Place, url: &str, arguments: &[&str]) -> Ended {
    let mut command = place.webdyno();
    command.args(["run", url, "--http3"]).args(arguments).arg("--cacert").arg(place.path("cert.pem"));
    run(command.args(["-q", "--json", "-"]))
}

/// So many requests are so many lines of the server's log, beside that of the try before the load.
fn check_counts(place: &Place, base: &str) {
    for (file, bytes, streams, io) in
        [("small", "1000", "10", "epoll"), ("large", "300000", "3", "epoll"), ("small", "1000", "4", "uring")]
    {
        let before = logged(place, "HTTP/3.0");
        let expect = format!("length={bytes}");
        let arguments = ["-c", "2", "--streams", streams, "-n", "900", "--expect", &expect, "--io", io];
        let report = loaded(place, &format!("{base}/{file}"), &arguments).with_code_in(&[0, 3]).json();
        assert_eq!(
            (number(&report, "/requests/completed"), number(&report, "/requests/failed")),
            (900, 0),
            "{file}"
        );
        assert_eq!(number(&report, "/connections/opened"), 2, "{file}: {streams} streams on each");
        assert_eq!(number(&report, "/tls_handshake_us/count"), 2, "{file}: each with a handshake");
        assert_eq!(number(&report, "/workload/transport/http3_streams").to_string(), streams);
        assert!(wait_until(PATIENCE, || logged(place, "HTTP/3.0") == before + 901), "{file}: 900 and a try");
    }
    assert_eq!(logged(place, "HTTP/2") + logged(place, "HTTP/1"), 0, "nothing goes over TCP");
}

/// The parts of a page come over the visitor's one connection.
fn check_page(place: &Place, base: &str) {
    let page = "<img src=small><img src=empty><img src=large>";
    std::fs::write(place.path("tree/page.html"), page).unwrap();
    let arguments = ["--page", "--users", "2", "-d", "2s", "--streams", "4"];
    let report = loaded(place, &format!("{base}/page.html"), &arguments).with_code_in(&[0, 3]).json();
    assert_eq!((number(&report, "/connections/opened"), number(&report, "/requests/failed")), (2, 0));
    let wholes = number(&report, "/requests/completed");
    assert!(wholes >= 4, "{wholes} requests");
}

/// A workload file says it, too.
fn check_file(place: &Place, base: &str) {
    let text = format!(
        "base = \"{base}\"\nhttp3 = true\nstreams = 3\nconnections = 2\n[[request]]\nurl = \"/small\"\n"
    );
    std::fs::write(place.path("load.toml"), text).unwrap();
    let mut command = place.webdyno();
    command.args(["run", "--workload", "load.toml", "-n", "60", "-q", "--json", "-", "--cacert"]);
    let report = run(command.arg(place.path("cert.pem"))).with_code_in(&[0, 3]).json();
    assert_eq!((number(&report, "/requests/completed"), number(&report, "/connections/opened")), (60, 2));
    assert_eq!(number(&report, "/workload/transport/http3_streams"), 3);
}

/// A connection of its own for each request, and a body up and down.
fn check_others(place: &Place, base: &str) {
    let report = loaded(place, &format!("{base}/small"), &["-c", "2", "-n", "40", "--no-keepalive"]);
    let report = report.with_code_in(&[0, 3]).json();
    assert_eq!((number(&report, "/connections/opened"), number(&report, "/requests/completed")), (40, 40));
    assert!(number(&report, "/connections/tls_resumed") >= 30, "sessions are resumed");
    std::fs::write(place.path("body"), vec![b'z'; 2_000_000]).unwrap();
    let arguments = ["--body-file", "body", "-c", "2", "-n", "6", "--expect", "length=2000000"];
    let report = loaded(place, &format!("{base}/echo"), &arguments).with_code_in(&[0, 3]).json();
    assert_eq!((number(&report, "/requests/completed"), number(&report, "/requests/failed")), (6, 0));
}

/// Who does not speak it, or is not trusted, is told before the load.
fn check_errors(place: &Place, server: &Http2Server) {
    let without = format!("https://127.0.0.1:{}/small", server.plain_port);
    loaded(place, &without, &["-n", "5"]).with_code(1).assert_error("UDP port", "leave --http3 out");
    let unknown = format!("https://127.0.0.1:{}/small", server.tls_port);
    run(place.webdyno().args(["run", &unknown, "--http3", "-n", "5"]))
        .with_code(1)
        .assert_error("its certificate", "--cacert");
}

#[test]
fn caddy_is_loaded_over_http3() {
    let _turn = shared_turn();
    let place = Place::new();
    if !prepare(&place) || !Path::new("/usr/bin/caddy").exists() {
        return skip("caddy or openssl is missing; install caddy and openssl");
    }
    let server = started(&place, caddy).expect("caddy does not start");
    let base = format!("https://127.0.0.1:{}", server.tls_port);
    check_counts(&place, &base);
    check_page(&place, &base);
    check_file(&place, &base);
    check_others(&place, &base);
    check_errors(&place, &server);
}

#[test]
fn what_it_cannot_be_spoken_with_is_refused() {
    let place = Place::new();
    for (arguments, first, second) in [
        (&["http://127.0.0.1:1/", "--http3"][..], "https://", "--http3"),
        (&["https://127.0.0.1:1/", "--http3", "--http2"], "--http2", "--http3"),
        (&["https://127.0.0.1:1/", "--http3", "--proxy", "h:3128"], "--proxy", "--http3"),
        (&["https://127.0.0.1:1/", "--http3", "--unix-socket", "/x"], "--unix-socket", "--http3"),
    ] {
        let ended = run(place.webdyno().arg("run").args(arguments)).with_code(2);
        assert!(ended.stderr.contains(first) && ended.stderr.contains(second), "{}", ended.stderr);
    }
}
