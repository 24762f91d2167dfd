//! What a database does for the service: connections, threads, caches, locks, scans, and the process itself.
//!
//! Facts: <https://mariadb.com/kb/en/server-status-variables/>,
//! <https://dev.mysql.com/doc/refman/8.0/en/server-status-variables.html>, proc_pid_stat(5), proc_pid_statm(5).
//!
//! One connection is kept, so that a database which has none left can still be asked; it counts among those in use. Who
//! is not let in asks again after a minute only: each refusal is an error in the database's log, and after
//! `max_connect_errors` of them it locks the host out. Its own few questions a second are counted with all others, each as
//! a scan, too. Counters that stand still are left out, see
//! [`crate::collectors::on_change`].

use crate::collectors::monotonic_counter::MonotonicCounter;
use crate::collectors::on_change::Changes;
use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::os::procfs;
use crate::services::mariadb::access::{self, Refusal};
use crate::services::mariadb::running::activities;
use crate::services::mariadb::{self, NAME};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use webdyno_model::service::ServiceSnapshot;

mod clients;
mod tables;
#[cfg(test)]
mod tests;

use tables::{STATUS, VARIABLES};

/// How long one waits who was not let in.
const DENIED_PAUSE: Duration = Duration::from_secs(60);

/// Variables are read in each so manieth reading: they hardly ever change.
const VARIABLES_EVERY: u64 = 5;

/// Statements are read in each so manieth reading.
const STATEMENTS_EVERY: u64 = 10;

/// Forms of statements that are told.
const STATEMENTS_MAX: usize = 10;

/// The collector.
#[derive(Default)]
pub struct Mariadb {
    conn: Option<Conn>,
    /// The process that it goes to.
    pid: Option<u32>,
    denied: Option<(Instant, Refusal)>,
    was_let_in: bool,
    refused_count: u64,
    readings_count: u64,
    changes: Changes,
    cpu: MonotonicCounter,
}

impl Mariadb {
    /// The connection, a new one if need be.
    fn conn(&mut self, target: &Target, service: &ServiceSnapshot) -> Result<&mut Conn, Refusal> {
        if self.pid != Some(service.pid) {
            (self.conn, self.denied, self.pid) = (None, None, Some(service.pid));
        }
        if let Some((_, refusal)) = self.denied.as_ref().filter(|(at, _)| at.elapsed() < DENIED_PAUSE) {
            return Err(refusal.clone());
        }
        if self.conn.is_none() {
            let connected = access::connect(service, &target.access);
            if let Err(refusal @ Refusal::Denied(_)) = &connected {
                self.denied = Some((Instant::now(), refusal.clone()));
            }
            self.conn = Some(connected?);
        }
        self.conn.as_mut().ok_or_else(|| Refusal::Failed("no connection".into()))
    }

    /// Asks for what the server tells.
    fn query(
        &mut self,
        target: &Target,
        service: &ServiceSnapshot,
        reading: &mut Reading,
    ) -> Result<(), Refusal> {
        let number = self.readings_count;
        let conn = self.conn(target, service)?;
        let status = rows(conn, "SHOW GLOBAL STATUS")?;
        for row in STATUS {
            reading.push_some(format!("{NAME}.{}", row.metric), row.of(&status));
        }
        if let Some(waits) = lock_waits(conn)? {
            reading.push(format!("{NAME}.lock_waiting_count"), waits.all_count as f64);
            reading.push(format!("{NAME}.query_cache_lock_waiting_count"), waits.query_cache_count as f64);
            reading.push(format!("{NAME}.metadata_lock_waiting_count"), waits.metadata_count as f64);
            reading.push(format!("{NAME}.committing_count"), waits.committing_count as f64);
        }
        if number.is_multiple_of(VARIABLES_EVERY) {
            let variables =
                rows(conn, &format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", tables::quoted()))?;
            for row in VARIABLES {
                reading.push_some(format!("{NAME}.{}", row.metric), row.of(&variables));
            }
        }
        if number.is_multiple_of(STATEMENTS_EVERY) {
            statements(conn, reading)?;
        }
        Ok(())
    }

    /// What is seen of the process without asking it; false when it is gone.
    fn process(&mut self, pid: u32, reading: &mut Reading) -> bool {
        let Some(stat) = procfs::stat(pid).ok().filter(|stat| !stat.has_ended()) else {
            reading.problem(format!("the database, process {pid}, is gone"));
            return false;
        };
        reading.push(format!("{NAME}.threads_count"), stat.threads_count as f64);
        let cpu_s = stat.cpu_ticks as f64 / procfs::clock_ticks_per_s() as f64;
        reading
            .push(format!("{NAME}.cpu_s"), self.cpu.update(u64::from(pid) << 32 ^ stat.start_ticks, cpu_s));
        let statm = procfs::read_text(format!("/proc/{pid}/statm")).unwrap_or_default();
        let resident = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let bytes = resident.map(|pages| pages as f64 * rustix::param::page_size() as f64);
        reading.push_some(format!("{NAME}.resident_bytes"), bytes);
        true
    }

    /// Asks, and says why that did not go.
    fn query_or_report(&mut self, target: &Target, service: &ServiceSnapshot, reading: &mut Reading) {
        let Err(refusal) = self.query(target, service, reading) else {
            self.was_let_in = true;
            return;
        };
        self.conn = None;
        self.refused_count += u64::from(refusal == Refusal::TooMany);
        let missing = mariadb::lacking(&refusal);
        match refusal {
            Refusal::Denied(_) => {
                // What was told before must not count as unchanged.
                if self.was_let_in {
                    reading.problem(&missing.why);
                }
                reading.missing.push(missing);
            }
            _ => reading.problem(missing.why),
        }
    }
}

/// Rows of a name and a value; of an answer that is broken off the connection is not used again.
fn rows(conn: &mut Conn, query: &str) -> Result<HashMap<String, String>, Refusal> {
    let rows: Vec<(String, String)> = conn.query(query).map_err(|error| access::refusal(&error))?;
    Ok(rows.into_iter().collect())
}

/// Statements that wait for a lock that is not InnoDB's.
#[derive(Debug, PartialEq, Eq)]
struct LockWaits {
    /// For any: of a table as a whole, its definition, one that the program took by `GET_LOCK`.
    all_count: usize,
    /// For the one that guards the query cache.
    query_cache_count: usize,
    /// For one of a definition: of a table, a schema, a stored procedure.
    metadata_count: usize,
    /// Statements that are done but for their transaction, which waits for the disk.
    committing_count: usize,
}

/// Those of others. Who may not see these (PROCESS) does not know: that is no zero.
fn lock_waits(conn: &mut Conn) -> Result<Option<LockWaits>, Refusal> {
    let others = match activities(conn, false) {
        Err(Refusal::Denied(_)) => return Ok(None),
        others => others?,
    };
    let states: Vec<&str> = others.iter().map(|other| other.state.as_str()).collect();
    Ok((!states.is_empty()).then(|| count_lock_waits(&states)))
}

/// By the states of statements: <https://mariadb.com/kb/en/general-thread-states/>.
fn count_lock_waits(states: &[&str]) -> LockWaits {
    let waits = |state: &&&str| {
        (state.starts_with("Waiting for") && state.ends_with("lock")) || **state == "User lock"
    };
    LockWaits {
        all_count: states.iter().filter(waits).count(),
        query_cache_count: states.iter().filter(|state| **state == QUERY_CACHE_LOCK).count(),
        metadata_count: states.iter().filter(waits).filter(|state| state.ends_with(METADATA_LOCK)).count(),
        committing_count: states.iter().filter(|state| COMMITTING.contains(state)).count(),
    }
}

/// stage_commit and its like of sql/mysqld.cc. Since 10.5 a connection gives its answer when the log is on the disk, and meanwhile has
/// the state that it had last: `Updating status` (`THD::async_state`; seen on 10.11 with a disk of 60 writes a second).
const COMMITTING: [&str; 4] =
    ["Commit", "Commit implicit", "Updating status", "Waiting for prior transaction to commit"];

/// stage_waiting_for_query_cache_lock of sql/mysqld.cc.
const QUERY_CACHE_LOCK: &str = "Waiting for query cache lock";

/// `Waiting for table metadata lock` and its like (MDL_key::m_namespace_to_wait_state_name of sql/mdl.cc).
const METADATA_LOCK: &str = "metadata lock";

/// What the forms of statements took that took longest.
fn statements(conn: &mut Conn, reading: &mut Reading) -> Result<(), Refusal> {
    type Row = (String, u64, u64, u64, u64, u64);
    let query = format!(
        "SELECT DIGEST, COUNT_STAR, SUM_TIMER_WAIT DIV 1000000, SUM_LOCK_TIME DIV 1000000, SUM_ROWS_EXAMINED, \
         SUM_NO_INDEX_USED FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST IS NOT NULL \
         ORDER BY SUM_TIMER_WAIT DESC LIMIT {STATEMENTS_MAX}"
    );
    let is_on = rows(conn, "SHOW GLOBAL VARIABLES LIKE 'performance_schema'")?;
    let lacks = |reading: &mut Reading, why: &str| reading.missing.push(mariadb::without_statements(why));
    if is_on.get("performance_schema").map(String::as_str) != Some("ON") {
        lacks(reading, "performance_schema is off");
        return Ok(());
    }
    let found: Vec<Row> = match conn.query(query).map_err(|error| access::refusal(&error)) {
        Ok(found) => found,
        Err(Refusal::Denied(why)) => {
            lacks(reading, &why);
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    for (digest, executions, time_us, lock_us, rows, without_index) in found {
        let values = [executions, time_us, lock_us, rows, without_index];
        for (name, value) in tables::STATEMENTS.iter().zip(values) {
            reading.push(format!("{NAME}.{digest}.{}", name.0), value as f64);
        }
    }
    Ok(())
}

impl Collector for Mariadb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn metrics(&self) -> Vec<Metric> {
        let process = [
            gauge("mariadb.threads_count", "/proc/PID/stat of the database", "ps -o nlwp= -p PID"),
            counter(
                "mariadb.cpu_s",
                "/proc/PID/stat of the database",
                format!(
                    "sed 's/.*) //' /proc/PID/stat | awk '{{print ($12+$13)/{}}}'",
                    procfs::clock_ticks_per_s()
                ),
            ),
            gauge(
                "mariadb.resident_bytes",
                "/proc/PID/statm of the database",
                "ps -o rss= -p PID | awk '{print $1*1024}'",
            ),
            gauge(
                "mariadb.clients_count",
                "/proc/PID/net/unix and tcp of the database",
                "grep -c ' 03 .*mysqld.sock' /proc/PID/net/unix",
            ),
            gauge(
                "mariadb.lock_waiting_count",
                "SHOW PROCESSLIST",
                "mariadb DATABASE -Ne 'SHOW PROCESSLIST' | cut -f7 | grep -cE '^(Waiting for.*lock|User lock)$'",
            ),
            gauge(
                "mariadb.query_cache_lock_waiting_count",
                "SHOW PROCESSLIST",
                format!("mariadb DATABASE -Ne 'SHOW PROCESSLIST' | cut -f7 | grep -c '^{QUERY_CACHE_LOCK}$'"),
            ),
            gauge(
                "mariadb.metadata_lock_waiting_count",
                "SHOW PROCESSLIST",
                format!(
                    "mariadb DATABASE -Ne 'SHOW PROCESSLIST' | cut -f7 | grep -c '^Waiting for.*{METADATA_LOCK}$'"
                ),
            ),
            gauge(
                "mariadb.committing_count",
                "SHOW PROCESSLIST",
                format!(
                    "mariadb DATABASE -Ne 'SHOW PROCESSLIST' | cut -f7 | grep -cE '^({})$'",
                    COMMITTING.join("|")
                ),
            ),
            counter(
                "mariadb.refused_count",
                "connections of webdyno itself that the database refused as too many",
                "mariadb DATABASE -e 'SELECT 1' 2>&1 | grep -c 1040",
            ),
        ];
        process.into_iter().chain(tables::metrics()).collect()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let mut services = target.services(NAME);
        // Where there is no database nothing is missing.
        let Some(service) = services.next() else { return reading };
        let others_count = services.count();
        if others_count > 0 {
            let why =
                format!("{} databases are there, and only process {} is read", others_count + 1, service.pid);
            reading.lacks("mariadb_others", why, "observe one of the others by --port");
        }
        // Who listens at its socket by now is another one, with totals of its own.
        match self.process(service.pid, &mut reading) {
            true => {
                let clients = clients::count(service).map(|count| count as f64);
                reading.push_some("mariadb.clients_count", clients);
                self.query_or_report(target, service, &mut reading);
            }
            false => self.conn = None,
        }
        reading.push("mariadb.refused_count", self.refused_count as f64);
        self.readings_count += 1;
        self.changes.only(reading, tables::may_miss)
    }

    fn mark_undelivered(&mut self) {
        self.changes = Changes::default();
    }
}
