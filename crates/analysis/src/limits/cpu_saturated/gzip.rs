//! Where nginx compresses files with care while they are sent, and that saturates its CPUs.
//!
//! Facts: zlib's levels are those of gzip(1): the first one takes a third of the time of the sixth, and what it makes is some
//! 10 to 20% larger (<https://nginx.org/en/docs/http/ngx_http_gzip_module.html>: 1 is nginx's own value).

use crate::facts::{FactId, Facts};
use crate::resources::request_cost;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

const NGINX: &str = "nginx";
const LEVEL: &str = "gzip_comp_level";
/// A lower level costs hardly more than the first one.
const LEVEL_MIN: f64 = 4.0;
const LEVEL_WANTED: i64 = 1;
/// What sending a file costs nginx at most, in CPU time, with a connection of its own.
const FILE_US: f64 = 250.0;
/// A byte that is copied.
const BYTE_US: f64 = 0.001;
/// One that is encrypted.
const TLS_BYTE_US: f64 = 0.003;
/// A handshake costs as much as a large file: connections must be kept.
const KEPT_FRACTION_MIN: f64 = 0.9;
/// From so many times that on it is compression, where nothing else makes or encrypts the responses.
const TIMES_MIN: f64 = 4.0;

/// A lower level of compression, if that is most of what nginx computes while its processors are full.
pub(crate) fn remedy(facts: &Facts) -> Option<Remedy> {
    let work = request_cost::request_cost(facts).filter(|work| work.is_observed)?;
    remedy_at(facts, work.request_us)
}

/// What sending the bytes of a response costs nginx at most, compressed or not.
pub(crate) fn plain_us(facts: &Facts) -> Option<f64> {
    let is_encrypted = facts.request_targets.iter().any(|target| target.tls);
    let byte_us = if is_encrypted { TLS_BYTE_US } else { BYTE_US };
    Some(FILE_US + byte_us * facts.value(FactId::answer_bytes_mean)?)
}

/// The same where a request costs so much CPU time.
pub(crate) fn remedy_at(facts: &Facts, request_us: f64) -> Option<Remedy> {
    let remedy = sampled_remedy(facts)?;
    let service = facts.service.as_ref()?;
    let passes_on = service.scoped.iter().any(|one| one.setting.ends_with("_pass"));
    let are_kept =
        facts.value(FactId::connections_reused_fraction).is_some_and(|reused| reused >= KEPT_FRACTION_MIN);
    let is_plain = !facts.request_targets.is_empty()
        && facts.request_targets.iter().all(|target| target.compressed && (are_kept || !target.tls));
    (!passes_on && is_plain && request_us >= TIMES_MIN * plain_us(facts)?).then_some(remedy)
}

/// The same where samples tell that compressing is what it computes, whatever else it does.
pub(crate) fn sampled_remedy(facts: &Facts) -> Option<Remedy> {
    let service = facts.service.as_ref().filter(|service| service.service == NGINX)?;
    let level = value(service, LEVEL)?.parse::<f64>().ok().filter(|level| *level >= LEVEL_MIN)?;
    // Without load of our own nobody knows what is asked for.
    let is_compressed =
        facts.request_targets.is_empty() || facts.request_targets.iter().any(|target| target.compressed);
    (is_compressed && value(service, "gzip").as_deref() == Some("on")).then(|| Remedy {
        setting: SettingId::of_service(NGINX, LEVEL),
        from: Some(SettingValue::Integer(level as i64)),
        to: Some(SettingValue::Integer(LEVEL_WANTED)),
        class: ApplyClass::Reload,
        risk: "responses grow by some 10 to 20%, and so does network traffic".into(),
        why: "nginx compresses the same files again for each request; level 1 takes a third of the time of level 6"
            .into(),
        predicted: None,
        together_with: vec![],
    })
}

/// The value of a setting, where there is just one: of all, or of a part of the site.
fn value(service: &ServiceSnapshot, name: &str) -> Option<String> {
    let mut parts = service.scoped.iter().filter(|one| one.setting == name);
    let of_part = parts.next().map(|one| one.value.clone());
    let of_all =
        service.settings.get(name).and_then(|found| found.configured.as_ref()).map(ToString::to_string);
    match (of_part, of_all) {
        (Some(one), None) | (None, Some(one)) if parts.next().is_none() => Some(one),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};
    use crate::settings::effective::RequestTarget;

    fn with(changes: &[(FactId, f64)], compressed: bool, scoped: &[(&str, &str)]) -> Option<SettingValue> {
        with_tls(false, changes, compressed, scoped)
    }

    fn with_tls(
        tls: bool,
        changes: &[(FactId, f64)],
        compressed: bool,
        scoped: &[(&str, &str)],
    ) -> Option<SettingValue> {
        let base = [
            (FactId::service_cpu_cores, 1.96),
            (FactId::cores, 2.0),
            (FactId::cpu_per_request_us, 13_000.0),
            (FactId::answer_bytes_mean, 90_000.0),
        ];
        let mut facts = facts(&with_changes(&base, changes), &[(LEVEL, 6)]);
        let service = facts.service.as_mut().unwrap();
        service.service = NGINX.into();
        service.scoped = scoped.iter().map(|(setting, value)| scoped_setting(setting, value, &[])).collect();
        let site = if tls { "https://h" } else { "http://h" };
        let target = RequestTarget::of(&format!("{site}/layer.csv")).unwrap();
        facts.request_targets = vec![RequestTarget { share: 1.0, compressed, ..target }];
        remedy(&facts).and_then(|remedy| remedy.to)
    }

    #[test]
    fn processors_that_compress_files_with_care_may_do_it_with_less() {
        let on = [("gzip", "on")];
        assert_eq!(with(&[], true, &on), Some(SettingValue::Integer(1)));
        for (changes, compressed, scoped) in [
            (&[][..], false, &on[..]),
            (&[], true, &[]),
            (&[], true, &[("gzip", "on"), ("proxy_pass", "app:80")]),
            // Of several values it is not known which one holds.
            (&[], true, &[("gzip", "on"), ("gzip_comp_level", "9")]),
            (&[(FactId::cpu_per_request_us, 900.0)], true, &on),
            (&[(FactId::service_cpu_cores, 0.4)], true, &on),
            (&[(FactId::answer_bytes_mean, f64::NAN)], true, &on),
        ] {
            assert_eq!(with(changes, compressed, scoped), None, "{changes:?} {compressed} {scoped:?}");
        }
    }

    #[test]
    fn encryption_costs_little_where_connections_are_kept() {
        let on = [("gzip", "on")];
        for (reused, request_us, expected) in
            [(1.0, 13_000.0, Some(SettingValue::Integer(1))), (0.5, 13_000.0, None), (1.0, 1_900.0, None)]
        {
            let load =
                [(FactId::connections_reused_fraction, reused), (FactId::cpu_per_request_us, request_us)];
            assert_eq!(with_tls(true, &load, true, &on), expected, "{reused} {request_us}");
        }
    }
}
