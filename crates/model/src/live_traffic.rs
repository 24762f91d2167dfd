//! Live traffic: what other clients send to the port under load, besides us.

use crate::fact::Fact;
use crate::number::significant;
use serde::{Deserialize, Serialize};

/// What others do with a server. Where nothing could be read of that there is no such value: unknown is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTraffic {
    /// Whether others use the server.
    pub present: bool,
    /// Requests per second of others, where the service counts its requests.
    pub requests_per_s: Option<f64>,
    /// The most connections of others that were open at once, where the kernel tells whose they are.
    pub connections_count: Option<f64>,
    /// What it rests on.
    pub evidence: Vec<Fact>,
}

impl LiveTraffic {
    /// In words: `12 requests/s and 3 connections of others`.
    pub fn to_text(&self) -> String {
        let whole = |value: f64| significant(value, 3);
        let requests = self.requests_per_s.map(|rate| format!("{} requests/s", whole(rate)));
        let connections =
            self.connections_count.filter(|count| *count > 0.0).map(|count| match whole(count) {
                1.0 => "1 open connection".to_owned(),
                count => format!("{count} open connections"),
            });
        let reported: Vec<String> = requests.into_iter().chain(connections).collect();
        if reported.is_empty() {
            "requests of others".into()
        } else {
            format!("{} of others", reported.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_not_told() {
        for (requests_per_s, connections_count, expected) in [
            (Some(12.04), Some(3.0), "12 requests/s and 3 open connections of others"),
            (Some(0.5), None, "0.5 requests/s of others"),
            (None, Some(1.0), "1 open connection of others"),
            (Some(20.0), Some(0.0), "20 requests/s of others"),
            (None, None, "requests of others"),
        ] {
            let traffic = LiveTraffic { present: true, requests_per_s, connections_count, evidence: vec![] };
            assert_eq!(traffic.to_text(), expected);
        }
    }
}
