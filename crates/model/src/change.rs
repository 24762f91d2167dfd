//! Changes: what is to be set, how it takes effect, and the plan that is shown before anything happens.

use crate::service::SettingValue;
use serde::{Deserialize, Serialize};

/// How a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyClass {
    /// At once.
    Live,
    /// By a graceful reload.
    Reload,
    /// By a stop and a start: there is an outage.
    Restart,
    /// Only a person can do it.
    Manual,
}

impl ApplyClass {
    /// The word that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Reload => "reload",
            Self::Restart => "restart",
            Self::Manual => "manual",
        }
    }
}

/// A wish: this setting to this value. The service decides where it is written and how it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// `apache`.
    pub service: String,
    /// `MaxRequestWorkers`.
    pub setting: String,
    /// The wanted value.
    pub to: SettingValue,
}

/// One changed setting, as plans and reports show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// `apache`.
    pub service: String,
    /// `MaxRequestWorkers`.
    pub setting: String,
    /// The value in force before; `None` when it is not known.
    pub from: Option<SettingValue>,
    /// The wanted value.
    pub to: SettingValue,
    /// The file that is written.
    pub file: String,
    /// How it takes effect.
    pub class: ApplyClass,
}

/// A plan as the server's side rendered it: nothing is written yet, and everything that will be is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderedPlan {
    /// Settings that change; those already right are not in it.
    pub changes: Vec<Change>,
    /// The files, with their bytes before and after.
    pub files: Vec<FileEdit>,
    /// How the whole takes effect: the most disruptive class of its changes, or by hand when a file is managed.
    pub class: ApplyClass,
    /// Unified diff of all files.
    pub diff: String,
    /// Files that belong to a configuration management: then the plan is for people to take over, and never written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed: Vec<Managed>,
}

/// A file that something else writes and would write again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// The file.
    pub path: String,
    /// `Puppet`.
    pub by: String,
    /// How that is known, in words.
    pub why: String,
}

/// What the operator allows, and by what the site is known to be well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ApplyOptions {
    /// Whether a restart is allowed.
    #[serde(default)]
    pub allow_restart: bool,
    /// Whether a reload may put changes of others in force that wait for one.
    #[serde(default)]
    pub yes_reload: bool,
    /// Whether others use the site now: then nothing may be done that would drop their connections needlessly.
    #[serde(default)]
    pub live_traffic: bool,
    /// Requests whose answers must stay as they were; empty for the root of the site.
    #[serde(default)]
    pub probes: Vec<SiteProbe>,
}

/// A request that shows whether a site answers as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProbe {
    /// The value of the `Host` header.
    pub host: String,
    /// Path and query.
    pub target: String,
}

/// Where the undo of a session's changes is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalPlace {
    /// The session's id in it.
    pub id: String,
    /// The state directory, on the server's host.
    pub state_directory: String,
    /// Whether a rollback looks there by itself; else `WEBDYNO_STATE` must say so.
    pub is_default: bool,
}

/// The new content of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEdit {
    /// Absolute path, symbolic links resolved.
    pub path: String,
    /// SHA-256 of the bytes that the plan was made from; `None` when there was no such file.
    pub before_sha256: Option<String>,
    /// The text that the plan was made from, for who exports it; `None` when there was no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The new content. Configuration that is not UTF-8 is not edited.
    pub after: String,
}
