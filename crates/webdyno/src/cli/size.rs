//! The flags of `webdyno size`.

use super::values::{ParseResult, time_us, whole};
use clap::Args;
use std::path::PathBuf;
use webdyno_model::sizing::SizeGoal;

/// `webdyno size`.
#[derive(Debug, Clone, Default, Args)]
pub struct SizeArgs {
    /// Run directories of loads with an observed server
    ///
    /// Several are loads of the same site, or with --mix classes of requests; of a sweep all its loads count
    #[arg(value_name = "DIR")]
    pub directory: Vec<PathBuf>,
    /// What to carry: 500/s, '70 pages/s' or '2000 users'
    #[arg(long, value_name = "G", value_parser = goal)]
    pub goal: Option<SizeGoal>,
    /// Users to carry as well as the goal
    #[arg(long, value_name = "N", value_parser = positive)]
    pub users: Option<f64>,
    /// Mean think time, as 3s [default: as recorded]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub think: Option<f64>,
    /// Bytes on the wire of a page, or a request without pages, as 2M [default: as recorded]
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    pub page_bytes: Option<f64>,
    /// Growth of the goal, as 20%/year [default: 0%]
    #[arg(long, value_name = "PERCENT", value_parser = growth)]
    pub growth: Option<f64>,
    /// For how many years [default: 1 with --growth]
    #[arg(long, value_name = "N", value_parser = years)]
    pub years: Option<f64>,
    /// What stays free at the goal [default: 30%]
    #[arg(long, value_name = "PERCENT", value_parser = headroom)]
    pub headroom: Option<f64>,
    /// Servers that may be missing: 1 is n + 1 [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=100, "1"))]
    pub spare: Option<u64>,
    /// Shares of the DIRs as classes of requests, in their order, as 80,20
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = positive)]
    pub mix: Vec<f64>,
    /// FILE.toml or FILE.csv [default: generic sizes]
    ///
    /// The machines that can be had: name, cores, and where known memory, network, disk_read, price, speed
    #[arg(long, value_name = "FILE")]
    pub catalogue: Option<PathBuf>,
    /// What `webdyno logs --json FILE` wrote: disk reads follow from its miss-ratio curve
    #[arg(long, value_name = "FILE")]
    pub working_set: Option<PathBuf>,
    /// Predict loads of the DIRs from each other
    ///
    /// Each from those of the same site at other sizes; the error is reported. With --working-set also the memory that the files need
    #[arg(long, conflicts_with_all = [
        "goal", "users", "think", "page_bytes", "growth", "years", "headroom", "spare", "mix", "catalogue",
    ])]
    pub validate: bool,
    /// Write it as JSON to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// A goal.
pub fn goal(text: &str) -> ParseResult<SizeGoal> {
    SizeGoal::parse(text).map_err(|_| "a rate, pages or users: 500/s, '70 pages/s' or '2000 users'".into())
}

fn between(text: &str, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|value| range.contains(value))
}

fn positive(text: &str) -> ParseResult<f64> {
    between(text, 1e-3..=1e9).ok_or_else(|| "a number above 0, as 80".into())
}

/// A time, as seconds.
pub fn seconds(text: &str) -> ParseResult<f64> {
    time_us(text, "3s").map(|us| us as f64 / 1e6)
}

/// Percent as a share.
fn percent(text: &str, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
    between(text.strip_suffix('%')?, range).map(|percent| percent / 100.0)
}

/// `20%/year`, `20%`.
pub fn growth(text: &str) -> ParseResult<f64> {
    let of_year = ["/year", "/y", " a year"].into_iter().find_map(|ending| text.strip_suffix(ending));
    percent(of_year.unwrap_or(text), -90.0..=1000.0).ok_or_else(|| "a percentage a year, as 20%/year".into())
}

/// Years, also parts of one.
pub fn years(text: &str) -> ParseResult<f64> {
    between(text, 0.0..=50.0).ok_or_else(|| "a number of years up to 50, as 3".into())
}

/// `30%`.
pub fn headroom(text: &str) -> ParseResult<f64> {
    percent(text, 0.0..=90.0).ok_or_else(|| "a percentage from 0% to 90%, as 30%".into())
}

/// A number with a decimal multiple and B behind it, or without: `2M`, `16 GB`.
pub fn amount(text: &str) -> ParseResult<f64> {
    let plain = text.trim();
    let plain = plain.strip_suffix(['B', 'b']).unwrap_or(plain);
    let multiples = [('K', 1e3), ('k', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let found =
        multiples.into_iter().find_map(|(letter, multiple)| Some((plain.strip_suffix(letter)?, multiple)));
    let (number, multiple) = found.unwrap_or((plain, 1.0));
    let value = between(number, 0.0..=1e15).map(|number| number * multiple).filter(|value| *value > 0.0);
    value.ok_or_else(|| "a number above 0, with K, M, G or T behind it where it is large, as 16G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_operators_write_them() {
        for (text, expected) in [("20%/year", Some(0.2)), ("20%", Some(0.2)), ("0.2", None), ("NaN%", None)] {
            assert_eq!(growth(text).ok(), expected, "{text}");
        }
        for (text, expected) in [("30%", Some(0.3)), ("0%", Some(0.0)), ("100%", None), ("30", None)] {
            assert_eq!(headroom(text).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("2M", Some(2e6)),
            ("16 GB", Some(16e9)),
            ("1500", Some(1500.0)),
            ("0", None),
            ("-1G", None),
            ("many", None),
        ] {
            assert_eq!(amount(text).ok(), expected, "{text}");
        }
        assert_eq!((seconds("3s").ok(), years("51").ok(), positive("0").ok()), (Some(3.0), None, None));
    }
}
