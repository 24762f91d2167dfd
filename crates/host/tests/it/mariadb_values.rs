//! Values of a real MariaDB: whoever is killed at whatever act, also when the server was started anew since, what is in force
//! and the option file are as before, or as they were kept.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::fake::{FakeServer, acts_apart, empty_folder, leave_out_between, victim_of, victim_order};
use crate::mariadb::Database;
use mysql::prelude::Queryable;
use std::path::Path;
use std::sync::Arc;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Changer, Tools};
use webdyno_host::services::Observe;
use webdyno_host::services::mariadb::{Mariadb, prepare};
use webdyno_host::services::value_holder::ValueHolder;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::topology::Access;
use webdyno_model::{Result, UserError};

const CONNECTIONS: &str = "max_connections";
const THREADS: &str = "thread_cache_size";

fn prepared(
    pid: u32,
    access: &Access,
    changes: &[(&str, i64)],
) -> Result<(Preparation, Option<ValueHolder>)> {
    let change = |(name, to): &(&str, i64)| SettingChange {
        setting: SettingId::of_service("mariadb", *name),
        to: SettingValue::Integer(*to),
    };
    let changes: Vec<_> = changes.iter().map(change).collect();
    let snapshot = Mariadb.backend(pid).unwrap().unwrap();
    let (preparation, server) = prepare::prepare(&snapshot, access, &changes)?;
    Ok((preparation, server.map(ValueHolder::Database)))
}

fn apply(changer: &mut Changer, server: &FakeServer, pid: u32, changes: &[(&str, i64)]) -> Result<u64> {
    let (preparation, holder) = prepared(pid, &Access::default(), changes)?;
    let plan = preparation.into_plan()?;
    assert_eq!(plan.class, ApplyClass::Live);
    changer.remember(&plan);
    changer.remember_holder(holder.unwrap());
    changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).map(|applied| applied.mark)
}

/// A session that sets, sets again, reverts that, keeps or not, sets a last time, and ends.
fn session(server: &FakeServer, pid: u32, keep: bool) -> Result<()> {
    let mut changer = server.changer();
    apply(&mut changer, server, pid, &[(CONNECTIONS, 76), (THREADS, 9)])?;
    let second = apply(&mut changer, server, pid, &[(CONNECTIONS, 90)])?;
    changer.revert(second, false)?;
    if keep {
        changer.keep()?;
    }
    apply(&mut changer, server, pid, &[(CONNECTIONS, 120)])?;
    changer.end(ClosedBy::Tool)?;
    Ok(())
}

fn tools(server: &FakeServer) -> Tools {
    server.tools(Arc::new(RealDisk))
}

impl Database {
    /// One of 20 connections, which reads a folder of option files as Debian's does.
    fn of_twenty(folder: &Path) -> Self {
        let options =
            "max-connections=20\nthread-cache-size=3\nkey-buffer-size=0\ntmp-table-size=18446744073709551615";
        Self::start(&format!("{options}\n!includedir {}\n", folder.display()))
    }

    /// What is in force, and what our own file says.
    fn picture(&self, folder: &Path) -> (Vec<String>, String) {
        let mut conn = self.connect().unwrap();
        let value =
            |name: &&str| -> String { conn.query_first(format!("SELECT @@GLOBAL.{name}")).unwrap().unwrap() };
        let values = [CONNECTIONS, THREADS].iter().map(value).collect();
        let kept = std::fs::read_to_string(folder.join("zzz-webdyno.cnf")).unwrap_or_default();
        let lines = kept.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
        (values, lines.collect::<Vec<_>>().join(", "))
    }

    fn start_anew(&mut self) {
        self.process.end();
        self.process = Self::spawn(self.folder.path());
        self.wait();
    }
}

fn picture(connections: &str, threads: &str, kept: &str) -> (Vec<String>, String) {
    (vec![connections.into(), threads.into()], kept.into())
}

const KEPT: &str = "max_connections = 76, thread_cache_size = 9";

/// The process that is killed, and a session that nobody kills.
#[test]
fn values_of_a_database_are_set_kept_and_rolled_back() {
    if let Some((server, _, order)) = victim_order() {
        session(&server, order[0].parse().unwrap(), order[1] == "true").unwrap();
        std::process::exit(77);
    }
    let conf = empty_folder();
    let mut database = Database::of_twenty(conf.path());
    let original = picture("20", "3", "");
    for keep in [false, true] {
        let folder = empty_folder();
        let server = FakeServer::set_up(folder.path());
        session(&server, database.process.pid(), keep).unwrap();
        let expected = if keep { picture("76", "9", KEPT) } else { original.clone() };
        assert_eq!(database.picture(conf.path()), expected, "keep {keep}");
        if keep {
            // The file wins at its next start, and the new process is found and put back, too.
            database.start_anew();
            assert_eq!(database.picture(conf.path()), expected);
        }
        rollback_with(&tools(&server)).unwrap();
        assert_eq!(database.picture(conf.path()), original, "keep {keep}");
        assert!(!conf.path().join("zzz-webdyno.cnf").exists());
        assert_eq!(rollback_with(&tools(&server)).unwrap(), Vec::<String>::new());
    }
    kill_everywhere(&database, conf.path());
    without_its_guardian(&mut database, conf.path());
}

fn kill_everywhere(database: &Database, conf: &Path) {
    let pid = database.process.pid();
    let (original, kept) = (picture("20", "3", ""), picture("76", "9", KEPT));
    let mut kills = 0;
    for (within, keep) in [(false, true), (true, true), (true, false)] {
        for act in (1..).step_by(acts_apart()) {
            let folder = empty_folder();
            drop(FakeServer::set_up(folder.path()));
            let context = format!("act {act} within {within} keep {keep}");
            let order = format!("{}|{act}|{within}|{pid}|{keep}", folder.path().display());
            let name = "mariadb_values::values_of_a_database_are_set_kept_and_rolled_back";
            let killed = victim_of(&["env"], name, &order);
            let server = FakeServer::at(folder.path());
            let interrupted = undo_interrupted_with(&tools(&server)).unwrap();
            assert!(interrupted.problem.is_none(), "{context}: {interrupted:?}");
            let seen = database.picture(conf);
            assert!((keep && seen == kept) || seen == original, "{context}: {seen:?}");
            rollback_with(&tools(&server)).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(database.picture(conf), original, "{context}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    leave_out_between(kills);
    assert!(kills * acts_apart() > 40, "only {kills} kills");
}

/// A change whose guardian is dead, and the database started anew or gone by the time of the rollback.
fn without_its_guardian(database: &mut Database, conf: &Path) {
    for is_gone in [false, true] {
        let folder = empty_folder();
        let server = FakeServer::set_up(folder.path());
        let mut changer = server.changer();
        apply(&mut changer, &server, database.process.pid(), &[(CONNECTIONS, 76)]).unwrap();
        // Dropped without an end, as a kill leaves it.
        drop(changer);
        match is_gone {
            false => database.start_anew(),
            true => database.process.end(),
        }
        let lines = rollback_with(&tools(&server)).unwrap();
        match is_gone {
            false => assert_eq!(database.picture(conf), picture("20", "3", ""), "{lines:?}"),
            true => assert!(
                matches!(&lines[..], [line] if line.ends_with("max_connections is gone with its database server")),
                "{lines:?}"
            ),
        }
    }
}

#[test]
fn what_cannot_be_set_is_told_before_anything_is_touched() {
    let conf = empty_folder();
    let database = Database::of_twenty(conf.path());
    let pid = database.process.pid();
    let refused = |access: &Access, changes: &[(&str, i64)]| match prepared(pid, access, changes).unwrap() {
        (Preparation::NotPreparable { why, hint }, None) => (why, hint.unwrap_or_default()),
        other => panic!("{other:?}"),
    };
    let mut conn = database.connect().unwrap();
    conn.query_drop("CREATE USER watch@localhost IDENTIFIED BY 'w'").unwrap();
    let account = conf.path().join("account");
    std::fs::write(&account, "[client]\nuser=watch\npassword=w\n").unwrap();
    let watching = Access { db_option_file: Some(account.display().to_string()) };
    let root = Access::default();
    for (access, change, why, hint) in [
        (
            &watching,
            (CONNECTIONS, 76),
            "watch@localhost may not set max_connections",
            "GRANT CONNECTION ADMIN ON *.* TO 'watch'@'localhost'",
        ),
        (&watching, (THREADS, 76), "may not set thread_cache_size", "GRANT SUPER ON *.* TO"),
        (
            &root,
            ("innodb_flush_log_at_trx_commit", 0),
            "is not a variable of mariadb that webdyno changes",
            "it sets",
        ),
        (&root, ("innodb_buffer_pool_size", 1 << 39), "is more than 80% of the memory", ""),
        (
            &root,
            ("key_buffer_size", 1 << 20),
            "key_buffer_size is 0, which could not be taken back",
            "restart",
        ),
        (&root, (CONNECTIONS, 1), "max_connections cannot be `1`", "a whole number from 10"),
    ] {
        let (found, helps) = refused(access, &[change]);
        assert!(found.contains(why) && helps.contains(hint), "{found}: {helps}");
    }
    // Without the folder only the main file is left, which has the password of a client.
    let hidden = conf.path().with_extension("hidden");
    std::fs::rename(conf.path(), &hidden).unwrap();
    let (why, _) = refused(&root, &[(CONNECTIONS, 76)]);
    std::fs::rename(&hidden, conf.path()).unwrap();
    assert!(why.contains("my.cnf, which holds a password"), "{why}");
    conn.query_drop("GRANT CONNECTION ADMIN ON *.* TO watch@localhost").unwrap();
    let (allowed, _) = prepared(pid, &watching, &[(CONNECTIONS, 76)]).unwrap();
    let plan = allowed.into_plan().unwrap();
    assert!(plan.diff.contains("+max_connections = 76") && plan.managed.is_empty(), "{}", plan.diff);
    goes_back_beyond_proposals(pid);
    // In steps that the server takes as they are.
    let (pool, _) = prepared(pid, &root, &[("innodb_buffer_pool_size", (40 << 20) + 1)]).unwrap();
    let to = pool.into_plan().unwrap().changes[0].to.number().unwrap();
    assert!(to > f64::from(40 << 20) && to % f64::from(1 << 20) == 0.0, "{to}");
    let as_it_is: UserError = prepared(pid, &root, &[(CONNECTIONS, 20)]).unwrap_err();
    assert!(as_it_is.message.contains("nothing to change"), "{as_it_is}");
    assert_eq!(database.picture(conf.path()), picture("20", "3", ""));
}

/// A value of before that nobody would propose goes back.
fn goes_back_beyond_proposals(pid: u32) {
    const TABLES: &str = "tmp_table_size";
    let server = prepared(pid, &Access::default(), &[(TABLES, 1 << 20)]).unwrap().1.unwrap();
    let original = server.read(TABLES).unwrap().unwrap();
    assert!(original.len() > 19, "{original}");
    for value in ["1048576", original.as_str()] {
        server.write(TABLES, value).unwrap();
        assert_eq!(server.read(TABLES).unwrap().as_deref(), Some(value));
    }
}
