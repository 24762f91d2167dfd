//! What the collectors of the network share: which network namespace the service is in, netlink, and what is read once
//! for several of them.
//!
//! Facts: network_namespaces(7), proc_pid_net(5).

pub mod clients;
pub mod conntrack;
pub(super) mod counters;
pub(super) mod ethtool;
pub mod nic;
pub mod ports;
pub mod qdisc;
pub(super) mod route;
pub(super) mod shaping;
pub(super) mod socket_table;
pub mod sockets;
pub mod syns;
pub mod tcp;
pub mod upstreams;

use super::{Reading, Target};
use crate::os::procfs;
use crate::visibility::network_namespace;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A network namespace that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The one that we are in.
    Own,
    /// Another one, which this process is in.
    Of(u32),
}

impl Place {
    /// The directory whose files show it.
    pub fn net(self) -> String {
        match self {
            Self::Own => "/proc/self/net".to_owned(),
            Self::Of(pid) => format!("/proc/{pid}/net"),
        }
    }

    /// Runs `look` inside of it: for netlink and for `/proc/sys/net`.
    pub fn within<T>(self, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Own => look(),
            Self::Of(pid) => network_namespace::within(pid, look)?,
        }
    }
}

/// Knows which namespace the service is in.
#[derive(Debug, Default)]
pub(crate) struct Whereabouts {
    /// The last service seen in another network namespace: once it is gone, ours says nothing about it.
    pub other_namespace_pid: Option<u32>,
}

impl Whereabouts {
    /// The namespace of the service; an error when it was in another one than ours and is gone.
    pub fn place(&mut self, target: &Target) -> Result<Place, String> {
        let Some(pid) = target.service_pid else {
            return Ok(Place::Own);
        };
        // Who may not see the namespace of the service found its port in the own one.
        let namespaces = procfs::net_namespace(pid).ok().zip(procfs::net_namespace(std::process::id()).ok());
        match namespaces {
            Some((theirs, ours)) if theirs != ours => {
                self.other_namespace_pid = Some(pid);
                Ok(Place::Of(pid))
            }
            None if self.other_namespace_pid == Some(pid) => {
                Err(format!("process {pid} is gone, and its network namespace with it"))
            }
            _ => Ok(Place::Own),
        }
    }

    /// The namespaces to look at, with what stands before the names of their instances: the own one, and the service's
    /// where that is another one. When that is gone, the reading says so.
    pub fn places(&mut self, target: &Target, reading: &mut Reading) -> Vec<(Place, &'static str)> {
        let own = (Place::Own, "");
        match self.place(target) {
            Ok(Place::Own) => vec![own],
            Ok(other) => vec![own, (other, SERVICE)],
            Err(why) => {
                reading.problem(why);
                vec![own]
            }
        }
    }
}

/// CPU that this thread has used: what a reading cost, however busy the machine is.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
}

/// A reading of connections that took less is made every second.
const CHEAP: Duration = Duration::from_millis(1);
/// How long there is rest after a dear one, for each time it took; no longer than `REST_MAX`.
const REST: u32 = 1_200;
const REST_MAX: Duration = Duration::from_secs(30);

/// For how long connections are not read again after that took so long.
pub(super) fn rest_after(took: Duration) -> Option<Duration> {
    (took >= CHEAP).then(|| took.saturating_mul(REST).min(REST_MAX))
}

/// What stands before the names of what is in the service's network namespace when that is not ours.
pub(super) const SERVICE: &str = "service.";

/// What several collectors read is read once: each of them has a handle.
#[derive(Debug, Default, Clone)]
pub(crate) struct Shared(Arc<Mutex<Readings>>);

#[derive(Debug, Default)]
pub(crate) struct Readings {
    pub counters: counters::Recent,
    pub table: socket_table::Recent,
}

impl Shared {
    /// A thread that panicked while it held the lock left a reading that is there or not: never half of one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
