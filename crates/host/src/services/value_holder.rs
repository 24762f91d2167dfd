//! Who holds values that can be replaced while everything runs: the kernel, or a server that takes them from a client. Such a
//! value is not in a file until it is kept.

use super::common::kept_values::with_values;
use super::listen_backlog::{self, ListeningSockets};
use super::mariadb::drop_in::OptionFile;
use super::mariadb::server::DatabaseServer;
use super::process_limit::kept::UnitFile;
use super::process_limit::task_group::{self, TaskGroup};
use super::process_limit::{self, Limited, LimitedProcess};
use super::resource_control::memory::{self, MemoryLimit};
use super::resource_control::processors::{self, AllowedProcessors};
use super::resource_control::{self, Controlled};
use super::sysctl;
use super::sysctl::files::SysctlFile;
use super::sysctl::space::{self, NetSpace};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Who holds a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueHolder {
    /// The kernel, for a network namespace; `None` for what is no network's.
    Kernel(Option<NetSpace>),
    /// A database server.
    Database(DatabaseServer),
    /// The kernel, for the processes of a service.
    Limits(LimitedProcess),
    /// The kernel, for the control group of a service.
    Tasks(TaskGroup),
    /// The kernel, for the listening sockets of a service.
    Listener(ListeningSockets),
    /// The kernel, for the processors of a service.
    Processors(AllowedProcessors),
    /// The kernel, for the memory of a service.
    Memory(MemoryLimit),
}

impl From<Controlled> for ValueHolder {
    fn from(controlled: Controlled) -> Self {
        match controlled {
            Controlled::Processors(processors) => Self::Processors(processors),
            Controlled::Memory(limit) => Self::Memory(limit),
        }
    }
}

impl From<Limited> for ValueHolder {
    fn from(limited: Limited) -> Self {
        match limited {
            Limited::Process(process) => Self::Limits(process),
            Limited::Tasks(group) => Self::Tasks(group),
        }
    }
}

impl ValueHolder {
    /// The name of the target in journals and changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kernel(_) => sysctl::NAME,
            Self::Database(_) => super::mariadb::NAME,
            Self::Limits(_) => process_limit::NAME,
            Self::Tasks(_) => task_group::NAME,
            Self::Listener(_) => listen_backlog::NAME,
            Self::Processors(_) => processors::NAME,
            Self::Memory(_) => memory::NAME,
        }
    }

    /// What it is gone with when it is gone.
    pub fn place(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "its network namespace",
            Self::Database(_) => "its database server",
            Self::Limits(_) | Self::Listener(_) => "its process",
            Self::Processors(AllowedProcessors::Threads(_)) => "its process",
            Self::Tasks(_) | Self::Processors(_) | Self::Memory(_) => "its control group",
        }
    }

    /// A value as it is now; `None` when the holder is gone: the network namespace, or the server, does not exist any more.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        match self {
            Self::Kernel(space) => space::read(name, space.as_ref()),
            Self::Database(server) => server.read(name),
            Self::Limits(process) => process.read(name),
            Self::Tasks(group) => group.read(name),
            Self::Listener(sockets) => sockets.read(name),
            Self::Processors(processors) => processors.read(name),
            Self::Memory(limit) => limit.read(name),
        }
    }

    /// Replaces a value. An error when the holder is gone.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        match self {
            Self::Kernel(space) => space::write(name, space.as_ref(), value),
            Self::Database(server) => server.write(name, value),
            Self::Limits(process) => process.write(name, value),
            Self::Tasks(group) => group.write(name, value),
            Self::Listener(sockets) => sockets.write(name, value),
            Self::Processors(processors) => processors.write(name, value),
            Self::Memory(limit) => limit.write(name, value),
        }
    }

    /// Whether a boot gives it the values that its files have, whatever it held before.
    pub fn ends_with_boot(&self) -> bool {
        !matches!(self, Self::Database(_))
    }

    /// Where a value is shown that is in no other file; `None` where a file could keep it.
    pub fn shown_in(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Kernel(_) => Some(space::path(name)),
            Self::Database(_) => None,
            Self::Limits(limited) => Some(process_limit::limits_file(limited.process.pid)),
            Self::Tasks(group) => Some(group.file()),
            Self::Listener(sockets) => Some(listen_backlog::shown_in(sockets.process.pid)),
            Self::Processors(processors) => Some(processors.shown_in()),
            Self::Memory(limit) => Some(limit.file.clone()),
        }
    }

    /// What a person has to do to keep what no file of ours keeps.
    pub fn to_keep(&self) -> Option<&str> {
        match self {
            Self::Limits(LimitedProcess { to_keep, .. }) | Self::Tasks(TaskGroup { to_keep, .. }) => {
                Some(to_keep.as_str()).filter(|text| !text.is_empty())
            }
            Self::Listener(sockets) => sockets.to_keep.as_deref(),
            Self::Processors(_) | Self::Memory(_) => Some(resource_control::TO_KEEP),
            Self::Kernel(_) | Self::Database(_) => None,
        }
    }

    /// Whether it holds for the processes of one service and goes with them: then it may be replaced for a server that this
    /// session started as well.
    pub fn is_of_service_only(&self) -> bool {
        matches!(self, Self::Processors(_) | Self::Memory(_))
    }

    /// A text of a file that sets such values at the start, with these.
    pub fn with_values<'a>(
        &self,
        path: &Path,
        text: &str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        match self {
            Self::Kernel(_) => with_values::<SysctlFile>(path, text, values),
            Self::Database(_) => with_values::<OptionFile>(path, text, values),
            Self::Limits(limited) => limited.with_values(path, text, values),
            Self::Tasks(_) => with_values::<UnitFile>(path, text, values),
            Self::Listener(_) | Self::Processors(_) | Self::Memory(_) => text.to_owned(),
        }
    }
}
