//! Which packets the kernel copies for the collector, as a classic BPF program, and what is read of them.
//!
//! Facts: Documentation/networking/filter.rst and linux/bpf_common.h for the instructions; RFC 791, RFC 8200 and RFC 9293
//! for the headers. A socket of SOCK_DGRAM sees a packet from its network header on (packet(7)). A jump counts from the
//! instruction behind it.

use socket2::SockFilter;
use std::net::IpAddr;

/// `ldb [k]`, `ldh [k]`: a byte or two of the packet.
const LOAD_BYTE: u16 = 0x30;
const LOAD_TWO: u16 = 0x28;
/// `ldxb 4*([k]&0xf)`: the length of an IPv4 header; `ldx #k`: a number.
const INDEX_IPV4_HEADER: u16 = 0xb1;
const INDEX_NUMBER: u16 = 0x01;
/// `ldb [x+k]`, `ldh [x+k]`.
const LOAD_BYTE_BEHIND: u16 = 0x50;
const LOAD_TWO_BEHIND: u16 = 0x48;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const FRAGMENT_OFFSET: u32 = 0x1fff;
const IPV6_HEADER: usize = 40;
/// Of headers no more is read than this.
pub(super) const PACKET_BYTES_MAX: usize = 128;

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

impl Version {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Its EtherType (linux/if_ether.h).
    pub(super) fn ethertype(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86dd,
        }
    }
}

/// A step: an instruction, or a condition without which the packet is not copied.
enum Step {
    Do(u16, u32),
    Require(u32),
    RequireNone(u32),
}

/// First packets of connections to the port; of their clients' ports one in `mask + 1`. Clients take even and odd ports
/// for different uses (`__inet_hash_connect`), so the lowest bit has no part in it.
pub(super) fn program(version: Version, port: u16, mask: u16) -> Vec<SockFilter> {
    use Step::{Do, Require, RequireNone};
    let mut steps = match version {
        Version::V4 => vec![
            Do(LOAD_BYTE, 9),
            Require(TCP.into()),
            Do(LOAD_TWO, 6),
            RequireNone(FRAGMENT_OFFSET),
            Do(INDEX_IPV4_HEADER, 0),
        ],
        Version::V6 => {
            vec![Do(LOAD_BYTE, 6), Require(TCP.into()), Do(INDEX_NUMBER, IPV6_HEADER as u32)]
        }
    };
    steps.extend([
        Do(LOAD_TWO_BEHIND, 2),
        Require(port.into()),
        Do(LOAD_BYTE_BEHIND, 13),
        Do(AND, SYN_ACK.into()),
        Require(SYN.into()),
        Do(LOAD_TWO_BEHIND, 0),
        Do(SHIFT_RIGHT, 1),
        Do(AND, mask.into()),
        Require(0),
        Do(RETURN, PACKET_BYTES_MAX as u32),
    ]);
    let count = steps.len();
    let jump = |at: usize| u8::try_from(count - at - 1).unwrap_or(u8::MAX);
    let instruction = |(at, step): (usize, Step)| match step {
        Do(code, number) => SockFilter::new(code, 0, 0, number),
        Require(number) => SockFilter::new(IF_EQUAL, 0, jump(at), number),
        RequireNone(bits) => SockFilter::new(IF_ANY_BIT, jump(at), 0, bits),
    };
    let mut program: Vec<_> = steps.into_iter().enumerate().map(instruction).collect();
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program
}

/// The first packet of a connection. A retransmitted one is the same in all of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Syn {
    pub source: IpAddr,
    pub source_port: u16,
    pub sequence: u32,
}

impl Syn {
    /// Reads a packet; `None` where it is another one.
    pub(super) fn parse(packet: &[u8], port: u16) -> Option<Self> {
        let (source, header, protocol) = match packet.first()? >> 4 {
            4 => {
                let source = IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?);
                (source, usize::from(packet.first()? & 0xf) * 4, *packet.get(9)?)
            }
            6 => {
                let source = IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?);
                (source, IPV6_HEADER, *packet.get(6)?)
            }
            _ => return None,
        };
        let tcp = packet.get(header..header + 14)?;
        let two = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let is_first = protocol == TCP && two(2) == port && tcp[13] & SYN_ACK == SYN;
        is_first.then(|| Self {
            source: source.to_canonical(),
            source_port: two(0),
            sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN from a port to port 80, with these flags instead.
    fn packet(version: Version, source_port: u16, flags: u8) -> Vec<u8> {
        let mut packet = match version {
            Version::V4 => {
                [&[0x46, 0, 0, 60, 0, 1, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 7][..], &[0; 8]].concat()
            }
            Version::V6 => [&[0x60, 0, 0, 0, 0, 40, TCP, 64, 0xfd][..], &[0; 31]].concat(),
        };
        packet.extend(source_port.to_be_bytes());
        packet.extend([0, 80, 0, 0, 1, 2, 0, 0, 0, 0, 0xa0, flags, 0, 0]);
        packet
    }

    #[test]
    fn first_packets_of_connections_to_the_port_are_read() {
        for (version, source) in [(Version::V4, "10.0.0.7"), (Version::V6, "fd00::")] {
            let syn = packet(version, 4711, SYN);
            let expected = Syn { source: source.parse().unwrap(), source_port: 4711, sequence: 258 };
            assert_eq!(Syn::parse(&syn, 80), Some(expected));
            assert_eq!(Syn::parse(&syn, 81), None, "another port");
            for flags in [SYN_ACK, 0x10, 0x04] {
                assert_eq!(Syn::parse(&packet(version, 4711, flags), 80), None, "{flags}");
            }
            for end in 0..syn.len() - 2 {
                assert_eq!(Syn::parse(&syn[..end], 80), None, "cut off at {end}");
            }
        }
    }
}
