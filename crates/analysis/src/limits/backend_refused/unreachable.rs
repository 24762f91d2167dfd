//! When a backend answers no connection at all: its machine is gone, or a firewall drops what is sent there. The proxy waits for as long
//! as it is told to, and then takes another one: nothing fails, and everything is late.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::conntrack_full;
use crate::limits::manual_remedy::manual;
use crate::resources::concurrency;
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// Connections that are being made, on average, and as a share of the requests in flight.
const CONNECTING_MIN: f64 = 1.0;
const CONNECTING_FRACTION_MIN: f64 = 0.1;
/// A server that takes some connections and is late with others is overloaded, and not gone.
const OPEN_OF_CONNECTING_MAX: f64 = 0.1;
const CONFIDENCE: f64 = 0.9;

/// Fires when a noticed part of the requests waits for a connection to an address that confirms none.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    // A full table of connections on this machine drops the packets, whoever they are for.
    if conntrack_full::finding::is_full(facts) == Some(true) {
        return None;
    }
    let in_flight = concurrency::requests_in_flight(facts)?;
    let (service, topology) = (facts.service.as_ref()?, facts.topology.as_ref());
    let of = |name: FactId, at: &str| facts.value_of(name, at).unwrap_or(0.0);
    let is_gone = |at: &str, connecting: f64| {
        connecting >= CONNECTING_MIN.max(CONNECTING_FRACTION_MIN * in_flight)
            && of(FactId::upstream_connections_mean, at) <= OPEN_OF_CONNECTING_MAX * connecting
            && of(FactId::backend_queue_mean, at) < CONNECTING_MIN
            && backends::is_behind(service, topology, at)
    };
    let gone =
        facts.each(FactId::upstream_connecting_mean).filter(|(at, connecting)| is_gone(at, *connecting));
    let (at, connecting) = gone.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let share = (connecting / in_flight).min(1.0);
    let logged = facts.value(FactId::nginx_backend_timed_out_messages).filter(|times| *times >= 1.0);
    let logged = logged.map_or(String::new(), |times| {
        format!(" nginx logged {} timeouts of connections.", format_number(times))
    });
    let mut cited = facts.cite_of(&fact_ids! { upstream_connecting_mean, upstream_connections_mean }, at);
    cited.extend(facts.cite(&fact_ids! {
        nginx_backend_timed_out_messages, in_flight_mean, response_time_mean_us, failed_fraction, rate, ended_per_s,
    }));
    let why = format!(
        "start {at}, or take it out of the server's list of backends until it is back; a shorter connect timeout makes each try \
         cheaper, and a backend that failed should be left alone for some seconds (nginx: max_fails, fail_timeout)"
    );
    Some(Finding {
        id: LimitId::BackendRefused.into(),
        summary: format!(
            "Backend at {at} does not respond: {} of {} requests in progress at once wait for a connection to it, and none is \
             made. Its machine is down, or a firewall drops the packets.{logged}",
            format_number(significant(connecting, 3)),
            format_number(significant(in_flight, 3)),
        ),
        confidence: CONFIDENCE,
        explains_fraction: Some(significant(share, 3)),
        facts: cited,
        remedies: vec![manual(
            SettingId::external("backend", "address"),
            "none: nothing responds there now",
            why,
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts_of_several;
    use webdyno_model::topology::{Link, Topology};

    #[test]
    fn a_backend_that_confirms_no_connection_is_named() {
        const GONE: &str = "10.0.0.9:8080";
        let of = |full: f64, connecting: f64, open: f64, linked: &str| {
            let several = [
                (FactId::upstream_connecting_mean, GONE, connecting),
                (FactId::upstream_connections_mean, GONE, open),
                (FactId::upstream_connecting_mean, "10.0.0.8:8080", 0.1),
            ];
            let base = [
                (FactId::in_flight_mean, 30.0),
                (FactId::nginx_backend_timed_out_messages, 180.0),
                (FactId::conntrack_full_fraction, full),
            ];
            let mut facts = facts_of_several(&base, &several);
            facts.service.as_mut().unwrap().service = "nginx".into();
            let links = vec![Link { by: linked.into(), ..Link::default() }];
            facts.topology = Some(Topology { links, ..Topology::default() });
            check(&facts)
        };
        let with = |connecting: f64, open: f64, linked: &str| of(0.0, connecting, open, linked);
        let found = with(29.0, 0.0, GONE).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE, Some(0.967)));
        let begins = "Backend at 10.0.0.9:8080 does not respond: 29 of 30 requests in progress at once wait for a connection";
        assert!(
            found.summary.starts_with(begins) && found.summary.contains("logged 180 timeouts"),
            "{}",
            found.summary
        );
        for (what, connecting, open, linked) in [
            ("few wait there", 2.0, 0.0, GONE),
            ("it takes some connections", 20.0, 9.0, GONE),
            ("nobody of the chain talks to it", 29.0, 0.0, "10.0.0.8:8080"),
        ] {
            assert!(with(connecting, open, linked).is_none(), "{what}");
        }
        assert!(of(1.0, 29.0, 0.0, GONE).is_none(), "the table of connections is full");
    }
}
