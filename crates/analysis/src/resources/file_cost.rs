//! What it costs to send files, where that is all that a server does, and more than it should: the configuration then
//! makes it do something for each request. Which of its settings, the rules of these say.

use crate::facts::{FactId, Facts, fact_ids};
use crate::resources::request_cost::RequestCost;
use crate::resources::{processor_time, request_cost, site_profile};
use webdyno_model::processor_time::ProcessorWork;

/// The share of a request's cost that sending a file does not explain: from three times the cost on.
pub(crate) const EXCESS_MIN: f64 = 0.66;

/// The names of the facts that all this rests on.
pub(crate) const FACTS: [FactId; 9] = fact_ids! {
    cpu_per_request_us, service_cpu_cores, service_cores_limit, cores, pressure_group_cpu_some_fraction,
    cpu_system_cores, cpu_user_cores, answer_bytes_mean, rate,
};

/// Modules that look at each request, or into each answer, at a cost of their own.
pub(crate) const COSTLY: [&str; 8] = [
    "security2_module",
    "security3_module",
    "evasive20_module",
    "qos_module",
    "substitute_module",
    "sed_module",
    "ext_filter_module",
    "authnz_ldap_module",
];

/// Modules that compress answers.
const COMPRESSING: [&str; 2] = ["deflate_module", "brotli_module"];

/// A line of the error log, in processor time.
const LINE_US: f64 = 2.0;

/// The work of a server that sends files, when its processors are full with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileCost {
    /// The work.
    pub work: RequestCost,
    /// How much less sure it is that nothing else costs the time, 0 to 1.
    pub doubt: f64,
    /// The kernel's share of the processor time of the machine, where it is known; of what is not TLS.
    pub kernel_share: Option<f64>,
    /// The share of a request's cost that is TLS, by samples; zero where nobody sampled, which is doubt then.
    pub tls_share: f64,
}

impl FileCost {
    /// What a request takes beside TLS, in microseconds.
    pub fn beside_tls_us(&self) -> f64 {
        self.work.request_us * (1.0 - self.tls_share)
    }

    /// The share of that which sending a file does not explain.
    pub fn excess(&self) -> f64 {
        RequestCost { request_us: self.beside_tls_us(), ..self.work }.excess()
    }
}

/// More of it is not told from all of it.
const TLS_SHARE_MAX: f64 = 0.95;

/// The share of the service's time that TLS takes, where connections are encrypted and samples tell it.
fn tls_share(facts: &Facts) -> Option<f64> {
    let works = [ProcessorWork::TlsHandshakes, ProcessorWork::Cryptography];
    let is_tls = site_profile::is_tls(facts) == Some(true);
    let share = processor_time::share_of_all(facts, &works).filter(|_| is_tls)?;
    Some(share.min(TLS_SHARE_MAX))
}

/// Whether a fifth of the work may be lines of the error log.
pub(crate) fn logs_much(facts: &Facts, work: &RequestCost) -> bool {
    let logged = facts.value(FactId::error_log_lines_per_s).unwrap_or(0.0) * LINE_US / 1e6;
    logged >= 0.2 * work.cores
}

/// The work of a server that sends files: `None` when its processors have room, or when programs make the answers.
pub fn file_cost(facts: &Facts) -> Option<FileCost> {
    let service = facts.service.as_ref().filter(|service| service.service == "apache")?;
    let work = request_cost::request_cost(facts)?;
    let mut doubt = match site_profile::serves_files_only(facts) {
        Some(true) => 0.0,
        Some(false) => return None,
        None => 0.35,
    };
    let is_loaded =
        |names: &[&str]| names.iter().any(|name| service.modules.iter().any(|module| module == name));
    if is_loaded(&COSTLY) {
        doubt += 0.3;
    }
    // Browsers ask for compressed answers.
    if facts.request_targets.is_empty() && is_loaded(&COMPRESSING) {
        doubt += 0.15;
    }
    let tls_share = tls_share(facts);
    if site_profile::is_tls(facts) == Some(true)
        && site_profile::reused(facts).is_none_or(|reused| reused < 0.9)
        && tls_share.is_none()
    {
        doubt += 0.3;
    }
    if logs_much(facts, &work) {
        doubt += 0.4;
    }
    let kernel = facts.value(FactId::cpu_system_cores).zip(facts.value(FactId::cpu_user_cores));
    let tls_share = tls_share.unwrap_or(0.0);
    let kernel_share = kernel
        .filter(|(system, user)| system + user > 0.0)
        .map(|(system, user)| (system / (system + user) / (1.0 - tls_share)).min(1.0));
    Some(FileCost { work, doubt, kernel_share, tls_share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;
    use crate::settings::effective::RequestTarget;

    #[test]
    fn what_else_may_cost_time_is_doubt() {
        let base =
            [(FactId::service_cpu_cores, 1.0), (FactId::cores, 1.0), (FactId::cpu_per_request_us, 2000.0)];
        let of = |url: &str, module: &str, values: &[(FactId, f64)]| {
            let mut facts = facts(&[&base[..], values].concat(), &[]);
            facts.service.as_mut().unwrap().modules = vec!["core_module".into(), module.into()];
            facts.request_targets = RequestTarget::of(url).into_iter().collect();
            file_cost(&facts).map(|files| files.doubt)
        };
        for (url, module, values, doubt) in [
            ("http://h/a.html", "deflate_module", &[][..], Some(0.0)),
            ("http://h/a.html", "security2_module", &[], Some(0.3)),
            ("http://h/a.php", "php_module", &[], None),
            ("http://h/a", "php_module", &[], Some(0.35)),
            ("https://h/a.css", "ssl_module", &[], Some(0.3)),
            ("https://h/a.css", "ssl_module", &[(FactId::connections_reused_fraction, 0.99)], Some(0.0)),
            ("http://h/a.html", "x", &[(FactId::error_log_lines_per_s, 300_000.0)], Some(0.4)),
            ("http://h/a.html", "x", &[(FactId::service_cpu_cores, 0.2)], None),
        ] {
            assert_eq!(of(url, module, values), doubt, "{url} {module}");
        }
    }

    // Encrypted connections that are used once: 2 ms a request, half of it for TLS.
    #[test]
    fn what_tls_takes_is_known_by_samples() {
        let values = [
            (FactId::service_cpu_cores, 1.0),
            (FactId::cores, 1.0),
            (FactId::cpu_per_request_us, 2000.0),
            (FactId::cpu_system_cores, 0.3),
            (FactId::cpu_user_cores, 0.7),
        ];
        let mut facts = facts(&values, &[]);
        facts.service.as_mut().unwrap().modules = vec!["core_module".into(), "ssl_module".into()];
        facts.request_targets = RequestTarget::of("https://h/a.css").into_iter().collect();
        let unseen = file_cost(&facts).unwrap();
        assert_eq!((unseen.doubt, unseen.excess(), unseen.kernel_share), (0.3, 0.875, Some(0.3)));
        let places = [("apache2;libcrypto.so.3;BN_mod", 500), ("apache2;[kernel];path_openat", 500)];
        crate::facts::testing::add_samples(&mut facts, &places);
        let seen = file_cost(&facts).unwrap();
        assert_eq!((seen.doubt, seen.excess(), seen.kernel_share), (0.0, 0.75, Some(0.6)));
    }
}
