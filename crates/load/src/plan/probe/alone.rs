//! Requests that are sent alone before the load: what they take, and whether their answers repeat.
//!
//! Whether answers repeat is asked by anonymous GETs of the workload, each sent twice, more than a second apart. What that asks of
//! the server is bounded: the 64 requests that are sent most, one after the other, as long as two seconds a turn allow, and nothing
//! twice of which the first answer says enough: one that is private, or that is a file.

use super::exchange::Exchange;
use super::{Probe, follow_chain};
use crate::http::response_head::{for_each_value, header_text};
use crate::plan::{Prepared, Template};
use sha2::Digest;
use std::thread;
use std::time::{Duration, Instant};
use webdyno_model::repeated_answer::{APART_US, RepeatedAnswer};
use webdyno_model::workload::{Workload, redact_query};

/// How many different requests are sent alone, how often each, and the time in which the last of them begins.
const ALONE_REQUESTS_MAX: usize = 3;
const ALONE_TURNS: usize = 4;
const ALONE_TIME: Duration = Duration::from_millis(1500);

/// Sends a few safe requests of the workload one after the other, before the load: what they take is what a request takes
/// that waits for no other one. Each one's first time counts only if there is no other: it may have warmed what was cold.
/// Connecting belongs to it where each request of the load has a connection of its own.
pub fn measure_alone(prepared: &mut Prepared) {
    let begun = Instant::now();
    let timeout = Duration::from_nanos(prepared.plan.timeout_ns);
    let plan = &prepared.plan;
    let is_safe = |number: &usize| match plan.entry(*number) {
        Some(entry) => entry.is_safe(),
        None => !plan.is_dynamic(*number) && plan.templates[*number].is_safe(),
    };
    let chosen: Vec<usize> = (0..plan.distinct()).filter(is_safe).take(ALONE_REQUESTS_MAX).collect();
    let keepalive = plan.keepalive;
    let mut slowest: Option<(usize, u64)> = None;
    for turn in 0..ALONE_TURNS {
        for number in &chosen {
            if begun.elapsed() > ALONE_TIME {
                break;
            }
            let Ok((seen, _)) = follow_chain(prepared, *number, None, Instant::now(), timeout) else {
                return;
            };
            if seen.timed_out || seen.status.is_none_or(|status| status >= 500) {
                return;
            }
            // Later turns count instead of the first one.
            let is_first_of_later = turn == 1 && slowest.is_some_and(|(known, _)| known == 0);
            let known_us = slowest.filter(|_| !is_first_of_later).map_or(0, |(_, us)| us);
            slowest = Some((turn, known_us.max(time_of_request_us(&seen, keepalive))));
        }
    }
    prepared.alone_us = slowest.map(|(_, us)| us);
}

/// What a request of the load takes of what this one took.
fn time_of_request_us(seen: &Probe, keepalive: bool) -> u64 {
    seen.time_us - if keepalive { seen.setup_us.min(seen.time_us) } else { 0 }
}

/// Most requests that are looked at.
const REQUESTS_MAX: usize = 64;
/// The time in which the last request of a turn begins, and the longest that one takes.
const TURN: Duration = Duration::from_secs(2);
/// Larger bodies are not fetched again.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// An answer as far as the next one is compared with it.
struct FirstAnswer {
    at: Instant,
    time_us: u64,
    digest: Vec<u8>,
}

/// Sends the requests of the workload that are sent most twice each, those that a cache could answer. Takes APART_US, and as long
/// as the answers take; nothing but its first turn where no second one is needed. Gives nothing where a request fails: then the
/// load will say so.
pub fn repeated_answers(prepared: &Prepared, workload: &Workload) -> Vec<RepeatedAnswer> {
    let begun = Instant::now();
    let mut seen: Vec<(usize, RepeatedAnswer, Option<FirstAnswer>)> = vec![];
    for (number, share) in most_sent(prepared, workload) {
        let mut answer = described(prepared, number, share);
        let mut first = None;
        if answer.not_sent.is_none() && begun.elapsed() >= TURN {
            answer.not_sent = Some("there was no time for it".into());
        }
        if answer.not_sent.is_none() {
            first = send(prepared, number, &mut answer);
            if first.is_none() {
                return vec![];
            }
        }
        seen.push((number, answer, first));
    }
    let needs_second =
        |answer: &RepeatedAnswer| answer.not_sent.is_none() && answer.obstacle().is_none() && !answer.is_file;
    let begun = Instant::now();
    for (number, answer, first) in &mut seen {
        let Some(first) = first.as_ref().filter(|_| needs_second(answer)) else { continue };
        let apart = Duration::from_micros(APART_US);
        thread::sleep(apart.saturating_sub(first.at.elapsed()));
        if begun.elapsed() >= TURN + apart {
            answer.not_sent = Some("there was no time for it twice".into());
            continue;
        }
        let Some(second) = send(prepared, *number, answer) else { return vec![] };
        answer.is_same = Some(first.digest == second.digest);
        answer.alone_us = Some(first.time_us.min(second.time_us));
    }
    seen.into_iter().map(|(_, answer, _)| answer).collect()
}

/// The requests that are sent most, and the share of each; of a list or of requests without an order by their weights.
fn most_sent(prepared: &Prepared, workload: &Workload) -> Vec<(usize, Option<f64>)> {
    let count = prepared.plan.distinct();
    let list = workload.list.as_ref().and_then(|list| list.entries.as_ref());
    let weight = |number: usize| match list {
        Some(entries) => entries.weights.get(number).map_or(1.0, |weight| f64::from(*weight)),
        None => workload.requests.get(number).map_or(0.0, |request| request.weight),
    };
    let total: f64 = (0..count).map(weight).sum();
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
    numbers.truncate(REQUESTS_MAX);
    let share = |number: usize| (workload.visits.is_none() && total > 0.0).then(|| weight(number) / total);
    numbers.into_iter().map(|number| (number, share(number))).collect()
}

/// What is known of a request before it is sent.
fn described(prepared: &Prepared, number: usize, share_fraction: Option<f64>) -> RepeatedAnswer {
    let plan = &prepared.plan;
    let entry = plan.entry(number);
    let template = entry.as_ref().unwrap_or_else(|| &plan.templates[number.min(plan.templates.len() - 1)]);
    let url = redact_query(template.url().as_str());
    let not_sent = match () {
        () if plan.is_dynamic(number) && entry.is_none() => Some("its URL or headers hold variables"),
        () if !template.is_cacheable() => Some("it is no GET"),
        () if !template.is_anonymous() => Some("it is sent with a cookie or Authorization"),
        () if url != template.url().as_str() => Some("its query holds what looks like a secret"),
        () => None,
    };
    let name = plan.names.get(template.name).map_or_else(String::new, |name| redact_query(name));
    RepeatedAnswer { name, url, share_fraction, not_sent: not_sent.map(str::to_owned), ..Default::default() }
}

/// Sends it once. `None` where it failed.
fn send(prepared: &Prepared, number: usize, answer: &mut RepeatedAnswer) -> Option<FirstAnswer> {
    let plan = &prepared.plan;
    let entry: Option<Template> = plan.entry(number);
    let template = entry.as_ref().unwrap_or_else(|| &plan.templates[number]);
    let at = Instant::now();
    let timeout = TURN.min(Duration::from_nanos(plan.timeout_ns));
    let mut exchange = Exchange::new(at, timeout, false);
    exchange.run(template, &plan.origins[template.origin], plan).ok()?;
    if exchange.timed_out {
        answer.not_sent = Some("its answer took more than 2 s".into());
    }
    let head = std::mem::take(&mut exchange.first);
    let digest = exchange.capture.digest.clone().finalize().to_vec();
    let seen = exchange.result();
    let time_us = time_of_request_us(&seen, plan.keepalive);
    answer.status = seen.status;
    (answer.body_bytes, answer.alone_us) = (Some(seen.body_bytes), Some(time_us));
    answer.sets_cookie |= header_text(&head, "set-cookie").is_some();
    (answer.cache_control, answer.vary) = (all_values(&head, "cache-control"), all_values(&head, "vary"));
    answer.is_expired = is_expired(&head);
    answer.is_file = header_text(&head, "last-modified").is_some()
        && header_text(&head, "accept-ranges").is_some_and(|unit| unit.eq_ignore_ascii_case("bytes"));
    if seen.body_bytes > BODY_BYTES_MAX {
        answer.not_sent = Some("its answer is larger than 1 MiB".into());
    }
    Some(FirstAnswer { at, time_us, digest })
}

/// The values of all lines of a header, as one; `None` when there is none.
fn all_values(head: &[u8], name: &str) -> Option<String> {
    let mut values = vec![];
    for_each_value(head, name, |value| values.push(String::from_utf8_lossy(value).into_owned()));
    (!values.is_empty()).then(|| values.join(", "))
}

/// Whether `Expires` says alone that the answer is old: what is no date is in the past (RFC 9111, 5.3).
fn is_expired(head: &[u8]) -> bool {
    let has_age =
        all_values(head, "cache-control").is_some_and(|text| text.to_ascii_lowercase().contains("max-age="));
    let expires = header_text(head, "expires").filter(|_| !has_age);
    // `Thu, 19 Nov 1981 08:52:00 GMT`: years of before the Web, or the moment of the answer.
    let year = |text: &str| text.split_whitespace().nth(3).and_then(|year| year.parse::<u32>().ok());
    expires.is_some_and(|text| {
        year(&text).is_none_or(|year| year < 2000) || header_text(head, "date").as_ref() == Some(&text)
    })
}
