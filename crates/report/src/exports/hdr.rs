//! The times of the load that the report is of, for tools that read HdrHistogram.
//!
//! The text is what `outputPercentileDistribution` of the Java implementation prints and the plotter reads
//! (<https://hdrhistogram.github.io/HdrHistogram/plotFiles.html>); it takes values for milliseconds unless told
//! otherwise, and skips lines that begin with `#`. The log is version 1.3 of `HistogramLogWriter`, a histogram for each
//! second and name, told apart by their tags.

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::fmt::Write as _;
use std::time::Duration;
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::histograms::merged;
use webdyno_analysis::run_report::response_times;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::Interval;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::view::View;

/// Steps on each halving of the distance to 100%, as the Java implementation has it by default.
const TICKS_PER_HALF: u32 = 5;

/// What values and tags mean.
const UNITS: [&str; 3] = [
    "[Values are in microseconds, Interval_Max is in milliseconds]",
    "[Without a tag: response times of all requests, of the measured part of the load]",
    "[Tags: service_time, first_byte, connect, client_delay, pages (page times), request:NAME, page:NAME]",
];
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HdrFormat {
    /// Percentiles as text.
    Percentiles,
    /// Histograms of each second, in an interval log.
    Log,
}

/// The times of the measured part of the load that the report is of. An error when there was none.
pub fn hdr(recording: &Recording, view: &View, form: HdrFormat) -> Result<String> {
    let load = view.reported_load.and_then(|load| recording.load(load));
    let load = load.ok_or_else(|| super::no_load_error("HdrHistogram", recording))?;
    let measurement = recording.measurement(load);
    match form {
        HdrFormat::Percentiles => {
            let head = format!(
                "#[Response times of load {} in milliseconds, {} requests of the measured part; webdyno {}, {}]\n",
                load.load,
                response_times(&measurement)?.count(),
                recording.client.webdyno,
                recording.started_at
            );
            Ok(head + &percentiles(&response_times(&measurement)?))
        }
        HdrFormat::Log => histogram_log(recording, load.begins_us, &measurement),
    }
}

/// A distribution in milliseconds, as the Java implementation prints it with a ratio of 1000.
fn percentiles(times: &TimeHistogram) -> String {
    let ms = |us: u64| us as f64 / 1e3;
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let dist = times.dist();
    let longest = dist.max.unwrap_or(0);
    let mut count = 0;
    for step in times.buckets().iter_quantiles(TICKS_PER_HALF) {
        count += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        // A bucket may reach beyond the longest time, which is known exactly.
        let value = ms(step.value_iterated_to().min(longest));
        let _ = write!(text, "{value:12.3} {quantile:2.12} {count:10}");
        if quantile < 1.0 {
            let _ = write!(text, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let (mean, deviation) = (times.mean_us().unwrap_or(0.0), times.buckets().stdev());
    let (buckets, sub_buckets) = (times.buckets().buckets(), 2048);
    let _ = writeln!(text, "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]", mean / 1e3, deviation / 1e3);
    let _ = writeln!(text, "#[Max     = {:12.3}, Total count    = {:12}]", ms(longest), times.count());
    let _ = writeln!(text, "#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]");
    text
}

/// The histograms of each measured second: without a tag of all requests, then the others by tag.
fn histogram_log(recording: &Recording, begins_us: u64, measurement: &Measurement) -> Result<String> {
    let wrong = || UserError::cannot_run("cannot write the times as an interval log");
    let mut bytes = vec![];
    let mut serializer = V2DeflateSerializer::new();
    let mut head = IntervalLogWriterBuilder::new();
    head.add_comment(&format!("[webdyno {}, {}]", recording.client.webdyno, recording.started_at));
    head.add_comment("[Histogram log format version 1.3]");
    for line in UNITS {
        head.add_comment(line);
    }
    if let Ok(started) = recording.started_at.parse::<jiff::Timestamp>() {
        head.with_start_time(started.into()).with_base_time(started.into());
    }
    head.begin_log_with(&mut bytes, &mut serializer).map_err(|_| wrong())?;
    // The crate reads this line, as other readers do, and does not write it.
    bytes.extend_from_slice(LEGEND.as_bytes());
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_max_value_divisor(1000.0);
    let mut writer = builder.begin_log_with(&mut bytes, &mut serializer).map_err(|_| wrong())?;
    for interval in measurement.measured() {
        let start = Duration::from_micros(begins_us) + Duration::from_secs_f64(interval.t_s.max(0.0));
        let length = Duration::from_micros(interval.length_us);
        for (tag, encoded) in tagged_histograms(interval) {
            let times = merged(std::iter::once(encoded))?;
            let tag = tag.as_deref().and_then(Tag::new);
            writer.write_histogram(times.buckets(), start, length, tag).map_err(|_| wrong())?;
        }
    }
    super::utf8_text(bytes, "an interval log")
}

fn tagged_histograms(interval: &Interval) -> Vec<(Option<String>, &EncodedHistogram)> {
    let plain = |tag: &str| Some(tag.to_owned());
    let mut all = vec![
        (None, interval.response_time.as_ref()),
        (plain("service_time"), interval.service_time.as_ref()),
        (plain("first_byte"), interval.first_byte.as_ref()),
        (plain("connect"), interval.connect_time.as_ref()),
        (plain("client_delay"), interval.client_delay.as_ref()),
    ];
    let named = interval.by_name.iter();
    all.extend(named.map(|(name, named)| (Some(tag("request", name)), named.response_time.as_ref())));
    if let Some(pages) = &interval.pages {
        all.push((plain("pages"), pages.time.as_ref()));
        let named = pages.by_name.iter();
        all.extend(named.map(|(name, named)| (Some(tag("page", name)), named.time.as_ref())));
    }
    all.into_iter().filter_map(|(tag, times)| Some((tag, times?))).collect()
}

/// A tag has no commas, blanks and line breaks: these, and the percent sign, are percent-encoded.
fn tag(kind: &str, name: &str) -> String {
    let mut tag = format!("{kind}:");
    for letter in name.chars() {
        if letter == ',' || letter == '%' || letter.is_whitespace() || letter.is_control() {
            let mut bytes = [0; 4];
            letter.encode_utf8(&mut bytes).bytes().for_each(|byte| {
                let _ = write!(tag, "%{byte:02X}");
            });
        } else {
            tag.push(letter);
        }
    }
    tag
}
