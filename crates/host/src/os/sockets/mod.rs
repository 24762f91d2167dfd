//! The listening TCP sockets of a network namespace, as `/proc/net/tcp` and netlink list them.
//!
//! Facts: proc_pid_net(5), Documentation/networking/proc_net_tcp.rst (listening sockets come first), sock_diag(7).

pub(crate) mod netlink;

use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Lines of `/proc/net/tcp` that are read at most: listening sockets come first and are few.
const LINES_MAX: usize = 10_000;

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSocket {
    /// The address it is bound to.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Connections that wait to be accepted.
    pub queue_count: u32,
    /// The most that may wait; `None` where `/proc` does not tell.
    pub queue_max_count: Option<u32>,
    /// Its inode.
    pub inode: u64,
    /// The user who opened it.
    pub uid: u32,
}

/// The listening sockets in a file in the format of `/proc/net/tcp` or `/proc/net/tcp6`.
pub fn listening(path: &str) -> io::Result<Vec<ListenSocket>> {
    parse_listening(io::BufReader::new(std::fs::File::open(path)?))
}

/// Parses listening sockets and stops at the first connection, so that a long list is not generated for nothing.
/// Kernels before 4.4 list half-open connections (`03`) among the listening ones.
fn parse_listening(lines: impl BufRead) -> io::Result<Vec<ListenSocket>> {
    let mut found = vec![];
    for line in lines.split(b'\n').skip(1).take(LINES_MAX) {
        let line = line?;
        match parse_line(&String::from_utf8_lossy(&line)) {
            Some((LISTEN, socket)) => found.push(socket),
            Some((SYN_RECEIVED, _)) | None => {}
            Some(_) => break,
        }
    }
    Ok(found)
}

/// `0A` and `03` of include/net/tcp_states.h.
const LISTEN: u8 = 0x0a;
const SYN_RECEIVED: u8 = 0x03;

/// A line `sl local remote state tx:rx timer retransmits uid timeout inode ...`.
fn parse_line(line: &str) -> Option<(u8, ListenSocket)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let (_, queue) = fields.get(4)?.split_once(':')?;
    let socket = ListenSocket {
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        queue_count: u32::from_str_radix(queue, 16).ok()?,
        queue_max_count: None,
        inode: fields.get(9)?.parse().ok()?,
        uid: fields.get(7)?.parse().ok()?,
    };
    Some((u8::from_str_radix(fields.get(3)?, 16).ok()?, socket))
}

/// An address as the kernel prints it: 32-bit words of network order, each shown in the machine's order.
pub(crate) fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Connections of every state from this network namespace to an address and port.
pub fn connections_to(peer: SocketAddr) -> io::Result<u64> {
    netlink::connections_to(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0050 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 1583 1 0000 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000    33        0 1600 1 0000 100 0 0 10 0
   2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1700 1 0000 20 4 30 10 -1
   3: 00000000:0051 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0000 100 0 0 10 0
";

    const TCP6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:0000000A 00:00000000 00000000     0        0 99 1
";

    // The kernel prints addresses in the machine's order: these texts are from a little-endian one.
    #[cfg(target_endian = "little")]
    #[test]
    fn listening_sockets_parse_up_to_the_first_connection() {
        let four = parse_listening(TCP.as_bytes()).unwrap();
        let short: Vec<_> =
            four.iter().map(|s| (s.address.to_string(), s.port, s.queue_count, s.inode)).collect();
        assert_eq!(short, [("0.0.0.0".into(), 80, 5, 1583), ("127.0.0.1".into(), 8080, 0, 1600)]);
        let six = parse_listening(TCP6.as_bytes()).unwrap();
        assert_eq!((six[0].address.to_string(), six[0].queue_count), ("::1".into(), 10));
    }

    #[test]
    fn half_open_connections_of_old_kernels_do_not_end_the_list() {
        let old = TCP.replace(" 01 00000000:00000000", " 03 00000000:00000000");
        assert_eq!(parse_listening(old.as_bytes()).unwrap().len(), 3);
    }

    proptest! {
        // A torn or strange file gives fewer sockets, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..TCP.len(), noise in "[0-9A-F:/ é\n-]{0,60}") {
            let text = format!("{}{noise}\n{noise}", &TCP[..cut]);
            prop_assert!(parse_listening(text.as_bytes()).unwrap().len() <= 4);
            parse_line(&noise);
            parse_address(&noise);
        }
    }
}
