//! A log that writes lines for each request.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, all_located_settings, apache, config_finding, remedy,
};
use webdyno_model::change::ApplyClass;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// LogLevel debug or trace, of all modules or of one.
pub(crate) fn verbose_log(facts: &Facts) -> Option<ConfigFinding> {
    let is_verbose = |located: &LocatedSetting| {
        let value = located.value.to_string().to_ascii_lowercase();
        let mut levels = value.split_ascii_whitespace().map(|one| one.rsplit(':').next().unwrap_or(one));
        levels.any(|level| level == "debug" || level.starts_with("trace"))
    };
    let found = all_located_settings(apache(facts)?, "LogLevel").into_iter().find(is_verbose)?;
    let summary = format!(
        "LogLevel is {}: each request writes many lines to the error log, which takes CPU time and fills the disk.",
        found.with_location()
    );
    let remedy = remedy(
        SettingId::of_service("apache", "LogLevel"),
        (Some(found.value), SettingValue::Text("warn".into())),
        ApplyClass::Reload,
        ("the default; raise it for one module only, while debugging".into(), "fewer lines for debugging"),
    );
    Some(config_finding((Severity::Slow, 0.8), LimitId::LogVerbosity, summary, vec![], remedy))
}
