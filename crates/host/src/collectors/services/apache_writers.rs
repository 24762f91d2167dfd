//! How many workers of Apache wait within a write to an access log, seen from outside: also where the status page is not there, or
//! waits itself.
//!
//! Facts: proc_pid_syscall(5), as in [`super::nginx_workers`]; mod_log_config writes a line with write(2) when it is not buffered
//! (ap_default_log_writer), to a file, or into the pipe of a program (`|PROGRAM`).

use super::nginx_workers::{WRITE, written_to};
use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::procfs;
use webdyno_model::service::{LogKind, ServiceSnapshot};

const SEEN: &str = "apache_writers.seen_count";
const LOGGING: &str = "apache_writers.logging_count";

/// Processes, and threads of them, that are looked at in one reading, some 15 us each; of more of them each so manieth.
const PROCESSES_MAX: usize = 64;
const THREADS_MAX: usize = 96;

/// The collector.
#[derive(Debug, Default)]
pub struct ApacheWriters;

impl Collector for ApacheWriters {
    fn name(&self) -> &'static str {
        "apache_writers"
    }

    fn metrics(&self) -> Vec<Metric> {
        let logging = format!(
            "for p in $(pgrep -P PID); do awk '$1=={WRITE}' /proc/$p/task/*/syscall; done | wc -l # files: ls -l /proc/PID/fd"
        );
        vec![
            gauge(SEEN, "/proc/PID/task", "for p in $(pgrep -P PID); do ls /proc/$p/task; done | wc -l"),
            gauge(LOGGING, "/proc/PID/task/TID/syscall", logging),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let Some(service) = target.services("apache").next() else { return reading };
        let children = procfs::children_of(service.pid);
        let of_all = children.len().div_ceil(PROCESSES_MAX).max(1);
        let threads: Vec<(u32, u32)> = workers(service.pid, children.into_iter().step_by(of_all))
            .flat_map(|pid| procfs::threads_of(pid).into_iter().map(move |thread| (pid, thread)))
            .collect();
        let all_count = (threads.len() * of_all) as f64;
        reading.push(SEEN, all_count);
        let step = threads.len().div_ceil(THREADS_MAX).max(1);
        let (mut looked_at, mut logging) = (0_u32, 0_u32);
        for (pid, thread) in threads.iter().step_by(step) {
            match std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) {
                Ok(call) => {
                    looked_at += 1;
                    logging += u32::from(written_to(&call).is_some_and(|file| is_log(service, *pid, file)));
                }
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    let why = "what its workers wait for may not be seen";
                    reading.lacks(LOGGING, why, "run webdyno as root");
                    return reading;
                }
                // It has ended.
                Err(_) => {}
            }
        }
        if looked_at > 0 {
            reading.push(LOGGING, (f64::from(logging) * all_count / f64::from(looked_at)).round());
        }
        reading
    }
}

/// Those of its children that run the same program: beside them are those of piped logs. A name says less: mod_perl gives a worker that
/// ran a script another one.
fn workers(main: u32, children: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    let program = |pid: u32| match procfs::executable(pid) {
        Ok((path, _)) => Some(path),
        Err(_) => procfs::stat(pid).ok().map(|stat| stat.name),
    };
    let own = program(main);
    children.filter(move |pid| program(*pid) == own)
}

/// Whether a descriptor is that of an access log: its file, or a pipe where one goes to a program.
fn is_log(service: &ServiceSnapshot, pid: u32, file: u32) -> bool {
    let Ok(path) = std::fs::read_link(format!("/proc/{pid}/fd/{file}")) else { return false };
    let path = path.to_string_lossy();
    let is_piped = || service.missing.iter().any(|one| one.why.trim_start().starts_with('|'));
    service.logs.iter().any(|log| log.kind == LogKind::Access && log.path == path)
        || (path.starts_with("pipe:") && is_piped())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use webdyno_model::sample::MissingSignal;

    /// A "server" whose one "worker", which has a name of its own, writes into a pipe that nobody reads.
    #[test]
    fn a_worker_that_waits_for_a_program_to_read_is_seen() {
        let script = "sh -c 'echo other >/proc/self/comm; while :; do printf %4096s x; done' & wait";
        let mut server = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut service =
            ServiceSnapshot { service: "apache".into(), pid: server.id(), ..ServiceSnapshot::default() };
        let read = |service: &ServiceSnapshot| {
            let target = Target { service: Some(Arc::new(service.clone())), ..Target::default() };
            ApacheWriters.read(&target).values
        };
        let full = [(SEEN.to_owned(), 1.0), (LOGGING.to_owned(), 1.0)];
        let why = "|/usr/bin/send: it is written to a program";
        service.missing = vec![MissingSignal::new("apache_access_log", why, "")];
        let end = Instant::now() + Duration::from_secs(20);
        while read(&service) != full && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(read(&service), full);
        service.missing.clear();
        assert_eq!(read(&service), [(SEEN.to_owned(), 1.0), (LOGGING.to_owned(), 0.0)], "no log is a pipe");
        // The worker ends with the pipe, and the server with it.
        drop(server.stdout.take());
        server.wait().unwrap();
    }
}
