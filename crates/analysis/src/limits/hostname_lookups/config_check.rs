//! Names of clients that are looked up for each connection.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, all_located_settings, apache, config_finding, remedy,
};
use webdyno_model::change::ApplyClass;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// HostnameLookups On or Double.
pub(crate) fn host_names(facts: &Facts) -> Option<ConfigFinding> {
    let asks = |located: &LocatedSetting| {
        ["on", "double"].contains(&located.value.to_string().to_ascii_lowercase().as_str())
    };
    let found = all_located_settings(apache(facts)?, "HostnameLookups").into_iter().find(asks)?;
    let summary = format!(
        "HostnameLookups is {}: Apache does a DNS lookup for each client and holds a worker until it is done.",
        found.with_location()
    );
    let remedy = remedy(
        SettingId::of_service("apache", "HostnameLookups"),
        (Some(found.value), SettingValue::Text("Off".into())),
        ApplyClass::Reload,
        (
            "names can be looked up later from the log, with logresolve".into(),
            "logs show addresses instead of names",
        ),
    );
    Some(config_finding((Severity::Slow, 0.8), LimitId::HostnameLookups, summary, vec![], remedy))
}
