//! Where children of PHP-FPM end after so few requests that starting others is a good part of what PHP computes.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php#pm.max-requests> (against leaks of memory; 0 is without end,
//! and the example of Debian's www.conf is 500).

use crate::facts::Facts;
use crate::limits::manual_remedy::manual;
use crate::resources::{php_cost, php_fpm, setting_source};
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

pub(super) const SETTING: &str = "pm.max_requests";
pub(super) const WANTED: i64 = 500;
/// What the end of a child and the start of another take at least: fork(2), exit(2), and the modules of PHP once each.
const START_US: f64 = 1000.0;
/// Below this share of PHP's work nothing would be seen of it.
const SHARE_MIN: f64 = 0.1;

/// More requests for each child.
pub(super) fn remedy(facts: &Facts) -> Option<Remedy> {
    let pool = php_cost::busiest_pool(facts)?;
    let source = setting_source::pool_setting_source(facts, &pool, SETTING)?;
    let requests = source.number().filter(|count| *count >= 1.0)?;
    let work_us = php_cost::php_cost(facts)?.each_us?;
    let start_us = START_US / requests;
    (start_us >= SHARE_MIN * work_us).then_some(())?;
    let why = format!(
        "a child ends after {} requests: starting others takes at least {} of the {} of CPU time that PHP takes for each",
        format_number(requests),
        format_time(start_us),
        format_time(work_us)
    );
    let risk = format!(
        "what a child leaks it keeps for {WANTED} requests; {}",
        php_fpm::reload_risk(facts, Some(&pool))
    );
    let setting = SettingId::of_service("php_fpm", SETTING).of_pool(&pool);
    let mut remedy = Remedy {
        to: Some(SettingValue::Integer(WANTED)),
        class: ApplyClass::Reload,
        ..manual(setting, &risk, &why)
    };
    setting_source::add_source(&mut remedy, &source);
    Some(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactId;
    use crate::facts::testing::{facts, of_pool, with_changes};
    use crate::resources::php_fpm::tests::add_fpm_backend;

    #[test]
    fn children_that_end_at_once_serve_more_requests() {
        let base = [
            (FactId::fpm_cpu_cores, 1.5),
            (FactId::cores, 2.0),
            (FactId::cpu_busy_fraction, 0.97),
            (FactId::rate, 320.0),
        ];
        // 4.7 ms of PHP for each request.
        let with = |changes: &[(FactId, f64)], requests: &str| {
            let mut facts = facts(&with_changes(&base, changes), &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_queue_mean, 20.0)]);
            add_fpm_backend(&mut facts, &[], &[("www", SETTING, requests)]);
            remedy(&facts).map(|remedy| (remedy.setting.pool.is_some(), remedy.to))
        };
        assert_eq!(with(&[], "1"), Some((true, Some(SettingValue::Integer(500)))));
        for (changes, requests) in [
            (&[][..], "500"),
            (&[], "0"),
            // Pages that take long pay for their child.
            (&[(FactId::rate, 40.0)], "1"),
            (&[(FactId::fpm_cpu_cores, f64::NAN)], "1"),
        ] {
            assert_eq!(with(changes, requests), None, "{changes:?} {requests}");
        }
    }
}
