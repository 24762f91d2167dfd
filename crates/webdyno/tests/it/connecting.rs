//! How connections come about, as the command line says it: what works, and what is refused before anything happens.

use crate::support::{Place, Server, run};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn what_cannot_be_observed_is_refused_before_anything_happens() {
    let place = Place::new();
    // Nobody is asked: a server that is not there is not what is told.
    for command in ["diagnose", "tune"] {
        run(place.webdyno().args([command, "http://a/", "--unix-socket", "/nowhere/s.sock"]))
            .with_code(2)
            .assert_error("/nowhere/s.sock has none", "hint:");
        // Where it really goes to decides whose server it is: TEST-NET-1 (RFC 5737) is nobody's.
        run(place.webdyno().args([command, "http://127.0.0.1/", "--connect-to", "::192.0.2.1:81"]))
            .with_code(2)
            .assert_error("192.0.2.1 is not this machine", "hint:");
    }
    assert!(!place.path("webdyno-runs").exists(), "a run that could not begin left a directory");
}

#[test]
fn wrong_values_are_told_with_their_names() {
    let place = Place::new();
    std::fs::write(place.path("empty.pem"), "").unwrap();
    let file = place.path("empty.pem");
    let file = file.to_str().unwrap();
    for (arguments, first, second) in [
        (&["--cacert", "gone.pem"][..], "gone.pem", "no such file"),
        (&["--cacert", file], "there is no certificate in", "hint:"),
        (&["--cert", file], "there is no certificate in", "hint:"),
        (&["--key", file], "--cert", ""),
        (&["--cacert", file, "--insecure"], "--insecure", "cannot be used with"),
        (&["--unix-socket", "a", "--unix-socket", "b"], "--unix-socket", "multiple times"),
        (&["--unix-socket", "a", "--source-ip", "127.0.0.1"], "--source-ip", "cannot be used with"),
        (&["--source-ip", "192.0.2.1"], "192.0.2.1 is no address of this machine", "hint:"),
        (&["--source-ip", "eth0"], "eth0", "address of this machine"),
        (&["--source-ip", "::1"], "127.0.0.1 has no address", "from ::1"),
        (&["--connect-to", "a:b"], "HOST:PORT:TO_HOST:TO_PORT", ""),
        (&["--resolve", "never"], "--resolve", "each"),
        (&["-4", "-6"], "--ipv6", "cannot be used with"),
        (&["-6"], "127.0.0.1 has no IPv6 address", "hint:"),
    ] {
        let ended = run(place.webdyno().args(["run", "http://127.0.0.1:1/"]).args(arguments));
        ended.with_code(2).assert_error(first, second);
    }
    assert!(!place.path("webdyno-runs").exists());
}

/// What this machine lacks for a server that a redirect leads to is no failure of servers.
#[test]
fn a_redirect_to_tls_without_a_trust_store_is_told() {
    let place = Place::new();
    let server = Server::answering(
        "HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    );
    std::fs::write(place.path("empty.pem"), "").unwrap();
    let mut webdyno = place.webdyno();
    webdyno.env("SSL_CERT_FILE", place.path("empty.pem")).env("SSL_CERT_DIR", "");
    webdyno.args(["run", &server.url(), "-n", "1", "--redirects", "1"]);
    run(&mut webdyno).with_code(1).assert_error("certificate", "hint:");
    assert!(!place.path("webdyno-runs").exists());
}

#[test]
fn a_load_goes_where_it_is_told_to_and_says_so() {
    let place = Place::new();
    let server = Server::answering(OK);
    let port = server.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let rule = format!("www.site.example:81:127.0.0.1:{port}");
    let arguments = ["run", "http://www.site.example:81/", "-n", "20", "-c", "2", "--source-ip", "127.0.0.2"];
    let ended = run(place.webdyno().args(arguments).args(["--connect-to", &rule, "--out", "here"]));
    let ended = ended.with_code_in(&[0, 3]);
    assert!(ended.stdout.contains("source address 127.0.0.2"), "{}", ended.stdout);
    assert!(ended.stdout.contains("by 1 rule (--connect-to)"), "{}", ended.stdout);
}
