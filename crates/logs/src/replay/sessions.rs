//! The sessions of a stretch: what each client requested, in its order and at its times, so that users of our own can do the same.
//!
//! A client is an address with a `User-Agent`, as where sessions are counted; a pause of half an hour ends its session. Neither is in
//! what comes out: sessions are numbered by their beginnings.

use crate::entry::Entry;
use crate::sessions::PAUSE_S;
use std::collections::HashMap;

/// A request of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Seconds since the stretch began.
    pub second: u32,
    /// Which one of [`Sessions::targets`].
    pub target: u32,
}

/// A target, and how often it is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Path and query as they are sent.
    pub url: String,
    /// Whether without the body.
    pub is_head: bool,
    /// Requests of it.
    pub count: u64,
}

/// The requests of a stretch by their clients.
#[derive(Debug, Default)]
pub struct Sessions {
    targets: Vec<Target>,
    target_by: HashMap<(String, bool), u32>,
    clients: Vec<Vec<Step>>,
    client_by: HashMap<(Vec<u8>, Vec<u8>), usize>,
    requests: usize,
}

impl Sessions {
    /// Adds a request of the stretch. False of a log without clients: there is no telling who made it.
    pub fn add(&mut self, second: usize, entry: &Entry<'_>, url: String) -> bool {
        if entry.client.is_empty() {
            return false;
        }
        let is_head = entry.method == b"HEAD";
        let targets = &mut self.targets;
        let target = *self.target_by.entry((url, is_head)).or_insert_with_key(|(url, _)| {
            targets.push(Target { url: url.clone(), is_head, count: 0 });
            targets.len() as u32 - 1
        });
        self.targets[target as usize].count += 1;
        let clients = &mut self.clients;
        let client =
            self.client_by.entry((entry.client.to_vec(), entry.agent.to_vec())).or_insert_with(|| {
                clients.push(vec![]);
                clients.len() - 1
            });
        self.clients[*client].push(Step { second: second as u32, target });
        self.requests += 1;
        true
    }

    /// Requests that were added.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// What is requested, in the order in which it was first.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The sessions in the order in which they begin. Logs may have times out of order: within a client they count.
    pub fn sessions(&self) -> Vec<Vec<Step>> {
        let mut all: Vec<Vec<Step>> = vec![];
        for client in &self.clients {
            let mut steps = client.clone();
            steps.sort_by_key(|step| step.second);
            let paused = |a: &Step, b: &Step| i64::from(b.second - a.second) <= PAUSE_S;
            all.extend(steps.chunk_by(paused).map(<[Step]>::to_vec));
        }
        all.sort_by_key(|steps| steps[0].second);
        all
    }
}

/// The most sessions that are between their first and their last request at once: at the ends of seconds.
pub fn active_max(sessions: &[Vec<Step>]) -> u64 {
    let mut changes: Vec<(u32, i64)> = sessions
        .iter()
        .filter_map(|steps| Some((steps.first()?.second, steps.last()?.second)))
        .filter(|(first, last)| first < last)
        .flat_map(|(first, last)| [(first, 1), (last, -1)])
        .collect();
    changes.sort_unstable();
    let (mut active, mut most) = (0, 0);
    for (_, change) in changes {
        active += change;
        most = most.max(active);
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a log holds: every request is in one session, those of a client in the order of their times, and those of
        /// one second in that of the log; sessions begin one after the other, and no pause in them is longer than half an hour.
        #[test]
        fn each_request_is_made_once_in_the_order_of_its_client(
            log in proptest::collection::vec((0..6u8, 0..2u8, 0..9_000usize, 0..5u8, any::<bool>()), 1..200),
        ) {
            let mut sessions = Sessions::default();
            let mut by_client: HashMap<_, Vec<_>> = HashMap::new();
            for (client, agent, second, path, is_head) in log {
                let (address, url) = ([b'a' + client], format!("/{path}"));
                let method: &[u8] = if is_head { b"HEAD" } else { b"GET" };
                let entry = Entry { client: &address, agent: &[agent], method, ..Entry::default() };
                prop_assert!(sessions.add(second, &entry, url.clone()));
                by_client.entry((client, agent)).or_default().push((second as u32, url, is_head));
            }
            let all = sessions.sessions();
            prop_assert!(all.is_sorted_by_key(|steps| steps[0].second));
            let mut made: Vec<Vec<(u32, String, bool)>> = vec![];
            for steps in &all {
                prop_assert!(steps.windows(2).all(|two| i64::from(two[1].second - two[0].second) <= PAUSE_S));
                let target = |step: &Step| &sessions.targets()[step.target as usize];
                made.push(steps.iter().map(|step| (step.second, target(step).url.clone(), target(step).is_head)).collect());
            }
            // A client's sessions are far enough apart to be told by their times; each begins with what was not made yet.
            for mut requests in by_client.into_values() {
                requests.sort_by_key(|request| request.0);
                let mut left = &requests[..];
                while !left.is_empty() {
                    let place = made.iter().position(|one| left.starts_with(one) && (one.len() == left.len()
                        || i64::from(left[one.len()].0 - one[one.len() - 1].0) > PAUSE_S));
                    prop_assert!(place.is_some(), "{left:?} {made:?}");
                    left = &left[made.swap_remove(place.unwrap_or_default()).len()..];
                }
            }
            prop_assert!(made.is_empty(), "{made:?}");
        }
    }

    #[test]
    fn sessions_are_active_from_their_first_to_their_last_request() {
        let session =
            |seconds: &[u32]| seconds.iter().map(|second| Step { second: *second, target: 0 }).collect();
        let all: Vec<Vec<Step>> = [&[0, 9][..], &[3], &[2, 4, 5], &[5, 8]].map(session).to_vec();
        assert_eq!(active_max(&all), 2);
        assert_eq!(active_max(&[]), 0);
        assert!(!Sessions::default().add(0, &Entry::default(), "/".into()));
    }
}
