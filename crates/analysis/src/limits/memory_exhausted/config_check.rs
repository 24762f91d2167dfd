//! Numbers that memory cannot hold: workers, and children of PHP-FPM.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, apache, config_finding, fact, located, pools, remedy,
    whole_number,
};
use crate::limits::memory_exhausted::ceiling::children_that_fit;
use crate::resources::memory_pressure::workers_that_fit;
use crate::resources::php_fpm;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::fact::Fact;
use webdyno_model::setting::SettingId;

/// More workers than memory holds by what one of them costs now. Idle ones are smaller than busy ones, so that even fewer
/// fit under load.
pub(crate) fn workers_beyond_memory(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts)?;
    let allowed = located(service, "MaxRequestWorkers")?;
    let fits = workers_that_fit(facts).filter(|fits| *fits >= 1.0)?;
    let each = facts.value(FactId::worker_private_mean_bytes)?;
    (allowed.number()? > fits).then_some(())?;
    let threads = facts.threads_per_process();
    let what = if threads > 1.0 {
        format!("process of {} workers", format_number(threads))
    } else {
        "worker".into()
    };
    let summary = format!(
        "MaxRequestWorkers is {}, but only {} workers fit into memory: a {what} holds {} of its own now, and more under \
         load. When all are needed, the machine swaps.",
        allowed.with_location(),
        format_number(fits),
        format_bytes(each)
    );
    let mut cited: Vec<Fact> = fact("MaxRequestWorkers", "workers", &allowed).into_iter().collect();
    cited.extend(facts.cite(&fact_ids! {
        worker_private_mean_bytes, memory_limit_bytes, memory_available_min_bytes,
    }));
    let remedy = remedy(
        SettingId::of_service("apache", "MaxRequestWorkers"),
        (Some(allowed.value), whole_number(fits)),
        ApplyClass::Reload,
        (
            format!("{} workers of this size fit, with a reserve of 10%", format_number(fits)),
            "fewer concurrent requests: the others wait in the accept queue",
        ),
    );
    Some(config_finding((Severity::Breaks, 0.8), LimitId::MemoryExhausted, summary, cited, remedy))
}

/// More children of a pool than memory holds.
pub(crate) fn children_beyond_memory(facts: &Facts) -> Option<ConfigFinding> {
    let beyond = |(pool, allowed): &(String, LocatedSetting)| {
        let fits = children_that_fit(facts, pool).filter(|fits| *fits >= 1.0)?;
        (allowed.number()? > fits).then_some(fits)
    };
    let found = pools(facts).into_iter().find_map(|one| Some((beyond(&one)?, one)));
    let (fits, (pool, allowed)) = found?;
    let each = facts.value_of(FactId::ahead_fpm_child_bytes, &pool)?;
    let summary = format!(
        "pm.max_children of pool {pool} is {}, but only {} children of {} each fit into memory. When all are needed, \
         the machine swaps.",
        allowed.with_location(),
        format_number(fits),
        format_bytes(each)
    );
    let mut cited: Vec<Fact> = fact("pm.max_children", "processes", &allowed).into_iter().collect();
    cited.extend(facts.cite_of(&[FactId::ahead_fpm_child_bytes], &pool));
    cited.extend(facts.cite(&[FactId::memory_limit_bytes, FactId::memory_available_min_bytes]));
    let mut remedy = remedy(
        php_fpm::setting_of(Some(&pool), "pm.max_children"),
        (Some(allowed.value), whole_number(fits)),
        ApplyClass::Reload,
        (
            format!("{} children of this size fit, with a reserve of 10%", format_number(fits)),
            "fewer concurrent scripts: the others wait in the pool's queue",
        ),
    );
    remedy.together_with = php_fpm::spare_to_lower(facts, &pool, fits);
    Some(config_finding((Severity::Breaks, 0.8), LimitId::MemoryExhausted, summary, cited, remedy))
}
