//! Access logs that are sent again: at their own times, and by the sessions that are in them.

use super::{Site, counted};
use crate::support::{Place, run, shared_turn};
use std::collections::BTreeMap;

/// What a log has is sent again: as many in each second, of the same mix, on a site whose own log says so; by its sessions, too.
#[test]
fn a_log_is_sent_again() {
    let _turn = shared_turn();
    let place = Place::new();
    std::fs::create_dir_all(place.path("tree")).unwrap();
    for name in ["a.html", "b.png", "robots.txt"] {
        std::fs::write(place.path("tree").join(name), "x").unwrap();
    }
    let Some(site) = Site::start(&place) else { return };
    let line = |second: usize, client: usize, request: &str, status: u16| {
        format!(
            "10.0.0.{client} - - [10/Oct/2026:13:55:{second:02} +0000] \"{request} HTTP/1.1\" {status} 1\n"
        )
    };
    let counts = [20, 90, 0, 30, 160, 5];
    let names = ["/files/a.html", "/files/b.png", "/files/a.html", "/robots.txt"];
    let mut log = line(1, 1, "POST /files/a.html", 200) + &line(2, 1, "GET /no", 404) + "rubbish\n";
    for (second, count) in counts.iter().enumerate() {
        // Eleven clients in each second, other ones in the second half: which, and in which order, is in the query.
        let request = |n: usize| {
            let client = n % 11 + 100 * (second / 3);
            line(second, client, &format!("GET {}?v={client}-{second}{n:03}", names[n % names.len()]), 200)
        };
        log.extend((0..*count).map(request));
    }
    std::fs::write(place.path("old.log"), log).unwrap();
    let base = format!("http://{}", site.nginx.address);
    let made = run(place.webdyno().args(["workload", "from-log", "old.log", "--url", &base, "--speed", "2"]));
    let text = made.with_code(0).stdout;
    for part in [
        "305 requests in the busiest 6 s, 2 times as fast",
        "peak second 320/s",
        "1 request of methods like POST",
        "1 request that failed",
        "1 line that were not understood",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let list = std::fs::read_to_string(place.path("workload.urls")).unwrap();
    assert!(!list.contains('?'), "{list}");
    let load = ["run", "--workload", "workload.toml", "-q", "--json", "-"];
    let json = run(place.webdyno().args(load)).with_code_in(&[0, 3]).json();
    let replay = &json["replay"];
    assert_eq!(
        (replay["planned_requests"].as_u64(), replay["started_requests"].as_u64()),
        (Some(305), Some(305))
    );
    // Two seconds of the log are one of the load.
    assert_eq!(
        (replay["planned_peak_rate"].as_f64(), replay["peak_rate"].as_f64()),
        (Some(165.0), Some(165.0))
    );
    // What falls into another second on a busy machine differs a little.
    assert!(replay["mix_difference"].as_f64().unwrap() < 0.01, "{replay}");
    let sent = counted(&site.served(305));
    let of_list = list.lines().map(|url| url.trim_start_matches(&base).to_owned());
    let mut expected = BTreeMap::new();
    of_list.for_each(|path| *expected.entry(path).or_insert(0) += 1);
    assert_eq!(sent, expected);
    sessions_are_made_again(&place, &site, &base);
}

/// The same log twice as fast, by visitors who do what its clients did.
fn sessions_are_made_again(place: &Place, site: &Site, base: &str) {
    site.forget();
    let words =
        ["workload", "from-log", "old.log", "--url", base, "--sessions", "--keep-query", "--speed", "2"];
    let text = run(place.webdyno().args(words).args(["-o", "sessions.toml"])).with_code(0).stdout;
    assert!(text.contains("22 sessions, 13.9 each, at most 11 active at once"), "{text}");
    let written = std::fs::read_to_string(place.path("sessions.toml")).unwrap();
    assert!(!written.contains("10.0.0."), "{written}");
    run(place.webdyno().args(["workload", "check", "sessions.toml"])).with_code(0);
    let load = ["run", "--workload", "sessions.toml", "-q", "--out", "out", "--json", "-"];
    let json = run(place.webdyno().args(load)).with_code_in(&[0, 3]).json();
    let replay = &json["replay"];
    for (key, planned, tolerance) in [
        ("started_requests", 305.0, 0.0),
        ("planned_requests", 305.0, 0.0),
        ("started_sessions", 22.0, 0.0),
        ("planned_sessions", 22.0, 0.0),
        ("planned_peak_rate", 165.0, 0.0),
        ("peak_rate", 165.0, 0.05),
        ("planned_active_sessions", 11.0, 0.0),
        ("active_sessions", 11.0, 0.1),
        ("mix_difference", 0.0, 0.01),
    ] {
        let value = replay[key].as_f64().unwrap();
        assert!((value - planned).abs() <= tolerance * planned.max(1.0), "{key}: {replay}");
    }
    let text = run(place.webdyno().args(["report", "out"])).with_code(0).stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("22 of 22 sessions, 13.9 requests each (in the log 13.9)"), "{text}");
    // The client's own order, also where its requests are of one second.
    let mut by_client: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for served in site.served(305).iter().filter_map(|served| served.uri.split_once("?v=")) {
        let (client, place) = served.1.split_once('-').unwrap();
        by_client.entry(client.to_owned()).or_default().push(place.parse().unwrap());
    }
    assert_eq!(by_client.values().map(Vec::len).sum::<usize>(), 305);
    assert!(by_client.len() == 22 && by_client.values().all(|places| places.is_sorted()), "{by_client:?}");
    its_own_log_is_read(place, site);
}

/// A format that nothing but the server's configuration tells.
fn its_own_log_is_read(place: &Place, site: &Site) {
    let port = site.port().to_string();
    let logs = ["logs", "nginx/own.log", "--server", "local", "--port", &port, "--json", "-"];
    let json = run(place.webdyno().args(logs)).with_code(0).json();
    assert!(json["requests"].as_u64() >= Some(610) && json["lines"]["not_understood"] == 0, "{json}");
}
