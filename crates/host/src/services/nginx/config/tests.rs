//! Configurations of nginx as files.

use super::*;
use crate::visibility::process_view::Root;
use proptest::prelude::*;

/// Files in a folder, which DIR stands for.
fn folder_with(files: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_string_lossy().into_owned();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("DIR", &place)).unwrap();
    }
    (folder, place)
}

/// Reads files of a folder; DIR stands for it.
fn read_files(files: &[(&str, &str)]) -> (String, Config) {
    let (_folder, place) = folder_with(files);
    let config = read(&Root::ours(), &format!("{place}/nginx.conf"));
    (place, config)
}

const MAIN: &str = "worker_processes 4;\nerror_log /var/log/e.log warn;\nevents { worker_connections 10; }\nhttp {\n\
    log_format short '$status ' \"$request\";\naccess_log logs/a.log short;\naccess_log logs/b.log;\naccess_log logs/c.log combined buffer=32k;\nkeepalive_timeout 5s;\n\
    upstream app { server 10.0.0.1:8080 weight=2; server unix:/run/a.sock; keepalive 8; }\ninclude sites/*.conf;\n}\n";
const SITE: &str = "server {\n  listen 8080 backlog=99;\n  server_name example.org;\n  gzip on;\n  include DIR/php.conf;\n\
    location /app { proxy_pass http://app/x; limit_rate 50k; }\n\
    location /api { proxy_pass http://user:s3cret@127.0.0.1/t0ken; }\n\
    location = /status { stub_status; }\n  access_log off;\n}\n";
const PHP: &str = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; fastcgi_param PASS s3cret; }\n";

#[test]
fn values_have_their_place() {
    let (place, config) = read_files(&[("nginx.conf", MAIN), ("sites/a.conf", SITE), ("php.conf", PHP)]);
    assert_eq!(config.problems, Vec::<String>::new());
    let settings = config.settings();
    let workers = &settings["worker_processes"];
    assert_eq!((&workers.configured, workers.line), (&Some(SettingValue::Integer(4)), Some(1)));
    assert_eq!(settings["worker_connections"].configured, Some(SettingValue::Integer(10)));
    assert_eq!(settings["gzip"].configured, None, "it holds in one server only");
    assert_eq!(settings["send_timeout"].default, Some(SettingValue::Text("60s".into())));
    let (scoped, complete) = config.scoped();
    let shown = |setting: &str| {
        let found = scoped.iter().find(|scoped| scoped.setting == setting).unwrap();
        (found.value.clone(), found.parts().join(", "), found.file.clone().unwrap(), found.line.unwrap())
    };
    assert!(complete);
    let site = format!("{place}/sites/a.conf");
    assert_eq!(shown("gzip"), ("on".into(), "server example.org".into(), site.clone(), 4));
    assert_eq!(shown("limit_rate"), ("50k".into(), "server example.org, location /app".into(), site, 6));
    assert_eq!(shown("fastcgi_pass").2, format!("{place}/php.conf"));
    assert_eq!(shown("keepalive").1, "upstream app");
    let all = format!("{scoped:?} {:?}", config.backends());
    assert!(!all.contains("s3cret") && !all.contains("t0ken"), "{all}");
}

#[test]
fn the_kinds_of_keys_are_those_of_the_certificates_that_servers_name() {
    let certificates = [
        ("tls/rsa.crt", include_str!("../../common/fixtures/rsa-2048.pem")),
        ("tls/ec.crt", include_str!("../../common/fixtures/ecdsa-p256.pem")),
        ("tls/empty.crt", ""),
        ("tls.inc", "ssl_certificate tls/rsa.crt;"),
    ];
    for (text, expected, problem) in [
        (
            "http { ssl_certificate tls/rsa.crt; server { listen 443 ssl; } }",
            &["ssl_certificate key RSA 2048 in  at 1"][..],
            None,
        ),
        (
            "http {\nserver { server_name a; ssl_certificate DIR/tls/rsa.crt;\nssl_certificate 'tls/ec.crt'; } }",
            &[
                "ssl_certificate key RSA 2048 in server a at 2",
                "ssl_certificate key ECDSA P-256 in server a at 3",
            ],
            None,
        ),
        (
            "http { server { server_name a; include tls.inc; } server { server_name b; include tls.inc; } }",
            &[
                "ssl_certificate key RSA 2048 in server a at 1",
                "ssl_certificate key RSA 2048 in server b at 1",
            ],
            None,
        ),
        // Which one it is decides each handshake.
        ("http { ssl_certificate /$ssl_server_name.crt; server { ssl_certificate data:$cert; } }", &[], None),
        // Of connections that are no requests.
        ("stream { ssl_certificate tls/rsa.crt; server { ssl_certificate tls/rsa.crt; } }", &[], None),
        ("http { server { ssl_certificate tls/empty.crt; } }", &[], None),
        (
            "http { ssl_certificate tls/ec.crt; server { ssl_certificate x.crt; } server { ssl_certificate x.crt; } }",
            &["ssl_certificate key ECDSA P-256 in  at 1"],
            Some("/x.crt: no such file or directory"),
        ),
    ] {
        let files = [&[("nginx.conf", text)][..], &certificates].concat();
        let (_folder, place) = folder_with(&files);
        let config = read(&Root::ours(), &format!("{place}/nginx.conf"));
        let (keys, problems) = config.certificate_keys(&Root::ours());
        let shown = keys.iter().map(|key| {
            let parts = key.parts().join(", ");
            format!("{} {} in {parts} at {}", key.setting, key.value, key.line.unwrap())
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(problems.len(), usize::from(problem.is_some()), "{problems:?}");
        assert!(problems.iter().zip(problem).all(|(shown, part)| shown.ends_with(part)), "{problems:?}");
    }
}

#[test]
fn listeners_backends_logs_and_status_are_found() {
    let (_, config) = read_files(&[("nginx.conf", MAIN), ("sites/a.conf", SITE), ("php.conf", PHP)]);
    assert_eq!(config.listens(), ["0.0.0.0:8080"]);
    assert_eq!(
        config.backends(),
        ["10.0.0.1:8080", "127.0.0.1:80", "unix:/run/a.sock", "unix:/run/php.sock"]
    );
    let logs = config.logs("/usr/share/nginx");
    let shown: Vec<_> = logs.iter().map(|log| (log.path.as_str(), log.kind, log.format.as_deref())).collect();
    assert_eq!(
        shown,
        [
            ("/var/log/e.log", LogKind::Error, None),
            ("/usr/share/nginx/logs/a.log", LogKind::Access, Some("$status $request")),
            ("/usr/share/nginx/logs/b.log", LogKind::Access, Some("combined")),
            ("/usr/share/nginx/logs/c.log", LogKind::Access, None),
        ]
    );
    let status =
        StatusPage { address: "0.0.0.0:8080".into(), host: "example.org".into(), path: "/status".into() };
    assert_eq!(config.status(), Ok(status));
}

#[test]
fn a_log_of_a_part_of_the_requests_comes_behind_the_others() {
    let server = "location = /up { access_log /up.log; } access_log /quick.log combined if=$quick; access_log /all.log;";
    let (_, config) = read_files(&[("nginx.conf", &format!("http {{ server {{ {server} }} }}"))]);
    let paths: Vec<_> = config.logs("/").into_iter().map(|log| log.path).collect();
    assert_eq!(paths, ["/all.log", "/up.log", "/quick.log"]);
    let stream = "stream { log_format main '$status'; server { access_log /tcp.log main; } }";
    let http = "http { log_format main '$status $request'; access_log /all.log main; }";
    let (_, config) = read_files(&[("nginx.conf", &format!("{http}\n{stream}"))]);
    let logs: Vec<_> = config.logs("/").into_iter().map(|log| (log.path, log.format)).collect();
    assert_eq!(
        logs,
        [("/all.log".to_owned(), Some("$status $request".to_owned()))],
        "of connections are others"
    );
    let servers = "server { server_name a; listen 80; access_log /80.log; }\nserver { server_name a; listen 443; access_log /443.log; }";
    let (_, config) = read_files(&[("nginx.conf", &format!("http {{\n{servers} }}"))]);
    let logs = config.logs("/");
    assert_ne!(logs[0].scope, logs[1].scope, "both have one name, and a log each");
}

#[test]
fn a_status_page_that_cannot_be_asked_is_told() {
    for (server, why) in [
        ("listen 80; location / { }", "no location has"),
        ("listen 443 ssl; location /s { stub_status; }", "TLS only"),
        ("listen 80; location ~ ^/s { stub_status; }", "a pattern"),
    ] {
        let (_, config) = read_files(&[("nginx.conf", &format!("http {{ server {{ {server} }} }}"))]);
        assert!(config.status().unwrap_err().contains(why), "{server}");
    }
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_there() {
    for (files, problem) in [
        (vec![("nginx.conf", "include nginx.conf;\nhttp { gzip on; }")], "which includes it"),
        (vec![("nginx.conf", "include none.conf;\nhttp { gzip on; }")], "cannot read"),
        (
            vec![("nginx.conf", "http { gzip on; include *.inc; }"), ("x.inc", "server {")],
            "ends within a block",
        ),
        (vec![("nginx.conf", "http { gzip on; \u{fffd} }")], "not UTF-8"),
    ] {
        let (_, config) = read_files(&files);
        assert!(
            config.problems.iter().any(|message| message.contains(problem)),
            "{problem}: {:?}",
            config.problems
        );
        assert_eq!(config.settings()["gzip"].configured, Some(SettingValue::Text("on".into())));
    }
}

#[test]
fn each_zone_is_told_and_whether_its_limits_only_count() {
    let text = "http {\n limit_req_zone $binary_remote_addr zone=login:1m rate=6r/m;\n\
        limit_req_zone $server_name zone=site:1m rate=58r/s;\n limit_req_status 429;\n\
        server { listen 80; limit_req zone=site burst=9; limit_req_dry_run on; }\n}\n";
    let (_, config) = read_files(&[("nginx.conf", text)]);
    let scoped = config.scoped().0;
    let values = |setting: &str| {
        let all = scoped.iter().filter(|one| one.setting == setting);
        all.map(|one| (one.value.as_str(), one.scope.len())).collect::<Vec<_>>()
    };
    let zones =
        [("$binary_remote_addr zone=login:1m rate=6r/m", 0), ("$server_name zone=site:1m rate=58r/s", 0)];
    assert_eq!(values("limit_req_zone"), zones);
    assert_eq!(values("limit_req"), [("zone=site burst=9", 1)]);
    assert_eq!(values("limit_req_dry_run"), [("on", 1)]);
    let status = config.settings()["limit_req_status"].configured.clone();
    assert_eq!(status, Some(SettingValue::Integer(429)));
}

// Each file includes the next one twice: 2^40 directives, of which a bounded number is looked at.
#[test]
fn files_that_multiply_end() {
    let mut files: Vec<(String, String)> =
        (0..30).map(|n| (format!("f{n}"), format!("include f{};\ninclude f{};\n", n + 1, n + 1))).collect();
    files.push(("f30".into(), "server { listen 1; gzip on; }\n".repeat(4)));
    files.push(("nginx.conf".into(), "http { server { include f0; } }".into()));
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (_, config) = read_files(&files);
    assert!(!config.scoped().1, "it is said that some are left out");
}

#[test]
fn ten_thousand_servers_are_read() {
    let server = |n: usize| {
        format!(
            "server {{ listen 80; server_name s{n}; location / {{ proxy_pass http://127.0.0.1:{}; }} }}\n",
            9000 + n % 50
        )
    };
    let text = format!("http {{\n{}}}\n", (0..10_000).map(server).collect::<String>());
    let (_, config) = read_files(&[("nginx.conf", &text)]);
    assert_eq!((config.problems.len(), config.backends().len()), (0, 50));
    let (scoped, complete) = config.scoped();
    assert_eq!((scoped.len(), complete), (SCOPED_MAX, false));
}

#[test]
fn addresses_are_told_in_one_way() {
    for (word, expected) in [
        ("80", "0.0.0.0:80"),
        ("*:81", "0.0.0.0:81"),
        ("[::]:80", "[::]:80"),
        ("[::1]", "[::1]:80"),
        ("127.0.0.1", "127.0.0.1:80"),
        ("unix:/run/n.sock", "unix:/run/n.sock"),
    ] {
        assert_eq!(listen_address(word), expected, "{word}");
    }
    for (word, expected) in [
        ("http://127.0.0.1", Some("127.0.0.1:80")),
        ("https://example.org/x", Some("example.org:443")),
        ("http://unix:/run/a.sock:/uri", Some("unix:/run/a.sock")),
        ("localhost:9000", Some("127.0.0.1:9000")),
        ("http://$backend", None),
        ("", None),
    ] {
        assert_eq!(passed_to(word).as_deref(), expected, "{word}");
    }
}

proptest! {
    #[test]
    fn any_configuration_is_survived(
        text in prop::collection::vec(
            prop::sample::select(vec!["server ", "{", "}", ";", "listen ", "80 ", "location ", "stub_status", "http ", "upstream ",
                "proxy_pass ", "http://", "x ", "access_log ", "log_format ", "\n", "include ", "unix:", "\"", "é"]), 0..60)
    ) {
        let (_, config) = read_files(&[("nginx.conf", &text.concat())]);
        config.settings();
        config.scoped();
        config.backends();
        config.listens();
        config.logs("/");
        let _ = config.status();
    }
}
