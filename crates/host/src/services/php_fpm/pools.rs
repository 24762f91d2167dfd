//! What the settings of php-fpm come to: values with their defaults, addresses, logs.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php> and the defaults in sapi/fpm/fpm/fpm_conf.c of PHP
//! 8.2. `env[..]` and whatever else may hold a password is not in the lists: only what is known to be harmless is told.

use super::config::{Config, Placed, Section, absolute};
use std::collections::BTreeMap;
use webdyno_model::service::{
    Endpoint, LogFile, LogKind, ScopedSetting, SettingInForce, SettingScope, SettingValue,
};

/// Settings of the whole server, and their defaults.
const GLOBAL: [(&str, Option<&str>); 13] = [
    ("daemonize", Some("yes")),
    ("emergency_restart_interval", Some("0")),
    ("emergency_restart_threshold", Some("0")),
    ("error_log", None),
    ("events.mechanism", None),
    ("log_level", Some("notice")),
    ("log_limit", Some("1024")),
    ("process.max", Some("0")),
    ("process.priority", None),
    ("process_control_timeout", Some("0")),
    ("rlimit_core", None),
    ("rlimit_files", None),
    ("systemd_interval", Some("10")),
];

/// Settings of a pool, and their defaults. That of listen.backlog differs from version to version.
const POOL: [(&str, Option<&str>); 28] = [
    ("access.log", None),
    ("catch_workers_output", Some("no")),
    ("chroot", None),
    ("clear_env", Some("yes")),
    ("group", None),
    ("listen", None),
    ("listen.allowed_clients", None),
    ("listen.backlog", None),
    ("ping.path", None),
    ("pm", None),
    ("pm.max_children", None),
    ("pm.max_requests", Some("0")),
    ("pm.max_spare_servers", None),
    ("pm.max_spawn_rate", Some("32")),
    ("pm.min_spare_servers", None),
    ("pm.process_idle_timeout", Some("10s")),
    ("pm.start_servers", None),
    ("pm.status_listen", None),
    ("pm.status_path", None),
    ("process.priority", None),
    ("request_slowlog_timeout", Some("0")),
    ("request_terminate_timeout", Some("0")),
    ("request_terminate_timeout_track_finished", Some("no")),
    ("rlimit_core", None),
    ("rlimit_files", None),
    ("security.limit_extensions", Some(".php .phar")),
    ("slowlog", None),
    ("user", None),
];

/// Values of php.ini that hold no secrets, and say something about load; a pool may give them values of its own.
pub const PHP: [&str; 38] = [
    "auto_append_file",
    "auto_prepend_file",
    "disable_functions",
    "display_errors",
    "error_log",
    "log_errors",
    "max_execution_time",
    "max_input_time",
    "max_input_vars",
    "memory_limit",
    "opcache.enable",
    "opcache.file_cache",
    "opcache.file_update_protection",
    "opcache.interned_strings_buffer",
    "opcache.jit",
    "opcache.jit_buffer_size",
    "opcache.max_accelerated_files",
    "opcache.max_file_size",
    "opcache.max_wasted_percentage",
    "opcache.memory_consumption",
    "opcache.preload",
    "opcache.restrict_api",
    "opcache.revalidate_freq",
    "opcache.save_comments",
    "opcache.validate_timestamps",
    "open_basedir",
    "output_buffering",
    "post_max_size",
    "realpath_cache_size",
    "realpath_cache_ttl",
    "session.gc_divisor",
    "session.gc_maxlifetime",
    "session.gc_probability",
    "session.lazy_write",
    "session.save_handler",
    "upload_max_filesize",
    "zend.assertions",
    "zlib.output_compression",
];

/// Whether the value of a line may be shown: what is known to hold no secret, and what it is for PHP.
pub fn is_harmless(key: &str) -> bool {
    let php = key.split_once('[').map(|(_, name)| name.trim_end_matches(']'));
    let known = GLOBAL.iter().chain(&POOL).any(|(name, _)| *name == key);
    known || key == "include" || PHP.contains(&php.unwrap_or(key))
}

/// The settings of the whole server.
pub fn global(config: &Config) -> BTreeMap<String, SettingInForce> {
    let setting = |(key, default): &(&str, Option<&str>)| {
        let placed = config.global.get(key).filter(|placed| !placed.value.is_empty());
        ((*key).to_owned(), in_force(placed, default.map(SettingValue::parse)))
    };
    GLOBAL.iter().map(setting).collect()
}

/// A setting of a place and a default.
pub fn in_force(placed: Option<&Placed>, default: Option<SettingValue>) -> SettingInForce {
    SettingInForce {
        configured: placed.map(|placed| SettingValue::parse(&placed.value)),
        default,
        running: None,
        file: placed.map(|placed| placed.file.clone()),
        line: placed.map(|placed| placed.line),
    }
}

/// The settings of each pool, defaults without a file.
pub fn scoped(config: &Config) -> Vec<ScopedSetting> {
    config.pools.iter().flat_map(of_pool).collect()
}

fn of_pool(pool: &Section) -> Vec<ScopedSetting> {
    let setting = |name: &str, value: &str, placed: Option<&Placed>| ScopedSetting {
        setting: name.to_owned(),
        value: value.to_owned(),
        scope: vec![SettingScope::Pool(pool.name.clone())],
        file: placed.map(|placed| placed.file.clone()),
        line: placed.map(|placed| placed.line),
    };
    let mut found = vec![];
    for (key, default) in POOL {
        match pool.get(key).filter(|placed| !placed.value.is_empty()) {
            Some(placed) => found.push(setting(key, &placed.value, Some(placed))),
            None => {
                let default = default.map(str::to_owned).or_else(|| dynamic_default(pool, key));
                found.extend(default.map(|value| setting(key, &value, None)));
            }
        }
    }
    found.extend(PHP.iter().filter_map(|key| {
        let placed = pool.php(key)?;
        Some(setting(key, &placed.value, Some(placed)))
    }));
    found
}

/// `pm.start_servers` lies in the middle of the spare servers where it is not given.
fn dynamic_default(pool: &Section, key: &str) -> Option<String> {
    let number = |key: &str| pool.value(key)?.parse::<i64>().ok();
    let wanted = key == "pm.start_servers" && pool.value("pm") == Some("dynamic");
    let (low, high) =
        wanted.then(|| Some((number("pm.min_spare_servers")?, number("pm.max_spare_servers")?)))??;
    Some((low + high.checked_sub(low)? / 2).to_string())
}

/// An address as php-fpm takes it: a path, a port, or an address with a port.
pub fn address(prefix: &str, listen: &str) -> String {
    let port_only = listen.parse::<u16>().ok();
    match (port_only, listen.strip_prefix("*:")) {
        (Some(port), _) => format!("[::]:{port}"),
        (None, Some(port)) => format!("0.0.0.0:{port}"),
        (None, None) if listen.contains('/') || !listen.contains(':') => {
            format!("unix:{}", absolute(prefix, listen))
        }
        (None, None) => listen.to_owned(),
    }
}

/// One for each pool.
pub fn endpoints(config: &Config, prefix: &str) -> Vec<Endpoint> {
    let endpoint = |pool: &Section| {
        Some(Endpoint {
            name: pool.name.clone(),
            address: address(prefix, pool.value("listen")?),
            path: pool.value("pm.status_path").map(str::to_owned),
        })
    };
    config.pools.iter().filter_map(endpoint).collect()
}

/// The logs that are files.
pub fn logs(config: &Config, prefix: &str) -> Vec<LogFile> {
    let log = |path: &str, kind, pool: Option<&str>| LogFile {
        path: absolute(prefix, path),
        kind,
        scope: pool.map(|pool| SettingScope::Pool(pool.to_owned()).to_string()),
        format: None,
    };
    let error = config.global.value("error_log").filter(|path| *path != "syslog");
    let mut logs: Vec<LogFile> = error.map(|path| log(path, LogKind::Error, None)).into_iter().collect();
    for pool in &config.pools {
        let of = |key: &str, kind| Some(log(pool.value(key)?, kind, Some(&pool.name)));
        logs.extend(of("slowlog", LogKind::Slow));
        logs.extend(of("access.log", LogKind::Access));
        if let Some(placed) = pool.php("error_log").filter(|placed| !placed.value.is_empty()) {
            logs.push(log(&placed.value, LogKind::Error, Some(&pool.name)));
        }
    }
    logs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, values: &[(&str, &str)]) -> Section {
        let placed = |(line, (key, value)): (u32, &(&str, &str))| Placed {
            key: (*key).into(),
            value: (*value).into(),
            file: "/x.conf".into(),
            line,
        };
        Section { name: name.into(), values: (1..).zip(values).map(placed).collect() }
    }

    fn config(values: &[(&str, &str)]) -> Config {
        Config { pools: vec![section("www", values)], ..Config::default() }
    }

    #[test]
    fn pools_have_values_and_defaults() {
        let config = config(&[
            ("listen", "/run/x.sock"),
            ("pm", "dynamic"),
            ("pm.min_spare_servers", "2"),
            ("pm.max_spare_servers", "9"),
            ("env[DB_PASSWORD]", "s3cret"),
            ("php_admin_value[memory_limit]", "32M"),
            ("php_value[mysqli.default_pw]", "s3cret"),
            ("slowlog", "log/slow"),
        ]);
        let scoped = scoped(&config);
        let value = |name: &str| {
            let found = scoped.iter().find(|setting| setting.setting == name)?;
            Some((found.value.as_str(), found.line))
        };
        assert_eq!(value("pm"), Some(("dynamic", Some(2))));
        assert_eq!(value("pm.start_servers"), Some(("5", None)));
        assert_eq!(value("pm.max_requests"), Some(("0", None)));
        assert_eq!(value("memory_limit"), Some(("32M", Some(6))));
        assert_eq!(value("pm.max_children"), None);
        assert!(!format!("{scoped:?}").contains("s3cret"), "{scoped:?}");
        assert_eq!(scoped[0].scope, ["pool www".into()]);
        assert_eq!(logs(&config, "/usr")[0].path, "/usr/log/slow");
    }

    #[test]
    fn addresses_are_told_in_one_way() {
        for (listen, expected) in [
            ("9000", "[::]:9000"),
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("[::1]:9000", "[::1]:9000"),
            ("*:9000", "0.0.0.0:9000"),
            ("localhost:9000", "localhost:9000"),
            ("/run/x.sock", "unix:/run/x.sock"),
            ("run/x.sock", "unix:/usr/run/x.sock"),
            ("x.sock", "unix:/usr/x.sock"),
        ] {
            assert_eq!(address("/usr", listen), expected, "{listen}");
        }
    }
}
