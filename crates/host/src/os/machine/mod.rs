//! The machine: what [`Environment`] says about where a measurement was made, and who is at work there.
//!
//! Facts: os-release(5), uname(2), `/proc/cpuinfo` and `/proc/meminfo` (proc_cpuinfo(5), proc_meminfo(5)), ip-sysctl.rst, and the
//! scheduler's affinity mask with the control group's CPU quota as `std::thread::available_parallelism` reads them,
//! passwd(5), and `SUDO_USER` as sudo(8) sets it.

pub mod free_port;
mod syscall_cost;

use crate::os::machine::syscall_cost::Speed;
use crate::os::{process, procfs};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use webdyno_model::environment::Environment;

/// Describes this machine. What cannot be read is `None`.
pub fn environment() -> Environment {
    let read = |path: &str| procfs::read_text(path).ok();
    let os_release = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| Some(part.to_string_lossy().into_owned()).filter(|s| !s.is_empty());
    let speed = Speed::measure();
    Environment {
        webdyno: env!("CARGO_PKG_VERSION").to_owned(),
        os: os_release.as_deref().and_then(pretty_name),
        kernel: text(uname.release()),
        cpu_model: read("/proc/cpuinfo").as_deref().and_then(cpu_model),
        cores: std::thread::available_parallelism().ok().and_then(|cores| u32::try_from(cores.get()).ok()),
        memory_bytes: read("/proc/meminfo").as_deref().and_then(memory_bytes),
        syn_linear_timeouts: read("/proc/sys/net/ipv4/tcp_syn_linear_timeouts")
            .and_then(|text| text.trim().parse().ok()),
        file_call_us: speed.map(|speed| speed.file_call_us),
        path_part_us: speed.map(|speed| speed.path_part_us),
        hostname: text(uname.nodename()),
        clock_error_us: None,
    }
}

/// Who gave the command: `alice`, or `root (alice by sudo)`. Of a user that passwd does not name, the number.
pub fn operator() -> String {
    let passwd = procfs::read_text("/etc/passwd").unwrap_or_default();
    let uid = rustix::process::getuid();
    named(&passwd, uid.as_raw(), std::env::var("SUDO_USER").ok().filter(|_| uid.is_root()))
}

fn named(passwd: &str, uid: u32, by_sudo: Option<String>) -> String {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    };
    let name = passwd.lines().find_map(name).unwrap_or_else(|| format!("user {uid}"));
    match by_sudo.filter(|caller| !caller.is_empty() && *caller != name) {
        Some(caller) => format!("{name} ({caller} by sudo)"),
        None => name,
    }
}

/// Whether an address belongs to this machine, in our network namespace: it can be bound, and what is sent to it stays
/// here, so that it is also the sender's. Binding alone does not tell where `ip_nonlocal_bind` is set (ip(7)).
pub fn owns(address: IpAddr) -> bool {
    if TcpListener::bind((address, 0)).is_err() {
        return false;
    }
    address.is_loopback() || address.is_unspecified() || sender_to(address) == Some(address)
}

/// The address from which this machine sends to another one. Nothing is sent: connecting a datagram socket only chooses
/// the way (udp(7)).
pub fn sender_to(address: IpAddr) -> Option<IpAddr> {
    // The discard port (RFC 863); any would do.
    const DISCARD: u16 = 9;
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((address, DISCARD)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Which network of which machine this thread is in: a loopback address means the same one for two processes only when
/// this is the same for both. `None` where it cannot be read.
pub fn net_space() -> Option<String> {
    let space = std::fs::read_link("/proc/thread-self/ns/net").ok()?;
    Some(format!("{} {}", process::boot_id()?, space.display()))
}

/// Which CLOCK_MONOTONIC this process reads: one kernel has one for each time namespace (time_namespaces(7), since Linux
/// 5.6). `None` where it cannot be read.
pub fn clock_space() -> Option<String> {
    let space = std::fs::read_link("/proc/self/ns/time").map(|space| space.display().to_string());
    Some(format!("{} {}", process::boot_id()?, space.unwrap_or_default()))
}

/// `PRETTY_NAME` of os-release, whose values are quoted as a shell would.
fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let bare = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    Some(bare.replace("\\\"", "\"").replace("\\$", "$")).filter(|name| !name.is_empty())
}

/// The first processor's name: `model name` on x86, `Model` or `cpu model` elsewhere; ARM64 servers give none.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let value = |wanted: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut values =
            lines.filter(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim().to_owned());
        values.find(|value| !value.is_empty())
    };
    ["model name", "Model", "cpu model", "cpu"].into_iter().find_map(value)
}

/// `MemTotal` of `/proc/meminfo`.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    crate::os::key_values::meminfo_bytes(meminfo, "MemTotal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse() {
        for (text, expected) in [
            (
                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
                Some("Debian GNU/Linux 12 (bookworm)"),
            ),
            ("PRETTY_NAME='Alpine Linux v3.20'\n", Some("Alpine Linux v3.20")),
            ("PRETTY_NAME=Arch\n", Some("Arch")),
            ("PRETTY_NAME=\"\"\n", None),
            ("PRETTY_NAME=\"\n", Some("\"")),
            ("", None),
        ] {
            assert_eq!(pretty_name(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nmodel\t: 1\n", Some("AMD EPYC 7B13")),
            ("processor : 0\nBogoMIPS : 50\nModel : Raspberry Pi 5\n", Some("Raspberry Pi 5")),
            ("processor : 0\nCPU implementer : 0x41\n", None),
        ] {
            assert_eq!(cpu_model(text).as_deref(), expected, "{text}");
        }
        assert_eq!(memory_bytes("MemTotal:  2 kB\n"), Some(2048));
    }

    #[test]
    fn the_operator_is_named() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        for (uid, by_sudo, expected) in [
            (0, None, "root"),
            (0, Some("alice"), "root (alice by sudo)"),
            (0, Some("root"), "root"),
            (0, Some(""), "root"),
            (1000, None, "alice"),
            (1001, None, "user 1001"),
        ] {
            assert_eq!(named(passwd, uid, by_sudo.map(str::to_owned)), expected);
        }
    }

    #[test]
    fn addresses_are_this_machines_or_anothers() {
        // TEST-NET-1 (RFC 5737) is nobody's address.
        for (address, ours) in
            [("127.0.0.1", true), ("127.9.9.9", true), ("0.0.0.0", true), ("192.0.2.1", false)]
        {
            assert_eq!(owns(address.parse().unwrap()), ours, "{address}");
        }
        assert_eq!(sender_to("127.0.0.1".parse().unwrap()), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(net_space(), net_space());
        assert!(net_space().is_some());
    }

    #[test]
    fn this_machine_is_described() {
        let found = environment();
        assert!(found.cores.unwrap() >= 1 && found.memory_bytes.unwrap() > 1 << 20, "{found:?}");
        assert!(found.kernel.is_some() && found.hostname.is_some(), "{found:?}");
    }
}
