//! How long packets are on their way to the clients and back, now and at the shortest.
//!
//! Facts: tcp(7), `tcpi_rtt` and `tcpi_min_rtt` of the kernel's tcp_info. The shortest one is of each client's address, since the agent
//! began: a connection that is opened while packets queue on the path knows no shorter one, and clients are near and far.

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
    /// The mean of the round trips, and that of the shortest ones of the same clients; `None` of none.
    pub(super) fn means_us(&mut self, of: impl Iterator<Item = RoundTrip>) -> Option<(f64, f64)> {
        let (mut count, mut now_us, mut shortest_us) = (0.0, 0.0, 0.0);
        for (address, smoothed_us, own_us) in of {
            count += 1.0;
            now_us += f64::from(smoothed_us);
            shortest_us += f64::from(self.shortest_us(address, own_us));
        }
        (count > 0.0).then(|| (now_us / count, shortest_us / count))
    }

    fn shortest_us(&mut self, address: IpAddr, own_us: u32) -> u32 {
        let is_known = self.shortest_us.contains_key(&address);
        if !is_known && self.shortest_us.len() >= ADDRESSES_MAX {
            return own_us;
        }
        let known_us = self.shortest_us.entry(address).or_insert(own_us);
        *known_us = own_us.min(*known_us);
        *known_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_is_of_the_address_and_each_has_its_own() {
        let mut trips = RoundTrips::default();
        let [near, far] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut means = |of: &[RoundTrip]| trips.means_us(of.iter().copied());
        assert_eq!(means(&[]), None);
        assert_eq!(means(&[(near, 1_200, 1_000), (far, 80_000, 79_000)]), Some((40_600.0, 40_000.0)));
        // Opened while packets queue: the connection itself knows no shorter one.
        assert_eq!(means(&[(near, 400_000, 390_000), (near, 200_000, 900)]), Some((300_000.0, 950.0)));
        assert_eq!(means(&[(near, 400_000, 390_000)]), Some((400_000.0, 900.0)));
        assert_eq!(means(&[(far, 90_000, 85_000)]), Some((90_000.0, 79_000.0)));
    }

    #[test]
    fn of_more_addresses_than_are_kept_the_shortest_is_the_connections() {
        let mut trips = RoundTrips::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let full = (0..ADDRESSES_MAX as u32).map(|n| (address(n), 200, 100));
        assert_eq!(trips.means_us(full), Some((200.0, 100.0)));
        let other = address(u32::MAX);
        for own_us in [70, 90] {
            assert_eq!(trips.means_us([(other, 200, own_us)].into_iter()), Some((200.0, f64::from(own_us))));
        }
    }
}
