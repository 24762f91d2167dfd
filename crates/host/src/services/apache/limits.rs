//! What Apache makes of MaxRequestWorkers: the clamps of `*_check_config` in server/mpm/*/*.c.
//!
//! prefork: AH00180 (above ServerLimit). worker: AH00316-AH00319, event: AH00511-AH00516 (less than ThreadsPerChild,
//! no multiple of it, more servers than ServerLimit), AH00507 (ThreadsPerChild above ThreadLimit).

use super::settings::Mpm;

/// The settings that bound each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Which rules hold.
    pub mpm: Mpm,
    /// MaxRequestWorkers as it is configured.
    pub workers: i64,
    /// ServerLimit.
    pub server_limit: i64,
    /// ThreadsPerChild; 1 for prefork.
    pub threads_per_child: i64,
    /// ThreadLimit; 1 for prefork.
    pub thread_limit: i64,
}

impl Limits {
    /// MaxRequestWorkers as it will be, and why it is not what was configured.
    pub fn effective(&self) -> (i64, Vec<String>) {
        let mut why = Vec::new();
        if self.mpm == Mpm::Prefork {
            let most = self.server_limit.max(1);
            if self.workers > most {
                why.push(format!(
                    "MaxRequestWorkers {} is above ServerLimit {most}: {most} workers",
                    self.workers
                ));
            }
            return (self.workers.clamp(1, most), why);
        }
        let mut threads = self.threads_per_child.max(1);
        if threads > self.thread_limit.max(1) {
            why.push(format!(
                "ThreadsPerChild {threads} is above ThreadLimit {}: clipped to it",
                self.thread_limit
            ));
            threads = self.thread_limit.max(1);
        }
        let mut workers = self.workers;
        if workers < threads {
            why.push(format!(
                "MaxRequestWorkers {workers} is below ThreadsPerChild {threads}: {threads} workers"
            ));
            workers = threads;
        }
        if workers % threads != 0 {
            let rounded = workers - workers % threads;
            why.push(format!(
                "MaxRequestWorkers {workers} is not a multiple of ThreadsPerChild {threads}: {rounded} workers"
            ));
            workers = rounded;
        }
        let most = self.server_limit.max(1).saturating_mul(threads);
        if workers > most {
            why.push(format!(
                "MaxRequestWorkers {workers} needs {} processes and ServerLimit is {}: {most} workers",
                workers / threads,
                self.server_limit
            ));
            workers = most;
        }
        (workers, why)
    }

    /// The most workers that ServerLimit allows.
    pub fn most(&self) -> i64 {
        self.server_limit.max(1).saturating_mul(self.threads_per_child.clamp(1, self.thread_limit.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        mpm: Mpm,
        workers: i64,
        server_limit: i64,
        threads_per_child: i64,
        thread_limit: i64,
        expected: (i64, usize),
    ) {
        let limits = Limits { mpm, workers, server_limit, threads_per_child, thread_limit };
        let (effective, why) = limits.effective();
        assert_eq!((effective, why.len()), expected, "{limits:?} {why:?}");
        assert!(effective <= limits.most());
    }

    #[test]
    fn workers_are_clamped_as_apache_clamps_them() {
        check(Mpm::Prefork, 150, 256, 1, 1, (150, 0));
        check(Mpm::Prefork, 512, 256, 1, 1, (256, 1));
        check(Mpm::Prefork, 0, 256, 1, 1, (1, 0));
        check(Mpm::Event, 400, 16, 25, 64, (400, 0));
        check(Mpm::Event, 410, 16, 25, 64, (400, 1));
        check(Mpm::Event, 500, 16, 25, 64, (400, 1));
        check(Mpm::Event, 510, 16, 25, 64, (400, 2));
        check(Mpm::Worker, 10, 16, 25, 64, (25, 1));
        check(Mpm::Worker, 200, 2, 100, 64, (128, 3));
    }
}
