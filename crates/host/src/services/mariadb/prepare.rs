//! Renders changes of a database's variables: what is in force, whether the account may set it, and the file that keeps it.

use super::NAME;
use super::access::HOW_TO_GET_IN;
use super::drop_in::{self, OptionFile};
use super::server::{self, DatabaseServer};
use super::variables::{BUFFER_POOL, KEY_BUFFER, VARIABLES, Variable, find};
use crate::config_management::Managers;
use crate::os::machine;
use crate::services::common::edit;
use crate::services::common::kept_values::KeptValue;
use crate::visibility::mount_namespace;
use mysql::Conn;
use mysql::prelude::Queryable;
use webdyno_model::change::{
    ApplyClass, Change, NOTHING_TO_CHANGE, Obstacle, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;
use webdyno_model::topology::Access;
use webdyno_model::{Result, UserError};

/// Renders changes of the server of a snapshot, with the server that they are for. Writes nothing.
pub fn prepare(
    snapshot: &ServiceSnapshot,
    access: &Access,
    changes: &[SettingChange],
) -> Result<(Preparation, Option<DatabaseServer>)> {
    let refused = |obstacle: Obstacle| Ok((Preparation::from(obstacle), None));
    if mount_namespace::has_other_root(snapshot.pid) {
        let why = "the database runs in a container: its files are not those of this machine";
        return refused((why.into(), Some("run the agent inside of the container".into())));
    }
    let Some(server) = DatabaseServer::of(snapshot, access) else {
        return refused(("the database listens nowhere that can be seen".into(), None));
    };
    let mut conn = match server.connect() {
        Ok(Some(conn)) => conn,
        Ok(None) => return refused(("the database has ended".into(), None)),
        Err(error) => return refused((error.to_string(), Some(HOW_TO_GET_IN.into()))),
    };
    let mut wanted: Vec<Change> = vec![];
    for change in changes {
        match replaced(&mut conn, snapshot, change) {
            Ok(change) if change.from.as_ref() == Some(&change.to) => {}
            Ok(change) => wanted.push(change),
            Err(obstacle) => return refused(obstacle),
        }
    }
    if wanted.is_empty() {
        return Err(UserError::cannot_run(NOTHING_TO_CHANGE));
    }
    match plan(wanted) {
        Ok(plan) => Ok((Preparation::Plan(Box::new(plan)), Some(server))),
        // Where it cannot be kept it is not set: the next start would undo what was proven.
        Err(error) => refused((error.message, error.hint)),
    }
}

/// A change with the value that it replaces and the file that keeps it; else why webdyno does not make it.
fn replaced(
    conn: &mut Conn,
    snapshot: &ServiceSnapshot,
    change: &SettingChange,
) -> std::result::Result<Change, Obstacle> {
    let (name, to) = (&change.setting.name, &change.to);
    let Some(known) = find(name) else {
        let names: Vec<_> = VARIABLES.iter().map(|known| known.name).collect();
        let why = format!("`{name}` is not a variable of {NAME} that webdyno changes");
        return Err((why, Some(format!("it sets {}", names.join(", ")))));
    };
    known.shape.check(name, to)?;
    let asked = server::values(conn, &[known.name]).map_err(|error| (error.to_string(), None))?;
    let Some((_, now)) = asked.into_iter().next() else {
        return Err((format!("this server has no {name}"), None));
    };
    if known.name == KEY_BUFFER && now == "0" {
        let why = format!(
            "{KEY_BUFFER} is 0, which could not be taken back: no server drops that cache while it runs"
        );
        return Err((why, Some(format!("set {KEY_BUFFER} in its option file, and restart it"))));
    }
    may_set(conn, known)?;
    let to = if known.name == BUFFER_POOL { pool_size(conn, to)? } else { to.clone() };
    let wanted = SettingChange { setting: SettingId::of_service(NAME, name), to };
    let file = drop_in::place(snapshot.pid, name)?;
    Ok(wanted.planned(Some(SettingValue::parse(&now)), file, ApplyClass::Live))
}

/// The share of the memory that the cache of InnoDB may have at most.
const POOL_FRACTION_MAX: f64 = 0.8;

/// The least step of that cache, where the server does not tell one.
const POOL_STEP_BYTES: i64 = 1 << 20;

/// A size that the server takes as it is: whole steps, and not above what it allows or memory holds.
///
/// Facts: <https://mariadb.com/kb/en/innodb-system-variables/#innodb_buffer_pool_size>: it is rounded to
/// `innodb_buffer_pool_chunk_size`, and where that is 0 (since 10.11.12) to MiB, up to `innodb_buffer_pool_size_max`.
fn pool_size(conn: &mut Conn, to: &SettingValue) -> std::result::Result<SettingValue, Obstacle> {
    const NAMES: [&str; 2] = ["innodb_buffer_pool_chunk_size", "innodb_buffer_pool_size_max"];
    let shown = server::values(conn, &NAMES).map_err(|error| (error.to_string(), None))?;
    let shown = |name: &str| shown.iter().find(|(known, _)| known == name)?.1.parse::<i64>().ok();
    let step = shown(NAMES[0]).unwrap_or(0).max(POOL_STEP_BYTES);
    let wanted = to.number().unwrap_or(0.0) as i64;
    let size = wanted.div_euclid(step).saturating_add(i64::from(wanted % step > 0)).saturating_mul(step);
    if let Some(most) = shown(NAMES[1]).filter(|most| *most > 0 && *most < size) {
        let why = format!("the server lets {BUFFER_POOL} grow to {most} until it is started anew");
        return Err((why, Some(format!("set {} = {size} in its option file, and restart it", NAMES[1]))));
    }
    let memory = machine::environment().memory_bytes.map(|bytes| POOL_FRACTION_MAX * bytes as f64);
    if memory.is_some_and(|memory| size as f64 > memory) {
        return Err((format!("{BUFFER_POOL} {size} is more than 80% of the memory"), None));
    }
    Ok(SettingValue::Integer(size))
}

/// Whether the account may set a variable: `SHOW GRANTS`.
fn may_set(conn: &mut Conn, variable: &Variable) -> std::result::Result<(), Obstacle> {
    let failed = |error: mysql::Error| (format!("the grants of the account are not known: {error}"), None);
    let grants: Vec<String> = conn.query("SHOW GRANTS").map_err(failed)?;
    if grants.iter().any(|grant| allows(grant, variable.privilege)) {
        return Ok(());
    }
    let account: Option<String> = conn.query_first("SELECT CURRENT_USER()").map_err(failed)?;
    let account = account.unwrap_or_default();
    let privilege = variable.privilege.unwrap_or("SUPER");
    let (user, host) = account.rsplit_once('@').unwrap_or((&account, "localhost"));
    Err((
        format!("the account {account} may not set {}", variable.name),
        Some(format!("GRANT {privilege} ON *.* TO '{user}'@'{host}'")),
    ))
}

/// Whether a line of `SHOW GRANTS` gives enough.
fn allows(grant: &str, privilege: Option<&str>) -> bool {
    let Some((given, _)) = grant.split_once(" ON *.* TO ") else { return false };
    let given = given.strip_prefix("GRANT ").unwrap_or(given);
    let enough = ["ALL PRIVILEGES", "SUPER", "SYSTEM_VARIABLES_ADMIN"];
    given.split(", ").any(|one| enough.contains(&one) || Some(one) == privilege)
}

/// The plan of changes, with the file that keeps them as it will be written then.
fn plan(changes: Vec<Change>) -> Result<RenderedPlan> {
    let kept: Vec<KeptValue<OptionFile>> = changes.iter().map(KeptValue::of).collect();
    Ok(edit::apply(&kept, &Managers::here())?.plan(changes, ApplyClass::Live))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_understood() {
        let connections = Some("CONNECTION ADMIN");
        for (grant, privilege, expected) in [
            ("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED VIA unix_socket", None, true),
            ("GRANT PROCESS, SUPER ON *.* TO `w`@`%`", None, true),
            ("GRANT PROCESS, CONNECTION ADMIN ON *.* TO `w`@`%`", connections, true),
            ("GRANT PROCESS, CONNECTION ADMIN ON *.* TO `w`@`%`", None, false),
            ("GRANT PROCESS ON *.* TO `w`@`%`", connections, false),
            // Of one database only.
            ("GRANT ALL PRIVILEGES ON `shop`.* TO `w`@`%`", None, false),
            ("GRANT USAGE ON *.* TO `w`@`%`", connections, false),
        ] {
            assert_eq!(allows(grant, privilege), expected, "{grant}");
        }
    }
}
