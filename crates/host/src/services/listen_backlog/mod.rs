//! The backlog of a running service's listening sockets: read, and replaced without a restart.
//!
//! Facts: listen(2) on a socket that listens already gives it another backlog (inet_listen of net/ipv4/af_inet.c), which the
//! kernel bounds by net.core.somaxconn; pidfd_getfd(2) gives a copy of the descriptor of another process, with the rights that
//! ptrace(2) takes. What starts the service decides at its next start: what is replaced here lasts until then.

use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::os::sockets::{ListenSocket, netlink};
use crate::services::common::kept_values::check_name;
use crate::services::common::shape;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use webdyno_model::change::{ApplyClass, Obstacle, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// The name of the holder in journals.
pub const NAME: &str = "listen_backlog";

/// The setting.
pub const SETTING: &str = "backlog";

/// The most that a socket can have: the kernel keeps it in 16 bits where it may.
const BACKLOG_MAX: u64 = 65_535;

/// The sockets with which a service listens on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningSockets {
    /// Its main process.
    pub process: ProcessName,
    /// The port.
    pub port: u16,
    /// What tells a person how the value is made to last; `None` where the service asks for as much already.
    pub to_keep: Option<String>,
}

impl ListeningSockets {
    /// The shortest backlog of them; `None` when the process is gone.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        check_name(name, SETTING, "nothing that a listening socket has")?;
        if !self.process.is_alive() {
            return Ok(None);
        }
        let backlogs = self.backlogs()?;
        let least = backlogs.first().ok_or_else(|| io::Error::other("its listening sockets are not seen"))?;
        Ok(Some(least.to_string()))
    }

    fn backlogs(&self) -> io::Result<BTreeSet<u32>> {
        Ok(self.sockets()?.into_iter().filter_map(|socket| socket.queue_max_count).collect())
    }

    /// Gives all of them another backlog.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        check_name(name, SETTING, "nothing that a listening socket has")?;
        let backlog: i32 = value.parse().map_err(|_| io::Error::other(format!("`{value}` is no backlog")))?;
        for descriptor in self.descriptors()? {
            rustix::net::listen(&descriptor, backlog)?;
        }
        Ok(())
    }

    fn sockets(&self) -> io::Result<Vec<ListenSocket>> {
        let held = procfs::socket_inodes(self.process.pid)?;
        let all = netlink::listening()?.into_iter();
        Ok(all.filter(|socket| socket.port == self.port && held.contains(&socket.inode)).collect())
    }

    /// Copies of its descriptors, one for each socket.
    fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let mut wanted: Vec<u64> = self.sockets()?.into_iter().map(|socket| socket.inode).collect();
        let pid = i32::try_from(self.process.pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // Opened by its number: only now is it sure whose that is.
        if !self.process.is_alive() {
            return Err(Errno::SRCH.into());
        }
        let mut found = vec![];
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd", pid = self.process.pid))? {
            let entry = entry?;
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            let link = link.to_string_lossy();
            let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            let inode: Option<u64> = inode.and_then(|inode| inode.parse().ok());
            let number: Option<i32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let (Some(inode), Some(number)) = (inode, number) else { continue };
            let Some(at) = wanted.iter().position(|one| *one == inode) else { continue };
            wanted.swap_remove(at);
            found.push(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
        }
        if found.is_empty() || !wanted.is_empty() {
            return Err(io::Error::other("its listening sockets are not seen"));
        }
        Ok(found)
    }
}

/// Where a backlog is shown: a change of it is in no other file.
pub fn shown_in(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/net/tcp"))
}

/// Renders a change of the backlog of a service's sockets, with those that it is for; the kernel will grant `granted` at most.
pub fn prepare(
    service: &ServiceSnapshot,
    change: &SettingChange,
    granted: Option<u64>,
) -> Result<(RenderedPlan, ListeningSockets), Obstacle> {
    let (name, port) = (&service.service, service.port);
    let wanted = match &change.to {
        SettingValue::Integer(to) => u64::try_from(*to).ok().filter(|to| (1..=BACKLOG_MAX).contains(to)),
        _ => None,
    };
    let wanted = wanted.ok_or_else(|| {
        shape::refusal(SETTING, &change.to, &format!("a whole number from 1 to {BACKLOG_MAX}"))
    })?;
    if let Some(granted) = granted.filter(|granted| *granted < wanted) {
        let why = format!("net.core.somaxconn is {granted}: the kernel grants no backlog of {wanted}");
        return Err((why, Some("raise it along with the backlog".into())));
    }
    let process = ProcessName::of(service.pid)
        .ok_or_else(|| (format!("{name} (process {}) has ended", service.pid), None))?;
    let sockets = ListeningSockets { process, port, to_keep: to_keep(service, wanted) };
    let by_hand = || Some(format!("a restart of {name} gives its sockets the backlog that it asks for"));
    let unseen = |error: io::Error| {
        (format!("the listening sockets of {name} on port {port} cannot be reached: {error}"), by_hand())
    };
    let now = sockets.read(SETTING).map_err(unseen)?.and_then(|now| now.parse::<u64>().ok());
    let Some(now) = now else { return Err((format!("the backlog of {name} is not known"), by_hand())) };
    sockets.descriptors().map_err(unseen)?;
    let backlogs: Vec<_> = sockets.backlogs().map_err(unseen)?.iter().map(u32::to_string).collect();
    if backlogs.len() > 1 {
        let why =
            format!("the sockets of {name} on port {port} have different backlogs: {}", backlogs.join(", "));
        return Err((
            why,
            Some("give each its own by hand: one number could not be taken back to all of them".into()),
        ));
    }
    if now >= wanted {
        return Err((format!("{name} has a backlog of {now} already"), None));
    }
    let file = shown_in(service.pid).to_string_lossy().into_owned();
    let diff = format!(
        "--- {file}\n+++ {file}\n@@ -1 +1 @@\n-backlog of port {port}: {now}\n+backlog of port {port}: {wanted}\n"
    );
    let from = SettingValue::Integer(i64::try_from(now).unwrap_or(i64::MAX));
    let planned = change.planned(Some(from), file, ApplyClass::Live);
    Ok((RenderedPlan::live(vec![planned], diff), sockets))
}

/// How a backlog is made to last over a start, where the service asks for less.
fn to_keep(service: &ServiceSnapshot, wanted: u64) -> Option<String> {
    if service.requested_backlog().is_some_and(|asked| asked >= wanted as f64) {
        return None;
    }
    let how = match service.service.as_str() {
        "apache" => format!("ListenBacklog {wanted} in its configuration"),
        "nginx" => format!("backlog={wanted} at its `listen {}`", service.port),
        _ => "its own setting".to_owned(),
    };
    Some(format!(
        "the backlog of {wanted} lasts until {} is started anew; to keep it: {how}",
        service.service
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use webdyno_model::setting::SettingId;

    fn change(to: i64) -> SettingChange {
        SettingChange { setting: SettingId::of_service("apache", SETTING), to: SettingValue::Integer(to) }
    }

    #[test]
    fn the_backlog_of_a_listening_socket_is_replaced_and_given_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        rustix::net::listen(&listener, 7).unwrap();
        let service =
            ServiceSnapshot { service: "apache".into(), pid: std::process::id(), port, ..Default::default() };
        let (plan, sockets) = prepare(&service, &change(30), Some(4096)).unwrap();
        assert_eq!(
            (plan.class, plan.changes[0].from.clone()),
            (ApplyClass::Live, Some(SettingValue::Integer(7)))
        );
        let to_keep = sockets.to_keep.clone().unwrap();
        assert!(to_keep.contains("ListenBacklog 30"), "{to_keep}");
        for backlog in ["30", "7"] {
            sockets.write(SETTING, backlog).unwrap();
            assert_eq!(sockets.read(SETTING).unwrap().as_deref(), Some(backlog));
        }
        assert!(sockets.write(SETTING, "many").is_err() && sockets.read("somaxconn").is_err());
        for (to, granted, part) in [
            (30, Some(16), "net.core.somaxconn is 16"),
            (5, None, "has a backlog of 7 already"),
            (0, None, "backlog cannot be `0`"),
            (70_000, None, "backlog cannot be `70000`"),
        ] {
            let (why, _) = prepare(&service, &change(to), granted).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let second = TcpListener::bind(("127.0.0.2", port)).unwrap();
        rustix::net::listen(&second, 9).unwrap();
        let (why, hint) = prepare(&service, &change(30), None).unwrap_err();
        assert!(why.contains("have different backlogs: 7, 9") && hint.is_some(), "{why}");
        drop((listener, second));
        assert!(prepare(&service, &change(30), None).unwrap_err().0.contains("cannot be reached"));
    }
}
