//! `log-verbosity`: so many lines go to the error log that writing them is most of the server's work.
//!
//! A debugging log level (`debug`, `trace1` to `trace8`, for all modules or for one such as `rewrite:trace8`) writes lines for
//! each request, thousands of them if there are many rules. Each costs CPU time and a write, and the disk fills.
//!
//! ## How it is recognised
//! Such a level is in force for the requested paths, the error log grows by lines that are no errors, and writing them takes a
//! large share of the service's CPU time while CPU is short; or the disk of the logs is busy with them. Where the log cannot be
//! read, a level of trace4 and more while CPU is short is most likely why, a lower one may be.
//!
//! ## What to do
//! `LogLevel warn`, for all modules. If the lines are needed, only for the part of the site or the address under investigation
//! (`LogLevel` may be set in `<Directory>` and `<If>`).
//!
//! ## By hand
//! `grep -ri loglevel /etc/apache2`; `ls -l /var/log/apache2/error.log` twice, some seconds apart.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind, LimitWork};
use webdyno_model::processor_time::ProcessorWork;

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_per_request_us, error_log_bytes_per_s, log_disk_busy_fraction, log_disk_written_bytes_per_s,
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
    work: Some(LimitWork {
        certain: &[ProcessorWork::Logging],
        possible: &[
            ProcessorWork::FileSystem,
            ProcessorWork::Server,
            ProcessorWork::Memory,
            ProcessorWork::Copy,
            ProcessorWork::Kernel,
        ],
    }),
    gain: Some(LimitGain::Cost),
    ..Limit::of(LimitId::LogVerbosity, "Log level too verbose", finding::check)
};
