//! Users of a scenario whom nobody knows: its load sent by another program, while the diagnosis only watches.
//!
//! wrk sends what it can ([`wrk`]), our own generator, in a process of its own, the rest. The process of the users says in a
//! file who sends before it begins, as only it has read the load.

pub mod wrk;

use serde::{Deserialize, Serialize};
use std::path::Path;
use webdyno_model::error::io_error;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// The file of the run directory that says who sends.
pub const FILE: &str = "users.json";
/// The script of wrk, beside it.
pub const SCRIPT: &str = "users.lua";
/// wrk, as results name it.
pub const WRK: &str = "wrk";
/// Our own generator, as results name it.
pub const OWN: &str = "webdyno";

/// Users are there for so long before somebody looks, seconds.
const BEFORE_S: f64 = 5.0;
/// Where the first seconds of a load are what counts, it begins so long after the watch was asked for, seconds.
const AFTER_S: f64 = 4.0;

/// Who sends, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsersInfo {
    /// [`WRK`] or [`OWN`].
    pub program: String,
    /// Why it is not wrk.
    pub why: Option<String>,
    /// The port that they go to.
    pub port: u16,
    /// How long they are there before the watch begins; negative when they come after it was asked for.
    pub before_s: f64,
}

impl UsersInfo {
    /// The users of a load. `warmup_us` is what its scenario leaves out of its start. An error when it has no URL.
    pub fn of(workload: &Workload, warmup_us: Option<u64>) -> Result<Self> {
        let port =
            workload.requests.first().and_then(|request| wrk::port(&request.url)).ok_or_else(|| {
                UserError::usage("the load names no port that users could go to").hint("give it a URL")
            })?;
        let why = wrk::plan(workload).err().map(str::to_owned);
        let before_s = match warmup_us {
            Some(0) => -AFTER_S,
            other => other.map_or(0.0, |us| us as f64 / 1e6).max(BEFORE_S),
        };
        Ok(Self { program: if why.is_none() { WRK } else { OWN }.into(), why, port, before_s })
    }

    /// Says it to whoever started the users. The file is whole as soon as it is there.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let (new, path) = (directory.join("users.new"), directory.join(FILE));
        let text = serde_json::to_string(self).unwrap_or_default();
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| io_error("write", path.display(), &error))
    }

    /// What was said; `None` as long as nothing was.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(directory.join(FILE)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::{Arrival, RequestSpec};

    #[test]
    fn users_are_told_with_who_sends_and_since_when() {
        let request = RequestSpec { url: "https://server/".into(), ..RequestSpec::default() };
        let closed = Workload { requests: vec![request], ..Workload::default() };
        let open = Workload { arrival: Arrival::Open { rate_per_s: 5.0, poisson: false }, ..closed.clone() };
        for (workload, warmup_us, program, before_s) in [
            (&closed, None, WRK, 5.0),
            (&closed, Some(15_000_000), WRK, 15.0),
            (&open, Some(2_000_000), OWN, 5.0),
            (&open, Some(0), OWN, -4.0),
        ] {
            let users = UsersInfo::of(workload, warmup_us).unwrap();
            assert_eq!((users.program.as_str(), users.before_s, users.port), (program, before_s, 443));
            assert_eq!(users.why.is_some(), program == OWN);
            let place = tempfile::tempdir().unwrap();
            assert_eq!(UsersInfo::read(place.path()), None);
            users.write(place.path()).unwrap();
            assert_eq!(UsersInfo::read(place.path()), Some(users));
        }
        assert!(UsersInfo::of(&Workload::default(), None).is_err());
    }
}
