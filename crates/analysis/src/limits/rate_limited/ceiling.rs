//! The rate that `limit_req` of nginx lets through: of a load that is one client, or of all clients where the zone has one key for all.
//!
//! Facts: ngx_http_limit_req_module. A key of the client's address counts each address for itself; a limit in a location is for what is
//! asked there, and says nothing of the whole.

use super::rejected::{configured_rate, value, written};
use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::rate;
use webdyno_model::service::ServiceSnapshot;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let service = facts.service.as_ref().filter(|service| service.service == "nginx")?;
    value(service, "limit_req")?;
    let is_off = value(service, "limit_req_dry_run").is_some_and(|set| set.value.eq_ignore_ascii_case("on"));
    let allowed = configured_rate(service).filter(|_| !is_off && is_of_all(service))?;
    if !facts.loaded && is_of_address(service) {
        return None;
    }
    let usage = ResourceUsage {
        now: rate(facts),
        max: Some(allowed),
        binds_at_rate: Some(allowed),
        ..ResourceUsage::default()
    };
    usage.ceiling(
        Resource::RequestLimit,
        "req/s that limit_req allows",
        "nginx -T",
        Some(LimitId::RateLimited),
    )
}

/// Variables that are the same for all that is asked of a server.
const OF_SERVER: [&str; 6] = ["server_name", "host", "http_host", "server_addr", "server_port", "scheme"];

/// Whether it is set for all that is asked, and counts that together or by address. By any other key (a cookie, a `map` that spares
/// some clients) it counts apart, or not at all where the key is empty.
pub(super) fn is_of_all(service: &ServiceSnapshot) -> bool {
    let set = service.scoped.iter().filter(|one| one.setting == "limit_req");
    let mut scopes = set.flat_map(|one| &one.scope).map(|scope| scope.to_string().to_lowercase());
    let is_known = |name: &String| is_address(name) || OF_SERVER.contains(&name.as_str());
    variables(service).iter().all(is_known) && scopes.all(|scope| !scope.starts_with("location"))
}

pub(super) fn is_of_address(service: &ServiceSnapshot) -> bool {
    variables(service).iter().any(|name| is_address(name))
}

fn is_address(variable: &str) -> bool {
    variable.contains("remote_addr") || variable.contains("forwarded")
}

/// What the zones count by, without the signs: of `$server_name$uri` both names.
fn variables(service: &ServiceSnapshot) -> Vec<String> {
    let is_end = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    let zones = written(service, "limit_req_zone");
    let keys = zones.iter().filter_map(|one| one.value.split_whitespace().next());
    let parts = keys.flat_map(|key| key.split('$').skip(1));
    parts.filter_map(|part| part.trim_start_matches('{').split(is_end).next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactId;
    use crate::facts::testing::{facts, scoped_setting};
    use webdyno_model::service::SettingValue;

    #[test]
    fn it_is_the_zones_rate_where_all_requests_are_in_it() {
        let of = |key: &str, scope: &str, loaded: bool| {
            let mut facts = facts(&[(FactId::rate, 20.0), (FactId::server_requests_per_s, 21.0)], &[]);
            facts.loaded = loaded;
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            service.scoped = vec![
                scoped_setting("limit_req_zone", &format!("{key} zone=all:1m rate=60r/s"), &["http"]),
                scoped_setting("limit_req", "zone=all burst=9", &[scope]),
            ];
            ceiling(&facts).and_then(|one| one.ceiling.binds_at_rate)
        };
        assert_eq!(of("$server_name", "server _", true), Some(60.0));
        assert_eq!(of("$server_name", "server _", false), Some(60.0));
        assert_eq!(of("$binary_remote_addr", "server _", true), Some(60.0));
        assert_eq!(of("$binary_remote_addr", "server _", false), None, "of each of them");
        assert_eq!(of("$server_name", "location /api", true), None);
        // As nginx has it: a zone stands in no part of the site.
        let mut facts = facts(&[(FactId::server_requests_per_s, 21.0)], &[]);
        facts.loaded = false;
        let service = facts.service.as_mut().unwrap();
        service.service = "nginx".into();
        service.scoped = vec![scoped_setting("limit_req", "zone=all burst=9", &["server _"])];
        let zone = SettingValue::Text("$binary_remote_addr zone=all:1m rate=60r/s".into());
        service.settings.entry("limit_req_zone".into()).or_default().configured = Some(zone);
        assert!(ceiling(&facts).is_none(), "of each of them");
        assert_eq!(of("${server_name}$scheme", "server _", false), Some(60.0));
        for key in ["$cookie_session", "$limit_key", "$server_name$uri"] {
            for loaded in [true, false] {
                assert_eq!(of(key, "server _", loaded), None, "{key} {loaded}");
            }
        }
    }
}
