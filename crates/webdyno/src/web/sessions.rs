//! The sessions that are served: all below a directory, or the one under way. A name of a request is looked up among those that
//! are there, and never becomes a path.

use crate::comparing;
use axum::body::Bytes;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use webdyno_model::{Result, UserError};
use webdyno_session::history::{LogStamp, directory_of, history, log_stamp};
use webdyno_session::log::FILE_NAME;
use webdyno_session::recording::Recording;
use webdyno_session::view::{SessionEnd, View};

/// A session under way writes each second: one that wrote nothing for so long was killed.
const UNDER_WAY_MAX: Duration = Duration::from_secs(10);

/// Which sessions are served.
#[derive(Debug)]
pub enum Served {
    /// All whose run directories lie below this one.
    Below(PathBuf),
    /// The one in this run directory.
    One(PathBuf),
}

/// A page's data, made once for all who see the same state of a session.
struct MadePage {
    directory: PathBuf,
    stamp: Option<LogStamp>,
    data: Bytes,
}

/// Reads sessions for pages.
pub struct Sessions {
    served: Served,
    /// What was made last. It is locked while one is made: the next who wants it has it then.
    made: Mutex<Option<MadePage>>,
    /// Held while the list is read, so that recordings are read for the index once.
    listing: Mutex<()>,
}

impl Sessions {
    /// Of these.
    pub fn new(served: Served) -> Self {
        Self { served, made: Mutex::new(None), listing: Mutex::new(()) }
    }

    /// The name of the session, where it is only one.
    pub fn only(&self) -> Option<String> {
        match &self.served {
            Served::Below(_) => None,
            Served::One(directory) => Some(name_of(directory)),
        }
    }

    /// The run directory of a session.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let found = match &self.served {
            Served::Below(root) => directory_of(root, name)?,
            Served::One(directory) => (name == name_of(directory)).then(|| directory.clone()),
        };
        found.ok_or_else(|| UserError::cannot_run(format!("there is no session `{name}`")))
    }

    /// All sessions, the newest first, with the names that they are found by.
    pub fn list(&self) -> Result<Value> {
        let Served::Below(root) = &self.served else { return Ok(json!({ "sessions": [] })) };
        let _turn = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |session| {
            let mut one = json!(session);
            let directory = one["directory"].as_str().map(Path::new);
            one["id"] = json!(directory.and_then(|path| path.strip_prefix(root).ok()));
            one
        };
        let sessions: Vec<Value> = history(root, |_| {})?.sessions.into_iter().map(named).collect();
        Ok(json!({ "directory": root, "sessions": sessions }))
    }

    /// The data of a session's page, as JSON.
    pub fn page(&self, name: &str) -> Result<Bytes> {
        let directory = self.directory(name)?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = log_stamp(&directory);
        if let Some(known) = made.as_ref().filter(|made| made.directory == directory && made.stamp == stamp) {
            return Ok(known.data.clone());
        }
        let view = View::of(&Recording::read(&directory)?)?;
        let is_under_way = view.end == SessionEnd::Torn && is_written(&directory);
        let page = webdyno_report::page_data(&view);
        let page = if is_under_way { page.under_way() } else { page };
        let data = serde_json::to_vec(&page).map(Bytes::from);
        let data =
            data.map_err(|error| UserError::cannot_run(format!("cannot write it as json: {error}")))?;
        // Whether one goes on is another thing a moment later.
        *made = (!is_under_way).then(|| MadePage { directory, stamp, data: data.clone() });
        Ok(data)
    }

    /// Two sessions side by side; without the second one, the baseline of a tuning with its best load.
    pub fn compare(&self, a: &str, b: Option<&str>) -> Result<Value> {
        let b = b.map(|b| self.directory(b)).transpose()?;
        let report = comparing::compare(&self.directory(a)?, b.as_deref(), None)?;
        Ok(webdyno_report::compare_data(&report))
    }
}

/// Whether the log of a session grew just now.
fn is_written(directory: &Path) -> bool {
    let written = std::fs::metadata(directory.join(FILE_NAME)).and_then(|log| log.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|ago| ago < UNDER_WAY_MAX))
}

/// The name of a run directory that is served alone.
fn name_of(directory: &Path) -> String {
    directory.file_name().map_or_else(|| "session".into(), |name| name.to_string_lossy().into_owned())
}
