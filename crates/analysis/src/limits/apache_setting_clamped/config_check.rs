//! Numbers of workers that other settings clamp.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, Severity, apache, change, config_finding, fact, located, remedy, whole_number,
};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::SettingId;

/// MaxRequestWorkers that the other settings do not allow.
pub(crate) fn clamped(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts)?;
    let wanted = located(service, "MaxRequestWorkers")?;
    let number = wanted.number()?;
    let (allowed, why, mut remedy) = match service.mode.as_deref() {
        Some("prefork") => above_server_limit(service, number, 1.0)?,
        Some("worker" | "event") => {
            let threads = located(service, "ThreadsPerChild")?.number().filter(|threads| *threads >= 1.0)?;
            // Of more Apache starts no more than this in each process.
            let most = located(service, "ThreadLimit").and_then(|limit| limit.number());
            let threads = most.filter(|most| *most >= 1.0).map_or(threads, |most| threads.min(most));
            above_server_limit(service, number, threads).or_else(|| no_multiple(number, threads))?
        }
        _ => return None,
    };
    remedy.from.get_or_insert(wanted.value.clone());
    let summary = format!(
        "MaxRequestWorkers is {}, but {why}: Apache runs {} workers, and logs it only at start.",
        wanted.with_location(),
        format_number(allowed)
    );
    let cited = ["MaxRequestWorkers", "ServerLimit", "ThreadsPerChild"]
        .iter()
        .filter_map(|setting| fact(setting, "workers", &located(service, setting)?));
    Some(config_finding(
        (Severity::Slow, 0.95),
        LimitId::ApacheSettingClamped,
        summary,
        cited.collect(),
        remedy,
    ))
}

type ClampedNumber = (f64, String, Remedy);

fn above_server_limit(service: &ServiceSnapshot, number: f64, threads: f64) -> Option<ClampedNumber> {
    let limit = located(service, "ServerLimit")?;
    let processes = limit.number()?;
    let allowed = processes * threads;
    (number > allowed).then_some(())?;
    let each = if threads > 1.0 {
        format!(" processes of {} threads", format_number(threads))
    } else {
        String::new()
    };
    let why = format!("ServerLimit allows {}{each}", limit.with_location());
    let needed = (number / threads).ceil();
    let mut remedy = remedy(
        SettingId::of_service("apache", "ServerLimit"),
        (Some(limit.value), whole_number(needed)),
        ApplyClass::Restart,
        (format!("needed for {} workers", format_number(number)), "restart; memory for more workers"),
    );
    if (needed * threads - number).abs() >= 1.0 {
        remedy.together_with = vec![change("apache", "MaxRequestWorkers", (needed * threads) as i64)];
    }
    Some((allowed, why, remedy))
}

fn no_multiple(number: f64, threads: f64) -> Option<ClampedNumber> {
    let allowed = (number / threads).floor() * threads;
    (allowed < number && allowed >= 1.0).then_some(())?;
    let why = format!("that is no multiple of the {} threads per process", format_number(threads));
    let remedy = remedy(
        SettingId::of_service("apache", "MaxRequestWorkers"),
        (None, whole_number(allowed)),
        ApplyClass::Reload,
        (format!("matches the {} workers that run", format_number(allowed)), ""),
    );
    Some((allowed, why, remedy))
}
