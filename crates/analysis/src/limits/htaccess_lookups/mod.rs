//! `htaccess-lookups`: for each request Apache looks for `.htaccess` files, and reads those that it finds.
//!
//! Where `AllowOverride` is not `None`, every folder on the way to a file may have rules of its own. Apache asks the kernel
//! for a file in each of them, opens and reads those that are there, and keeps nothing for the next request: thousands of
//! lines of redirects are worked through thousands of times a second.
//!
//! ## How it is recognised
//! The setting is in force where requests go, the service's processors are full, it sends files (there is no program
//! behind it), and yet a request takes several times the processor time that sending a file takes. That a `.htaccess` is
//! there makes it likely that its rules are what costs the time; that no other costs are in sight (encryption, the error
//! log, modules that look into requests) makes it sure. The setting alone is no finding: looking for a file that is not
//! there takes a microsecond or two, and many sites with `AllowOverride All` are limited by something else.
//!
//! ## What to do
//! Move the rules into a `<Directory>` section of the server's configuration, where they are read once, and set
//! `AllowOverride None`. Without moving them the site loses redirects and protections, so this is never done unasked: `tune` proposes
//! it with the folder, and names the files whose rules would be lost, or says that there are none; `--export` writes the change.
//!
//! ## By hand
//! `strace -f -e trace=openat -p PID 2>&1 | grep htaccess` shows the look-ups; `find /var/www -name .htaccess | xargs wc`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

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
    ..Limit::new(
        LimitId::HtaccessLookups,
        ".htaccess lookups for each request",
        include_str!("mod.rs"),
        finding::check,
    )
};
