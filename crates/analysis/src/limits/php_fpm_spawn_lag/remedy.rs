//! Children that are there before the requests: all of them if memory holds them, else as many as the ramp needed.
//!
//! Facts: <https://www.php.net/manual/en/install.fpm.configuration.php> (`pm.start_servers` lies between the spare servers, and none of
//! them is above `pm.max_children`).

use super::pool::SpawningPool;
use crate::facts::{FactId, Facts};
use crate::limits::php_fpm_workers_exhausted::remedy::processes_that_fit;
use crate::resources::{php_fpm, setting_source};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

pub(super) fn remedy(facts: &Facts, pool: &SpawningPool<'_>) -> Remedy {
    let setting = |name: &str| php_fpm::setting_of(Some(pool.name), name);
    let change =
        |name: &str, to: f64| SettingChange { setting: setting(name), to: SettingValue::Integer(to as i64) };
    let fits = processes_that_fit(facts, pool.name, pool.most);
    if fits.is_some_and(|fits| fits >= pool.limit) {
        let why = format!(
            "all {} children are there before the first request, and memory holds them",
            format_number(pool.limit)
        );
        let to = SettingValue::Text("static".into());
        return change_of(facts, pool, setting("pm"), to, pool.limit, why, vec![]);
    }
    // What memory holds bounds them, where it is known; that of those that ran it held.
    let wanted = fits.map_or(pool.most, |fits| pool.most.min(fits)).max(1.0);
    let needed = format!("as many idle children as this load needed ({})", format_number(pool.most));
    let why = match wanted < pool.most {
        true => format!("memory holds no more; {needed} would be better"),
        false => needed,
    };
    let is_dynamic = pool.mode == "dynamic";
    let mode = SettingChange { setting: setting("pm"), to: SettingValue::Text("dynamic".into()) };
    let together = (!is_dynamic).then_some(mode).into_iter().chain([
        change("pm.start_servers", wanted),
        change("pm.max_spare_servers", (2.0 * wanted).min(pool.limit)),
    ]);
    let to = SettingValue::Integer(wanted as i64);
    change_of(facts, pool, setting("pm.min_spare_servers"), to, wanted, why, together.collect())
}

/// The change with what it costs: so many children that are there while nothing is asked for.
fn change_of(
    facts: &Facts,
    pool: &SpawningPool<'_>,
    setting: SettingId,
    to: SettingValue,
    idle: f64,
    why: String,
    together_with: Vec<SettingChange>,
) -> Remedy {
    let each = facts.value_of(FactId::fpm_process_memory_bytes, pool.name);
    let memory = each.map_or("the children use memory while idle".to_owned(), |each| {
        format!(
            "{} of memory for {} children, also while idle",
            format_bytes(each * idle),
            format_number(idle)
        )
    });
    let source = setting_source::pool_setting_source(facts, pool.name, &setting.name);
    let mut remedy = Remedy {
        setting,
        from: None,
        to: Some(to),
        class: ApplyClass::Reload,
        risk: format!("{memory}; {}", php_fpm::reload_risk(facts, Some(pool.name))),
        why,
        predicted: None,
        together_with,
    };
    if let Some(source) = source {
        setting_source::add_source(&mut remedy, &source);
    }
    remedy
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::with;
    use crate::facts::FactId;
    use webdyno_model::service::SettingValue;

    #[test]
    fn all_of_them_where_memory_holds_them_and_else_as_many_as_were_needed() {
        let of = |available: f64, mode: &str| {
            let load = [(FactId::memory_available_min_bytes, available)];
            let remedy = with(&[], &load, mode).unwrap().remedies.remove(0);
            let together: Vec<_> = remedy
                .together_with
                .iter()
                .map(|change| format!("{} {}", change.setting.name, change.to))
                .collect();
            (remedy.setting.name, remedy.to.unwrap(), together.join(", "))
        };
        let number = SettingValue::Integer;
        assert_eq!(of(8e9, "dynamic"), ("pm".to_owned(), SettingValue::Text("static".into()), String::new()));
        assert_eq!(
            of(2e8, "ondemand"),
            (
                "pm.min_spare_servers".to_owned(),
                number(45),
                "pm dynamic, pm.start_servers 45, pm.max_spare_servers 80".to_owned()
            )
        );
        // Half of each is swapped out.
        let swapped = [(FactId::pool_swap_mean_bytes, 10e6)];
        let load = [(FactId::memory_available_min_bytes, 2e8)];
        let bounded = with(&swapped, &load, "dynamic").unwrap().remedies.remove(0);
        assert!(
            bounded.to.as_ref().and_then(SettingValue::number).is_some_and(|to| to < 45.0),
            "{bounded:?}"
        );
        assert!(bounded.why.starts_with("memory holds no more; as many"), "{}", bounded.why);
        let risk = with(&[], &[], "dynamic").unwrap().remedies.remove(0).risk;
        assert!(risk.starts_with("450 MB of memory for 45 children, also while idle"), "{risk}");
    }
}
