//! `MaxRequestWorkers` as a search may vary it: while all workers are taken, and these do the work. Not under prefork: a reload that
//! lowers it leaves places in the scoreboard taken (AH00167), so that fewer workers than before can start once it is reverted, until a
//! restart.

use crate::facts::{FactId, Facts};
use crate::limits::search_range::SearchRange;
use crate::resources::{memory_pressure, workers};
use webdyno_model::setting::SettingId;

pub(crate) fn range(facts: &Facts) -> Option<SearchRange> {
    if facts.service.as_ref()?.mode.as_deref() == Some("prefork") {
        return None;
    }
    let now = workers::limit_proof(facts)?.workers;
    let threads = facts.threads_per_process();
    let by_reload = facts.setting("ServerLimit").map(|limit| limit * threads);
    let most =
        memory_pressure::workers_that_fit(facts).map(|fits| by_reload.map_or(fits, |most| fits.min(most)));
    let setting = SettingId::of_service("apache", "MaxRequestWorkers");
    SearchRange::of(facts, setting, (now, most, threads), facts.value(FactId::service_cpu_cores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn a_server_that_a_reload_does_not_restore_is_not_searched() {
        let full = [
            (FactId::workers_busy_mean, 20.0),
            (FactId::scoreboard_full_fraction, 1.0),
            (FactId::processes_at_limit_fraction, 1.0),
            (FactId::accept_queue_mean, 40.0),
            (FactId::cores, 2.0),
            (FactId::workers_limit, 20.0),
            (FactId::service_cpu_cores, 1.9),
        ];
        let of = |mode: Option<&str>| {
            let mut facts = facts(&full, &[("MaxRequestWorkers", 20), ("ServerLimit", 40)]);
            facts.service.as_mut().unwrap().mode = mode.map(str::to_owned);
            range(&facts).is_some()
        };
        assert_eq!([Some("event"), Some("worker"), Some("prefork")].map(of), [true, true, false]);
    }
}
