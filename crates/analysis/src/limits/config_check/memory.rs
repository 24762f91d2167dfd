//! Numbers that memory cannot hold: workers, children of PHP-FPM, connections of the database.

use super::{Contradiction, Severity, apache, contradiction, fact, placed, pools, remedy, whole};
use crate::facts::Facts;
use crate::limits::memory_exhausted::ID;
use crate::limits::memory_exhausted::ceiling::{children_that_fit, free_and_limit};
use crate::limits::memory_exhausted::finding::workers_that_fit;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Fact;

const DATABASE: &str = "db-connection-memory";

/// More workers than memory holds by what one of them costs now. Idle ones are smaller than busy ones, so that even fewer
/// fit under load.
pub(crate) fn workers_beyond_memory(facts: &Facts) -> Option<Contradiction> {
    let service = apache(facts)?;
    let allowed = placed(service, "MaxRequestWorkers")?;
    let fits = workers_that_fit(facts).filter(|fits| *fits >= 1.0)?;
    let each = facts.value("worker_private_mean_bytes")?;
    (allowed.number()? > fits).then_some(())?;
    let threads = facts.threads_per_process();
    let what = if threads > 1.0 {
        format!("process of {} workers", format_number(threads))
    } else {
        "worker".into()
    };
    let summary = format!(
        "MaxRequestWorkers is {}, and memory holds {} workers: a {what} has {} of its own now, and more while it works. \
         When they are all needed, the machine swaps.",
        allowed.told(),
        format_number(fits),
        format_bytes(each)
    );
    let mut cited: Vec<Fact> = fact("MaxRequestWorkers", "workers", &allowed).into_iter().collect();
    cited.extend(facts.cite(&[
        "worker_private_mean_bytes",
        "memory_limit_bytes",
        "memory_available_min_bytes",
    ]));
    let remedy = remedy(
        ("apache", "MaxRequestWorkers"),
        (Some(allowed.value), whole(fits)),
        ApplyClass::Reload,
        (
            format!("{} workers of this size fit beside a reserve of a tenth", format_number(fits)),
            "fewer requests at once: the others wait in the accept queue",
        ),
    );
    Some(contradiction((Severity::Breaks, 0.8), ID, summary, cited, remedy))
}

/// More children of a pool than memory holds.
pub(crate) fn children_beyond_memory(facts: &Facts) -> Option<Contradiction> {
    let beyond = |(pool, allowed): &(String, super::Placed)| {
        let fits = children_that_fit(facts, pool).filter(|fits| *fits >= 1.0)?;
        (allowed.number()? > fits).then_some(fits)
    };
    let found = pools(facts).into_iter().find_map(|one| Some((beyond(&one)?, one)));
    let (fits, (pool, allowed)) = found?;
    let each = facts.value_of("ahead_fpm_child_bytes", &pool)?;
    let summary = format!(
        "pm.max_children of pool {pool} is {}, and memory holds {} children of {} each. When they are all needed, the \
         machine swaps.",
        allowed.told(),
        format_number(fits),
        format_bytes(each)
    );
    let mut cited: Vec<Fact> = fact("pm.max_children", "processes", &allowed).into_iter().collect();
    cited.extend(facts.cite_of(&["ahead_fpm_child_bytes"], &pool));
    cited.extend(facts.cite(&["memory_limit_bytes", "memory_available_min_bytes"]));
    let remedy = remedy(
        ("php_fpm", "pm.max_children"),
        (Some(allowed.value), whole(fits)),
        ApplyClass::Reload,
        (
            format!("{} children of this size fit beside a reserve of a tenth", format_number(fits)),
            "fewer scripts at once: the others wait in the pool's queue",
        ),
    );
    Some(contradiction((Severity::Breaks, 0.8), ID, summary, cited, remedy))
}

/// Buffers that each connection of the database may take: `(setting, fact)`.
const BUFFERS: [(&str, &str); 6] = [
    ("sort_buffer_size", "ahead_database_sort_buffer_bytes"),
    ("join_buffer_size", "ahead_database_join_buffer_bytes"),
    ("read_buffer_size", "ahead_database_read_buffer_bytes"),
    ("read_rnd_buffer_size", "ahead_database_read_rnd_buffer_bytes"),
    ("thread_stack", "ahead_database_thread_stack_bytes"),
    ("binlog_cache_size", "ahead_database_binlog_cache_bytes"),
];
/// Buffers that are there once.
const SHARED: [&str; 2] = ["ahead_database_buffer_pool_bytes", "ahead_database_key_buffer_bytes"];
/// From this size on a buffer is larger than any default.
const LARGE_BYTES: f64 = 8e6;

/// Buffers of all connections together beyond the memory there is. A statement takes a buffer only when it sorts or joins:
/// a limit that is never reached with defaults of a few megabytes is no contradiction.
pub(crate) fn buffers_beyond_memory(facts: &Facts) -> Option<Contradiction> {
    let connections = facts.value("ahead_database_limit")?;
    let each: f64 = BUFFERS.iter().filter_map(|(_, fact)| facts.value(fact)).sum();
    let shared: f64 = SHARED.iter().filter_map(|fact| facts.value(fact)).sum();
    let largest = BUFFERS
        .iter()
        .filter_map(|(setting, fact)| Some((*setting, *fact, facts.value(fact)?)))
        .max_by(|a, b| a.2.total_cmp(&b.2))?;
    let (_, memory) = free_and_limit(facts)?;
    let wanted = connections * each + shared;
    (wanted > memory && largest.2 >= LARGE_BYTES).then_some(())?;
    let (setting, name, now) = largest;
    let summary = format!(
        "Each connection of the database may take {} of buffers, and {} connections are allowed: with the buffers that \
         are there once that is {}, and there are {} of memory.",
        format_bytes(each),
        format_number(connections),
        format_bytes(wanted),
        format_bytes(memory)
    );
    let cited = facts.cite(&[name, "ahead_database_limit", SHARED[0], "memory_limit_bytes"]);
    let (to, why) =
        (2_097_152.0, format!("{setting} is the largest of them; 2 MiB suffice for nearly all statements"));
    let remedy = remedy(
        ("mariadb", setting),
        (Some(whole(now)), whole(to)),
        ApplyClass::Live,
        (why, "a statement that sorts more writes temporary files"),
    );
    Some(contradiction((Severity::Breaks, 0.7), DATABASE, summary, cited, remedy))
}
