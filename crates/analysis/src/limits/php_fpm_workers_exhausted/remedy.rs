//! How many processes a pool should have: what is wanted at once, bounded by memory, and what that should give.

use crate::facts::{FactId, Facts};
use crate::limits::manual_remedy::manual;
use crate::limits::php_fpm_workers_exhausted::pool::FullPool;
use crate::resources::worker_remedies::{CPU_FRACTION_MAX, PREDICTION_ERROR, PREDICTION_ERROR_CPU};
use crate::resources::workers::HEADROOM;
use crate::resources::{concurrency, database_connections, memory_pressure, php_fpm, setting_source};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Predicted, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The share of the available memory that more processes may take: the rest is for what they make others need.
const MEMORY_FRACTION_MAX: f64 = 0.8;

pub(crate) fn remedies(facts: &Facts, pool: &FullPool<'_>) -> Vec<Remedy> {
    let name = Some(pool.set_as.as_str()).filter(|name| !name.is_empty());
    let reload = php_fpm::reload_risk(facts, name);
    // Behind an address whose pool is not known all of the program's are counted: not what the pool may have.
    let counted = pool.processes.filter(|_| !pool.is_address || pool.limit.is_some());
    let Some(processes) = counted.filter(|processes| *processes >= 1.0) else {
        let why = "as many as there are busy children and waiting requests, plus a third";
        return vec![manual(php_fpm::setting_of(name, SETTING), &format!("{BEHIND}; {reload}"), why)];
    };
    let demand = demand(facts, pool, processes);
    let wanted = (HEADROOM * demand).ceil();
    let fits = processes_that_fit(facts, pool.name, processes);
    let to = fits.map_or(wanted, |fits| wanted.min(fits));
    let now = pool.limit.filter(|_| pool.limit_of_all.is_none()).unwrap_or(processes);
    if wanted <= now && fits.is_none_or(|fits| fits >= now) {
        let [allowed, run] = [now, processes].map(format_number);
        let why =
            format!("its files allow {allowed}, and {run} run: reload PHP-FPM, so that they are in force");
        return vec![manual(php_fpm::setting_of(name, SETTING), &reload, why)];
    }
    if to <= now {
        let why = "memory holds no more children: reduce the time per request, or add memory";
        return vec![manual(SettingId::hardware("memory"), "none", why)];
    }
    let bound = match (to < wanted, fits) {
        (true, Some(fits)) => format!(", bounded by memory, which holds {}", format_number(fits)),
        _ => String::new(),
    };
    if let Some(most) = pool.limit_of_all {
        return vec![more_of_all(facts, pool, (processes, most), to)];
    }
    // A pool that starts its processes one by one meets a burst of requests with few of them for many seconds. Where
    // memory is known to hold all, they are there from the start.
    let becomes_static = fits.is_some() && mode(facts, pool).is_some_and(|mode| mode != STATIC);
    let mut remedy = Remedy {
        setting: php_fpm::setting_of(name, SETTING),
        from: Some(SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Reload,
        risk: format!("{}{BEHIND}; {reload}", memory(facts, pool, to, becomes_static)),
        why: format!(
            "{} concurrent requests need a process, plus 30% headroom{bound}",
            format_number(demand)
        ),
        predicted: predict(facts, pool, processes, to),
        together_with: becomes_static
            .then(|| SettingChange {
                setting: php_fpm::setting_of(name, MODE),
                to: SettingValue::Text(STATIC.into()),
            })
            .into_iter()
            .chain(php_fpm::processes_of_all(facts, &pool.set_as, to))
            .chain(database_connections::needed_with_workers(facts, to))
            .collect(),
    };
    if let Some(source) = setting_source::pool_setting_source(facts, &pool.set_as, SETTING) {
        setting_source::add_source(&mut remedy, &source);
    }
    vec![remedy]
}

/// The bound of all pools is what is met: as many more as this pool wants, which may have to be allowed them, too.
fn more_of_all(facts: &Facts, pool: &FullPool<'_>, (processes, most): (f64, f64), to: f64) -> Remedy {
    let name = Some(pool.set_as.as_str());
    let own =
        SettingChange { setting: php_fpm::setting_of(name, SETTING), to: SettingValue::Integer(to as i64) };
    let allowed = pool.limit.unwrap_or(processes);
    Remedy {
        setting: SettingId::of_service("php_fpm", php_fpm::OF_ALL_SETTING),
        from: Some(SettingValue::Integer(most as i64)),
        to: Some(SettingValue::Integer((most + to - processes) as i64)),
        class: ApplyClass::Reload,
        risk: format!("{}{BEHIND}; {}", memory(facts, pool, to, false), php_fpm::reload_risk(facts, name)),
        why: format!(
            "pool {} may have {} children and gets {}, as all pools together have {}; {} are wanted there",
            pool.name,
            format_number(allowed),
            format_number(processes),
            format_number(most),
            format_number(to)
        ),
        predicted: predict(facts, pool, processes, to),
        together_with: (to > allowed)
            .then_some(own)
            .into_iter()
            .chain(database_connections::needed_with_workers(facts, to))
            .collect(),
    }
}

pub(super) const SETTING: &str = "pm.max_children";

/// How many processes a pool has while it has nothing to do, and the mode in which it always has all.
const MODE: &str = "pm";
const STATIC: &str = "static";

/// How the pool starts its processes, where its files are known.
fn mode(facts: &Facts, pool: &FullPool<'_>) -> Option<String> {
    Some(setting_source::pool_setting_source(facts, &pool.set_as, MODE)?.value.to_string())
}
const BEHIND: &str = "more concurrent requests for the database and other backends";

/// What is busy, and what waits for it: in the pool's queue, and in that of the server in front, which is full of what the
/// pool's queue holds up. Where requests come at a rate of their own, that rate times the time each takes.
fn demand(facts: &Facts, pool: &FullPool<'_>, processes: f64) -> f64 {
    let now = processes + pool.queue + facts.value(FactId::accept_queue_mean).unwrap_or(0.0);
    let time_s = facts.ended_per_s().map(|rate| processes / rate);
    let at = |rate: Option<f64>| rate.zip(time_s).map_or(0.0, |(rate, time_s)| rate * time_s);
    let offered = at(facts.value(FactId::offered_rate));
    let now = match facts.value(FactId::connections_cap) {
        Some(cap) if offered > processes => offered.min(cap),
        _ => now,
    };
    now.max(at(concurrency::goal_rate(facts)))
}

/// How many processes memory holds, with the connections to the database that go along. A process that is swapped out in part is
/// larger than what is in memory.
pub(crate) fn processes_that_fit(facts: &Facts, pool: &str, processes: f64) -> Option<f64> {
    let held = facts.value_of(FactId::fpm_process_memory_bytes, pool).filter(|bytes| *bytes > 0.0)?;
    let each = held + facts.value_of(FactId::pool_swap_mean_bytes, pool).unwrap_or(0.0);
    let usable = processes * held + memory_pressure::room_bytes(facts, MEMORY_FRACTION_MAX)?;
    Some(database_connections::workers_that_fit_with(facts, usable, (each, 1.0)))
}

/// What the processes take, and whether that is at once.
fn memory(facts: &Facts, pool: &FullPool<'_>, to: f64, becomes_static: bool) -> String {
    let each = facts.value_of(FactId::fpm_process_memory_bytes, pool.name);
    let mode = if becomes_static { Some(STATIC.to_owned()) } else { mode(facts, pool) };
    let when = match mode.as_deref() {
        Some(STATIC) => ", used from the start, as pm = static starts all of them",
        Some("dynamic" | "ondemand") => ", once so many are needed",
        _ => "",
    };
    each.map_or(String::new(), |each| {
        format!("up to {} of memory for all processes{when}; ", format_bytes(each * to))
    })
}

/// As many as are in flight can be served at once, what the site takes of the processors grows with them, and no more is
/// answered than is asked for.
fn predict(facts: &Facts, pool: &FullPool<'_>, processes: f64, to: f64) -> Option<Predicted> {
    let ended_per_s = facts.ended_per_s()?;
    let wanted = processes + pool.queue + facts.value(FactId::accept_queue_mean).unwrap_or(0.0);
    let by_processes = ended_per_s * (to.min(wanted) / processes).max(1.0);
    let room = || {
        let (busy, cores) = (
            facts.value(FactId::cpu_busy_fraction)? * facts.value(FactId::cores)?,
            facts.value(FactId::cores)?,
        );
        let own = facts.value(FactId::site_cpu_cores)? + facts.value(FactId::client_cpu_cores).unwrap_or(0.0);
        // What runs at a low priority gives way.
        let others = busy - own - facts.value(FactId::ahead_yielding_cpu_cores).unwrap_or(0.0);
        let room = (CPU_FRACTION_MAX * cores - others.max(0.0)).max(0.0);
        (own > 0.0).then(|| ended_per_s * (room / own).max(1.0))
    };
    let (rate, error) = match room() {
        Some(by_cpu) if by_cpu < by_processes => (by_cpu, PREDICTION_ERROR_CPU),
        _ => (by_processes, PREDICTION_ERROR),
    };
    Some(concurrency::predicted(facts, rate, error))
}

#[cfg(test)]
mod tests {
    use crate::facts::FactId;
    use crate::facts::testing::{facts, of_pool};
    use crate::limits::php_fpm_workers_exhausted::finding::tests::{FULL, LOAD, with};
    use crate::resources::php_fpm::tests::add_fpm_backend;
    use webdyno_model::change::ApplyClass;
    use webdyno_model::service::SettingValue;

    #[test]
    fn it_starts_from_what_the_files_say() {
        let mut facts = facts(LOAD, &[]);
        of_pool(&mut facts, "www", FULL);
        let pool = [("www", "pm.max_children", "5"), ("www", "pm", "static")];
        add_fpm_backend(&mut facts, &[("process_control_timeout", "0"), ("process.max", "20")], &pool);
        let remedy =
            crate::limits::php_fpm_workers_exhausted::finding::check(&facts).unwrap().remedies.remove(0);
        assert_eq!((remedy.from, remedy.class), (Some(SettingValue::Integer(5)), ApplyClass::Reload));
        assert_eq!(remedy.setting.pool.as_deref(), Some("www"));
        assert!(remedy.why.contains("it is set in /etc/php/www.conf:12"), "{}", remedy.why);
        for part in ["used from the start", "process_control_timeout is 0"] {
            assert!(remedy.risk.contains(part), "{}", remedy.risk);
        }
        let with: Vec<_> = remedy.together_with.iter().map(|change| change.setting.name.as_str()).collect();
        assert_eq!(with, ["process.max"]);
    }

    #[test]
    fn what_the_files_allow_and_is_not_in_force_takes_a_reload() {
        let mut facts = facts(LOAD, &[]);
        of_pool(&mut facts, "www", &[FULL, &[(FactId::fpm_limit_reached, 1.0)]].concat());
        add_fpm_backend(&mut facts, &[], &[("www", "pm.max_children", "80")]);
        let remedy =
            crate::limits::php_fpm_workers_exhausted::finding::check(&facts).unwrap().remedies.remove(0);
        assert_eq!((remedy.setting.name.as_str(), remedy.to), ("pm.max_children", None));
        assert!(remedy.why.starts_with("its files allow 80, and 5 run: reload PHP-FPM"), "{}", remedy.why);
    }

    #[test]
    fn where_all_pools_together_have_no_more_that_bound_is_raised() {
        let found = |most: &str, program: f64, at_most: f64| {
            let mut facts = facts(&[LOAD, &[(FactId::fpm_program_processes, program)]].concat(), &[]);
            let holds = [(FactId::fpm_at_most_fraction, at_most)];
            of_pool(&mut facts, "www", &[FULL, &holds].concat());
            let pool = [("www", "pm.max_children", "50"), ("www", "pm", "dynamic")];
            add_fpm_backend(&mut facts, &[("process.max", most)], &pool);
            crate::limits::php_fpm_workers_exhausted::finding::check(&facts)
        };
        let finding = found("8", 9.0, 1.0).unwrap();
        let begins = "All 5 PHP-FPM children busy, and all pools together may have no more (process.max 8), in pool www;";
        assert!(finding.summary.starts_with(begins), "{}", finding.summary);
        let remedy = &finding.remedies[0];
        // 40 in flight and a third more are 52: 47 more than this pool has.
        assert_eq!(
            (remedy.setting.full_name(), remedy.from.clone(), remedy.to.clone()),
            ("php_fpm process.max".into(), Some(SettingValue::Integer(8)), Some(SettingValue::Integer(55)))
        );
        let with: Vec<_> = remedy.together_with.iter().map(|change| change.setting.name.as_str()).collect();
        assert_eq!(with, ["pm.max_children"]);
        for (most, program, at_most) in [("0", 9.0, 1.0), ("30", 9.0, 1.0), ("8", 9.0, 0.3)] {
            assert!(found(most, program, at_most).is_none(), "{most} {at_most}");
        }
    }

    #[test]
    fn the_value_is_what_is_wanted_at_once_and_memory_bounds_it() {
        let remedy = |load: &[(FactId, f64)]| with(&[], load).unwrap().remedies.remove(0);
        let first = remedy(&[]);
        assert_eq!(
            (first.setting.name.as_str(), first.to),
            ("pm.max_children", Some(SettingValue::Integer(52)))
        );
        assert!(
            first.risk.contains("156 MB") && first.risk.contains("process_control_timeout"),
            "{}",
            first.risk
        );
        // 33 a second with 5 processes; 40 are in flight.
        assert_eq!(first.predicted.unwrap().rate, 264.0);
        let tight = remedy(&[(FactId::memory_available_min_bytes, 30e6)]);
        assert_eq!(tight.to, Some(SettingValue::Integer(13)));
        let none = remedy(&[(FactId::memory_available_min_bytes, 1e6)]);
        assert_eq!((none.setting.target.name(), none.to), ("hardware", None));
        let open = remedy(&[(FactId::offered_rate, 100.0), (FactId::connections_cap, 200.0)]);
        // 100 a second of 5 / 33 s each.
        assert_eq!(open.to, Some(SettingValue::Integer(20)));
    }

    #[test]
    fn the_group_its_reserve_and_what_is_swapped_bound_it_too() {
        let group = [(FactId::memory_limit_bytes, 200e6), (FactId::memory_available_min_bytes, 8e9)];
        let to = |used: f64, swapped: f64| {
            let load = [&group[..], &[(FactId::memory_used_in_limit_max_bytes, used)]].concat();
            let finding = with(&[(FactId::pool_swap_mean_bytes, swapped)], &load).unwrap();
            finding.remedies[0].to.clone()
        };
        // (200 - 140 - 20 of reserve) MB beside five of 3 MB.
        assert_eq!(to(140e6, 0.0), Some(SettingValue::Integer(18)));
        assert_eq!(to(140e6, 3e6), Some(SettingValue::Integer(9)));
        assert_eq!(to(185e6, 0.0), None, "the reserve is in use");
    }

    #[test]
    fn processors_bound_the_prediction() {
        let load = [(FactId::cpu_busy_fraction, 0.4), (FactId::site_cpu_cores, 0.6)];
        let predicted = with(&[], &load).unwrap().remedies.remove(0).predicted.unwrap();
        // (0.95 x 2 - 0.2) / 0.6 times 33.
        assert_eq!(predicted.rate, 93.5);
    }
}
