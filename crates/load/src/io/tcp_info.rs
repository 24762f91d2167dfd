//! The kernel's TCP statistics of a connection: TCP_INFO of tcp(7).
//!
//! Facts: `struct tcp_info` of include/uapi/linux/tcp.h, which only ever grew at its end, and `tcp_get_info` of
//! net/ipv4/tcp.c. The kernel copies as much as is requested, and reports when it has less; the fields up to
//! `tcpi_data_segs_out` are there since Linux 4.6. `tcpi_total_retrans` counts lost SYNs too, `tcpi_data_segs_out`
//! counts segments with data, those that were sent again included. `tcpi_rtt` is smoothed; an acknowledgement that
//! waits for the answer to ride on makes it longer, by up to 40 ms. `tcpi_min_rtt` is the shortest one of the last
//! minutes. `tcpi_rcv_ooopack` (Linux 5.4) counts segments that came before one that was sent earlier.

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use rustix::fd::AsFd;
use std::sync::LazyLock;

/// The beginning of `struct tcp_info` in words of 32 bits, up to `tcpi_data_segs_out`.
type TcpInfoFields = [u32; 40];
const RTT: usize = 17;
const TOTAL_RETRANS: usize = 25;
const MIN_RTT: usize = 37;
const DATA_SEGS_OUT: usize = 39;
/// Since this release the kernel returns these fields.
const RELEASE_MIN: (u32, u32) = (4, 6);
/// Its beginning up to `tcpi_rcv_ooopack`, the last of these words, and since which release they are returned.
type TcpInfoReceived = [u32; 57];
const RECEIVED_OUT_OF_ORDER: usize = 56;
const RELEASE_COUNTING: (u32, u32) = (5, 4);

sockopt_impl!(
    /// TCP_INFO.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfoFields
);
sockopt_impl!(
    /// More of TCP_INFO.
    LongTcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfoReceived
);

/// One reading of a connection. Its counts run since the connection was begun, and wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TcpReading {
    /// The smoothed round trip, once there was one.
    pub(crate) round_trip_us: Option<u64>,
    /// The shortest one.
    pub(crate) round_trip_min_us: Option<u64>,
    /// Segments with data, those that were sent again included.
    pub(crate) data_segments_sent: u32,
    /// Segments that were sent again, SYNs included.
    pub(crate) segments_retransmitted: u32,
}

/// Reads a socket. `None` when it is no TCP socket or the kernel does not report it.
pub(crate) fn read(socket: impl AsFd) -> Option<TcpReading> {
    static IS_SUPPORTED: LazyLock<bool> = LazyLock::new(|| is_release_at_least(RELEASE_MIN));
    // nix requires the full length.
    let fields = IS_SUPPORTED.then(|| getsockopt(&socket, TcpInfo).ok()).flatten()?;
    Some(reading(&fields))
}

/// How many segments came out of order since the connection was begun. 0 where the kernel does not count them.
pub(crate) fn received_out_of_order(socket: impl AsFd) -> u32 {
    // An older kernel gives fewer bytes, and nix, which requires the full length, panics then.
    static IS_COUNTED: LazyLock<bool> = LazyLock::new(|| is_release_at_least(RELEASE_COUNTING));
    let fields = IS_COUNTED.then(|| getsockopt(&socket, LongTcpInfo).ok()).flatten();
    fields.map_or(0, |fields| fields[RECEIVED_OUT_OF_ORDER])
}

fn is_release_at_least(least: (u32, u32)) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    version(&release).is_some_and(|version| version >= least)
}

fn reading(fields: &TcpInfoFields) -> TcpReading {
    // 0 and the largest number stand for "none yet".
    let time = |us: u32| (us != 0 && us != u32::MAX).then_some(u64::from(us));
    TcpReading {
        round_trip_us: time(fields[RTT]),
        round_trip_min_us: time(fields[MIN_RTT]),
        data_segments_sent: fields[DATA_SEGS_OUT],
        segments_retransmitted: fields[TOTAL_RETRANS],
    }
}

/// Major and minor number of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn releases_compare_as_numbers() {
        for (release, expected) in [
            ("6.18.44-fc-v595", Some((6, 18))),
            ("4.4.0-19041-Microsoft", Some((4, 4))),
            ("5.10-rc1", Some((5, 10))),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!((4, 10) > RELEASE_MIN && (4, 5) < RELEASE_MIN);
    }

    #[test]
    fn tcp_info_counts_sent_segments() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let before = read(&client).unwrap();
        assert_eq!((before.data_segments_sent, before.segments_retransmitted), (0, 0));
        for _ in 0..5 {
            client.write_all(b"a segment").unwrap();
            server.read_exact(&mut [0; 9]).unwrap();
        }
        let after = read(&client).unwrap();
        assert_eq!((after.data_segments_sent, after.segments_retransmitted), (5, 0));
        assert!(after.round_trip_min_us <= after.round_trip_us && after.round_trip_us.is_some(), "{after:?}");
    }

    #[test]
    fn a_socket_that_is_not_tcp_gives_no_reading() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!((read(&one), received_out_of_order(&one)), (None, 0));
        assert_eq!(reading(&[0; 40]), TcpReading::default());
        assert_eq!(reading(&[u32::MAX; 40]).round_trip_min_us, None);
    }
}
