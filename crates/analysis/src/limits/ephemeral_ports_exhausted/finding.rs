//! When `ephemeral-ports-exhausted` is found, what proves it, and what to change.

use super::upstream;
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::wording::format_number;
use webdyno_model::change::SettingChange;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The share of the ports from which on hardly one is found: they are tried from a random place on.
const USED_FRACTION_MIN: f64 = 0.95;
/// Messages per second that matter.
const MESSAGES_PER_S_MIN: f64 = 0.1;
/// Failed requests that matter.
const FAILED_FRACTION_MIN: f64 = 0.005;
/// All unprivileged ports: what a range can be at most.
const WIDEST: &str = "1024 65535";
const RANGE: &str = "net.ipv4.ip_local_port_range";
const REUSE: &str = "net.ipv4.tcp_tw_reuse";
/// So much of what is in use waits for the end of its minute.
const WAITING_FRACTION_MIN: f64 = 0.5;

/// Fires when connections to a backend fail for lack of ports.
pub fn check(facts: &Facts) -> Option<Finding> {
    let messages =
        [FactId::no_port_messages, FactId::no_port_messages_of_program, FactId::nginx_no_port_messages];
    let reported = messages.into_iter().filter_map(|name| {
        let (count, window_s) = facts.value(name).zip(facts.window_s(name))?;
        (window_s > 0.0 && count / window_s >= MESSAGES_PER_S_MIN).then_some(count)
    });
    let reported = reported.reduce(f64::max);
    let available = facts.value(FactId::ports_available).filter(|ports| *ports > 0.0);
    let fullest = facts.each(FactId::ports_used_max).max_by(|a, b| a.1.total_cmp(&b.1));
    let full = fullest.zip(available).filter(|((_, used), ports)| *used >= USED_FRACTION_MIN * ports);
    let is_for_good = full.is_some_and(|((to, used), ports)| {
        used - given_anew(facts, to).unwrap_or(0.0) >= USED_FRACTION_MIN * ports
    });
    let failed = facts.value(FactId::failed_fraction);
    let fails = failed.is_some_and(|failed| failed >= FAILED_FRACTION_MIN);
    let confidence = match (reported, full) {
        (Some(_), Some(_)) => 0.95,
        (Some(_), None) => 0.9,
        (None, Some(_)) if fails && is_for_good => 0.75,
        _ => return None,
    };
    let limit = available.map_or(String::new(), |ports| format!(" (limit {})", format_number(ports)));
    let to = full.map_or(limit, |((to, used), ports)| {
        let waits = if mostly_waits(facts, to) == Some(true) { ", mostly in TIME_WAIT" } else { "" };
        let [used, ports] = [used, ports].map(format_number);
        format!(": {used} of {ports} in use towards {to}{waits}")
    });
    let refused = reported.map_or(String::new(), |reported| {
        format!(" EADDRNOTAVAIL (99) logged {} times.", format_number(reported))
    });
    Some(Finding {
        id: LimitId::EphemeralPortsExhausted.into(),
        summary: format!(
            "Local ports to the backend exhausted{to}.{refused} Requests that need a new connection fail at once, \
             whatever the backend could do."
        ),
        confidence,
        // What fails for lack of a port is all that it costs.
        explains_fraction: failed.filter(|_| fails).map(|_| 0.95).or_else(|| facts.loaded.then_some(0.3)),
        facts: [
            facts.cite(&fact_ids! {
                no_port_messages, no_port_messages_of_program, nginx_no_port_messages, proxy_refused_messages, ports_available,
                failed_fraction, rate,
            }),
            fullest.map_or(vec![], |(to, _)| {
                facts.cite_of(&[FactId::ports_used_max, FactId::ports_time_wait_max], to)
            }),
        ]
        .concat(),
        remedies: remedies(facts, available, full.map(|((to, _), _)| to)),
    })
}

fn remedies(facts: &Facts, available: Option<f64>, to: Option<&str>) -> Vec<Remedy> {
    let gain = available.map(|ports| significant(64_512.0 / ports, 2)).filter(|gain| *gain > 1.1);
    let mut all = vec![];
    if facts.is_service(upstream::NGINX) {
        all.push(upstream::kept_connections(
            facts,
            to,
            gain.map(|_| SettingChange {
                setting: SettingId::sysctl(RANGE),
                to: SettingValue::Text(WIDEST.into()),
            }),
        ));
    } else if facts.value(FactId::no_port_messages).is_none_or(|count| count > 0.0) {
        all.push(manual(SettingId::of_service("apache", "disablereuse"),
            "the backend may close an idle connection just when it is used: its timeout must be the longer one",
            "persistent backend connections carry many requests each: ProxyPass without disablereuse=on",
        ));
    } else {
        all.push(manual(
            SettingId::application("persistent connections"),
            "the backend needs one connection for each worker",
            "persistent backend connections carry many requests each",
        ));
    }
    if let Some(gain) = gain {
        all.push(Remedy {
            to: Some(SettingValue::Text(WIDEST.into())),
            ..manual(SettingId::sysctl(RANGE),
                "ports of services that start later may be in use (reserve them: ip_local_reserved_ports); firewalls in between \
                 must let them through; applied live",
                format!("all unprivileged ports: {gain} times as many"),
            )
        });
    }
    all.extend(to.and_then(|to| ports_used_again(facts, to)));
    let service = if facts.is_service(upstream::NGINX) { upstream::NGINX } else { "apache" };
    all.push(manual(
        SettingId::of_service(service, "unix socket"),
        "backend and server must run on one machine",
        "a unix socket needs no ports",
    ));
    all
}

/// Ports towards it that wait for the end of their minute, and which the kernel gives anew after a second.
fn given_anew(facts: &Facts, to: &str) -> Option<f64> {
    let mode = facts.value(FactId::ahead_ports_reuse_mode)?;
    let is_given = mode == 1.0 || (mode == 2.0 && is_own(to));
    facts.value_of(FactId::ports_time_wait_max, to).filter(|_| is_given)
}

/// Whether the address is of the loopback.
fn is_own(to: &str) -> bool {
    to.starts_with("127.") || to.starts_with("[::1]")
}

/// Whether most of the ports in use towards it wait for the end of their minute; `None` where that was not read.
fn mostly_waits(facts: &Facts, to: &str) -> Option<bool> {
    let waiting = facts.value_of(FactId::ports_time_wait_max, to)?;
    Some(waiting >= WAITING_FRACTION_MIN * facts.value_of(FactId::ports_used_max, to)?)
}

/// Ports in TIME_WAIT that are used again after a second (ip-sysctl.rst: 2, the kernel's own value, does so over loopback only).
fn ports_used_again(facts: &Facts, to: &str) -> Option<Remedy> {
    let mode = facts.value(FactId::ahead_ports_reuse_mode)?;
    let waiting = facts.value_of(FactId::ports_time_wait_max, to)?;
    let is_waiting = mostly_waits(facts, to)?;
    let is_off = mode == 0.0 || (mode == 2.0 && !is_own(to));
    (is_waiting && is_off).then(|| Remedy {
        from: Some(SettingValue::Integer(mode as i64)),
        to: Some(SettingValue::Integer(1)),
        ..manual(
            SettingId::sysctl(REUSE),
            "the backend must use TCP timestamps, as nearly all do; applied live",
            format!(
                "{} of the ports in use are in TIME_WAIT: they are used again after a second",
                format_number(waiting)
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts_of_several;

    fn observed(messages: f64, used: f64, failed: f64) -> Facts {
        facts_of_several(
            &[
                (FactId::no_port_messages, messages),
                (FactId::ports_available, 400.0),
                (FactId::failed_fraction, failed),
            ],
            &[(FactId::ports_used_max, "10.0.0.2:80", used), (FactId::ports_used_max, "10.0.0.3:80", 3.0)],
        )
    }

    #[test]
    fn the_log_and_the_ports_that_are_taken_prove_it() {
        for (messages, used, failed, confidence) in [
            (900.0, 400.0, 0.9, Some(0.95)),
            (900.0, 10.0, 0.9, Some(0.9)),
            (0.0, 395.0, 0.9, Some(0.75)),
            // Nearly all ports in use, and nothing fails: they are used again in time.
            (0.0, 395.0, 0.0, None),
            (0.0, 10.0, 0.9, None),
            (0.5, 10.0, 0.9, None),
        ] {
            let finding = check(&observed(messages, used, failed));
            assert_eq!(finding.map(|one| one.confidence), confidence, "{messages} {used} {failed}");
        }
    }

    #[test]
    fn ports_that_the_kernel_gives_anew_are_not_why_requests_fail() {
        for (to, waiting, mode, confidence) in [
            ("127.0.0.1:3306", 390.0, 2.0, None),
            ("10.0.0.2:80", 390.0, 1.0, None),
            ("10.0.0.2:80", 390.0, 2.0, Some(0.75)),
            ("127.0.0.1:3306", 390.0, 0.0, Some(0.75)),
            ("127.0.0.1:3306", 5.0, 2.0, Some(0.75)),
        ] {
            let known = [
                (FactId::ports_available, 400.0),
                (FactId::failed_fraction, 0.2),
                (FactId::ahead_ports_reuse_mode, mode),
            ];
            let used = [(FactId::ports_used_max, to, 400.0), (FactId::ports_time_wait_max, to, waiting)];
            let found = check(&facts_of_several(&known, &used)).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{to} {waiting} {mode}");
        }
    }

    #[test]
    fn ports_that_wait_are_used_again_where_the_kernel_does_not_do_so() {
        for (to, waiting, mode, expected) in [
            ("10.0.0.2:80", 390.0, 2.0, true),
            ("10.0.0.2:80", 390.0, 1.0, false),
            ("10.0.0.2:80", 100.0, 2.0, false),
            ("10.0.0.2:80", 390.0, f64::NAN, false),
            ("127.0.0.1:80", 390.0, 2.0, false),
            ("127.0.0.1:80", 390.0, 0.0, true),
        ] {
            let mode = (FactId::ahead_ports_reuse_mode, mode);
            let known = [(FactId::ports_available, 400.0), (FactId::no_port_messages, 900.0), mode];
            let known: Vec<_> = known.into_iter().filter(|(_, value)| value.is_finite()).collect();
            let used = [(FactId::ports_used_max, to, 400.0), (FactId::ports_time_wait_max, to, waiting)];
            let finding = check(&facts_of_several(&known, &used)).unwrap();
            let waits =
                finding.summary.contains("in use towards") && finding.summary.contains("mostly in TIME_WAIT");
            assert_eq!(waits, waiting == 390.0, "{}", finding.summary);
            let found =
                finding.remedies.iter().find(|one| one.setting.name == REUSE).map(|one| one.to.clone());
            assert_eq!(found, expected.then_some(Some(SettingValue::Integer(1))), "{to} {waiting}");
        }
    }

    #[test]
    fn kept_connections_come_before_a_wider_range() {
        let finding = check(&observed(900.0, 400.0, 0.9)).unwrap();
        // What the ports are in use for was not read.
        assert!(finding.summary.contains("400 of 400 in use towards 10.0.0.2:80. "), "{}", finding.summary);
        let settings: Vec<_> = finding.remedies.iter().map(|remedy| remedy.setting.name.as_str()).collect();
        assert_eq!(settings, ["disablereuse", "net.ipv4.ip_local_port_range", "unix socket"]);
        assert_eq!(finding.remedies[1].to, Some(SettingValue::Text("1024 65535".into())));
        let mut of_nginx = facts_of_several(
            &[(FactId::nginx_no_port_messages, 900.0), (FactId::ports_available, 400.0)],
            &[(FactId::ports_used_max, "10.0.0.2:80", 400.0)],
        );
        of_nginx.service.as_mut().unwrap().service = "nginx".into();
        let finding = check(&of_nginx).unwrap();
        assert_eq!(finding.confidence, 0.95);
        let settings: Vec<_> = finding.remedies.iter().map(|remedy| remedy.setting.full_name()).collect();
        assert_eq!(settings, ["nginx keepalive", "sysctl net.ipv4.ip_local_port_range", "nginx unix socket"]);
    }
}
