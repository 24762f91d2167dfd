//! Configurations of caches, and what the programs that they are for say of them, where these are installed.

use super::*;
use std::fs;
use std::process::Command;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::interval::Interval;
use webdyno_model::purpose::Purpose;
use webdyno_model::repeated_answer::RepeatedAnswer;
use webdyno_model::service::ScopedSetting;

/// A session whose load asked for these URLs; the last one sets a cookie.
fn recording(urls: &[&str], service: &ServiceSnapshot) -> Recording {
    let answer = |(index, url): (usize, &&str)| RepeatedAnswer {
        url: (*url).into(),
        share_fraction: Some(0.25),
        status: Some(200),
        alone_us: Some(9000),
        is_same: Some(true),
        sets_cookie: index + 1 == urls.len(),
        ..RepeatedAnswer::default()
    };
    let answers = urls.iter().enumerate().map(answer).collect();
    let interval = Interval { length_us: 1_000_000, completed: 100, ..Interval::default() };
    let bodies = [
        EventBody::Service { snapshot: Box::new(service.clone()) },
        EventBody::RepeatedAnswers { answers },
        EventBody::LoadStart {
            load: 1,
            purpose: Purpose::Diagnose,
            workload: Box::default(),
            alone_us: None,
        },
        EventBody::Interval { load: 1, interval: Box::new(interval) },
    ];
    let event = |(seq, body)| Event { v: 1, seq, t_us: 0, body };
    Recording::of((0..).zip(bodies).map(event).collect())
}

fn service(name: &str, pass: Option<&str>) -> ServiceSnapshot {
    let setting = |pass: &str| ScopedSetting { setting: pass.into(), ..ScopedSetting::default() };
    ServiceSnapshot {
        service: name.into(),
        scoped: pass.map(setting).into_iter().collect(),
        ..ServiceSnapshot::default()
    }
}

const URLS: [&str; 4] = [
    "http://127.0.0.1:8080/a.php",
    "http://127.0.0.1:8080/news?page=1&of=2",
    "http://127.0.0.1:8080/",
    "http://127.0.0.1:8080/in",
];

fn config(program: CacheProgram, service: &ServiceSnapshot) -> String {
    cache_config(&recording(&URLS, service), Some(program)).unwrap()
}

/// Lets a program judge a configuration, where it is installed.
fn assert_valid(program: &str, config: &str, arguments: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("config");
    let here = place.path().display().to_string();
    let config = config.replace("/var/cache/webdyno", &format!("{here}/cache")).replace("PLACE", &here);
    fs::write(&file, config).unwrap();
    let mut judge = Command::new(program);
    match judge.args(arguments).arg(&file).output() {
        Err(error) => eprintln!("skipped: {program} is not installed ({error})"),
        Ok(said) => assert!(said.status.success(), "{program}: {}", String::from_utf8_lossy(&said.stderr)),
    }
}

#[test]
fn only_what_was_seen_to_be_cacheable_is_kept() {
    let nginx = service("nginx", Some("fastcgi_pass"));
    for program in [CacheProgram::Nginx, CacheProgram::ModCache, CacheProgram::Varnish] {
        let text = config(program, &nginx);
        assert!(text.contains("a\\.php") || text.contains("/a.php\""), "{text}");
        assert!(!text.contains("/in\""), "it sets a cookie: {text}");
        assert!(text.to_lowercase().contains("cookie") && text.contains("uthorization"), "{text}");
    }
    let texts = [&nginx, &service("apache", None), &service("unknown", None)]
        .map(|service| cache_config(&recording(&URLS, service), None).unwrap());
    assert!(
        texts[0].contains("fastcgi_cache_valid 200 1s;") && !texts[0].contains("server {"),
        "{}",
        texts[0]
    );
    // Another site of the same server keeps nothing.
    assert!(texts[0].contains("\n    \"127.0.0.1:8080/a.php\" 0;"), "{}", texts[0]);
    let (before, server) = texts[2].split_once("server {").unwrap();
    assert!(
        !before.contains("proxy_cache webdyno") && server.contains("proxy_cache webdyno"),
        "{}",
        texts[2]
    );
    assert!(texts[1].contains("CacheEnable disk"), "{}", texts[1]);
    assert!(texts[2].contains("proxy_pass http://127.0.0.1:8080;"), "{}", texts[2]);
}

#[test]
fn what_cannot_be_kept_is_an_error() {
    let none = recording(&["http://h/in"], &service("nginx", None));
    assert!(cache_config(&none, None).unwrap_err().hint.is_some());
    assert!(cache_config(&Recording::default(), None).is_err());
    let queries = recording(&["http://h/?a=1", "http://h/in"], &service("apache", None));
    assert!(cache_config(&queries, None).unwrap_err().hint.unwrap().contains("--cache-for nginx"));
    let tls = recording(&["https://h/a", "https://h/in"], &service("apache", None));
    assert!(cache_config(&tls, Some(CacheProgram::Varnish)).is_err());
    let odd = recording(&["http://h/a?x=$y", "http://h/in"], &service("nginx", None));
    assert!(cache_config(&odd, None).is_err());
}

#[test]
fn nginx_takes_it() {
    let long = format!("http://h/{}", "path/".repeat(60));
    for (service, urls) in [
        (service("nginx", Some("fastcgi_pass")), &URLS[..]),
        (service("nginx", None), &URLS),
        (service("unknown", None), &URLS),
        (service("nginx", Some("uwsgi_pass")), &[&long, "http://h/in"]),
    ] {
        let config = cache_config(&recording(urls, &service), Some(CacheProgram::Nginx)).unwrap();
        let whole = format!(
            "pid PLACE/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{config}\nserver {{ listen 127.0.0.1:8089; \
             location / {{ fastcgi_pass 127.0.0.1:9000; }} }}\n}}\n"
        );
        assert_valid("nginx", &whole, &["-t", "-q", "-c"]);
    }
}

#[test]
fn apache_takes_it() {
    let modules = "/usr/lib/apache2/modules";
    let load: String = ["mpm_event", "authz_core", "headers", "cache", "cache_disk"]
        .iter()
        .map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"))
        .collect();
    if !std::path::Path::new(modules).join("mod_cache.so").exists() {
        return eprintln!("skipped: no mod_cache in {modules}");
    }
    let config = config(CacheProgram::ModCache, &service("apache", None));
    let whole =
        format!("ServerRoot PLACE\nServerName h\nListen 127.0.0.1:8089\nErrorLog PLACE/log\n{load}{config}");
    assert_valid("apache2", &whole, &["-t", "-f"]);
}

#[test]
fn varnish_takes_it() {
    let config = config(CacheProgram::Varnish, &service("apache", None));
    assert_valid("varnishd", &config, &["-C", "-f"]);
    let count = |what: &str| config.matches(what).count();
    assert_eq!((count("{"), count("(")), (count("}"), count(")")), "{config}");
    assert!(config.contains(".host = \"127.0.0.1\";\n    .port = \"8080\";"), "{config}");
}
