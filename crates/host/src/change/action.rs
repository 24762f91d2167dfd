//! What is done to a server, each with all that its undo needs.

use crate::os::process::ProcessName;
use crate::services::value_holder::ValueHolder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use webdyno_model::change::{ApplyClass, Change};
use webdyno_model::service::{Control, FileId, Inherited, SettingValue};

/// One act on a server. It is in the journal before it happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "act")]
pub enum Action {
    /// A file gets new content.
    WriteFile(WriteFile),
    /// A value that the kernel or a running server holds is replaced.
    WriteValue(WriteValue),
    /// A service takes over what is on disk.
    Activate(Activate),
    /// A program is started that must not outlive the session.
    Launch(Launch),
    /// Files are installed that revert everything at the next boot; they go when there is nothing to revert.
    BootHook(BootHook),
}

/// A file gets new content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// Absolute, symbolic links resolved.
    pub path: String,
    /// What was there; `None` when there was no such file.
    pub before: Option<OldFile>,
    /// SHA-256 of what is written.
    pub after_sha256: String,
    /// The service that reads it.
    pub served: Served,
    /// How the change takes effect; `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ApplyClass>,
    /// When it was about to be written, in microseconds since 1970; `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<i64>,
    /// The folder that it is in: where that is another one, the path means another file. `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<FileId>,
    /// Whether that folder is made for it, and goes with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub makes_folder: bool,
}

/// Whether a service has to take over what a write put there: what is only read at boot needs nobody.
pub fn is_read_at_boot_only(write: &WriteFile) -> bool {
    write.class == Some(ApplyClass::Live)
}

/// A value that the kernel or a running server holds is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteValue {
    /// As its holder names it: `net.core.somaxconn`, `max_connections`.
    pub name: String,
    /// What it was.
    pub before: String,
    /// What is written.
    pub after: String,
    /// Who holds it.
    pub holder: ValueHolder,
    /// The file in which it is set when it is kept; `None` where no start sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_in: Option<String>,
    /// The service that it was changed for.
    pub served: Served,
}

/// A service takes over what is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activate {
    /// The service, and how it was controlled before.
    pub served: Served,
    /// How the change takes effect.
    pub class: ApplyClass,
    /// The values that the running program showed before, where it shows them.
    pub running: BTreeMap<String, SettingValue>,
    /// The settings that change; empty in journals of before that was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Whether others used the service then: whoever undoes it must not drop their connections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live_traffic: bool,
}

/// A program is started that must not outlive the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Absolute path first.
    pub command: Vec<String>,
    /// Written by the program when it has gone to the background.
    pub pid_file: String,
    /// It answers here when it is ready.
    pub port: u16,
    /// A directory in the state directory that is its own: it is removed when the program is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What it is started in, if not in what we are in ourselves. Never written: stopping does not need it, and an
    /// environment may hold secrets.
    #[serde(skip)]
    pub surroundings: Option<Surroundings>,
}

impl Launch {
    /// A program in our own surroundings.
    pub fn new(command: Vec<String>, pid_file: String, port: u16) -> Self {
        Self { command, pid_file, port, folder: None, surroundings: None }
    }
}

/// What a program is started in.
#[derive(Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: String,
    /// User and group; `None` for our own.
    pub user: Option<(u32, u32)>,
    /// What it shall have besides: umask, limits.
    pub inherited: Option<Inherited>,
}

impl std::fmt::Debug for Surroundings {
    /// Without the values of the environment, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("directory", &self.directory)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Files are installed that revert everything at the next boot. All are ours alone, by their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootHook {
    /// The files, in the order in which they are created.
    pub files: Vec<String>,
    /// The directories that had to be made for them.
    pub folders: Vec<String>,
    /// The table of a boot that has to name them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<BootTable>,
}

/// A table that names what is started at boot, and gets one more name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTable {
    /// Absolute.
    pub path: String,
    /// What was there.
    pub before: OldFile,
    /// SHA-256 of what is written.
    pub after_sha256: String,
    /// The name that is added.
    pub name: String,
}

/// A service on its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// `apache`.
    pub service: String,
    /// Where it answers.
    pub port: u16,
    /// How it is reloaded, or started again.
    pub control: Control,
}

/// What the launched program turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// The main process.
    #[serde(flatten)]
    pub process: ProcessName,
    /// Its process group, when it leads one.
    pub group: Option<u32>,
}

/// A file as it was found: everything that reverting it needs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFile {
    /// The bytes.
    #[serde(with = "in_base64")]
    pub content: Vec<u8>,
    /// Their SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was last changed: seconds since 1970, and nanoseconds. Services compare it with their last reload.
    pub modified: Option<(i64, i64)>,
    /// Extended attributes that could be read (the SELinux label and access lists among them), values in base64.
    pub attributes: BTreeMap<String, String>,
}

impl std::fmt::Debug for OldFile {
    /// Without the content: configuration may hold secrets, and errors may be shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OldFile")
            .field("bytes", &self.content.len())
            .field("sha256", &self.sha256)
            .field("mode", &format_args!("{:o}", self.mode))
            .field("owner", &(self.uid, self.gid))
            .finish_non_exhaustive()
    }
}

/// Bytes as base64 text (RFC 4648, section 4).
pub mod in_base64 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Bytes to text.
    pub fn encode(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    /// Text to bytes; `None` when it is not base64.
    pub fn decode(text: &str) -> Option<Vec<u8>> {
        STANDARD.decode(text).ok()
    }

    /// For serde.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(bytes))
    }

    /// For serde.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).ok_or_else(|| serde::de::Error::custom("not base64"))
    }
}
