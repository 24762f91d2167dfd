//! When `network-saturated` is found, what proves it, and what to change.

use crate::facts::network::{LinkFacts, NIC_RECEIVED, NIC_SENT, SHAPER_SENT};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::processors;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::fact::Fact;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// The share of what a link can carry from which on it is full: frames have gaps and preambles that nobody counts.
const FULL_FRACTION_MIN: f64 = 0.9;
/// The same of one whose queue is hardly ever empty: that it always has something to send is proof enough.
const QUEUED_FRACTION_MIN: f64 = 0.8;
/// A queue that stands in so many of the samples is hardly ever empty.
const WAITING_FRACTION_MIN: f64 = 0.8;
/// Less than this, two full packets, is what is just being sent.
const BACKLOG_BYTES_MIN: f64 = 3000.0;
/// Responses that take this many times as long as the quickest ones wait for something.
const INFLATION_MIN: f64 = 1.5;
/// Retransmits per second that show that somewhere a queue overflows.
const RETRANSMITS_PER_S_MIN: f64 = 1.0;
/// What compression leaves of text, carefully: usually it is a fifth to a quarter.
const COMPRESSED_FRACTION: f64 = 0.35;
/// What of the lost throughput goes with the limit: all but the ends of the load, at which it is not full.
const EXPLAINS: f64 = 0.9;

/// A link that is full.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FullLink {
    /// The names of its facts.
    pub(crate) names: &'static LinkFacts,
    /// Which link.
    pub(crate) link: String,
    /// The share of what it can carry.
    pub(crate) share: f64,
    /// Whether packets were seen to wait for it.
    pub(crate) is_waited_for: bool,
}

impl FullLink {
    /// A queue that stands at a link with room left may come of bursts: what is full beside it is surer.
    fn confidence(&self) -> f64 {
        match (self.is_waited_for, self.share >= FULL_FRACTION_MIN) {
            (true, true) => 0.95,
            (true, false) => 0.85,
            (false, _) => 0.75,
        }
    }

    fn direction(&self) -> &'static str {
        if *self.names == NIC_RECEIVED { "receives" } else { "sends" }
    }

    pub(crate) fn cite(&self, facts: &Facts) -> Vec<Fact> {
        let mut cited = facts.cite_of(&self.names.cited(), &self.link);
        let queue =
            [FactId::shaper_backlog_mean_bytes, FactId::shaper_waiting_fraction, FactId::shaper_drops];
        cited.extend(facts.cite_of(&queue, &self.link));
        cited.extend(facts.cite(&fact_ids! {
            retransmits_per_s, received_bytes_per_s, received_bytes_per_answer, response_time_inflation, rate,
        }));
        cited
    }
}

/// The name of a link as a reader knows it.
pub(crate) fn link_name(link: &str) -> &str {
    let link = link.strip_prefix("service.").unwrap_or(link);
    link.strip_prefix("part.").unwrap_or(link)
}

/// The link that is fullest, if one is full.
pub(crate) fn fullest_link(facts: &Facts) -> Option<FullLink> {
    let all = [&NIC_SENT, &NIC_RECEIVED, &SHAPER_SENT];
    let links = all.into_iter().flat_map(|names| {
        facts.each(names.fraction).map(move |(link, share)| (names, link.to_owned(), share))
    });
    let full = links.filter(|(names, link, _)| !is_of_others(facts, names, link)).filter_map(
        |(names, link, share)| {
            let of = |name: FactId| facts.value_of(name, &link);
            let holds = of(FactId::shaper_waiting_fraction)
                .is_some_and(|waiting| waiting >= WAITING_FRACTION_MIN)
                && of(FactId::shaper_backlog_mean_bytes).is_some_and(|backlog| backlog >= BACKLOG_BYTES_MIN);
            let min = if holds { QUEUED_FRACTION_MIN } else { FULL_FRACTION_MIN };
            let at_least = |name: FactId, min: f64| facts.value(name).is_some_and(|value| value >= min);
            let is_waited_for = holds
                || of(FactId::shaper_drops).is_some_and(|drops| drops > 0.0)
                || at_least(FactId::retransmits_per_s, RETRANSMITS_PER_S_MIN)
                || at_least(FactId::response_time_inflation, INFLATION_MIN);
            (share >= min).then_some(FullLink { names, link, share, is_waited_for })
        },
    );
    full.max_by(|a, b| a.share.total_cmp(&b.share))
}

/// A link of which the answers take less than this share carries something else.
const SERVED_FRACTION_MIN: f64 = 0.2;

/// Whether what fills a link are not the answers, and another link has room for these: a backup has a network of its own.
fn is_of_others(facts: &Facts, names: &LinkFacts, link: &str) -> bool {
    let carried = facts.value_of(names.bits_per_s, link);
    let served = facts.value(FactId::received_bytes_per_s).map(|bytes| bytes * 8.0);
    let Some((carried, served)) = carried.zip(served).filter(|_| *names != NIC_RECEIVED) else {
        return false;
    };
    let mut others = facts.each(NIC_SENT.bits_per_s).filter(|(other, _)| link_name(other) != link_name(link));
    served < SERVED_FRACTION_MIN * carried && others.any(|(_, bits)| bits >= served)
}

/// Fires when a link is full.
pub fn check(facts: &Facts) -> Option<Finding> {
    let full = fullest_link(facts)?;
    let of = |name| facts.value_of(name, &full.link);
    let (rate, limit) = (of(full.names.bits_per_s)?, of(full.names.limit_bits_per_s)?);
    let sends = *full.names != NIC_RECEIVED;
    let size = facts.value(FactId::received_bytes_per_answer).filter(|size| sends && *size > 0.0);
    let per_answer = size.map_or(String::new(), |size| {
        format!(
            " At {} per response it allows at most {}/s.",
            format_bytes(size),
            format_number(limit / 8.0 / size)
        )
    });
    let waits = facts.value_of(FactId::shaper_backlog_mean_bytes, &full.link).filter(|bytes| *bytes > 0.0);
    let waits = waits.map_or(String::new(), |bytes| format!("; {} queued on average", format_bytes(bytes)));
    Some(Finding {
        id: LimitId::NetworkSaturated.into(),
        summary: format!(
            "Link {} saturated: it {} {} of {} Mbit/s ({:.0}%){waits}.{per_answer}",
            link_name(&full.link),
            full.direction(),
            format_number(rate / 1e6),
            format_number(limit / 1e6),
            full.share * 100.0,
        ),
        confidence: full.confidence(),
        explains_fraction: Some(EXPLAINS),
        facts: full.cite(facts),
        remedies: remedies(facts, sends),
    })
}

/// Fewer bytes first, then more bandwidth. Compression is proposed where the server has none: nothing tells of which kind
/// the answers are.
pub(crate) fn remedies(facts: &Facts, sends: bool) -> Vec<Remedy> {
    let mut all = vec![];
    if sends && lacks_compression(facts) {
        let why = "text (html, css, scripts, JSON) shrinks to a third or less, images and archives do not; the server has no \
                   compression module";
        all.push(Remedy {
            class: ApplyClass::Manual,
            predicted: rate_with_compression(facts),
            ..manual(
                SettingId::of_service("apache", "mod_deflate"),
                "about 1 ms of CPU time per 50 kB of text; a reload",
                why,
            )
        });
    }
    if sends {
        all.push(manual(
            header_setting(facts, "Cache-Control"),
            "visitors see a change only after the cache time",
            "browsers and caches keep files for the time given",
        ));
    }
    let why = match sends {
        true => {
            "otherwise send less (smaller images, a CDN) or get a faster link: the rate grows with it, up to the next limit"
        }
        false => {
            "uploads, or other transfers to this machine, fill it: fewer of them at once, or a faster link"
        }
    };
    all.push(manual(SettingId::hardware("bandwidth"), "costs money", why));
    all
}

/// A header that the server in front can add; where it is none of those that are known, the program.
fn header_setting(facts: &Facts, name: &str) -> SettingId {
    let front = ["apache", "nginx", "lighttpd"].into_iter().find(|front| facts.is_service(front));
    front.map_or_else(|| SettingId::application(name), |front| SettingId::of_service(front, name))
}

fn lacks_compression(facts: &Facts) -> bool {
    let modules = facts.service.as_ref().map(|service| &service.modules).filter(|all| !all.is_empty());
    let compresses = |module: &String| module.contains("deflate") || module.contains("brotli");
    facts.is_service("apache") && modules.is_some_and(|all| !all.iter().any(compresses))
}

/// The rate at which the link would be full with compressed text, if the processors allow it.
fn rate_with_compression(facts: &Facts) -> Option<Predicted> {
    let rate = facts.value(FactId::rate).filter(|rate| *rate > 0.0)?;
    let least = rate / COMPRESSED_FRACTION;
    // Compressed to a third at worst, to an eighth at best; more than the processors can do is not promised.
    let most = (rate * 8.0).min(processors::rate_at_cpu(facts, 1.0).unwrap_or(f64::MAX).max(least));
    let ends = [least, most].map(|rate| significant(rate, 3));
    Some(Predicted { rate: significant((least * most).sqrt(), 3), ci95: ends })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, of_pool};

    fn shaped(share: f64, waiting: f64, backlog: f64, drops: f64) -> Facts {
        facts_of_several(
            &[(FactId::rate, 12.0), (FactId::received_bytes_per_answer, 40_000.0)],
            &[
                (FactId::shaper_sent_bits_per_s, "eth0", share * 4e6),
                (FactId::shaper_sent_limit_bits_per_s, "eth0", 4e6),
                (FactId::shaper_sent_fraction, "eth0", share),
                (FactId::shaper_waiting_fraction, "eth0", waiting),
                (FactId::shaper_backlog_mean_bytes, "eth0", backlog),
                (FactId::shaper_drops, "eth0", drops),
            ],
        )
    }

    #[test]
    fn a_link_is_full_at_its_rate_or_with_a_queue_that_stands() {
        for (share, waiting, backlog, drops, confidence) in [
            (0.99, 1.0, 25_000.0, 100.0, Some(0.95)),
            (0.83, 1.0, 25_000.0, 0.0, Some(0.85)),
            (0.95, 0.2, 400.0, 10.0, Some(0.95)),
            (0.95, 0.2, 400.0, 0.0, Some(0.75)),
            // Bursts wait and are dropped on links that have room.
            (0.83, 0.3, 9_000.0, 50.0, None),
            (0.64, 1.0, 9_000.0, 50.0, None),
        ] {
            let found = check(&shaped(share, waiting, backlog, drops)).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{share} {waiting} {backlog} {drops}");
        }
    }

    #[test]
    fn the_fullest_link_is_named_with_what_it_allows() {
        let mut facts = shaped(0.99, 1.0, 25_000.0, 100.0);
        of_pool(&mut facts, "eth1", &[(FactId::nic_sent_fraction, 0.4)]);
        let finding = check(&facts).unwrap();
        let text = "Link eth0 saturated: it sends 3.96 of 4 Mbit/s (99%); 25 kB queued on average. At 40 kB per response it \
                    allows at most 12.5/s.";
        assert_eq!(finding.summary, text);
        assert_eq!(finding.explains_fraction, Some(0.9));
        crate::facts::testing::set(&mut facts, FactId::received_bytes_per_answer, 0.0);
        assert!(
            check(&facts).unwrap().summary.ends_with("queued on average."),
            "nothing but errors came back"
        );
    }

    #[test]
    fn a_link_that_carries_something_else_is_not_what_answers_wait_for() {
        for (served_bytes, found) in [(12e6, false), (60e6, true)] {
            let links = [
                (FactId::nic_sent_bits_per_s, "eth1", 0.95e9),
                (FactId::nic_sent_limit_bits_per_s, "eth1", 1e9),
                (FactId::nic_sent_fraction, "eth1", 0.95),
                (FactId::nic_sent_bits_per_s, "eth0", 0.6e9),
                (FactId::nic_sent_fraction, "eth0", 0.6),
            ];
            let facts = facts_of_several(&[(FactId::received_bytes_per_s, served_bytes)], &links);
            assert_eq!(check(&facts).is_some(), found, "{served_bytes}");
        }
    }

    #[test]
    fn compression_is_proposed_where_there_is_none() {
        let modules = |modules: &[&str]| {
            let mut facts = shaped(0.99, 1.0, 25_000.0, 100.0);
            facts.service.as_mut().unwrap().modules = modules.iter().map(|name| (*name).to_owned()).collect();
            let remedies = check(&facts).unwrap().remedies;
            let settings: Vec<_> = remedies.iter().map(|remedy| remedy.setting.name.clone()).collect();
            (settings, remedies[0].predicted.clone())
        };
        let (settings, predicted) = modules(&["core_module"]);
        assert_eq!(settings, ["mod_deflate", "Cache-Control", "bandwidth"]);
        let predicted = predicted.unwrap();
        assert!(predicted.ci95[0] > 24.0 && predicted.ci95[0] < predicted.rate && predicted.rate < 96.0);
        assert_eq!(modules(&["core_module", "deflate_module"]).0, ["Cache-Control", "bandwidth"]);
        assert_eq!(modules(&[]).0, ["Cache-Control", "bandwidth"], "what is not known is not said");
    }

    #[test]
    fn uploads_fill_a_link_the_other_way() {
        let links = [
            (FactId::nic_received_bits_per_s, "eth0", 97e6),
            (FactId::nic_received_limit_bits_per_s, "eth0", 1e8),
            (FactId::nic_received_fraction, "eth0", 0.97),
        ];
        let sent = [(FactId::retransmits_per_s, 0.0), (FactId::received_bytes_per_answer, 200.0)];
        let finding = check(&facts_of_several(&sent, &links)).unwrap();
        assert!(finding.summary.ends_with("receives 97 of 100 Mbit/s (97%)."), "{}", finding.summary);
        assert!(finding.remedies[0].why.starts_with("uploads"), "{}", finding.remedies[0].why);
        assert_eq!(finding.remedies.len(), 1);
    }
}
