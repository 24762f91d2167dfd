//! Whether what one round says of a limit can be held against another round: only if the same is asked of it there. Told by
//! what was measured in both.

use super::CeilingRound;
use webdyno_analysis::facts::FactId;
use webdyno_analysis::limits::ceiling::ResourceCeiling;

/// What differs by more than this share makes another load.
const OTHER_FRACTION: f64 = 0.15;

/// Why the two cannot be compared; `None` where they can.
pub(super) fn incomparable_reason(
    other: &CeilingRound,
    bound: &CeilingRound,
    ceilings: Option<(&ResourceCeiling, &ResourceCeiling)>,
) -> Option<String> {
    let names = ceilings.map(|(there, here)| (&there.ceiling.limit, &here.ceiling.limit));
    let another = names.filter(|(there, here)| there != here);
    let another = another.map(|(there, here)| format!("the limit is another one: {there}, then {here}"));
    another
        .or_else(|| bytes(other, bound))
        .or_else(|| handshakes(other, bound))
        .or_else(|| rows(other, bound))
}

/// From this share of failures on, the mean is of two kinds of answers, and says nothing of the good ones.
const FAILED_FRACTION_MAX: f64 = 0.02;

/// Fewer rows are those of small tables, which are read whole at no cost.
const ROWS_MIN: f64 = 1000.0;

/// The bytes of an answer.
fn bytes(other: &CeilingRound, bound: &CeilingRound) -> Option<String> {
    let of = |observed: &CeilingRound| {
        let bytes = observed.facts.value(FactId::received_bytes_per_request);
        bytes.filter(|bytes| are_responses_good(observed) && *bytes > 0.0)
    };
    let (there, here) = of(other).zip(of(bound))?;
    let differ = (there / here - 1.0).abs() > OTHER_FRACTION;
    differ.then(|| format!("an answer has {there:.0} bytes, then {here:.0}"))
}

/// The share of connections that resume a session of TLS: the others cost a signature.
fn handshakes(other: &CeilingRound, bound: &CeilingRound) -> Option<String> {
    let of = |observed: &CeilingRound| observed.facts.value(FactId::resumed_fraction);
    let (there, here) = of(other).zip(of(bound))?;
    let percent = |share: f64| share * 100.0;
    let differ = (there - here).abs() > OTHER_FRACTION;
    differ.then(|| {
        format!("{:.0}% of the connections resume a session, then {:.0}%", percent(there), percent(here))
    })
}

/// The rows that the database reads in scans for an answer: with an index it is another query.
fn rows(other: &CeilingRound, bound: &CeilingRound) -> Option<String> {
    let of = |observed: &CeilingRound| {
        let rows = observed.facts.value(FactId::ahead_database_scanned_rows_per_s)? / observed.rate;
        Some(rows).filter(|_| are_responses_good(observed))
    };
    let (there, here) = of(other).zip(of(bound))?;
    let (least, most) = (there.min(here), there.max(here));
    let differ = most >= ROWS_MIN && least < (1.0 - OTHER_FRACTION) * most;
    differ.then(|| format!("the database reads {there:.0} rows for an answer, then {here:.0}"))
}

/// Whether an answer is a good one, so that a mean is theirs.
fn are_responses_good(observed: &CeilingRound) -> bool {
    observed.facts.value(FactId::failed_fraction).is_none_or(|failed| failed <= FAILED_FRACTION_MAX)
}
