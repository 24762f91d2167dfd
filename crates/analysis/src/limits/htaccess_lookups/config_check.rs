//! Files of rules that are looked for in each folder, for each request.

use super::ALLOWING;
use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, apache, config_finding, located_in, remedy,
};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::{SettingScope, SettingValue};
use webdyno_model::setting::SettingId;

/// AllowOverride, or AllowOverrideList, over the documents: .htaccess is looked for in each folder of a path, for each request.
pub(crate) fn overrides(facts: &Facts) -> Option<ConfigFinding> {
    let over_documents =
        |scope: &[SettingScope]| scope.iter().any(|part| matches!(part, SettingScope::DocumentRoot(_)));
    let service = apache(facts)?;
    let allows = |located: &LocatedSetting| !located.value.to_string().eq_ignore_ascii_case("none");
    let mut all = ALLOWING
        .into_iter()
        .filter_map(|name| Some((name, located_in(service, name, over_documents).into_iter().find(allows)?)));
    let (name, found) = all.next()?;
    let none = || SettingValue::Text("None".into());
    let id = |name: &str| SettingId::of_service("apache", name);
    let others = all.map(|(name, _)| SettingChange { setting: id(name), to: none() }).collect();
    let summary = format!(
        "{name} is {} for the documents: for each request Apache looks for .htaccess in every folder of the path, \
         and reads those that it finds.",
        found.with_location()
    );
    let first = remedy(
        id(name),
        (Some(found.value), none()),
        ApplyClass::Manual,
        (
            "rules in the server's own files are read once, at startup".into(),
            "rules in .htaccess no longer apply: move them first",
        ),
    );
    let remedy = Remedy { together_with: others, ..first };
    Some(config_finding((Severity::Slow, 0.6), LimitId::HtaccessLookups, summary, vec![], remedy))
}
