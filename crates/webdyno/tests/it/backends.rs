//! What stands behind a site, as its diagnosis meets it: a pool of PHP-FPM that is too small, Apache itself, and two limits
//! at once, which one more load tells apart.

use crate::disturbance::measured;
use crate::programs::Program;
use crate::support::{Apache, Place, Server, run, shared_turn, skip, turn, wait_until};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use webdyno_model::purpose::Purpose;
use webdyno_model::topology::Topology;
use webdyno_session::recording::Recording;

const FPM: &str = "/usr/sbin/php-fpm8.2";
const MODULES: &str = "/usr/lib/apache2/modules";
/// Processes of the pool, and how long each is held by a page.
const CHILDREN: i64 = 2;
const PAGE: &str = "<?php usleep(100000); echo 'ok';";
/// Answers of so many bytes take more than a second, by the limit on their rate.
const PICTURE_BYTES: usize = 600_000;
const PICTURE_KIB_PER_S: u32 = 200;

/// A site with pages of PHP, pictures at a given pace, and a way that leads back to itself.
struct Site {
    apache: Apache,
    fpm: Program,
}

impl Site {
    /// `None` where PHP-FPM is not there, or cannot be run.
    fn start(place: &Place) -> Option<Self> {
        if !Path::new(FPM).exists() || !rustix::process::geteuid().is_root() {
            skip("PHP-FPM is missing, or needs root");
            return None;
        }
        let at = |name: &str| place.path(name).display().to_string();
        std::fs::create_dir(place.path("pages")).unwrap();
        std::fs::write(place.path("pages/page.php"), PAGE).unwrap();
        let pool = format!(
            "[global]\nerror_log = {}\n[www]\nuser = www-data\ngroup = www-data\nlisten = {}\nlisten.mode = 0666\n\
             pm = static\npm.max_children = {CHILDREN}\npm.status_path = /pool\n",
            at("fpm.log"),
            at("www.sock")
        );
        std::fs::write(place.path("fpm.conf"), pool).unwrap();
        let fpm = Program::start(Command::new(FPM).args(["-F", "-y", &at("fpm.conf")]));
        assert!(wait_until(Duration::from_secs(30), || place.path("www.sock").exists()));
        let apache = Apache::files(&place.path("server"));
        let loads: String = ["env", "proxy", "proxy_http", "proxy_fcgi", "ratelimit"]
            .map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"))
            .concat();
        let site = format!(
            "{loads}ProxyPassMatch ^/(.*\\.php)$ \"unix:{}|fcgi://localhost{}/$1\"\n\
             ProxyPass /self/ http://127.0.0.1:{}/\n\
             <Location /picture>\nSetOutputFilter RATE_LIMIT\nSetEnv rate-limit {PICTURE_KIB_PER_S}\n</Location>\n",
            at("www.sock"),
            at("pages"),
            apache.files.port
        );
        std::fs::write(apache.files.root.join("conf-enabled/site.conf"), site).unwrap();
        std::fs::write(apache.files.root.join("htdocs/picture"), vec![b'x'; PICTURE_BYTES]).unwrap();
        Some(Self { apache: apache.started(), fpm })
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.apache.files.port)
    }

    /// The pool, as a recording tells of it.
    fn has_pool(&self, observed: &Topology) -> bool {
        let pool = observed.backends.iter().find(|backend| backend.service == "php_fpm");
        let limits = pool.into_iter().flat_map(|pool| &pool.scoped);
        let mut limits = limits.filter(|one| one.setting == "pm.max_children");
        pool.is_some_and(|pool| pool.pid == self.fpm.pid())
            && limits.any(|limit| limit.value == CHILDREN.to_string())
    }
}

fn recording(place: &Place) -> Recording {
    Recording::read(&place.path("seen")).unwrap()
}

/// The rules see how large the pool may be, which only its configuration says, and so does whoever diagnoses the recording.
#[test]
fn a_pool_behind_a_loaded_site_is_in_the_recording_with_its_limit() {
    let _turn = shared_turn();
    measured(|place| {
        let Some(site) = Site::start(place) else { return };
        let load = ["-c", "16", "-d", "6s", "--out", "seen", "-q", "--json", "-"];
        let ended = run(place.webdyno().args(["diagnose", &site.url("/page.php")]).args(load)).with_code(0);
        let json = ended.json();
        assert_eq!(json["bottleneck"], "php-fpm-workers-exhausted", "{json:#}");
        let remedy = &json["findings"][0]["remedies"][0];
        assert_eq!(
            (&remedy["setting"], &remedy["from"]),
            (&"pm.max_children".into(), &CHILDREN.into()),
            "{remedy:#}"
        );
        let recording = recording(place);
        let (_, observed) = recording.topologies.last().unwrap();
        assert!(site.has_pool(observed), "{observed:#?}");
        assert!(observed.front.is_none(), "the service itself is told apart");
        let measurement = recording.last_measurement().unwrap();
        assert_eq!(measurement.topology.unwrap().front.unwrap().service, "apache");
        assert_eq!(
            run(place.webdyno().args(["diagnose", "--json", "-", "--from", "seen"])).stdout,
            ended.stdout
        );
    });
}

/// A pool that is too small is made larger, the gain is proven, and the rollback makes it small again.
#[test]
fn a_pool_that_limits_is_tuned_and_rolled_back() {
    let _turn = turn();
    measured(|place| {
        let Some(site) = Site::start(place) else { return };
        let pool = std::fs::read(place.path("fpm.conf")).unwrap();
        let load = ["-c", "16", "-d", "6s", "--yes", "--out", "seen", "-q", "--json", "-"];
        let ended = run(place.webdyno().args(["tune", &site.url("/page.php"), "--apply"]).args(load));
        let json = ended.with_code_in(&[0, 3]).json();
        let round = &json["rounds"][0];
        assert_eq!(
            (&round["finding"], &round["kept"]),
            (&"php-fpm-workers-exhausted".into(), &true.into()),
            "{json:#}"
        );
        let ratio = round["ratio"].as_f64().unwrap();
        assert!(ratio > 3.0, "2 processes became more: {json:#}");
        assert_ne!(std::fs::read(place.path("fpm.conf")).unwrap(), pool);
        run(place.webdyno().arg("rollback")).with_code(0);
        assert_eq!(std::fs::read(place.path("fpm.conf")).unwrap(), pool);
    });
}

/// Nothing of it is configured where it could be read from outside: only while somebody asks is there a connection.
#[test]
fn a_way_that_leads_back_to_the_server_is_seen_under_its_traffic() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let Some(site) = Site::start(&place) else { return };
    let port = site.apache.files.port;
    let mut users =
        place.child(&["run", &site.url("/self/app"), "-c", "4", "-d", "60s", "--out", "users", "-q"]);
    let watch =
        ["diagnose", "--for", "8s", "--port", &port.to_string(), "--out", "seen", "-q", "--json", "-"];
    let ended = run(place.webdyno().args(watch)).with_code(0);
    crate::support::signal(users.id(), rustix::process::Signal::INT);
    users.wait().unwrap();
    let recording = recording(&place);
    let pid = site.apache.pid().unwrap();
    let leads_back = |observed: &Topology| {
        let by = format!("127.0.0.1:{port}");
        observed.links.iter().any(|link| link.from_pid == pid && link.to_pid == Some(pid) && link.by == by)
    };
    let observed: Vec<_> = recording.topologies.iter().map(|(_, observed)| &observed.links).collect();
    assert!(recording.topologies.iter().any(|(_, observed)| leads_back(observed)), "{observed:#?}");
    assert_eq!(run(place.webdyno().args(["diagnose", "--json", "-", "--from", "seen"])).stdout, ended.stdout);
}

/// Pages wait for the pool while pictures come at the pace of a limit: which of them costs more is told by one more load.
#[test]
fn two_explanations_are_told_apart_by_another_load_and_the_recording_says_the_same() {
    let _turn = turn();
    let place = Place::shielded();
    let Some(site) = Site::start(&place) else { return };
    let list = [site.url("/page.php"), site.url("/picture")];
    std::fs::write(place.path("urls"), format!("{}#weight=5\n{}#weight=2\n", list[0], list[1])).unwrap();
    let load = ["--urls", "urls", "-c", "32", "-d", "8s", "-q", "--json", "-", "--out"];
    // Other work on the machine is a third explanation at times.
    let mut tried = vec![];
    let diagnosed = (0..3).map(|attempt| format!("seen{attempt}")).find_map(|observed| {
        let ended = run(place.webdyno().args(["diagnose", "--disambiguate"]).args(load).arg(&observed))
            .with_code_in(&[0, 3]);
        let json = ended.json();
        let is_made = json["experiments"].is_array();
        tried.push(json["findings"].clone());
        is_made.then_some((observed, ended, json))
    });
    let (observed, ended, json) = diagnosed.unwrap_or_else(|| panic!("{tried:#?}"));
    let experiments = json["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 1, "{experiments:#?}");
    assert_eq!(experiments[0]["what"], Purpose::HalfLoad.name());
    let mut between: Vec<&str> =
        experiments[0]["between"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    between.sort_unstable();
    assert_eq!(between, ["php-fpm-workers-exhausted", "rate-limited"]);
    assert!(experiments[0]["figure"]["with"].is_number(), "{:#}", experiments[0]);
    assert!(between.contains(&json["bottleneck"].as_str().unwrap()), "{json:#}");

    // A load more, of fifteen seconds at the most, however long the first one was.
    let recording = Recording::read(&place.path(&observed)).unwrap();
    let made = recording.experiments();
    assert_eq!(made.len(), 1);
    let (what, half) = &made[0];
    assert_eq!(*what, Purpose::HalfLoad);
    assert_eq!(half.workload.as_ref().unwrap().connections, 16);
    let length_s = half.intervals.iter().map(|second| second.length_us as f64 / 1e6).sum::<f64>();
    assert!(length_s <= 16.0, "{length_s} s");

    let again = run(place.webdyno().args(["diagnose", "--json", "-", "--from", &observed])).with_code(0);
    assert_eq!(again.stdout, ended.stdout);
    let text = run(place.webdyno().args(["diagnose", "-v", "--from", &observed])).with_code(0).stdout;
    assert!(text.contains("At half the load"), "{text}");
    assert_eq!(text, run(place.webdyno().args(["report", "-v", &observed])).with_code(0).stdout);
}

#[test]
fn experiments_are_refused_where_no_load_is_made() {
    let place = Place::new();
    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let port = server.port.to_string();
    for arguments in
        [&["--from", "seen"][..], &["--for", "1s", "--port", &port], &["--for", "1s", "--url", &server.url()]]
    {
        run(place.webdyno().args(["diagnose", "--disambiguate"]).args(arguments))
            .with_code(2)
            .assert_error("--disambiguate makes loads, and --for and --from make none", "give a URL instead");
    }
    assert!(!place.path("webdyno-runs").exists());
}
