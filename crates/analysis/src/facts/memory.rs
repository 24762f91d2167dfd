//! Facts of memory: what is left, what is swapped and read again, what workers have.
//!
//! Sources: the collectors `memory`, `pressure`, `cgroup`, `worker_memory`, and of `php_fpm`, `mariadb` and `disk` what
//! they hold and read (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::statistics::{mean, median};

fact_table! {
    (memory_available_min_bytes, "bytes", "memory.available_bytes", Derivation::Min),
    (memory_limit_bytes, "bytes", "memory.limit_bytes", Derivation::Latest),
    (memory_total_bytes, "bytes", "memory.total_bytes", Derivation::Latest),
    (memory_used_in_limit_max_bytes, "bytes", "memory.used_in_limit_bytes", Derivation::Max),
    (swapped_in_pages_per_s, "pages/s", "memory.swapped_in_pages", Derivation::Rate(1.0)),
    (swapped_out_pages_per_s, "pages/s", "memory.swapped_out_pages", Derivation::Rate(1.0)),
    (refaults_per_s, "pages/s", "memory.refaults_count", Derivation::Rate(1.0)),
    (oom_kills, "processes", "memory.oom_kills_count", Derivation::Rise),
    (group_oom_kills, "processes", "memory.group_oom_kills_count", Derivation::Rise),
    (pressure_memory_full_fraction, "fraction", "pressure.memory_full_us", Derivation::Rate(1e-6)),
    (pressure_group_memory_full_fraction, "fraction", "pressure.group_memory_full_us", Derivation::Rate(1e-6)),
    (worker_memory_sum_bytes, "bytes", "worker_memory.pss_sum_bytes", Derivation::Latest),
    (worker_swap_sum_bytes, "bytes", "worker_memory.swap_pss_sum_bytes", Derivation::Latest),
    (worker_memory_mean_bytes, "bytes", "worker_memory.pss_mean_bytes", Derivation::Latest),
    (worker_private_mean_bytes, "bytes", "worker_memory.private_mean_bytes", Derivation::Latest),
    (group_memory_limit_bytes, "bytes", "cgroup.memory_limit_bytes", Derivation::Latest),
    (group_memory_used_max_bytes, "bytes", "cgroup.memory_used_bytes", Derivation::Max),
    (group_swap_used_max_bytes, "bytes", "cgroup.swap_used_bytes", Derivation::Max),
    (group_swap_limit_hits_per_s, "hits/s", "cgroup.swap_limit_hits_count", Derivation::Rate(1.0)),
    (group_limit_hits_per_s, "hits/s", "cgroup.memory_limit_hits_count", Derivation::Rate(1.0)),
    (group_file_refaults_per_s, "pages/s", "memory.group_file_refaults_count", Derivation::Rate(1.0)),
    (group_anonymous_refaults_per_s, "pages/s", "memory.group_anonymous_refaults_count", Derivation::Rate(1.0)),
    (file_refaults_per_s, "pages/s", "memory.file_refaults_count", Derivation::Rate(1.0)),
    (swap_total_bytes, "bytes", "memory.swap_total_bytes", Derivation::Latest),
    (pressure_io_some_fraction, "fraction", "pressure.io_some_us", Derivation::Rate(1e-6)),
    (pressure_group_io_some_fraction, "fraction", "pressure.group_io_some_us", Derivation::Rate(1e-6)),
    (pressure_group_io_full_fraction, "fraction", "pressure.group_io_full_us", Derivation::Rate(1e-6)),
    (worker_memory_largest_bytes, "bytes", "worker_memory.pss_max_bytes", Derivation::Max),
    (worker_growth_within_bytes, "bytes/1000 s", "worker_memory.growth_within_bytes", Derivation::Latest),
    (worker_growth_by_age_bytes, "bytes/1000 s", "worker_memory.growth_by_age_bytes", Derivation::Latest),
    (worker_growth_by_age_explained, "fraction", "worker_memory.growth_by_age_explained_fraction", Derivation::Latest),
    (worker_age_mean_s, "s", "workers.mean_age_s", Derivation::Latest),
    (worker_count_mean, "workers", "worker_memory.workers_count", Derivation::Mean),
    (pool_memory_mean_bytes, "bytes", "php_fpm.*.pss_mean_bytes", Derivation::Mean),
    (pool_memory_max_bytes, "bytes", "php_fpm.*.pss_mean_bytes", Derivation::Max),
    (pool_child_largest_bytes, "bytes", "php_fpm.*.pss_max_bytes", Derivation::Max),
    (pool_swap_mean_bytes, "bytes", "php_fpm.*.swap_pss_mean_bytes", Derivation::Mean),
    (pool_children_max, "processes", "php_fpm.*.processes_count", Derivation::Max),
    (pool_children_mean, "processes", "php_fpm.*.processes_count", Derivation::Mean),
    (pool_children_busy_mean, "processes", "php_fpm.*.processes_busy_count", Derivation::Mean),
    (pool_children_killed, "processes", "php_fpm.*.log_signal_exits_count", Derivation::Rise),
    (database_resident_max_bytes, "bytes", "mariadb.resident_bytes", Derivation::Max),
    (database_buffer_pool_bytes, "bytes", "mariadb.buffer_pool_limit_bytes", Derivation::Latest),
    (database_key_buffer_bytes, "bytes", "mariadb.key_buffer_limit_bytes", Derivation::Latest),
    (database_query_cache_bytes, "bytes", "mariadb.query_cache_limit_bytes", Derivation::Latest),
    (database_sort_buffer_bytes, "bytes", "mariadb.sort_buffer_bytes", Derivation::Latest),
    (database_join_buffer_bytes, "bytes", "mariadb.join_buffer_bytes", Derivation::Latest),
    (database_read_buffer_bytes, "bytes", "mariadb.read_buffer_bytes", Derivation::Latest),
    (database_read_rnd_buffer_bytes, "bytes", "mariadb.read_rnd_buffer_bytes", Derivation::Latest),
    (database_thread_stack_bytes, "bytes", "mariadb.thread_stack_bytes", Derivation::Latest),
    (database_binlog_cache_bytes, "bytes", "mariadb.binlog_cache_bytes", Derivation::Latest),
    (database_connections_limit, "connections", "mariadb.connections_limit_count", Derivation::Latest),
    (database_connected_max, "connections", "mariadb.threads_connected_count", Derivation::Max),
    (disk_read_bytes_per_s, "bytes/s", "disk.*.read_bytes", Derivation::Rate(1.0)),
    (served_bytes_status_per_s, "bytes/s", "apache.bytes_served_bytes", Derivation::Rate(1.0)),
    (served_bytes_log_per_s, "bytes/s", "access_log.sent_bytes", Derivation::Rate(1.0)),
    (disk_busy_fraction, "fraction", "disk.*.busy_s", Derivation::Rate(1.0)),
    (disk_written_bytes_per_s, "bytes/s", "disk.*.written_bytes", Derivation::Rate(1.0)),
    (disk_flushes_per_s, "flushes/s", "disk.*.flushes_count", Derivation::Rate(1.0)),
    "bytes": group_page_cache_mean_bytes, worker_largest_rise_bytes, group_held_before_bytes, group_rest_grown_bytes;
    "pages/s": file_refaults_median_per_s;
}

/// What the group holds of files, and what it holds besides, must be of one moment: at most this far apart.
const SAME_TIME_S: f64 = 0.6;

/// Differences between readings of which the middle one says something.
const INCREMENTS_MIN: usize = 3;

impl FactBuilder<'_> {
    /// How much of the group's memory pages of files have that could be dropped, on average: what is used, less what cannot
    /// be dropped.
    pub(super) fn page_cache(&mut self) {
        const USED: &str = "cgroup.memory_used_bytes";
        let (from_s, to_s) = self.series.window();
        let in_window = self.series.all(USED).iter().filter(|(time, _)| (from_s..=to_s).contains(time));
        let files: Vec<f64> = in_window
            .filter_map(|(time, used)| {
                let held = self.series.nearest("memory.used_in_limit_bytes", *time, SAME_TIME_S)?;
                Some((used - held).max(0.0))
            })
            .collect();
        self.add_from(FactId::group_page_cache_mean_bytes, mean(&files), (USED, Derivation::Mean));
    }

    /// How fast pages of files are read again in the middle one of the seconds: those of files that are read once, in a burst, raise
    /// the mean alone.
    pub(super) fn steady_refaults(&mut self) {
        const METRICS: [&str; 2] = ["memory.group_file_refaults_count", "memory.file_refaults_count"];
        let Some((metric, rates)) = METRICS
            .into_iter()
            .map(|metric| (metric, self.increments(metric)))
            .find(|(_, rates)| rates.len() >= INCREMENTS_MIN)
        else {
            return;
        };
        let from = (metric, Derivation::Rate(1.0));
        self.add_from(FactId::file_refaults_median_per_s, median(&rates), from);
    }

    /// What the group holds in memory that cannot be dropped, and in swap, before the load; and by how much that grew since then
    /// beyond what its workers and the children of PHP-FPM took.
    pub(super) fn held_by_group(&mut self) {
        const HELD: &str = "memory.used_in_limit_bytes";
        const CHILDREN: [&str; 2] = ["php_fpm.*.pss_mean_bytes", "php_fpm.*.swap_pss_mean_bytes"];
        let swapped = |at| self.series.nearest("cgroup.swap_used_bytes", at, SAME_TIME_S).unwrap_or(0.0);
        let held =
            self.series.all(HELD).iter().map(|(at, bytes)| (*at, bytes + swapped(*at))).collect::<Vec<_>>();
        let Some((before, most)) = self.before_and_most(&held) else { return };
        let rise = |metric: &str| {
            self.before_and_most(self.series.all(metric))
                .map_or(0.0, |(before, most)| (most - before).max(0.0))
        };
        let workers = rise("worker_memory.pss_sum_bytes") + rise("worker_memory.swap_pss_sum_bytes");
        let mut children = 0.0;
        for template in CHILDREN.iter().filter_map(|name| self.series.template(name)) {
            for (pool, metric) in self.series.instances(template) {
                let count = self.series.max(&format!("php_fpm.{pool}.processes_count")).unwrap_or(0.0);
                children += count * rise(metric);
            }
        }
        let from = (HELD, Derivation::Max);
        self.add_from(FactId::group_held_before_bytes, Some(before), from);
        self.add_from(FactId::group_rest_grown_bytes, Some(most - before - workers - children), from);
    }

    /// The last of these readings before the load, and the largest one since it began.
    fn before_and_most(&self, readings: &[(f64, f64)]) -> Option<(f64, f64)> {
        let to_s = self.series.window().1;
        let before = readings.iter().rev().find(|(at, _)| *at <= 0.0)?.1;
        let since = readings.iter().filter(|(at, _)| *at > 0.0 && *at <= to_s).map(|(_, value)| *value);
        Some((before, since.reduce(f64::max)?))
    }

    /// By how much the largest worker grew, from the first third of the readings to the last one, if it went on all the time:
    /// else zero, as of workers that have become warm, or when the largest one was ended.
    pub(super) fn largest_worker(&mut self) {
        const LARGEST: &str = "worker_memory.pss_max_bytes";
        let levels = self.series.levels(LARGEST);
        let third = levels.len() / 3;
        if third < 2 {
            return;
        }
        let thirds =
            [&levels[..third], &levels[third..levels.len() - third], &levels[levels.len() - third..]];
        let [Some(first), Some(middle), Some(last)] = thirds.map(mean) else { return };
        let rise = last - first;
        // Half of it in each half of the time, give or take.
        let goes_on = rise > 0.0 && (0.25..=0.75).contains(&((middle - first) / rise));
        let rise = if goes_on { rise } else { 0.0 };
        self.add_from(FactId::worker_largest_rise_bytes, Some(rise), (LARGEST, Derivation::Mean));
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::FactId;
    use crate::facts::testing::{of, sample};

    #[test]
    fn growth_that_goes_on_is_told_from_warming_up() {
        for (largest, rise) in [
            ([20.0, 22.0, 24.0, 26.0, 28.0, 30.0], 8.0),
            ([5.0, 12.0, 18.0, 18.0, 18.0, 18.0], 0.0),
            ([12.0; 6], 0.0),
            ([30.0, 32.0, 34.0, 36.0, 20.0, 22.0], 0.0),
        ] {
            let reading = |(at, bytes): (usize, f64)| {
                sample(at as f64 + 1.0, "worker_memory", &[("worker_memory.pss_max_bytes", bytes)])
            };
            let facts = of(largest.into_iter().enumerate().map(reading).collect(), None);
            assert_eq!(facts.value(FactId::worker_largest_rise_bytes), Some(rise), "{largest:?}");
        }
    }

    #[test]
    fn pages_that_are_read_again_in_one_second_are_no_steady_rate() {
        for (name, counts, median) in [
            ("memory.file_refaults_count", [0.0, 10.0, 9000.0, 9000.0, 9010.0], Some(10.0)),
            ("memory.file_refaults_count", [0.0, 900.0, 2000.0, 3000.0, 4000.0], Some(1000.0)),
            ("memory.group_file_refaults_count", [5.0, 6.0, 7.0, 8.0, 9.0], Some(1.0)),
        ] {
            let reading = |(at, count): (usize, f64)| sample(at as f64 + 1.0, "memory", &[(name, count)]);
            let facts = of(counts.into_iter().enumerate().map(reading).collect(), None);
            assert_eq!(facts.value(FactId::file_refaults_median_per_s), median, "{name} {counts:?}");
        }
    }

    #[test]
    fn what_a_group_took_since_the_load_began_is_told_from_what_its_workers_did() {
        let held = |t_s, bytes| sample(t_s, "memory", &[("memory.used_in_limit_bytes", bytes)]);
        let swap = |t_s, bytes| sample(t_s, "cgroup", &[("cgroup.swap_used_bytes", bytes)]);
        let workers = |t_s, bytes| sample(t_s, "worker_memory", &[("worker_memory.pss_sum_bytes", bytes)]);
        let readings = vec![
            held(-1.0, 90.0),
            workers(-0.5, 40.0),
            held(-0.2, 100.0),
            held(0.9, 300.0),
            swap(1.0, 20.0),
            workers(1.2, 70.0),
            held(2.0, 250.0),
            held(20.0, 900.0),
        ];
        let facts = of(readings, None);
        let found =
            [FactId::group_held_before_bytes, FactId::group_rest_grown_bytes].map(|fact| facts.value(fact));
        assert_eq!(found, [Some(100.0), Some(190.0)]);
    }

    #[test]
    fn what_is_used_and_cannot_be_dropped_is_of_one_moment() {
        let used = |t_s, bytes| sample(t_s, "cgroup", &[("cgroup.memory_used_bytes", bytes)]);
        let held = |t_s, bytes| sample(t_s, "memory", &[("memory.used_in_limit_bytes", bytes)]);
        let readings =
            vec![used(1.0, 80.0), held(1.1, 30.0), used(2.0, 90.0), held(2.1, 50.0), used(9.0, 1e9)];
        assert_eq!(of(readings, None).value(FactId::group_page_cache_mean_bytes), Some(45.0));
    }
}
