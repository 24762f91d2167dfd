//! When `tls-handshakes` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::tls_handshakes::settings::TlsSettings;
use crate::resources::request_cost::RequestCost;
use crate::resources::syscall_cost::scaled_to_machine_us;
use crate::resources::{processor_time, processors, request_cost, site_profile};
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::ServiceSnapshot;

/// What every handshake costs in processor time, without the signature: the connection, the exchange of keys, the
/// records, and their memory. 250 to 400 us were seen.
const HANDSHAKE_US: f64 = 300.0;
/// Signatures, as `openssl speed` tells them on cores of the last ten years.
const SIGN_US: [(&str, f64); 6] = [
    ("RSA 8", 12_000.0),
    ("RSA 4", 3_000.0),
    ("RSA 3", 1_200.0),
    ("RSA", 500.0),
    ("ECDSA P-384", 300.0),
    ("ECDSA P-521", 300.0),
];
/// A key of a kind that is not known, or on a small curve.
const SIGN_SMALL_US: f64 = 40.0;
/// The share of the service's work that handshakes which need not be must cost.
const SHARE_MIN: f64 = 0.2;
/// The same where they only have to be allowed to keep their connections: a word in the configuration.
const SHARE_MIN_KEPT: f64 = 0.1;
const CONFIDENCE_SMALL: f64 = 0.7;
const FULL_FRACTION_MIN: f64 = 0.85;
const CONFIDENCE_SAMPLED: f64 = 0.75;
/// Requests on a kept connection, as a share: with more of them handshakes are few.
const REUSED_MAX: f64 = 0.6;
/// Below this share of resumed sessions the server does not know its visitors again; from that on it knows nearly all of them.
const RESUMED_MIN: f64 = 0.5;
const RESUMED_NEARLY_ALL: f64 = 0.8;

/// Handshakes as they are, and what they cost.
struct Handshakes {
    per_s: f64,
    resumed: Option<f64>,
    sign_us: f64,
    key: Option<String>,
}

impl Handshakes {
    fn has_rsa_key(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.starts_with("RSA"))
    }
}

/// What could be done about them, and the share of the work that it would save.
struct HandshakeSaving {
    share: f64,
    /// A smaller share is not worth it.
    share_min: f64,
    words: String,
    remedies: Vec<Remedy>,
    confidence: f64,
}

/// Fires when handshakes fill the processors, and need not.
pub fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|_| site_profile::is_tls(facts) == Some(true))?;
    // Where nobody counts requests, samples of full processors tell what handshakes take of them.
    let work = request_cost::request_cost_with_backends(facts);
    let is_sampled = processor_time::handshakes(facts).is_some() && has_full_processors(facts);
    if work.is_none() && !is_sampled {
        return None;
    }
    let handshakes = handshakes(facts, service)?;
    let best = savings(facts, service, &handshakes, work.as_ref());
    let saving = best.filter(|saving| saving.share >= saving.share_min)?;
    let resumed =
        handshakes.resumed.map_or(String::new(), |resumed| format!(" ({:.0}% resumed)", resumed * 100.0));
    let requests = facts.ended_per_s().or(facts.value(FactId::server_requests_per_s));
    let requests = requests.map_or(String::new(), |rate| format!(" for {} req/s", format_number(rate)));
    Some(Finding {
        id: LimitId::TlsHandshakes.into(),
        summary: format!(
            "TLS handshakes saturate the CPU: {} handshakes/s{resumed}{requests}{}. {}",
            format_number(handshakes.per_s),
            handshakes.key.as_ref().map_or(String::new(), |key| format!(", with {}", key_words(key))),
            saving.words,
        ),
        confidence: work.map_or(saving.confidence.min(CONFIDENCE_SAMPLED), |work| {
            work.scaled_confidence(saving.confidence)
        }),
        explains_fraction: Some(significant(saving.share, 3)),
        facts: facts.cite(&fact_ids! {
            tls_handshakes_per_s, tls_resumed_fraction, tls_handshake_mean_us, connections_reused_fraction,
            new_connections_per_s, ended_per_s, server_requests_per_s, cpu_per_request_us, service_cpu_cores,
            service_cores_limit, cores, pressure_group_cpu_some_fraction, rate,
        }),
        remedies: saving.remedies,
    })
}

/// `an RSA key of 2048 bits`, `an ECDSA P-256 key`.
fn key_words(key: &str) -> String {
    key.strip_prefix("RSA ")
        .map_or_else(|| format!("an {key} key"), |bits| format!("an RSA key of {bits} bits"))
}

/// Whether processors are full: for others to wait, or by the service alone, whose few processes have a core each.
fn has_full_processors(facts: &Facts) -> bool {
    let of_usable = processors::own_cores(facts).zip(facts.value(FactId::usable_cores));
    processors::cpu_shortage(facts).is_some()
        || of_usable.is_some_and(|(own, usable)| own >= FULL_FRACTION_MIN * usable)
}

/// What every handshake costs, without the signature.
pub(crate) fn handshake_us(facts: &Facts) -> f64 {
    scaled_to_machine_us(facts, HANDSHAKE_US)
}

fn handshakes(facts: &Facts, service: &ServiceSnapshot) -> Option<Handshakes> {
    let per_s = facts.value(FactId::tls_handshakes_per_s).or(facts.value(FactId::new_connections_per_s))?;
    let key = site_profile::key(service, facts.request_targets.first());
    let sign_us = key.as_ref().map_or(SIGN_US[3].1, |key| {
        SIGN_US.iter().find(|(kind, _)| key.starts_with(kind)).map_or(SIGN_SMALL_US, |(_, us)| *us)
    });
    Some(Handshakes { per_s, resumed: facts.value(FactId::tls_resumed_fraction), sign_us, key })
}

/// What saves most: connections that are kept where clients want that, sessions that are known again, a smaller key.
fn savings(
    facts: &Facts,
    service: &ServiceSnapshot,
    of: &Handshakes,
    work: Option<&RequestCost>,
) -> Option<HandshakeSaving> {
    let server = TlsSettings::of(facts, service);
    // What is not known is between: half of them.
    let signed = 1.0 - of.resumed.unwrap_or(0.5);
    let sampled = processor_time::handshakes(facts);
    let share = |us: f64| match sampled {
        Some(all) => all * us / (handshake_us(facts) + signed * of.sign_us),
        None => work.map_or(0.0, |work| (of.per_s * us / 1e6 / work.cores).min(0.95)),
    };
    let reused = site_profile::reused(facts);
    if reused.is_some_and(|reused| reused > REUSED_MAX) {
        return None;
    }
    let forgets = server.forgets;
    let certain = |share: f64| match share {
        _ if of.resumed.is_none() && !forgets => 0.5,
        share if share >= 0.5 => 0.9,
        _ => 0.8,
    };
    if !server.keeps && facts.wants_keepalive != Some(false) {
        // Of samples what is cryptography counts; a connection costs the kernel besides.
        let connection = sampled
            .and(work)
            .map_or(0.0, |work| of.per_s * request_cost::connection_us(facts) / 1e6 / work.cores);
        let share = |us: f64| (share(us) + connection).min(0.95);
        return Some(saving_of_kept(facts, &server, of, share, certain));
    }
    // Connections that are wanted, allowed and still not kept have another reason.
    if facts.wants_keepalive == Some(true) {
        return None;
    }
    // The signatures of those that are not known again may take the time all the same.
    let knows = of.resumed.is_some_and(|resumed| resumed >= RESUMED_MIN);
    let share = share(signed * of.sign_us);
    if 1.0 - signed >= RESUMED_NEARLY_ALL {
        return None;
    }
    let remedies = server.cheaper_handshakes(of.has_rsa_key(), forgets && !knows);
    let words = match forgets {
        _ if knows => words_of_some(signed),
        true => "No session is resumed: the session cache and tickets are off.".to_owned(),
        false => "Sessions are not resumed, so each needs a signature.".to_owned(),
    };
    let words = format!("{words} A signature takes about {}.", format_time(of.sign_us));
    let confidence = certain(share);
    let share_min = SHARE_MIN;
    (!remedies.is_empty()).then_some(HandshakeSaving { share, share_min, words, remedies, confidence })
}

/// Of connections that clients would keep, and the server does not.
fn saving_of_kept(
    facts: &Facts,
    server: &TlsSettings,
    of: &Handshakes,
    share: impl Fn(f64) -> f64,
    certain: impl Fn(f64) -> f64,
) -> HandshakeSaving {
    // Even if all of them resume a session, they could be saved.
    let at_least = share(handshake_us(facts));
    let signed = 1.0 - of.resumed.unwrap_or(0.5);
    let share = share(handshake_us(facts) + signed * of.sign_us);
    let confidence = match facts.wants_keepalive {
        Some(_) if share < SHARE_MIN => CONFIDENCE_SMALL.min(certain(share)),
        Some(_) => certain(share),
        None if at_least >= SHARE_MIN => 0.7,
        None => 0.5,
    };
    let mut remedies = vec![server.keep_alive()];
    remedies.extend(server.cheaper_handshakes(of.has_rsa_key(), server.forgets));
    HandshakeSaving {
        share,
        share_min: if facts.wants_keepalive.is_some() { SHARE_MIN_KEPT } else { SHARE_MIN },
        words: format!("Each request uses a new connection, as {}.", server.off_words()),
        remedies,
        confidence,
    }
}

fn words_of_some(signed: f64) -> String {
    format!("{:.0}% of the sessions are not resumed, so each of these needs a signature.", signed * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{add_samples, facts, of_pool, scoped_setting, with_changes};
    use crate::settings::effective::RequestTarget;
    use webdyno_model::processor_time::{ProcessorTime, ProcessorTimePart, ProcessorWork};
    use webdyno_model::service::SettingValue;

    type FactChanges<'a> = &'a [(FactId, f64)];

    fn with(changes: FactChanges, settings: &[(&str, &str)], wants: Option<bool>) -> Option<Finding> {
        let base = [
            (FactId::service_cpu_cores, 0.98),
            (FactId::cores, 1.0),
            (FactId::cpu_per_request_us, 3300.0),
            (FactId::tls_handshakes_per_s, 300.0),
            (FactId::tls_resumed_fraction, 0.0),
            (FactId::connections_reused_fraction, 0.0),
            (FactId::ended_per_s, 300.0),
        ];
        let mut facts = of_host(&with_changes(&base, changes), settings);
        facts.wants_keepalive = wants;
        check(&facts)
    }

    /// Facts of a load over TLS, whose virtual host has these settings.
    fn of_host(values: FactChanges, settings: &[(&str, &str)]) -> Facts {
        let mut facts = facts(values, &[]);
        let scoped = |(setting, value): &(&str, &str)| scoped_setting(setting, value, &["VirtualHost *:443"]);
        facts.service.as_mut().unwrap().scoped = settings.iter().map(scoped).collect();
        facts.request_targets =
            vec![RequestTarget { share: 1.0, ..RequestTarget::of("https://h/a").unwrap() }];
        facts
    }

    const LARGE: (&str, &str) = ("SSLCertificateFile key", "RSA 4096");
    const FORGETS: [(&str, &str); 2] = [("SSLSessionCache", "none"), ("SSLSessionTickets", "off")];

    #[test]
    fn a_large_key_and_no_sessions_are_named_with_both_remedies() {
        let finding = with(&[], &[&FORGETS[..], &[LARGE]].concat(), Some(false)).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.9, Some(0.918)));
        let settings: Vec<_> = finding.remedies.iter().map(|remedy| remedy.setting.name.as_str()).collect();
        assert_eq!(settings, ["SSLSessionCache", "SSLCertificateFile"]);
    }

    #[test]
    fn where_nobody_counts_requests_samples_of_full_processors_tell() {
        let with = |cores: f64, wait: f64| {
            let values = [
                (FactId::service_cpu_cores, cores),
                (FactId::usable_cores, 1.0),
                (FactId::usable_busy_fraction, 1.0),
                (FactId::pressure_group_cpu_some_fraction, wait),
                (FactId::new_connections_per_s, 260.0),
            ];
            let mut facts = of_host(&values, &[&FORGETS[..], &[LARGE]].concat());
            let part = ProcessorTimePart {
                work: ProcessorWork::TlsHandshakes,
                fraction: 0.85,
                ci95: [0.8, 0.9],
                mostly: "libcrypto.so.3".into(),
            };
            facts.processor_time =
                Some(ProcessorTime { with_kernel: true, parts: vec![part], ..ProcessorTime::default() });
            check(&facts).map(|finding| finding.confidence)
        };
        let sampled = Some(CONFIDENCE_SAMPLED);
        assert_eq!([with(0.6, 1.0), with(0.9, 0.1), with(0.6, 0.1)], [sampled, sampled, None]);
    }

    #[test]
    fn a_connection_costs_the_kernel_beside_its_cryptography() {
        let confidence = |per_s: f64| {
            let values = [
                (FactId::service_cpu_cores, 0.98),
                (FactId::cores, 1.0),
                (FactId::cpu_per_request_us, 2300.0),
                (FactId::new_connections_per_s, per_s),
                (FactId::ended_per_s, per_s),
            ];
            let settings = [("KeepAlive", "Off"), ("SSLCertificateFile key", "ECDSA P-256")];
            let mut facts = of_host(&values, &settings);
            let places = [("apache2;libcrypto.so.3;BN_mod", 170), ("apache2;mod_perl.so", 830)];
            add_samples(&mut facts, &places);
            check(&facts).map(|finding| finding.confidence)
        };
        // 17% and 0.1 ms of each.
        assert_eq!([confidence(425.0), confidence(100.0)], [Some(0.7), None]);
    }

    #[test]
    fn they_cost_as_much_where_a_backend_has_most_of_full_processors() {
        for (backend_cores, confidence) in [(0.6, Some(0.8)), (0.2, None)] {
            let values = [
                (FactId::service_cpu_cores, 0.35),
                (FactId::cpu_per_request_us, 400.0),
                (FactId::usable_cores, 1.0),
                (FactId::usable_busy_fraction, 1.0),
                (FactId::pressure_group_cpu_some_fraction, 0.85),
                (FactId::tls_handshakes_per_s, 880.0),
                (FactId::tls_resumed_fraction, 1.0),
                (FactId::ended_per_s, 880.0),
            ];
            let settings = [("KeepAlive", "Off"), ("SSLCertificateFile key", "ECDSA P-256")];
            let mut facts = of_host(&values, &settings);
            facts.wants_keepalive = Some(true);
            of_pool(&mut facts, "unknown", &[(FactId::backend_cpu_cores, backend_cores)]);
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{backend_cores}");
        }
    }

    #[test]
    fn connections_that_the_server_does_not_keep_come_first() {
        let off = [("KeepAlive", "Off"), ("KeepAliveTimeout", "15"), ("SSLCertificateFile key", "RSA 2048")];
        let changes: FactChanges =
            &[(FactId::tls_resumed_fraction, 1.0), (FactId::tls_handshakes_per_s, 1000.0)];
        let finding = with(changes, &off, Some(true)).unwrap();
        let remedy = &finding.remedies[0];
        assert_eq!(
            (remedy.setting.name.as_str(), remedy.to.clone()),
            ("KeepAlive", Some(SettingValue::Text("On".into())))
        );
        assert_eq!(remedy.together_with[0].to, SettingValue::Integer(3));
        // Nobody wants to keep them, and all are recognised.
        assert!(with(changes, &off, Some(false)).is_none());
        // A tenth of the work is worth a word in the configuration.
        let at_rate = |per_s: f64| {
            let changes = [(FactId::tls_resumed_fraction, 1.0), (FactId::tls_handshakes_per_s, per_s)];
            with(&changes, &off, Some(true)).map(|finding| finding.confidence)
        };
        assert_eq!([1_000.0, 500.0, 200.0].map(at_rate), [Some(0.8), Some(0.7), None]);
        // They are wanted and allowed: that they are not kept has another reason.
        assert!(with(&[], &[&FORGETS[..], &[LARGE]].concat(), Some(true)).is_none());
    }

    #[test]
    fn nginx_is_told_in_its_own_words() {
        let of_nginx = |settings: &[(&str, &str)], key: Option<&str>, wants: Option<bool>| {
            let values = [
                (FactId::service_cpu_cores, 0.98),
                (FactId::cores, 1.0),
                (FactId::cpu_per_request_us, 3300.0),
                (FactId::tls_handshakes_per_s, 600.0),
                (FactId::tls_resumed_fraction, 0.0),
                (FactId::connections_reused_fraction, 0.0),
                (FactId::ended_per_s, 300.0),
            ];
            let mut facts = of_host(&values, &[]);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            for (name, value) in settings {
                let known = service.settings.entry((*name).to_owned()).or_default();
                known.configured = Some(SettingValue::parse(value));
            }
            let of_http = |key: &str| scoped_setting("ssl_certificate key", key, &[]);
            service.scoped = key.map(of_http).into_iter().collect();
            facts.wants_keepalive = wants;
            check(&facts).map(|finding| {
                let change = |remedy: &Remedy| {
                    let to = remedy.to.as_ref().map_or(String::new(), |to| format!(" {to}"));
                    format!("{}{to}", remedy.setting.full_name())
                };
                (finding.remedies.iter().map(change).collect::<Vec<_>>().join(", "), finding.summary)
            })
        };
        let none = [("ssl_session_cache", "none"), ("ssl_session_tickets", "off")];
        let off = [("keepalive_timeout", "0")];
        let cache = "nginx ssl_session_cache shared:webdyno:10m";
        let both = format!("{cache}, nginx ssl_certificate");
        let keep = "nginx keepalive_timeout 75";
        let (ecdsa, rsa) = (Some("ECDSA P-256"), Some("RSA 2048"));
        for (settings, key, wants_keepalive, remedies, words) in [
            (&off[..], None, true, keep, "keepalive_timeout is 0"),
            (&off, ecdsa, true, keep, ", with an ECDSA P-256 key. "),
            (&none, None, false, cache, "the session cache and tickets are off"),
            (&none, Some("RSA 4096"), false, both.as_str(), ", with an RSA key of 4096 bits. "),
            // Tickets are enough for who returns, and all others need a signature.
            (&none[..1], rsa, false, "nginx ssl_certificate", ", with an RSA key of 2048 bits. "),
        ] {
            let (found, summary) = of_nginx(settings, key, Some(wants_keepalive)).unwrap();
            assert_eq!(found, remedies, "{settings:?} {key:?}");
            assert!(summary.contains(words), "{summary}");
        }
        for (settings, key) in [(&none[..1], None), (&none, ecdsa)] {
            assert_eq!(of_nginx(settings, key, Some(false)), None, "{settings:?} {key:?}");
        }
    }

    #[test]
    fn handshakes_that_cost_little_are_no_finding() {
        let all = [&FORGETS[..], &[LARGE]].concat();
        for changes in [
            &[(FactId::tls_handshakes_per_s, 20.0)][..],
            &[(FactId::service_cpu_cores, 0.2)],
            &[(FactId::connections_reused_fraction, 0.9)],
            &[(FactId::tls_resumed_fraction, 0.95)],
        ] {
            assert!(with(changes, &all, Some(false)).is_none(), "{changes:?}");
        }
        // Of six in ten that return nothing is signed; of the others 3 ms each.
        let many = [
            (FactId::tls_resumed_fraction, 0.6),
            (FactId::tls_handshakes_per_s, 600.0),
            (FactId::ended_per_s, 600.0),
        ];
        let found = with(&many, &[LARGE], Some(false)).unwrap();
        assert!(found.summary.contains("40% of the sessions are not resumed"), "{}", found.summary);
        assert_eq!(found.remedies[0].setting.name, "SSLCertificateFile");
        let small = [&FORGETS[..], &[("SSLCertificateFile key", "ECDSA P-256")]].concat();
        assert!(with(&[], &small, Some(false)).is_none());
    }
}
