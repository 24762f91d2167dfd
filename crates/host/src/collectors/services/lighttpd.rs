//! lighttpd's own view: the page of mod_status in its automatic format (`?auto`).
//!
//! Facts: <https://redmine.lighttpd.net/projects/lighttpd/wiki/Mod_status>, mod_status.c and connections.h of lighttpd 1.4.69:
//! lines `Name: value`, and a scoreboard with a letter for each connection. The connection for the page is one of them.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::probes::status_page;
use crate::visibility::process_view::Root;
use std::time::Duration;

/// The longest that a reading may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Metrics, lines of the page, and what their unit is multiplied by; the first two are totals.
const NUMBERS: [(&str, &str, u64); 4] = [
    ("lighttpd.accesses_count", "Total Accesses", 1),
    ("lighttpd.served_bytes", "Total kBytes", 1024),
    ("lighttpd.connections_count", "BusyServers", 1),
    ("lighttpd.connections_free_count", "IdleServers", 1),
];

/// Metrics and the letters of the scoreboard that they count.
const STATES: [(&str, &str); 4] = [
    ("lighttpd.connections_keepalive_count", "k"),
    ("lighttpd.connections_reading_count", "rRqQ"),
    ("lighttpd.connections_handling_count", "h"),
    ("lighttpd.connections_writing_count", "sSW"),
];

/// The values of a page; `None` when it is another one.
fn parse(page: &str) -> Option<Vec<(&'static str, f64)>> {
    let value = |key: &str| page.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    value("BusyServers")?;
    let number = |(name, key, factor): &(&'static str, &str, u64)| {
        Some((*name, value(key)?.trim().parse::<u64>().ok()?.saturating_mul(*factor) as f64))
    };
    // The scoreboard goes on over lines, to the end.
    let board = page.split_once("Scoreboard: ").map(|(_, board)| board);
    let count = |letters: &str, board: &str| board.chars().filter(|c| letters.contains(*c)).count() as f64;
    let mut values: Vec<_> = NUMBERS.iter().filter_map(number).collect();
    if let Some(board) = board {
        values.extend(STATES.iter().map(|(name, letters)| (*name, count(letters, board))));
    }
    Some(values)
}

/// The collector.
#[derive(Debug, Default)]
pub struct Lighttpd;

impl Collector for Lighttpd {
    fn name(&self) -> &'static str {
        "lighttpd"
    }

    fn metrics(&self) -> Vec<Metric> {
        // URL is the status page.
        const SOURCE: &str = "mod_status of lighttpd";
        let number = |(name, key, factor): &(&str, &str, u64)| {
            let show = format!("curl -s 'URL?auto' | awk -F': ' '$1==\"{key}\" {{print $2*{factor}}}'");
            let is_total = key.starts_with("Total");
            if is_total { counter(*name, SOURCE, show) } else { gauge(*name, SOURCE, show) }
        };
        let state = |(name, letters): &(&str, &str)| {
            let board = "curl -s 'URL?auto' | sed -n '/^Scoreboard: /,$ s/^Scoreboard: //p'";
            let show = format!("{board} | tr -cd '{letters}' | wc -c");
            gauge(*name, SOURCE, show)
        };
        NUMBERS.iter().map(number).chain(STATES.iter().map(state)).collect()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let Some(service) = target.services("lighttpd").next() else {
            reading.lacks("lighttpd", "no lighttpd was found", crate::visibility::listeners::to_find_it());
            return reading;
        };
        let Some(page) = service.endpoints.first() else {
            let message = service.missing.iter().find(|missing| missing.signal == "lighttpd").cloned();
            reading.missing.extend(message);
            return reading;
        };
        // Each process counts for itself, and whichever is free answers.
        if service.configured_number("server.max-worker").is_some_and(|workers| workers > 0.0) {
            let why = "with server.max-worker the status page tells of one of the processes only";
            reading.lacks("lighttpd", why, "set `server.max-worker = 0`, or look at sockets and processes");
            return reading;
        }
        let got = status_page::get(service.pid, &Root::of(service.pid), page, "?auto", TIMEOUT);
        match &got {
            Ok((200, body)) => match parse(body) {
                Some(values) => values.into_iter().for_each(|(name, value)| reading.push(name, value)),
                None => reading.problem("the status page is not that of mod_status"),
            },
            Ok(_) => reading.lacks("lighttpd", status_page::why(page, &got), "let 127.0.0.1 in there"),
            Err(_) => reading.problem(status_page::why(page, &got)),
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// lighttpd 1.4.69.
    const PAGE: &str = "Total Accesses: 7\nTotal kBytes: 2\nUptime: 5\nBusyServers: 4\nIdleServers: 124\nScoreboard: hkWr\n____\n";

    #[test]
    fn the_page_parses() {
        let values = parse(PAGE).unwrap();
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!(value("lighttpd.accesses_count"), Some(7.0));
        assert_eq!(value("lighttpd.served_bytes"), Some(2048.0));
        assert_eq!(value("lighttpd.connections_free_count"), Some(124.0));
        assert_eq!(value("lighttpd.connections_writing_count"), Some(1.0));
        assert_eq!(value("lighttpd.connections_reading_count"), Some(1.0));
        assert_eq!(parse("<html>"), None);
        let short = parse("BusyServers: 4\n").unwrap();
        assert_eq!(short, [("lighttpd.connections_count", 4.0)], "not told is not zero");
    }

    proptest! {
        #[test]
        fn any_page_is_survived(cut in 0..PAGE.len(), noise in "[0-9A-Za-z: \n]{0,40}") {
            parse(&format!("{}{noise}", &PAGE[..cut]));
        }
    }
}
