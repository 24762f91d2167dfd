//! When `proxy-loopback` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{database_connections, worker_remedies, worker_waits, workers};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// The server must have so many times the requests that were sent: each one that is passed on counts twice.
const TWICE_RATIO_MIN: f64 = 1.3;
/// Without load of our own: connections that it opens for each that it accepts. With all passed on it is a half.
const OPENS_FRACTION_MIN: f64 = 0.3;

/// Fires when the server is its own client and has no worker left for that.
pub fn check(facts: &Facts) -> Option<Finding> {
    let to = proxies_to_itself(facts)?;
    let proof = workers::limit_proof(facts)?;
    let queue = noticed_queue(facts)?;
    if worker_waits::machine_is_short(facts) {
        return None;
    }
    let (observed, confidence) = loop_evidence(facts)?;
    Some(Finding {
        id: LimitId::ProxyLoopback.into(),
        summary: format!(
            "All {} workers busy and {} connections waiting, as Apache proxies requests to itself ({to}): each holds two workers. {observed}.",
            format_number(proof.workers),
            format_number(queue)
        ),
        confidence,
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            server_requests_per_s, ended_per_s, requests_at_server_mean, in_flight_mean, active_opens_per_s,
            new_connections_per_s, scoreboard_full_fraction, workers_busy_mean, workers_limit,
            processes_at_limit_fraction, accept_queue_mean, cpu_busy_fraction, response_time_mean_us, rate,
        }),
        remedies: remedies(facts, proof.workers, queue),
    })
}

/// What shows that it happens now, in words, and how sure that is.
fn loop_evidence(facts: &Facts) -> Option<(String, f64)> {
    if facts.loaded {
        let counted = facts.value(FactId::server_requests_per_s).zip(facts.ended_per_s());
        if let Some((server, sent)) = counted.filter(|(server, sent)| *server >= TWICE_RATIO_MIN * sent) {
            return Some((
                format!("It counts {} req/s while {} are sent", format_number(server), format_number(sent)),
                0.95,
            ));
        }
        let held = facts.value(FactId::requests_at_server_mean).zip(facts.value(FactId::in_flight_mean));
        if let Some((server, sent)) = held.filter(|(server, sent)| *server >= TWICE_RATIO_MIN * sent) {
            return Some((
                format!(
                    "It holds {} requests while {} are in flight",
                    format_number(server),
                    format_number(sent)
                ),
                0.9,
            ));
        }
    }
    let opens = facts.value(FactId::active_opens_per_s).zip(facts.value(FactId::new_connections_per_s));
    let (opened, accepted) =
        opens.filter(|(opened, accepted)| *opened >= OPENS_FRACTION_MIN * accepted && *opened >= 1.0)?;
    Some((
        format!("It opens {} connections/s and accepts {}/s", format_number(opened), format_number(accepted)),
        0.8,
    ))
}

/// Where the service is passed on to itself: by what the topology shows, or by its settings.
fn proxies_to_itself(facts: &Facts) -> Option<String> {
    let service = facts.service.as_ref().filter(|service| service.service == "apache")?;
    let links = facts.topology.iter().flat_map(|topology| &topology.links);
    let mut own = links.filter(|link| link.from_pid == service.pid && link.to_pid == Some(service.pid));
    let linked = own.next().map(|link| link.by.clone());
    linked.or_else(|| target(own_setting(service)?, service))
}

/// The setting that passes requests on to the service itself.
fn own_setting(service: &ServiceSnapshot) -> Option<&ScopedSetting> {
    const SETTINGS: [&str; 4] = ["ProxyPass", "ProxyPassMatch", "BalancerMember", "SetHandler"];
    let mut passed = service.scoped.iter().filter(|one| SETTINGS.contains(&one.setting.as_str()));
    passed.find(|one| target(one, service).is_some())
}

/// The address of the service itself in a setting.
fn target(one: &ScopedSetting, service: &ServiceSnapshot) -> Option<String> {
    let targets = one.value.split([' ', '"']).filter(|word| word.contains("://"));
    targets.map(|url| url.trim_start_matches("proxy:").to_owned()).find(|url| is_own(url, service))
}

/// Whether a URL leads to a port of this service on this machine.
fn is_own(url: &str, service: &ServiceSnapshot) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '|']).next().unwrap_or(rest);
    let is_port = |port: &str| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
    let (host, port) =
        authority.rsplit_once(':').filter(|(_, port)| is_port(port)).unwrap_or((authority, ""));
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        // Of other protocols no port of a web server is meant.
        _ => return false,
    };
    let port: u16 = if port.is_empty() { default } else { port.parse().unwrap_or(0) };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let listens = |host: &str| {
        service.listens.iter().any(|at| {
            at.rsplit_once(':').is_some_and(|(own, own_port)| {
                own_port.parse() == Ok(port)
                    && (own.trim_matches(['[', ']']) == host || matches!(own, "*" | "0.0.0.0" | "[::]"))
            })
        })
    };
    let is_loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
    let bound = service
        .listens
        .iter()
        .any(|at| at.rsplit_once(':').is_some_and(|(own, _)| own.trim_matches(['[', ']']) == host));
    (is_loopback && (service.port == port || listens(host))) || (bound && listens(host))
}

fn remedies(facts: &Facts, workers: f64, queue: f64) -> Vec<Remedy> {
    let threads = facts.threads_per_process();
    // What is in flight holds a worker and wants a second one.
    let sent = facts.value(FactId::in_flight_mean).filter(|_| facts.loaded);
    let demand =
        sent.map_or_else(|| worker_remedies::demand(facts, workers, queue), |sent| 2.0 * sent).max(workers);
    let wanted = (workers::HEADROOM * demand / threads).ceil() * threads;
    let to = database_connections::apache_workers_that_fit(facts).map_or(wanted, |fits| wanted.min(fits));
    let restart = facts.setting("ServerLimit").is_some_and(|limit| to > limit * threads);
    let mut sized = worker_remedies::remedy(
        facts,
        (workers, to),
        restart,
        format!(
            "{} concurrent workers needed, two for each proxied request, plus 30% headroom",
            format_number(demand)
        ),
    );
    // What is known of the rate counts each request twice.
    sized.predicted = None;
    let passed = facts.service.as_ref().and_then(own_setting);
    let written = passed.and_then(|one| Some((one.file.as_ref()?, one.line)));
    let written = written.map_or(String::new(), |(file, line)| {
        format!("; it is set in {file}{}", line.map_or(String::new(), |line| format!(":{line}")))
    });
    let direct = Remedy {
        from: passed.map(|one| SettingValue::Text(one.value.clone())),
        ..manual(
            SettingId::of_service("apache", passed.map_or("ProxyPass", |one| &one.setting)),
            "addresses that clients use must keep working",
            format!(
                "a redirect, an alias or the same handler for both addresses needs one worker instead of two{written}"
            ),
        )
    };
    let sized = (to > workers).then_some(sized);
    let most = sized.iter().all(|one| matches!(one.to, Some(SettingValue::Integer(to)) if to > 0));
    if most { sized.into_iter().chain([direct]).collect() } else { vec![direct] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};
    use webdyno_model::topology::{Link, Topology};

    const LOOP: &[(FactId, f64)] = &[
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::workers_limit, 32.0),
        (FactId::workers_busy_mean, 32.0),
        (FactId::accept_queue_mean, 13.0),
        (FactId::in_flight_mean, 30.0),
        (FactId::requests_at_server_mean, 44.0),
        (FactId::server_requests_per_s, 120.0),
        (FactId::ended_per_s, 60.0),
        (FactId::active_opens_per_s, 60.0),
        (FactId::new_connections_per_s, 121.0),
    ];

    fn with(changes: &[(FactId, f64)], target: &str, loaded: bool) -> Option<Finding> {
        let values = with_changes(LOOP, changes);
        let mut facts =
            facts(&values, &[("MaxRequestWorkers", 32), ("ServerLimit", 16), ("ThreadsPerChild", 16)]);
        facts.loaded = loaded;
        let service = facts.service.as_mut().unwrap();
        service.mode = Some("event".into());
        service.listens = vec!["*:80".into(), "10.0.0.1:8080".into(), "[2001:db8::5]:8080".into()];
        service.scoped = vec![scoped_setting("ProxyPass", &format!("/shop {target} disablereuse=on"), &[])];
        check(&facts)
    }

    #[test]
    fn only_its_own_ports_are_itself() {
        for (target, own) in [
            ("http://127.0.0.1/app", true),
            ("http://localhost:80/app", true),
            ("http://10.0.0.1:8080/", true),
            ("http://[2001:db8::5]:8080/", true),
            ("http://[2001:db8::6]:8080/", false),
            ("http://10.0.0.2:8080/", false),
            ("http://127.0.0.1:9000/", false),
            ("https://localhost/", false),
            ("fcgi://127.0.0.1:80/", false),
            ("balancer://shop", false),
        ] {
            assert_eq!(with(&[], target, true).is_some(), own, "{target}");
        }
    }

    #[test]
    fn connections_to_itself_that_were_seen_tell_it_without_a_setting() {
        let with_link = |from, to| {
            let mut facts = facts(LOOP, &[("MaxRequestWorkers", 32)]);
            let link = Link { from_pid: from, to_pid: to, by: "10.0.0.1:8080".into(), ..Link::default() };
            facts.topology = Some(Topology { links: vec![link], ..Topology::default() });
            check(&facts)
        };
        // The service is process 1.
        let finding = with_link(1, Some(1)).unwrap();
        assert!(finding.summary.contains("proxies requests to itself (10.0.0.1:8080"), "{}", finding.summary);
        assert!(with_link(1, Some(7)).is_none() && with_link(7, Some(1)).is_none());
        assert!(with_link(1, None).is_none());
    }

    #[test]
    fn it_must_happen_and_cost() {
        let (to, none) = ("http://127.0.0.1/app", f64::NAN);
        let idle = [
            (FactId::server_requests_per_s, 60.0),
            (FactId::requests_at_server_mean, 31.0),
            (FactId::active_opens_per_s, 0.0),
        ];
        for (name, changes, loaded, confidence) in [
            ("counts", vec![], true, Some(0.95)),
            ("held", vec![(FactId::server_requests_per_s, none)], true, Some(0.9)),
            ("watched", vec![], false, Some(0.8)),
            ("another address is asked for", idle.to_vec(), true, None),
            ("workers are free", vec![(FactId::scoreboard_full_fraction, 0.0)], true, None),
            ("nobody waits", vec![(FactId::accept_queue_mean, 0.0)], true, None),
        ] {
            assert_eq!(with(&changes, to, loaded).map(|finding| finding.confidence), confidence, "{name}");
        }
    }

    #[test]
    fn both_halves_are_counted() {
        // Twice thirty, and 30%, in processes of 16.
        let remedy = with(&[], "http://127.0.0.1/", true).unwrap().remedies.remove(0);
        assert_eq!(
            (remedy.setting.name.as_str(), remedy.to),
            ("MaxRequestWorkers", Some(SettingValue::Integer(80)))
        );
    }
}
