//! On which connections a request is being received: it was at the last reading already, and more of it has come lately. Its client sends
//! the body slowly.
//!
//! Facts: `struct tcp_info` (include/uapi/linux/tcp.h): `tcpi_bytes_received`, `tcpi_bytes_acked`. Between two readings that both find a
//! request without an answer, one that computes lets neither grow, and one that is answered, the second. RFC 6298: on a line that loses
//! packets a sender pauses for a second, then two, then four.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Of those that share a bad line most pause at any time.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// Names a connection as long as the machine runs.
type Cookie = [u8; 8];

/// A connection on which a request came that is not answered: the bytes that came in, and those that went out and were confirmed.
pub(super) type Unanswered = (Cookie, (u64, u64));

/// A connection at the reading before.
#[derive(Debug)]
struct Upload {
    received: u64,
    confirmed: u64,
    /// When more of its request was seen to have come.
    grew_at: Option<Instant>,
}

/// What is known of the connections of the reading before; `None` before the first one.
#[derive(Debug, Default)]
pub(super) struct Uploads(Option<HashMap<Cookie, Upload>>);

impl Uploads {
    /// How many of these bring a request slowly; `None` at the first reading.
    pub(super) fn count(
        &mut self,
        connections: impl Iterator<Item = Unanswered>,
        now: Instant,
    ) -> Option<usize> {
        let before = self.0.take();
        let upload = |(cookie, (received, confirmed)): Unanswered| {
            let then = before.as_ref().and_then(|before| before.get(&cookie));
            let then = then.filter(|then| then.confirmed == confirmed);
            let grew_at = match then {
                Some(then) if received > then.received => Some(now),
                Some(then) => then.grew_at,
                None => None,
            };
            (cookie, Upload { received, confirmed, grew_at })
        };
        let all: HashMap<_, _> = connections.map(upload).collect();
        let is_fresh = |at: Instant| now.saturating_duration_since(at) <= PAUSE_MAX;
        let count = all.values().filter(|upload| upload.grew_at.is_some_and(is_fresh)).count();
        let is_known = before.is_some();
        self.0 = Some(all);
        is_known.then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_between_two_readings_without_an_answer_is_an_upload() {
        let mut uploads = Uploads::default();
        let begun = Instant::now();
        let mut count = |at_s: u64, all: &[(u8, (u64, u64))]| {
            let all = all.iter().map(|(id, bytes)| ([*id; 8], *bytes));
            uploads.count(all, begun + Duration::from_secs(at_s))
        };
        // 1: an upload; 2: a long computation; 3: quick requests; 4: idle at first.
        assert_eq!(count(0, &[(1, (10, 0)), (2, (500, 0)), (3, (10, 90))]), None);
        assert_eq!(count(1, &[(1, (20, 0)), (2, (500, 0)), (3, (20, 180)), (4, (90, 300))]), Some(1));
        assert_eq!(count(2, &[(1, (30, 0)), (4, (95, 300))]), Some(2));
        // Both pause: the one for as long as a lost packet takes, the other for longer; then it is answered.
        assert_eq!(count(5, &[(1, (30, 0)), (4, (95, 300))]), Some(2));
        assert_eq!(count(6, &[(1, (40, 0)), (4, (95, 300))]), Some(2));
        assert_eq!(count(8, &[(1, (40, 0)), (4, (95, 300))]), Some(1));
        assert_eq!(count(9, &[(1, (50, 90))]), Some(0));
        assert_eq!(count(10, &[]), Some(0));
        assert_eq!(count(11, &[(1, (40, 0))]), Some(0), "it is another one");
    }
}
