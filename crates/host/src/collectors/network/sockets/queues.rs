//! How full the queues of all listening sockets are: the service's own is one of them, its backends' are others.
//!
//! Facts: sock_diag(7), listen(2), include/uapi/linux/unix_diag.h. Each socket has a queue of its own, also those that
//! share an address: what is full refuses, however empty the others are.

use crate::collectors::network::Place;
use crate::collectors::{Metric, Reading, gauge};
use crate::os::sockets::{ListenSocket, netlink};
use crate::os::{self, sock_diag};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// The fullest queues that are told one by one.
const INSTANCES_MAX: usize = 4;

/// A listening socket with a name by which it is told, and its queue.
#[derive(Debug, Clone, PartialEq)]
struct Queue {
    name: String,
    count: u32,
    limit: u32,
}

impl Queue {
    /// How full it is, 1 being full. A limit of 0 lets one connection in.
    fn fill(&self) -> f64 {
        f64::from(self.count) / f64::from(self.limit.max(1))
    }
}

pub(crate) fn metrics() -> Vec<Metric> {
    const SOURCE: &str = "sock_diag(7)";
    let inet = |column: u8| {
        let own = "{sub(/^\\[::\\]/, \"*\", $4)} $4 == \"INSTANCE\"";
        let show =
            "{if ($2 >= m) {m = $2; v = $COLUMN}} END {print v+0}".replace("COLUMN", &column.to_string());
        format!("ss -ltnH | awk '{own} {show}'")
    };
    let unix = |column: u8| format!("ss -lxH | awk '$5 == \"INSTANCE\" {{print ${column}; exit}}'");
    vec![
        gauge(
            "sockets.worst_listen_queue_fraction",
            SOURCE,
            "ss -ltxH | awk '$2 == \"LISTEN\" {f = $3 / ($4 > 0 ? $4 : 1); if (f > m) m = f} END {print m+0}'",
        ),
        gauge("sockets.*.listen_queue_count", SOURCE, inet(2)),
        gauge("sockets.*.listen_queue_max_count", SOURCE, inet(3)),
        gauge("sockets.unix.*.listen_queue_count", SOURCE, unix(3)),
        gauge("sockets.unix.*.listen_queue_max_count", SOURCE, unix(4)),
    ]
}

/// Tells the fullest queue and, by name, those that are not empty. `inet` are the listening sockets of the service's
/// namespace.
pub(crate) fn read(inet: &[ListenSocket], place: Place, reading: &mut Reading) {
    let mut all = inet_queues(inet);
    if place != Place::Own {
        // Backends may be here. What cannot be asked for here was told of the service's namespace already.
        all.extend(inet_queues(&netlink::listening().unwrap_or_default()));
    }
    for place in [Place::Own, place].into_iter().take(if place == Place::Own { 1 } else { 2 }) {
        match place.within(unix_queues) {
            Ok(queues) => all.extend(queues),
            Err(error) => reading.lacks(
                "sockets.unix",
                format!("the kernel does not tell the queues of unix sockets: {error}"),
                "modprobe unix_diag",
            ),
        }
    }
    let worst = all.iter().map(Queue::fill).reduce(f64::max);
    reading.push_some("sockets.worst_listen_queue_fraction", worst);
    for queue in fullest(all) {
        reading.push(format!("sockets.{}.listen_queue_count", queue.name), f64::from(queue.count));
        reading.push(format!("sockets.{}.listen_queue_max_count", queue.name), f64::from(queue.limit));
    }
}

/// The fullest queues that hold something; of several with one name the fullest.
fn fullest(all: Vec<Queue>) -> Vec<Queue> {
    let mut by_name: BTreeMap<String, Queue> = BTreeMap::new();
    for queue in all.into_iter().filter(|queue| queue.count > 0) {
        let known = by_name.entry(queue.name.clone()).or_insert_with(|| queue.clone());
        if queue.fill() > known.fill() {
            *known = queue;
        }
    }
    let mut fullest: Vec<Queue> = by_name.into_values().collect();
    fullest.sort_by(|a, b| b.fill().total_cmp(&a.fill()));
    fullest.truncate(INSTANCES_MAX);
    fullest
}

fn inet_queues(sockets: &[ListenSocket]) -> Vec<Queue> {
    let queue = |socket: &ListenSocket| {
        let limit = socket.queue_max_count?;
        // ss writes `*` for the address of both families.
        let name = match socket.address {
            address if address.is_ipv6() && address.is_unspecified() => format!("*:{}", socket.port),
            address => SocketAddr::new(address, socket.port).to_string(),
        };
        Some(Queue { name, count: socket.queue_count, limit })
    };
    sockets.iter().filter_map(queue).collect()
}

/// The listening unix sockets of this thread's network namespace. `struct unix_diag_req`: family, protocol, padding,
/// states, inode, what to show (`UDIAG_SHOW_NAME` 1, `UDIAG_SHOW_RQLEN` 16), cookie.
fn unix_queues() -> io::Result<Vec<Queue>> {
    const AF_UNIX: u8 = 1;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    let mut body = vec![AF_UNIX, 0, 0, 0];
    body.extend(sock_diag::states([sock_diag::state::LISTEN]).to_ne_bytes());
    body.extend([0u32, 1 | 16, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat());
    let mut found = vec![];
    os::netlink::dump(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &body, |body| {
        found.extend(parse_unix(body));
    })?;
    Ok(found)
}

/// `struct unix_diag_msg` of 16 bytes, then attributes `UNIX_DIAG_NAME` 0 and `UNIX_DIAG_RQLEN` 4 (queue, limit).
fn parse_unix(body: &[u8]) -> Option<Queue> {
    let attributes = body.get(16..)?;
    let name = os::netlink::attribute(attributes, 0)?;
    // Names that are no files begin with a zero byte, which is written `@`.
    let name = match name.strip_prefix(&[0]) {
        Some(rest) => format!("@{}", os::netlink::text(rest)),
        None => os::netlink::text(name),
    };
    let lengths = os::netlink::attribute(attributes, 4)?;
    let number = |offset| os::netlink::u32_at(lengths, offset);
    let is_plain = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_graphic());
    let queue = Queue { name: format!("unix.{name}"), count: number(0)?, limit: number(4)? };
    is_plain.then_some(queue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn the_fullest_queues_are_told_by_name() {
        let queue = |name: &str, count, limit| Queue { name: name.into(), count, limit };
        let all = vec![
            queue("a", 1, 100),
            queue("b", 0, 1),
            queue("c", 5, 5),
            queue("a", 50, 100),
            queue("d", 1, 0),
            queue("e", 1, 1_000),
            queue("f", 2, 1_000),
        ];
        let names: Vec<String> =
            fullest(all).into_iter().map(|q| format!("{} {}", q.name, q.count)).collect();
        assert_eq!(names, ["c 5", "d 1", "a 50", "f 2"]);
    }

    #[test]
    fn real_queues_of_both_kinds_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let waiting: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let unix = UnixListener::bind(&path).unwrap();
        let local: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let inet = inet_queues(&netlink::listening().unwrap());
        let seen = inet.iter().find(|queue| queue.name == address.to_string()).unwrap();
        assert_eq!(seen.count, 2);
        let name = format!("unix.{}", path.display());
        let seen = unix_queues().unwrap().into_iter().find(|queue| queue.name == name).unwrap();
        assert_eq!(seen.count, 3);
        assert!(seen.limit > 0 && seen.fill() > 0.0);
        drop((waiting, local, unix));
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(queue) = parse_unix(&bytes) {
                prop_assert!(queue.name.len() <= 4 * bytes.len() + 6);
            }
        }
    }
}
