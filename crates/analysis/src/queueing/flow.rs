//! Throughput of a part of a network of queues by the requests inside: a flow-equivalent server (Chandy, Herzog and Woo,
//! "Parametric analysis of queuing networks", 1975). Two of them in a circle are a birth-death chain, which is solved exactly; this is
//! the mean value analysis of stations whose rate depends on their load, without its cancellation near saturation.

/// Requests per second that leave with 1, 2, ... requests inside; with more than the last of them as many as with that.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow(Vec<f64>);

/// From this weight on all weights of a chain are divided by it.
const RESCALE_AT: f64 = 1e150;

impl Flow {
    /// A queue with so many servers, a part of one among them, of this service time in seconds.
    pub fn queue(servers: f64, service_s: f64, inside_max: usize) -> Self {
        Self((1..=inside_max).map(|inside| (inside as f64).min(servers) / service_s).collect())
    }

    /// A time in seconds that all spend beside each other.
    pub fn delay(seconds: f64, inside_max: usize) -> Self {
        Self::queue(f64::INFINITY, seconds, inside_max)
    }

    /// With so many inside; between whole numbers as much as lies between.
    pub fn at(&self, inside: f64) -> f64 {
        let below = inside.max(0.0).floor();
        let [low, high] = [below as usize, below as usize + 1].map(|count| self.with(count));
        low + (inside.max(0.0) - below) * (high - low)
    }

    /// The most that leave.
    pub fn capacity(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// The same of a part that lets at most so many in.
    pub fn upto(&self, places: usize) -> Self {
        Self(self.0.iter().take(places).copied().collect())
    }

    fn with(&self, count: usize) -> f64 {
        let last = self.0.len();
        count.min(last).checked_sub(1).map_or(0.0, |index| self.0[index])
    }

    /// Both in a circle, with up to so many requests.
    #[must_use]
    pub fn then(&self, next: &Self, inside_max: usize) -> Self {
        Self((1..=inside_max).map(|inside| circulating(self, next, inside)).collect())
    }

    /// Both in a circle with this number of requests: what leaves each of them.
    pub fn circulating(&self, next: &Self, inside: f64) -> f64 {
        let below = inside.floor();
        let low = circulating(self, next, below as usize);
        if inside <= below {
            return low;
        }
        low + (inside - below) * (circulating(self, next, below as usize + 1) - low)
    }

    /// Requests inside on average where they arrive at random (Poisson) at this rate; `None` where they are more than can leave.
    pub fn mean_inside(&self, arrivals_per_s: f64) -> Option<f64> {
        let last = self.0.len() as f64;
        let load = arrivals_per_s / self.capacity();
        (load < 1.0).then_some(())?;
        let (mut weight, mut sum, mut inside) = (1.0, 1.0, 0.0);
        for (index, rate) in self.0.iter().enumerate() {
            weight *= arrivals_per_s / rate;
            sum += weight;
            inside += weight * (index + 1) as f64;
            if weight > RESCALE_AT {
                (sum, inside, weight) = (sum / weight, inside / weight, 1.0);
            }
        }
        // Beyond the last number each further request is as likely as the one before times the load.
        let beyond = load / (1.0 - load);
        sum += weight * beyond;
        inside += weight * (last * beyond + load / ((1.0 - load) * (1.0 - load)));
        Some(inside / sum)
    }
}

/// The chain: with `count` of them in the first, the others are in the second.
fn circulating(first: &Flow, second: &Flow, inside: usize) -> f64 {
    let (mut weight, mut sum, mut flow) = (1.0, 1.0, 0.0);
    for count in 1..=inside {
        let leaves = first.with(count);
        weight *= second.with(inside + 1 - count) / leaves;
        sum += weight;
        flow += weight * leaves;
        if weight > RESCALE_AT {
            (sum, flow, weight) = (sum / weight, flow / weight, 1.0);
        }
    }
    flow / sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_networks_have_their_known_throughput() {
        // One server of 1 s and a think time of 1 s: with two users the chain 1, 2, 2 gives 4/5.
        let server = Flow::queue(1.0, 1.0, 9);
        assert!((server.circulating(&Flow::delay(1.0, 9), 2.0) - 0.8).abs() < 1e-12);
        // Two equal queues in a circle: N / (N + 1) by mean value analysis.
        for users in 1..=9 {
            let expected = f64::from(users) / f64::from(users + 1);
            assert!((server.circulating(&server, f64::from(users)) - expected).abs() < 1e-12, "{users}");
        }
        // M/M/1 at half of its capacity has one request inside, M/M/2 at half 4/3.
        assert!((server.mean_inside(0.5).unwrap() - 1.0).abs() < 1e-12);
        assert!((Flow::queue(2.0, 1.0, 9).mean_inside(1.0).unwrap() - 4.0 / 3.0).abs() < 1e-12);
        assert_eq!(server.mean_inside(1.0), None);
    }

    proptest! {
        // No network serves more than its slowest part, nor more than users who never wait ask for; more users never get less.
        #[test]
        fn throughput_stays_within_the_operational_bounds(
            servers in 1.0..40.0f64, service_s in 0.001..1.0f64, think_s in 0.001..10.0f64, users in 1usize..400,
        ) {
            let (queue, think) = (Flow::queue(servers, service_s, users), Flow::delay(think_s, users));
            let all = queue.then(&think, users);
            let rate = all.at(users as f64);
            let bound = (servers / service_s).min(users as f64 / (think_s + service_s));
            prop_assert!(rate <= bound * (1.0 + 1e-9), "{rate} {bound}");
            prop_assert!(all.0.windows(2).all(|two| two[1] >= two[0] * (1.0 - 1e-9)));
        }
    }
}
