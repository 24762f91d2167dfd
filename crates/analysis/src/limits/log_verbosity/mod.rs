//! `log-verbosity`: the error log is told so much that writing it is what the server does.
//!
//! A log level from a search for a bug (`debug`, `trace1` to `trace8`, for all modules or for one such as
//! `rewrite:trace8`) writes lines for each request, thousands of them where there are many rules. Each costs the work of
//! putting it together and a write, and the disk fills.
//!
//! ## How it is recognised
//! Such a level is in force where requests go, the error log grows by lines that are no errors, and the time it takes to
//! write them is a good part of the service's processor time, which is what is short; or the disk of the logs is busy
//! with them.
//!
//! ## What to do
//! `LogLevel warn`, for all modules. Where the lines are needed, only for the part of the site or the address that is
//! looked at (`LogLevel` may stand in `<Directory>` and `<If>`).
//!
//! ## By hand
//! `grep -ri loglevel /etc/apache2`; `ls -l /var/log/apache2/error.log` twice, some seconds apart.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_per_request_us, error_log_bytes_per_s, log_disk_busy_fraction,
        pressure_group_cpu_some_fraction, rate, service_cores_limit, service_cpu_cores,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::LogIo,
    ],
    config_checks: &[config_check::verbose_log],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    gain: Some(LimitGain::Cost),
    ..Limit::new(LimitId::LogVerbosity, "Log level too verbose", include_str!("mod.rs"), finding::check)
};
