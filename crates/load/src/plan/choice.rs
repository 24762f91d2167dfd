//! Which request is sent next, and the bytes of a list's request on the wire.
//!
//! The choice is a function of the seed and the number of the request. In open arrival, and in closed arrival with a
//! number of requests, each number is taken once, whichever thread takes it: the same requests are sent on any number
//! of threads. In closed arrival without one, thread k of T takes the numbers k, k + T, k + 2T, ... at its own pace; of
//! planned ones in turn k, k + 1, k + 2, ...

use crate::plan::request_message::RequestMessage;
use crate::plan::request_template::{JOINED_BYTES_MAX, Template};
use crate::plan::script::weighted::Weighted;
use crate::random::SplitMix;
use std::sync::Arc;
use webdyno_model::workload::Workload;
use webdyno_model::workload::visit::{ListEntries, ListEntry, RequestList};
use webdyno_model::{Result, UserError};

/// The stream of random numbers that requests are drawn with.
const STREAM: u64 = 0x7265_7175_6573_7473;

/// How the next request is chosen.
#[derive(Debug)]
pub(crate) enum Choice {
    /// The planned ones, so many, one after the other.
    InTurn(u64),
    /// The planned ones by their weights.
    Weighted(Weighted),
    /// The entries of a list.
    Listed(ListRequests),
}

impl Choice {
    /// From the workload. Its requests are already prepared as `templates`.
    pub(super) fn from_workload(workload: &Workload, templates: &[Template]) -> Result<Self> {
        if let Some(list) = &workload.list {
            return ListRequests::from_list(list, templates).map(Self::Listed);
        }
        check_weights(workload)?;
        let first = workload.requests.first().map_or(1.0, |request| request.weight);
        #[allow(clippy::float_cmp)] // those that are written alike
        let alike = workload.requests.iter().all(|request| request.weight == first);
        let weights: Vec<f64> = workload.requests.iter().map(|request| request.weight).collect();
        Ok(if alike { Self::InTurn(templates.len() as u64) } else { Self::Weighted(Weighted::new(&weights)) })
    }

    /// The target and the item of a request, by its number.
    #[inline]
    pub(crate) fn at(&self, seed: u64, number: u64) -> (usize, u32) {
        let draw = |weights: &Weighted| weights.draw(&mut SplitMix::stream(seed, STREAM, number));
        match self {
            Self::InTurn(count) => ((number % count) as usize, 0),
            Self::Weighted(weights) => (draw(weights), 0),
            Self::Listed(list) => {
                let count = list.entries.entries.len() as u64;
                let item = match &list.order {
                    Order::InTurn => number % count,
                    Order::Random => {
                        let random = SplitMix::stream(seed, STREAM, number).next();
                        ((u128::from(random) * u128::from(count)) >> 64) as u64
                    }
                    Order::Weighted(weights) => draw(weights) as u64,
                };
                (list.entries.entries[item as usize].kind as usize, item as u32)
            }
        }
    }

    #[inline]
    pub(crate) fn list(&self) -> Option<&ListRequests> {
        match self {
            Self::Listed(list) => Some(list),
            _ => None,
        }
    }
}

/// The number for [`Choice::InTurn`] of a start in open arrival, of which thread k of T has k, k + T, k + 2T, ...: one further after
/// each `count` * T starts, as else a thread could have some of the requests alone. Of any number of starts from the first
/// one on, each request has as many as another, or one more.
pub(crate) fn number_in_turn(start: u64, count: u64, threads: u64) -> u64 {
    start + start / (count * threads) * (threads - 1)
}

fn check_weights(workload: &Workload) -> Result<()> {
    let is_invalid = |weight: f64| !(weight.is_finite() && weight > 0.0);
    match workload.requests.iter().find(|request| is_invalid(request.weight)) {
        None => Ok(()),
        Some(request) => {
            Err(UserError::usage(format!("the weight of {} is {}", request.name, request.weight))
                .hint("give a number above 0, or leave the request out"))
        }
    }
}

#[derive(Debug)]
pub(crate) struct ListRequests {
    entries: Arc<ListEntries>,
    order: Order,
    kinds: Vec<RequestFrame>,
}

#[derive(Debug)]
enum Order {
    InTurn,
    Random,
    Weighted(Weighted),
}

/// The bytes around the targets of a kind.
#[derive(Debug)]
struct RequestFrame {
    /// The method and a blank.
    before: Vec<u8>,
    /// From behind the target to the end of the head, but for the length of the body.
    after: Vec<u8>,
    /// Whether `Content-Length: 0` is sent for an empty body.
    sends_content_length: bool,
}

impl ListRequests {
    fn from_list(list: &RequestList, templates: &[Template]) -> Result<Self> {
        let entries =
            list.entries.clone().filter(|entries| !entries.entries.is_empty()).ok_or_else(|| {
                UserError::usage(format!("the requests of {} are not there", list.file))
                    .hint("a recording does not hold them: give the list with --urls FILE")
            })?;
        if entries.entries.iter().any(|entry| entry.kind as usize >= templates.len()) {
            return Err(UserError::usage(format!("the list {} has requests of no kind", list.file)));
        }
        let order = match (entries.weights.is_empty(), list.random) {
            (false, _) => Order::Weighted(Weighted::from_weights(
                entries.weights.iter().map(|weight| f64::from(*weight)),
            )),
            (true, true) => Order::Random,
            (true, false) => Order::InTurn,
        };
        let frame = |template: &Template| {
            let (before, after, sends_content_length) = template.frame_around_target()?;
            Ok(RequestFrame { before, after, sends_content_length })
        };
        let kinds = templates.iter().map(frame).collect::<Result<_>>()?;
        Ok(Self { entries, order, kinds })
    }

    /// How many requests it has.
    pub(crate) fn count(&self) -> usize {
        self.entries.entries.len()
    }

    /// The names of its requests.
    pub(super) fn names(&self) -> &[String] {
        &self.entries.names
    }

    /// Under which name an entry is counted.
    #[inline]
    pub(crate) fn name(&self, item: u32) -> usize {
        self.entries.entries.get(item as usize).map_or(0, |entry| usize::from(entry.name))
    }

    /// Puts an entry together for sending. The memory of the message is used again.
    #[inline]
    pub(crate) fn write(&self, item: u32, message: &mut RequestMessage) {
        let Some(entry) = self.entries.entries.get(item as usize) else {
            return message.clear();
        };
        let frame = &self.kinds[entry.kind as usize];
        let (body, shared) = self.entries.body(entry);
        let head = message.begin();
        head.extend_from_slice(&frame.before);
        head.extend_from_slice(self.entries.target(entry));
        head.extend_from_slice(&frame.after);
        if frame.sends_content_length || !body.is_empty() {
            head.extend_from_slice(b"Content-Length: ");
            push_decimal(head, body.len());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        match shared.filter(|body| body.length_bytes() > JOINED_BYTES_MAX) {
            None => head.extend_from_slice(body),
            Some(body) => message.body = body.clone(),
        }
    }

    /// An entry as a request of its own: what it was redirected to depends on all of it.
    pub(crate) fn template(&self, item: usize, kinds: &[Template]) -> Option<Template> {
        let entry: &ListEntry = self.entries.entries.get(item)?;
        let (body, shared) = self.entries.body(entry);
        let body = shared.cloned().unwrap_or_else(|| body.to_vec().into());
        kinds.get(entry.kind as usize)?.for_list_entry(self.entries.target(entry), body)
    }
}

fn push_decimal(into: &mut Vec<u8>, number: usize) {
    let begin = into.len();
    let mut left = number;
    loop {
        into.push(b'0' + (left % 10) as u8);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    into[begin..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_dealt_evenly_and_no_thread_keeps_a_request() {
        for (count, threads) in [(1, 1), (3, 1), (1, 4), (2, 2), (3, 2), (4, 6), (6, 4)] {
            let at = |start| Choice::InTurn(count).at(1, number_in_turn(start, count, threads)).0;
            let mut counts = vec![0u64; count as usize];
            let mut of_threads = vec![counts.clone(); threads as usize];
            for start in 0..count * count * threads {
                counts[at(start)] += 1;
                of_threads[(start % threads) as usize][at(start)] += 1;
                let (least, most) = (counts.iter().min(), counts.iter().max());
                assert!(most.unwrap() - least.unwrap() <= 1, "{count} {threads}: {counts:?}");
            }
            assert!(of_threads.iter().flatten().all(|count| *count > 0), "{count} {threads}: {of_threads:?}");
        }
    }
}
