//! Apache's error logs, followed from the start of observing: how often it says what, and how much it writes.
//!
//! Facts: `apache_log/line.rs` (how a line is built), `apache_log/codes.rs` (what codes mean). Only counts are kept,
//! never a text. Codes that say what limits a server are counted each by itself, and so are others up to a number of
//! them. A counter of several that is not there is 0 as long as `apache_log.lines_count` is: those of the table are told
//! once at the start and now and then, and as soon as they are above 0 always.
//!
//! Some things Apache says once in the life of its main process (AH00161): the last part of each log is looked at once,
//! and what the present process and its children said there is told apart, as `before_count`.
//!
//! A look is bounded. Of a log that grows faster its last part is read, and what was not read is told in bytes: counts
//! are then of what was read. So is a log that was cut (rotation by copying): lines of its last moment may be lost.

use crate::collectors::observer::REPEAT_COUNT;
use crate::collectors::on_change::on_change;
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::logs::followed::{Event, FollowedLogs, LogLocation};
use crate::logs::tail::{Part, TailRead};
use crate::os::procfs;
use before::Main;
use codes::CODES;
use line::{KNOWN, LEVELS, ParsedLine, Sign};
use std::collections::BTreeMap;
use webdyno_model::service::{LogKind, ServiceSnapshot};

mod before;
mod codes;
mod line;

/// What all logs together may be read in one reading: some 10,000 lines.
const READING_BYTES_MAX: u64 = 1 << 20;

/// How far back is looked at the start, in all logs together, and at least in each.
const BEFORE_BYTES_MAX: u64 = 1 << 20;
const BEFORE_BYTES_MIN: u64 = 32 << 10;

/// Most codes beside those of the table that are counted by themselves.
const OTHER_CODES_COUNT_MAX: usize = 40;

/// The collector.
#[derive(Debug)]
pub struct ApacheLog {
    followed: FollowedLogs<Kept>,
    counted: Counted,
    written_bytes: u64,
    unread_bytes: u64,
    readings_count: u64,
}

impl Default for ApacheLog {
    fn default() -> Self {
        Self {
            followed: FollowedLogs::of(LogKind::Error),
            counted: Counted::default(),
            written_bytes: 0,
            unread_bytes: 0,
            readings_count: 0,
        }
    }
}

/// What goes with a log.
#[derive(Debug)]
struct Kept {
    is_custom: bool,
    /// The main process whose earlier words were looked for.
    main_pid: u32,
    before: Counted,
}

/// How often was said what.
#[derive(Debug, Default)]
struct Counted {
    lines_count: u64,
    levels: [u64; LEVELS.len()],
    without_level_count: u64,
    codes: BTreeMap<u32, u64>,
    other_codes_count: u64,
    known: [u64; KNOWN.len()],
}

impl Counted {
    fn record_line(&mut self, message: ParsedLine) {
        self.lines_count += 1;
        match message.level.and_then(|level| self.levels.get_mut(level)) {
            Some(count) => *count += 1,
            None => self.without_level_count += 1,
        }
        for (bit, count) in self.known.iter_mut().enumerate() {
            *count += u64::from(message.known >> bit & 1);
        }
        let Some(code) = message.code else { return };
        let others = || self.codes.keys().filter(|code| !codes::is_known(**code)).count();
        let has_room = codes::is_known(code) || self.codes.contains_key(&code);
        if has_room || others() < OTHER_CODES_COUNT_MAX {
            *self.codes.entry(code).or_default() += 1;
        } else {
            self.other_codes_count += 1;
        }
    }

    /// How often each code and each known message came: those of the table also when they did not.
    fn messages(&self) -> BTreeMap<String, u64> {
        let table = CODES.iter().map(|(code, _)| (*code, 0));
        let codes: BTreeMap<u32, u64> =
            table.chain(self.codes.iter().map(|(&code, &count)| (code, count))).collect();
        let named = codes.into_iter().map(|(code, count)| (format!("AH{code:05}"), count));
        let known = KNOWN.iter().zip(self.known).map(|((name, _), count)| ((*name).to_owned(), count));
        named.chain(known).chain([("other".to_owned(), self.other_codes_count)]).collect()
    }
}

/// What was said before observing began.
fn before(place: &LogLocation, end: u64, is_custom: bool, logs_count: usize) -> Kept {
    let started = procfs::stat(place.pid).ok().and_then(|stat| procfs::started_at(stat.start_ticks));
    let bytes_max = (BEFORE_BYTES_MAX / logs_count.max(1) as u64).max(BEFORE_BYTES_MIN);
    let main = Main { pid: place.pid, started };
    let mut before = Counted::default();
    // One that cannot be read is told where it is followed.
    let message = before::read_before(&place.path, end, bytes_max, is_custom, main).unwrap_or_default();
    message.into_iter().for_each(|message| before.record_line(message));
    Kept { is_custom, main_pid: place.pid, before }
}

impl ApacheLog {
    fn follow(&mut self, target: &Target) {
        let is_error =
            |service: &ServiceSnapshot| service.logs.iter().filter(|log| log.kind == LogKind::Error).count();
        let logs_count = target.services("apache").map(is_error).sum();
        let choose = |logs: &[_]| logs.to_vec();
        self.followed.follow_services(target.services("apache"), choose, |place, end| {
            before(place, end, place.log.format.is_some(), logs_count)
        });
    }

    /// Reads what was written since; gives what went wrong.
    fn read_logs(&mut self) -> TailRead {
        let mut all = TailRead::default();
        let counted = &mut self.counted;
        self.followed.read(READING_BYTES_MAX, Part::Last, |kept, event| match event {
            Event::Line(line) => counted.record_line(line::read(line, kept.is_custom)),
            Event::Read(looked) => all.add(looked),
        });
        self.written_bytes += all.grown_bytes;
        self.unread_bytes += all.unread_bytes;
        all
    }

    fn push(&self, reading: &mut Reading) {
        reading.push("apache_log.logs_count", self.followed.open_count() as f64);
        reading.push("apache_log.lines_count", self.counted.lines_count as f64);
        reading.push("apache_log.written_bytes", self.written_bytes as f64);
        reading.push("apache_log.unread_bytes", self.unread_bytes as f64);
        let says_all = self.readings_count.is_multiple_of(REPEAT_COUNT);
        let is_told = |count: u64| says_all || count > 0;
        for (name, count) in self.counted.messages().into_iter().filter(|(_, count)| is_told(*count)) {
            reading.push(format!("apache_log.{name}.messages_count"), count as f64);
        }
        let levels = LEVELS.into_iter().zip(self.counted.levels);
        let levels = levels.chain([("without_level", self.counted.without_level_count)]);
        for (level, count) in levels.filter(|(_, count)| is_told(*count)) {
            reading.push(format!("apache_log.{level}.lines_count"), count as f64);
        }
        let mut before: BTreeMap<String, u64> = BTreeMap::new();
        // Of a process that has ended it says nothing any more.
        for one in self.followed.logs().filter(|one| one.with.main_pid == one.place.pid) {
            for (name, count) in one.with.before.messages() {
                *before.entry(name).or_default() += count;
            }
        }
        for (name, count) in before.into_iter().filter(|(_, count)| *count > 0) {
            reading.push(format!("apache_log.{name}.before_count"), count as f64);
        }
    }
}

fn report_unread(looked: TailRead, reading: &mut Reading) {
    if looked.unread_bytes > 0 {
        reading.problem(format!(
            "{} of {} bytes that were written to error logs were not read: counts are of the rest",
            looked.unread_bytes, looked.grown_bytes
        ));
    }
    if looked.is_cut {
        reading.problem("an error log was cut: what was written to it just before may not be counted");
    }
    if looked.is_gone {
        reading.problem("an error log has no name any more: what Apache still writes to it is read");
    }
    if looked.is_refused {
        reading.problem("an error log was replaced by something that cannot be read");
    }
}

impl Collector for ApacheLog {
    fn name(&self) -> &'static str {
        "apache_log"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "Apache's error logs";
        // ERROR_LOGS are their paths. By hand the whole logs are counted: differences are the same.
        let said = |text: &str| format!("cat ERROR_LOGS | grep -cF '{text}'");
        let known = KNOWN.iter().flat_map(|(name, sign)| {
            let command = match sign {
                Sign::System(number) => said(&format!("({number})")),
                Sign::Program(text) => said(text),
                Sign::Either(one, other) => format!("cat ERROR_LOGS | grep -cF -e '{one}' -e '{other}'"),
            };
            [
                on_change(counter(format!("apache_log.{name}.messages_count"), SOURCE, command.clone())),
                gauge(format!("apache_log.{name}.before_count"), SOURCE, command),
            ]
        });
        let level = "cat ERROR_LOGS | grep -c ':INSTANCE[1-8]*\\] '";
        let others = [
            // One that is left out is none still: only those that came are told each time. INSTANCE is a code: AH00161.
            on_change(counter("apache_log.*.messages_count", SOURCE, said("INSTANCE"))),
            gauge("apache_log.*.before_count", SOURCE, said("INSTANCE")),
            on_change(counter("apache_log.*.lines_count", SOURCE, level)),
            counter("apache_log.lines_count", SOURCE, "cat ERROR_LOGS | wc -l"),
            counter("apache_log.written_bytes", SOURCE, "cat ERROR_LOGS | wc -c"),
            // A command reads all of it.
            counter("apache_log.unread_bytes", "what of Apache's error logs was left out", "echo 0"),
            gauge("apache_log.logs_count", "Apache's error logs", "ls ERROR_LOGS | wc -l"),
        ];
        known.chain(others).collect()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        if target.services("apache").next().is_none() {
            self.follow(target);
            return reading;
        }
        self.follow(target);
        let looked = self.read_logs();
        reading.missing.extend(self.followed.missing("apache_log", "no error log of Apache is known"));
        if self.followed.open_count() > 0 {
            self.push(&mut reading);
            self.readings_count += 1;
        }
        report_unread(looked, &mut reading);
        reading
    }
}

#[cfg(test)]
mod tests;
