//! `MaxRequestWorkers` as a search may vary it: while all workers are taken, and these do the work.

use crate::facts::{FactId, Facts};
use crate::limits::search_range::SearchRange;
use crate::resources::{memory_pressure, workers};
use webdyno_model::setting::SettingId;

pub(crate) fn range(facts: &Facts) -> Option<SearchRange> {
    let now = workers::limit_proof(facts)?.workers;
    let threads = facts.threads_per_process();
    let by_reload = facts.setting("ServerLimit").map(|limit| limit * threads);
    let most =
        memory_pressure::workers_that_fit(facts).map(|fits| by_reload.map_or(fits, |most| fits.min(most)));
    let setting = SettingId::of_service("apache", "MaxRequestWorkers");
    SearchRange::of(facts, setting, (now, most, threads), facts.value(FactId::service_cpu_cores))
}
