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

use super::say;
use crate::facts::Facts;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};

/// Stable id.
pub const ID: &str = "kernel-limit-total";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[];

/// Fires when the run's own verdict says so.
pub fn check(facts: &Facts) -> Option<Finding> {
    let total = facts.kernel_limit_total.as_ref()?;
    let remedy = |setting: &str, class, why: &str| Remedy {
        service: "generator".into(),
        setting: setting.into(),
        from: None,
        to: None,
        class,
        risk: "none for the server".into(),
        why: why.into(),
        predicted: None,
        together_with: vec![],
    };
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "The run measured a table of the kernel, not the server: {} connections were opened in all, and {} has room \
             for {}. Discard the rate.",
            say(total.connections as f64),
            total.limit,
            say(total.value as f64)
        ),
        confidence: 0.95,
        explains_fraction: None,
        facts: facts.cite(&[
            "connections_opened_total",
            "kernel_limit",
            "connections_opened_per_s",
            "connect_time_max_us",
            "failed_fraction",
            "rate",
        ]),
        remedies: vec![
            remedy("kept connections", ApplyClass::Manual, "one connection then carries many requests"),
            remedy(
                &total.limit,
                ApplyClass::Manual,
                "a larger table fills later; measure for longer than it is held",
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::findings;
    use crate::facts::testing::facts;
    use webdyno_model::client::KernelLimitTotal;

    #[test]
    fn it_comes_before_what_the_figures_seem_to_say() {
        let mut facts =
            facts(&[("rate", 2823.0), ("cpu_busy_fraction", 0.99), ("run_queue_mean", 30.0)], &[]);
        assert!(check(&facts).is_none());
        let limit = "net.ipv4.ip_local_port_range".to_owned();
        facts.kernel_limit_total = Some(KernelLimitTotal { limit, value: 28_232, connections: 28_230 });
        let all = findings(&facts);
        assert_eq!(all[0].id, ID);
        assert!(all[0].summary.contains("28,230 connections") && all[0].summary.contains("28,232"));
        assert!(all[0].remedies.iter().all(|remedy| remedy.wishes().is_empty()));
    }
}
