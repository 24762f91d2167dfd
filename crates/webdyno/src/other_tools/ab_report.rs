//! ab's report: the same fields in the same order, as text and as a table of HTML. A field that ab prints only if it says something
//! is printed only then.

use super::ab_flags::Options;
use super::totals::Totals;
use std::fmt::Write;
use url::Url;
use webdyno_load::Probe;
use webdyno_model::histogram::TimeHistogram;
use webdyno_report::sanitize;

/// The shares of the requests whose times are told.
const PERCENTS: [u32; 9] = [50, 66, 75, 80, 90, 95, 98, 99, 100];
/// Names stand in a column of so many letters.
const NAME_WIDTH: usize = 24;

/// What a report tells.
pub struct Table<'a> {
    pub options: &'a Options,
    pub url: &'a Url,
    pub probe: &'a Probe,
    pub totals: &'a Totals,
}

/// A field: its name, its value, what follows the value in the text, and whether an empty line goes before it there.
struct Field(&'static str, String, &'static str, bool);

impl Table<'_> {
    /// What is told before the times.
    fn fields(&self) -> Vec<Field> {
        let (options, totals, url) = (self.options, self.totals, self.url);
        let query = url.query().map_or(String::new(), |query| format!("?{query}"));
        let length = match options.may_differ {
            true => Field("Document Length", "Variable".into(), "", false),
            false => Field("Document Length", self.probe.body_bytes.to_string(), " bytes", false),
        };
        let mut fields = vec![
            Field("Server Software", sanitize(self.probe.server.as_deref().unwrap_or_default()), "", false),
            Field("Server Hostname", url.host_str().unwrap_or_default().into(), "", false),
            Field("Server Port", url.port_or_known_default().unwrap_or(80).to_string(), "", false),
            Field("Document Path", format!("{}{query}", url.path()), "", true),
            length,
            Field("Concurrency Level", options.concurrency.to_string(), "", true),
            Field("Time taken for tests", format!("{:.3}", totals.elapsed_s()), " seconds", false),
            Field("Complete requests", totals.ended().to_string(), "", false),
            Field("Failed requests", totals.failed.to_string(), "", false),
        ];
        let wrong = totals.status.values().sum::<u64>() - totals.with_status(200..=299);
        let counted =
            |name, count: u64, unit| (count > 0).then(|| Field(name, count.to_string(), unit, false));
        fields.extend(counted("Non-2xx responses", wrong, ""));
        if options.keepalive {
            let kept =
                totals.ended().saturating_sub(totals.connections.opened.saturating_sub(options.concurrency));
            fields.push(Field("Keep-Alive requests", kept.to_string(), "", false));
        }
        fields.push(Field("Total transferred", totals.bytes_received.to_string(), " bytes", false));
        fields.extend(counted("Total body sent", self.sent(), ""));
        fields.push(Field("HTML transferred", totals.body_bytes.to_string(), " bytes", false));
        fields.push(Field("Requests per second", format!("{:.2}", self.rate()), " [#/sec] (mean)", false));
        fields
    }

    /// Bytes of requests, where they have bodies.
    fn sent(&self) -> u64 {
        if self.options.has_body() { self.totals.bytes_sent } else { 0 }
    }

    fn rate(&self) -> f64 {
        self.totals.ended() as f64 / self.totals.elapsed_s()
    }

    fn kib_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / 1024.0 / self.totals.elapsed_s()
    }

    /// The times of a request's parts: connecting has none on a kept connection.
    fn parts(&self) -> [(&'static str, TimeHistogram); 4] {
        let totals = self.totals;
        let mut connect = totals.connect.clone();
        connect.record_many(0, totals.total.count().saturating_sub(connect.count()));
        [
            ("Connect", connect),
            ("Processing", totals.service.clone()),
            ("Waiting", totals.first_byte.clone()),
            ("Total", totals.total.clone()),
        ]
    }

    /// As a table of HTML.
    pub fn html(&self) -> String {
        let [table, row, cell] = &self.options.attributes;
        let mut text = format!("\n\n<table {table}>\n");
        let mut add = |name: &str, value: &str| {
            let _ = writeln!(
                text,
                "<tr {row}><th colspan=2 {cell}>{name}:</th><td colspan=2 {cell}>{}</td></tr>",
                escaped(value)
            );
        };
        for Field(name, value, unit, _) in self.fields() {
            // A rate has no unit there, and a length keeps its own.
            let unit = if unit.starts_with(" [") { "" } else { unit };
            add(name, &format!("{value}{unit}"));
        }
        add("Transfer rate", &format!("{:.2} kb/s received", self.kib_per_s(self.totals.bytes_received)));
        let head = |name: &str| format!("<th {cell}>{name}</th>");
        let _ = writeln!(text, "<tr {row}><th {cell} colspan=4>Connection Times (ms)</th></tr>");
        let heads: String = ["&nbsp;", "min", "avg", "max"].map(head).concat();
        let _ = writeln!(text, "<tr {row}>{heads}</tr>");
        for (name, times) in self.parts().into_iter().filter(|(name, _)| *name != "Waiting") {
            let cells = [times.quantile_us(0.0), times.mean_us().map(|us| us as u64), times.quantile_us(1.0)]
                .map(|us| format!("<td {cell}>{:>5}</td>", milliseconds(us.unwrap_or(0))));
            let _ = writeln!(text, "<tr {row}>{}{}</tr>", head(&format!("{name}:")), cells.concat());
        }
        text.push_str("</table>\n");
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// As text.
pub fn text(table: &Table<'_>) -> String {
    let totals = table.totals;
    let mut text = "..done\n\n\n".to_owned();
    for Field(name, value, unit, is_apart) in table.fields() {
        let space = if is_apart { "\n" } else { "" };
        let name = format!("{name}:");
        let _ = writeln!(text, "{space}{name:NAME_WIDTH$}{value}{unit}");
        if name == "Failed requests:" && totals.failed > 0 {
            let [connect, receive, length, other] = failures(totals);
            let _ = writeln!(
                text,
                "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {other})"
            );
        }
    }
    let each_ms = totals.elapsed_s() * 1000.0 / totals.ended().max(1) as f64;
    let at_once_ms = each_ms * table.options.concurrency as f64;
    let _ = writeln!(text, "{:NAME_WIDTH$}{at_once_ms:.3} [ms] (mean)", "Time per request:");
    let _ = writeln!(
        text,
        "{:NAME_WIDTH$}{each_ms:.3} [ms] (mean, across all concurrent requests)",
        "Time per request:"
    );
    let received = table.kib_per_s(totals.bytes_received);
    let _ = writeln!(text, "{:NAME_WIDTH$}{received:.2} [Kbytes/sec] received", "Transfer rate:");
    if table.sent() > 0 {
        let sent = table.kib_per_s(table.sent());
        let _ = writeln!(
            text,
            "{:NAME_WIDTH$}{sent:.2} kb/s sent\n{:NAME_WIDTH$}{:.2} kb/s total",
            "",
            "",
            sent + received
        );
    }
    if totals.ended() > 0 {
        text.push_str(&times(table));
    }
    text
}

/// Failures as ab tells them apart: to connect, to receive, another length, anything else.
fn failures(totals: &Totals) -> [u64; 4] {
    let errors = &totals.errors;
    let connect = totals.connect_errors();
    let receive = errors.reset + errors.closed_early;
    [connect, receive, errors.expect, errors.total().saturating_sub(connect + receive + errors.expect)]
}

/// Whole milliseconds, to the nearest.
fn milliseconds(us: u64) -> u64 {
    (us + 500) / 1000
}

/// The table of the times of a request's parts, and that of percentiles.
fn times(table: &Table<'_>) -> String {
    let mut text = "\nConnection Times (ms)\n".to_owned();
    let is_short = table.options.no_deviation;
    text.push_str(if is_short {
        "              min   avg   max\n"
    } else {
        "              min  mean[+/-sd] median   max\n"
    });
    for (name, times) in table.parts() {
        let dist = times.dist();
        let at = |us: Option<u64>| milliseconds(us.unwrap_or(0));
        let mean = milliseconds(dist.mean.unwrap_or(0.0) as u64);
        let name = format!("{name}:");
        let _ = match is_short {
            true => writeln!(text, "{name:12}{:>5} {mean:>5}{:>5}", at(dist.min), at(dist.max)),
            false => writeln!(
                text,
                "{name:12}{:>5} {mean:>4} {:>5.1} {:>6} {:>7}",
                at(dist.min),
                dist.stdev.unwrap_or(0.0) / 1000.0,
                at(dist.p50),
                at(dist.max)
            ),
        };
    }
    if table.options.no_percentiles || table.totals.ended() < 2 {
        return text;
    }
    text.push_str("\nPercentage of the requests served within a certain time (ms)\n");
    for percent in PERCENTS {
        let us = table.totals.total.quantile_us(f64::from(percent) / 100.0).unwrap_or(0);
        let longest = if percent == 100 { " (longest request)" } else { "" };
        let _ = writeln!(text, "{percent:>4}%  {:>5}{longest}", milliseconds(us));
    }
    text
}
