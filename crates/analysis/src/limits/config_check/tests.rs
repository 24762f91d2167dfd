//! Each rule on settings by hand: where it speaks, where it is silent, and what it proposes.

use super::*;
use crate::facts::FactId;
use crate::facts::testing::{facts as facts_of, of_pool};
use crate::limits::config_findings;
use webdyno_model::service::{LogFile, ScopedSetting, SettingInForce};
use webdyno_model::topology::Topology;

const FILE: &str = "/etc/apache2/apache2.conf";

fn service(name: &str, mode: Option<&str>, settings: &[(&str, &str)]) -> ServiceSnapshot {
    let setting = |(number, (name, value)): (usize, &(&str, &str))| {
        let found = SettingInForce {
            configured: Some(SettingValue::parse(value)),
            file: Some(FILE.into()),
            line: Some(number as u32 + 1),
            ..SettingInForce::default()
        };
        ((*name).to_owned(), found)
    };
    ServiceSnapshot {
        service: name.into(),
        mode: mode.map(str::to_owned),
        settings: settings.iter().enumerate().map(setting).collect(),
        ..ServiceSnapshot::default()
    }
}

fn scoped(setting: &str, value: &str, scope: &str) -> ScopedSetting {
    ScopedSetting {
        setting: setting.into(),
        value: value.into(),
        scope: vec![scope.into()],
        file: Some("/etc/php/8.2/fpm/pool.d/www.conf".into()),
        line: Some(7),
    }
}

fn apache(mode: &str, settings: &[(&str, &str)], values: &[(FactId, f64)]) -> Facts {
    let mut facts = facts_of(values, &[]);
    facts.loaded = false;
    facts.service = Some(service("apache", Some(mode), settings));
    facts
}

/// A pool `www` of so many children in front of a database of so many connections.
fn behind(facts: &mut Facts, children: &str, connections: &str) {
    let mut php = service("php_fpm", None, &[]);
    php.scoped = vec![scoped("pm.max_children", children, "pool www")];
    let database = service("mariadb", None, &[("max_connections", connections)]);
    facts.topology = Some(Topology { backends: vec![php, database], ..Topology::default() });
}

/// The ids reported, the worst first.
fn ids(facts: &Facts) -> Vec<String> {
    config_findings(facts).into_iter().map(|finding| finding.id).collect()
}

/// The only finding: its id, and the value that is proposed.
fn only(facts: &Facts) -> Option<(String, String)> {
    let mut all = config_findings(facts);
    assert!(all.len() <= 1, "{all:#?}");
    let finding = all.pop()?;
    let remedy = &finding.remedies[0];
    Some((finding.id, format!("{} {}", remedy.setting.name, remedy.to.as_ref().unwrap())))
}

#[test]
fn values_that_others_clamp() {
    for (mode, settings, reported) in [
        ("prefork", &[("MaxRequestWorkers", "400"), ("ServerLimit", "256")][..], Some("ServerLimit 400")),
        ("prefork", &[("MaxRequestWorkers", "256"), ("ServerLimit", "256")], None),
        (
            "event",
            &[("MaxRequestWorkers", "500"), ("ServerLimit", "16"), ("ThreadsPerChild", "25")],
            Some("ServerLimit 20"),
        ),
        (
            "worker",
            &[("MaxRequestWorkers", "160"), ("ServerLimit", "16"), ("ThreadsPerChild", "25")],
            Some("MaxRequestWorkers 150"),
        ),
        ("event", &[("MaxRequestWorkers", "150"), ("ServerLimit", "16"), ("ThreadsPerChild", "25")], None),
        (
            "event",
            &[
                ("MaxRequestWorkers", "200"),
                ("ServerLimit", "2"),
                ("ThreadsPerChild", "100"),
                ("ThreadLimit", "50"),
            ],
            Some("ServerLimit 4"),
        ),
    ] {
        let observed = only(&apache(mode, settings, &[]));
        let reported = reported.map(|reported| ("apache-setting-clamped".to_owned(), reported.to_owned()));
        assert_eq!(observed, reported, "{mode} {settings:?}");
    }
}

#[test]
fn a_clamped_value_names_file_line_and_what_runs() {
    let settings = [("ServerLimit", "16"), ("MaxRequestWorkers", "500"), ("ThreadsPerChild", "25")];
    let finding = config_findings(&apache("event", &settings, &[])).remove(0);
    for part in ["500 (/etc/apache2/apache2.conf:2)", "16 (/etc/apache2/apache2.conf:1)", "runs 400 workers"]
    {
        assert!(finding.summary.contains(part), "{}", finding.summary);
    }
    let limit = finding.facts.iter().find(|fact| fact.name == "ServerLimit").unwrap();
    assert_eq!((limit.value, limit.reproduce.as_str()), (16.0, "sed -n 1p /etc/apache2/apache2.conf"));
}

#[test]
fn queues_that_the_kernel_cuts_or_that_were_raised_in_vain() {
    for (backlog, allowed, reported) in [
        ("511", 128.0, Some("net.core.somaxconn 4096")),
        ("8192", 4096.0, Some("net.core.somaxconn 8192")),
        ("511", 65_535.0, Some("ListenBacklog 65535")),
        // The kernel default was set by no one.
        ("511", 4096.0, None),
        ("511", 511.0, None),
    ] {
        let facts =
            apache("event", &[("ListenBacklog", backlog)], &[(FactId::ahead_accept_queue_allowed, allowed)]);
        let observed = only(&facts).map(|(_, remedy)| remedy);
        assert_eq!(observed.as_deref(), reported, "{backlog} {allowed}");
    }
    // Where the kernel's own limit was not read, the socket's shows it.
    let socket = apache("event", &[("ListenBacklog", "511")], &[(FactId::accept_queue_limit, 100.0)]);
    assert_eq!(ids(&socket), ["accept-queue-overflow"]);
}

const MEMORY: [(FactId, f64); 4] = [
    (FactId::memory_limit_bytes, 1000e6),
    (FactId::memory_available_min_bytes, 500e6),
    (FactId::worker_memory_sum_bytes, 100e6),
    (FactId::worker_private_mean_bytes, 5e6),
];

#[test]
fn workers_that_memory_cannot_hold() {
    // (500 + 100 - 100 reserve) MB / 5 MB
    for (workers, reported) in [("150", Some("MaxRequestWorkers 100")), ("100", None)] {
        let facts = apache("prefork", &[("MaxRequestWorkers", workers)], &MEMORY);
        let reported = reported.map(|reported| ("memory-exhausted".to_owned(), reported.to_owned()));
        assert_eq!(only(&facts), reported, "{workers}");
    }
}

#[test]
fn children_that_memory_cannot_hold() {
    for (children, reported) in [("200", Some("pm.max_children 60")), ("60", None)] {
        let mut facts = apache("event", &[], &MEMORY);
        behind(&mut facts, children, "1000");
        let pool = [(FactId::ahead_fpm_child_bytes, 10e6), (FactId::ahead_fpm_processes_max, 20.0)];
        of_pool(&mut facts, "www", &pool);
        // (500 + 20 x 10 - 100 reserve) MB / 10 MB
        assert_eq!(only(&facts).map(|(_, remedy)| remedy).as_deref(), reported, "{children}");
    }
}

#[test]
fn fewer_children_keep_their_pool_and_take_those_that_are_to_be_idle_along() {
    let with = |mode: &str| {
        let mut facts = apache("event", &[], &MEMORY);
        behind(&mut facts, "200", "1000");
        let pool = [(FactId::ahead_fpm_child_bytes, 10e6), (FactId::ahead_fpm_processes_max, 20.0)];
        of_pool(&mut facts, "www", &pool);
        let php = &mut facts.topology.as_mut().unwrap().backends[0];
        php.scoped.push(scoped("pm", mode, "pool www"));
        php.scoped.push(scoped("pm.min_spare_servers", "10", "pool www"));
        php.scoped.push(scoped("pm.max_spare_servers", "100", "pool www"));
        let remedy = config_findings(&facts).remove(0).remedies.remove(0);
        let along: Vec<String> = remedy
            .together_with
            .iter()
            .map(|change| format!("{} {}", change.setting.name, change.to))
            .collect();
        (remedy.setting.pool, along)
    };
    let pool = Some("www".to_owned());
    assert_eq!(with("dynamic"), (pool.clone(), vec!["pm.max_spare_servers 60".to_owned()]));
    assert_eq!(with("ondemand"), (pool, vec![]));
}

#[test]
fn a_database_that_cannot_serve_all_workers() {
    for (children, connections, reported) in
        [("150", "100", Some("max_connections 175")), ("100", "100", None), ("20", "151", None)]
    {
        let mut facts = apache("event", &[], &[]);
        behind(&mut facts, children, connections);
        let reported = reported.map(|reported| ("db-connections-exhausted".to_owned(), reported.to_owned()));
        assert_eq!(only(&facts), reported, "{children} {connections}");
    }
    // Without PHP-FPM it is the workers that have a language in them who ask.
    for (module, reported) in [("php_module", true), ("rewrite_module", false)] {
        let settings = [("MaxRequestWorkers", "256")];
        let mut facts = apache("prefork", &settings, &[]);
        facts.service.as_mut().unwrap().modules = vec![module.into()];
        let database = service("mariadb", None, &[("max_connections", "151")]);
        facts.topology = Some(Topology { backends: vec![database], ..Topology::default() });
        assert_eq!(!ids(&facts).is_empty(), reported, "{module}");
    }
}

#[test]
fn buffers_of_all_connections_beyond_memory() {
    let of = |sort: f64, connections: f64| {
        let values = [
            (FactId::ahead_database_limit, connections),
            (FactId::ahead_database_sort_buffer_bytes, sort),
            (FactId::ahead_database_thread_stack_bytes, 300e3),
            (FactId::memory_limit_bytes, 4e9),
            (FactId::memory_available_min_bytes, 3e9),
        ];
        ids(&apache("event", &[], &values))
    };
    assert_eq!(of(64e6, 200.0), ["db-connection-memory"]);
    let stack = [
        (FactId::ahead_database_limit, 200.0),
        (FactId::ahead_database_sort_buffer_bytes, 16e6),
        (FactId::ahead_database_thread_stack_bytes, 32e6),
        (FactId::memory_limit_bytes, 4e9),
        (FactId::memory_available_min_bytes, 3e9),
    ];
    let proposed = only(&apache("event", &[], &stack)).map(|(_, remedy)| remedy);
    assert_eq!(proposed.as_deref(), Some("sort_buffer_size 2097152"), "no stack takes effect live");
    assert!(of(64e6, 20.0).is_empty());
    // What the defaults allow together is never used.
    assert!(of(2e6, 5000.0).is_empty());
}

#[test]
fn kept_connections_of_fat_processes() {
    let kept = [("KeepAlive", "On"), ("KeepAliveTimeout", "5")];
    for (mode, keeps, timeout, bytes, reported) in [
        ("prefork", "On", "5", 30e6, true),
        ("prefork", "On", "2", 30e6, false),
        ("prefork", "On", "500ms", 30e6, false),
        ("prefork", "Off", "5", 30e6, false),
        ("prefork", "On", "5", 2e6, false),
        ("event", "On", "5", 30e6, false),
    ] {
        let settings = [("KeepAlive", keeps), ("KeepAliveTimeout", timeout)];
        let observed = ids(&apache(mode, &settings, &[(FactId::worker_private_mean_bytes, bytes)]));
        assert_eq!(!observed.is_empty(), reported, "{mode} {keeps} {timeout} {bytes}");
    }
    let mut php = apache("prefork", &kept, &[]);
    php.service.as_mut().unwrap().modules = vec!["php_module".into()];
    assert_eq!(only(&php), Some(("keepalive-holds-workers".into(), "KeepAliveTimeout 2".into())));
}

#[test]
fn tables_below_what_may_come() {
    for (limit, used, reported) in [(8192.0, 30.0, true), (65_536.0, 30.0, false), (8192.0, 0.0, false)] {
        let values = [
            (FactId::ahead_tracked_limit, limit),
            (FactId::ahead_tracked_max, used),
            (FactId::ahead_ports_available, 28_232.0),
        ];
        assert_eq!(!ids(&apache("event", &[], &values)).is_empty(), reported, "{limit} {used}");
    }
    // 64 threads with 3 connections each, a file for each thread, and the logs.
    let settings = [("ThreadsPerChild", "64"), ("AsyncRequestWorkerFactor", "2")];
    for (limit, reported) in [(256.0, Some("LimitNOFILE 8192")), (1024.0, None)] {
        let mut facts = apache("event", &settings, &[(FactId::ahead_open_files_limit, limit)]);
        facts.service.as_mut().unwrap().logs = vec![LogFile::default(); 4];
        assert_eq!(only(&facts).map(|(_, remedy)| remedy).as_deref(), reported, "{limit}");
    }
}

#[test]
fn what_every_request_pays_for() {
    for (setting, value, id) in [
        ("LogLevel", "debug", Some("log-verbosity")),
        ("LogLevel", "warn rewrite:trace3", Some("log-verbosity")),
        ("LogLevel", "warn", None),
        ("HostnameLookups", "On", Some("hostname-lookups")),
        ("HostnameLookups", "double", Some("hostname-lookups")),
        ("HostnameLookups", "Off", None),
    ] {
        let whole = apache("event", &[(setting, value)], &[]);
        assert_eq!(ids(&whole).first().map(String::as_str), id, "{setting} {value}");
        let mut part = apache("event", &[], &[]);
        part.service.as_mut().unwrap().scoped = vec![scoped(setting, value, "VirtualHost *:80")];
        assert_eq!(ids(&part).first().map(String::as_str), id, "{setting} {value} in a part");
    }
    for (value, list, scope, changes) in [
        ("All", "None", "DocumentRoot /var/www/", 1),
        ("None", "None", "DocumentRoot /var/www/", 0),
        ("None", "Redirect", "DocumentRoot /var/www/", 1),
        ("All", "Redirect", "DocumentRoot /var/www/", 2),
        ("All", "None", "Directory /srv/other", 0),
    ] {
        let mut facts = apache("event", &[], &[]);
        let both = [("AllowOverride", value), ("AllowOverrideList", list)];
        facts.service.as_mut().unwrap().scoped = both.map(|(name, value)| scoped(name, value, scope)).into();
        let found = config_findings(&facts).pop();
        let wanted = found.map_or(0, |finding| 1 + finding.remedies[0].together_with.len());
        assert_eq!(wanted, changes, "{value} {list} {scope}");
    }
}

#[test]
fn an_opcode_cache_that_is_off() {
    for (value, reported) in [("0", true), ("Off", true), ("1", false), ("On", false)] {
        let mut facts = apache("event", &[], &[]);
        let php = service("php_fpm", None, &[("opcache.enable", value)]);
        facts.topology = Some(Topology { backends: vec![php], ..Topology::default() });
        assert_eq!(!ids(&facts).is_empty(), reported, "{value}");
    }
}

#[test]
fn the_worst_comes_first() {
    let settings = [
        ("HostnameLookups", "On"),
        ("ListenBacklog", "511"),
        ("MaxRequestWorkers", "300"),
        ("ServerLimit", "256"),
    ];
    let mut values = MEMORY.to_vec();
    values.push((FactId::ahead_accept_queue_allowed, 128.0));
    let facts = apache("prefork", &settings, &values);
    let expected =
        ["memory-exhausted", "accept-queue-overflow", "apache-setting-clamped", "hostname-lookups"];
    assert_eq!(ids(&facts), expected);
}

#[test]
fn what_is_not_known_contradicts_nothing() {
    assert!(config_findings(&Facts::default()).is_empty());
    assert!(config_findings(&apache("event", &[], &[])).is_empty());
    let debian = [
        ("MaxRequestWorkers", "150"),
        ("ServerLimit", "16"),
        ("ThreadsPerChild", "25"),
        ("KeepAlive", "On"),
        ("KeepAliveTimeout", "5"),
        ("ListenBacklog", "511"),
        ("LogLevel", "warn"),
        ("HostnameLookups", "Off"),
        ("AsyncRequestWorkerFactor", "2"),
    ];
    let values = [
        (FactId::ahead_accept_queue_allowed, 4096.0),
        (FactId::ahead_open_files_limit, 8192.0),
        (FactId::ahead_tracked_limit, 262_144.0),
        (FactId::ahead_tracked_max, 12.0),
        (FactId::ahead_ports_available, 28_232.0),
        (FactId::memory_limit_bytes, 8e9),
        (FactId::memory_available_min_bytes, 6e9),
        (FactId::worker_memory_sum_bytes, 20e6),
        (FactId::worker_private_mean_bytes, 5e6),
    ];
    assert_eq!(ids(&apache("event", &debian, &values)), Vec::<String>::new());
}

#[test]
fn children_of_few_requests_and_short_queues() {
    let with_pool = |setting: &str, value: &str| {
        let mut facts = apache("event", &[], &[]);
        let mut php = service("php_fpm", None, &[]);
        php.scoped = vec![scoped(setting, value, "pool www")];
        facts.topology = Some(Topology { backends: vec![php], ..Topology::default() });
        only(&facts)
    };
    let of = |id: &str, change: &str| Some((id.to_owned(), change.to_owned()));
    for (setting, value, reported) in [
        ("pm.max_requests", "1", of("cpu-saturated", "pm.max_requests 500")),
        ("pm.max_requests", "10", of("cpu-saturated", "pm.max_requests 500")),
        // Debian's default, its example, and a low one that costs nothing.
        ("pm.max_requests", "0", None),
        ("pm.max_requests", "500", None),
        ("pm.max_requests", "11", None),
        ("listen.backlog", "4", of("accept-queue-overflow", "listen.backlog 511")),
        ("listen.backlog", "-1", None),
        ("listen.backlog", "511", None),
    ] {
        assert_eq!(with_pool(setting, value), reported, "{setting} {value}");
    }
    for (backlog, reported) in
        [("4", of("accept-queue-overflow", "ListenBacklog 511")), ("64", None), ("511", None)]
    {
        let allowed = [(FactId::ahead_accept_queue_allowed, 4096.0)];
        assert_eq!(only(&apache("event", &[("ListenBacklog", backlog)], &allowed)), reported, "{backlog}");
    }
    for (listen, reported) in [
        ("80 backlog=4", of("accept-queue-overflow", "listen backlog 511")),
        ("80 backlog=64", None),
        ("8", None),
    ] {
        let mut nginx = service("nginx", None, &[]);
        nginx.scoped = vec![scoped("listen", listen, "server a.example")];
        let mut facts = Facts::default();
        facts.service = Some(nginx);
        assert_eq!(only(&facts), reported, "{listen}");
    }
}
