//! Buffers of all connections of the database that memory cannot hold.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{ConfigFinding, Severity, config_finding, remedy, whole_number};
use crate::resources::memory_pressure::free_and_limit;
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// Buffers that each connection of the database may take: `(setting, fact)`.
const BUFFERS: [(&str, FactId); 6] = [
    ("sort_buffer_size", FactId::ahead_database_sort_buffer_bytes),
    ("join_buffer_size", FactId::ahead_database_join_buffer_bytes),
    ("read_buffer_size", FactId::ahead_database_read_buffer_bytes),
    ("read_rnd_buffer_size", FactId::ahead_database_read_rnd_buffer_bytes),
    ("thread_stack", FactId::ahead_database_thread_stack_bytes),
    ("binlog_cache_size", FactId::ahead_database_binlog_cache_bytes),
];
/// Buffers that are there once.
const SHARED: [FactId; 2] =
    [FactId::ahead_database_buffer_pool_bytes, FactId::ahead_database_key_buffer_bytes];
/// From this size on a buffer is larger than any default.
const LARGE_BYTES: f64 = 8e6;

/// Buffers of all connections together beyond the memory there is. A statement takes a buffer only when it sorts or joins:
/// a limit that is never reached with defaults of a few megabytes is no contradiction.
pub(crate) fn buffers_beyond_memory(facts: &Facts) -> Option<ConfigFinding> {
    let connections = facts.value(FactId::ahead_database_limit)?;
    let each: f64 = BUFFERS.iter().filter_map(|(_, fact)| facts.value(*fact)).sum();
    let shared: f64 = SHARED.into_iter().filter_map(|fact| facts.value(fact)).sum();
    // The stack can be changed by a restart only, and is the program's.
    let largest = BUFFERS
        .into_iter()
        .filter(|(setting, _)| *setting != "thread_stack")
        .filter_map(|(setting, fact)| Some((setting, fact, facts.value(fact)?)))
        .max_by(|a, b| a.2.total_cmp(&b.2))?;
    let (_, memory) = free_and_limit(facts)?;
    let wanted = connections * each + shared;
    (wanted > memory && largest.2 >= LARGE_BYTES).then_some(())?;
    let (setting, name, now) = largest;
    let summary = format!(
        "Database buffers may need {} of {} of memory: up to {} for each of {} allowed connections, plus shared buffers.",
        format_bytes(wanted),
        format_bytes(memory),
        format_bytes(each),
        format_number(connections)
    );
    let cited = facts.cite(&[name, FactId::ahead_database_limit, SHARED[0], FactId::memory_limit_bytes]);
    let (to, why) =
        (2_097_152.0, format!("{setting} is the largest of them; 2 MiB is enough for nearly all statements"));
    let remedy = remedy(
        SettingId::of_service("mariadb", setting),
        (Some(whole_number(now)), whole_number(to)),
        ApplyClass::Live,
        (why, "larger sorts use temporary files"),
    );
    Some(config_finding((Severity::Breaks, 0.7), LimitId::DbConnectionMemory, summary, cited, remedy))
}
