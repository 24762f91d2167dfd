//! Facts of what was asked for: how large answers are, what connections and TLS handshakes they took, and how much
//! processor time of the service each request took.

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::settings::effective::RequestTarget;
use webdyno_model::run::RunReport;
use webdyno_model::workload::RequestSpec;

/// Most URLs that are looked at: those of lists are told by their kinds.
const REQUESTED_MAX: usize = 200;

/// What the load asks for; empty without one.
pub(super) fn request_targets(measurement: &Measurement) -> Vec<RequestTarget> {
    let requests = measurement.workload.as_ref().map_or(&[][..], |workload| &workload.requests);
    let total: f64 = requests.iter().map(|request| request.weight).sum();
    let of = |request: &RequestSpec| {
        let asks = |(name, _): &(String, String)| name.eq_ignore_ascii_case("accept-encoding");
        let compressed = request.headers.iter().any(asks);
        Some(RequestTarget { share: request.weight / total, compressed, ..RequestTarget::of(&request.url)? })
    };
    requests.iter().take(REQUESTED_MAX).filter_map(of).collect()
}

fact_table! {
    "fraction": connections_reused_fraction, tls_resumed_fraction;
    "handshakes/s": tls_handshakes_per_s;
    "us": tls_handshake_mean_us, cpu_per_request_us;
}

impl FactBuilder<'_> {
    /// What answers and connections were like, as the generator saw them.
    pub(super) fn requests(&mut self, measurement: &Measurement, run: &RunReport) {
        let ended = (run.requests.completed + run.requests.failed) as f64;
        let opened = run.connections.opened as f64;
        let share = |part: f64, of: f64| (of > 0.0).then(|| part / of);
        let over_tls = request_targets(measurement).iter().any(|target| target.tls);
        let handshakes = over_tls.then(|| share(opened, run.elapsed_s)).flatten();
        let resumed = share(run.connections.tls_resumed as f64, opened).filter(|_| over_tls);
        let handshake_us = run.tls_handshake_us.mean.filter(|_| over_tls);
        let facts = [
            (FactId::answer_bytes_mean, share(run.bytes.received as f64, ended)),
            (FactId::connections_reused_fraction, share(run.connections.reused as f64, ended)),
            (FactId::tls_handshakes_per_s, handshakes),
            (FactId::tls_resumed_fraction, resumed),
            (FactId::tls_handshake_mean_us, handshake_us),
        ];
        for (name, value) in facts {
            self.add_client(measurement, name, value);
        }
    }

    /// Processor time of the service's own processes for each request that ended, whoever sent it.
    pub(super) fn work_per_request(&mut self) {
        let value = |name: FactId| self.facts.get(&name).map(|fact| fact.value);
        let rate = value(FactId::ended_per_s)
            .into_iter()
            .chain(value(FactId::server_requests_per_s))
            .reduce(f64::max);
        let cores = self.series.rate("process.cpu_s");
        // A few requests tell nothing: the service also does work that is nobody's.
        let us = cores.zip(rate.filter(|rate| *rate >= 5.0)).map(|(cores, rate)| cores / rate * 1e6);
        self.add_from(FactId::cpu_per_request_us, us, ("process.cpu_s", Derivation::Rate(1.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::facts;
    use crate::facts::testing::sample;
    use crate::run_report::run_report;
    use webdyno_model::interval::{ConnectionCounts, Interval};
    use webdyno_model::workload::Workload;

    fn measurement(url: &str) -> Measurement {
        let request = RequestSpec { url: url.into(), ..RequestSpec::default() };
        let connections = ConnectionCounts { opened: 50, reused: 50, tls_resumed: 10, ..Default::default() };
        let interval = Interval {
            length_us: 1_000_000,
            completed: 100,
            bytes_received: 20_000,
            connections,
            ..Interval::default()
        };
        let reading = |t_s: f64| sample(t_s, "process", &[("process.cpu_s", 0.5 * t_s)]);
        Measurement {
            workload: Some(Workload { requests: vec![request], ..Workload::default() }),
            intervals: vec![interval],
            samples: vec![reading(0.0), reading(1.0)],
            measured_to_s: 1.0,
            ..Measurement::default()
        }
    }

    #[test]
    fn handshakes_are_those_of_tls() {
        for (url, handshakes) in [("https://h/a", Some(50.0)), ("http://h/a", None)] {
            let measurement = measurement(url);
            let facts = facts(&measurement, Some(&run_report(&measurement).unwrap())).unwrap();
            assert_eq!(facts.value(FactId::tls_handshakes_per_s), handshakes, "{url}");
            assert_eq!(facts.value(FactId::tls_resumed_fraction), handshakes.map(|_| 0.2), "{url}");
            assert_eq!(facts.value(FactId::answer_bytes_mean), Some(200.0));
            assert_eq!(facts.value(FactId::connections_reused_fraction), Some(0.5));
            assert_eq!(facts.value(FactId::cpu_per_request_us), Some(5000.0));
            assert_eq!(facts.request_targets[0].path, "/a");
        }
    }
}
