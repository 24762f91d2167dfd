//! A server as a network of queues: processors and a link as stations, pools as outer limits around them (Apache's workers around
//! PHP-FPM's children around the database's connections), users or arrivals in front. Each pool with what is inside is one
//! flow-equivalent server for what is outside.

use super::flow::Flow;

/// Places of which a request holds one while it is inside.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// How many there are.
    pub places: f64,
    /// For how long a request holds one beside what is inside of the next pool, or at the stations, microseconds.
    pub own_us: f64,
}

/// The server: what a request needs of each part, microseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Network {
    /// The outermost first.
    pub pools: Vec<Pool>,
    /// Processors that there are for it, and what it takes of one; `None` where it is not known or next to nothing.
    pub processors: Option<(f64, f64)>,
    /// What a request occupies of the link, outside of the pools.
    pub link_us: Option<f64>,
    /// What it waits for, innermost, that has no queue of this model: a backend, a disk, a lock.
    pub rest_us: f64,
    /// What its response takes outside of all pools.
    pub outside_us: f64,
}

/// What is asked of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Users, each of whom asks again after a while.
    Closed {
        /// How many.
        users: f64,
        /// Mean time from a response to the next request, microseconds.
        think_us: f64,
    },
    /// Requests that come at a rate, however slow the responses.
    Open {
        /// A second.
        rate: f64,
        /// How many of them are in the server at once, at most.
        connections: f64,
    },
}

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Solution {
    /// Responses per second.
    pub rate: f64,
    /// Mean response time, microseconds; `None` where more comes than can be served, as it then grows without end.
    pub response_us: Option<f64>,
}

/// Below this a part takes no time.
const LEAST_US: f64 = 0.1;

impl Network {
    /// What comes of a load.
    pub fn solve(&self, load: Load) -> Solution {
        match load {
            Load::Closed { users, think_us } => {
                let server = self.flow(users.ceil() as usize);
                let away = think_us + self.outside_us;
                let rate = match away < LEAST_US {
                    true => server.at(users),
                    false => server.circulating(&Flow::delay(away / 1e6, users.ceil() as usize), users),
                };
                Solution { rate, response_us: Some((users / rate * 1e6 - think_us).max(0.0)) }
            }
            Load::Open { rate, connections } => {
                let server = self.flow(connections.ceil().max(1.0) as usize);
                let inside = server.mean_inside(rate);
                let response_us = inside.map(|inside| inside / rate * 1e6 + self.outside_us);
                Solution { rate: rate.min(server.capacity()), response_us }
            }
        }
    }

    /// For how long a request holds a place of this pool when it waits nowhere.
    pub fn hold_us(&self, pool: usize) -> f64 {
        let own: f64 = self.pools[pool..].iter().map(|pool| pool.own_us).sum();
        own + self.rest_us + self.processors.map_or(0.0, |(_, demand_us)| demand_us)
    }

    /// The same server, a request of which takes so many times as long everywhere but at the link.
    #[must_use]
    pub fn scaled(&self, times: f64) -> Self {
        let pools = self.pools.iter().map(|pool| Pool { own_us: pool.own_us * times, ..pool.clone() });
        Self {
            pools: pools.collect(),
            processors: self.processors.map(|(servers, demand_us)| (servers, demand_us * times)),
            rest_us: self.rest_us * times,
            ..self.clone()
        }
    }

    /// The same server with so many times the processors.
    #[must_use]
    pub fn with_processors(&self, times: f64) -> Self {
        let processors = self.processors.map(|(servers, demand_us)| (servers * times, demand_us));
        Self { processors, ..self.clone() }
    }

    /// All of it but the time outside, with up to so many requests.
    fn flow(&self, inside_max: usize) -> Flow {
        let places = |pool: &Pool| (pool.places.max(1.0) as usize).min(inside_max).max(1);
        let innermost = self.pools.iter().map(places).min().unwrap_or(inside_max.max(1));
        let mut inside = self.innermost(innermost);
        for pool in self.pools.iter().rev() {
            inside = match pool.own_us < LEAST_US {
                true => inside.upto(places(pool)),
                false => inside.then(&Flow::delay(pool.own_us / 1e6, places(pool)), places(pool)),
            };
        }
        match self.link_us {
            Some(link_us) => inside.then(&Flow::queue(1.0, link_us / 1e6, inside_max), inside_max),
            None => inside,
        }
    }

    fn innermost(&self, inside_max: usize) -> Flow {
        let rest = || Flow::delay(self.rest_us.max(LEAST_US) / 1e6, inside_max);
        let Some((servers, demand_us)) = self.processors else { return rest() };
        let processors = Flow::queue(servers, demand_us / 1e6, inside_max);
        if self.rest_us < LEAST_US { processors } else { processors.then(&rest(), inside_max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(network: &Network, users: f64, think_us: f64) -> (f64, f64) {
        let solved = network.solve(Load::Closed { users, think_us });
        (solved.rate.round(), solved.response_us.unwrap().round())
    }

    #[test]
    fn the_smallest_pool_decides_and_the_others_wait_for_it() {
        let pool = |places, own_us| Pool { places, own_us };
        let of = |pools: Vec<Pool>| Network { pools, rest_us: 100_000.0, ..Network::default() };
        // 20 places of 0.1 s.
        assert_eq!(closed(&of(vec![pool(20.0, 0.0)]), 100.0, 0.0), (200.0, 500_000.0));
        // Workers enough, children for 50/s.
        assert_eq!(closed(&of(vec![pool(80.0, 10_000.0), pool(5.0, 0.0)]), 100.0, 0.0).0, 50.0);
        // Whoever waits for a child holds a worker: more workers than users are no limit.
        assert_eq!(
            closed(&of(vec![pool(200.0, 0.0), pool(200.0, 0.0)]), 100.0, 900_000.0),
            (100.0, 100_000.0)
        );
    }

    #[test]
    fn processors_and_the_link_bound_what_pools_let_in() {
        let base = Network { rest_us: 1000.0, processors: Some((2.0, 4000.0)), ..Network::default() };
        assert_eq!(closed(&base, 200.0, 0.0).0, 500.0);
        assert_eq!(closed(&Network { link_us: Some(5000.0), ..base.clone() }, 200.0, 0.0).0, 200.0);
        let open = |rate| base.solve(Load::Open { rate, connections: 50.0 });
        assert_eq!((open(600.0).rate.round(), open(600.0).response_us), (500.0, None));
        // Next to nothing waits at a tenth of what it can.
        let quiet = open(50.0).response_us.unwrap();
        assert!((5000.0..5100.0).contains(&quiet), "{quiet}");
    }
}
