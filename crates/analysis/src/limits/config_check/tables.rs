//! Tables of the kernel and of processes that are smaller than what may come.

use super::{Contradiction, Severity, apache, contradiction, placed, remedy, whole};
use crate::facts::Facts;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;

const OPEN_FILES: &str = "open-files-exhausted";
const TRACKED: &str = "conntrack-full";

/// Files that a process of Apache has open besides: libraries' data, pipes, epoll, sockets of modules.
const OTHERS: f64 = 20.0;

/// Fewer open files than the connections, files and logs that one process may have.
pub(crate) fn open_files_below_connections(facts: &Facts) -> Option<Contradiction> {
    let service = apache(facts)?;
    let limit = facts.value("ahead_open_files_limit")?;
    let threads = facts.threads_per_process();
    let kept = match service.mode.as_deref() {
        // Beside one for each thread, so many as there are idle threads allow.
        Some("event") => threads * (1.0 + placed(service, "AsyncRequestWorkerFactor")?.number()?),
        _ => threads,
    };
    // Each thread has its connection, and a file or a connection to a backend.
    let needed = kept + threads + service.logs.len() as f64 + OTHERS;
    (limit < needed).then_some(())?;
    let summary = format!(
        "A process of Apache may have {} files open, and needs up to {}: {} connections, {} files or backends and {} logs \
         beside its own. Beyond the limit requests fail, or Apache ends.",
        format_number(limit),
        format_number(needed),
        format_number(kept),
        format_number(threads),
        service.logs.len()
    );
    let wanted = (2.0 * needed).max(8192.0);
    let mut remedy = remedy(
        ("systemd", "LimitNOFILE"),
        (Some(whole(limit)), whole(wanted)),
        ApplyClass::Manual,
        ("twice what a process needs, and not below Debian's own value".into(), "a restart of the service"),
    );
    remedy.from = Some(whole(limit));
    let cited = facts.cite(&["ahead_open_files_limit", "ahead_open_files_max"]);
    Some(contradiction((Severity::Fails, 0.8), OPEN_FILES, summary, cited, remedy))
}

/// A table of tracked connections that one client address alone can fill.
pub(crate) fn tracked_below_ports(facts: &Facts) -> Option<Contradiction> {
    let pairs = [
        ("ahead_tracked_service_limit", "ahead_tracked_service_max"),
        ("ahead_tracked_limit", "ahead_tracked_max"),
    ];
    let known = |(limit, used): &(&'static str, &'static str)| {
        Some((facts.value(limit)?, facts.value(used)?, *limit, *used))
    };
    let (limit, used, name, used_name) = pairs.iter().find_map(known)?;
    let ports = facts.value("ahead_ports_available")?;
    // Without a firewall nothing is tracked, and the limit is nobody's.
    (used > 0.0 && limit < ports).then_some(())?;
    let per_s = limit / crate::limits::conntrack_full::ceiling::LIVES_S;
    let summary = format!(
        "The table of tracked connections has {} places, and an entry lives for 120 s: {} new connections a second fill \
         it, although one client address alone may use {} ports.",
        format_number(limit),
        format_number(per_s),
        format_number(ports)
    );
    let remedy: Remedy = remedy(
        ("sysctl", "net.netfilter.nf_conntrack_max"),
        (Some(whole(limit)), whole(262_144.0)),
        ApplyClass::Live,
        (
            "2,184 new connections a second, which is what the table of TIME_WAIT sockets is made for".into(),
            "about 300 bytes of the kernel's memory for each entry in use",
        ),
    );
    let cited = facts.cite(&[name, used_name, "ahead_ports_available"]);
    Some(contradiction((Severity::Fails, 0.6), TRACKED, summary, cited, remedy))
}
