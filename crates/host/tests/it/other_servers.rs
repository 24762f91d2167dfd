//! nginx and lighttpd on real, private instances: what is read of them, with and without a status page.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::ports::free_port;
use crate::programs::Program;
use crate::skip::{needs, skip};
use crate::unprivileged::{UNPRIVILEGED, as_nobody};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use webdyno_host::agent::host::Host;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::collectors::services::lighttpd::Lighttpd;
use webdyno_host::collectors::services::nginx::Nginx;
use webdyno_host::collectors::{Collector, Reading, Target};
use webdyno_host::os::process::wait_until;
use webdyno_host::services::by_name;
use webdyno_model::service::{LogKind, ServiceSnapshot, SettingValue};

/// Whether a program is there; on CI it must be.
fn is_installed(program: &str, package: &str) -> bool {
    let installed = Path::new(program).exists();
    assert!(installed || std::env::var_os("CI").is_none(), "{program} is missing: apt-get install {package}");
    if !installed {
        skip(&format!("{program} is missing; install {package}"));
    }
    installed
}

/// A private server. It ends with the test.
struct Server {
    root: tempfile::TempDir,
    port: u16,
    program: Program,
}

impl Server {
    /// ROOT and PORT in the configuration stand for its directory and its port, CONF in the arguments for the file.
    fn start(program: &str, arguments: &[&str], config: &str) -> Self {
        let (root, port) = (tempfile::tempdir().unwrap(), free_port());
        // Servers that become another user write their logs there.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let place = root.path().to_string_lossy().into_owned();
        let file = format!("{place}/server.conf");
        fs::write(root.path().join("index.html"), "hello").unwrap();
        fs::write(&file, config.replace("ROOT", &place).replace("PORT", &port.to_string())).unwrap();
        let arguments = arguments.iter().map(|word| word.replace("CONF", &file).replace("ROOT", &place));
        let mut command = Command::new(program);
        let server = Self { program: Program::start(command.args(arguments)), root, port };
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(wait_until(Duration::from_secs(20), answers), "{program} does not answer");
        server
    }

    /// As it is discovered by its port.
    fn snapshot(&self) -> ServiceSnapshot {
        ThisMachine.discover(self.port).unwrap()
    }

    fn target(&self) -> Target {
        Target { service: Some(Arc::new(self.snapshot())), ..Target::default() }
    }

    fn request(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Each command of the catalogue shows a number, and the levels the one that was read.
fn check_commands(collector: &mut dyn Collector, reading: &Reading, url: &str, steady: &[&str]) {
    for metric in collector.metrics() {
        let command = metric.reproduce.replace("URL", url);
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let shown: Option<f64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
        assert!(shown.is_some(), "`{command}` shows {output:?}");
        if steady.contains(&metric.name.as_str()) {
            assert_eq!(shown, reading.value(&metric.name), "`{command}`");
        }
    }
}

const NGINX: &str = "user www-data; worker_processes 2;\npid ROOT/pid;\nerror_log ROOT/error.log;\nevents { worker_connections 64; }\n\
    http {\naccess_log ROOT/access.log;\nupstream app { server 127.0.0.1:1; keepalive 4; }\nserver {\n\
    listen 127.0.0.1:PORT backlog=77;\nserver_name site.example;\nroot ROOT;\nSTATUS\n\
    location /app { proxy_pass http://app; limit_rate 10k; }\n}\n}\n";

fn nginx(status: &str) -> Option<Server> {
    let installed = is_installed("/usr/sbin/nginx", "nginx-light");
    let arguments = ["-c", "CONF", "-p", "ROOT", "-g", "daemon off;"];
    installed.then(|| Server::start("/usr/sbin/nginx", &arguments, &NGINX.replace("STATUS", status)))
}

#[test]
fn nginx_is_read_and_tells_its_status() {
    let Some(server) = nginx("location = /status { stub_status; }") else { return };
    let snapshot = server.snapshot();
    assert_eq!((snapshot.service.as_str(), snapshot.port), ("nginx", server.port));
    assert_eq!((snapshot.pid, snapshot.role.as_deref()), (server.program.pid(), Some("web")));
    assert!(snapshot.version.as_deref().is_some_and(|version| version.starts_with("1.")), "{snapshot:?}");
    assert_eq!(snapshot.settings["worker_connections"].configured, Some(SettingValue::Integer(64)));
    assert_eq!(snapshot.settings["worker_connections"].line, Some(4));
    let limit = snapshot.scoped.iter().find(|scoped| scoped.setting == "limit_rate").unwrap();
    assert_eq!(limit.scope, ["server site.example".into(), "location /app".into()]);
    assert_eq!(snapshot.listens, [format!("127.0.0.1:{}", server.port)]);
    let kinds: Vec<_> = snapshot.logs.iter().map(|log| log.kind).collect();
    assert_eq!(kinds, [LogKind::Error, LogKind::Access]);
    let service = by_name("nginx").unwrap();
    assert_eq!(service.configured_backends(&snapshot), ["127.0.0.1:1"]);
    assert!(snapshot.control.as_ref().unwrap().supervised, "who started it in the foreground looks after it");

    let target = server.target();
    let first = Nginx.read(&target);
    assert_eq!((&first.error, first.missing.len()), (&None, 0), "{first:?}");
    for _ in 0..5 {
        assert!(server.request("/index.html").contains("hello"));
    }
    let second = Nginx.read(&target);
    let risen = |name: &str| second.value(name).unwrap() - first.value(name).unwrap();
    assert!(risen("nginx.requests_count") >= 6.0 && risen("nginx.accepts_count") >= 6.0, "{second:?}");
    assert_eq!(second.value("nginx.dropped_count"), Some(0.0));
    assert_eq!(second.value("nginx.connections_waiting_count"), Some(0.0));
    let steady =
        ["nginx.dropped_count", "nginx.connections_waiting_count", "nginx.connections_reading_count"];
    check_commands(&mut Nginx, &second, &format!("http://127.0.0.1:{}/status", server.port), &steady);
}

#[test]
fn nginx_without_a_status_page_tells_how_to_have_one() {
    for (status, why) in
        [("", "no location has"), ("location = /status { stub_status; deny all; }", "answers 403")]
    {
        let Some(server) = nginx(status) else { return };
        let reading = Nginx.read(&server.target());
        assert_eq!(reading.values, vec![], "unknown is not zero");
        assert!(reading.missing[0].why.contains(why), "{reading:?}");
        assert!(reading.missing[0].how_to_enable.contains("127.0.0.1"));
    }
}

const LIGHTTPD: &str = "server.modules = ( \"mod_accesslog\"STATUS )\nserver.document-root = \"ROOT\"\nserver.port = PORT\n\
    server.bind = \"127.0.0.1\"\nserver.errorlog = \"ROOT/error.log\"\naccesslog.filename = \"ROOT/access.log\"\n\
    server.max-connections = 50\n$HTTP[\"url\"] =~ \"^/slow\" {\n  connection.kbytes-per-second = 10\n}\n";

fn lighttpd(status: &str, more: &str) -> Option<Server> {
    let installed = is_installed("/usr/sbin/lighttpd", "lighttpd");
    let config = LIGHTTPD.replace("STATUS", status) + more;
    installed.then(|| Server::start("/usr/sbin/lighttpd", &["-D", "-f", "CONF"], &config))
}

#[test]
fn lighttpd_is_read_and_tells_its_status() {
    let Some(server) = lighttpd(", \"mod_status\"", "status.status-url = \"/st\"\n") else { return };
    let snapshot = server.snapshot();
    assert_eq!((snapshot.service.as_str(), snapshot.pid), ("lighttpd", server.program.pid()));
    assert!(snapshot.version.as_deref().is_some_and(|version| version.starts_with("1.4")), "{snapshot:?}");
    assert_eq!(snapshot.settings["server.max-connections"].configured, Some(SettingValue::Integer(50)));
    assert_eq!(snapshot.scoped[0].scope, ["$HTTP[\"url\"] =~ \"^/slow\"".into()]);
    assert_eq!(snapshot.logs.len(), 2);
    assert_eq!(
        snapshot.config_file.as_deref(),
        Some(&*server.root.path().join("server.conf").to_string_lossy())
    );

    let target = server.target();
    let first = Lighttpd.read(&target);
    assert_eq!((&first.error, first.missing.len()), (&None, 0), "{first:?}");
    for _ in 0..5 {
        assert!(server.request("/index.html").contains("hello"));
    }
    // It adds up once a second.
    let accesses = |reading: &Reading| reading.value("lighttpd.accesses_count").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut second = Lighttpd.read(&target);
    while accesses(&second) - accesses(&first) < 5.0 {
        assert!(Instant::now() < deadline, "{second:?}");
        std::thread::sleep(Duration::from_millis(50));
        second = Lighttpd.read(&target);
    }
    let busy = second.value("lighttpd.connections_count").unwrap();
    assert!(busy >= 1.0, "the request for the page is there: {second:?}");
    let url = format!("http://127.0.0.1:{}/st", server.port);
    check_commands(&mut Lighttpd, &second, &url, &["lighttpd.connections_keepalive_count"]);
}

#[test]
fn lighttpd_without_a_status_page_tells_how_to_have_one() {
    for (status, more, why) in [
        ("", "", "status-url is not set"),
        (", \"mod_status\"", "status.status-url = \"/st\"\nserver.max-worker = 2\n", "one of the processes"),
    ] {
        let Some(server) = lighttpd(status, more) else { return };
        let reading = Lighttpd.read(&server.target());
        assert_eq!(reading.values, vec![]);
        assert!(reading.missing[0].why.contains(why), "{reading:?}");
    }
}

/// As a test: root, with both. As nobody: who listens is told by the configurations alone; of lighttpd the socket is root's, and it is not.
#[test]
fn without_rights_they_are_recognised_at_their_port() {
    if let Ok(order) = std::env::var(UNPRIVILEGED) {
        let (port, service) = order.split_once('|').unwrap();
        let snapshot = ThisMachine.discover(port.parse().unwrap()).unwrap();
        assert_eq!(snapshot.service, service, "{snapshot:?}");
        assert!(
            snapshot.control.is_none()
                && snapshot.warnings.iter().any(|one| one.contains("webdyno may not see")),
            "{snapshot:?}"
        );
        return;
    }
    needs!(rustix::process::geteuid().is_root(), "only root can become another user");
    let servers = [("nginx", nginx("")), ("lighttpd", lighttpd("", "server.username = \"www-data\"\n"))];
    for (name, server) in servers.into_iter().filter_map(|(name, server)| Some((name, server?))) {
        as_nobody(
            "other_servers::without_rights_they_are_recognised_at_their_port",
            &format!("{}|{name}", server.port),
        );
    }
}
