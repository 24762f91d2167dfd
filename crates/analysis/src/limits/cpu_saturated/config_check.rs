//! Children of PHP-FPM that end after a few requests: `pm.max_requests`.
//!
//! The end of a child and the start of another (fork(2), exit(2), the modules of PHP) take a millisecond of CPU time and more, and the
//! child begins with cold caches of its own. PHP's default is 0, without end, and the example of its www.conf 500:
//! <https://www.php.net/manual/en/install.fpm.configuration.php#pm.max-requests>.

use super::child_turnover::{SETTING, WANTED};
use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, Severity, all_located_settings, config_finding, fact, remedy, whole_number,
};
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// Up to so many requests, starting children takes a tenth of a millisecond of each request and more: a tenth of a short script.
const REQUESTS_MAX: f64 = 10.0;

/// Children that end after so few requests that starting others shows.
pub(crate) fn few_requests(facts: &Facts) -> Option<ConfigFinding> {
    let pools = facts.backends("php_fpm").chain(facts.service.iter().filter(|one| one.service == "php_fpm"));
    let all = pools.flat_map(|service| all_located_settings(service, SETTING));
    let is_few = |requests: f64| (1.0..=REQUESTS_MAX).contains(&requests);
    let found = all.into_iter().find(|located| located.number().is_some_and(is_few))?;
    let times = match found.number() {
        Some(1.0) => "each request".to_owned(),
        _ => format!("{} requests", found.value),
    };
    let summary = format!(
        "{SETTING} is {}: a child of PHP-FPM ends after {times}, and starting another takes at least 1 ms of CPU time.",
        found.with_location()
    );
    let remedy = remedy(
        SettingId::of_service("php_fpm", SETTING),
        (Some(found.value.clone()), whole_number(WANTED as f64)),
        ApplyClass::Reload,
        (
            "as in the example of PHP's www.conf; 0 is without end".into(),
            "what a child leaks it keeps for as many requests",
        ),
    );
    let cited = fact(SETTING, "requests", &found).into_iter().collect();
    Some(config_finding((Severity::Slow, 0.8), LimitId::CpuSaturated, summary, cited, remedy))
}
