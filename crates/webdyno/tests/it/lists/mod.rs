//! Lists of URLs and workloads of trees, on a real nginx whose log says what was asked for.

mod from_log;

use crate::nginx::Nginx;
use crate::support::{Place, Server, answers_within, run, shared_turn, signal, wait_until};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Long enough for whatever else keeps the machine busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// An nginx that serves `place/tree`, and writes down what it sent.
struct Site {
    nginx: Nginx,
    log: PathBuf,
}

/// A line of its log.
#[derive(Debug)]
struct Served {
    status: u16,
    bytes: u64,
    body_bytes: u64,
    uri: String,
}

impl Site {
    /// `None` where nginx is not installed.
    fn start(place: &Place) -> Option<Self> {
        let (folder, tree) = (place.path("nginx"), place.path("tree"));
        let http = |address| {
            format!(
                "keepalive_requests 1000000;\n\
                 log_format plain '$status $bytes_sent $body_bytes_sent $request_uri'; access_log {0}/log plain;\n\
                 log_format own '$request_time|$status|$remote_addr|$msec|\"$request\"'; access_log {0}/own.log own;\n\
                 server {{ listen {address}; location /files/ {{ alias {1}/; }} location = /robots.txt {{ alias {1}/robots.txt; }} }}",
                folder.display(),
                tree.display()
            )
        };
        let site = Self { nginx: Nginx::start(&folder, http)?, log: folder.join("log") };
        assert!(answers_within(site.port(), PATIENCE), "nginx does not answer");
        let is_logged = || std::fs::metadata(&site.log).is_ok_and(|log| log.len() > 0);
        assert!(wait_until(PATIENCE, is_logged), "nginx logs nothing");
        site.forget();
        Some(site)
    }

    fn port(&self) -> u16 {
        self.nginx.address.port()
    }

    fn base(&self) -> String {
        format!("http://{}/files", self.nginx.address)
    }

    /// Begins its log anew. It writes a line when a request has ended: the last one may still be on its way.
    fn forget(&self) {
        std::thread::sleep(Duration::from_millis(50));
        std::fs::OpenOptions::new().write(true).open(&self.log).unwrap().set_len(0).unwrap();
    }

    /// What it served: so many requests, and the one that is sent before a load.
    fn served(&self, count: usize) -> Vec<Served> {
        let read = || std::fs::read_to_string(&self.log).unwrap();
        let complete = || read().matches('\n').count() > count;
        assert!(
            wait_until(PATIENCE, complete),
            "{} of {count} requests in the log",
            read().matches('\n').count()
        );
        let line = |line: &str| {
            let mut words = line.trim_start_matches('\0').splitn(4, ' ');
            let mut number = || words.next().unwrap().parse::<u64>().unwrap();
            let (status, bytes, body_bytes) = (number() as u16, number(), number());
            Served { status, bytes, body_bytes, uri: words.next().unwrap().to_owned() }
        };
        let mut served: Vec<Served> = read().lines().map(line).collect();
        assert_eq!(served.len(), count + 1);
        served.remove(0);
        self.forget();
        served
    }
}

fn counted(served: &[Served]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    served.iter().for_each(|served| *counts.entry(served.uri.clone()).or_default() += 1);
    counts
}

/// Every regular file below, with its size.
fn files(root: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                found.insert(path, metadata.len());
            }
        }
    }
    found
}

/// Makes the tree, and gives what is in it.
fn make_tree(place: &Place, more: &[&str]) -> BTreeMap<PathBuf, u64> {
    let tree = ["workload", "make-tree", "tree", "--total", "300k", "--mean-size", "1.5k"];
    run(place.webdyno().args(tree).args(more)).with_code(0);
    files(&place.path("tree"))
}

#[test]
fn every_file_of_a_tree_has_its_turn() {
    let _turn = shared_turn();
    let place = Place::new();
    make_tree(&place, &["--files-per-directory", "70", "--content", "text"]);
    // Names that mean something else to a URL, a list, or a shell.
    for name in ["a b.html", "50%.html", "was?.html", "#1", "ü", "${HOME}", "x;y&z", "%2e%2e", "'\"`"] {
        std::fs::write(place.path("tree").join(name), name).unwrap();
    }
    std::fs::write(place.path("tree").join(std::ffi::OsStr::from_bytes(b"\xE9")), "latin").unwrap();
    std::fs::write(place.path("tree/.hidden"), "no").unwrap();
    std::fs::create_dir(place.path("tree/.git")).unwrap();
    std::fs::write(place.path("tree/.git/config"), "no").unwrap();
    std::os::unix::fs::symlink("nowhere", place.path("tree/broken")).unwrap();
    std::os::unix::fs::symlink("..", place.path("tree/0001/circle")).unwrap();
    let Some(site) = Site::start(&place) else { return };
    let reported =
        run(place.webdyno().args(["workload", "from-tree", "tree", "--url", &site.base(), "-o", "mix.toml"]));
    let reported = reported.with_code(0).stdout;
    assert!(reported.contains("210 files") && reported.contains("2 hidden"), "{reported}");
    assert!(reported.contains("2 that cannot be read"), "{reported}");
    let is_hidden = |path: &Path| path.ends_with(".hidden") || path.ends_with(".git/config");
    let all = files(&place.path("tree"));
    let stored: u64 = all.iter().filter(|(path, _)| !is_hidden(path)).map(|(_, size)| size).sum();
    for threads in ["1", "2"] {
        let load =
            ["run", "--workload", "mix.toml", "-n", "630", "-c", "4", "-t", threads, "-q", "--json", "-"];
        let json = run(place.webdyno().args(load)).with_code_in(&[0, 3]).json();
        let served = site.served(630);
        let counts = counted(&served);
        assert!(counts.len() == 210 && counts.values().all(|&count| count == 3), "{counts:?}");
        assert!(served.iter().all(|served| served.status == 200), "{served:?}");
        assert_eq!(served.iter().map(|served| served.body_bytes).sum::<u64>(), 3 * stored);
        assert_eq!(json["bytes"]["received"], served.iter().map(|served| served.bytes).sum::<u64>());
        assert_eq!(json["status"]["200"], 630);
    }
}

#[test]
fn a_law_of_popularity_is_followed_on_any_number_of_threads() {
    let _turn = shared_turn();
    let place = Place::new();
    make_tree(&place, &["--size-distribution", "fixed"]);
    let Some(site) = Site::start(&place) else { return };
    let make =
        ["workload", "from-tree", "tree", "--url", &site.base(), "--size-distribution", "-o", "mix.toml"];
    let reported =
        run(place.webdyno().args(make).args(["--popularity", "zipf=0.9", "--seed", "5"])).with_code(0).stdout;
    assert!(reported.contains("80%  ") && reported.contains("of each request"), "{reported}");
    // What the list says is Zipf's law.
    let list = std::fs::read_to_string(place.path("mix.urls")).unwrap();
    let weight = |line: &str| {
        let (url, weight) = line.split_once("#weight=").unwrap();
        (url["http://".len()..].split_once('/').unwrap().1.to_owned(), weight.parse::<f64>().unwrap())
    };
    let weights: Vec<(String, f64)> = list.lines().map(weight).collect();
    let mut sorted: Vec<f64> = weights.iter().map(|(_, weight)| *weight).collect();
    sorted.sort_by(|one, other| other.total_cmp(one));
    for (index, weight) in sorted.iter().enumerate() {
        let expected = (200.0 / (index + 1) as f64).powf(0.9);
        assert!((weight / expected - 1.0).abs() < 1e-4, "{index}: {weight}");
    }
    const REQUESTS: usize = 6000;
    let load = |threads: &str| {
        let requests = REQUESTS.to_string();
        let load = ["run", "--workload", "mix.toml", "-n", &requests, "-c", "4", "-t", threads, "-q"];
        run(place.webdyno().args(load)).with_code_in(&[0, 3]);
        counted(&site.served(REQUESTS))
    };
    let counts = load("1");
    // The same seed asks for the same files.
    assert_eq!(counts, load("2"));
    let total: f64 = sorted.iter().sum();
    let squares = weights.iter().map(|(path, weight)| {
        let expected = weight / total * REQUESTS as f64;
        let count = counts.get(&format!("/{path}")).copied().unwrap_or(0) as f64;
        (count - expected).powi(2) / expected
    });
    // Of 199 degrees of freedom: one in a thousand lies beyond 267.5. The seed is fixed, so it is always the same.
    let chi_square: f64 = squares.sum();
    assert!((140.0..267.5).contains(&chi_square), "{chi_square}");
}

#[test]
fn lists_are_loaded_as_siege_loads_them() {
    let _turn = shared_turn();
    let place = Place::new();
    let server = Server::answering(OK);
    let list =
        format!("# a list\nHOST={}\n${{HOST}}/a\n$(HOST)/b POST x=1\n\n", server.url().trim_end_matches('/'));
    std::fs::write(place.path("urls.txt"), &list).unwrap();
    run(place.webdyno().args(["workload", "from-urls", "urls.txt", "-o", "of-list.toml"])).with_code(0);
    for source in [
        &["--urls", "urls.txt"][..],
        &["--urls", "urls.txt", "--random"],
        &["--urls", "-"],
        &["--workload", "of-list.toml"],
    ] {
        let load = ["-n", "100", "-c", "2", "-q", "--out", "out", "--json", "-"];
        let mut command = place.webdyno();
        let json = run(command.arg("run").args(source).args(load).write_stdin(list.clone()))
            .with_code_in(&[0, 3])
            .json();
        assert_eq!(json["requests"]["completed"], 100, "{source:?}");
        let names: Vec<_> = json["requests_by_name"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["/a", "POST /b"], "{source:?}");
        assert_eq!(json["workload"]["list"]["count"], 2);
        let text = run(place.webdyno().args(["report", "out"])).with_code(0).stdout;
        assert!(text.contains("2 requests of "), "{text}");
        std::fs::remove_dir_all(place.path("out")).unwrap();
    }
}

/// What a browser recorded is sent again by users of their own.
#[test]
fn a_recording_of_a_browser_is_loaded() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Server::answering(OK));
    let entry = |path: &str, mime: &str| {
        let url = format!("{}{path}", server.url().trim_end_matches('/'));
        serde_json::json!({"request": {"method": "GET", "url": url},
            "response": {"status": 200, "content": {"mimeType": mime}}})
    };
    let entries = [entry("/", "text/html"), entry("/a.css", "text/css"), entry("/api", "application/json")];
    let har = serde_json::json!({"log": {"entries": entries}}).to_string();
    std::fs::write(place.path("a.har"), har).unwrap();
    run(place.webdyno().args(["workload", "from-har", "a.har", "--users", "2"])).with_code(0);
    let load = ["run", "--workload", "workload.toml", "-d", "1s", "-q", "--json", "-"];
    let json = run(place.webdyno().args(load)).with_code_in(&[0, 3]).json();
    let names: Vec<_> = json["requests_by_name"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["/", "/a.css", "/api"]);
    // The file is there now, and is not written over.
    run(place.webdyno().args(["workload", "from-har", "a.har"]))
        .with_code(2)
        .assert_error("exists already", "--output");
}

/// The pages of a site are found along its links, as far as robots.txt allows.
#[test]
fn the_pages_of_a_site_are_loaded() {
    let _turn = shared_turn();
    let place = Place::new();
    let tree = place.path("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for (name, text) in [
        ("index.html", "<a href=a.html>a</a><a href=/files/private.html>no</a><a href=gone.html>gone</a>"),
        ("a.html", "<a href=/files/index.html>home</a><a href=file.bin>file</a><img src=i.png>"),
        ("private.html", "no"),
        ("file.bin", "0"),
        ("i.png", "0"),
        ("robots.txt", "User-agent: webdyno\nDisallow: /files/private"),
    ] {
        std::fs::write(tree.join(name), text).unwrap();
    }
    let Some(site) = Site::start(&place) else { return };
    let url = format!("{}/index.html", site.base());
    let walk = ["workload", "from-site", &url, "--rate", "100", "--users", "2"];
    let text = run(place.webdyno().args(walk)).with_code(0).stdout;
    for part in ["2 pages and 1 other file ", "1 URL kept out by robots.txt", "1 URL answered with an error"]
    {
        assert!(text.contains(part), "{text}");
    }
    let load = ["run", "--workload", "workload.toml", "-d", "1s", "-q", "--json", "-"];
    let json = run(place.webdyno().args(load)).with_code_in(&[0, 3]).json();
    let names: Vec<_> = json["requests_by_name"].as_object().unwrap().keys().cloned().collect();
    assert!(
        ["/files/index.html", "/files/a.html", "/files/file.bin"]
            .iter()
            .all(|name| names.contains(&(*name).to_owned())),
        "{names:?}"
    );
    run(place.webdyno().args(walk)).with_code(2).assert_error("exists already", "--output");
}

/// Commands that are wrong, with a part of what they say and of the hint.
fn check_wrong(place: &Place, wrong: &[(&str, &str, &str)]) {
    for (command, message, hint) in wrong {
        let ended = run(place.webdyno().args(command.split(' '))).with_code(2);
        assert!(ended.stderr.lines().count() < 12, "{}", ended.stderr);
        ended.assert_error(message, hint);
    }
}

#[test]
fn wrong_lists_are_told_before_anything_is_sent() {
    let _turn = shared_turn();
    let place = Place::new();
    for (name, text) in [
        ("good.txt", "127.0.0.1:1/a"),
        ("weights.txt", "127.0.0.1:1/a#weight=2"),
        ("bad.txt", "h/a\nh/${X}\n"),
        ("empty.txt", "# nothing\n"),
    ] {
        std::fs::write(place.path(name), text).unwrap();
    }
    std::fs::write(place.path("many.txt"), "ftp://h/\n".repeat(100_000)).unwrap();
    std::fs::create_dir(place.path("full")).unwrap();
    let wrong = [
        ("run --urls none.txt", "cannot read none.txt: no such file", "one URL a line"),
        ("run --urls full", "cannot read full: it is a directory", "one URL a line"),
        ("run --urls empty.txt", "empty.txt holds no URL", "one a line"),
        ("run --urls bad.txt", "bad.txt:2:3: `X` has no value", "X=VALUE"),
        ("run --urls many.txt", "and 99995 more", "only http and https"),
        ("run --urls good.txt http://h/", "cannot be used with", "--help"),
        ("run --urls good.txt -b x", "say themselves what they send", "POST"),
        ("run --urls weights.txt --random", "says by weights", "leave --random out"),
        ("run http://127.0.0.1:1/ --random", "draws from a list", "--urls"),
        ("workload from-urls bad.txt", "bad.txt:2:3", "X=VALUE"),
        ("workload from-har none.har", "cannot read none.har", ""),
        ("workload from-har bad.txt", "bad.txt:1:", "Save all as HAR"),
        (
            "workload from-log good.txt --url http://h",
            "good.txt has no request to send again: left out: 1 line",
            "--format",
        ),
        (
            "workload from-log good.txt --url h",
            "--url wants scheme, host and port, not `h`",
            "http://127.0.0.1:8080",
        ),
        ("workload from-log - --url http://h", "stdin can be read once", "file first"),
        ("workload from-log good.txt --url http://h --length 7h", "from 1 s to 6 h", "--speed"),
        ("workload from-site ftp://h/", "`ftp://h/` is not the URL of a site", "http://"),
        ("workload from-site http://u:p@h/", "no user and password", "from-har"),
        ("workload from-urls -", "stdin has no name", "file first"),
        ("workload from-urls weights.txt --random", "says by weights", "leave --random out"),
    ];
    check_wrong(&place, &wrong);
}

#[test]
fn wrong_trees_are_told_before_anything_is_written() {
    let _turn = shared_turn();
    let place = Place::new();
    std::fs::create_dir_all(place.path("full/sub")).unwrap();
    std::fs::create_dir(place.path("empty")).unwrap();
    std::fs::write(place.path("file.txt"), "").unwrap();
    std::fs::write(place.path("there.toml"), "").unwrap();
    std::fs::write(place.path("full/sub/file"), "x").unwrap();
    let wrong = [
        ("make-tree full --total 1M --mean-size 1k", "full is not empty", "new or empty"),
        ("make-tree file.txt --total 1M --mean-size 1k", "file.txt", "new or empty"),
        ("make-tree new --total 10k --mean-size 6k", "no whole number of files", "12288"),
        ("make-tree new --total 1x --mean-size 6k", "64M", "--help"),
        (
            "make-tree new --total 1M --mean-size 1k --size-distribution fixed --sigma 1",
            "--sigma is for",
            "leave it out",
        ),
        ("from-tree none --url http://h", "cannot look into none", "that the server serves"),
        ("from-tree empty --url http://h", "there is no file in empty", "--hidden"),
        ("from-tree full --url http://h -o there.toml", "there.toml exists already", "--output"),
        ("from-tree full --url localhost:80", "does not say http://", "http://localhost:80"),
        ("from-tree full --url http://h/?a", "query or a fragment", "--url"),
        ("from-tree full --url http://h --popularity zipf", "zipf=0.8", "--help"),
    ];
    let wrong = wrong.map(|(command, message, hint)| (format!("workload {command}"), message, hint));
    let wrong: Vec<_> =
        wrong.iter().map(|(command, message, hint)| (command.as_str(), *message, *hint)).collect();
    check_wrong(&place, &wrong);
    let too_large = ["workload", "make-tree", "large", "--total", "900T", "--mean-size", "1G"];
    run(place.webdyno().args(too_large)).with_code(1).assert_error("has room for", "df -h");
    // What was there is there, and nothing else.
    assert_eq!(std::fs::read(place.path("there.toml")).unwrap(), b"");
    assert_eq!(files(&place.path("full")).len(), 1);
    assert!(!place.path("there.urls").exists() && !place.path("workload.toml").exists());
    assert!(!place.path("large").exists() && !place.path("new").exists());
}

#[test]
fn trees_repeat_by_their_seed_and_an_interrupted_one_is_told() {
    let _turn = shared_turn();
    let place = Place::new();
    let make = |name: &str, more: &[&str]| {
        let tree = ["workload", "make-tree", name, "--total", "200k", "--mean-size", "2k", "--seed"];
        run(place.webdyno().args(tree).args(more)).with_code(0);
        let root = place.path(name);
        let content =
            |path: &PathBuf| (path.strip_prefix(&root).unwrap().to_owned(), std::fs::read(path).unwrap());
        files(&root).keys().map(content).collect::<BTreeMap<_, _>>()
    };
    let one = make("one", &["7"]);
    assert_eq!(one.len(), 100);
    assert_eq!(one.values().map(Vec::len).sum::<usize>(), 200 << 10);
    assert!(one == make("two", &["7"]) && one != make("three", &["8"]));

    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("webdyno"));
    let large = ["workload", "make-tree", "large", "--total", "64M", "--mean-size", "512"];
    let child =
        command.args(large).current_dir(place.path("")).stderr(std::process::Stdio::piped()).spawn().unwrap();
    assert!(wait_until(PATIENCE, || place.path("large/0000").exists()));
    signal(child.id(), rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{reported}");
    let there = files(&place.path("large")).len();
    assert!(
        reported.contains(&format!("interrupted: {there} of 131072 files are in large")),
        "{there}: {reported}"
    );
    assert!(reported.contains("rm -r large"), "{reported}");
}
