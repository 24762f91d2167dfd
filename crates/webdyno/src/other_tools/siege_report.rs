//! siege's report: as text, as JSON, and as a line of its log. Times in seconds, amounts in units of 1,048,576 bytes.

use super::totals::Totals;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

const MEGABYTE: f64 = 1_048_576.0;

/// What siege tells.
#[derive(Debug, PartialEq)]
pub struct Report {
    hits: u64,
    availability_percent: f64,
    elapsed_s: f64,
    megabytes: f64,
    response_s: f64,
    hits_per_s: f64,
    megabytes_per_s: f64,
    concurrency: f64,
    successful: u64,
    failed: u64,
    longest_s: f64,
    shortest_s: f64,
}

impl Report {
    pub fn of(totals: &Totals) -> Self {
        let answered: u64 = totals.status.values().sum();
        // A response that is not there is a hit, and no success; one of the server's failures is neither.
        let failed = totals.ended().saturating_sub(answered) + totals.with_status(500..=599);
        let hits = totals.ended().saturating_sub(failed);
        let (elapsed_s, times) = (totals.elapsed_s(), totals.total.dist());
        let megabytes = totals.body_bytes as f64 / MEGABYTE;
        let mean_s = times.mean.unwrap_or(0.0) / 1e6;
        Self {
            hits,
            availability_percent: hits as f64 * 100.0 / totals.ended().max(1) as f64,
            elapsed_s,
            megabytes,
            response_s: mean_s,
            hits_per_s: hits as f64 / elapsed_s,
            megabytes_per_s: megabytes / elapsed_s,
            concurrency: mean_s * totals.ended() as f64 / elapsed_s,
            successful: totals.with_status(100..=399),
            failed,
            longest_s: times.max.unwrap_or(0) as f64 / 1e6,
            shortest_s: times.min.unwrap_or(0) as f64 / 1e6,
        }
    }

    /// The names and figures in their order; a unit stands behind some of them in the text.
    fn fields(&self) -> [(&'static str, &'static str, String, &'static str); 12] {
        let two = |figure: f64| format!("{figure:.2}");
        [
            ("Transactions", "transactions", self.hits.to_string(), " hits"),
            ("Availability", "availability", two(self.availability_percent), " %"),
            ("Elapsed time", "elapsed_time", two(self.elapsed_s), " secs"),
            ("Data transferred", "data_transferred", two(self.megabytes), " MB"),
            ("Response time", "response_time", two(self.response_s), " secs"),
            ("Transaction rate", "transaction_rate", two(self.hits_per_s), " trans/sec"),
            ("Throughput", "throughput", two(self.megabytes_per_s), " MB/sec"),
            ("Concurrency", "concurrency", two(self.concurrency), ""),
            ("Successful transactions", "successful_transactions", self.successful.to_string(), ""),
            ("Failed transactions", "failed_transactions", self.failed.to_string(), ""),
            ("Longest transaction", "longest_transaction", two(self.longest_s), ""),
            ("Shortest transaction", "shortest_transaction", two(self.shortest_s), ""),
        ]
    }

    /// For people.
    pub fn text(&self) -> String {
        let line = |(name, _, figure, unit): (&str, &str, String, &str)| {
            format!("{:<24}{figure:>12}{unit}\n", format!("{name}:"))
        };
        self.fields().map(line).concat()
    }

    /// For programs.
    pub fn json(&self) -> String {
        let line = |(_, name, figure, _): (&str, &str, String, &str)| {
            format!("\t{:<40}{figure:>12}", format!("\"{name}\":"))
        };
        format!("{{{}\n}}\n", self.fields().map(line).join(",\n"))
    }

    /// Appends a line to a log, which gets its heads when it is new; a mark goes before it.
    pub fn append(&self, path: &Path, mark: Option<&str>) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        let mut text = String::new();
        if file.metadata()?.len() == 0 {
            text.push_str("      Date & Time,  Trans,  Elap Time,  Data Trans,  Resp Time,  Trans Rate,  Throughput,  Concurrent,    OKAY,   Failed\n");
        }
        if let Some(mark) = mark {
            text.push_str(&format!("**** {mark} ****\n"));
        }
        let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S").to_string();
        text.push_str(&format!(
            "{now}, {:>6}, {:>10.2}, {:>11.0}, {:>10.2}, {:>11.2}, {:>11.2}, {:>11.2}, {:>7}, {:>7}\n",
            self.hits,
            self.elapsed_s,
            self.megabytes,
            self.response_s,
            self.hits_per_s,
            self.megabytes_per_s,
            self.concurrency,
            self.successful,
            self.failed
        ));
        file.write_all(text.as_bytes())
    }
}
