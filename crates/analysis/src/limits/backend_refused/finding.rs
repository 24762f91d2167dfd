//! When `backend-refused` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, memory_evidence};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Below one in ten seconds, or in a hundred requests, the loss is negligible.
const REFUSED_PER_S_MIN: f64 = 0.1;
const FAILED_FRACTION_MIN: f64 = 0.01;

/// Fires when the log and the responses say that a backend is not to be had, or connections to it are never made.
pub fn check(facts: &Facts) -> Option<Finding> {
    if memory_evidence::is_proven(facts) {
        return None;
    }
    super::unreachable::check(facts).or_else(|| by_errors(facts))
}

fn by_errors(facts: &Facts) -> Option<Finding> {
    let messages = LOGGED.into_iter().filter_map(|name| Some((name, facts.value(name)?)));
    let most = messages.max_by(|a, b| a.1.total_cmp(&b.1));
    let logged = most.map_or(0.0, |(_, times)| times);
    let per_s = most.and_then(|(name, times)| Some(times / facts.window_s(name)?));
    let is_logged = logged >= 1.0 && per_s.is_none_or(|rate| rate >= REFUSED_PER_S_MIN);
    let answered = facts.value(FactId::bad_gateway_fraction).filter(|share| *share >= FAILED_FRACTION_MIN);
    let by_log = || {
        let (errors, all) =
            (facts.value(FactId::server_errors_answered_per_s)?, facts.value(FactId::answers_logged_per_s)?);
        (errors / all >= FAILED_FRACTION_MIN).then_some(errors / all)
    };
    let lost = match facts.loaded {
        true => answered?,
        false => by_log().filter(|_| is_logged)?,
    };
    let refused = [FactId::connections_refused_logged, FactId::nginx_backend_refused_messages]
        .into_iter()
        .any(|name| facts.value(name).is_some_and(|times| times >= 1.0));
    let targets = targets(facts, refused);
    let at = if targets.is_empty() { String::new() } else { format!(" at {}", targets.join(" or ")) };
    let ended = ended_without_response(facts).filter(|ended| *ended > logged);
    let how = how_text(facts, is_logged.then_some(logged), refused, ended);
    Some(Finding {
        id: LimitId::BackendRefused.into(),
        summary: format!(
            "Backend{at} fails: {how}; {:.0}% of responses are errors (502, 503). Errors are fast: count only successful responses.",
            lost * 100.0
        ),
        confidence: match is_logged {
            true if has_known_cause(facts, logged) => 0.4,
            true => 0.92,
            // Why is not told: the server may have had no port or descriptor left.
            false => 0.5,
        },
        explains_fraction: Some(significant(lost.min(1.0), 3)),
        facts: facts.cite(&CITED),
        remedies: vec![if has_known_cause(facts, logged) {
            let why =
                "by its log the server itself ran out of them: fix that first, the backend may be healthy";
            let front = facts.service.as_ref().map_or("apache", |service| service.service.as_str());
            manual(SettingId::of_service(front, "ports and descriptors"), "none", why)
        } else if ended.is_some() {
            let why = "look in the backend's own log why it ends requests: a time limit (request_terminate_timeout), a crash, no memory";
            manual(SettingId::external("backend", "its log"), "none", why)
        } else {
            remedy(facts, &targets, &at)
        }],
    })
}

/// In which way it fails, by what was logged.
fn how_text(facts: &Facts, logged: Option<f64>, refused: bool, ended: Option<f64>) -> String {
    let is_full = facts.value(FactId::nginx_backend_queue_full_messages).is_some_and(|times| times >= 1.0);
    match (ended, logged.map(format_number)) {
        (Some(ended), _) => format!("it ended {} requests without a response", format_number(ended)),
        (None, Some(times)) if refused => {
            format!("{times} connections refused, as nothing listens there or its accept queue is full")
        }
        (None, Some(times)) if is_full => {
            format!("{times} connections found no room in the accept queue of its socket")
        }
        (None, Some(times)) => format!("the server logged it {times} times"),
        (None, None) => "the server's log gives no reason".to_owned(),
    }
}

/// Requests that a backend took in, and whose connections it closed or that were reset when its process ended.
fn ended_without_response(facts: &Facts) -> Option<f64> {
    let counts = fact_ids! { nginx_backend_closed_messages, nginx_backend_reset_messages };
    let ended: f64 = counts.into_iter().filter_map(|name| facts.value(name)).sum();
    (ended >= 1.0).then_some(ended)
}

/// To start the backend, or to look for it where it listens. Where just one program listens at an address that is not looked
/// at, that is the address which was meant.
fn remedy(facts: &Facts, targets: &[String], at: &str) -> Remedy {
    const RISK: &str = "none: nothing responds there now";
    let which = if at.is_empty() { String::new() } else { format!(" (not{at})") };
    let why = format!("start the backend, or point the server to the address where it listens{which}");
    let general = manual(SettingId::external("backend", "address"), RISK, why);
    let [wrong] = targets else { return general };
    let Some(setting) = concurrency::forwarding_setting(facts, wrong) else { return general };
    let written = setting.file.as_ref().map_or(String::new(), |file| {
        format!(" {file}{} says {wrong}.", setting.line.map_or(String::new(), |line| format!(":{line}")))
    });
    let known = manual(SettingId::of_service("apache", &setting.setting), RISK, "");
    let from = Some(SettingValue::Text(setting.value.clone()));
    match unused_listeners(facts).as_slice() {
        [(program, address)] => Remedy {
            from,
            to: Some(SettingValue::Text(setting.value.replace(wrong, address))),
            why: format!(
                "{program} listens at {address}, which the server does not use; nothing listens at {wrong}.{written} If {program} is the intended backend, use its address; else start the backend"
            ),
            ..known
        },
        _ => Remedy { from, why: format!("{}.{written}", general.why), ..known },
    }
}

/// Addresses at which a program behind the server listens, and that are no target of it.
fn unused_listeners(facts: &Facts) -> Vec<(&str, &str)> {
    let targets = concurrency::targets(facts);
    let backends = facts.topology.iter().flat_map(|topology| &topology.backends);
    let all =
        backends.flat_map(|service| service.listens.iter().map(|at| (service.service.as_str(), at.as_str())));
    // A database is queried by programs, not by the server.
    let of_web = all.filter(|(program, _)| *program != "mariadb");
    of_web.filter(|(_, at)| !targets.iter().any(|(target, _)| same_address(at, target))).collect()
}

/// Whether the server itself had nothing left to connect with: then the backend may be well.
fn has_known_cause(facts: &Facts, logged: f64) -> bool {
    let own = [FactId::no_address_logged, FactId::no_descriptors_logged]
        .into_iter()
        .filter_map(|name| facts.value(name))
        .sum::<f64>();
    own >= 1.0 && own >= 0.5 * logged
}

const LOGGED: [FactId; 9] = fact_ids! {
    nginx_backend_refused_messages, nginx_backend_absent_messages, nginx_backend_queue_full_messages,
    nginx_backend_timed_out_messages, backend_socket_failed_logged,
    backend_unreachable_logged, backend_connections_failed_logged, backend_dispatch_failed_logged,
    proxy_connections_failed_logged,
};
const CITED: [FactId; 19] = fact_ids! {
    nginx_backend_closed_messages, nginx_backend_reset_messages,
    nginx_backend_refused_messages, nginx_backend_absent_messages, nginx_backend_queue_full_messages,
    nginx_backend_timed_out_messages, backend_socket_failed_logged,
    backend_unreachable_logged, backend_connections_failed_logged, backend_dispatch_failed_logged,
    proxy_connections_failed_logged, connections_refused_logged, no_address_logged, no_descriptors_logged,
    bad_gateway_fraction, failed_fraction, server_errors_answered_per_s, rate, ended_per_s,
};

/// Where the configuration looks for backends, without those that are known to be there. A refused connection is one to an
/// address: sockets of unread files are logged otherwise.
fn targets(facts: &Facts, refused: bool) -> Vec<String> {
    let mut found: Vec<String> =
        concurrency::targets(facts).into_iter().map(|(address, _)| address).collect();
    let listens = |address: &String| {
        let services = facts.topology.iter().flat_map(|topology| topology.services());
        let mut all = services.flat_map(|service| &service.listens);
        all.any(|listens| same_address(listens, address))
    };
    let is_file = |address: &str| refused && address.starts_with("unix:");
    found.retain(|address| !is_file(address) && !listens(address));
    found
}

/// A server that listens everywhere listens on this machine's addresses, too, and `localhost` is a name of these.
fn same_address(listens: &str, address: &str) -> bool {
    let port = |text: &str| text.rsplit_once(':').map(|(_, port)| port.to_owned());
    let everywhere = ["*:", "0.0.0.0:", "[::]:"].iter().any(|any| listens.starts_with(any));
    let is_local = |text: &str| ["127.", "localhost:", "[::1]:"].iter().any(|here| text.starts_with(here));
    let is_here = everywhere || (address.starts_with("localhost:") && is_local(listens));
    listens == address || (is_here && is_local(address) && port(listens) == port(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, over, scoped_setting, with_changes};
    use webdyno_model::change::ApplyClass;

    fn of(values: &[(FactId, f64)], handlers: &[&str]) -> Facts {
        let mut facts = facts(values, &[]);
        let setting = |value: &&str| scoped_setting("SetHandler", value, &[]);
        facts.service.as_mut().unwrap().scoped = handlers.iter().map(setting).collect();
        facts
    }

    const REFUSED: [(FactId, f64); 4] = [
        (FactId::backend_unreachable_logged, 300.0),
        (FactId::backend_connections_failed_logged, 300.0),
        (FactId::connections_refused_logged, 300.0),
        (FactId::bad_gateway_fraction, 0.5),
    ];

    #[test]
    fn it_names_the_address_that_refuses() {
        let handlers =
            ["unix:/run/php/php.sock|fcgi://localhost", "proxy:fcgi://127.0.0.1:9000", "server-status"];
        let finding = check(&of(&REFUSED, &handlers)).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.92, Some(0.5)));
        assert!(
            finding
                .summary
                .starts_with("Backend at 127.0.0.1:9000 fails: 300 connections refused, as nothing listens"),
            "{}",
            finding.summary
        );
    }

    #[test]
    fn who_listens_where_nobody_looks_is_told() {
        let handlers = ["unix:/run/php/php.sock|fcgi://localhost", "fcgi://127.0.0.1:9000"];
        let with = |listens: &[&str]| {
            let mut facts = of(&REFUSED, &handlers);
            let scoped = &mut facts.service.as_mut().unwrap().scoped;
            (scoped[1].file, scoped[1].line) = (Some("/etc/apache2/shop.conf".into()), Some(8));
            let backend = webdyno_model::service::ServiceSnapshot {
                service: "php_fpm".into(),
                listens: listens.iter().map(|at| (*at).to_owned()).collect(),
                ..Default::default()
            };
            facts.topology =
                Some(webdyno_model::topology::Topology { backends: vec![backend], ..Default::default() });
            check(&facts).unwrap().remedies.remove(0)
        };
        let one = with(&["unix:/run/php/php.sock", "127.0.0.1:9001"]);
        assert_eq!((one.setting.name.as_str(), one.class), ("SetHandler", ApplyClass::Manual));
        assert_eq!(one.to, Some(SettingValue::Text("fcgi://127.0.0.1:9001".into())));
        for part in ["php_fpm listens at 127.0.0.1:9001", "/etc/apache2/shop.conf:8 says 127.0.0.1:9000"] {
            assert!(one.why.contains(part), "{}", one.why);
        }
        let two = with(&["127.0.0.1:9001", "127.0.0.1:9002"]);
        assert_eq!((two.to, two.from), (None, Some(SettingValue::Text("fcgi://127.0.0.1:9000".into()))));
    }

    #[test]
    fn a_backend_that_ends_requests_is_not_told_as_one_that_is_gone() {
        let values = [
            (FactId::nginx_backend_reset_messages, 40.0),
            (FactId::nginx_backend_closed_messages, 2.0),
            (FactId::nginx_backend_refused_messages, 0.0),
            (FactId::bad_gateway_fraction, 1.0),
        ];
        let finding = check(&facts(&values, &[])).unwrap();
        assert!(finding.summary.contains("it ended 42 requests without a response"), "{}", finding.summary);
        assert!(finding.remedies[0].why.contains("own log"), "{:?}", finding.remedies);
    }

    #[test]
    fn nginx_tells_it_in_its_own_words() {
        for message in fact_ids! {
            nginx_backend_refused_messages, nginx_backend_absent_messages, nginx_backend_queue_full_messages,
            nginx_backend_timed_out_messages,
        } {
            let values = [
                (message, 300.0),
                (FactId::server_errors_answered_per_s, 30.0),
                (FactId::answers_logged_per_s, 30.0),
            ];
            let mut facts = facts(&values, &[]);
            facts.loaded = false;
            assert_eq!(check(&facts).map(|finding| finding.confidence), Some(0.92), "{message}");
            // An hour with a few of them, and errors of the application.
            over(&mut facts, message, 3.0, 3600.0);
            assert!(check(&facts).is_none(), "{message}");
        }
    }

    #[test]
    fn who_listens_everywhere_listens_here() {
        for (listens, same) in
            [("*:9000", true), ("[::]:9000", true), ("*:9001", false), ("10.0.0.1:9000", false)]
        {
            assert_eq!(same_address(listens, "127.0.0.1:9000"), same, "{listens}");
        }
        for (listens, same) in [("127.0.0.1:9000", true), ("[::1]:9000", true), ("10.0.0.1:9000", false)] {
            assert_eq!(same_address(listens, "localhost:9000"), same, "{listens}");
        }
    }

    #[test]
    fn a_message_now_and_then_or_errors_of_the_application_are_none() {
        let with = |changes: &[(FactId, f64)]| {
            let values = with_changes(&REFUSED, changes);
            check(&of(&values, &[]))
        };
        assert!(with(&[(FactId::bad_gateway_fraction, 0.001)]).is_none());
        let silent: Vec<_> = REFUSED[..3].iter().map(|(name, _)| (*name, 0.0)).collect();
        assert_eq!(with(&silent).unwrap().confidence, 0.5);
        assert_eq!(with(&[(FactId::no_address_logged, 290.0)]).unwrap().confidence, 0.4);
        assert!(
            with(&[(FactId::pressure_memory_full_fraction, 0.4), (FactId::swapped_in_pages_per_s, 900.0)])
                .is_none()
        );
    }
}
