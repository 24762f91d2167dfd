//! `pm.max_children` of the fullest pool as a search may vary it: while all its processes are busy, and these do the work.

use super::pool::FullPool;
use super::remedy::{SETTING, processes_that_fit};
use crate::facts::{FactId, Facts};
use crate::limits::search_range::SearchRange;
use crate::resources::php_fpm;

pub(crate) fn range(facts: &Facts) -> Option<SearchRange> {
    let pools =
        facts.each(FactId::fpm_queue_mean).filter_map(|(pool, queue)| FullPool::of_pool(facts, pool, queue));
    let pool = pools.max_by(|a, b| a.queue.total_cmp(&b.queue))?;
    let now = pool.limit.filter(|_| pool.limit_of_all.is_none())?;
    let most = processes_that_fit(facts, pool.name, now);
    let setting = php_fpm::setting_of(Some(&pool.set_as), SETTING);
    SearchRange::of(facts, setting, (now, most, 1.0), facts.value(FactId::fpm_cpu_cores))
}
