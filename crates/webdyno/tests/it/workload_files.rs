//! Workload files and the flags of visitors, as users meet them.

use crate::support::{Place, Server, run, shared_turn};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn a_wrong_file_is_told_before_anything_is_sent() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    std::fs::write(
        place.path("d/w.toml"),
        "base = \"http://127.0.0.1:1\"\n[[page]]\nurl = \"/\"\nwieght = 2\n",
    )
    .unwrap();
    for command in [
        &["run", "--workload"][..],
        &["diagnose", "--workload"],
        &["tune", "--workload"],
        &["workload", "check"],
    ] {
        let ended = run(place.webdyno().args(command).arg("d/w.toml")).with_code(2);
        let reported = "webdyno: d/w.toml:4:1: `wieght` is not a key of a page\n   4 | wieght = 2\n     | ^^^^^^\n  hint: did you mean `weight`?\n";
        assert_eq!(ended.stderr, reported, "{command:?}");
    }
    run(place.webdyno().args(["run", "--workload", "missing.toml"]))
        .with_code(2)
        .assert_error("missing.toml", "hint:");
    std::fs::write(place.path("d/w.toml"), b"\xff\xfe").unwrap();
    run(place.webdyno().args(["workload", "check", "d/w.toml"]))
        .with_code(2)
        .assert_error("not UTF-8", "hint:");
    assert!(!place.path("webdyno-runs").exists());
}

#[test]
fn a_right_file_is_told_in_words() {
    let place = Place::new();
    let text = "base = \"http://h\"\nrate = 70\nslo = [\"page: p95<2s\"]\n[[page]]\nurl = \"/\"\n";
    std::fs::write(place.path("w.toml"), text).unwrap();
    let ended = run(place.webdyno().args(["workload", "check", "w.toml"])).with_code(0);
    for part in ["w.toml is right.", "70 pages/s", "page: p95<2s"] {
        assert!(ended.stdout.contains(part), "{}", ended.stdout);
    }
    // An objective of something that the file does not hold is wrong, too.
    std::fs::write(place.path("w.toml"), text.replace("page:", "page shop:")).unwrap();
    run(place.webdyno().args(["workload", "check", "w.toml"])).with_code(2).assert_error("`shop`", "hint:");
}

#[test]
fn pages_of_a_file_are_loaded() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let text = format!(
        "base = \"{}\"\nusers = 4\nduration = \"1s\"\n[[page]]\nname = \"shop\"\nurl = \"/\"\nresources = [\"/a.js\", \"/b.css\"]\n",
        server.url()
    );
    std::fs::write(place.path("w.toml"), text).unwrap();
    let ended = run(place.webdyno().args(["run", "--workload", "w.toml", "-q", "--json", "-"]));
    let report = ended.with_code_in(&[0, 3]).json();
    let pages = report["pages"]["completed"].as_u64().unwrap();
    let requests = report["requests"]["completed"].as_u64().unwrap();
    assert!(pages > 0 && requests >= 3 * pages && report["pages"]["failed"] == 0, "{report:#}");
    assert_eq!(report["workload"]["visits"]["users"], 4);
}

/// Answers requests without bodies, and hands on what was asked.
fn listening() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (heads, observed) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), heads) = (stream, heads.clone()) else { continue };
            std::thread::spawn(move || {
                let mut head = vec![];
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        let _ = heads.send(String::from_utf8_lossy(&head).into_owned());
                        head.clear();
                        let _ = stream.write_all(OK.as_bytes());
                    }
                }
            });
        }
    });
    (url, observed)
}

/// The example of RFC 7617, section 2.
#[test]
fn who_asks_is_told_to_the_server_and_not_to_the_log() {
    let place = Place::new();
    std::fs::write(place.path("secret"), "Aladdin:open sesame\n").unwrap();
    for (flags, value) in [
        (["--auth", "@secret"], "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"),
        (["--bearer", "s3cr3t.t0ken"], "Authorization: Bearer s3cr3t.t0ken\r\n"),
    ] {
        let (url, observed) = listening();
        let out = flags[0].trim_start_matches('-');
        run(place.webdyno().args(["run", &url, "-n", "3", "-c", "1", "-q", "--out", out]).args(flags))
            .with_code_in(&[0, 3]);
        let heads: Vec<String> = observed.try_iter().collect();
        assert!(heads.len() >= 3 && heads.iter().all(|head| head.contains(value)), "{heads:?}");
        for file in std::fs::read_dir(place.path(out)).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            for secret in ["sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ", "s3cr3t"] {
                assert!(!text.contains(secret), "{secret}");
            }
        }
    }
    run(place.webdyno().args(["run", "http://127.0.0.1:1/", "--auth", "nobody"]))
        .with_code(2)
        .assert_error("no colon", "hint:");
}
