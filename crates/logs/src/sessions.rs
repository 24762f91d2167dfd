//! Sessions and think time: requests of one client without a pause of half an hour. Clients are sampled by their hash, so that
//! memory is bounded and each client that is followed is followed wholly.
//!
//! The pause of 30 minutes is that of web analytics. Times of logs are whole seconds: so are these.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use webdyno_model::histogram::TimeHistogram;

/// A longer pause ends a session.
pub const PAUSE_S: i64 = 1800;
/// Most clients that are followed at once.
const CLIENTS_MAX: usize = 1 << 14;

/// So many are fetched at once: what they need fits the cache of a core.
pub(crate) const PART: usize = 512;

/// Keys that are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AsHash(u64);

impl Hasher for AsHash {
    /// Hashes below a threshold begin alike, and tables tell keys apart by the beginning.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsHash>>;

/// A request, as sessions count it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionRequest {
    /// Hash of the client.
    pub client: u64,
    /// Seconds since 1970.
    pub at_s: i64,
    /// Whether it is one for a page, which follows on think time; others are parts of pages.
    pub is_page: bool,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    begin_s: i64,
    last_s: i64,
    last_page_s: i64,
    requests: u32,
    pages: u32,
}

/// Sessions of the sampled clients. Requests come in the order of the log.
#[derive(Debug, Clone)]
pub struct Sessions {
    open: ByHash<Session>,
    /// Clients with a hash below are followed.
    threshold: u64,
    newest_s: i64,
    /// Sessions that ended, those of clients who were not followed reckoned in.
    sessions: f64,
    requests: f64,
    pages: f64,
    duration_us: TimeHistogram,
    think_us: TimeHistogram,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            open: ByHash::default(),
            threshold: u64::MAX,
            newest_s: i64::MIN,
            sessions: 0.0,
            requests: 0.0,
            pages: 0.0,
            duration_us: TimeHistogram::new(),
            think_us: TimeHistogram::new(),
        }
    }
}

/// What sessions came to.
#[derive(Debug, Clone)]
pub struct SessionFigures {
    /// How many, of all clients.
    pub sessions: f64,
    /// Share of the clients that were followed, 0 to 1.
    pub sampled: f64,
    /// Mean requests of a session.
    pub requests_mean: f64,
    /// Mean pages of a session.
    pub pages_mean: f64,
    /// From the first to the last request, microseconds.
    pub duration_us: TimeHistogram,
    /// From a page to the next one, microseconds.
    pub think_us: TimeHistogram,
}

impl Sessions {
    /// Requests of clients with a hash from here on are not needed.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Counts requests, in the order of the log. Clients are fetched first, so that none waits for the one before.
    pub fn add_all(&mut self, requests: &[SessionRequest]) {
        for part in requests.chunks(PART) {
            let known = part.iter().filter_map(|request| self.open.get(&request.client));
            std::hint::black_box(known.fold(0, |sum, session| sum ^ session.last_s));
            part.iter().for_each(|request| self.add(request));
        }
    }

    /// Counts a request. One that is earlier than its client's last counts as of the same time.
    pub fn add(&mut self, request: &SessionRequest) {
        if request.client >= self.threshold {
            return;
        }
        let at_s = request.at_s;
        self.newest_s = self.newest_s.max(at_s);
        let Some(session) = self.open.get_mut(&request.client) else { return self.begin(request) };
        if at_s - session.last_s > PAUSE_S {
            let ended = *session;
            self.end(&ended);
            return self.begin(request);
        }
        session.requests += 1;
        session.last_s = session.last_s.max(at_s);
        if request.is_page {
            if session.pages > 0 && at_s > session.last_page_s {
                self.think_us.record((at_s - session.last_page_s) as u64 * 1_000_000);
            }
            session.pages += 1;
            session.last_page_s = session.last_page_s.max(at_s);
        }
    }

    fn begin(&mut self, request: &SessionRequest) {
        let at_s = request.at_s;
        let session = Session {
            begin_s: at_s,
            last_s: at_s,
            last_page_s: at_s,
            requests: 1,
            pages: u32::from(request.is_page),
        };
        self.open.insert(request.client, session);
        if self.open.len() >= CLIENTS_MAX {
            self.make_room();
        }
    }

    /// Ends what has paused; if that is not enough, only half of the clients are followed further.
    fn make_room(&mut self) {
        let before_s = self.newest_s - PAUSE_S;
        let ended: Vec<Session> = self.open.values().filter(|one| one.last_s < before_s).copied().collect();
        ended.iter().for_each(|session| self.end(session));
        self.open.retain(|_, one| one.last_s >= before_s);
        if self.open.len() > CLIENTS_MAX / 2 {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.open.retain(|client, _| *client < threshold);
        }
    }

    fn end(&mut self, session: &Session) {
        let stands_for = 1.0 / self.sampled();
        self.sessions += stands_for;
        self.requests += stands_for * f64::from(session.requests);
        self.pages += stands_for * f64::from(session.pages);
        self.duration_us.record((session.last_s - session.begin_s) as u64 * 1_000_000);
    }

    fn sampled(&self) -> f64 {
        if self.threshold == u64::MAX { 1.0 } else { self.threshold as f64 / u64::MAX as f64 }
    }

    /// What all came to, those that are open included. `None` without any.
    pub fn figures(&self) -> Option<SessionFigures> {
        let mut all = self.clone();
        let open: Vec<Session> = std::mem::take(&mut all.open).into_values().collect();
        open.iter().for_each(|session| all.end(session));
        (all.sessions > 0.0).then(|| SessionFigures {
            sessions: all.sessions,
            sampled: all.sampled(),
            requests_mean: all.requests / all.sessions,
            pages_mean: all.pages / all.sessions,
            duration_us: all.duration_us,
            think_us: all.think_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::quality::FixedState;
    use std::hash::BuildHasher;

    #[test]
    fn a_pause_ends_a_session_and_pages_follow_on_think_time() {
        let mut sessions = Sessions::default();
        for (at_s, is_page) in
            [(0, true), (1, false), (30, true), (29, false), (30, true), (1830, false), (4000, true)]
        {
            sessions.add(&SessionRequest { client: 7, at_s, is_page });
        }
        let figures = sessions.figures().unwrap();
        assert_eq!((figures.sessions, figures.requests_mean, figures.pages_mean), (2.0, 3.5, 2.0));
        assert_eq!(figures.think_us.dist().max, Some(30_000_000));
        assert_eq!((figures.think_us.count(), figures.duration_us.dist().max), (1, Some(1_830_000_000)));
    }

    /// 60,000 clients with a session of three pages each, all at once: a part is followed, and stands for all.
    #[test]
    fn followed_clients_stand_for_all() {
        let mut sessions = Sessions::default();
        for round in 0..3 {
            for client in 0..60_000u64 {
                let client = FixedState::with_seed(1).hash_one(client);
                sessions.add(&SessionRequest { client, at_s: round * 20, is_page: true });
            }
        }
        let figures = sessions.figures().unwrap();
        assert!((figures.sessions / 60_000.0 - 1.0).abs() < 0.03, "{}", figures.sessions);
        assert!((figures.pages_mean - 3.0).abs() < 0.05 && figures.sampled < 0.3, "{figures:?}");
        assert_eq!(figures.think_us.dist().p50, Some(20_000_000));
    }
}
