//! `kernel-limit-total`: the run measured the size of a table of the kernel, not the server.
//!
//! ## How it is recognised
//! The connections that the load opened, all together, come within 1% of the size of a table that each of them takes a
//! place in, or of what was free of it when the load began: the local ports towards the server
//! (`net.ipv4.ip_local_port_range`), the connections that a packet filter tracks (`net.netfilter.nf_conntrack_max`), those
//! that wait after their close (`net.ipv4.tcp_max_tw_buckets`), open files. And the load ran into something:
//! connections failed or were begun again after a lost packet, or few more came about towards the end. A total that was
//! ordered (`-n`, `-c`, `-r` times `-d`) and fully reached is none of these. Nor is one of a load that outlived the table:
//! after a standstill connections came about again, as places came free. Such a load has measured what goes through in the
//! long run (`conntrack-full`, where that table is the one).
//!
//! Places are given back only after a time (a minute for a port, two for a tracked connection), so that such a run stops
//! at the same total however long it is, and its rate is that total divided by the length of the run. What can be
//! sustained is the size of the table divided by the time that a place is held.
//!
//! ## What to do
//! Discard the rate. Keep connections (no `--no-keepalive`), which takes one place for many requests; or widen the table
//! on the machine that makes the load, wait until it is empty again, and measure for longer than places are held.
//!
//! ## By hand
//! While the load runs: `ss -s` (timewait), `ss -tan state time-wait | wc -l`,
//! `cat /proc/sys/net/netfilter/nf_conntrack_count`; afterwards `dmesg | grep -i 'table'`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        connect_time_max_us, connections_opened_per_s, connections_opened_total, failed_fraction,
        kernel_limit, rate,
    }],
    invalidates_run: true,
    meaning: Some(
        "The load filled a table of the kernel, whose size divided by the length of the run looks like a rate. \
             Discard it: keep connections, or widen the table, and measure again.",
    ),
    ..Limit::new(
        LimitId::KernelLimitTotal,
        "The run measured the size of a kernel table",
        include_str!("mod.rs"),
        finding::check,
    )
};
