//! Rules: one file per bottleneck. The doc comment of a file is the manual's chapter on it (`webdyno explain ID`).
//!
//! A rule fires on a proven limit, never on a ratio that merely looks unusual, and cites the facts it rests on.
//! To add one: a new file with `ID`, `BRINGS_ABOUT`, `check` and its tests, and one line in [`ALL`]. What it looks at is a
//! row of [`crate::facts`].

use crate::facts::Facts;
use webdyno_model::diagnosis::Finding;

pub mod accept_queue_overflow;
pub mod apache_async_cap;
pub mod apache_negotiation;
pub mod apache_scoreboard_full;
pub mod apache_setting_clamped;
pub mod apache_spawn_lag;
pub mod apache_symlink_checks;
pub mod apache_worker_churn;
pub mod apache_workers_exhausted;
pub mod backend_refused;
pub mod conntrack_full;
pub mod cpu_saturated;
pub mod cpu_stolen;
pub mod cpu_throttled;
pub mod db_cache_too_small;
pub mod db_connection_memory;
pub mod db_connections_exhausted;
pub mod db_lock_contention;
pub mod db_slow_queries;
pub mod db_thread_churn;
pub mod ephemeral_ports_exhausted;
pub mod foreign_load;
pub mod generator_saturated;
pub mod healthy;
pub mod hostname_lookups;
pub mod htaccess_lookups;
pub mod keepalive_holds_workers;
pub mod keepalive_ineffective;
pub mod kernel_limit_total;
pub mod log_io;
pub mod log_verbosity;
pub mod lost_syns;
pub mod memory_exhausted;
pub mod network_saturated;
pub mod nic_negotiated_low;
pub mod opcache_full;
pub mod opcache_off;
pub mod open_files_exhausted;
pub mod php_fpm_workers_exhausted;
pub mod process_limit;
pub mod proxy_loopback;
pub mod rate_limited;
pub mod slow_clients;
pub mod softirq_bound;
pub mod syn_queue_overflow;
pub mod time_wait_overflow;
pub mod tls_handshakes;
pub mod unknown;
pub mod upstream_bandwidth;
pub mod worker_memory_growth;
pub mod working_set_exceeds_memory;

/// A rule: a name, its chapter of the manual, and a pure function.
pub struct Rule {
    /// Stable id.
    pub id: &'static str,
    /// The source of its file; the manual's text is the `//!` head.
    source: &'static str,
    /// Ids of findings that it brings about: they are listed behind it, as they go with it.
    pub brings_about: &'static [&'static str],
    /// Whether it fires.
    pub check: fn(&Facts) -> Option<Finding>,
}

macro_rules! rule {
    ($module:ident) => {
        Rule {
            id: $module::ID,
            source: include_str!(concat!(stringify!($module), ".rs")),
            brings_about: $module::BRINGS_ABOUT,
            check: $module::check,
        }
    };
}

/// Every rule. Where two explain equally much, the earlier one is the answer.
pub const ALL: &[Rule] = &[
    rule!(kernel_limit_total),
    rule!(generator_saturated),
    rule!(db_connection_memory),
    rule!(worker_memory_growth),
    rule!(memory_exhausted),
    rule!(working_set_exceeds_memory),
    rule!(open_files_exhausted),
    rule!(process_limit),
    rule!(cpu_throttled),
    rule!(cpu_stolen),
    rule!(softirq_bound),
    rule!(foreign_load),
    rule!(db_connections_exhausted),
    rule!(db_lock_contention),
    rule!(db_cache_too_small),
    rule!(db_slow_queries),
    rule!(db_thread_churn),
    rule!(opcache_off),
    rule!(opcache_full),
    rule!(php_fpm_workers_exhausted),
    rule!(backend_refused),
    rule!(hostname_lookups),
    rule!(htaccess_lookups),
    rule!(apache_symlink_checks),
    rule!(apache_negotiation),
    rule!(log_verbosity),
    rule!(tls_handshakes),
    rule!(log_io),
    rule!(cpu_saturated),
    rule!(keepalive_holds_workers),
    rule!(apache_async_cap),
    rule!(apache_scoreboard_full),
    rule!(apache_setting_clamped),
    rule!(apache_worker_churn),
    rule!(apache_spawn_lag),
    rule!(proxy_loopback),
    rule!(rate_limited),
    rule!(slow_clients),
    rule!(keepalive_ineffective),
    rule!(apache_workers_exhausted),
    rule!(accept_queue_overflow),
    rule!(conntrack_full),
    rule!(syn_queue_overflow),
    rule!(ephemeral_ports_exhausted),
    rule!(nic_negotiated_low),
    rule!(network_saturated),
    rule!(upstream_bandwidth),
    rule!(lost_syns),
    rule!(time_wait_overflow),
    rule!(healthy),
    rule!(unknown),
];

/// Findings that say why answers are errors.
pub(crate) const MAKE_ERRORS: [&str; 2] = [db_connections_exhausted::ID, backend_refused::ID];

impl Rule {
    /// The manual's chapter.
    pub fn manual(&self) -> String {
        let lines = self.source.lines().take_while(|line| line.starts_with("//!"));
        let text: Vec<&str> = lines.map(|line| line[3..].strip_prefix(' ').unwrap_or(&line[3..])).collect();
        format!("{}\n", text.join("\n").trim_end())
    }
}

/// The rule of this id.
pub fn by_id(id: &str) -> Option<&'static Rule> {
    ALL.iter().find(|rule| rule.id == id)
}

/// What is explained by first packets that are dropped: the share of the time in which connections are begun in vain.
fn explained_by_connecting(facts: &Facts) -> Option<f64> {
    facts.value("connecting_fraction").map(|share| webdyno_model::number::significant(share, 3))
}

/// Formats a figure for a sentence: `24,840,500`, `750`, `12.3`, `0.045`.
pub(crate) fn say(value: f64) -> String {
    let rounded = webdyno_model::number::significant(value, 3);
    if rounded.abs() < 1000.0 {
        return format!("{rounded}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + 4);
    for (at, digit) in digits.chars().enumerate() {
        let follows = text.ends_with(|last: char| last.is_ascii_digit());
        // Four digits are read at a glance.
        if follows && value.abs() >= 1e4 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats microseconds for a sentence.
pub(crate) fn say_us(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", say(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", say(us / 1e3)),
        us => format!("{} us", say(us)),
    }
}

/// Formats bytes for a sentence.
pub(crate) fn say_bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{} GB", say(bytes / 1e9)),
        bytes if bytes >= 1e6 => format!("{} MB", say(bytes / 1e6)),
        bytes => format!("{} kB", say(bytes / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_chapter_that_names_it() {
        for rule in ALL {
            let manual = rule.manual();
            assert!(manual.starts_with(&format!("`{}`", rule.id)), "{manual}");
            for part in ["## How it is recognised", "## What to do", "## By hand"] {
                assert!(manual.contains(part), "{}: no `{part}`", rule.id);
            }
        }
    }

    #[test]
    fn figures_are_read_at_a_glance() {
        for (value, text) in [
            (0.0451, "0.0451"),
            (12.34, "12.3"),
            (1234.0, "1234"),
            (24_840_500.0, "24,840,500"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(say(value), text);
        }
    }

    #[test]
    fn ids_are_unique() {
        let ids: std::collections::BTreeSet<_> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), ALL.len());
    }
}
