//! nginx's own view: the page of stub_status.
//!
//! Facts: <https://nginx.org/en/docs/http/ngx_http_stub_status_module.html>. What is accepted and not handled was dropped
//! because a limit was met, worker_connections for one. The request for the page counts as one.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::probes::status_page;
use crate::visibility::process_view::Root;
use std::time::Duration;

/// The longest that a reading may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Levels and totals in the order of the page: active, accepts, handled, requests, reading, writing, waiting.
const NUMBERS: [(&str, bool); 7] = [
    ("nginx.connections_active_count", false),
    ("nginx.accepts_count", true),
    ("nginx.handled_count", true),
    ("nginx.requests_count", true),
    ("nginx.connections_reading_count", false),
    ("nginx.connections_writing_count", false),
    ("nginx.connections_waiting_count", false),
];

/// The numbers of the page; `None` when it is another one.
fn parse(page: &str) -> Option<Vec<u64>> {
    let mut lines = page.lines();
    let numbers =
        |line: &str| line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
    let active = numbers(lines.next()?.strip_prefix("Active connections:")?);
    lines.next().filter(|line| line.trim_start().starts_with("server accepts"))?;
    // With reset timings, another number stands behind them in some derivatives.
    let totals: Vec<u64> = numbers(lines.next()?).into_iter().take(3).collect();
    let states = numbers(lines.next()?.strip_prefix("Reading:")?);
    let all = [active, totals, states].concat();
    (all.len() == NUMBERS.len()).then_some(all)
}

/// The collector.
#[derive(Debug, Default)]
pub struct Nginx;

impl Collector for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn metrics(&self) -> Vec<Metric> {
        // URL is the status page.
        let number = |(at, (name, is_total)): (usize, &(&str, bool))| {
            let show = format!("curl -s 'URL' | grep -oE '[0-9]+' | sed -n {}p", at + 1);
            if *is_total { counter(*name, "stub_status", show) } else { gauge(*name, "stub_status", show) }
        };
        let mut metrics: Vec<Metric> = NUMBERS.iter().enumerate().map(number).collect();
        let dropped = "curl -s 'URL' | awk 'NR==3 {print $1-$2}'";
        metrics.push(counter("nginx.dropped_count", "stub_status", dropped));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let Some(service) = target.services("nginx").next() else {
            reading.lacks("nginx", "no nginx was found", crate::visibility::listeners::to_find_it());
            return reading;
        };
        let Some(page) = service.endpoints.first() else {
            let message = service.missing.iter().find(|missing| missing.signal == "nginx").cloned();
            reading.missing.extend(message);
            return reading;
        };
        let got = status_page::get(service.pid, &Root::of(service.pid), page, "", TIMEOUT);
        match &got {
            Ok((200, body)) => match parse(body) {
                Some(numbers) => {
                    for ((name, _), number) in NUMBERS.iter().zip(&numbers) {
                        reading.push(*name, *number as f64);
                    }
                    reading.push("nginx.dropped_count", numbers[1].saturating_sub(numbers[2]) as f64);
                }
                None => reading.problem("the status page is not that of stub_status"),
            },
            Ok(_) => reading.lacks(
                "nginx",
                status_page::why(page, &got),
                "let 127.0.0.1 in there: `allow 127.0.0.1;`",
            ),
            Err(_) => reading.problem(status_page::why(page, &got)),
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "Active connections: 291 \nserver accepts handled requests\n 16630948 16630945 31070465 \n\
        Reading: 6 Writing: 179 Waiting: 106 \n";

    #[test]
    fn the_page_parses() {
        assert_eq!(parse(PAGE), Some(vec![291, 16_630_948, 16_630_945, 31_070_465, 6, 179, 106]));
        for other in ["", "<html>", "Active connections: x\n", &PAGE[..60]] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn without_a_page_it_is_told_what_helps() {
        let reading = Nginx.read(&Target::default());
        assert!(reading.missing[0].why.contains("no nginx"), "{reading:?}");
    }

    proptest! {
        #[test]
        fn any_page_is_survived(cut in 0..PAGE.len(), noise in "[0-9A-Za-z: \n]{0,40}") {
            parse(&format!("{}{noise}", &PAGE[..cut]));
        }
    }
}
