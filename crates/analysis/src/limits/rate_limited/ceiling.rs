//! The rate that `limit_req` of nginx lets through: of a load that is one client, or of all clients where the zone has one key for all.
//!
//! Facts: ngx_http_limit_req_module. A key of the client's address counts each address for itself; a limit in a location is for what is
//! asked there, and says nothing of the whole.

use super::rejected::{configured_rate, value};
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

/// Whether it is set for all that is asked.
pub(super) fn is_of_all(service: &ServiceSnapshot) -> bool {
    let set = service.scoped.iter().filter(|one| one.setting == "limit_req");
    set.flat_map(|one| &one.scope).all(|scope| !scope.to_string().to_lowercase().starts_with("location"))
}

pub(super) fn is_of_address(service: &ServiceSnapshot) -> bool {
    let zones = service.scoped.iter().filter(|one| one.setting == "limit_req_zone");
    zones.map(|one| one.value.as_str()).any(|zone| zone.contains("remote_addr") || zone.contains("forwarded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactId;
    use crate::facts::testing::{facts, scoped_setting};

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
    }
}
