//! Findings about full processors, held to what samples of these show ([`crate::limits::LimitWork`]).
//!
//! Rules estimate what a fault costs from what such things cost elsewhere. Where the processors were sampled, the share of the work
//! that the fault gives them is known: it bounds what the finding explains, and by that its place; a large one that nothing else
//! can be is proof, and a finding whose work was hardly met is none.

use crate::facts::processor_time::word;
use crate::facts::{FactId, Facts};
use crate::limits::{self, LimitWork};
use crate::resources::processor_time::{cite_works, share_of_all};
use crate::resources::{processors, request_cost};
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::processor_time::ProcessorWork;

/// Who takes less of the processors' time is not why they are full.
const NAMED_MIN: f64 = 0.05;
/// Who takes at most this may be a part of it.
const PART_MAX: f64 = 0.2;
const CONFIDENCE_MAX_PART: f64 = 0.5;
/// Who certainly takes this is why.
const PROVEN_MIN: f64 = 0.4;
const CONFIDENCE_PROVEN: f64 = 0.9;

/// The findings that samples do not refute; all of them where nobody sampled, or the processors are not what is short.
pub(super) fn weighed(facts: &Facts, found: Vec<Finding>) -> Vec<Finding> {
    let is_short =
        || processors::cpu_shortage(facts).is_some() || request_cost::request_cost(facts).is_some();
    if facts.processor_time.is_none() || !is_short() {
        return found;
    }
    let claims: Vec<LimitWork> = found.iter().filter_map(work).collect();
    found.into_iter().filter_map(|finding| one(facts, finding, &claims)).collect()
}

fn work(finding: &Finding) -> Option<LimitWork> {
    limits::by_id(&finding.id)?.work
}

/// The least and the most of the time that a finding's work has: what may be of several faults is shared out by what is certain of
/// each.
fn bounds(facts: &Facts, own: &LimitWork, claims: &[LimitWork]) -> Option<[f64; 2]> {
    let certain = |work: &LimitWork| share_of_all(facts, work.certain).unwrap_or(0.0);
    let part = |kind: &ProcessorWork| {
        let all: f64 = claims.iter().filter(|work| work.possible.contains(kind)).map(certain).sum();
        if own.certain.is_empty() || all <= 0.0 { 1.0 } else { certain(own) / all }
    };
    let possible = |kind: &ProcessorWork| Some(share_of_all(facts, &[*kind])? * part(kind));
    let least = share_of_all(facts, own.certain)?;
    let most = own.possible.iter().try_fold(least, |sum, kind| Some(sum + possible(kind)?))?;
    Some([least, most])
}

fn one(facts: &Facts, finding: Finding, claims: &[LimitWork]) -> Option<Finding> {
    let bounded = |own: LimitWork| Some((own, bounds(facts, &own, claims)?));
    match work(&finding).and_then(bounded) {
        Some((_, [_, most])) if most < NAMED_MIN => None,
        Some((own, bounds)) => Some(held(facts, finding, own, bounds)),
        None => Some(finding),
    }
}

fn held(facts: &Facts, mut finding: Finding, work: LimitWork, [least, most]: [f64; 2]) -> Finding {
    let [least, most] = [least, most].map(|share| share.min(1.0));
    let seen = (least >= NAMED_MIN).then_some(least);
    let explains = finding.explains_fraction.or(seen).map(|share| significant(share.clamp(least, most), 3));
    finding.explains_fraction = explains;
    if least >= PROVEN_MIN {
        finding.confidence = finding.confidence.max(CONFIDENCE_PROVEN);
    } else if most < PART_MAX {
        finding.confidence = finding.confidence.min(CONFIDENCE_MAX_PART);
    }
    let percent = |share: f64| share * 100.0;
    if least >= NAMED_MIN {
        let words: Vec<&str> = work.certain.iter().map(|work| word(*work)).collect();
        finding.summary += &format!(
            " By samples {:.0}% of the service's CPU time is {}.",
            percent(least),
            words.join(" and ")
        );
    } else if most < PROVEN_MIN {
        finding.summary +=
            &format!(" By samples it is at most {:.0}% of the service's CPU time.", percent(most));
    }
    for works in [work.certain, work.possible] {
        finding.facts.extend(cite_works(facts, FactId::processor_time_fraction, works));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing;
    use crate::limits::LimitId;

    /// Full processors, of whose time these places have so many parts of a thousand, and the kernel's network the rest.
    fn with(places: &[(&str, u64)]) -> Facts {
        let values = [
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::cores, 2.0),
            (FactId::pressure_cpu_some_fraction, 0.6),
            (FactId::service_cpu_cores, 1.9),
        ];
        let mut facts = testing::facts(&values, &[]);
        let rest = 1000 - places.iter().map(|(_, count)| count).sum::<u64>();
        let all: Vec<_> = places.iter().copied().chain([("x;[kernel];tcp_ack", rest)]).collect();
        testing::add_samples(&mut facts, &all);
        facts
    }

    // Two faults of one server: each weighs what it takes, whatever its rule believed that it takes.
    // Logging and .htaccess both use the server's own code: 34% and 20% are certain.
    #[test]
    fn what_may_be_of_several_is_shared_out() {
        let facts = with(&[
            ("apache2;libapr-1.so.0;apr_vformatter", 340),
            ("apache2;apache2;ap_getword_conf", 200),
            ("apache2;apache2;ap_escape_html2", 270),
        ]);
        let claims = [LimitId::LogVerbosity, LimitId::HtaccessLookups].map(|id| id.limit().work.unwrap());
        let most = claims.map(|claim| bounds(&facts, &claim, &claims).unwrap()[1]);
        assert_eq!(most.map(|share| significant(share, 2)), [0.51, 0.3]);
        let alone = bounds(&facts, &claims[1], &claims[1..]).unwrap();
        assert_eq!(alone.map(|share| significant(share, 2)), [0.2, 0.47]);
    }

    #[test]
    fn what_takes_the_processors_time_comes_first_and_what_does_not_is_not_named() {
        let finding = |id: LimitId, confidence, explains| {
            let known = super::super::findings(&Facts::default()).remove(0);
            Finding { id: id.into(), confidence, explains_fraction: Some(explains), ..known }
        };
        let told = |facts: &Facts| {
            let tls = finding(LimitId::TlsHandshakes, 0.8, 0.3);
            let htaccess = finding(LimitId::HtaccessLookups, 0.6, 0.95);
            let found = weighed(facts, vec![htaccess, tls]);
            let all = super::super::ranked(found, false);
            all.into_iter()
                .map(|one| (one.id.clone(), one.confidence, one.explains_fraction))
                .collect::<Vec<_>>()
        };
        let (tls, htaccess) = (LimitId::TlsHandshakes.as_str(), LimitId::HtaccessLookups.as_str());
        let of = |id: &str, confidence, explains| (id.to_owned(), confidence, Some(explains));
        let (sign, read) = ("apache2;libcrypto.so.3;~BN_mod", "apache2;libpcre2-8.so.0;pcre2_compile_8");
        let both = with(&[(sign, 700), (read, 210)]);
        assert_eq!(told(&both), [of(tls, 0.9, 0.7), of(htaccess, 0.6, 0.21)]);
        let reading = with(&[(read, 900), ("apache2;[kernel];path_openat", 80)]);
        assert_eq!(told(&reading), [of(htaccess, 0.9, 0.95)], "no handshake was met");
        let neither = with(&[(sign, 30)]);
        assert_eq!(told(&neither), [of(tls, 0.8, 0.3)], "the kernel's part of a connection");
        let mut unseen = both;
        unseen.processor_time = None;
        assert_eq!(told(&unseen), [of(htaccess, 0.6, 0.95), of(tls, 0.8, 0.3)]);
    }
}
