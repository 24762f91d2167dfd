//! `kernel-limit-total`: the run measured the size of a kernel table, not the server.
//!
//! ## How it is recognised
//! The total of connections opened by the load is within 1% of the size of a table in which each takes an entry, or of what was
//! free in it when the load began: local ports towards the server (`net.ipv4.ip_local_port_range`), connections tracked by a
//! packet filter (`net.netfilter.nf_conntrack_max`), connections in TIME_WAIT (`net.ipv4.tcp_max_tw_buckets`), open files. And
//! the load hit a limit: connections failed or were retried after a lost packet, or few new ones succeeded towards the end. A
//! total that was requested (`-n`, `-c`, `-r` times `-d`) and fully reached does not count. Nor does a load that outlasted the
//! table: after a standstill connections succeeded again, as entries were freed. Such a load measured the sustained rate
//! (`conntrack-full`, if that table is the one), as does one that lasted for longer than the server's table was seen to keep an
//! entry. A total that is near, with a lost packet or a failed connection and no standstill, may be chance: it is half sure.
//!
//! Entries are freed only after a time (a minute for a port, two for a tracked connection), so such a run stops at the same
//! total however long it is, and its rate is that total divided by the length of the run. The sustainable rate is the size of
//! the table divided by the time that an entry is held.
//!
//! ## What to do
//! Discard the rate. Keep connections (no `--no-keepalive`), so that one entry serves many requests; or enlarge the table on
//! the generator's machine, wait until it is empty again, and measure for longer than entries are held.
//!
//! ## By hand
//! Under load: `ss -s` (timewait), `ss -tan state time-wait | wc -l`, `cat /proc/sys/net/netfilter/nf_conntrack_count`;
//! afterwards `dmesg | grep -i 'table'`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        connect_time_max_us, conntrack_closed_life_s, connections_opened_per_s, connections_opened_total, failed_fraction,
        kernel_limit, rate,
    }],
    invalidates_run: true,
    meaning: Some(
        "The load filled a kernel table; the rate is its size divided by the length of the run. Discard it: \
             keep connections or enlarge the table, and measure again.",
    ),
    ..Limit::of(LimitId::KernelLimitTotal, "The run measured the size of a kernel table", finding::check)
};
