//! Workers: numbers that others clamp, and kept connections that hold expensive ones.

use super::{
    Contradiction, Placed, Severity, apache, contradiction, embedded, fact, placed, remedy, whole, wish,
};
use crate::facts::Facts;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::ServiceSnapshot;

const CLAMPED: &str = "apache-setting-clamped";
const KEPT: &str = "keepalive-holds-workers";

/// MaxRequestWorkers that the other settings do not allow.
pub(crate) fn clamped(facts: &Facts) -> Option<Contradiction> {
    let service = apache(facts)?;
    let wanted = placed(service, "MaxRequestWorkers")?;
    let number = wanted.number()?;
    let (allowed, why, mut remedy) = match service.mode.as_deref() {
        Some("prefork") => above_server_limit(service, number, 1.0)?,
        Some("worker" | "event") => {
            let threads = placed(service, "ThreadsPerChild")?.number().filter(|threads| *threads >= 1.0)?;
            above_server_limit(service, number, threads).or_else(|| no_multiple(number, threads))?
        }
        _ => return None,
    };
    remedy.from.get_or_insert(wanted.value.clone());
    let summary = format!(
        "MaxRequestWorkers is {}, and {why}: Apache runs {} workers, and says so only at its start.",
        wanted.told(),
        format_number(allowed)
    );
    let cited = ["MaxRequestWorkers", "ServerLimit", "ThreadsPerChild"]
        .iter()
        .filter_map(|setting| fact(setting, "workers", &placed(service, setting)?));
    Some(contradiction((Severity::Slow, 0.95), CLAMPED, summary, cited.collect(), remedy))
}

type Clamp = (f64, String, Remedy);

fn above_server_limit(service: &ServiceSnapshot, number: f64, threads: f64) -> Option<Clamp> {
    let limit = placed(service, "ServerLimit")?;
    let processes = limit.number()?;
    let allowed = processes * threads;
    (number > allowed).then_some(())?;
    let each = if threads > 1.0 {
        format!(" processes of {} threads", format_number(threads))
    } else {
        String::new()
    };
    let why = format!("ServerLimit allows {}{each}", limit.told());
    let needed = (number / threads).ceil();
    let mut remedy = remedy(
        ("apache", "ServerLimit"),
        (Some(limit.value), whole(needed)),
        ApplyClass::Restart,
        (
            format!("{} workers need so many processes", format_number(number)),
            "a stop and a start; memory for more workers",
        ),
    );
    if (needed * threads - number).abs() >= 1.0 {
        remedy.together_with = vec![wish("apache", "MaxRequestWorkers", (needed * threads) as i64)];
    }
    Some((allowed, why, remedy))
}

fn no_multiple(number: f64, threads: f64) -> Option<Clamp> {
    let allowed = (number / threads).floor() * threads;
    (allowed < number && allowed >= 1.0).then_some(())?;
    let why = format!("that is no multiple of the {} threads of a process", format_number(threads));
    let remedy = remedy(
        ("apache", "MaxRequestWorkers"),
        (None, whole(allowed)),
        ApplyClass::Reload,
        (format!("{} is what runs; the file then says so, too", format_number(allowed)), ""),
    );
    Some((allowed, why, remedy))
}

/// From this size on a worker is too dear to wait for a client's next request.
const FAT_BYTES: f64 = 10e6;
/// Clients ask for the parts of a page within a second or two; who waits longer reads.
const TIMEOUT_S_MIN: f64 = 3.0;

/// Kept connections of prefork, each of which holds a whole process, in the hands of clients that read.
pub(crate) fn kept_by_fat_processes(facts: &Facts) -> Option<Contradiction> {
    let service = apache(facts).filter(|service| service.mode.as_deref() == Some("prefork"))?;
    let keeps = placed(service, "KeepAlive")?;
    keeps.value.to_string().eq_ignore_ascii_case("on").then_some(())?;
    let timeout = placed(service, "KeepAliveTimeout")?;
    let seconds = seconds(&timeout).filter(|seconds| *seconds >= TIMEOUT_S_MIN)?;
    let size = facts.value("worker_private_mean_bytes");
    let fat =
        size.filter(|bytes| *bytes >= FAT_BYTES).map(|bytes| format!("{} of its own", format_bytes(bytes)));
    let holds = embedded(service).map(|module| format!("{module} in it")).or(fat)?;
    let summary = format!(
        "Under prefork a kept connection holds a whole process, here one with {holds}, and KeepAliveTimeout is {}: each \
         visitor takes one for {} s after the last answer.",
        timeout.told(),
        format_number(seconds)
    );
    let mut cited: Vec<_> = fact("KeepAliveTimeout", "s", &timeout).into_iter().collect();
    cited.extend(facts.cite(&["worker_private_mean_bytes"]));
    let remedy = remedy(
        ("apache", "KeepAliveTimeout"),
        (Some(timeout.value), whole(2.0)),
        ApplyClass::Reload,
        (
            "browsers ask for the parts of a page within a second or two; the event MPM with PHP-FPM holds none at all"
                .into(),
            "a visitor who comes back later connects anew",
        ),
    );
    Some(contradiction((Severity::Slow, 0.6), KEPT, summary, cited, remedy))
}

/// A time as Apache reads it: seconds, or a number with `ms`.
fn seconds(placed: &Placed) -> Option<f64> {
    let text = placed.value.to_string();
    match text.strip_suffix("ms") {
        Some(number) => number.parse::<f64>().ok().map(|ms| ms / 1000.0),
        None => text.parse().ok(),
    }
}
