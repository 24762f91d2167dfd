//! How to see by hand that a change is in force: in the file, and in what runs.
//!
//! Apache: the scoreboard of `server-status?auto` has one character for each place of a worker
//! (https://httpd.apache.org/docs/2.4/mod/mod_status.html).

use super::markdown::Markdown;
use super::quoted;
use super::rounds::AttemptedChange;
use webdyno_model::change::Change;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::{SettingId, Target};

/// The commands, each with what it shows then. Of a setting that was changed twice the last
/// value counts.
pub(super) fn section(
    page: &mut Markdown,
    service: Option<&ServiceSnapshot>,
    stayed: &[&AttemptedChange<'_>],
) {
    let mut last: Vec<&Change> = vec![];
    for change in stayed.iter().flat_map(|attempt| attempt.changes) {
        last.retain(|other| (&other.setting, &other.server) != (&change.setting, &change.server));
        last.push(change);
    }
    if last.is_empty() {
        return;
    }
    page.heading("How to verify");
    let in_file = last.iter().map(|change| in_file(change));
    let running = last.iter().filter_map(|change| running_value(change, service?));
    let lines: Vec<String> = in_file.chain(running).collect();
    page.code("", lines.iter().map(String::as_str));
}

fn in_file(change: &Change) -> String {
    let (setting, file) = (quoted(&change.setting.name), quoted(&change.file));
    let on = change.server.as_ref().map(|role| format!(", on {role}")).unwrap_or_default();
    // Only what is added to a unit names it.
    if matches!(change.setting.target, Target::ProcessLimit(_)) && !change.file.contains(".service.d/") {
        return format!("cat {file}  # {} {}{on}", change.setting.name, change.to);
    }
    format!("grep -n {setting} {file}  # {} {}{on}", change.setting.name, change.to)
}

/// What the running program shows of a setting; `None` when it shows nothing of it.
fn running_value(change: &Change, service: &ServiceSnapshot) -> Option<String> {
    let url = service
        .status_url
        .as_ref()
        .filter(|_| service.service == change.setting.target.name() && change.server.is_none())?;
    let of_workers = change.setting == SettingId::of_service("apache", "MaxRequestWorkers");
    of_workers.then(|| {
        let page = quoted(&format!("{url}?auto"));
        let count = format!("curl -s {page} | sed -n 's/^Scoreboard: //p' | tr -d '\\n' | wc -c");
        format!("{count}  # {}, or more while workers from before are there", change.to)
    })
}
