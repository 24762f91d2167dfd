//! What every request pays for: names of clients, looks into folders, lines in the log.

use super::{Contradiction, Placed, Severity, apache, contradiction, placed, placed_in, remedy};
use crate::facts::Facts;
use webdyno_model::change::ApplyClass;
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// Values of a setting wherever it stands, the whole server first.
fn everywhere(service: &ServiceSnapshot, setting: &str) -> Vec<Placed> {
    placed(service, setting).into_iter().chain(placed_in(service, setting, |_| true)).collect()
}

fn text(value: &str) -> SettingValue {
    SettingValue::Text(value.into())
}

/// LogLevel debug or trace, of all modules or of one.
pub(crate) fn verbose_log(facts: &Facts) -> Option<Contradiction> {
    let is_verbose = |placed: &Placed| {
        let value = placed.value.to_string().to_ascii_lowercase();
        let mut levels = value.split_ascii_whitespace().map(|one| one.rsplit(':').next().unwrap_or(one));
        levels.any(|level| level == "debug" || level.starts_with("trace"))
    };
    let found = everywhere(apache(facts)?, "LogLevel").into_iter().find(is_verbose)?;
    let summary = format!(
        "LogLevel is {}: each request writes many lines to the error log, which takes processor time and fills the disk.",
        found.told()
    );
    let remedy = remedy(
        ("apache", "LogLevel"),
        (Some(found.value), text("warn")),
        ApplyClass::Reload,
        (
            "the default; raise it for one module, and for as long as it is looked for".into(),
            "fewer lines to look for causes in",
        ),
    );
    Some(contradiction((Severity::Slow, 0.8), "log-verbosity", summary, vec![], remedy))
}

/// HostnameLookups On or Double.
pub(crate) fn host_names(facts: &Facts) -> Option<Contradiction> {
    let asks =
        |placed: &Placed| ["on", "double"].contains(&placed.value.to_string().to_ascii_lowercase().as_str());
    let found = everywhere(apache(facts)?, "HostnameLookups").into_iter().find(asks)?;
    let summary = format!(
        "HostnameLookups is {}: for each client Apache asks a name server and holds a worker until that answers.",
        found.told()
    );
    let remedy = remedy(
        ("apache", "HostnameLookups"),
        (Some(found.value), text("Off")),
        ApplyClass::Reload,
        (
            "names can be looked up in the log afterwards, with logresolve".into(),
            "logs have addresses instead of names",
        ),
    );
    Some(contradiction((Severity::Slow, 0.8), "hostname-lookups", summary, vec![], remedy))
}

/// AllowOverride over the documents: .htaccess is looked for in each folder of a path, for each request.
pub(crate) fn overrides(facts: &Facts) -> Option<Contradiction> {
    let over_documents = |scope: &[String]| scope.iter().any(|part| part.starts_with("DocumentRoot "));
    let found = placed_in(apache(facts)?, "AllowOverride", over_documents);
    let allows = |placed: &Placed| !placed.value.to_string().eq_ignore_ascii_case("none");
    let found = found.into_iter().find(allows)?;
    let summary = format!(
        "AllowOverride is {} over the documents: for each request Apache looks for .htaccess in every folder of the path, \
         and reads those that it finds.",
        found.told()
    );
    let remedy = remedy(
        ("apache", "AllowOverride"),
        (Some(found.value), text("None")),
        ApplyClass::Manual,
        (
            "rules in the server's own files are read once, at the start".into(),
            "rules in .htaccess no longer hold: move them first",
        ),
    );
    Some(contradiction((Severity::Slow, 0.6), "htaccess-lookups", summary, vec![], remedy))
}
