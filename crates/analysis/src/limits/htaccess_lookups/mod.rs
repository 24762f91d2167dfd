//! `htaccess-lookups`: for each request Apache looks for `.htaccess` files, and reads those that it finds.
//!
//! If `AllowOverride` is not `None`, every folder on the path to a file may have rules of its own. Apache tries to open a file
//! in each of them, reads those that exist, and caches nothing for the next request: thousands of lines of redirects are
//! processed thousands of times a second. A directive in `AllowOverrideList` does the same, also beside `AllowOverride None`.
//!
//! ## How it is recognised
//! The setting is in force for the requested paths, the service's CPU is saturated, it sends files (there is no program behind
//! it), and yet a request takes several times the CPU time of sending a file. An existing `.htaccess` makes its rules the
//! likely cause; that no other costs are in sight (encryption, the error log, modules that inspect requests) confirms it. Where
//! samples of what the processors do show that a fifth of the time and more goes into reading settings and compiling their
//! patterns, it is found whatever makes the responses. The setting alone is no finding: looking for a file that does not exist
//! takes a microsecond or two, and many sites with `AllowOverride All` have another limit.
//!
//! ## What to do
//! Move the rules into a `<Directory>` section of the server's configuration, which is read once, and set `AllowOverride None`, and
//! `AllowOverrideList None` where there is a list.
//! Without the move the site loses redirects and protections, so this is never applied unasked: `tune` proposes it with the
//! folder, and names the files whose rules would be lost, or reports that there are none; `--export` writes the change.
//!
//! ## By hand
//! `strace -f -e trace=openat -p PID 2>&1 | grep htaccess` shows the lookups; `find /var/www -name .htaccess | xargs wc`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind, LimitWork};
use webdyno_model::processor_time::ProcessorWork;

/// What makes Apache look for the files, each by itself, where it is not `None` (`ap_directory_walk` in server/request.c).
const ALLOWING: [&str; 2] = ["AllowOverride", "AllowOverrideList"];

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&crate::resources::file_cost::FACTS],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    config_checks: &[config_check::overrides],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    work: Some(LimitWork {
        certain: &[ProcessorWork::Settings],
        possible: &[
            ProcessorWork::Rewriting,
            ProcessorWork::Server,
            ProcessorWork::FileSystem,
            ProcessorWork::Memory,
            ProcessorWork::Copy,
            ProcessorWork::Kernel,
        ],
    }),
    ..Limit::of(LimitId::HtaccessLookups, ".htaccess lookups for each request", finding::check)
};
