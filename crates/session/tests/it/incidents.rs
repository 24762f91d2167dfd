//! Facts, incidents and levels are told by metrics that there are: a name that no collector gives would never speak.

use webdyno_analysis::diagnosis::incidents;
use webdyno_analysis::facts;
use webdyno_analysis::run_report::host_levels;
use webdyno_host::collectors;

fn is_read(name: &str) -> bool {
    let mut metrics = collectors::catalogue().into_iter().flat_map(|info| info.metrics);
    let stands_for = |metric: &str| match name.split_once('*') {
        Some((before, after)) => metric.starts_with(before) && metric.ends_with(after),
        None => metric == name,
    };
    metrics.any(|metric| stands_for(&metric.name) || metric.describes(name))
}

#[test]
fn every_fact_incident_and_level_follows_from_metrics_that_are_read() {
    for (fact, metric) in facts::with_metrics() {
        assert!(is_read(metric), "{fact}: {metric}");
    }
    for kind in incidents::ALL.iter() {
        assert!(is_read(kind.metric), "{}", kind.metric);
        if let Some(whole) = kind.whole() {
            assert!(is_read(whole), "{whole}");
        }
    }
    for name in host_levels::MAIN.iter().flat_map(host_levels::HostLevel::metrics) {
        assert!(is_read(&name), "{name}");
    }
}
