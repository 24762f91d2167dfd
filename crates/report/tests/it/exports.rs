//! What other programs read: CSV, Parquet, HdrHistogram, JUnit.

use crate::sample;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::collections::BTreeMap;
use webdyno_model::capacity::CapacityReport;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{ErrorCounts, Interval, LoadEnd, NamedInterval};
use webdyno_model::page::{PageInterval, VisitCounts};
use webdyno_model::purpose::Purpose;
use webdyno_model::workload::Workload;
use webdyno_model::workload::stage::{Shape, Stage};
use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec, Visits};
use webdyno_model::{Result, sample as model_sample};
use webdyno_report::{HdrFormat, Table, csv, hdr, junit, parquet as as_parquet};
use webdyno_session::recording::{HostRecord, LoadRecord, Recording};
use webdyno_session::view::{Outcome, View};

fn times(times_us: &[u64]) -> TimeHistogram {
    let mut times = TimeHistogram::new();
    times_us.iter().for_each(|&time_us| times.record(time_us));
    times
}

pub fn second(t_s: u32, times_us: &[u64]) -> Interval {
    let named = NamedInterval { completed: 1, failed: 0, response_time: times(&times_us[..1]).encode() };
    Interval {
        t_s: f64::from(t_s),
        length_us: 1_000_000,
        started: times_us.len() as u64 + 1,
        completed: times_us.len() as u64,
        failed: 1,
        in_flight: 2,
        bytes_received: 300,
        bytes_sent: 100,
        errors: ErrorCounts { timeout: 1, ..ErrorCounts::default() },
        response_time: times(times_us).encode(),
        service_time: times(times_us).encode(),
        by_name: [("/a, b%".to_owned(), named)].into(),
        cpu_us: 12_000,
        ..Interval::default()
    }
}

/// A load whose measured part begins after a second.
pub fn load(number: u32, workload: Workload, intervals: Vec<Interval>) -> LoadRecord {
    let end =
        LoadEnd { elapsed_us: intervals.len() as u64 * 1_000_000, in_flight_at_end: 2, ..LoadEnd::default() };
    LoadRecord {
        alone_us: None,
        load: number,
        purpose: Purpose::Run,
        begins_us: u64::from(number) * 10_000_000,
        workload,
        intervals,
        end: Some((end, 1.0)),
        warmup_reason: None,
        measured_to_s: None,
        workers: vec![],
        workers_start: None,
        tables: None,
        harm_guard_trip: None,
        unwatched: vec![],
    }
}

pub fn recording(loads: Vec<LoadRecord>) -> Recording {
    let (command, started_at) = ("run".into(), "2026-11-21T20:26:00Z".into());
    Recording { command, started_at, client: sample::machine(), loads, ..Recording::default() }
}

fn two_loads() -> Recording {
    let seconds = || vec![second(0, &[9000]), second(1, &[25_000, 50_000, 75_000]), second(2, &[4000])];
    recording(vec![load(1, sample::workload(), seconds()), load(2, sample::workload(), seconds())])
}

fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

fn seconds_as_csv(recording: &Recording) -> Result<String> {
    csv(recording, Table::Seconds)
}

/// A row as CSV would have it, with its titles.
fn as_text(row: parquet::record::Row) -> BTreeMap<String, String> {
    let text = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Long(count) => count.to_string(),
        Field::Double(value) => value.to_string(),
        other => panic!("{other:?}"),
    };
    row.get_column_iter().map(|(name, field)| (name.clone(), text(field))).collect()
}

/// A host of which a metric is read each second, another one only when it changes.
fn observed() -> Recording {
    use model_sample::{CollectorInfo, Metric, Sample};
    let metric = |name: &str, on_change| Metric {
        name: name.into(),
        unit: "count".into(),
        on_change,
        ..Metric::default()
    };
    let reading = |t_us: u64, values: &[(&str, f64)]| {
        let values =
            values.iter().map(|(name, value)| ((*name).to_owned(), webdyno_model::number::Number(*value)));
        (t_us, Sample { source: "q".into(), values: values.collect(), ..Sample::default() })
    };
    let samples = vec![
        reading(1_000_000, &[("q.a_count", 1.5), ("q.b_count", 7.0)]),
        reading(2_000_000, &[("q.a_count", 2.5)]),
    ];
    let collectors = vec![CollectorInfo {
        name: "q".into(),
        metrics: vec![metric("q.a_count", false), metric("q.b_count", true)],
    }];
    let other = HostRecord { samples: samples[1..].to_vec(), ..HostRecord::default() };
    Recording { samples, collectors, hosts: [("db".to_owned(), other)].into(), ..recording(vec![]) }
}

#[test]
fn parquet_has_the_cells_of_csv() {
    for (recording, table, row_count, target) in [
        (two_loads(), Table::Seconds, 6, Some(sample::workload().requests[0].url.clone())),
        (observed(), Table::Samples, 5, None),
    ] {
        let bytes = as_parquet(&recording, table).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let facts = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let fact = |key: &str| facts.iter().find(|fact| fact.key == key).unwrap().value.clone();
        assert_eq!((fact("webdyno.command"), fact("webdyno.target")), (Some("run".into()), target));
        assert_eq!(fact("webdyno.started_at"), Some(recording.started_at.clone()));
        let stored: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| as_text(row.unwrap())).collect();
        assert_eq!(stored, rows(&csv(&recording, table).unwrap()), "{table:?}");
        assert_eq!(stored.len(), row_count, "{table:?}");
    }
    assert_eq!(Table::of(&two_loads()), Table::Seconds);
    assert_eq!(Table::of(&observed()), Table::Samples);
}

#[test]
fn readings_are_rows_and_what_did_not_change_is_one() {
    let text = csv(&observed(), Table::Samples).unwrap();
    let expected = [
        "host,metric,unit,kind,t_s,value",
        ",q.a_count,count,gauge,1,1.5",
        ",q.a_count,count,gauge,2,2.5",
        ",q.b_count,count,gauge,1,7",
        ",q.b_count,count,gauge,2,7",
        "db,q.a_count,,,2,2.5",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    assert_eq!(csv(&two_loads(), Table::Samples).unwrap_err().exit_code(), 1);
}

#[test]
fn every_second_is_a_row() {
    let text = seconds_as_csv(&two_loads()).unwrap();
    assert!(text.ends_with("\r\n") && text.lines().count() == 7, "{text}");
    let rows = rows(&text);
    let column = |name: &str| rows.iter().map(|row| row[name].as_str()).collect::<Vec<_>>();
    assert_eq!(column("load"), ["1", "1", "1", "2", "2", "2"]);
    assert_eq!(column("part")[..3], ["warm-up", "measured", "measured"]);
    assert_eq!(column("t_s")[..3], ["0", "1", "2"]);
    assert_eq!(column("rate_per_s")[..3], ["1", "3", "1"]);
    assert_eq!(column("p50_us")[1], "50015", "a bucket of a thousandth");
    assert_eq!((column("max_us")[1], column("mean_us")[1]), ("75000", "50000"));
    assert_eq!((column("errors_timeout")[0], column("errors_reset")[0]), ("1", "0"));
    assert_eq!((column("client_cpu_s")[0], column("bytes_received")[0]), ("0.012", "300"));
    for unknown in ["pages_completed", "pages_p95_us", "visitors"] {
        assert_eq!(column(unknown)[0], "", "{unknown}");
    }
}

#[test]
fn what_is_unknown_is_empty() {
    let silent = Interval { length_us: 1_000_000, ..Interval::default() };
    let rows = rows(&seconds_as_csv(&recording(vec![load(1, sample::workload(), vec![silent])])).unwrap());
    assert_eq!((rows[0]["p99_us"].as_str(), rows[0]["mean_us"].as_str()), ("", ""));
    assert_eq!(rows[0]["completed"], "0");
    assert_eq!(seconds_as_csv(&recording(vec![])).unwrap_err().exit_code(), 1);
}

#[test]
fn ramps_warm_up_and_pages_have_their_columns() {
    let stage = |seconds: u64, measured| {
        let shape = Shape::Hold { level: 5.0 };
        Stage { duration_us: seconds * 1_000_000, shape, measured }
    };
    let page = StepSpec { page: Some(PageSpec::default()), ..StepSpec::default() };
    let session = SessionSpec { name: "visit".into(), weight: 1.0, steps: vec![page] };
    let visits = Visits { sessions: vec![session], ..Visits::default() };
    let workload = Workload {
        stages: vec![stage(1, false), stage(2, true), stage(1, false)],
        visits: Some(Box::new(visits)),
        ..sample::workload()
    };
    let mut intervals: Vec<_> = (0..4).map(|t_s| second(t_s, &[1])).collect();
    for interval in &mut intervals {
        let pages = PageInterval {
            started: 4,
            completed: 3,
            failed: 1,
            time: times(&[10, 20, 30]).encode(),
            ..PageInterval::default()
        };
        interval.pages = Some(Box::new(pages));
        interval.visits = VisitCounts { visitors: 7, sessions_started: 4, ..VisitCounts::default() };
    }
    let ramped = LoadRecord { measured_to_s: Some(3.0), ..load(1, workload, intervals) };
    let rows = rows(&seconds_as_csv(&recording(vec![ramped])).unwrap());
    let parts: Vec<_> = rows.iter().map(|row| row["part"].as_str()).collect();
    assert_eq!(parts, ["ramp-up", "measured", "measured", "ramp-down"]);
    assert_eq!((rows[1]["pages_rate_per_s"].as_str(), rows[1]["pages_p50_us"].as_str()), ("3", "20"));
    assert_eq!((rows[1]["visitors"].as_str(), rows[1]["sessions_started"].as_str()), ("7", "4"));
}

/// What the Java implementation prints for these values, as the tests of its ports have it (HdrHistogramJS,
/// Histogram.spec.ts, "should compute percentile distribution"), in milliseconds. It counts its buckets for a larger range.
const DISTRIBUTION: &str = "       Value     Percentile TotalCount 1/(1-Percentile)

      25.000 0.000000000000          1           1.00
      25.000 0.100000000000          1           1.11
      25.000 0.200000000000          1           1.25
      25.000 0.300000000000          1           1.43
      50.000 0.400000000000          2           1.67
      50.000 0.500000000000          2           2.00
      50.000 0.550000000000          2           2.22
      50.000 0.600000000000          2           2.50
      50.000 0.650000000000          2           2.86
      75.000 0.700000000000          3           3.33
      75.000 1.000000000000          3
#[Mean    =       50.000, StdDeviation   =       20.412]
#[Max     =       75.000, Total count    =            3]
#[Buckets =           22, SubBuckets     =         2048]
";

#[test]
fn percentiles_are_as_other_tools_print_them() {
    // Times that begin a bucket: others would be told as the end of theirs.
    let recording = recording(vec![load(1, sample::workload(), vec![second(1, &[25, 50, 75])])]);
    let text = hdr(&recording, &View::of(&recording).unwrap(), HdrFormat::Percentiles).unwrap();
    let (head, distribution) = text.split_once('\n').unwrap();
    assert!(head.starts_with("#[Response times of load 1 in milliseconds, 3 requests"), "{head}");
    let thousandth = |line: &str| {
        let known = line.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
        known.map_or(line.to_owned(), |value| format!("{:12.3}{}", value / 1e3, &line[12..]))
    };
    for (line, expected) in distribution.lines().zip(DISTRIBUTION.lines()) {
        if line.starts_with("#[Buckets") || !line.starts_with('#') {
            assert_eq!(line, thousandth(expected), "{text}");
        }
    }
    assert_eq!(distribution.lines().count(), DISTRIBUTION.lines().count(), "{text}");
    // What the plotter takes: lines of four fields that do not begin with #.
    let plotted = |line: &&str| !line.starts_with('#') && line.split_whitespace().count() == 4;
    assert_eq!(text.lines().filter(plotted).count(), 11, "the titles and ten points");
}

#[test]
fn the_log_is_read_by_its_own_reader() {
    let recording = two_loads();
    let view = View::of(&recording).unwrap();
    assert_eq!(view.reported_load, Some(1));
    let text = hdr(&recording, &view, HdrFormat::Log).unwrap();
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut base_s = None;
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        match entry.unwrap() {
            LogEntry::Interval(interval) => {
                let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
                let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                let tag = interval.tag().map_or(String::new(), |tag| tag.as_str().to_owned());
                found.entry(tag).or_default().push(read.len());
                assert_eq!(interval.duration().as_secs(), 1);
                assert!((11..=12).contains(&interval.start_timestamp().as_secs()), "load 1 began at 10 s");
            }
            LogEntry::BaseTime(time) => base_s = Some(time.as_secs()),
            LogEntry::StartTime(_) => {}
        }
    }
    let expected = [("", [3, 1]), ("request:/a%2C%20b%25", [1, 1]), ("service_time", [3, 1])];
    let expected = expected.map(|(tag, counts)| (tag.to_owned(), counts.to_vec()));
    assert_eq!(found, expected.into());
    assert_eq!(base_s, Some(1_795_292_760));
    assert!(
        text.contains("#[Values are in microseconds") && text.contains("\n\"StartTimestamp\","),
        "{text}"
    );
}

fn parsed(view: &View) -> (String, Vec<(String, Option<String>)>) {
    let xml = junit(view).unwrap();
    let document = roxmltree::Document::parse(&xml).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "testsuites");
    let suite = root.first_element_child().unwrap();
    let count = |name: &str| suite.attribute(name).unwrap().parse::<usize>().unwrap();
    let cases: Vec<_> = suite.children().filter(|node| node.has_tag_name("testcase")).collect();
    let failed = cases.iter().filter(|case| case.children().any(|node| node.has_tag_name("failure"))).count();
    assert_eq!((count("tests"), count("failures"), count("errors")), (cases.len(), failed, 0), "{xml}");
    // The order and the attributes that Jenkins' schema has.
    assert_eq!(suite.first_element_child().unwrap().tag_name().name(), "properties");
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let known: &[&str] = match node.tag_name().name() {
            "testsuites" | "testsuite" => &["name", "tests", "failures", "errors", "skipped", "time"],
            "properties" | "system-out" => &[],
            "property" => &["name", "value"],
            "testcase" => &["name", "classname", "time"],
            "failure" => &["message", "type"],
            other => panic!("{other}: {xml}"),
        };
        assert!(node.attributes().all(|attribute| known.contains(&attribute.name())), "{xml}");
    }
    let reported = |case: &roxmltree::Node| {
        let failure = case.children().find(|node| node.has_tag_name("failure"));
        let message = failure.and_then(|failure| failure.attribute("message")).map(str::to_owned);
        assert!(case.attribute("classname").unwrap().starts_with("webdyno."));
        (case.attribute("name").unwrap().to_owned(), message)
    };
    let cases = cases.iter().map(reported).collect();
    (xml, cases)
}

#[test]
fn objectives_are_test_cases() {
    let (xml, cases) = parsed(&sample::run_with_errors());
    let names: Vec<_> = cases.iter().map(|(name, _)| name.as_str()).collect();
    let [valid, succeed, harmless] = ["generator is valid", "requests succeed", "load does no harm"];
    assert_eq!(names, [valid, succeed, "p99<200ms", "errors<0.1%", "rate>5000", harmless]);
    let failed: Vec<_> = cases.iter().filter_map(|(_, message)| message.as_deref()).collect();
    assert_eq!(
        failed,
        ["measured 0.55%, which does not meet errors<0.1%", "not measured, so that rate>5000 is not met"]
    );
    assert!(xml.contains("<property name=\"client.cores\" value=\"2\"/>"), "{xml}");
    assert!(xml.contains("<property name=\"url\" value=\"http://127.0.0.1:8080/\"/>"), "{xml}");
}

#[test]
fn a_run_that_proves_nothing_fails_its_test_cases() {
    let (_, cases) = parsed(&sample::run_all_failed());
    assert!(cases[1].1.as_ref().unwrap().starts_with("every request failed"), "{cases:?}");
    let mut view = sample::run_with_errors();
    let Outcome::Run(run) = &mut view.outcome else { panic!() };
    run.client.valid = false;
    run.objectives[1].unsupported = true;
    let (_, cases) = parsed(&view);
    assert!(cases[0].1.as_ref().unwrap().starts_with("INVALID"), "{cases:?}");
    assert!(cases[3].1.as_ref().unwrap().contains("too short for this percentile"), "{cases:?}");
}

fn capacity(rate: Option<f64>) -> View {
    let report = CapacityReport { rate, ..CapacityReport::default() };
    let mut view = sample::view("capacity", Outcome::Capacity(Box::new(report)));
    view.loads = vec![sample::load(1, Purpose::Capacity, None, 0.0, sample::run(500.0, 2_000.0))];
    view
}

#[test]
fn what_exits_with_3_fails_a_test_case() {
    let mut broken = sample::run_with_pages();
    let Outcome::Run(run) = &mut broken.outcome else { panic!() };
    let visits = run.visits.as_mut().unwrap();
    (visits.sessions_completed, visits.sessions_broken) = (0, 9);
    let Outcome::Tune(tune) = sample::tune_braked().outcome else { panic!() };
    let stopped = sample::view("run", Outcome::Run(tune.best));
    let message = |view: &View, name: &str| {
        let (_, cases) = parsed(view);
        cases.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}: {cases:?}")).1.clone()
    };
    for (view, name, part) in [
        (sample::run_of_failed_pages(), "pages succeed", "all 12 pages failed"),
        (broken, "sessions succeed", "all 9 sessions aborted"),
        (sample::tune_braked(), "load does no harm", "for want of memory"),
        (stopped, "load does no harm", "for want of memory"),
        (capacity(None), "capacity is found", "no capacity"),
    ] {
        let failed = message(&view, name);
        assert!(failed.as_ref().is_some_and(|failed| failed.contains(part)), "{name}: {failed:?}");
    }
    for (view, name) in [
        (sample::run_with_pages(), "pages succeed"),
        (sample::run_with_pages(), "sessions succeed"),
        (sample::tune_applied(), "load does no harm"),
        (sample::run_with_pages(), "load does no harm"),
        (capacity(Some(500.0)), "capacity is found"),
    ] {
        assert_eq!(message(&view, name), None, "{name}");
    }
}

#[test]
fn every_kind_of_session_has_its_verdicts() {
    for (name, view) in sample::all() {
        match &view.outcome {
            Outcome::Nothing | Outcome::Sweep(_) => assert!(junit(&view).is_err(), "{name}"),
            Outcome::Diagnosis(diagnosis) if diagnosis.run.is_none() => {
                assert!(junit(&view).is_err(), "{name}")
            }
            _ => assert!(parsed(&view).1.len() >= 2, "{name}"),
        }
    }
}
