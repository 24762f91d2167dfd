//! The kernel's own words on processes that it killed for want of memory: whose limit was reached.
//!
//! Facts: what [`crate::os::kernel_log`] says of the log. mm/oom_kill.c writes before it counts a kill.

use crate::os::control_group::Group;
use crate::os::kernel_log;

/// Most records that are looked at after a kill; the report of one kill lists every process.
const RECORDS_COUNT_MAX: usize = 20_000;

/// The kernel log from now on, if it may be read and its paths can be compared.
#[derive(Debug)]
pub struct KernelLog {
    log: Option<kernel_log::KernelLog>,
    /// The path of the service's group within its hierarchy; `/` for none of its own.
    service: String,
}

impl KernelLog {
    /// Begins at its present end.
    pub fn open(service: Option<&Group>) -> Self {
        let log = kernel_log::KernelLog::at_its_end().ok().filter(|_| kernel_log::group_paths_are_ours());
        Self { log, service: kernel_log::path_of(service) }
    }

    /// How many kills were written since the last call that happened within the limit of a group that the service is
    /// not in. 0 where that cannot be told.
    pub fn new_kills_of_others(&mut self) -> u64 {
        let Some(log) = &mut self.log else { return 0 };
        let mut count = 0;
        // What could be read counts.
        let _ =
            log.take(RECORDS_COUNT_MAX, |text| count += u64::from(is_of_other_service(text, &self.service)));
        count
    }
}

/// Whether a record tells of a kill within the limit of a group that does not hold the group `service`.
fn is_of_other_service(text: &str, service: &str) -> bool {
    kernel_log::limit_of_kill(text).is_some_and(|limited| !kernel_log::is_within(service, limited))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18.
    const TEXT: &str = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/web/limited,task_memcg=/web/limited/x,task=tail,pid=31337,uid=0";

    #[test]
    fn a_kill_within_the_limit_of_another_group_is_a_strangers() {
        let global = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/b,task=x,pid=1,uid=0";
        for (text, service, stranger) in [
            (TEXT, "/web/limited", false),
            (TEXT, "/web/limited/apache.service", false),
            (TEXT, "/web", true),
            (TEXT, "/web/limited2", true),
            (TEXT, "/", true),
            (&TEXT.replace("oom_memcg=/web/limited,", "oom_memcg=/,"), "/web", false),
            // The machine itself ran out of memory: whoever is hit, the load may be to blame.
            (global, "/web", false),
            ("Memory cgroup out of memory: Killed process 7 (tail)", "/web", false),
            ("", "/", false),
        ] {
            assert_eq!(is_of_other_service(text, service), stranger, "{service}: {text}");
        }
    }

    #[test]
    fn the_log_is_read_without_waiting() {
        let mut log = KernelLog::open(None);
        log.new_kills_of_others();
        assert_eq!(log.new_kills_of_others(), 0);
    }
}
