//! Connections to a backend that nginx keeps: which upstream is meant, and how many of them.

use crate::facts::{FactId, Facts};
use crate::limits::manual_remedy::manual;
use crate::resources::setting_source;
use crate::settings::backends::{members, upstream_of};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

pub(super) const NGINX: &str = "nginx";

/// Idle connections that each worker keeps: fewer would be closed and opened again whenever a few requests end at once.
const KEPT_MIN: f64 = 32.0;
const KEPT_MAX: f64 = 512.0;
/// Above what is under way at once.
const HEADROOM: f64 = 2.0;

const RISK: &str = "each nginx worker keeps this many idle connections, each of which may hold a backend worker; the backend may \
    close one just when it is used: its timeout must be the longer one";
const WHY: &str = "persistent backend connections carry many requests each";

/// The remedy that keeps connections to `to`, the address whose ports are in use. Ports in use come back after a minute
/// only: `range` gives other ones for that long.
pub(super) fn kept_connections(facts: &Facts, to: Option<&str>, range: Option<SettingChange>) -> Remedy {
    let setting = SettingId::of_service(NGINX, "keepalive");
    let Some(service) = facts.service.as_ref() else { return manual(setting, RISK, WHY) };
    if let Some(kept) = to.and_then(|to| kept_children(facts, service, to)) {
        return Remedy { together_with: range.into_iter().collect(), ..kept };
    }
    let meant = match &upstreams(service, "proxy_pass")[..] {
        [_] => Some(setting.clone()),
        several => {
            let has =
                |upstream: &&String| to.is_some_and(|to| members(service, upstream).any(|one| one == to));
            several.iter().find(has).map(|upstream| setting.clone().of_pool(upstream))
        }
    };
    let Some(setting) = meant else {
        let how = "an upstream with `keepalive`, referenced by name, with proxy_http_version 1.1 and an empty Connection; for \
                   FastCGI with fastcgi_keep_conn, and fewer than there are children";
        return manual(setting, RISK, format!("{WHY}: {how}"));
    };
    let kept = facts.value(FactId::in_flight_mean).unwrap_or(0.0) * HEADROOM / workers(facts);
    let kept = kept.clamp(KEPT_MIN, KEPT_MAX).log2().ceil().exp2();
    Remedy {
        to: Some(SettingValue::Integer(kept as i64)),
        class: ApplyClass::Reload,
        together_with: range.into_iter().collect(),
        ..manual(setting, RISK, format!("{WHY}; also sets HTTP 1.1 and no `Connection: close` towards it"))
    }
}

/// To PHP-FPM by an upstream: each kept connection holds one of the children of its pool, so that no more are kept than are free.
/// `None` where that is not known, or none is.
fn kept_children(facts: &Facts, service: &ServiceSnapshot, to: &str) -> Option<Remedy> {
    let upstreams = upstreams(service, "fastcgi_pass");
    let upstream = upstreams.iter().find(|upstream| members(service, upstream).any(|one| one == to))?;
    let pool = setting_source::pool_at(facts, to)?;
    let children = setting_source::pool_setting_source(facts, &pool, "pm.max_children")?.number()?;
    let in_use = facts.value(FactId::in_flight_mean)?.ceil();
    let kept = ((children - in_use) / workers(facts)).floor().min(KEPT_MAX);
    let setting = SettingId::of_service(NGINX, "keepalive").of_pool(upstream);
    (kept >= 1.0).then(|| Remedy {
        to: Some(SettingValue::Integer(kept as i64)),
        class: ApplyClass::Reload,
        ..manual(
            setting,
            "each kept connection holds a child of PHP-FPM also while it is idle: a larger load needs more children",
            format!("{WHY}; also sets fastcgi_keep_conn; no more than children of pool {pool} are free"),
        )
    })
}

fn workers(facts: &Facts) -> f64 {
    let configured = facts.setting("worker_processes").or(facts.value(FactId::cores));
    configured.filter(|count| *count >= 1.0).unwrap_or(1.0)
}

/// The upstreams that requests are passed to by this directive; the snapshot tells the address of such a pass with a port.
fn upstreams(service: &ServiceSnapshot, by: &str) -> Vec<String> {
    let passes = || service.scoped.iter().filter(|one| one.setting == by);
    let mut all: Vec<String> = service.scoped.iter().filter_map(upstream_of).collect();
    all.dedup();
    all.retain(|name| {
        passes().any(|pass| [format!("{name}:80"), format!("{name}:443")].contains(&pass.value))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting};
    use crate::resources::php_fpm::tests::add_fpm_backend;

    fn remedy(scopes: &[(&str, &str, &str)], in_flight: f64) -> Remedy {
        let mut facts = facts(&[(FactId::in_flight_mean, in_flight)], &[("worker_processes", 2)]);
        let service = facts.service.as_mut().unwrap();
        service.service = NGINX.into();
        let scoped = scopes.iter().map(|(setting, value, scope)| scoped_setting(setting, value, &[*scope]));
        service.scoped = scoped.collect();
        kept_connections(&facts, Some("10.0.0.2:8080"), None)
    }

    #[test]
    fn the_upstream_whose_ports_are_taken_keeps_what_is_under_way() {
        let one =
            [("server", "10.0.0.2:8080 weight=2", "upstream app"), ("proxy_pass", "app:80", "location /")];
        let two = [&one[..], &[("server", "10.0.0.3", "upstream b"), ("proxy_pass", "b:443", "location /b")]]
            .concat();
        for (scopes, in_flight, expected) in [
            (&one[..], 4.0, Some(("nginx keepalive", 32))),
            (&one, 100.0, Some(("nginx keepalive", 128))),
            (&one, 9_000.0, Some(("nginx keepalive", 512))),
            (&two, 4.0, Some(("nginx keepalive of pool app", 32))),
            (&two[2..], 4.0, Some(("nginx keepalive", 32))),
            (&one[..1], 4.0, None),
            (&[("proxy_pass", "10.0.0.2:8080", "location /")], 4.0, None),
            (&[one[0], ("fastcgi_pass", "app:80", "location /")], 4.0, None),
        ] {
            let remedy = remedy(scopes, in_flight);
            let changes = remedy.setting_changes();
            let first = changes.first().map(|change| (change.setting.full_name(), change.to.clone()));
            let expected = expected.map(|(name, to)| (name.to_owned(), SettingValue::Integer(to)));
            assert_eq!(first, expected, "{scopes:?}");
        }
    }

    #[test]
    fn no_more_children_are_held_than_are_free() {
        let kept = |children: &str, in_flight: f64| {
            let scopes =
                [("server", "127.0.0.1:9000", "upstream php"), ("fastcgi_pass", "php:80", "location /")];
            let mut facts = facts(&[(FactId::in_flight_mean, in_flight)], &[("worker_processes", 2)]);
            add_fpm_backend(&mut facts, &[], &[("www", "pm.max_children", children)]);
            for pool in facts.topology.iter_mut().flat_map(|topology| &mut topology.backends) {
                pool.endpoints[0].address = "127.0.0.1:9000".into();
            }
            let service = facts.service.as_mut().unwrap();
            service.service = NGINX.into();
            service.scoped =
                scopes.map(|(setting, value, scope)| scoped_setting(setting, value, &[scope])).into();
            let changes = kept_connections(&facts, Some("127.0.0.1:9000"), None).setting_changes();
            changes.first().map(|change| (change.setting.full_name(), change.to.number().unwrap()))
        };
        assert_eq!(kept("20", 3.5), Some(("nginx keepalive of pool php".into(), 8.0)));
        assert_eq!(kept("5", 3.5), None, "not one for each worker");
    }
}
