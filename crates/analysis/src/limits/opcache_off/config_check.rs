//! An opcode cache that is off.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, config_finding, fact, located, located_in, remedy, whole_number,
};
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// Every script is compiled anew for each request.
pub(crate) fn opcache_off(facts: &Facts) -> Option<ConfigFinding> {
    let services = facts.backends("php_fpm").chain(&facts.service);
    let off = services.flat_map(|service| {
        let scoped = located_in(service, "opcache.enable", |_| true);
        let all = located(service, "opcache.enable").into_iter().chain(scoped);
        all.map(|located| (service.service.clone(), located)).collect::<Vec<_>>()
    });
    let is_off = |located: &LocatedSetting| {
        let value = located.value.to_string().to_ascii_lowercase();
        ["0", "off", "no", "false", ""].contains(&value.as_str())
    };
    let (service, found) = off.into_iter().find(|(_, located)| is_off(located))?;
    let summary = format!(
        "opcache.enable is {}: PHP reads and compiles every script again for each request, which takes more CPU time \
         than most of them need to run.",
        found.with_location()
    );
    let service = if service == "apache" { "php" } else { "php_fpm" };
    let remedy = remedy(
        SettingId::of_service(service, "opcache.enable"),
        (Some(found.value.clone()), whole_number(1.0)),
        ApplyClass::Reload,
        (
            "compiled scripts are kept in memory that all processes share".into(),
            "a replaced script is seen after opcache.revalidate_freq seconds",
        ),
    );
    let cited = fact("opcache.enable", "bool", &found).into_iter().collect();
    Some(config_finding((Severity::Slow, 0.9), LimitId::OpcacheOff, summary, cited, remedy))
}
