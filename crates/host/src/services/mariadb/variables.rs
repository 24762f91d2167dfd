//! The variables of a database that webdyno replaces while it runs, and keeps in an option file.
//!
//! Facts: <https://mariadb.com/kb/en/server-system-variables/> (which are dynamic, their bounds),
//! <https://mariadb.com/kb/en/grant/#global-privileges> (who may set which since 10.5.2). What weakens how safely data is
//! written (`innodb_flush_log_at_trx_commit`, `sync_binlog`) is not among them.

use super::server::{self, DatabaseServer};
use super::{NAME, drop_in};
use crate::config_management::Managers;
use crate::services::common::edit::{self, Edited};
use crate::services::common::shape::Shape;
use crate::visibility::mount_namespace;
use mysql::Conn;
use mysql::prelude::Queryable;
use webdyno_model::change::{ApplyClass, Change, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;
use webdyno_model::topology::Access;
use webdyno_model::{Result, UserError};

/// A variable that takes effect at once.
#[derive(Debug)]
pub struct Variable {
    /// As `SHOW GLOBAL VARIABLES` gives it.
    pub name: &'static str,
    /// What a value may be.
    pub shape: Shape,
    /// The privilege that is enough to set it, beside SUPER and all.
    pub privilege: Option<&'static str>,
}

const CONNECTIONS: Option<&str> = Some("CONNECTION ADMIN");
const TIB: i64 = 1 << 40;

const fn row(name: &'static str, shape: Shape, privilege: Option<&'static str>) -> Variable {
    Variable { name, shape, privilege }
}

/// All that webdyno replaces.
#[rustfmt::skip] // a table, one a line
pub const VARIABLES: &[Variable] = &[
    row("join_buffer_size", Shape::Integer(128, 1 << 30), None),
    row("key_buffer_size", Shape::Integer(8, TIB), None),
    row("max_connections", Shape::Integer(10, 100_000), CONNECTIONS),
    row("max_heap_table_size", Shape::Integer(16_384, TIB), None),
    row("query_cache_size", Shape::Integer(0, 1 << 34), None),
    row("read_buffer_size", Shape::Integer(8192, 1 << 30), None),
    row("read_rnd_buffer_size", Shape::Integer(8200, 1 << 30), None),
    row("sort_buffer_size", Shape::Integer(1024, 1 << 30), None),
    row("table_open_cache", Shape::Integer(10, 1 << 20), None),
    row("thread_cache_size", Shape::Integer(0, 16_384), None),
    row("tmp_table_size", Shape::Integer(1024, TIB), None),
];

/// A variable by its name.
pub fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|known| known.name == name)
}

impl Variable {
    /// Whether a text is a value for it.
    pub fn accepts_text(&self, text: &str) -> bool {
        self.shape.accepts(&SettingValue::parse(text))
    }
}

/// Why a change is one for a person, and what helps.
type Obstacle = (String, Option<String>);

/// Renders changes of the server of a snapshot, with the server that they are for. Writes nothing.
pub fn prepare(
    snapshot: &ServiceSnapshot,
    access: &Access,
    changes: &[SettingChange],
) -> Result<(Preparation, Option<DatabaseServer>)> {
    let refused = |(why, hint): Obstacle| Ok((Preparation::NotPreparable { why, hint }, None));
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
        Err(error) => return refused((error.to_string(), Some(super::access::HOW_TO_GET_IN.into()))),
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
        return Err(UserError::cannot_run(
            "nothing to change: every setting already has the value that is wanted",
        ));
    }
    Ok((Preparation::Plan(Box::new(plan(wanted)?)), Some(server)))
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
    if !known.shape.accepts(to) {
        let why = format!("{name} cannot be `{}`", to.to_string().replace(['\r', '\n'], " "));
        return Err((why, Some(format!("it takes {}", known.shape.expects()))));
    }
    let asked = server::values(conn, &[known.name]).map_err(|error| (error.to_string(), None))?;
    let Some((_, now)) = asked.into_iter().next() else {
        return Err((format!("this server has no {name}"), None));
    };
    may_set(conn, known)?;
    let file = drop_in::place(snapshot.pid, name)?;
    Ok(Change {
        setting: SettingId::of_service(NAME, name),
        from: Some(SettingValue::parse(&now)),
        to: to.clone(),
        file: file.to_string_lossy().into_owned(),
        class: ApplyClass::Live,
    })
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
    let kept: Vec<drop_in::Kept> = changes.iter().map(drop_in::Kept::of).collect();
    let Edited { files, diff, managed } = edit::apply(&kept, &Managers::here())?;
    let class = if managed.is_empty() { ApplyClass::Live } else { ApplyClass::Manual };
    Ok(RenderedPlan { changes, files, class, diff, managed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_understood() {
        for (grant, privilege, expected) in [
            ("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED VIA unix_socket", None, true),
            ("GRANT PROCESS, SUPER ON *.* TO `w`@`%`", None, true),
            ("GRANT PROCESS, CONNECTION ADMIN ON *.* TO `w`@`%`", CONNECTIONS, true),
            ("GRANT PROCESS, CONNECTION ADMIN ON *.* TO `w`@`%`", None, false),
            ("GRANT PROCESS ON *.* TO `w`@`%`", CONNECTIONS, false),
            // Of one database only.
            ("GRANT ALL PRIVILEGES ON `shop`.* TO `w`@`%`", None, false),
            ("GRANT USAGE ON *.* TO `w`@`%`", CONNECTIONS, false),
        ] {
            assert_eq!(allows(grant, privilege), expected, "{grant}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_safe_to_put_into_a_statement() {
        let names: Vec<_> = VARIABLES.iter().map(|known| known.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(names.iter().all(is_plain), "{names:?}");
        for (value, expected) in [("76", true), ("1; DROP TABLE x", false), ("-1", false), ("''", false)] {
            assert_eq!(find("max_connections").unwrap().accepts_text(value), expected, "{value}");
        }
    }
}
