//! Fewer open files than a process may need.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, Severity, apache, config_finding, located, remedy, whole_number,
};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// Files that a process of Apache has open besides: libraries' data, pipes, epoll, sockets of modules.
const OTHERS: f64 = 20.0;

/// Fewer open files than the connections, files and logs that one process may have.
pub(crate) fn fewer_files_than_connections(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts)?;
    let limit = facts.value(FactId::ahead_open_files_limit)?;
    let threads = facts.threads_per_process();
    let kept = match service.mode.as_deref() {
        // Beside one for each thread, so many as there are idle threads allow.
        Some("event") => threads * (1.0 + located(service, "AsyncRequestWorkerFactor")?.number()?),
        _ => threads,
    };
    // Each thread has its connection, and a file or a connection to a backend.
    let needed = kept + threads + service.logs.len() as f64 + OTHERS;
    (limit < needed).then_some(())?;
    let summary = format!(
        "An Apache process may open {} files and needs up to {}: {} connections, {} files or backends and {} logs beside \
         its own. At the limit requests fail, or Apache ends.",
        format_number(limit),
        format_number(needed),
        format_number(kept),
        format_number(threads),
        service.logs.len()
    );
    let wanted = (2.0 * needed).max(8192.0);
    let mut remedy = remedy(
        SettingId::of_service("systemd", "LimitNOFILE"),
        (Some(whole_number(limit)), whole_number(wanted)),
        ApplyClass::Manual,
        ("twice what a process needs, at least Debian's own value".into(), "a restart of the service"),
    );
    remedy.from = Some(whole_number(limit));
    let cited = facts.cite(&[FactId::ahead_open_files_limit, FactId::ahead_open_files_max]);
    Some(config_finding((Severity::Fails, 0.8), LimitId::OpenFilesExhausted, summary, cited, remedy))
}
