//! The bandwidth limits that are set: mod_ratelimit, mod_bw, mod_cband and mod_qos of Apache, `limit_rate` of nginx,
//! `connection.kbytes-per-second` of lighttpd.

use crate::facts::Facts;
use crate::wording::format_number;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingScope};
use webdyno_model::setting::SettingId;

/// The module sends in steps of a fifth of a second, and the first one at once: small answers come somewhat faster.
const PACE_FRACTION: (f64, f64) = (0.6, 1.8);
/// `rate-limit` counts KiB a second.
pub(super) const RATE_UNIT_BYTES: f64 = 1024.0;

/// Bytes a second that a setting allows each response or connection.
pub(super) struct BandwidthLimit {
    /// The directive, with its place.
    pub(super) words: String,
    pub(super) setting: SettingId,
    pub(super) value: Option<String>,
    pub(super) bytes_per_s: Option<f64>,
    /// Whether it is set for a part of the site that nobody asks for.
    pub(super) is_of_other_part: bool,
}

/// Whether a setting is of a path with which nothing begins that is asked for: then it is a chance that the pace is near, unless a
/// program hands requests over to there (`X-Accel-Redirect`).
fn is_of_other_part(facts: &Facts, one: &ScopedSetting) -> bool {
    let path = |scope: &SettingScope| {
        let scope = scope.to_string();
        let (_, path) = scope.split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("location"))?;
        let path = path.strip_prefix("^~").or(path.strip_prefix('=')).unwrap_or(path).trim();
        (path.starts_with('/') && !path.contains(['*', '?', '['])).then(|| path.to_owned())
    };
    let targets = &facts.request_targets;
    let is_requested = |path: String| targets.iter().any(|target| target.path.starts_with(&path));
    !targets.is_empty() && one.scope.iter().filter_map(path).any(|path| !is_requested(path))
}

/// Whether this may be the pace of such a limit.
pub(super) fn is_pace_of(pace: f64, rate: f64) -> bool {
    (PACE_FRACTION.0..=PACE_FRACTION.1).contains(&(pace / rate))
}

/// Of the limits of several parts of a site, each with its bytes a second, the one whose pace this is; else the tightest.
fn chosen<T>(all: impl Iterator<Item = (T, f64)>, pace: f64) -> Option<(T, f64)> {
    all.min_by(|a, b| is_pace_of(pace, b.1).cmp(&is_pace_of(pace, a.1)).then(a.1.total_cmp(&b.1)))
}

/// A limit that is active for some part of the site.
pub(super) fn limit(facts: &Facts, pace: f64) -> Option<BandwidthLimit> {
    let service = facts.service.as_ref()?;
    let place = |one: &ScopedSetting| {
        let scope = one.scope.last().map_or(String::new(), |scope| format!(" in {scope}"));
        let line = one.line.map_or(String::new(), |line| format!(":{line}"));
        let file = one.file.as_ref().map_or(String::new(), |file| format!(", {file}{line}"));
        format!("{} {}{scope}{file}", one.setting, one.value)
    };
    let filter = service.scoped.iter().find(|one| {
        matches!(one.setting.as_str(), "SetOutputFilter" | "AddOutputFilter" | "AddOutputFilterByType")
            && one.value.contains("RATE_LIMIT")
    });
    let rates = service.scoped.iter().filter_map(|one| {
        let words: Vec<&str> = one.value.split_whitespace().collect();
        let is_rate = one.setting == "SetEnv" && words.first() == Some(&"rate-limit");
        let rate = words.get(1)?.trim_matches('"').parse::<f64>().ok().map(|kib| kib * RATE_UNIT_BYTES);
        (is_rate && rate.is_some_and(|rate| rate > 0.0)).then_some((one, rate?))
    });
    let set = chosen(rates, pace);
    match service.service.as_str() {
        "nginx" => return nginx_limit(facts, service, pace, place),
        "lighttpd" => return lighttpd_limit(facts),
        _ => {}
    }
    match (filter, set) {
        (Some(filter), set) => Some(BandwidthLimit {
            words: format!("mod_ratelimit: {}", place(filter)),
            setting: SettingId::of_service("apache", "rate-limit"),
            value: set.map(|(one, _)| one.value.clone()),
            bytes_per_s: set.map(|(_, rate)| rate),
            is_of_other_part: is_of_other_part(facts, filter),
        }),
        (None, _) => {
            const OTHERS: [&str; 3] = ["bw_module", "cband_module", "qos_module"];
            let loaded = service.modules.iter().find(|module| OTHERS.contains(&module.as_str()))?;
            let directives = [
                "BandWidth",
                "MinBandWidth",
                "QS_LocKBytesPerSecLimit",
                "QS_LocKBytesPerSecLimitMatch",
                "QS_EventKBytesPerSecLimit",
            ];
            let active = service.scoped.iter().find(|one| directives.contains(&one.setting.as_str()))?;
            Some(BandwidthLimit {
                words: format!("{loaded}: {}", place(active)),
                setting: SettingId::of_service("apache", &active.setting),
                value: Some(active.value.clone()),
                bytes_per_s: None,
                is_of_other_part: is_of_other_part(facts, active),
            })
        }
    }
}

/// `limit_rate 200k`: so many bytes a second for each answer.
fn nginx_limit(
    facts: &Facts,
    service: &ServiceSnapshot,
    pace: f64,
    place: impl Fn(&ScopedSetting) -> String,
) -> Option<BandwidthLimit> {
    let rate = |text: &str| {
        let text = text.to_lowercase();
        let (number, unit) = match (text.strip_suffix('k'), text.strip_suffix('m')) {
            (Some(number), _) => (number, RATE_UNIT_BYTES),
            (_, Some(number)) => (number, RATE_UNIT_BYTES * RATE_UNIT_BYTES),
            _ => (text.as_str(), 1.0),
        };
        number.parse::<f64>().ok().filter(|number| *number > 0.0).map(|number| number * unit)
    };
    // What stands in `http` is none of a part.
    let whole = service.settings.get("limit_rate").and_then(|set| {
        let (setting, value) = ("limit_rate".to_owned(), set.configured.as_ref()?.to_string());
        Some(ScopedSetting { setting, value, scope: vec![], file: set.file.clone(), line: set.line })
    });
    let set = service.scoped.iter().chain(&whole).filter(|one| one.setting == "limit_rate");
    let rates = set.filter_map(|one| Some((one, rate(&one.value)?)));
    let (one, bytes_per_s) = chosen(rates, pace)?;
    Some(BandwidthLimit {
        words: place(one),
        setting: SettingId::of_service("nginx", &one.setting),
        value: Some(one.value.clone()),
        bytes_per_s: Some(bytes_per_s),
        is_of_other_part: is_of_other_part(facts, one),
    })
}

/// `connection.kbytes-per-second`, of each connection; a value under a condition is that of a part of the site.
fn lighttpd_limit(facts: &Facts) -> Option<BandwidthLimit> {
    const SETTING: &str = "connection.kbytes-per-second";
    let kib = facts.setting(SETTING).filter(|kib| *kib > 0.0)?;
    Some(BandwidthLimit {
        words: format!("{SETTING} {}", format_number(kib)),
        setting: SettingId::of_service("lighttpd", SETTING),
        value: Some(format_number(kib)),
        bytes_per_s: Some(kib * RATE_UNIT_BYTES),
        is_of_other_part: false,
    })
}
