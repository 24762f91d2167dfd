//! `process-limit`: the service may have no more processes or threads, although its own settings allow more workers.
//!
//! Three limits can refuse a new process: that of tasks in the service's control group (`TasksMax` of systemd, `pids.max`),
//! that of its user (`ulimit -u`, which does not bind root), and those of the whole machine (`kernel.threads-max`,
//! `kernel.pid_max`). After each failed fork the main process of Apache sleeps ten seconds, so that it does little else.
//!
//! ## How it is recognised
//! The kernel refused tasks to the control group meanwhile, or Apache's log says that it could not fork (AH00159), and the
//! tasks stand at one of these limits. From the outside alone: the group stands at its limit all the time, while
//! connections wait and the scoreboard has places for more workers.
//!
//! ## What to do
//! Raise the limit that is reached to what the settings of the service can need, and half as much again: one task for each
//! worker, and of threaded workers two more for each process. Then stop and start it: a graceful reload is refused the same
//! way.
//!
//! ## By hand
//! `systemctl show -p TasksMax -p TasksCurrent apache2`, `pids.current`, `pids.max` and `pids.events` of the control group,
//! `grep AH00159` of the error log, `grep 'Max processes' /proc/PID/limits`, `dmesg | grep 'fork rejected'`.

pub(crate) mod finding;

/// Stable id.
pub const ID: &str = "process-limit";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = &[
    "apache-workers-exhausted",
    "apache-spawn-lag",
    "apache-worker-churn",
    "accept-queue-overflow",
    "syn-queue-overflow",
    "lost-syns",
    "php-fpm-workers-exhausted",
    "keepalive-holds-workers",
    "slow-clients",
];
