//! Cacheable answers: what a cache in front that keeps each answer for a second would take off an application.
//!
//! Only what was seen counts: anonymous GETs of the load that were sent twice before it, more than a second apart, and were
//! answered with the same bytes, no cookie, and nothing that forbids a shared cache (RFC 9111). Files are left out: the server
//! sends them itself as cheaply as a cache would.

mod prediction;

use crate::facts::Facts;
use crate::limits::manual_remedy::manual;
use crate::limits::{LimitId, LimitKind, by_id};
use crate::measurement::Measurement;
use crate::resources::{processors, site_profile};
use crate::settings::effective::RequestTarget;
use crate::wording::format_number;
use prediction::RequestWork;
use webdyno_model::diagnosis::{Finding, Predicted};
use webdyno_model::number::significant;
use webdyno_model::repeated_answer::RepeatedAnswer;
use webdyno_model::run::RunReport;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::site::{SiteCache, SiteCacheUrl, SiteKind};

/// An answer whose maker is not known takes longer than a file does: from so much on, sent alone, it is a program's.
const MADE_US_MIN: u64 = 1000;
/// At least so much more has to be sure, or it is not worth a cache.
const GAIN_MIN: f64 = 1.2;

/// What a cache in front could answer; `None` where no answer was looked at, or none that a program makes.
pub(crate) fn site_cache(
    facts: &Facts,
    measurement: &Measurement,
    run: Option<&RunReport>,
) -> Option<SiteCache> {
    let visits = measurement.workload.as_ref().and_then(|workload| workload.visits.as_ref());
    let all = &measurement.repeated_answers;
    // Who was given a cookie sends it with all that follows.
    let cookie = all.iter().find(|answer| answer.sets_cookie && visits.is_some_and(|visits| visits.cookies));
    let mut looked: Vec<(RequestWork, SiteCacheUrl)> = all
        .iter()
        .map(|answer| {
            let (cacheable, how) = match cookie {
                Some(one) if !answer.is_file && answer.not_sent.is_none() => {
                    (Some(false), format!("visitors carry the cookie of {}", path(&one.url)))
                }
                _ => verdict(facts, answer),
            };
            let share = answer.share_fraction.or_else(|| share_by_name(all, answer, run?));
            let asked = RequestWork {
                share: share.unwrap_or(0.0),
                alone_us: answer.alone_us.map(|us| us as f64),
                is_kept: cacheable == Some(true),
            };
            let url = answer.url.clone();
            let share_fraction = share.map(|share| significant(share, 3));
            (asked, SiteCacheUrl { url, share_fraction, cacheable, how, alone_us: answer.alone_us })
        })
        .collect();
    looked.sort_by(|a, b| b.0.share.total_cmp(&a.0.share));
    let is_made = |answer: &RepeatedAnswer| !answer.is_file && answer.not_sent.is_none();
    all.iter().any(is_made).then_some(())?;
    let share_of = |counts: fn(&SiteCacheUrl) -> bool| {
        let share: f64 = looked.iter().filter(|one| counts(&one.1)).map(|one| one.0.share).sum();
        significant(share.clamp(0.0, 1.0).abs(), 3)
    };
    let mut cache = SiteCache {
        cacheable_fraction: share_of(|url| url.cacheable == Some(true)),
        known_fraction: share_of(|url| url.cacheable.is_some()),
        ..SiteCache::default()
    };
    let (asked, urls): (Vec<RequestWork>, Vec<SiteCacheUrl>) = looked.into_iter().unzip();
    cache.urls = urls;
    if cache.cacheable_fraction > 0.0 {
        match prediction::predict(facts, &asked) {
            Ok(found) => {
                cache.predicted_rate = Some(found.rate);
                cache.predicted_ci95 = Some(found.ci95);
                cache.application_rate = Some(found.application_rate);
            }
            Err(why) => cache.not_predicted = Some(why.into()),
        }
    }
    Some(cache)
}

/// Whether a cache would take work off a program, and how that is known.
fn verdict(facts: &Facts, answer: &RepeatedAnswer) -> (Option<bool>, String) {
    if let Some(why) = &answer.not_sent {
        return (None, format!("not looked at: {why}"));
    }
    if let Some(why) = answer.obstacle() {
        return (Some(false), why);
    }
    let target = RequestTarget::of(&answer.url);
    let kind = target.and_then(|target| site_profile::site_kind(facts, &target).0);
    let is_slow = answer.alone_us.is_some_and(|us| us >= MADE_US_MIN);
    match (answer.is_same, kind) {
        _ if answer.is_file => (Some(false), "a file, which the server sends itself".into()),
        (None, _) => (None, "not looked at twice".into()),
        (_, Some(SiteKind::Static)) => (Some(false), "a file, which the server sends itself".into()),
        (_, None) if !is_slow => (None, "a file or a program's answer, not known".into()),
        _ => (Some(true), "same bytes a second later, no cookie, nothing private".into()),
    }
}

/// The share of a request as it was counted, where its name is not that of several.
fn share_by_name(all: &[RepeatedAnswer], answer: &RepeatedAnswer, run: &RunReport) -> Option<f64> {
    let counted = |name: &str| run.requests_by_name.get(name).map(|one| one.completed + one.failed);
    let total = run.requests.completed + run.requests.failed;
    let is_unique = all.iter().filter(|other| other.name == answer.name).count() == 1;
    let count = counted(&answer.name).filter(|_| is_unique && total > 0)?;
    Some(count as f64 / total as f64)
}

fn path(url: &str) -> String {
    RequestTarget::of(url).map_or_else(|| url.to_owned(), |target| target.path)
}

/// Adds the cache to the first finding that fewer answers to make would lift.
pub(crate) fn add_remedy(facts: &Facts, findings: &mut [Finding], cache: Option<&SiteCache>) {
    let Some((cache, predicted)) = cache.and_then(|cache| Some((cache, predicted(cache)?))) else { return };
    let rate_now = facts.ended_per_s().unwrap_or(f64::INFINITY);
    if predicted.ci95[0] < GAIN_MIN * rate_now {
        return;
    }
    let Some(finding) = findings.iter_mut().find(|finding| is_lifted(facts, &finding.id)) else { return };
    let why = format!(
        "{:.0}% of the requests are anonymous GETs whose answers repeat: kept for 1 s in front of the application, {} req/s are left for \
         it. `webdyno export DIR --cache-config -` writes the configuration (nginx, mod_cache, Varnish)",
        100.0 * cache.cacheable_fraction,
        cache.application_rate.map_or("few".into(), format_number),
    );
    let risk = "answers are up to 2 s old; a page of somebody who is logged in must not be kept: what has a cookie or \
                Authorization, and all other URLs, pass by the cache";
    let mut remedy = manual(SettingId::application("page cache"), risk, why);
    (remedy.to, remedy.predicted) = (Some(SettingValue::Text("1 s".into())), Some(predicted));
    finding.remedies.push(remedy);
}

fn predicted(cache: &SiteCache) -> Option<Predicted> {
    Some(Predicted { rate: cache.predicted_rate?, ci95: cache.predicted_ci95? })
}

/// Whether it is a limit on making answers, so that fewer of them lift it.
fn is_lifted(facts: &Facts, id: &str) -> bool {
    let Some(limit) = by_id(id) else { return false };
    match limit.kind {
        Some(LimitKind::Documents | LimitKind::DocumentCost | LimitKind::Workers) => true,
        // Processors, or one of them.
        Some(LimitKind::Concurrency) => {
            processors::are_short(facts) || limit.id == LimitId::SingleThreadSaturated
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
