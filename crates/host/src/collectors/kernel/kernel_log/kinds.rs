//! The messages that are counted, and how they are known.
//!
//! Facts: the texts are those of the kernel's source: net/netfilter/nf_conntrack_core.c, net/ipv4/tcp_input.c,
//! net/ipv4/inet_timewait_sock.c and tcp_minisocks.c, net/ipv4/tcp.c, net/core/neighbour.c, net/ipv4/route.c,
//! net/sched/sch_generic.c, fs/file_table.c, mm/oom_kill.c, mm/page_alloc.c, kernel/cgroup/pids.c, kernel/hung_task.c,
//! kernel/watchdog.c, block/blk-core.c, fs/buffer.c, arch/x86/mm/fault.c. They changed over the years: what is looked for
//! is in all of them, from Linux 3.10 on.

use crate::os::kernel_log;

/// What tells the service's messages from those of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageScope {
    /// The port under load.
    pub port: Option<u16>,
    /// The inode of the service's network namespace.
    pub net_namespace: Option<u64>,
    /// The path of the service's control group; `None` where it has none of its own, or paths cannot be compared.
    pub group: Option<String>,
}

/// One kind of message.
pub struct Kind {
    /// What stands in the name of the metric.
    pub name: &'static str,
    /// The expression that shows it by hand.
    pub pattern: &'static str,
    /// Whether a text is of this kind.
    pub is: fn(&str, &MessageScope) -> bool,
}

/// All kinds. A message may be of several.
#[rustfmt::skip] // a table
pub const KINDS: &[Kind] = &[
    Kind { name: "conntrack_full", pattern: "nf_conntrack: table full", is: |text, about| conntrack(text, about) == Some(true) },
    Kind { name: "conntrack_full_elsewhere", pattern: "nf_conntrack: table full in netns", is: |text, about| conntrack(text, about) == Some(false) },
    Kind { name: "syn_flooding", pattern: "[Pp]ossible SYN flooding on port", is: |text, _| flooded_port(text).is_some() },
    Kind { name: "syn_flooding_on_port", pattern: "[Pp]ossible SYN flooding on port .*PORT", is: |text, about| about.port.is_some() && flooded_port(text) == about.port },
    Kind { name: "time_wait_overflow", pattern: "time wait bucket table overflow", is: |text, _| text.contains("time wait bucket table overflow") },
    Kind { name: "tcp_memory", pattern: "TCP: out of memory", is: |text, _| text.contains("TCP: out of memory") },
    Kind { name: "orphans", pattern: "too many (of )?orphaned sockets", is: |text, _| text.contains("too many orphaned sockets") || text.contains("too many of orphaned sockets") },
    Kind { name: "neighbour_overflow", pattern: "[Nn]eighbou?r table overflow", is: |text, _| has_any(text, &["neighbor table overflow", "eighbour table overflow"]) },
    Kind { name: "route_cache_full", pattern: "Route cache is full|dst cache overflow", is: |text, _| has_any(text, &["Route cache is full", "dst cache overflow"]) },
    Kind { name: "file_max", pattern: "file-max limit [0-9]+ reached", is: |text, _| text.contains("file-max limit ") && text.contains(" reached") },
    Kind { name: "process_limit", pattern: "fork rejected by pids controller", is: |text, _| text.contains("fork rejected by pids controller") },
    Kind { name: "oom_kill", pattern: "Killed process [0-9]+ \\(", is: |text, _| killed(text).is_some() },
    Kind { name: "oom_kill_of_web", pattern: "Killed process [0-9]+ \\((apache2|httpd|nginx|lighttpd)", is: |text, _| is_killed(text, &["apache2", "httpd", "/usr/sbin/apach", "nginx", "lighttpd"]) },
    Kind { name: "oom_kill_of_php", pattern: "Killed process [0-9]+ \\(php", is: |text, _| is_killed(text, &["php"]) },
    Kind { name: "oom_kill_of_db", pattern: "Killed process [0-9]+ \\((mariadbd|mysqld)", is: |text, _| is_killed(text, &["mariadbd", "mysqld"]) },
    Kind { name: "oom_kill_in_group", pattern: "oom-kill:constraint=CONSTRAINT_MEMCG", is: killed_in_group },
    Kind { name: "allocation_failure", pattern: "page allocation failure", is: |text, _| text.contains("page allocation failure") },
    Kind { name: "hung_task", pattern: "blocked for more than [0-9]+ seconds", is: |text, _| text.contains("blocked for more than ") && text.contains(" seconds") },
    Kind { name: "lockup", pattern: "soft lockup|hard LOCKUP|rcu.*detected stall", is: |text, _| has_any(text, &["soft lockup", "hard LOCKUP"]) || (text.starts_with("rcu") && text.contains("detected stall")) },
    Kind { name: "io_error", pattern: "I/O error", is: |text, _| text.contains("I/O error") },
    Kind { name: "transmit_timeout", pattern: "transmit queue [0-9]+ timed out", is: |text, _| text.contains("transmit queue ") && text.contains(" timed out") },
    Kind { name: "crash", pattern: "segfault at|general protection fault|trap invalid opcode", is: |text, _| has_any(text, &["]: segfault at ", " general protection fault", " trap invalid opcode"]) },
];

fn has_any(text: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| text.contains(wanted))
}

/// Whether the table of connections that is full is that of the service, as far as is told; `None` for other messages.
fn conntrack(text: &str, about: &MessageScope) -> Option<bool> {
    let (_, rest) = text.split_once("nf_conntrack: table full")?;
    let message = rest.strip_prefix(" in netns ").map(number_at);
    Some(match (message.flatten(), about.net_namespace) {
        (Some(message), Some(ours)) => message == ours,
        // Before Linux 6.17 no message tells it, and then those of the first namespace alone do not.
        _ => true,
    })
}

/// The port of `Possible SYN flooding on port 80.`, or `.. on port 0.0.0.0:80.` and `.. on port [::]:80.` since 6.3.
fn flooded_port(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("ossible SYN flooding on port ")?;
    let address = rest.split_whitespace().next()?.trim_end_matches('.');
    address.rsplit(':').next()?.parse().ok()
}

/// The name of the process in `Killed process 7 (apache2)`: each kill has one such line.
fn killed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Killed process ")?;
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(" (")?;
    Some(name.split_once(')')?.0)
}

fn is_killed(text: &str, names: &[&str]) -> bool {
    killed(text).is_some_and(|name| names.iter().any(|wanted| name.starts_with(wanted)))
}

/// Whether a process was killed because the group of the service, or one that it is in, had reached its limit.
fn killed_in_group(text: &str, about: &MessageScope) -> bool {
    let limited = kernel_log::limit_of_kill(text);
    limited.zip(about.group.as_deref()).is_some_and(|(limited, ours)| kernel_log::is_within(ours, limited))
}

fn number_at(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about() -> MessageScope {
        MessageScope {
            port: Some(80),
            net_namespace: Some(4_026_532_008),
            group: Some("/web/apache2.service".into()),
        }
    }

    fn kinds(text: &str) -> Vec<&'static str> {
        KINDS.iter().filter(|kind| (kind.is)(text, &about())).map(|kind| kind.name).collect()
    }

    const OOM: &str = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/web,task_memcg=/web/apache2.service,task=apache2,pid=8351,uid=33";

    /// Messages of kernels from 3.10 to 6.18.
    #[test]
    fn messages_are_known_across_kernels() {
        for (text, expected) in [
            ("nf_conntrack: nf_conntrack: table full, dropping packet", vec!["conntrack_full"]),
            ("nf_conntrack: table full, dropping packet.", vec!["conntrack_full"]),
            (
                "nf_conntrack: nf_conntrack: table full in netns 4026532008, dropping packet",
                vec!["conntrack_full"],
            ),
            (
                "nf_conntrack: nf_conntrack: table full in netns 4026532777, dropping packet",
                vec!["conntrack_full_elsewhere"],
            ),
            (
                "TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:80. Sending cookies.",
                vec!["syn_flooding", "syn_flooding_on_port"],
            ),
            (
                "TCP: request_sock_TCPv6: Possible SYN flooding on port [::]:8080. Dropping request.",
                vec!["syn_flooding"],
            ),
            (
                "TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.  Check SNMP counters.",
                vec!["syn_flooding", "syn_flooding_on_port"],
            ),
            ("possible SYN flooding on port 4671. Sending cookies.", vec!["syn_flooding"]),
            ("TCP: time wait bucket table overflow", vec!["time_wait_overflow"]),
            ("TCP: out of memory -- consider tuning tcp_mem", vec!["tcp_memory"]),
            ("TCP: too many orphaned sockets", vec!["orphans"]),
            ("neighbour: arp_cache: neighbor table overflow!", vec!["neighbour_overflow"]),
            ("Neighbour table overflow.", vec!["neighbour_overflow"]),
        ] {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn messages_of_memory_files_and_disks_are_known() {
        let oom = OOM;
        for (text, expected) in [
            ("VFS: file-max limit 9223372 reached", vec!["file_max"]),
            (
                "cgroup: fork rejected by pids controller in /system.slice/apache2.service",
                vec!["process_limit"],
            ),
            (oom, vec!["oom_kill_in_group"]),
            (&oom.replace("oom_memcg=/web,", "oom_memcg=/other,"), vec![]),
            (
                "Memory cgroup out of memory: Killed process 8351 (apache2) total-vm:33308kB, anon-rss:30464kB, file-rss:1584kB",
                vec!["oom_kill", "oom_kill_of_web"],
            ),
            (
                "Out of memory: Killed process 1234 (mariadbd) total-vm:33308kB",
                vec!["oom_kill", "oom_kill_of_db"],
            ),
            (
                "Killed process 812 (php-fpm: pool w) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
                vec!["oom_kill", "oom_kill_of_php"],
            ),
            // Before Linux 4.20 or so this line came before the one above.
            ("Out of memory: Kill process 812 (php-fpm7.4) score 900 or sacrifice child", vec![]),
            ("oom_reaper: reaped process 8351 (apache2), now anon-rss:0kB", vec![]),
            (
                "apache2: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL)",
                vec!["allocation_failure"],
            ),
            ("INFO: task jbd2/sda1-8:321 blocked for more than 120 seconds.", vec!["hung_task"]),
            ("watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [apache2:812]", vec!["lockup"]),
            ("rcu: INFO: rcu_sched self-detected stall on CPU", vec!["lockup"]),
            ("blk_update_request: I/O error, dev sda, sector 2048 op 0x1:(WRITE)", vec!["io_error"]),
            (
                "I/O error, dev vda, sector 5 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
                vec!["io_error"],
            ),
            ("NETDEV WATCHDOG: eth0 (virtio_net): transmit queue 0 timed out", vec!["transmit_timeout"]),
            ("apache2[3120]: segfault at 0 ip 00007f3a sp 00007ffd error 4 in mod_x.so", vec!["crash"]),
            ("EXT4-fs (sda1): mounted filesystem with ordered data mode", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    // What a kernel does not tell cannot set messages apart.
    #[test]
    fn without_a_namespace_every_full_table_counts() {
        let text = "nf_conntrack: nf_conntrack: table full in netns 4026532777, dropping packet";
        assert_eq!(conntrack(text, &MessageScope::default()), Some(true));
    }

    proptest! {
        // Any text is survived.
        #[test]
        fn any_text_is_survived(
            start in "(nf_conntrack: table full|possible SYN flooding on port |Killed process |oom-kill:constraint=CONSTRAINT_MEMCG,)?",
            noise in ".{0,60}",
        ) {
            kinds(&format!("{start}{noise}"));
        }
    }
}
