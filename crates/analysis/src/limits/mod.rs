//! Limits: one folder for each. The doc comment of its `mod.rs` is the manual's chapter on it (`webdyno explain ID`), its
//! `LIMIT` registers everything that is known of it ([`Limit`]).
//!
//! A limit is found when it is proven to bind, never for a ratio that merely looks unusual, and its finding cites the facts it
//! rests on. To add one: a folder whose `mod.rs` has the chapter and `LIMIT`, with `finding.rs` (`check` and its tests), and one
//! line below. What it reads is a row of [`crate::facts`].

pub mod ceiling;
pub(crate) mod common;
pub mod config_check;
mod descriptor;
pub mod incident;
pub(crate) mod manual_remedy;
pub mod search_range;

pub use descriptor::{Limit, LimitGain, LimitKind, LimitWork};

use crate::facts::Facts;
use ceiling::ResourceCeiling;
use std::fmt;
use webdyno_model::diagnosis::{Ceiling, Finding};

macro_rules! limits {
    ($($module:ident $name:ident $id:literal;)+) => {
        $(pub mod $module;)+

        /// The id of a limit, as findings carry it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LimitId {
            $(#[doc = concat!("`", $id, "`")] $name,)+
        }

        impl LimitId {
            /// As it stands in findings and files.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }
        }

        /// Every limit. Where two explain equally much, the earlier one is the answer.
        pub static ALL: &[Limit] = &[$(
            Limit { source: include_str!(concat!(stringify!($module), "/mod.rs")), ..$module::LIMIT },
        )+];
    };
}

// A folder, the name of its id, and the id. `cargo fmt` does not follow modules in here: format them with
// `rustfmt --edition 2024 crates/analysis/src/limits/*/*.rs`.
limits! {
    kernel_limit_total KernelLimitTotal "kernel-limit-total";
    generator_saturated GeneratorSaturated "generator-saturated";
    db_connection_memory DbConnectionMemory "db-connection-memory";
    worker_memory_growth WorkerMemoryGrowth "worker-memory-growth";
    memory_exhausted MemoryExhausted "memory-exhausted";
    working_set_exceeds_memory WorkingSetExceedsMemory "working-set-exceeds-memory";
    open_files_exhausted OpenFilesExhausted "open-files-exhausted";
    nginx_connections_exhausted NginxConnectionsExhausted "nginx-connections-exhausted";
    lighttpd_connections_exhausted LighttpdConnectionsExhausted "lighttpd-connections-exhausted";
    process_limit ProcessLimit "process-limit";
    cpu_throttled CpuThrottled "cpu-throttled";
    cpu_stolen CpuStolen "cpu-stolen";
    softirq_bound SoftirqBound "softirq-bound";
    foreign_load ForeignLoad "foreign-load";
    db_connections_exhausted DbConnectionsExhausted "db-connections-exhausted";
    db_lock_contention DbLockContention "db-lock-contention";
    disk_commit_bound DiskCommitBound "disk-commit-bound";
    db_cache_too_small DbCacheTooSmall "db-cache-too-small";
    db_slow_queries DbSlowQueries "db-slow-queries";
    db_thread_churn DbThreadChurn "db-thread-churn";
    opcache_off OpcacheOff "opcache-off";
    opcache_full OpcacheFull "opcache-full";
    php_fpm_workers_exhausted PhpFpmWorkersExhausted "php-fpm-workers-exhausted";
    php_fpm_spawn_lag PhpFpmSpawnLag "php-fpm-spawn-lag";
    session_lock SessionLock "session-lock";
    file_lock_contention FileLockContention "file-lock-contention";
    single_thread_saturated SingleThreadSaturated "single-thread-saturated";
    app_workers_exhausted AppWorkersExhausted "app-workers-exhausted";
    proxy_pool_exhausted ProxyPoolExhausted "proxy-pool-exhausted";
    slow_upstream SlowUpstream "slow-upstream";
    backend_refused BackendRefused "backend-refused";
    hostname_lookups HostnameLookups "hostname-lookups";
    htaccess_lookups HtaccessLookups "htaccess-lookups";
    apache_symlink_checks ApacheSymlinkChecks "apache-symlink-checks";
    apache_negotiation ApacheNegotiation "apache-negotiation";
    log_verbosity LogVerbosity "log-verbosity";
    tls_handshakes TlsHandshakes "tls-handshakes";
    log_io LogIo "log-io";
    compression Compression "compression";
    nginx_workers_saturated NginxWorkersSaturated "nginx-workers-saturated";
    cpu_saturated CpuSaturated "cpu-saturated";
    keepalive_holds_workers KeepaliveHoldsWorkers "keepalive-holds-workers";
    apache_async_cap ApacheAsyncCap "apache-async-cap";
    apache_scoreboard_full ApacheScoreboardFull "apache-scoreboard-full";
    apache_setting_clamped ApacheSettingClamped "apache-setting-clamped";
    apache_worker_churn ApacheWorkerChurn "apache-worker-churn";
    apache_spawn_lag ApacheSpawnLag "apache-spawn-lag";
    proxy_loopback ProxyLoopback "proxy-loopback";
    rate_limited RateLimited "rate-limited";
    slow_clients SlowClients "slow-clients";
    slow_uploads SlowUploads "slow-uploads";
    keepalive_ineffective KeepaliveIneffective "keepalive-ineffective";
    apache_workers_exhausted ApacheWorkersExhausted "apache-workers-exhausted";
    accept_queue_overflow AcceptQueueOverflow "accept-queue-overflow";
    conntrack_full ConntrackFull "conntrack-full";
    syn_queue_overflow SynQueueOverflow "syn-queue-overflow";
    ephemeral_ports_exhausted EphemeralPortsExhausted "ephemeral-ports-exhausted";
    nic_negotiated_low NicNegotiatedLow "nic-negotiated-low";
    network_saturated NetworkSaturated "network-saturated";
    upstream_bandwidth UpstreamBandwidth "upstream-bandwidth";
    lost_syns LostSyns "lost-syns";
    time_wait_overflow TimeWaitOverflow "time-wait-overflow";
    healthy Healthy "healthy";
    unknown Unknown "unknown";
}

impl LimitId {
    /// The limit of this id; `None` when there is none.
    pub fn parse(id: &str) -> Option<Self> {
        by_id(id).map(|limit| limit.id)
    }

    /// What is registered of it.
    pub fn limit(self) -> &'static Limit {
        &ALL[self as usize]
    }
}

impl fmt::Display for LimitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<LimitId> for String {
    fn from(id: LimitId) -> Self {
        id.as_str().to_owned()
    }
}

impl PartialEq<LimitId> for String {
    fn eq(&self, id: &LimitId) -> bool {
        self == id.as_str()
    }
}

/// The limit of this id.
pub fn by_id(id: &str) -> Option<&'static Limit> {
    ALL.iter().find(|limit| limit.id.as_str() == id)
}

/// Whether a finding of this id says that something is wrong with the server or the load.
pub fn is_fault(id: &str) -> bool {
    by_id(id).is_none_or(|limit| limit.is_fault)
}

/// The ceilings that follow from these facts, with their findings, in the order of their resources.
pub fn resource_ceilings(facts: &Facts) -> Vec<ResourceCeiling> {
    let computed = ALL.iter().flat_map(|limit| limit.ceilings).filter_map(|ceiling| ceiling(facts));
    let mut all: Vec<_> = computed.map(|one| one.not_below_served(facts)).collect();
    all.sort_by_key(|ceiling| ceiling.resource);
    all
}

/// The same as they are shown.
pub fn ceilings(facts: &Facts) -> Vec<Ceiling> {
    let mut all = resource_ceilings(facts);
    let machine = ceiling::rate_of_machine(facts, &all);
    for one in &mut all {
        one.ceiling.is_remote = one.is_remote(machine);
    }
    all.into_iter().map(|one| one.ceiling).collect()
}

/// What checks of the settings alone find, the worst first; of equals the one of the later limit.
pub fn config_findings(facts: &Facts) -> Vec<Finding> {
    let checks = ALL.iter().rev().flat_map(|limit| limit.config_checks);
    let mut found: Vec<_> = checks.filter_map(|check| check(facts)).collect();
    found.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then(b.finding.confidence.total_cmp(&a.finding.confidence))
    });
    found.into_iter().map(|one| one.finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactId;
    use crate::facts::testing::facts;

    #[test]
    fn every_limit_has_a_chapter_that_names_it() {
        for limit in ALL {
            let manual = limit.manual();
            assert!(manual.starts_with(&format!("`{}`", limit.id)), "{manual}");
            for part in ["## How it is recognised", "## What to do", "## By hand"] {
                assert!(manual.contains(part), "{}: no `{part}`", limit.id);
            }
        }
    }

    /// Without an agent the same signs come of many limits. Statuses that mean one thing, and the generator's own limits, are another
    /// matter.
    #[test]
    fn what_only_a_client_sees_is_at_most_half_sure() {
        let cases: [(LimitId, &[(FactId, f64)]); 4] = [
            (
                LimitId::LostSyns,
                &[
                    (FactId::lost_syn_connections, 40.0),
                    (FactId::lost_syn_fraction, 0.2),
                    (FactId::connect_time_p99_us, 1.0e6),
                ],
            ),
            (
                LimitId::UpstreamBandwidth,
                &[
                    (FactId::received_bytes_per_s, 1.2e6),
                    (FactId::received_spread_fraction, 0.02),
                    (FactId::round_trip_mean_us, 400_000.0),
                    (FactId::round_trip_min_us, 900.0),
                    (FactId::receiving_fraction, 0.9),
                    (FactId::response_time_inflation, 2.0),
                ],
            ),
            (
                LimitId::BackendRefused,
                &[
                    (FactId::bad_gateway_fraction, 0.5),
                    (FactId::failed_fraction, 0.5),
                    (FactId::unavailable_fraction, 0.5),
                ],
            ),
            (
                LimitId::KeepaliveIneffective,
                &[
                    (FactId::connections_reused_fraction, 0.0),
                    (FactId::plain_requests_reused_fraction, 0.0),
                    (FactId::requests_per_connection, 1.0),
                    (FactId::connections_opened_per_s, 1000.0),
                    (FactId::ended_per_s, 1000.0),
                    (FactId::connect_time_mean_us, 5000.0),
                    (FactId::response_time_mean_us, 9000.0),
                ],
            ),
        ];
        for (id, values) in cases {
            let mut facts = facts(&[values, &[(FactId::rate, 500.0)]].concat(), &[]);
            facts.service = None;
            let found: Vec<Finding> = ALL.iter().filter_map(|limit| (limit.check)(&facts)).collect();
            assert!(found.iter().any(|one| one.id == id), "{id}");
            let sure: Vec<_> = found.iter().filter(|one| one.confidence > 0.5).map(|one| &one.id).collect();
            assert!(sure.is_empty(), "{id}: {sure:?}");
        }
    }

    #[test]
    fn every_folder_registers_itself_under_an_id_of_its_own() {
        let ids: std::collections::BTreeSet<_> = ALL.iter().map(|limit| limit.id.as_str()).collect();
        assert_eq!(ids.len(), ALL.len());
        for (place, limit) in ALL.iter().enumerate() {
            assert_eq!(limit.id as usize, place, "{} is registered in another folder", limit.id);
            assert_eq!(LimitId::parse(limit.id.as_str()), Some(limit.id));
        }
    }
}
