//! `webdyno wrk`: flags and report of wrk 4.

use super::flags::{text, usage, with_scheme, workload, wrong};
use super::totals::{Totals, prepare, run};
use crate::terminal::print;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::fmt::Write;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::{Result, UserError};

const TOOL: &str = "wrk";
const HELP: &str = "\
Usage: webdyno wrk <options> <url>
  -c, --connections <N>  Connections to keep open (10)
  -d, --duration    <T>  Duration of the load (10s)
  -t, --threads     <N>  Threads (2)
  -H, --header      <H>  Header line of requests
      --latency          Print the distribution of latency
      --timeout     <T>  Longest wait for a response (2s)
  -v, --version          Print the version
Numbers may end in k, M, G; times in us, ms, s, m, h. Scripts (-s) are not run: docs/compatibility.md.
";
/// From this share of the next unit on, a figure has it.
const NEXT_UNIT: f64 = 0.85;

#[derive(Debug, PartialEq)]
struct Options {
    connections: u64,
    threads: u64,
    duration_s: u64,
    timeout_s: u64,
    headers: Vec<String>,
    latency: bool,
    url: String,
}

/// Runs it. Gives the exit code.
pub fn wrk(words: Vec<OsString>) -> Result<u8> {
    let Some(options) = parse(words)? else {
        print(HELP)?;
        return Ok(1);
    };
    let (prepared, _) = prepare(&workload(options.flags())?)?;
    let (threads, connections) = (options.threads, options.connections);
    let duration = seconds(options.duration_s as f64);
    print(&format!(
        "Running {duration} test @ {}\n  {threads} threads and {connections} connections\n",
        options.url
    ))?;
    let totals = run(&prepared, &mut |_| {})?;
    print(&report(&totals, &options))?;
    Ok(0)
}

/// What the words ask for; `None` for the help.
fn parse(words: Vec<OsString>) -> Result<Option<Options>> {
    let mut options = Options {
        connections: 10,
        threads: 2,
        duration_s: 10,
        timeout_s: 2,
        headers: vec![],
        latency: false,
        url: String::new(),
    };
    let mut parser = lexopt::Parser::from_args(words);
    while let Some(argument) = parser.next().map_err(wrong(TOOL))? {
        match argument {
            Short('c') | Long("connections") => {
                options.connections = scaled(&text(TOOL, &mut parser)?, METRIC, "-c")?
            }
            Short('t') | Long("threads") => {
                options.threads = scaled(&text(TOOL, &mut parser)?, METRIC, "-t")?
            }
            Short('d') | Long("duration") => {
                options.duration_s = scaled(&text(TOOL, &mut parser)?, TIMES, "-d")?
            }
            Long("timeout") => options.timeout_s = scaled(&text(TOOL, &mut parser)?, TIMES, "--timeout")?,
            Short('H') | Long("header") => options.headers.push(text(TOOL, &mut parser)?),
            Short('L') | Long("latency") => options.latency = true,
            Short('s') | Long("script") => {
                return Err(UserError::usage("wrk: scripts in Lua are not run")
                    .hint("a workload file says the same without a program: `webdyno run --workload FILE.toml`, docs/workload.md"));
            }
            Short('v' | 'h') | Long("version" | "help") => return Ok(None),
            Value(url) if options.url.is_empty() => options.url = with_scheme(&url.to_string_lossy()),
            other => return Err(wrong(TOOL)(other.unexpected())),
        }
    }
    match options.url.is_empty() {
        true => Ok(None),
        false if options.connections < options.threads => Err(usage(
            TOOL,
            format!(
                "-c {} is fewer than -t {}: each thread has a connection",
                options.connections, options.threads
            ),
        )),
        false => Ok(Some(options)),
    }
}

/// Units of numbers and of times, and what they are worth.
const METRIC: &[(&str, u64)] = &[("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];
const TIMES: &[(&str, u64)] = &[("", 1), ("s", 1), ("m", 60), ("h", 3600)];

/// A number with a unit: above 0.
fn scaled(value: &str, units: &[(&str, u64)], flag: &str) -> Result<u64> {
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = units.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(&value[digits.len()..]));
    let number =
        digits.parse::<u64>().ok().zip(unit).and_then(|(number, (_, worth))| number.checked_mul(*worth));
    number.filter(|number| *number > 0).ok_or_else(|| {
        usage(TOOL, format!("{flag} takes a number such as 10 or 2{}, not `{value}`", units[1].0))
    })
}

impl Options {
    /// The same for `webdyno run`.
    fn flags(&self) -> Vec<String> {
        let mut flags = vec![self.url.clone(), "-c".into(), self.connections.to_string()];
        flags.extend(["-t".into(), self.threads.to_string(), "-d".into(), format!("{}s", self.duration_s)]);
        flags.extend(["--timeout".into(), format!("{}s", self.timeout_s), "--ok".into(), "100-599".into()]);
        flags.extend(self.headers.iter().flat_map(|header| ["-H".into(), header.clone()]));
        // wrk trusts every certificate.
        flags.extend(self.url.starts_with("https:").then(|| "--insecure".to_owned()));
        flags
    }
}

fn report(totals: &Totals, options: &Options) -> String {
    let mut text = format!("  Thread Stats{:>6}{:>11}{:>8}{:>12}\n", "Avg", "Stdev", "Max", "+/- Stdev");
    let latency = totals.total.dist();
    let [mean, stdev] = [latency.mean, latency.stdev].map(|us| us.unwrap_or(0.0));
    let within = share_within(&totals.total, mean, stdev);
    row(&mut text, "Latency", [mean, stdev, latency.max.unwrap_or(0) as f64].map(microseconds), within);
    let rates: Vec<f64> = totals.rates_per_s.iter().map(|rate| rate / options.threads as f64).collect();
    let (mean, stdev) = mean_and_stdev(&rates);
    let within =
        rates.iter().filter(|rate| (**rate - mean).abs() <= stdev).count() as f64 / rates.len().max(1) as f64;
    row(&mut text, "Req/Sec", [mean, stdev, rates.iter().copied().fold(0.0, f64::max)].map(metric), within);
    if options.latency {
        text.push_str("  Latency Distribution\n");
        for (percent, us) in [(50, latency.p50), (75, latency.p75), (90, latency.p90), (99, latency.p99)] {
            let _ = writeln!(
                text,
                "{percent:>7}%{}",
                padded(&microseconds(us.unwrap_or(0) as f64), 10).trim_end()
            );
        }
    }
    let (ended, elapsed_s) =
        (totals.ended() - socket_errors(totals).iter().sum::<u64>().min(totals.ended()), totals.elapsed_s());
    let bytes = totals.bytes_received as f64;
    let _ =
        writeln!(text, "  {ended} requests in {}, {}B read", microseconds(elapsed_s * 1e6), binary(bytes));
    let errors = socket_errors(totals);
    if errors.iter().any(|count| *count > 0) {
        let [connect, read, write, timeout] = errors;
        let _ = writeln!(
            text,
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
        );
    }
    let wrong = totals.with_status(400..=599);
    if wrong > 0 {
        let _ = writeln!(text, "  Non-2xx or 3xx responses: {wrong}");
    }
    let _ = writeln!(text, "Requests/sec: {:>9.2}", ended as f64 / elapsed_s);
    let _ = writeln!(text, "Transfer/sec: {:>10}", binary(bytes / elapsed_s) + "B");
    text
}

/// Errors of sockets as wrk tells them apart: to connect, to read, to write, timeouts.
fn socket_errors(totals: &Totals) -> [u64; 4] {
    let errors = &totals.errors;
    let connect = totals.connect_errors();
    [connect, errors.reset + errors.closed_early + errors.protocol, 0, errors.timeout]
}

fn row(text: &mut String, name: &str, [mean, stdev, max]: [String; 3], within: f64) {
    let _ = writeln!(
        text,
        "    {name:<10}{}{}{}{:>8.2}%",
        padded(&mean, 8),
        padded(&stdev, 10),
        padded(&max, 9),
        within * 100.0
    );
}

/// The share of samples within a standard deviation of the mean.
fn share_within(times: &TimeHistogram, mean_us: f64, stdev_us: f64) -> f64 {
    let [low, high] = [mean_us - stdev_us, mean_us + stdev_us].map(|us| us.max(0.0) as u64);
    times.count_between(low, high) as f64 / times.count().max(1) as f64
}

fn mean_and_stdev(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// A figure in its column: units of one letter leave a place free behind them, none leaves two.
fn padded(figure: &str, width: usize) -> String {
    let letters = figure.chars().rev().take(2).filter(char::is_ascii_alphabetic).count();
    let free = 2 - letters;
    format!("{figure:>width$}{:free$}", "", width = width - free)
}

fn in_units(figure: f64, worth: f64, base: &str, units: &[&str], digits: usize) -> String {
    let (mut figure, mut unit) = (figure, base);
    for next in units {
        if figure < worth * NEXT_UNIT {
            break;
        }
        (figure, unit) = (figure / worth, next);
    }
    format!("{figure:.digits$}{unit}")
}

fn microseconds(us: f64) -> String {
    match us >= 1e6 {
        true => in_units(us / 1e6, 60.0, "s", &["m"], 2),
        false => in_units(us, 1000.0, "us", &["ms"], 2),
    }
}

fn seconds(s: f64) -> String {
    in_units(s, 60.0, "s", &["m"], 0)
}

fn metric(figure: f64) -> String {
    in_units(figure, 1000.0, "", &["k", "M", "G"], 2)
}

fn binary(bytes: f64) -> String {
    in_units(bytes, 1024.0, "", &["K", "M", "G", "T"], 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<Option<Options>> {
        parse(words.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn flags_are_those_of_run() {
        let parsed = options("-t4 -c1k -d 2m --latency -H Accept:x http://a/").unwrap().unwrap();
        assert_eq!(
            (parsed.threads, parsed.connections, parsed.duration_s, parsed.latency),
            (4, 1000, 120, true)
        );
        let workload = workload(parsed.flags()).unwrap();
        assert_eq!(
            (workload.connections, workload.threads, workload.stop.duration_us),
            (1000, Some(4), Some(120_000_000))
        );
        assert_eq!((workload.timeout_us, workload.keepalive), (2_000_000, true));
        for (wrong, why) in [
            ("-c 1 -t 2 http://a/", "fewer"),
            ("-c x http://a/", "-c takes"),
            ("-d 0 http://a/", "-d takes"),
            ("--none http://a/", "--none"),
            ("-s a.lua http://a/", "Lua"),
        ] {
            assert!(options(wrong).unwrap_err().message.contains(why), "{wrong}");
        }
        assert_eq!(options("-c 5").unwrap(), None);
    }

    // Columns and units as wrk 4.1 printed them for the same figures.
    #[test]
    fn figures_have_their_units_and_places() {
        for (us, shown) in [
            (598.05, "598.05us"),
            (960.0, "0.96ms"),
            (6740.0, "6.74ms"),
            (1_010_000.0, "1.01s"),
            (90e6, "1.50m"),
        ] {
            assert_eq!(microseconds(us), shown);
        }
        assert_eq!([metric(9070.0), metric(12.0), binary(11_240_000.0)], ["9.07k", "12.00", "10.72M"]);
        assert_eq!([seconds(1.0), seconds(120.0)], ["1s", "2m"]);
        let mut text = String::new();
        row(&mut text, "Req/Sec", ["9.07k", "2.13k", "12.48k"].map(str::to_owned), 0.5);
        assert_eq!(text, "    Req/Sec     9.07k     2.13k   12.48k    50.00%\n");
    }
}
