//! What a server's settings say of connections and sessions, and the remedies that are changes to them, in its own words:
//! `KeepAlive`, `SSLSessionCache` of Apache, `keepalive_timeout`, `ssl_session_cache` of nginx.

use crate::facts::Facts;
use crate::limits::manual_remedy::manual;
use crate::settings::effective;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// Longer than this, connections that are kept are mostly idle ones; seconds.
const TIMEOUT_S: i64 = 3;

/// What they say.
pub(super) struct TlsSettings {
    service: &'static str,
    /// Whether it keeps connections.
    pub(super) keeps: bool,
    /// Whether it recognises nobody who returns.
    pub(super) forgets: bool,
    /// For how long it keeps idle connections.
    timeout: Option<String>,
}

impl TlsSettings {
    pub(super) fn of(facts: &Facts, service: &ServiceSnapshot) -> Self {
        if service.service == "nginx" {
            return Self::of_nginx(facts, service);
        }
        let target = facts.request_targets.first();
        let setting = |name: &str| effective::of_host(service, name, target);
        let is = |name: &str, value: &str| setting(name).is_some_and(|own| own.eq_ignore_ascii_case(value));
        Self {
            service: if service.service == "apache" { "apache" } else { "" },
            keeps: !is("KeepAlive", "off"),
            forgets: is("SSLSessionCache", "none") && is("SSLSessionTickets", "off"),
            timeout: setting("KeepAliveTimeout"),
        }
    }

    /// A value that a part of the site gives counts before that of all: which server is asked is not known.
    fn of_nginx(facts: &Facts, service: &ServiceSnapshot) -> Self {
        let value = |name: &str| {
            let own = service.scoped.iter().find(|one| one.setting == name).map(|one| one.value.clone());
            let value = own.or_else(|| facts.text(name)).unwrap_or_default();
            value.split_ascii_whitespace().next().unwrap_or_default().to_owned()
        };
        let timeout = value("keepalive_timeout");
        Self {
            service: "nginx",
            keeps: !["0", "0s"].contains(&timeout.as_str()),
            forgets: ["none", "off"].contains(&value("ssl_session_cache").as_str())
                && value("ssl_session_tickets") == "off",
            timeout: None,
        }
    }

    pub(super) fn off_words(&self) -> &'static str {
        if self.service == "nginx" { "keepalive_timeout is 0" } else { "KeepAlive is Off" }
    }

    pub(super) fn keep_alive(&self) -> Remedy {
        if self.service != "nginx" {
            return keep_alive(self.timeout.as_deref());
        }
        Remedy {
            from: Some(SettingValue::Integer(0)),
            ..remedy(
                "nginx",
                "keepalive_timeout",
                Some("75"),
                ApplyClass::Reload,
                "an idle connection counts towards worker_connections until the timeout",
                "a client's next request uses the same connection, without a handshake",
            )
        }
    }

    /// Sessions that are known again, and a key that signs faster.
    pub(super) fn cheaper_handshakes(&self, has_rsa_key: bool, forgets: bool) -> Vec<Remedy> {
        let (cache, to, risk, certificate) = match self.service {
            "apache" => (
                "SSLSessionCache",
                "shmcb:ssl_scache(512000)",
                "half a megabyte of shared memory; mod_socache_shmcb must be loaded",
                "SSLCertificateFile",
            ),
            "nginx" => {
                ("ssl_session_cache", "shared:webdyno:10m", "10 MB of shared memory", "ssl_certificate")
            }
            _ => return vec![],
        };
        let cache = remedy(
            self.service,
            cache,
            Some(to),
            ApplyClass::Reload,
            risk,
            "returning clients resume their session, without a signature",
        );
        let key = remedy(
            self.service,
            certificate,
            None,
            ApplyClass::Manual,
            "clients from before 2010 do not support such keys: keep the old certificate beside it",
            "a key on an elliptic curve (ECDSA P-256) signs in some hundredths of a millisecond",
        );
        [forgets.then_some(cache), has_rsa_key.then_some(key)].into_iter().flatten().collect()
    }
}

fn remedy(
    service: &str,
    setting: &str,
    to: Option<&str>,
    class: ApplyClass,
    risk: &str,
    why: &str,
) -> Remedy {
    let to = to.map(SettingValue::parse);
    Remedy { to, class, ..manual(SettingId::of_service(service, setting), risk, why) }
}

fn keep_alive(timeout: Option<&str>) -> Remedy {
    let is_long = timeout.is_none_or(|timeout| timeout.parse().is_ok_and(|seconds: i64| seconds > TIMEOUT_S));
    let shorter = SettingChange {
        setting: SettingId::of_service("apache", "KeepAliveTimeout"),
        to: SettingValue::Integer(TIMEOUT_S),
    };
    Remedy {
        from: Some(SettingValue::Text("Off".into())),
        together_with: is_long.then_some(shorter).into_iter().collect(),
        ..remedy(
            "apache",
            "KeepAlive",
            Some("On"),
            ApplyClass::Reload,
            "under prefork and worker a client holds a worker between requests, until the timeout",
            "a client's next request uses the same connection, without a handshake",
        )
    }
}
