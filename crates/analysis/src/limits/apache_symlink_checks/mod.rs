//! `apache-symlink-checks`: for each request Apache checks whether directories on the path are symbolic links.
//!
//! Without `FollowSymLinks` in `Options`, or with `SymLinksIfOwnerMatch`, Apache must know that no part of a path is a symbolic
//! link (or who owns it), and checks each part for each request: an lstat(2), for which the kernel walks the path from its
//! root. A path of twice the depth costs four times as much.
//!
//! ## How it is recognised
//! The option is not in force where requests go, the service saturates its CPUs, it serves files, and by arithmetic the checks
//! are a good part of the cost of a request: one call per part of the path, and one step per part before it. On paths of usual
//! depth that is a few microseconds, and no finding. Without a load the access log shows how deep paths are; without it, CPU
//! time that is nearly all kernel time is a suspicion.
//!
//! ## What to do
//! `Options FollowSymLinks` (or `+FollowSymLinks`), provided that nobody can create links there that must not be followed. The
//! check is no protection against someone who can: a link may be created between the check and the open.
//!
//! `tune --apply` sets it for the site's directory where the check protects from nobody: there are no links below it, and its
//! directories belong to root (or to the user that Apache runs as throughout) and nobody else may write to them. Otherwise, and
//! wherever `SymLinksIfOwnerMatch` was configured, it is proposed, with the reason against it.
//!
//! ## By hand
//! `strace -c -f -p PID` counts the lstat (newfstatat) calls; `perf top` shows path walks (`link_path_walk`).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind, LimitWork};
use webdyno_model::processor_time::ProcessorWork;

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! { path_parts_mean }, &crate::resources::file_cost::FACTS],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    work: Some(LimitWork { certain: &[], possible: &[ProcessorWork::FileSystem, ProcessorWork::Kernel] }),
    ..Limit::of(LimitId::ApacheSymlinkChecks, "Symbolic link checks for each request", finding::check)
};
