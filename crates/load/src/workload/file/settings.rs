//! The settings of a workload file for the load as a whole.

use super::draft::Settings;
use super::keys::{TableKeys, Value};
use super::source_span::{FileError, FileResult, SourceSpan};
use webdyno_model::objective::Objective;
use webdyno_model::workload::stage;
use webdyno_model::workload::stage::{Shape, StageDraft, Unit};
use webdyno_model::workload::visit::Think;
use webdyno_model::workload::{Expectation, StatusSet};

/// Most users, and connections.
const CONCURRENCY_MAX: u32 = 1_000_000;
/// Highest rate; as `--rate`.
const RATE_MAX: f64 = 1e7;
/// Most redirects in a row; as `--redirects`.
const REDIRECTS_MAX: u32 = 50;
/// Most connections to one host; a browser has 6.
const PER_HOST_MAX: u32 = 256;
/// Most requests in flight on a connection of HTTP/2; as `--streams`.
const STREAMS_MAX: u32 = 10_000;
/// Weights above this are believed to be mistakes.
const WEIGHT_MAX: f64 = 1e9;

/// Every key at the top of a file.
pub(super) const TOP_KEYS: &[&str] = &[
    "include",
    "base",
    "users",
    "rate",
    "poisson",
    "duration",
    "ramp",
    "ramp_down",
    "think",
    "seed",
    "timeout",
    "connections",
    "keepalive",
    "http2",
    "http3",
    "streams",
    "redirects",
    "cookies",
    "cache",
    "returning",
    "session_order",
    "connections_per_host",
    "ok",
    "expect",
    "slo",
    "headers",
    "auth",
    "variables",
    "table",
    "stage",
    "request",
    "page",
    "session",
    "urls",
];

/// Every key of a stage.
pub(super) const STAGE_KEYS: &[&str] = &["duration", "rate", "users", "connections", "measured"];
/// Every key of a level that changes.
pub(super) const SHAPE_KEYS: &[&str] = &["from", "to", "peak", "low", "high", "period"];

/// Reads the settings of one file; they override those read before.
pub(super) fn read(
    top: &TableKeys<'_>,
    into: &mut Settings,
    objectives: &mut Vec<(SourceSpan, Objective)>,
) -> FileResult<()> {
    fn set<T>(slot: &mut Option<T>, read: Option<T>) {
        if read.is_some() {
            *slot = read;
        }
    }
    check_single_arrival(top)?;
    // What this file says of how much is loaded takes the place of what the files say that it includes.
    if top.get("users").or(top.get("rate")).or(top.get("stage")).is_some() {
        (into.users, into.rate_per_s, into.stages) = (None, None, vec![]);
    }
    if let Some(written) = top.read("stage", stages)? {
        into.stages = written;
        (into.duration_us, into.ramp_us, into.ramp_down_us) = (None, None, None);
    }
    set(&mut into.users, top.read("users", |value| value.u32_in(1..=CONCURRENCY_MAX))?);
    set(&mut into.rate_per_s, top.read("rate", |value| value.above_zero(RATE_MAX))?);
    set(&mut into.poisson, top.read("poisson", Value::flag)?);
    set(&mut into.duration_us, top.read("duration", Value::time_us)?);
    set(&mut into.ramp_us, top.read("ramp", Value::time_us)?);
    set(&mut into.ramp_down_us, top.read("ramp_down", Value::time_us)?);
    set(&mut into.think, top.read("think", think)?);
    set(&mut into.seed, top.read("seed", |value| value.integer_in(0..=u64::MAX))?);
    set(&mut into.timeout_us, top.read("timeout", Value::time_us)?);
    set(&mut into.connections, top.read("connections", |value| value.u32_in(1..=CONCURRENCY_MAX))?);
    set(&mut into.keepalive, top.read("keepalive", Value::flag)?);
    set(&mut into.http2, top.read("http2", Value::flag)?);
    set(&mut into.http3, top.read("http3", Value::flag)?);
    set(&mut into.streams, top.read("streams", |value| value.u32_in(1..=STREAMS_MAX))?);
    set(&mut into.redirects_max, top.read("redirects", |value| value.u32_in(0..=REDIRECTS_MAX))?);
    set(&mut into.cookies, top.read("cookies", Value::flag)?);
    set(&mut into.cache, top.read("cache", Value::flag)?);
    set(&mut into.returning_fraction, top.read("returning", |value| value.between(0.0, 1.0))?);
    set(&mut into.session_order, top.read("session_order", super::tables::order)?);
    let per_host = top.read("connections_per_host", |value| value.u32_in(1..=PER_HOST_MAX))?;
    set(&mut into.connections_per_host, per_host);
    set(&mut into.ok_status, top.read("ok", ok_status)?);
    for (at, text) in top.read("expect", Value::texts)?.unwrap_or_default() {
        let forms = "write status=CODE, length=BYTES, regex=PATTERN or sha256=HEX";
        let expectation =
            Expectation::parse(text).map_err(|error| FileError::from_user_error(at, error, forms))?;
        if let Expectation::Regex(pattern) = &expectation {
            super::captures::check_pattern(at, pattern)?;
        }
        into.expect.push(expectation);
    }
    for (at, text) in top.read("slo", Value::texts)?.unwrap_or_default() {
        let forms = "write it as \"p99<200ms\", \"errors<0.1%\" or \"page /shop: p95<2s\"";
        objectives.push((
            at,
            Objective::parse(text).map_err(|error| FileError::from_user_error(at, error, forms))?,
        ));
    }
    Ok(())
}

/// Refuses more than one of users, a rate and stages.
fn check_single_arrival(top: &TableKeys<'_>) -> FileResult<()> {
    top.one_of(&["users", "rate", "stage"])?;
    for key in ["duration", "ramp", "ramp_down"] {
        top.one_of(&["stage", key])?;
    }
    Ok(())
}

/// How often something is chosen.
pub(super) fn weight(keys: &TableKeys<'_>) -> FileResult<Option<f64>> {
    keys.read("weight", |value| {
        value
            .above_zero(WEIGHT_MAX)
            .map_err(|error| error.hint("what is never to be chosen is left out; put # before its lines"))
    })
}

/// A think time.
pub(super) fn think(value: &Value<'_>) -> FileResult<Think> {
    let forms = "write \"2s\", \"1s..3s\", \"exponential 2s\", \"log-normal 2s sigma 0.5\" or \"none\"";
    Think::parse(value.text()?).map_err(|error| FileError::from_user_error(value.at, error, forms))
}

fn ok_status(value: &Value<'_>) -> FileResult<StatusSet> {
    let forms = "write ranges and single codes between 100 and 599, as in \"200-399,404\"";
    StatusSet::parse(value.text()?).map_err(|error| FileError::from_user_error(value.at, error, forms))
}

/// The stages of a file, which replace those of included files.
fn stages(value: &Value<'_>) -> FileResult<Vec<StageDraft>> {
    let list = value.tables("stage")?;
    let written = list.iter().map(stage).collect::<FileResult<Vec<_>>>()?;
    let hint = "say of each stage whether it counts, as in measured = true";
    stage::check_stages(&written).map_err(|error| FileError::from_user_error(value.at, error, hint))?;
    Ok(written)
}

fn stage(value: &Value<'_>) -> FileResult<StageDraft> {
    if let Some(text) = value.as_text() {
        let hint = "write TIME@LEVELS, as in \"4m@0..100/s\" or \"5m@50users\"";
        return stage::parse(text).map_err(|error| FileError::from_user_error(value.at, error, hint));
    }
    let keys = value.keys("a stage", STAGE_KEYS)?;
    let duration_us = keys.required("duration", "duration = \"30s\"")?.time_us()?;
    let Some(level) = keys.one_of(&["rate", "users", "connections"])? else {
        return Err(FileError::new(keys.at, "a stage needs `rate`, `users` or `connections`")
            .hint("as in rate = 100 or users = { from = 0, to = 100 }"));
    };
    let (unit, highest) = match level.key {
        "rate" => (Unit::PerSecond, RATE_MAX),
        "users" => (Unit::Users, f64::from(CONCURRENCY_MAX)),
        _ => (Unit::Connections, f64::from(CONCURRENCY_MAX)),
    };
    let measured = keys.read("measured", Value::flag)?;
    let written = StageDraft { duration_us, shape: shape(&level, highest)?, unit, measured };
    written.check().map_err(|why| {
        FileError::new(level.at, format!("this is not a stage: {why}"))
            .hint("as in rate = 100 or users = { from = 0, to = 100 }")
    })?;
    Ok(written)
}

/// A number, or how it changes.
fn shape(value: &Value<'_>, highest: f64) -> FileResult<Shape> {
    if !value.is_table() {
        return Ok(Shape::Hold { level: value.between(0.0, highest)? });
    }
    let keys = value.keys("a level that changes", SHAPE_KEYS)?;
    let number = |name: &'static str| keys.read(name, |value| value.between(0.0, highest));
    let (from, to, peak) = (number("from")?, number("to")?, number("peak")?);
    let (low, high) = (number("low")?, number("high")?);
    let period = keys.read("period", Value::time_us)?;
    match (from, to, peak, low, high, period) {
        (Some(from), Some(to), None, None, None, None) => Ok(Shape::Ramp { from, to }),
        (Some(from), None, Some(peak), None, None, None) => Ok(Shape::Spike { from, peak }),
        (None, None, None, Some(low), Some(high), Some(period_us)) => {
            Ok(Shape::Sine { low, high, period_us })
        }
        _ => Err(shape_error(value.at)),
    }
}

fn shape_error(at: SourceSpan) -> Box<FileError> {
    FileError::new(at, "this is neither a ramp (from, to) nor a spike (from, peak) nor a wave (low, high, period)")
        .hint("as in { from = 0, to = 100 }, { from = 10, peak = 100 } or { low = 10, high = 100, period = \"1m\" }")
}
