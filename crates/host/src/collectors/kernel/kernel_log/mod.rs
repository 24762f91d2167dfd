//! What the kernel says in its log while it is observed: how often each of the messages that name a limit.
//!
//! Facts: what [`crate::os::kernel_log`] says of the log; the messages are those of the kernel's source, see `kernel_log/kinds.rs`.
//! Only how many of each kind there were is told, nothing of their texts. Many of them are limited in rate, or written
//! once in the life of a socket or group: that there is none proves nothing.
//!
//! A message of the connection table tells which network namespace it is of, since Linux 6.17 and only where that is not
//! the first one. The log is the machine's, also within a container that may read it.

mod kinds;

use crate::collectors::{Collector, Metric, Reading, Target, counter, io_error_text};
use crate::os::control_group;
use crate::os::kernel_log::{self, KernelLog};
use kinds::{KINDS, MessageScope};
use std::collections::BTreeMap;
use std::io::ErrorKind;

/// Records that are looked at in one reading at most: the others come with the next one.
const RECORDS_COUNT_MAX: usize = 5_000;

/// The collector.
#[derive(Debug, Default)]
pub struct KernelMessages {
    state: State,
    counts: BTreeMap<&'static str, u64>,
    /// What the target was when [`MessageScope`] was read.
    about: Option<(Option<u16>, Option<u32>, MessageScope)>,
    records_count: u64,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing was read yet.
    #[default]
    New,
    Open(KernelLog),
    /// Why it cannot be read, and what helps.
    Closed(String, String),
}

impl State {
    fn open() -> Self {
        match KernelLog::at_its_end() {
            Ok(log) => Self::Open(log),
            Err(error) => {
                let how = match error.kind() {
                    ErrorKind::NotFound => {
                        "observe from the machine itself: in containers the device is missing as a rule"
                    }
                    ErrorKind::PermissionDenied => {
                        "run as root, or allow it: `setcap cap_syslog+ep` on the program, or \
                         `sysctl kernel.dmesg_restrict=0` where the device may be opened"
                    }
                    _ => "`dmesg` shows whether the log can be read at all",
                };
                Self::Closed(io_error_text("open", kernel_log::DEVICE, &error), how.into())
            }
        }
    }
}

impl KernelMessages {
    /// What tells the service's messages from others, read again when the service is another one.
    fn about(&mut self, target: &Target) -> &MessageScope {
        let known =
            self.about.take().filter(|(port, pid, _)| (*port, *pid) == (target.port, target.service_pid));
        let read = || (target.port, target.service_pid, about(target));
        &self.about.insert(known.unwrap_or_else(read)).2
    }
}

fn about(target: &Target) -> MessageScope {
    let groups = target.service_pid.and_then(|pid| control_group::of(pid).ok()).unwrap_or_default();
    let comparable = kernel_log::group_paths_are_ours();
    let group = groups.memory_v1.as_ref().or(groups.unified.as_ref()).filter(|group| !group.is_root());
    MessageScope {
        port: target.port,
        net_namespace: target.service_pid.and_then(|pid| {
            crate::os::procfs::net_namespace(pid).ok()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
        }),
        group: group.filter(|_| comparable).map(|group| kernel_log::path_of(Some(group))),
    }
}

impl Collector for KernelMessages {
    fn name(&self) -> &'static str {
        "kernel_log"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = KINDS
            .iter()
            .map(|kind| {
                let by_hand = format!("dmesg | grep -cE '{}'", kind.pattern);
                counter(format!("kernel_log.{}.messages_count", kind.name), kernel_log::DEVICE, by_hand)
            })
            .collect();
        metrics.push(counter("kernel_log.records_count", kernel_log::DEVICE, "dmesg | wc -l"));
        metrics.push(counter(
            "kernel_log.lost_records_count",
            kernel_log::DEVICE,
            "journalctl -k -q 2>/dev/null | grep -cE 'Missed [0-9]+ kernel messages'",
        ));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        if matches!(self.state, State::New) {
            self.state = State::open();
        }
        self.about(target);
        let mut reading = Reading::default();
        let log = match &mut self.state {
            State::Open(log) => log,
            State::Closed(why, how) => {
                reading.lacks("kernel_log", why.as_str(), how.as_str());
                return reading;
            }
            State::New => return reading,
        };
        let about = self.about.as_ref().map(|(_, _, about)| about.clone()).unwrap_or_default();
        let (counts, records) = (&mut self.counts, &mut self.records_count);
        let taken = log.take(RECORDS_COUNT_MAX, |text| {
            *records += 1;
            for kind in KINDS.iter().filter(|kind| (kind.is)(text, &about)) {
                *counts.entry(kind.name).or_default() += 1;
            }
        });
        if let Err(error) = taken {
            reading.problem(io_error_text("read", kernel_log::DEVICE, &error));
        }
        for kind in KINDS {
            let count = self.counts.get(kind.name).copied().unwrap_or(0);
            reading.push(format!("kernel_log.{}.messages_count", kind.name), count as f64);
        }
        reading.push("kernel_log.records_count", self.records_count as f64);
        reading.push("kernel_log.lost_records_count", log.lost_count() as f64);
        if log.lost_count() > 0 {
            reading.lacks(
                "kernel_log.lost_records",
                "the log was written faster than it is read once a second: some records were not seen",
                "start the kernel with a larger log_buf_len",
            );
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // As a file of messages would be written: by the kernel's own device, where root may.
    #[test]
    fn what_is_written_is_counted() {
        use std::io::Write;
        let mut collector = KernelMessages::default();
        let target = Target { port: Some(8123), ..Target::default() };
        let before = collector.read(&target);
        let writer = std::fs::OpenOptions::new().write(true).open(kernel_log::DEVICE);
        let (Some(0.0), Ok(mut writer)) = (before.value("kernel_log.records_count"), writer) else {
            eprintln!("SKIPPED: needs root, to write to the kernel's log");
            return;
        };
        let names = ["file_max", "syn_flooding", "syn_flooding_on_port"];
        let count = |reading: &Reading| {
            names[..3]
                .iter()
                .map(|name| reading.value(&format!("kernel_log.{name}.messages_count")))
                .collect::<Vec<_>>()
        };
        for line in [
            "webdyno test: VFS: file-max limit 1 reached",
            "TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:8123. Sending cookies.",
            "nothing of note",
        ] {
            // A record without an end of line may be continued, and is not shown yet.
            writer.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        let after = collector.read(&target);
        // Others may write the like meanwhile.
        assert!(count(&after).into_iter().all(|count| count >= Some(1.0)), "{after:?}");
        assert!(after.value("kernel_log.records_count") >= Some(3.0));
        assert_eq!(after.error, None);
    }

    #[test]
    fn without_rights_it_says_what_helps() {
        let mut collector = KernelMessages {
            state: State::Closed("cannot open /dev/kmsg".into(), "run as root".into()),
            ..KernelMessages::default()
        };
        let reading = collector.read(&Target::default());
        assert!(reading.values.is_empty());
        assert_eq!(reading.missing[0].signal, "kernel_log");
    }
}
