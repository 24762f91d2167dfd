//! The kernel's own words on processes that it killed for want of memory: whose limit was reached.
//!
//! Facts: Documentation/ABI/testing/dev-kmsg (one record a read; at the end EAGAIN, after lost records EPIPE), and
//! mm/oom_kill.c, which writes before it counts a kill, since Linux 5.0:
//! `oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/limited,task_memcg=/limited/x,task=apache2,pid=7,uid=33`. The
//! paths are those of the whole machine, so they mean something only outside of containers.

use crate::collectors::control_group::Group;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, read};
use std::os::fd::OwnedFd;

/// The inode of the first control group namespace: PROC_CGROUP_INIT_INO in include/uapi/linux/nsfs.h.
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// Most records that are looked at after a kill; the report of one kill lists every process.
const RECORDS_COUNT_MAX: usize = 20_000;

/// No record is longer (CONSOLE_EXT_LOG_MAX).
const RECORD_BYTES_MAX: usize = 8192;

/// The kernel log from now on, if it may be read and its paths can be compared.
#[derive(Debug)]
pub struct KernelLog {
    file: Option<OwnedFd>,
    /// The path of the service's group within its hierarchy; `/` for none of its own.
    service: String,
}

impl KernelLog {
    /// Begins at its present end.
    pub fn open(service: Option<&Group>) -> Self {
        let path = service.and_then(|group| {
            Some(format!("/{}", group.directory.strip_prefix(&group.mount).ok()?.to_str()?))
        });
        let comparable =
            std::fs::read_link("/proc/self/ns/cgroup").is_ok_and(|name| name.as_os_str() == FIRST_NAMESPACE);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open("/dev/kmsg", flags, Mode::empty()).ok().filter(|_| comparable);
        let file = file.filter(|file| seek(file, SeekFrom::End(0)).is_ok());
        Self { file, service: path.unwrap_or_else(|| "/".into()) }
    }

    /// How many kills were written since the last call that happened within the limit of a group that the service is
    /// not in. 0 where that cannot be told.
    pub fn new_kills_of_strangers(&mut self) -> u64 {
        let Some(file) = &self.file else { return 0 };
        let (mut count, mut buffer) = (0, [0; RECORD_BYTES_MAX]);
        for _ in 0..RECORDS_COUNT_MAX {
            match read(file, &mut buffer) {
                Ok(length @ 1..) => {
                    let record = String::from_utf8_lossy(&buffer[..length]);
                    count += u64::from(is_of_a_stranger(&record, &self.service));
                }
                // Records were overwritten before they were read: the next one is the oldest there is.
                Err(Errno::PIPE | Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        count
    }
}

/// Whether a record tells of a kill within the limit of a group that does not hold the group `service`.
fn is_of_a_stranger(record: &str, service: &str) -> bool {
    let Some((_, told)) = record.split_once(";oom-kill:constraint=CONSTRAINT_MEMCG,") else { return false };
    let line = told.lines().next().unwrap_or_default();
    // Names of groups may hold commas; what follows is told by the name of its field.
    let limited =
        line.split_once(",oom_memcg=").and_then(|(_, rest)| Some(rest.split_once(",task_memcg=")?.0));
    limited.is_some_and(|limited| {
        let inside = service.strip_prefix(limited.trim_end_matches('/'));
        !inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.18.
    const RECORD: &str = "6,1201,11675541,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/web/limited,task_memcg=/web/limited/x,task=tail,pid=31337,uid=0\n";

    #[test]
    fn a_kill_within_the_limit_of_another_group_is_a_strangers() {
        let global = "3,9,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/b,task=x,pid=1,uid=0\n";
        for (record, service, stranger) in [
            (RECORD, "/web/limited", false),
            (RECORD, "/web/limited/apache.service", false),
            (RECORD, "/web", true),
            (RECORD, "/web/limited2", true),
            (RECORD, "/", true),
            (&RECORD.replace("oom_memcg=/web/limited,", "oom_memcg=/,"), "/web", false),
            // The machine itself ran out of memory: whoever is hit, the load may be to blame.
            (global, "/web", false),
            ("6,1,1,-;Memory cgroup out of memory: Killed process 7 (tail)\n", "/web", false),
            ("", "/", false),
        ] {
            assert_eq!(is_of_a_stranger(record, service), stranger, "{service}: {record}");
        }
    }

    #[test]
    fn the_log_is_read_without_waiting() {
        let mut log = KernelLog::open(None);
        log.new_kills_of_strangers();
        assert_eq!(log.new_kills_of_strangers(), 0);
    }

    proptest! {
        // Any record is survived; only one with the kernel's own words counts.
        #[test]
        fn any_record_is_survived(cut in 0..RECORD.len(), noise in ".{0,60}") {
            is_of_a_stranger(&RECORD[..cut], "/web");
            prop_assert!(!is_of_a_stranger(&noise, "/web"));
        }
    }
}
