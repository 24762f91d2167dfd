//! On which connections a request was being received at the last reading already, and more of it has come since: its client sends the body
//! slowly.
//!
//! Facts: `struct tcp_info` (include/uapi/linux/tcp.h): `tcpi_bytes_received`, `tcpi_bytes_acked`. Between two readings that both find a
//! request without an answer, one that computes lets neither grow, and one that is answered, the second.

use std::collections::HashMap;

/// Names a connection as long as the machine runs.
type Cookie = [u8; 8];

/// A connection on which a request came that is not answered: the bytes that came in, and those that went out and were confirmed.
pub(super) type Unanswered = (Cookie, (u64, u64));

/// What is known of the connections of the reading before; `None` before the first one.
#[derive(Debug, Default)]
pub(super) struct Uploads(Option<HashMap<Cookie, (u64, u64)>>);

impl Uploads {
    /// How many of these bring a request slowly; `None` at the first reading.
    pub(super) fn count(&mut self, connections: impl Iterator<Item = Unanswered>) -> Option<usize> {
        let now: HashMap<_, _> = connections.collect();
        let before = self.0.take();
        let grows = |(cookie, (received, confirmed)): (&Cookie, &(u64, u64))| {
            let then = before.as_ref().and_then(|before| before.get(cookie));
            then.is_some_and(|then| *received > then.0 && *confirmed == then.1)
        };
        let count = now.iter().filter(|one| grows(*one)).count();
        self.0 = Some(now);
        before.map(|_| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_between_two_readings_without_an_answer_is_an_upload() {
        let mut uploads = Uploads::default();
        let mut count =
            |all: &[(u8, (u64, u64))]| uploads.count(all.iter().map(|(id, bytes)| ([*id; 8], *bytes)));
        // 1: an upload; 2: a long computation; 3: quick requests; 4: idle at first.
        assert_eq!(count(&[(1, (10, 0)), (2, (500, 0)), (3, (10, 90))]), None);
        assert_eq!(count(&[(1, (20, 0)), (2, (500, 0)), (3, (20, 180)), (4, (90, 300))]), Some(1));
        assert_eq!(count(&[(1, (30, 0)), (4, (95, 300))]), Some(2));
        assert_eq!(count(&[]), Some(0));
        assert_eq!(count(&[(1, (40, 0))]), Some(0), "it is another one");
    }
}
