//! `webdyno ab`: loads as ab 2.4 does, tells how far it is, and writes its files.

use super::ab_flags::{Options, TOOL, parse};
use super::ab_report::{self, Table};
use super::flags::{usage, workload};
use super::totals::{Totals, prepare, run};
use crate::terminal::{print, print_status};
use std::ffi::OsString;
use std::fmt::Write;
use url::Url;
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::workload::Stop;

/// A load of more requests tells how far it is.
const SILENT_MAX: u64 = 150;

/// Runs it. Gives the exit code.
pub fn ab(words: Vec<OsString>) -> Result<u8> {
    let Some(options) = parse(words)? else { return Ok(0) };
    let url = Url::parse(&options.url)
        .map_err(|error| usage(TOOL, format!("invalid URL `{}`: {error}", options.url)))?;
    let mut load = workload(options.flags())?;
    let duration_us = options.time_limit_s.map(|seconds| seconds * 1_000_000);
    load.stop = Stop { duration_us, requests: Some(options.requests) };
    let (mut prepared, probe) = prepare(&load)?;
    if !options.may_differ {
        prepared.expect_length(probe.body_bytes);
    }
    if !options.html {
        let tells = if options.requests > SILENT_MAX && !options.quiet { "\n" } else { "" };
        let host = url.host_str().unwrap_or_default();
        print(&format!(
            "webdyno {} as ab\n\nBenchmarking {host} (be patient){tells}",
            env!("CARGO_PKG_VERSION")
        ))?;
        if tells.is_empty() {
            print("...")?;
        }
    }
    let totals = run(&prepared, &mut progress(&options))?;
    if options.requests > SILENT_MAX && !options.quiet {
        print_status(&format!("Finished {} requests", totals.ended()));
    }
    if let Some(path) = &options.csv {
        std::fs::write(path, percentiles(&totals)).map_err(|error| io_error("write", path, &error))?;
    }
    let table = Table { options: &options, url: &url, probe: &probe, totals: &totals };
    print(&if options.html { table.html() } else { ab_report::text(&table) })?;
    Ok(0)
}

/// Tells on stderr how many requests ended, each time a tenth has.
fn progress(options: &Options) -> impl FnMut(&Totals) + use<> {
    let step = (options.requests / 10).max(100);
    let tells = options.requests > SILENT_MAX && !options.quiet;
    let mut told = 0;
    move |totals| {
        let reached = totals.ended() / step * step;
        if tells && reached > told {
            told = reached;
            print_status(&format!("Completed {reached} requests"));
        }
    }
}

/// Times by which so many percent of the requests had ended, as CSV.
fn percentiles(totals: &Totals) -> String {
    let mut text = "Percentage served,Time in ms\n".to_owned();
    for percent in 0..=100 {
        let us = totals.total.quantile_us(f64::from(percent) / 100.0).unwrap_or(0);
        let _ = writeln!(text, "{percent},{:.3}", us as f64 / 1000.0);
    }
    text
}
