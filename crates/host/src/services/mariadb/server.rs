//! A running database server whose values are read and replaced by a client: found again after it was started anew.
//!
//! Facts: <https://mariadb.com/kb/en/set/>, <https://mariadb.com/kb/en/show-variables/>.

use super::access::{self, Refusal};
use super::variables;
use super::{EXECUTABLES, NAME, endpoint, lacking, listens};
use crate::os::process::ProcessName;
use crate::os::procfs;
use mysql::Conn;
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};
use webdyno_model::service::{Endpoint, ServiceSnapshot};
use webdyno_model::topology::Access;

/// How long is waited for a place among its connections: those of a load that has just ended go one by one, and behind workers that
/// wait for each other that took more than five seconds.
const PLACE_MAX: Duration = Duration::from_secs(20);
const PLACE_POLL: Duration = Duration::from_millis(200);

/// A database server of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseServer {
    /// Its process when it was seen last.
    pub process: ProcessName,
    /// Where it is reached: `unix:/run/mysqld/mysqld.sock`, `127.0.0.1:3306`.
    pub address: String,
    /// The option file with the account; `None` for the accounts of the agent's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_file: Option<String>,
}

impl DatabaseServer {
    /// That of a snapshot; `None` when it listens nowhere, or has ended.
    pub fn of(snapshot: &ServiceSnapshot, access: &Access) -> Option<Self> {
        Some(Self {
            process: ProcessName::of(snapshot.pid)?,
            address: snapshot.endpoints.first()?.address.clone(),
            option_file: access.db_option_file.clone(),
        })
    }

    /// A value as `SHOW GLOBAL VARIABLES` gives it; `None` when no server answers there any more.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        let Some(mut conn) = self.connect()? else { return Ok(None) };
        let found = values(&mut conn, &[name])?.pop();
        found.map(|(_, value)| Some(value)).ok_or_else(|| io::Error::other("the server has no such variable"))
    }

    /// Replaces a value for all connections that come.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        // Nothing else is ever put into a statement.
        if variables::find(name).is_none() || !variables::is_whole_number(value) {
            return Err(io::Error::other(format!("`{value}` is no value for it")));
        }
        let conn = self.connect()?;
        let mut conn = conn.ok_or_else(|| io::Error::other("its database server is gone"))?;
        conn.query_drop(format!("SET GLOBAL {name} = {value}")).map_err(|error| failed(&error))
    }

    /// A connection; `None` when no server answers there any more.
    pub fn connect(&self) -> io::Result<Option<Conn>> {
        let Some(pid) = self.pid() else { return Ok(None) };
        let endpoint = Endpoint { name: "server".into(), address: self.address.clone(), path: None };
        let snapshot =
            ServiceSnapshot { service: NAME.into(), pid, endpoints: vec![endpoint], ..Default::default() };
        let access = Access { db_option_file: self.option_file.clone() };
        let deadline = Instant::now() + PLACE_MAX;
        loop {
            match access::connect(&snapshot, &access) {
                Ok(conn) => return Ok(Some(conn)),
                Err(Refusal::TooMany) if Instant::now() < deadline => std::thread::sleep(PLACE_POLL),
                Err(refusal) => return Err(io::Error::other(lacking(&refusal).why)),
            }
        }
    }

    /// Its main process now: the one that was seen, else the one that listens where that did.
    fn pid(&self) -> Option<u32> {
        if self.process.is_alive() {
            return Some(self.process.pid);
        }
        let is_server = |pid: &u32| {
            let path = procfs::executable(*pid).map(|(path, _)| path).unwrap_or_default();
            EXECUTABLES.iter().any(|name| path.rsplit('/').next() == Some(name))
        };
        let is_it = |pid: &u32| endpoint(&listens(*pid)).is_some_and(|found| found.address == self.address);
        procfs::pids().into_iter().filter(is_server).find(is_it)
    }
}

/// The values of these names that the server has.
pub fn values(conn: &mut Conn, names: &[&str]) -> io::Result<Vec<(String, String)>> {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", quoted.join(","));
    conn.query(query).map_err(|error| failed(&error))
}

fn failed(error: &mysql::Error) -> io::Error {
    let why = match access::refusal(error) {
        Refusal::TooMany => "too many connections".into(),
        Refusal::Denied(why) | Refusal::Failed(why) => why,
    };
    io::Error::other(why)
}
