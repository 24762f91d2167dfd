//! Limits: one folder for each. The doc comment of its `mod.rs` is the manual's chapter on it (`webdyno explain ID`).
//!
//! A rule fires on a proven limit, never on a ratio that merely looks unusual, and cites the facts it rests on.
//! To add one: a folder whose `mod.rs` has `ID` and `CAUSES`, with `finding.rs` (`check` and its tests), and one line in
//! [`ALL`]. What it looks at is a row of [`crate::facts`].

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
pub mod ceiling;
pub(crate) mod common;
pub mod config_check;
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
pub(crate) mod manual_remedy;
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

use crate::facts::Facts;
use webdyno_model::diagnosis::Finding;

/// A rule: a name, its chapter of the manual, and a pure function.
pub struct Rule {
    /// Stable id.
    pub id: &'static str,
    /// The source of its file; the manual's text is the `//!` head.
    source: &'static str,
    /// Ids of findings that it brings about: they are listed behind it, as they go with it.
    pub causes: &'static [&'static str],
    /// Whether it fires.
    pub check: fn(&Facts) -> Option<Finding>,
}

macro_rules! rule {
    ($module:ident) => {
        Rule {
            id: $module::ID,
            source: include_str!(concat!(stringify!($module), "/mod.rs")),
            causes: $module::CAUSES,
            check: $module::finding::check,
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
    fn ids_are_unique() {
        let ids: std::collections::BTreeSet<_> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), ALL.len());
    }
}
