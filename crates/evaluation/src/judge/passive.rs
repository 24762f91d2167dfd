//! A recording as it would be without load of our own: its generator becomes other clients, whom nobody knows.

use super::{JudgedRound, is_generator_finding};
use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_model::number::Number;

/// The generator's processor time, and where that of a stranger is counted.
const CLIENT_CPU: &str = "process.client_cpu_s";
const FOREIGN_CPU: &str = "process.foreign_cpu_s";
const OTHERS: &str = "clients.others_count";
const CONNECTIONS: &str = "clients.connections_count";

/// Recordings of rounds without what their generators knew; those in which the generator is at fault are left out.
pub fn passive_cases(cases: &[JudgedRound]) -> Vec<JudgedRound> {
    let reported = cases.iter().filter(|case| !is_generator_finding(&case.round.finding));
    reported.map(|case| JudgedRound { measurement: passive(&case.measurement), ..case.clone() }).collect()
}

/// The same traffic, only watched: everything that the generator knew is gone, and what it used is others'.
pub fn passive(measurement: &Measurement) -> Measurement {
    Measurement {
        measured_from_s: measurement.measured_from_s,
        measured_to_s: measurement.ramp_down_from_s.unwrap_or(measurement.measured_to_s),
        samples: measurement.samples.iter().map(without_generator).collect(),
        lacking: measurement.lacking.clone(),
        collectors: measurement.collectors.clone(),
        service: measurement.service.clone(),
        topology: measurement.topology.clone(),
        server: measurement.server.clone(),
        client: measurement.client.clone(),
        ..Measurement::default()
    }
}

fn without_generator(timed: &TimedSample) -> TimedSample {
    let mut timed = timed.clone();
    let values = &mut timed.sample.values;
    if let Some(client) = values.remove(CLIENT_CPU) {
        let foreign = values.get(FOREIGN_CPU).map_or(0.0, |foreign| foreign.0);
        values.insert(FOREIGN_CPU.into(), Number(foreign + client.0));
    }
    if let (Some(all), true) = (values.get(CONNECTIONS).copied(), values.contains_key(OTHERS)) {
        values.insert(OTHERS.into(), all);
    }
    timed
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::sample::Sample;
    use webdyno_model::workload::Workload;

    #[test]
    fn the_generator_becomes_a_stranger() {
        let values = [(CLIENT_CPU, 2.0), (FOREIGN_CPU, 1.0), (OTHERS, 0.0), (CONNECTIONS, 7.0)];
        let values = values.map(|(name, value)| (name.to_owned(), Number(value)));
        let sample = Sample { source: "x".into(), values: values.into(), ..Sample::default() };
        let measurement = Measurement {
            workload: Some(Workload::default()),
            samples: vec![TimedSample { t_s: 1.0, sample }],
            measured_to_s: 9.0,
            ramp_down_from_s: Some(8.0),
            quiet_from_s: Some(-1.0),
            ..Measurement::default()
        };
        let watched = passive(&measurement);
        assert!(watched.workload.is_none() && watched.quiet_from_s.is_none());
        assert_eq!(watched.measured_to_s, 8.0);
        let value = |name: &str| watched.samples[0].sample.values.get(name).map(|value| value.0);
        let observed = [CLIENT_CPU, FOREIGN_CPU, OTHERS, CONNECTIONS].map(value);
        assert_eq!(observed, [None, Some(3.0), Some(7.0), Some(7.0)]);
    }
}
