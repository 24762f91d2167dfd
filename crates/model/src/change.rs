//! Changes: what is to be set, how it takes effect, and the plan that is shown before anything happens.

use crate::service::SettingValue;
use crate::setting::SettingId;
use crate::{Result, UserError};
use serde::{Deserialize, Serialize};
use std::path::Path;

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
    /// By the operator alone: a manual change.
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

/// A setting and the value that it should get. Its target decides where that is written and how it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Which setting.
    #[serde(flatten)]
    pub setting: SettingId,
    /// The wanted value.
    pub to: SettingValue,
}

impl SettingChange {
    /// The change as plans show it: from the value in force, written in this file.
    pub fn planned(&self, from: Option<SettingValue>, file: impl AsRef<Path>, class: ApplyClass) -> Change {
        let file = file.as_ref().to_string_lossy().into_owned();
        Change { setting: self.setting.clone(), from, to: self.to.clone(), file, class, server: None }
    }
}

/// One changed setting, as plans and reports show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which setting.
    #[serde(flatten)]
    pub setting: SettingId,
    /// The value in force before; `None` when it is not known.
    pub from: Option<SettingValue>,
    /// The wanted value.
    pub to: SettingValue,
    /// The file that is written.
    pub file: String,
    /// How it takes effect.
    pub class: ApplyClass,
    /// The role of the host that it is made on; `None` for the one under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
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
    pub managed: Vec<ManagedFile>,
    /// Why it is for a person to decide, in sentences: then the plan is for people to take over, and never written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_decide: Vec<String>,
}

impl RenderedPlan {
    /// Of values that take effect at once, and no file.
    pub fn live(changes: Vec<Change>, diff: String) -> Self {
        Self { changes, files: vec![], class: ApplyClass::Live, diff, managed: vec![], to_decide: vec![] }
    }

    /// Whether it is only proposed: its files are others', or a person has to decide.
    pub fn is_proposal(&self) -> bool {
        !self.managed.is_empty() || !self.to_decide.is_empty()
    }

    /// The role of the host that it is for: a plan is for one; `None` for the one under load.
    pub fn server(&self) -> Option<&str> {
        self.changes.first()?.server.as_deref()
    }

    /// The same plan for the host of this role.
    pub fn on(mut self, role: Option<&str>) -> Self {
        self.changes.iter_mut().for_each(|change| change.server = role.map(str::to_owned));
        self
    }
}

/// What targets say of setting changes that are in force already.
pub const NOTHING_TO_CHANGE: &str = "nothing to change: every setting already has the value that is wanted";

/// What a target makes of setting changes that it is to prepare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preparation {
    /// It can make them, as this plan says.
    Plan(Box<RenderedPlan>),
    /// It cannot: they are for a person.
    NotPreparable {
        /// Why, in words.
        why: String,
        /// What a person can do instead, or needs to know; `None` when there is nothing to add.
        hint: Option<String>,
    },
}

/// Why changes are for a person, and what helps.
pub type Obstacle = (String, Option<String>);

impl From<Obstacle> for Preparation {
    fn from((why, hint): Obstacle) -> Self {
        Self::NotPreparable { why, hint }
    }
}

impl From<UserError> for Preparation {
    fn from(error: UserError) -> Self {
        Self::NotPreparable { why: error.message, hint: error.hint }
    }
}

impl From<std::result::Result<RenderedPlan, Obstacle>> for Preparation {
    fn from(planned: std::result::Result<RenderedPlan, Obstacle>) -> Self {
        planned.map_or_else(Self::from, |plan| Self::Plan(Box::new(plan)))
    }
}

impl Preparation {
    /// The answer of a target that cannot make a change.
    pub fn not_preparable(why: impl Into<String>) -> Self {
        Self::NotPreparable { why: why.into(), hint: None }
    }

    /// The plan; for those who need it, an error that says why there is none.
    pub fn into_plan(self) -> Result<RenderedPlan> {
        match self {
            Self::Plan(plan) => Ok(*plan),
            Self::NotPreparable { why, hint } => {
                let error = UserError::cannot_run(why);
                Err(match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
        }
    }
}

/// A file that something else writes and would write again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedFile {
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
    /// Whether it is asked over TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
}

/// A host that is changed beside the one under load.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangedHost {
    /// Its role: `db`, `host`.
    pub role: String,
    /// With which words of `--server` it is reached; `None` where it is this machine, or where they may hold secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
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
