//! How long packets are on their way to the clients and back, now and at the shortest.
//!
//! Facts: tcp(7), `tcpi_rtt` and `tcpi_min_rtt` of the kernel's tcp_info. The shortest one is of each client's address, since the agent
//! began: a connection that is opened while packets queue on the path knows no shorter one, and clients are near and far. What is told
//! is of the address in the middle, by how many times its shortest one a round trip is, and of its connection in the middle: one client
//! whose own line is full tells nothing of the others.

use std::collections::HashMap;
use std::net::IpAddr;

/// Of so many addresses the shortest is kept; of further ones it is that of the connection.
const ADDRESSES_MAX: usize = 4_096;

/// Of a connection: the other side's address, the round trip as it is smoothed, and the shortest one, in microseconds.
pub(super) type RoundTrip = (IpAddr, u32, u32);

/// What is remembered of the addresses.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    shortest_us: HashMap<IpAddr, u32>,
}

impl RoundTrips {
    /// The round trip of the client in the middle, of two the one that waits less, and its shortest one; `None` of none.
    pub(super) fn median_us(&mut self, of: impl Iterator<Item = RoundTrip>) -> Option<(f64, f64)> {
        let of: Vec<RoundTrip> = of.collect();
        of.iter().for_each(|(address, _, own_us)| self.learn(*address, *own_us));
        let mut by_address: HashMap<IpAddr, Vec<(f64, f64)>> = HashMap::new();
        for (address, now_us, own_us) in of {
            let shortest_us = self.shortest_us.get(&address).copied().unwrap_or(own_us);
            by_address.entry(address).or_default().push((f64::from(now_us), f64::from(shortest_us)));
        }
        middle(by_address.into_values().filter_map(middle).collect())
    }

    fn learn(&mut self, address: IpAddr, own_us: u32) {
        let has_room = self.shortest_us.len() < ADDRESSES_MAX;
        match self.shortest_us.get_mut(&address) {
            Some(known_us) => *known_us = own_us.min(*known_us),
            None if has_room => _ = self.shortest_us.insert(address, own_us),
            None => {}
        }
    }
}

/// The one in the middle, by how many times the shortest one it is; of two the smaller.
fn middle(mut all: Vec<(f64, f64)>) -> Option<(f64, f64)> {
    all.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    all.get(all.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_is_of_the_address_and_each_has_its_own() {
        let mut trips = RoundTrips::default();
        let [near, far] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut median = |of: &[RoundTrip]| trips.median_us(of.iter().copied());
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[(near, 1_200, 1_000), (far, 80_000, 79_000)]), Some((80_000.0, 79_000.0)));
        // Opened while packets queue: the connection itself knows no shorter one.
        assert_eq!(median(&[(near, 400_000, 390_000), (near, 200_000, 900)]), Some((200_000.0, 900.0)));
        assert_eq!(median(&[(near, 400_000, 390_000)]), Some((400_000.0, 900.0)));
        assert_eq!(median(&[(far, 90_000, 85_000)]), Some((90_000.0, 79_000.0)));
        // One client of two that fills its own line, by most of the connections.
        let one =
            [(near, 300_000, 1_000), (far, 80_000, 79_000), (near, 290_000, 1_000), (near, 310_000, 1_000)];
        assert_eq!(median(&one), Some((80_000.0, 79_000.0)));
        assert_eq!(median(&[one[0], one[2], one[3]]), Some((300_000.0, 900.0)));
    }

    #[test]
    fn of_more_addresses_than_are_kept_the_shortest_is_the_connections() {
        let mut trips = RoundTrips::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let full = (0..ADDRESSES_MAX as u32).map(|n| (address(n), 200, 100));
        assert_eq!(trips.median_us(full), Some((200.0, 100.0)));
        let other = address(u32::MAX);
        for own_us in [70, 90] {
            assert_eq!(trips.median_us([(other, 200, own_us)].into_iter()), Some((200.0, f64::from(own_us))));
        }
    }
}
