//! When `log-io` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{memory_evidence, request_cost, worker_waits};
use crate::settings::effective;
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::{LogKind, ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// The share of the busy workers that must be at the log, and how many at least: a line takes microseconds.
const LOGGING_FRACTION_MIN: f64 = 0.3;
const LOGGING_MIN: f64 = 3.0;
/// Of a few workers fewer are enough where a disk is seen to be waited for, which is less sure.
const LOGGING_OF_FEW_MIN: f64 = 0.8;
const CONFIDENCE_OF_FEW: f64 = 0.7;
/// Somebody waits for a disk this share of the time.
const WAITS_MIN: f64 = 0.3;
/// A disk this busy makes writers wait.
const BUSY_MIN: f64 = 0.6;
/// A write that takes longer has waited for the disk itself.
const AWAIT_US_MIN: f64 = 2_000.0;
/// Reads of the log's disk, for each write: with more it is somebody who reads that it works for.
const READS_PER_WRITE_MAX: f64 = 0.2;
/// Writes that are larger are no lines of a log.
const WRITE_BYTES_MAX: f64 = 32_768.0;
/// Where the processors are full, or that cannot be seen, workers may stand at the log for lack of one.
const CONFIDENCE_MAX_NO_ROOM: f64 = 0.5;
/// Pages swapped in each second from which on the disk works for memory.
const SWAPPED_MAX: f64 = 50.0;

/// Below this share of the time nobody notices that memory is short ([`memory_exhausted`]).
const GROUP_FULL_MIN: f64 = 0.02;

/// Where the disk of the logs tells what nginx waits for, and its workers could not be seen.
const CONFIDENCE_BY_DISK: f64 = 0.8;

const NGINX: &str = "nginx";
/// What nginx collects of lines before it writes them, and for how long.
const NGINX_BUFFER: &str = "64k flush=1s";

/// What the log waits for.
enum LogWait {
    Disk(String),
    Program(String),
    Unknown,
}

/// Fires when workers wait for the log, and neither processors, nor memory, nor a resolver explain it.
pub fn check(facts: &Facts) -> Option<Finding> {
    if !(facts.is_service("apache") || facts.is_service(NGINX))
        || request_cost::request_cost(facts).is_some()
        || memory_evidence::is_proven(facts)
        || swaps(facts)
        || crate::limits::hostname_lookups::finding::check(facts).is_some()
    {
        return None;
    }
    if facts.is_service(NGINX) {
        return finding_of_nginx(facts);
    }
    let Some((logging, busy)) = logging_of_busy(facts) else {
        return finding_without_scoreboard(facts);
    };
    let slow = log_wait(facts);
    let are_few = logging < LOGGING_MIN;
    let least = if matches!(slow, LogWait::Disk(_)) { LOGGING_OF_FEW_MIN } else { LOGGING_MIN };
    if logging < least || logging < LOGGING_FRACTION_MIN * busy {
        return None;
    }
    let has_room = request_cost::has_room(facts);
    let sure = if has_room == Some(true) { 1.0 } else { CONFIDENCE_MAX_NO_ROOM };
    let (why, confidence): (String, f64) = match &slow {
        LogWait::Disk(words) => (words.clone(), if are_few { CONFIDENCE_OF_FEW } else { 0.95 }),
        LogWait::Program(program) => {
            (format!("the log goes to a program ({program}) and waits until it has read the lines"), 0.9)
        }
        // Who waits for a processor may stand at the log, too.
        LogWait::Unknown if has_room != Some(true) => return None,
        LogWait::Unknown => ("the cause could not be seen".into(), 0.7),
    };
    let confidence = confidence.min(sure);
    let summary = format!(
        "{} of {} busy workers have sent their response and wait for their log line to be written: {why}.",
        format_number(logging),
        format_number(busy)
    );
    let explains = significant((logging / busy).min(1.0), 3);
    Some(finding(facts, summary, confidence, explains, &slow))
}

/// Workers at the log, of those that are busy. Where a connection's last line is written when it is cleaned up the scoreboard does not
/// tell it from writing the response, and only the write itself is seen.
fn logging_of_busy(facts: &Facts) -> Option<(f64, f64)> {
    let busy = facts.value(FactId::workers_busy_mean);
    let in_scoreboard = facts.value(FactId::workers_logging_mean).zip(busy);
    let outside = worker_waits::logging_from_outside(facts)
        .map(|(logging, all)| (logging, busy.map_or(all, |busy| busy.min(all)).max(logging)));
    [in_scoreboard, outside].into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Whether the disk may work for the service's memory: a machine swaps for neighbours, too, while the group of the service has
/// all that it needs.
fn swaps(facts: &Facts) -> bool {
    let group = facts.value(FactId::pressure_group_memory_full_fraction);
    facts.value(FactId::swapped_in_pages_per_s).is_some_and(|pages| pages > SWAPPED_MAX)
        && group.is_none_or(|full| full >= GROUP_FULL_MIN)
}

fn log_wait(facts: &Facts) -> LogWait {
    let waits = facts
        .value(FactId::pressure_group_io_some_fraction)
        .or(facts.value(FactId::pressure_io_some_fraction));
    if let Some(waits) = waits.filter(|waits| *waits >= WAITS_MIN) {
        let share = waits.min(1.0) * 100.0;
        return LogWait::Disk(format!("tasks waited for a disk {share:.0}% of the time (PSI)"));
    }
    if let Some(program) = log_program(facts) {
        return LogWait::Program(program);
    }
    disk(facts).map_or(LogWait::Unknown, LogWait::Disk)
}

/// The disk of the logs, if it is busy and makes writers wait.
fn disk(facts: &Facts) -> Option<String> {
    let busy = facts.value(FactId::log_disk_busy_fraction).filter(|busy| *busy >= BUSY_MIN)?;
    let await_us = facts.value(FactId::log_disk_await_us).filter(|us| *us >= AWAIT_US_MIN)?;
    Some(format!("its disk is {:.0}% busy, and a write takes {}", busy * 100.0, format_time(await_us)))
}

/// The program that a log goes to, as the snapshot tells it.
fn log_program(facts: &Facts) -> Option<String> {
    let service = facts.service.as_ref()?;
    let piped = service
        .missing
        .iter()
        .find(|one| one.signal == "apache_access_log" && one.why.trim_start().starts_with('|'))?;
    let name = piped.why.trim_start().trim_start_matches(['|', '$']);
    Some(name.split_once(": ").map_or(name, |(name, _)| name).to_owned())
}

/// The disk of the logs, if it is busy with small writes and hardly any reads, as lines of a log are.
fn disk_of_lines(facts: &Facts) -> Option<String> {
    let words = disk(facts)?;
    let writes = facts.value(FactId::log_disk_writes_per_s).filter(|writes| *writes >= 1.0)?;
    let bytes = facts.value(FactId::log_disk_written_bytes_per_s)? / writes;
    let reads = facts.value(FactId::log_disk_reads_per_s).unwrap_or(0.0) / writes;
    let has_logs = facts.service.as_ref()?.logs.iter().any(|log| log.kind == LogKind::Access);
    (bytes <= WRITE_BYTES_MAX && reads <= READS_PER_WRITE_MAX && has_logs).then_some(words)
}

/// A worker of nginx serves all its connections in turn, and none of them while it waits for a line to be written.
fn finding_of_nginx(facts: &Facts) -> Option<Finding> {
    let known = |name: FactId| facts.value(name);
    let LogWait::Disk(words) = log_wait(facts) else { return None };
    if !writes_each_line(facts.service.as_ref()?) {
        return None;
    }
    let (text, confidence, share) =
        match known(FactId::nginx_workers_logging_mean).zip(known(FactId::nginx_workers_mean)) {
            Some((logging, all)) if all >= 1.0 && logging >= LOGGING_FRACTION_MIN * all => {
                let (logging_text, all_text) = (format_number(significant(logging, 2)), format_number(all));
                (
                    format!(
                        "{logging_text} of {all_text} nginx workers wait for an access log line to be written"
                    ),
                    0.95,
                    logging / all,
                )
            }
            Some(_) => return None,
            // What the workers wait for could not be seen, and the disk tells.
            None => {
                let disk = disk_of_lines(facts)?;
                let waits = known(FactId::pressure_group_io_some_fraction)
                    .or(known(FactId::pressure_io_some_fraction));
                let waits = waits.filter(|waits| *waits >= WAITS_MIN)?;
                let text = format!("nginx writes each access log line separately, and {disk}");
                (text, CONFIDENCE_BY_DISK, waits.min(0.95))
            }
        };
    let summary = format!("{text}: {words}. A waiting worker serves none of its connections.");
    Some(finding(facts, summary, confidence, significant(share.min(1.0), 3), &LogWait::Disk(words)))
}

/// Whether there is a log of nginx that is a file and has no buffer.
fn writes_each_line(service: &ServiceSnapshot) -> bool {
    let of_all = service.settings.get("access_log").and_then(|log| log.configured.clone());
    let of_parts = effective::values_anywhere(service, "access_log").map(|log| log.value.clone());
    let mut logs = of_all.map(|log| log.to_string()).into_iter().chain(of_parts);
    logs.any(|log| {
        let is_buffered = |word: &str| word.starts_with("buffer=") || word.starts_with("gzip");
        log.starts_with('/') && !log.split_ascii_whitespace().skip(2).any(is_buffered)
    })
}

/// Without the scoreboard: the disk of the logs is busy with small writes and hardly any reads.
fn finding_without_scoreboard(facts: &Facts) -> Option<Finding> {
    let words = disk_of_lines(facts)?;
    let summary = format!(
        "The disk of the logs is busy with small writes: {words}. Whether workers wait for it could not be seen."
    );
    Some(finding(facts, summary, 0.5, 0.5, &LogWait::Disk(words)))
}

fn finding(facts: &Facts, summary: String, confidence: f64, explains: f64, slow: &LogWait) -> Finding {
    Finding {
        id: LimitId::LogIo.into(),
        summary,
        confidence,
        explains_fraction: Some(explains),
        facts: facts.cite(&fact_ids! {
            workers_logging_mean, workers_busy_mean, worker_threads_logging_mean, worker_threads_seen_mean, nginx_workers_logging_mean, nginx_workers_mean,
            pressure_group_io_some_fraction, pressure_io_some_fraction, log_disk_busy_fraction, log_disk_await_us, log_disk_writes_per_s,
            log_disk_written_bytes_per_s, access_log_bytes_per_s, look_ups_mean, cpu_busy_fraction, rate, response_time_mean_us,
        }),
        remedies: remedies(facts, slow),
    }
}

fn remedies(facts: &Facts, slow: &LogWait) -> Vec<Remedy> {
    let buffered = || {
        let service = facts.service.as_ref()?;
        if service.service == NGINX {
            return Some(Remedy {
                to: Some(SettingValue::Text(NGINX_BUFFER.into())),
                class: ApplyClass::Reload,
                ..manual(
                    SettingId::of_service(NGINX, "access_log buffer"),
                    "lines appear up to a second later; unwritten lines are lost if a worker crashes",
                    "writes a block of lines when it is full, or after a second, instead of each line",
                )
            });
        }
        let value = effective::of_host(service, "BufferedLogs", None);
        let is_on = value.as_ref().is_some_and(|value| value.eq_ignore_ascii_case("on"));
        (!is_on).then(|| Remedy {
            from: value.map(|value| SettingValue::parse(&value)),
            to: Some(SettingValue::Text("On".into())),
            class: ApplyClass::Reload,
            ..manual(
                SettingId::of_service("apache", "BufferedLogs"),
                "unwritten lines are lost if a process crashes: up to 4 kB each",
                "writes a block of lines when it is full, instead of each line",
            )
        })
    };
    let file = manual(
        SettingId::of_service("apache", "CustomLog"),
        "the program gets the lines a moment later, and must follow the file when it is rotated",
        "writing to a file takes microseconds; the program can read the file, and no worker waits for it",
    );
    let disk = manual(
        SettingId::hardware("disk of the logs"),
        "without `sync` the last seconds of the log may be lost on a power failure",
        "use a disk that may delay writes (no `sync`), or a faster one that is not shared",
    );
    match slow {
        LogWait::Program(_) => std::iter::once(file).chain(buffered()).collect(),
        LogWait::Disk(_) | LogWait::Unknown => buffered().into_iter().chain([disk]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};
    use webdyno_model::sample::MissingSignal;
    use webdyno_model::service::LogFile;

    const HELD: [(FactId, f64); 4] = [
        (FactId::workers_logging_mean, 58.0),
        (FactId::workers_busy_mean, 60.0),
        (FactId::cpu_busy_fraction, 0.1),
        (FactId::pressure_group_io_some_fraction, 0.95),
    ];

    fn with(changes: &[(FactId, f64)], piped: bool) -> Option<Finding> {
        let values = with_changes(&HELD, changes);
        let mut facts = facts(&values, &[]);
        let service = facts.service.as_mut().unwrap();
        service.logs = vec![LogFile { kind: LogKind::Access, ..LogFile::default() }];
        if piped {
            service.missing.push(MissingSignal {
                signal: "apache_access_log".into(),
                why: "|/usr/bin/send: it is written to a program".into(),
                how_to_enable: String::new(),
            });
        }
        check(&facts)
    }

    #[test]
    fn workers_at_the_log_wait_for_a_disk_or_a_program() {
        let no_wait = (FactId::pressure_group_io_some_fraction, 0.0);
        let crowded = with(&[(FactId::pressure_group_cpu_some_fraction, 0.9)], false).unwrap();
        assert_eq!(crowded.confidence, 0.5);
        let disk = with(&[], false).unwrap();
        assert_eq!((disk.confidence, disk.explains_fraction), (0.95, Some(0.967)));
        assert_eq!(disk.remedies[0].setting.name, "BufferedLogs");
        let program = with(&[no_wait], true).unwrap();
        assert!(program.summary.contains("/usr/bin/send"), "{}", program.summary);
        assert_eq!((program.confidence, program.remedies[0].setting.name.as_str()), (0.9, "CustomLog"));
        assert_eq!(with(&[no_wait], false).unwrap().confidence, 0.7);
        // The status page waits itself: threads are seen to write.
        let unseen = [FactId::workers_logging_mean, FactId::workers_busy_mean].map(|name| (name, f64::NAN));
        let outside = |logging: f64| {
            let seen =
                [(FactId::worker_threads_seen_mean, 525.0), (FactId::worker_threads_logging_mean, logging)];
            with(&[&unseen[..], &seen, &[no_wait, (FactId::in_flight_mean, 334.0)]].concat(), true)
        };
        assert_eq!(outside(310.0).map(|finding| finding.confidence), Some(0.9));
        assert!(outside(40.0).is_none());
    }

    #[test]
    fn of_a_few_workers_that_the_scoreboard_shows_as_writing_some_write_to_the_log() {
        let found = |logging: f64, waits: f64| {
            with(
                &[
                    (FactId::workers_logging_mean, 0.0),
                    (FactId::workers_busy_mean, 3.0),
                    (FactId::worker_threads_seen_mean, 5.0),
                    (FactId::worker_threads_logging_mean, logging),
                    (FactId::in_flight_mean, 10.0),
                    (FactId::pressure_group_io_some_fraction, waits),
                ],
                false,
            )
            .map(|finding| (finding.confidence, finding.explains_fraction))
        };
        assert_eq!(found(1.5, 0.8), Some((0.7, Some(0.5))));
        assert_eq!(found(0.6, 0.8), None, "by chance");
        assert_eq!(found(1.5, 0.1), None, "nobody waits for a disk");
    }

    #[test]
    fn workers_that_wait_for_something_else_are_no_proof() {
        for changes in [
            &[(FactId::workers_logging_mean, 2.0)][..],
            &[(FactId::workers_logging_mean, 12.0)],
            &[(FactId::cpu_busy_fraction, 0.99), (FactId::pressure_group_io_some_fraction, 0.0)],
            &[(FactId::swapped_in_pages_per_s, 900.0)],
            &[(FactId::service_cpu_cores, 0.97), (FactId::cores, 1.0), (FactId::cpu_per_request_us, 20.0)],
        ] {
            assert!(with(changes, false).is_none(), "{changes:?}");
        }
        let neighbours =
            [(FactId::swapped_in_pages_per_s, 900.0), (FactId::pressure_group_memory_full_fraction, 0.0)];
        assert!(with(&neighbours, false).is_some());
    }

    #[test]
    fn nginx_that_writes_each_line_stands_still_meanwhile() {
        let observed = [
            (FactId::pressure_group_io_some_fraction, 0.92),
            (FactId::log_disk_busy_fraction, 0.97),
            (FactId::log_disk_await_us, 15_000.0),
            (FactId::log_disk_writes_per_s, 60.0),
            (FactId::log_disk_written_bytes_per_s, 60.0 * 4096.0),
        ];
        let of_nginx = |changes: &[(FactId, f64)], log: &str| {
            let mut facts = facts(&with_changes(&observed, changes), &[]);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            service.logs = vec![LogFile { kind: LogKind::Access, ..LogFile::default() }];
            service.settings.entry("access_log".into()).or_default().configured =
                Some(SettingValue::parse(log));
            check(&facts)
        };
        let seen = [(FactId::nginx_workers_logging_mean, 1.2), (FactId::nginx_workers_mean, 2.0)];
        let by_workers = [&seen[..], &[(FactId::log_disk_busy_fraction, f64::NAN)]].concat();
        let finding = of_nginx(&by_workers, "/var/log/nginx/access.log").unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.6)));
        assert!(finding.summary.starts_with("1.2 of 2 nginx workers wait"), "{}", finding.summary);
        let finding = of_nginx(&[], "/var/log/nginx/access.log").unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.8, Some(0.92)));
        let remedy = &finding.remedies[0];
        assert_eq!(
            (remedy.setting.full_name().as_str(), remedy.to.clone()),
            ("nginx access_log buffer", Some(SettingValue::Text("64k flush=1s".into())))
        );
        for (changes, log) in [
            (&[][..], "/var/log/nginx/access.log combined buffer=32k"),
            (&[], "off"),
            (&[seen[1], (FactId::nginx_workers_logging_mean, 0.1)], "/l"),
            (&[(FactId::pressure_group_io_some_fraction, 0.1)], "/l"),
            (&[(FactId::log_disk_await_us, 300.0)], "/l"),
            (&[(FactId::log_disk_reads_per_s, 300.0)], "/l"),
            (&[(FactId::log_disk_written_bytes_per_s, 60.0 * 200_000.0)], "/l"),
            (
                &[
                    (FactId::swapped_in_pages_per_s, 900.0),
                    (FactId::pressure_group_memory_full_fraction, 0.2),
                ],
                "/l",
            ),
        ] {
            assert!(of_nginx(changes, log).is_none(), "{changes:?} {log}");
        }
    }

    #[test]
    fn from_outside_small_writes_are_a_suspicion() {
        let observed = [
            (FactId::workers_logging_mean, f64::NAN),
            (FactId::log_disk_busy_fraction, 0.95),
            (FactId::log_disk_await_us, 15_000.0),
            (FactId::log_disk_writes_per_s, 60.0),
            (FactId::log_disk_written_bytes_per_s, 60.0 * 4096.0),
        ];
        assert_eq!(with(&observed, false).unwrap().confidence, 0.5);
        assert!(with(&[&observed[..], &[(FactId::log_disk_reads_per_s, 300.0)]].concat(), false).is_none());
    }
}
