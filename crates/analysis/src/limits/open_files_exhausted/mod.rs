//! `open-files-exhausted`: a process of the service, or of one behind it, may open no more files.
//!
//! A connection is a file, and so is each connection to a backend, each file that is sent and each end of a pipe to a
//! program: a proxy needs two for a request, a CGI program six more than a file. When they are gone, what needs one fails:
//! 503 where it was for the backend, and where it was for the visitor's connection Apache ends the whole process.
//!
//! ## How it is recognised
//! The log of the service says `(24)Too many open files` (of the whole machine: `(23)Too many open files in system`, and
//! the kernel's log), and a process was seen near its limit. Without logs: a process stands at its limit while requests
//! fail.
//!
//! ## What to do
//! Raise the limit of the process to twice what its settings can need: two for each connection that a process can have,
//! and some for logs, modules and sockets. Debian's start script gives Apache 8192. A limit is inherited when a process
//! starts: stop and start the service.
//!
//! ## By hand
//! `grep -c 'Too many open files'` of the error log; `ls /proc/PID/fd | wc -l` and `grep 'open files' /proc/PID/limits` of each
//! process; of the machine `cat /proc/sys/fs/file-nr`.

pub(crate) mod ceiling;
pub(crate) mod finding;

/// Stable id.
pub const ID: &str = "open-files-exhausted";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = &[
    "backend-refused",
    "apache-workers-exhausted",
    "apache-worker-churn",
    "apache-spawn-lag",
    "apache-scoreboard-full",
    "accept-queue-overflow",
    "syn-queue-overflow",
    "lost-syns",
    "php-fpm-workers-exhausted",
    "db-connections-exhausted",
    // Processes that end for it are started anew, over and over, and errors are quick to make.
    "cpu-saturated",
    "foreign-load",
];
