//! Asks the kernel by netlink, and takes its answer apart without knowing more of it than is asked for: kernels add
//! attributes and lengthen structures with every release, and what is unknown is left out.
//!
//! Facts: netlink(7), rtnetlink(7); net/netlink/af_netlink.c (the kernel writes an answer before send and recv return, and
//! as much at a time as the receiver's buffer holds, 32 KiB at most).

use netlink_packet_core::{NLA_TYPE_MASK, NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Datagrams of one answer at most. Each holds some hundred sockets.
const DATAGRAMS_MAX: usize = 20_000;

/// The most that is received at a time.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Length of the header of a message, and the bytes to which messages and attributes are aligned.
const HEADER_LEN: usize = 16;
const ALIGNED_TO: usize = 4;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// `MSG_TRUNC`: the length that is returned is that of the datagram, also where the buffer is shorter.
const MSG_TRUNC: i32 = 0x20;

/// Asks for everything of a kind; `each` gets the body of every message of the answer.
pub(crate) fn dump(protocol: isize, kind: u16, body: &[u8], each: impl FnMut(&[u8])) -> io::Result<()> {
    exchange(protocol, kind, NLM_F_DUMP, body, each)
}

/// Asks for one thing.
pub(crate) fn get(protocol: isize, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = None;
    exchange(protocol, kind, 0, body, |body| answer = Some(body.to_vec()))?;
    answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel does not answer"))
}

fn exchange(
    protocol: isize,
    kind: u16,
    flags: u16,
    body: &[u8],
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Nothing that has to be waited for ever comes.
    socket.set_non_blocking(true)?;
    socket.send(&request(kind, NLM_F_REQUEST | flags, body), 0)?;
    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
    for _ in 0..DATAGRAMS_MAX {
        datagram.clear();
        let length = socket.recv(&mut datagram, MSG_TRUNC)?;
        if length > datagram.len() {
            return Err(invalid("the kernel's answer is longer than any known one"));
        }
        if take(&datagram, &mut each)? {
            return Ok(());
        }
    }
    Err(invalid("the answer of the kernel has no end"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend_from_slice(body);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut message = NetlinkBuffer::new(&mut bytes);
    message.set_length(length);
    message.set_message_type(kind);
    message.set_flags(flags);
    bytes
}

/// Takes one datagram of an answer apart; true when it was the last one.
pub(crate) fn take(datagram: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|error| invalid(&error.to_string()))?;
        match message.message_type() {
            NLMSG_NOOP => {}
            NLMSG_ERROR => return failure(message.payload()).map(|()| true),
            // A dump that failed half way says so at its end.
            NLMSG_DONE => return failure(message.payload()).map(|()| true),
            _ => {
                each(message.payload());
                if message.flags() & NLM_F_MULTIPART == 0 {
                    return Ok(true);
                }
            }
        }
        let length = (message.length() as usize).max(HEADER_LEN).next_multiple_of(ALIGNED_TO);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// The error number that a message begins with: 0 or nothing is none.
fn failure(body: &[u8]) -> io::Result<()> {
    match i32_at(body, 0) {
        Some(code) if code < 0 => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Ok(()),
    }
}

/// The attributes of a message, type and value; what is torn ends them.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)? & NLA_TYPE_MASK);
        let value = rest.get(ALIGNED_TO..length)?;
        rest = rest.get(length.next_multiple_of(ALIGNED_TO)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a type.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// An attribute as it is sent.
pub(crate) fn encoded(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + ALIGNED_TO).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNED_TO), 0);
    bytes
}

/// A text that ends in a zero byte.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

macro_rules! number_at {
    ($name:ident, $type:ty) => {
        /// The number at an offset, in the machine's order.
        pub(crate) fn $name(bytes: &[u8], offset: usize) -> Option<$type> {
            let bytes = bytes.get(offset..offset.checked_add(size_of::<$type>())?)?;
            Some(<$type>::from_ne_bytes(bytes.try_into().ok()?))
        }
    };
}
number_at!(u16_at, u16);
number_at!(u32_at, u32);
number_at!(i32_at, i32);
number_at!(u64_at, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_sys::protocols::NETLINK_ROUTE;
    use proptest::prelude::*;

    /// `RTM_GETQDISC`, `RTM_GETLINK`.
    const QDISC: u16 = 38;
    const LINK: u16 = 18;

    #[test]
    fn the_kernel_answers_and_refuses() {
        let mut names = vec![];
        let name = |body: &[u8]| names.extend(attribute(body.get(16..).unwrap_or_default(), 3).map(text));
        dump(NETLINK_ROUTE, LINK, &[0; 16], name).unwrap();
        assert!(names.iter().any(|name| name == "lo"), "{names:?}");
        // An interface that there is none of, and a message that there is none of.
        let mut nowhere = [0; 20];
        nowhere[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        assert!(get(NETLINK_ROUTE, QDISC, &nowhere).is_err());
        assert!(dump(NETLINK_ROUTE, 9_999, &[0; 16], |_| ()).is_err());
    }

    #[test]
    fn attributes_are_found_and_torn_ones_end_them() {
        let bytes = [encoded(1, b"tbf\0"), encoded(2 | 0x8000, &[1, 2, 3]), encoded(3, &[])].concat();
        let all: Vec<_> = attributes(&bytes).collect();
        assert_eq!(all, [(1, &b"tbf\0"[..]), (2, &[1, 2, 3]), (3, &[])]);
        assert_eq!((attribute(&bytes, 1).map(text), attribute(&bytes, 9)), (Some("tbf".into()), None));
        assert_eq!(attributes(&bytes[..13]).count(), 1);
        assert_eq!(attributes(&[0; 64]).count(), 0, "no length is too short for itself");
    }

    proptest! {
        // Bytes that are no answer of the kernel end in an error or in nothing, never in a panic or a loop.
        #[test]
        fn any_datagram_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut count = 0;
            let _ = take(&bytes, &mut |body| count += 1 + attributes(body).count());
            prop_assert!(count <= bytes.len());
        }
    }
}
