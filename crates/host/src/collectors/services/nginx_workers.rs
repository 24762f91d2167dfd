//! What the workers of nginx wait for: how many there are, and how many wait within a write to an access log. A worker serves all
//! its connections in turn, and none of them meanwhile.
//!
//! Facts: proc_pid_syscall(5): the number and the arguments of the call that a process waits in, `running` when it waits for
//! nothing; the number of write(2) is the architecture's (arch/x86/entry/syscalls/syscall_64.tbl,
//! include/uapi/asm-generic/unistd.h). nginx writes a line with write(2) (ngx_http_log_write).

use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::procfs;
use webdyno_model::service::LogKind;

/// write(2).
pub(super) const WRITE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 64 };

/// How a worker calls itself, while it is not shutting down.
const WORKER: &str = "nginx: worker process";

const ALL: &str = "nginx_workers.all_count";
const LOGGING: &str = "nginx_workers.logging_count";

/// The collector.
#[derive(Debug, Default)]
pub struct NginxWorkers;

/// The descriptor that is written to in the call which a process waits in.
pub(super) fn written_to(call: &str) -> Option<u32> {
    let mut words = call.split_ascii_whitespace();
    words.next().filter(|number| number.parse() == Ok(WRITE))?;
    u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

fn is_worker(pid: u32) -> bool {
    let title = procfs::arguments(pid).ok().and_then(|all| all.into_iter().next());
    title.is_some_and(|title| title.trim_end() == WORKER)
}

impl Collector for NginxWorkers {
    fn name(&self) -> &'static str {
        "nginx_workers"
    }

    fn metrics(&self) -> Vec<Metric> {
        let logging = format!(
            "for p in $(pgrep -P PID -f 'worker process'); do awk '$1=={WRITE}' /proc/$p/syscall; done | wc -l # files: ls -l /proc/PID/fd"
        );
        vec![
            gauge(ALL, "/proc/PID/cmdline", "pgrep -cP PID -f 'worker process'"),
            gauge(LOGGING, "/proc/PID/syscall", logging),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let Some(service) = target.services("nginx").next() else { return reading };
        let workers: Vec<u32> =
            procfs::children_of(service.pid).into_iter().filter(|pid| is_worker(*pid)).collect();
        reading.push(ALL, workers.len() as f64);
        let is_log =
            |path: &str| service.logs.iter().any(|log| log.kind == LogKind::Access && log.path == path);
        let mut logging = 0;
        for pid in workers {
            let call = match std::fs::read_to_string(format!("/proc/{pid}/syscall")) {
                Ok(call) => call,
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    reading.lacks(
                        LOGGING,
                        "what its workers wait for may not be seen",
                        "run webdyno as root",
                    );
                    return reading;
                }
                // It has ended.
                Err(_) => continue,
            };
            let file =
                written_to(&call).and_then(|file| std::fs::read_link(format!("/proc/{pid}/fd/{file}")).ok());
            logging += u32::from(file.is_some_and(|file| is_log(&file.to_string_lossy())));
        }
        reading.push(LOGGING, f64::from(logging));
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_of_a_write_is_read() {
        for (call, expected) in [
            (format!("{WRITE} 0xa 0x55d0 0x5b 0x1 0x0 0x0 0x7ffd 0x7f31\n"), Some(10)),
            (format!("{} 0xa 0x55d0 0x5b 0x1 0x0 0x0 0x7ffd 0x7f31\n", WRITE + 100), None),
            ("running\n".into(), None),
            ("-1 0x7ffd 0x7f31\n".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(written_to(&call), expected, "{call}");
        }
    }
}
