//! `memory-exhausted`: the server needs more memory than there is, and pages travel to and from swap.
//!
//! Each worker costs memory. When all of them together do not fit, the kernel swaps, and every request waits for the
//! disk: far slower than if fewer workers had made it wait in the queue. Where the control group allows no swap, the
//! kernel ends processes instead.
//!
//! ## How it is recognised
//! All processes stall on memory at times (pressure stall information, `full`) while pages are swapped in, or, where
//! nothing is swapped, while pages of files are read again that had just been given up, as programs hold nearly all of the
//! memory. Or the kernel killed processes for want of memory: the control group's counter says whether they were the
//! service's. The machine's counter alone may mean any container on it: then the finding is half sure only, unless the
//! number of the service's processes fell.
//!
//! Who holds most is told by what processes share and have in swap. Where that cannot be seen, the finding is half sure: the
//! lack may as well be of workers that grow (`worker-memory-growth`) or of a database's connections (`db-connection-memory`).
//!
//! The control group's figures count before the machine's: where the group has room, a neighbour swaps; where files that
//! could be dropped fill it, programs are not short of memory (`working-set-exceeds-memory`). A load that was stopped for
//! swapping, for stalls or for a kill proves it by what stopped it: the brake reads five times a second, and what it saw
//! may be in no sample.
//!
//! ## What to do
//! Allow fewer of those that hold the memory: `MaxRequestWorkers`, or `pm.max_children` of the pool of PHP-FPM, to (available
//! memory + what they hold now - a reserve of a tenth) / what one more of them costs, its swapped parts included. The honest
//! size of a worker is its share (PSS), not its resident size: the latter counts shared pages once per process. More of
//! them fit when they share more: code and data that the parent loads before it forks. Then more memory, if the rate does
//! not suffice.
//!
//! ## By hand
//! `vmstat 1` (si, so), `cat /proc/pressure/memory`, `cat /proc/PID/smaps_rollup`, `dmesg | grep -i 'killed process'`; of a
//! control group `memory.max`, `memory.current`, `memory.swap.current`, `memory.pressure` and `memory.events`.

pub(crate) mod ceiling;
pub(crate) mod finding;

/// Stable id.
pub const ID: &str = "memory-exhausted";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = &[
    "cpu-saturated",
    "apache-workers-exhausted",
    "apache-worker-churn",
    "apache-spawn-lag",
    "accept-queue-overflow",
    "syn-queue-overflow",
    "lost-syns",
    "keepalive-holds-workers",
    "slow-clients",
    "php-fpm-workers-exhausted",
    "backend-refused",
    "db-connections-exhausted",
    "db-lock-contention",
    "db-slow-queries",
    "log-io",
    "foreign-load",
    "tls-handshakes",
    "working-set-exceeds-memory",
];
