//! `apache-symlink-checks`: for each request the kernel is asked whether folders on the way are links.
//!
//! Where `Options` lacks `FollowSymLinks`, or has `SymLinksIfOwnerMatch`, Apache must know that no part of a path is a
//! link (or whose it is), and asks the kernel about each part, for each request: an lstat(2), for which the kernel walks the
//! path from its beginning. A path of twice the depth costs four times as much.
//!
//! ## How it is recognised
//! The option is not in force where requests go, the service's processors are full, it sends files, and by arithmetic the
//! checks are a good part of what a request costs: a call for each part of the path, and a step for each part before it.
//! On paths of usual depth that is a few microseconds, and no finding. Where the server is only watched the access log tells
//! how deep paths are; without it, work that is nearly all the kernel's is a suspicion.
//!
//! ## What to do
//! `Options FollowSymLinks` (or `+FollowSymLinks`), where nobody can put links there that must not be followed. It is no
//! protection against somebody who can: between the check and the opening a link may be put in place.
//!
//! `tune --apply` sets it for the site's folder where it protects from nobody: no link lies below it, and its folders belong to
//! root (or to the user that Apache runs as throughout) and nobody else may write to them. Otherwise, and wherever somebody
//! asked for `SymLinksIfOwnerMatch`, it is proposed, with what speaks against it.
//!
//! ## By hand
//! `strace -c -f -p PID` counts the lstat (newfstatat) calls; `perf top` shows path walks (`link_path_walk`).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

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
    ..Limit::new(
        LimitId::ApacheSymlinkChecks,
        "Symbolic link checks for each request",
        include_str!("mod.rs"),
        finding::check,
    )
};
