//! The kernel's log from now on, record by record, without waiting: what the harm guard and the collector share.
//!
//! Facts: Documentation/ABI/testing/dev-kmsg: one record a read, `priority,sequence,microseconds,flags;text` and lines of
//! `KEY=value` that begin with a blank; at the end EAGAIN, after records that were overwritten before they were read
//! EPIPE, and then the oldest one there is. Reading needs CAP_SYSLOG where kernel.dmesg_restrict is 1, and the right to
//! open the device.
//!
//! mm/oom_kill.c writes, since Linux 5.0,
//! `oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/limited,task_memcg=/limited/x,task=apache2,pid=7,uid=33`. The
//! paths are those of the whole machine, so they mean something only outside of containers.

use crate::os::control_group::Group;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, read};
use std::os::fd::OwnedFd;

/// Where the kernel's log is read.
pub const DEVICE: &str = "/dev/kmsg";

/// The inode of the first control group namespace: PROC_CGROUP_INIT_INO in include/uapi/linux/nsfs.h.
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// No record is longer (CONSOLE_EXT_LOG_MAX).
const RECORD_BYTES_MAX: usize = 8192;

/// A reader of the log.
#[derive(Debug)]
pub struct KernelLog {
    file: OwnedFd,
    buffer: Vec<u8>,
    /// The number of the next record, where one was read before.
    next_sequence: Option<u64>,
    /// Records that were overwritten before they were read.
    lost_count: u64,
}

impl KernelLog {
    /// Begins at the present end. An error when the log may not be read, or there is none.
    pub fn at_its_end() -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(DEVICE, flags, Mode::empty())?;
        seek(&file, SeekFrom::End(0))?;
        Ok(Self { file, buffer: vec![0; RECORD_BYTES_MAX], next_sequence: None, lost_count: 0 })
    }

    /// Shows each new record's text to `look`: at most `count_max` of them. The others come with the next call.
    pub fn take(&mut self, count_max: usize, mut look: impl FnMut(&str)) -> std::io::Result<()> {
        for _ in 0..count_max {
            match read(&self.file, &mut self.buffer[..]) {
                Ok(length @ 1..) => {
                    let record = String::from_utf8_lossy(&self.buffer[..length]);
                    if let Some((sequence, text)) = parse_record(&record) {
                        let expected = self.next_sequence.unwrap_or(sequence);
                        self.lost_count += sequence.saturating_sub(expected);
                        self.next_sequence = sequence.checked_add(1);
                        look(text);
                    }
                }
                Err(Errno::PIPE | Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Records that were overwritten before they were read, since the first one that was read.
    pub fn lost_count(&self) -> u64 {
        self.lost_count
    }
}

/// The number of a record and its text, without what stands beside it.
fn parse_record(record: &str) -> Option<(u64, &str)> {
    let (head, rest) = record.split_once(';')?;
    let sequence = head.split(',').nth(1)?.parse().ok()?;
    Some((sequence, rest.lines().next().unwrap_or_default()))
}

/// Whether paths of groups in the log are those that we see.
pub fn group_paths_are_ours() -> bool {
    std::fs::read_link("/proc/self/ns/cgroup").is_ok_and(|name| name.as_os_str() == FIRST_NAMESPACE)
}

/// The path of a group within its hierarchy, as the log tells it; `/` for none.
pub fn path_of(group: Option<&Group>) -> String {
    let path = group
        .and_then(|group| Some(format!("/{}", group.directory.strip_prefix(&group.mount).ok()?.to_str()?)));
    path.unwrap_or_else(|| "/".into())
}

/// The group whose limit a process was killed for, by the kernel's line on that; `None` for any other line, and when
/// it was the machine's memory that ran out.
pub fn limit_of_kill(text: &str) -> Option<&str> {
    let line = text.strip_prefix("oom-kill:constraint=CONSTRAINT_MEMCG,")?;
    // Names of groups may hold commas; what follows is told by the name of its field.
    Some(line.split_once(",oom_memcg=")?.1.split_once(",task_memcg=")?.0)
}

/// Whether a group is within another one.
pub fn is_within(group: &str, outer: &str) -> bool {
    let inside = group.strip_prefix(outer.trim_end_matches('/'));
    inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RECORD: &str = "6,1201,11675541,-;Link is up\n SUBSYSTEM=net\n DEVICE=n3\n";

    #[test]
    fn records_parse() {
        for (record, expected) in [
            (RECORD, Some((1201, "Link is up"))),
            ("6,1202,1,c,caller=T7;a;b\n", Some((1202, "a;b"))),
            ("6,1202,1,-;\n", Some((1202, ""))),
            ("6,x,1,-;a\n", None),
            ("a line", None),
        ] {
            assert_eq!(parse_record(record), expected, "{record}");
        }
    }

    #[test]
    fn the_log_is_read_without_waiting() {
        // Without rights there is nothing to read.
        let Ok(mut log) = KernelLog::at_its_end() else { return };
        log.take(10_000, |_| {}).unwrap();
        assert_eq!(log.lost_count(), 0);
    }

    proptest! {
        // Any record is survived, and gives no text of its own making.
        #[test]
        fn any_record_is_survived(cut in 0..RECORD.len(), noise in ".{0,60}") {
            for text in [&RECORD[..cut], &noise] {
                prop_assert!(parse_record(text).is_none_or(|(_, message)| text.contains(message)));
                limit_of_kill(text);
            }
        }
    }
}
