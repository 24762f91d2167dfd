//! When the kernel received the bytes read from a socket: SO_TIMESTAMPING on a sample of the connections.
//!
//! Facts: Documentation/networking/timestamping.rst; net/ipv4/tcp.c and the commit "tcp: Extend
//! SOF_TIMESTAMPING_RX_SOFTWARE to TCP recvmsg" (Linux 4.14). A packet is timestamped with CLOCK_REALTIME when it
//! enters the network stack, over loopback when it is sent. recvmsg gives the timestamp of the last byte that it took,
//! with MSG_TRUNC too. Segments that the kernel joined in the receive queue share the timestamp of the last one: a read
//! that leaves bytes behind may get a later timestamp than its own last byte has, never one that lies after the read.
//! Where a segment is lost, those behind it come before it is sent again, and can be read only after: their timestamps tell
//! nothing of who reads. What came before such a segment was seen to be read late has no timestamp.
//!
//! Timestamping is a switch of the whole machine (`net_enable_timestamp`): with the first socket that wants timestamps
//! the kernel patches its code, with the last one it patches it back. One more socket that lives as long as the load
//! keeps it switched on, so that short connections do not turn it on and off.
//!
//! The engine counts on CLOCK_MONOTONIC. The two clocks run alike (adjtimex slows or speeds both), so that their
//! difference changes only when the realtime clock is set, or with a leap second. The difference is measured once and
//! compared at each timestamp that is used. When it changed, no timestamp of a request that was sent before counts.

use crate::io::tcp_info;
use nix::cmsg_space;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, Timestamps, recvmsg, setsockopt};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};
use std::io::IoSliceMut;
use webdyno_model::workload::Clock;

/// Of the connections of a thread, one in so many is timestamped when a sample is enough.
const SAMPLE_EVERY: u64 = 16;
/// Two readings of the clocks belong together when they lie no further apart.
const READING_NS_MAX: u64 = 10_000;
/// Attempts to read the clocks without being interrupted by the scheduler.
const READINGS_MAX: usize = 4;
/// How often the difference is measured to find the narrowest reading.
const MEASUREMENTS: usize = 16;
/// What is read so late was late because of its reader, or had to wait for a segment that was lost.
const READ_LATE_NS_MIN: u64 = 200_000;
/// Differences up to this come from the readings and are no set clock.
const TOLERANCE_NS: i64 = 2_000;

/// The realtime clock between two readings of the monotonic one, all in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockReading {
    before_ns: u64,
    realtime_ns: u64,
    after_ns: u64,
}

impl ClockReading {
    /// Now. `None` when the readings lie too far apart each time: the thread was held.
    fn now() -> Option<Self> {
        (0..READINGS_MAX).map(|_| Self::once()).find(|reading| reading.width_ns() <= READING_NS_MAX)
    }

    fn once() -> Self {
        let before_ns = clock_ns(ClockId::Monotonic);
        let realtime_ns = clock_ns(ClockId::Realtime);
        Self { before_ns, realtime_ns, after_ns: clock_ns(ClockId::Monotonic) }
    }

    fn width_ns(&self) -> u64 {
        self.after_ns.saturating_sub(self.before_ns)
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    crate::io::clock::nanoseconds(clock_gettime(clock))
}

/// How far the realtime clock is ahead of the monotonic one, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockOffset {
    ahead_ns: i64,
    since_ns: u64,
}

impl ClockOffset {
    fn from_reading(reading: ClockReading) -> Self {
        let middle_ns = reading.before_ns + reading.width_ns() / 2;
        let ahead_ns = (reading.realtime_ns as i64).wrapping_sub(middle_ns as i64);
        Self { ahead_ns, since_ns: reading.after_ns }
    }

    /// From the narrowest of several readings.
    fn measure() -> Option<Self> {
        let readings = (0..MEASUREMENTS).filter_map(|_| ClockReading::now());
        let narrowest = readings.min_by_key(ClockReading::width_ns)?;
        // Whatever was read before it counts as set: the others may have been read on both sides of a step.
        Some(Self { since_ns: clock_ns(ClockId::Monotonic), ..Self::from_reading(narrowest) })
    }

    /// Whether a reading is consistent with this difference.
    fn is_consistent_with(&self, reading: ClockReading) -> bool {
        let at_least = (reading.before_ns as i64).wrapping_add(self.ahead_ns) - TOLERANCE_NS;
        let at_most = (reading.after_ns as i64).wrapping_add(self.ahead_ns) + TOLERANCE_NS;
        (at_least..=at_most).contains(&(reading.realtime_ns as i64))
    }

    /// A timestamp on the monotonic clock; `None` when it may have been made with another difference (the request was
    /// sent before this one was known), or when it lies after the read that gave it.
    fn convert(&self, timestamp_ns: u64, sent_ns: u64, read_ns: u64) -> Option<u64> {
        let at_ns = u64::try_from((timestamp_ns as i64).wrapping_sub(self.ahead_ns)).ok()?;
        let trusted = sent_ns >= self.since_ns && at_ns <= read_ns + TOLERANCE_NS as u64;
        trusted.then(|| at_ns.min(read_ns))
    }
}

/// What is known of the socket in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotTimestamp {
    /// Read without timestamps.
    Plain,
    /// The timestamp of the last read on the realtime clock, 0 when it had none.
    Stamped(u64),
}

/// The segments of a connection that came before one that was lost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OutOfOrder {
    /// How many were counted at the last late read.
    count: u32,
    /// When more of them were met last, on the realtime clock: what came before may have waited for them.
    met_ns: u64,
}

impl OutOfOrder {
    /// Whether what came at this time was kept waiting by its reader alone. `count` is called where it was read late, and says
    /// by when it had counted: on a busy machine more may come between the read and that.
    fn depends_on_reader(
        &mut self,
        timestamp_ns: u64,
        now_ns: u64,
        count: impl FnOnce() -> (u32, u64),
    ) -> bool {
        if now_ns.saturating_sub(timestamp_ns) >= READ_LATE_NS_MIN {
            let (count, counted_ns) = count();
            if count != self.count {
                *self = Self { count, met_ns: counted_ns };
            }
        }
        timestamp_ns > self.met_ns
    }
}

/// Reads with timestamps.
pub(crate) struct RxTimestampReader {
    control: Vec<u8>,
}

impl RxTimestampReader {
    /// With room for a timestamp.
    pub(crate) fn new() -> Self {
        Self { control: cmsg_space!(Timestamps) }
    }

    /// As recv(2), with the timestamp on the realtime clock; 0 where there is none.
    pub(crate) fn recv(
        &mut self,
        socket: impl AsFd,
        buffer: &mut [u8],
        flags: RecvFlags,
        out_of_order: &mut OutOfOrder,
    ) -> Result<(usize, u64)> {
        let flags = MsgFlags::from_bits_truncate(flags.bits() as i32);
        let mut pieces = [IoSliceMut::new(buffer)];
        let fd = socket.as_fd().as_raw_fd();
        let got = recvmsg::<()>(fd, &mut pieces, Some(&mut self.control), flags)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        // A control message that does not fit is no timestamp.
        let timestamp_ns = got.cmsgs().ok().and_then(|mut messages| messages.find_map(timestamp_from));
        let count = got.bytes;
        let timestamp_ns = timestamp_ns.filter(|timestamp_ns| {
            let count = || (tcp_info::received_out_of_order(socket.as_fd()), clock_ns(ClockId::Realtime));
            out_of_order.depends_on_reader(*timestamp_ns, clock_ns(ClockId::Realtime), count)
        });
        Ok((count, timestamp_ns.unwrap_or(0)))
    }
}

/// The timestamps of one thread's connections.
pub(crate) struct RxTimestamps {
    /// Every how many connections one is timestamped; `None` for none at all.
    every: Option<u64>,
    opened: u64,
    slots: Vec<SlotTimestamp>,
    out_of_order: Vec<OutOfOrder>,
    reader: RxTimestampReader,
    offset: Option<ClockOffset>,
    // Held so that timestamping stays switched on.
    _keeper: Option<OwnedFd>,
}

impl RxTimestamps {
    /// For this many slots. An error when every connection is to be timestamped and the kernel refuses.
    pub(crate) fn new(clock: Clock, slots: usize) -> Result<Self> {
        let every = match clock {
            Clock::Engine => None,
            Clock::Auto => Some(SAMPLE_EVERY),
            Clock::Kernel => Some(1),
        };
        let timestamping_socket = match every.map(|_| timestamping_socket()) {
            Some(Err(errno)) if clock == Clock::Kernel => return Err(errno),
            timestamping_socket => timestamping_socket.and_then(Result::ok),
        };
        Ok(Self {
            every: every.filter(|_| timestamping_socket.is_some()),
            opened: 0,
            slots: vec![SlotTimestamp::Plain; slots],
            out_of_order: vec![OutOfOrder::default(); slots],
            reader: RxTimestampReader::new(),
            offset: timestamping_socket.as_ref().and_then(|_| ClockOffset::measure()),
            _keeper: timestamping_socket,
        })
    }

    /// A connection begins in this slot: its socket is timestamped when it is its turn and the kernel agrees.
    pub(crate) fn begin(&mut self, slot: u32, socket: impl AsFd) {
        let Some(every) = self.every else { return };
        self.opened += 1;
        if (self.opened - 1).is_multiple_of(every) && enable_rx_timestamps(socket).is_ok() {
            self.slots[slot as usize] = SlotTimestamp::Stamped(0);
            self.out_of_order[slot as usize] = OutOfOrder::default();
        }
    }

    /// The segments of this slot that came out of order, for a read that is made elsewhere.
    pub(crate) fn out_of_order(&mut self, slot: u32) -> &mut OutOfOrder {
        &mut self.out_of_order[slot as usize]
    }

    /// Whether the socket in this slot is timestamped.
    #[inline]
    pub(crate) fn has_rx_timestamps(&self, slot: u32) -> bool {
        self.slots[slot as usize] != SlotTimestamp::Plain
    }

    /// As recv(2) on a socket that is timestamped; keeps the timestamp.
    pub(crate) fn recv(
        &mut self,
        slot: u32,
        socket: impl AsFd,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Result<usize> {
        let (count, timestamp_ns) =
            self.reader.recv(socket, buffer, flags, &mut self.out_of_order[slot as usize])?;
        if count > 0 {
            self.record(slot, timestamp_ns);
        }
        Ok(count)
    }

    /// The last read of this slot, made elsewhere, had this timestamp.
    pub(crate) fn record(&mut self, slot: u32, timestamp_ns: u64) {
        self.slots[slot as usize] = SlotTimestamp::Stamped(timestamp_ns);
    }

    /// The socket of this slot is closed.
    pub(crate) fn end(&mut self, slot: u32) {
        self.slots[slot as usize] = SlotTimestamp::Plain;
    }

    /// When the kernel received the last bytes that a read of this slot gave, on the monotonic clock: they were read at
    /// `read_ns`, for a request that was sent at `sent_ns`. `None` without a timestamp that can be believed.
    pub(crate) fn received_ns(&mut self, slot: u32, sent_ns: u64, read_ns: u64) -> Option<u64> {
        let SlotTimestamp::Stamped(timestamp_ns @ 1..) = self.slots[slot as usize] else {
            return None;
        };
        let reading = ClockReading::now()?;
        match self.offset {
            Some(offset) if offset.is_consistent_with(reading) => {
                offset.convert(timestamp_ns, sent_ns, read_ns)
            }
            _ => {
                self.offset = ClockOffset::measure();
                None
            }
        }
    }
}

fn timestamp_from(message: ControlMessageOwned) -> Option<u64> {
    match message {
        ControlMessageOwned::ScmTimestampsns(timestamps) => {
            let (s, ns) = (timestamps.system.tv_sec(), timestamps.system.tv_nsec());
            Some(s as u64 * 1_000_000_000 + ns as u64)
        }
        _ => None,
    }
}

/// An otherwise unused socket that keeps timestamping enabled.
fn timestamping_socket() -> Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    enable_rx_timestamps(&socket)?;
    Ok(socket)
}

fn enable_rx_timestamps(socket: impl AsFd) -> Result<()> {
    let wanted = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    setsockopt(&socket, Timestamping, &wanted).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn reading(before_ns: u64, realtime_ns: u64, after_ns: u64) -> ClockReading {
        ClockReading { before_ns, realtime_ns, after_ns }
    }

    #[test]
    fn a_set_clock_is_distinguished_from_reading_jitter() {
        let offset = ClockOffset::from_reading(reading(1_000, 900_000_000, 1_100));
        for (realtime_ns, is_consistent_with) in [
            (900_500_000, true),
            (900_500_000 + 3_000, false),
            (900_500_000 - 3_000, false),
            (900_500_000 + 1_500, true),
            (900_500_000 + 3_600_000_000_000, false),
        ] {
            let seen = reading(500_950, realtime_ns, 501_150);
            assert_eq!(offset.is_consistent_with(seen), is_consistent_with, "{realtime_ns}");
        }
    }

    // A timestamp counts only when the clock cannot have been set between its packet and now.
    #[test]
    fn a_timestamp_from_before_a_clock_step_is_ignored() {
        let offset = ClockOffset { ahead_ns: 1_000_000_000, since_ns: 50_000 };
        for (timestamp_ns, sent_ns, read_ns, received_ns) in [
            (1_000_080_000, 60_000, 90_000, Some(80_000)),
            // Sent before the difference was known.
            (1_000_080_000, 49_000, 90_000, None),
            // Read before it came: the clock was set, or the driver timestamps by another clock.
            (1_000_095_000, 60_000, 90_000, None),
            (1_000_091_000, 60_000, 90_000, Some(90_000)),
            (999_000_000, 60_000, 90_000, None),
        ] {
            assert_eq!(
                offset.convert(timestamp_ns, sent_ns, read_ns),
                received_ns,
                "{timestamp_ns} {sent_ns}"
            );
        }
    }

    proptest! {
        // Invariant: whatever the clocks show, a timestamp that counts lies not after its read, and converting is exact
        // for clocks that stand still against each other, also when the realtime clock is behind.
        #[test]
        fn converting_is_exact(ahead_ns in -1_000_000_000_000i64..2_000_000_000_000_000_000,
                               sent_ns in 1_000_000_000_000u64..2_000_000_000_000, flight_ns in 0u64..1_000_000_000,
                               lay_ns in 0u64..1_000_000_000) {
            let offset = ClockOffset { ahead_ns, since_ns: sent_ns };
            let received_ns = sent_ns + flight_ns;
            let timestamp_ns = (received_ns as i64 + ahead_ns) as u64;
            prop_assert_eq!(offset.convert(timestamp_ns, sent_ns, received_ns + lay_ns), Some(received_ns));
        }
    }

    fn pair(timestamps: &mut RxTimestamps) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        timestamps.begin(0, &client);
        let (server, _) = listener.accept().unwrap();
        server.set_nodelay(true).unwrap();
        (client, server)
    }

    /// Sends bytes until the timestamps are switched on, which the kernel does in its own time.
    fn timestamped_read(timestamps: &mut RxTimestamps, flags: RecvFlags) -> (u64, u64, u64) {
        let (client, mut server) = pair(timestamps);
        for _ in 0..200 {
            let sent_ns = clock_ns(ClockId::Monotonic);
            server.write_all(&[7; 100]).unwrap();
            let written_ns = clock_ns(ClockId::Monotonic);
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(timestamps.recv(0, &client, &mut [0; 4096], flags), Ok(100));
            let read_ns = clock_ns(ClockId::Monotonic);
            if let Some(received_ns) = timestamps.received_ns(0, sent_ns, read_ns) {
                return (received_ns - sent_ns, written_ns - sent_ns, read_ns - sent_ns);
            }
        }
        panic!("no stamp in 200 reads");
    }

    #[test]
    fn rx_timestamps_are_when_bytes_arrived_and_not_when_they_were_read() {
        for flags in [RecvFlags::empty(), RecvFlags::TRUNC] {
            let mut timestamps = RxTimestamps::new(Clock::Kernel, 1).unwrap();
            let (received_ns, written_ns, read_ns) = timestamped_read(&mut timestamps, flags);
            // Over loopback the packet has come before the write returns.
            assert!(received_ns <= written_ns + 2_000, "{received_ns} {written_ns}");
            assert!(read_ns >= received_ns + 9_000_000, "{received_ns} {read_ns}");
        }
    }

    #[test]
    fn what_came_before_a_hole_was_filled_tells_nothing_of_its_reader() {
        let mut connection = OutOfOrder::default();
        let mut depends = |timestamp_us: u64, now_us: u64, count: u32| {
            let counted = (count, (now_us + 400) * 1_000);
            connection.depends_on_reader(timestamp_us * 1_000, now_us * 1_000, || counted)
        };
        assert!(depends(1_000, 9_000, 0), "late, and nothing is lost");
        assert!(!depends(20_000, 90_000, 3), "it waited for a segment");
        assert!(!depends(89_000, 90_100, 3), "so did what is read after it");
        assert!(!depends(90_300, 94_000, 3), "it came while those were counted, and is one of them");
        assert!(depends(95_000, 99_000, 3), "it came later, and only its reader is late");
        assert!(!depends(100_000, 130_000, 4), "the next hole");
    }

    #[test]
    fn a_sample_begins_with_the_first_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let count = |clock| {
            let mut timestamps = RxTimestamps::new(clock, 40).unwrap();
            let clients: Vec<_> =
                (0..40).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
            clients.iter().zip(0..).for_each(|(client, slot)| timestamps.begin(slot, client));
            (0..40).filter(|&slot| timestamps.has_rx_timestamps(slot)).collect::<Vec<_>>()
        };
        assert_eq!(count(Clock::Auto), [0, 16, 32]);
        assert!(count(Clock::Engine).is_empty());
        assert_eq!(count(Clock::Kernel).len(), 40);
    }

    #[test]
    fn after_a_clock_step_the_next_request_is_timestamped_again() {
        let mut timestamps = RxTimestamps::new(Clock::Kernel, 1).unwrap();
        timestamped_read(&mut timestamps, RecvFlags::empty());
        // As if the clock had been set back an hour in between.
        if let Some(offset) = &mut timestamps.offset {
            offset.ahead_ns += 3_600_000_000_000;
        }
        let (client, mut server) = pair(&mut timestamps);
        let mut ask = |timestamps: &mut RxTimestamps| {
            let sent_ns = clock_ns(ClockId::Monotonic);
            server.write_all(b"x").unwrap();
            assert_eq!(timestamps.recv(0, &client, &mut [0; 16], RecvFlags::empty()), Ok(1));
            timestamps.received_ns(0, sent_ns, clock_ns(ClockId::Monotonic))
        };
        assert_eq!(ask(&mut timestamps), None);
        assert!((0..10).any(|_| ask(&mut timestamps).is_some()));
    }
}
