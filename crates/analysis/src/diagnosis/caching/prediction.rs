//! The rate with a cache of a second in front, by operational laws (Denning and Buzen, "The operational analysis of queueing
//! network models", 1978): what limits now is the work of making answers, of which a cache leaves a part, and what limits then are
//! the processors, of which a hit takes as much as a small file.
//!
//! Of each URL that is kept at most one request a second reaches the application, as long as one at a time renews it
//! (`proxy_cache_lock` and `proxy_cache_use_stale updating` of nginx, `CacheLock` of mod_cache, coalescing and grace of Varnish).
//! The costs of the answers stand to each other as the times that they took alone.

use crate::diagnosis::prediction::{ERROR_PROCESSORS, model};
use crate::facts::{FactId, Facts};
use crate::limits::ceiling::Resource;
use crate::limits::resource_ceilings;
use crate::queueing::Load;
use crate::resources::processors::services_cores;
use crate::resources::request_cost::plain_file_us;
use webdyno_model::number::significant;

/// What a hit costs as a share of the most that a small file was seen to cost, 150 us where each request wakes a sleeping core: 15 to 40 us
/// under full load.
const HIT_SHARE: [f64; 3] = [0.1, 0.27, 1.0];
/// The same of what a request costs the generator on the same machine: 10 to 25 us under full load, and at most as much as now.
const CLIENT_SHARE: [f64; 3] = [0.07, 0.17, f64::INFINITY];
/// By how much the work that is left may be off where answers differ: times alone are no costs.
const WORK_ERROR: f64 = 1.5;
/// Renewals that come when an answer is asked for just as it ends.
const RENEWALS_MAX: f64 = 2.0;
/// From this share of failures on, what an answer costs is not known.
const FAILED_FRACTION_MAX: f64 = 0.02;
/// The least share of the requests of which it is known what they take.
const TIMED_FRACTION_MIN: f64 = 0.5;
const STEPS: usize = 60;

/// A request of the load.
pub(super) struct RequestWork {
    /// Its share of the requests; 0 where it is not known.
    pub share: f64,
    /// What it took alone.
    pub alone_us: Option<f64>,
    /// Whether the cache keeps it.
    pub is_kept: bool,
}

/// What is expected.
pub(super) struct Found {
    pub rate: f64,
    pub ci95: [f64; 2],
    /// Requests per second that are left for the application.
    pub application_rate: f64,
}

/// The server now.
struct Server {
    rate: f64,
    /// Processor time that requests may have each second, microseconds, and what they take of it now in the services, and in the
    /// generator where it shares the machine.
    budget_us: f64,
    request_us: f64,
    client_us: f64,
    /// What clients ask for, and what the link carries.
    most: f64,
    load: Load,
}

/// What is supposed of the cache.
struct Supposed {
    hit_us: f64,
    client_us: f64,
    /// The work of a mean request that is left of one, whatever is kept.
    left: f64,
    /// Renewals of a URL each second, at most.
    renewals: f64,
}

/// The rate with a cache; else why it cannot be told.
pub(super) fn predict(facts: &Facts, asked: &[RequestWork]) -> Result<Found, &'static str> {
    let server = Server::of(facts)?;
    let timed = || asked.iter().filter_map(|one| Some((one, one.alone_us?)));
    let timed_share: f64 = timed().map(|(one, _)| one.share).sum();
    if timed_share < TIMED_FRACTION_MIN {
        return Err("of most of the requests it is not known what they take");
    }
    // What was not looked at takes as long as the others, and is not kept.
    let mean_us = timed().map(|(one, us)| one.share * us).sum::<f64>() / timed_share;
    let kept: Vec<(f64, f64)> =
        timed().filter(|(one, _)| one.is_kept).map(|(one, us)| (one.share, us / mean_us)).collect();
    let left = (1.0 - kept.iter().map(|(share, work)| share * work).sum::<f64>()).clamp(0.0, 1.0);
    let file_us = plain_file_us(facts);
    // A proxy in front takes no more for a hit than for a request that it passes on.
    let most_us = proxy_us(facts).unwrap_or(file_us).min(file_us);
    let rate = |cost: usize, left: f64, renewals: f64| {
        let hit_us = (HIT_SHARE[cost] * file_us).min(most_us);
        let client_us = (CLIENT_SHARE[cost] * file_us).min(server.client_us);
        server.rate_with(&kept, &Supposed { hit_us, client_us, left: left.min(1.0), renewals })
    };
    let likely = rate(1, left, 1.0);
    let low = rate(2, left * WORK_ERROR, RENEWALS_MAX) * (1.0 - ERROR_PROCESSORS);
    let high = rate(0, left / WORK_ERROR, 0.0) * (1.0 + ERROR_PROCESSORS);
    let renewed: f64 = kept.iter().map(|(share, _)| (share * likely).min(1.0)).sum();
    let kept_share: f64 = kept.iter().map(|(share, _)| share).sum();
    Ok(Found {
        rate: significant(likely, 3),
        ci95: [significant(low, 3), significant(high.min(server.most), 3)],
        application_rate: significant(renewed + likely * (1.0 - kept_share).max(0.0), 2),
    })
}

/// What a proxy in front takes of the processors for each request now; `None` where the server is none.
fn proxy_us(facts: &Facts) -> Option<f64> {
    let is_proxy = facts.is_service("nginx") && facts.each(FactId::backend_cpu_cores).next().is_some();
    facts.value(FactId::cpu_per_request_us).filter(|_| is_proxy)
}

impl Server {
    fn of(facts: &Facts) -> Result<Self, &'static str> {
        let unknown = "the CPU time of a request was not seen";
        let rate = facts.ended_per_s().filter(|_| facts.loaded).ok_or("no rate was measured")?;
        if facts.value(FactId::failed_fraction).is_some_and(|failed| failed > FAILED_FRACTION_MAX) {
            return Err("requests fail, and what those take that do not is not known");
        }
        if facts.generator_fault.is_some() || facts.kernel_limit_total.is_some() {
            return Err("the load generator limited this load, not the server");
        }
        let ceilings = resource_ceilings(facts);
        let binds = |resource| {
            ceilings.iter().find(|one| one.resource == resource).and_then(|one| one.ceiling.binds_at_rate)
        };
        let saturates = binds(Resource::Processors).ok_or(unknown)?.max(rate);
        // A group of the service's own has nothing of the generator in it.
        let group = facts.value(FactId::ahead_group_cores).zip(facts.value(FactId::cores));
        let shares = group.is_none_or(|(group, cores)| group >= cores);
        let client = facts.value(FactId::client_cpu_cores).filter(|_| shares).unwrap_or(0.0);
        let request_us = services_cores(facts).ok_or(unknown)? / rate * 1e6;
        let client_us = client / rate * 1e6;
        let load = model::load(facts, rate).ok_or("how many requests were under way was not measured")?;
        let offered = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY);
        Ok(Self {
            rate,
            budget_us: saturates * (request_us + client_us),
            request_us,
            client_us,
            most: binds(Resource::Link).unwrap_or(f64::INFINITY).min(offered).max(rate),
            load,
        })
    }

    /// The highest rate at which neither the application has more to do than now, nor the processors more than they can.
    fn rate_with(&self, kept: &[(f64, f64)], supposed: &Supposed) -> f64 {
        let made_us = (self.request_us - supposed.hit_us).max(0.0);
        let fits = |rate: f64| {
            let renewed = kept.iter().map(|(share, work)| (share * rate).min(supposed.renewals) * work);
            let work = renewed.sum::<f64>() + supposed.left * rate;
            let time_us = work * made_us + rate * (supposed.hit_us + supposed.client_us);
            let is_asked = match self.load {
                Load::Closed { users, think_us } => rate * (think_us + supposed.hit_us) / 1e6 <= users,
                Load::Open { .. } => true,
            };
            work <= self.rate && time_us <= self.budget_us && is_asked && rate <= self.most
        };
        let (mut low, mut high) = (0.0, 1e6 / supposed.hit_us.max(1.0) * 1024.0);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }
}
