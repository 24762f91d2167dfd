//! Kept connections that hold expensive workers.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, apache, config_finding, embedded, fact, located, remedy,
    whole_number,
};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// From this size on a worker is too expensive to wait for a client's next request.
const FAT_BYTES: f64 = 10e6;
/// Clients ask for the parts of a page within a second or two; who waits longer reads.
const TIMEOUT_S_MIN: f64 = 3.0;

/// Kept connections of prefork, each of which holds a whole process, in the hands of clients that read.
pub(crate) fn prefork_keepalive(facts: &Facts) -> Option<ConfigFinding> {
    let service = apache(facts).filter(|service| service.mode.as_deref() == Some("prefork"))?;
    let keeps = located(service, "KeepAlive")?;
    keeps.value.to_string().eq_ignore_ascii_case("on").then_some(())?;
    let timeout = located(service, "KeepAliveTimeout")?;
    let seconds = seconds(&timeout).filter(|seconds| *seconds >= TIMEOUT_S_MIN)?;
    let size = facts.value(FactId::worker_private_mean_bytes);
    let fat =
        size.filter(|bytes| *bytes >= FAT_BYTES).map(|bytes| format!("{} of its own", format_bytes(bytes)));
    let holds = embedded(service).map(|module| format!("{module} in it")).or(fat)?;
    let summary = format!(
        "Under prefork a keep-alive connection holds a whole process (with {holds}), and KeepAliveTimeout is {}: each \
         visitor holds one for {} s after the last response.",
        timeout.with_location(),
        format_number(seconds)
    );
    let mut cited: Vec<_> = fact("KeepAliveTimeout", "s", &timeout).into_iter().collect();
    cited.extend(facts.cite(&[FactId::worker_private_mean_bytes]));
    let remedy = remedy(
        SettingId::of_service("apache", "KeepAliveTimeout"),
        (Some(timeout.value), whole_number(2.0)),
        ApplyClass::Reload,
        (
            "browsers request the parts of a page within a second or two; the event MPM with PHP-FPM holds none at all"
                .into(),
            "a visitor who returns later opens a new connection",
        ),
    );
    Some(config_finding((Severity::Slow, 0.6), LimitId::KeepaliveHoldsWorkers, summary, cited, remedy))
}

/// A time as Apache reads it: seconds, or a number with `ms`.
fn seconds(located: &LocatedSetting) -> Option<f64> {
    let text = located.value.to_string();
    match text.strip_suffix("ms") {
        Some(number) => number.parse::<f64>().ok().map(|ms| ms / 1000.0),
        None => text.parse().ok(),
    }
}
