//! The limits of a running service's processes: read and replaced while it runs. They are inherited, so that what starts it
//! decides at its next start: what is replaced here lasts until then, and how to make it last is told.
//!
//! Facts: prlimit(2), getrlimit(2), proc_pid_limits(5); systemd.exec(5) for `LimitNOFILE`; apachectl of Debian for
//! `APACHE_ULIMIT_MAX_FILES`.

use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::services::common::unit;
use crate::visibility::mount_namespace;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, Change, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// The name of the target in journals.
pub const NAME: &str = "process_limit";

/// The one that is changed: open files of a process.
const OPEN_FILES: &str = "LimitNOFILE";

/// The least that may be asked for.
const OPEN_FILES_MIN: u64 = 64;

/// The processes of a service whose limits are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedProcess {
    /// Its main process.
    pub process: ProcessName,
    /// The hard limit that it was found with: never lowered below it, and given back.
    pub hard: u64,
    /// What tells a person how the value is made to last.
    pub to_keep: String,
}

impl LimitedProcess {
    /// The soft limit; `None` when the process is gone.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        known(name)?;
        if !self.process.is_alive() {
            return Ok(None);
        }
        Ok(Some(open_files(self.process.pid)?.0.to_string()))
    }

    /// Gives the main process and all that it started another soft limit, and the hard limit that this takes.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        known(name)?;
        let soft: u64 = value.parse().map_err(|_| io::Error::other(format!("`{value}` is no limit")))?;
        if soft < OPEN_FILES_MIN || !self.process.is_alive() {
            return Err(io::Error::other("the process is gone, or the limit is too low"));
        }
        let main = self.process.pid;
        let (now, _) = open_files(main)?;
        // Who has a limit of its own keeps it; who is started between the looks has that of the main process. This is what is
        // read, so that on the way down it comes after the first look: whoever is killed before finds that there is more to do.
        if now < soft {
            self.replace(main, now, soft)?;
        }
        for _ in 0..2 {
            for pid in descendants(main) {
                match self.replace(pid, now, soft) {
                    Err(error) if error.raw_os_error() != Some(NO_SUCH_PROCESS) => return Err(error),
                    _ => {}
                }
            }
            self.replace(main, now, soft)?;
        }
        Ok(())
    }

    /// Gives a process another soft limit, if it has the one of before; the hard limit goes up as far as that takes, and back.
    fn replace(&self, pid: u32, before: u64, soft: u64) -> io::Result<()> {
        let Ok((own, own_hard)) = open_files(pid) else { return Ok(()) };
        if own != before {
            return Ok(());
        }
        let is_raised = own_hard == before.max(self.hard);
        let hard = if soft < before && is_raised { self.hard } else { own_hard };
        set(pid, Rlimit { current: Some(soft), maximum: maximum(hard.max(soft)) })
    }
}

/// ESRCH: it has ended meanwhile.
const NO_SUCH_PROCESS: i32 = 3;

/// `RLIM_INFINITY` as rustix has it.
fn maximum(hard: u64) -> Option<u64> {
    (hard != u64::MAX).then_some(hard)
}

fn known(name: &str) -> io::Result<()> {
    if name == OPEN_FILES {
        Ok(())
    } else {
        Err(io::Error::other(format!("{name} is not a limit that is changed")))
    }
}

fn pid_of(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

fn set(pid: u32, limit: Rlimit) -> io::Result<()> {
    prlimit(Some(pid_of(pid)?), Resource::Nofile, limit)?;
    Ok(())
}

/// All processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let own = procfs::children_of(pid);
    let further: Vec<u32> = own.iter().flat_map(|child| descendants(*child)).collect();
    [own, further].concat()
}

/// The soft and the hard limit of open files of a process.
pub fn open_files(pid: u32) -> io::Result<(u64, u64)> {
    let text = procfs::read_text(format!("/proc/{pid}/limits"))?;
    parse_open_files(&text).ok_or_else(|| io::Error::other("its limits cannot be read"))
}

fn parse_open_files(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace();
    let value = |word: &str| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() };
    Some((value(words.next()?)?, value(words.next()?)?))
}

/// The most that the kernel lets any process have.
fn open_files_max() -> Option<u64> {
    procfs::read_text("/proc/sys/fs/nr_open").ok()?.trim().parse().ok()
}

/// Renders a change of the limit of a service's processes, with those that it is for. Writes nothing.
pub fn prepare(
    service: &ServiceSnapshot,
    changes: &[SettingChange],
) -> Result<(Preparation, Option<LimitedProcess>)> {
    Ok(match planned(service, changes) {
        Ok((plan, process)) => (Preparation::Plan(Box::new(plan)), Some(process)),
        Err((why, hint)) => (Preparation::NotPreparable { why, hint }, None),
    })
}

type Obstacle = (String, Option<String>);

/// How many open files a change asks for.
fn wanted_files(to: &SettingValue) -> std::result::Result<u64, Obstacle> {
    let most = open_files_max().unwrap_or(u64::MAX);
    let wanted = match to {
        SettingValue::Integer(to) => {
            u64::try_from(*to).ok().filter(|to| (OPEN_FILES_MIN..=most).contains(to))
        }
        _ => None,
    };
    wanted.ok_or_else(|| {
        let why = format!("{OPEN_FILES} cannot be `{}`", to.to_string().replace(['\r', '\n'], " "));
        (why, Some(format!("it takes a whole number from {OPEN_FILES_MIN} to {most} (fs.nr_open)")))
    })
}

fn planned(
    service: &ServiceSnapshot,
    changes: &[SettingChange],
) -> std::result::Result<(RenderedPlan, LimitedProcess), Obstacle> {
    let [SettingChange { setting, to }] = changes else {
        return Err(("limits of processes are changed one at a time".into(), None));
    };
    let name = &service.service;
    if setting.name != OPEN_FILES {
        let why =
            format!("{} of {name} is granted by what starts it, which webdyno does not change", setting.name);
        return Err((why, None));
    }
    if mount_namespace::has_other_root(service.pid) {
        let why = format!("{name} runs in a container, whose limits what started it has set");
        return Err((why, Some("set them where the container is started".into())));
    }
    let wanted = wanted_files(to)?;
    let gone = || (format!("{name} (process {}) has ended", service.pid), None);
    let process = ProcessName::of(service.pid).ok_or_else(gone)?;
    let (soft, hard) = open_files(service.pid)
        .map_err(|error| (format!("the limits of process {} cannot be read: {error}", service.pid), None))?;
    if soft >= wanted {
        return Err((format!("{name} may have {soft} open files already"), None));
    }
    let has_own = |pid: &u32| open_files(*pid).is_ok_and(|(own, _)| own != soft);
    let own_count = descendants(service.pid).iter().filter(|pid| has_own(pid)).count();
    if own_count > 0 {
        let why = format!(
            "{own_count} processes of {name} have a limit of their own, and not the {soft} of the main one"
        );
        return Err((
            why,
            Some("a setting gives it to them, as rlimit_files of a pool: raise it there".into()),
        ));
    }
    if !may_set_limits(service.pid, wanted > hard) {
        let why =
            format!("the kernel lets nobody here raise the limits of {name}: CAP_SYS_RESOURCE is missing");
        let by_hand = to_keep(service, wanted, hard);
        return Err((why, Some(format!("run the agent as root (--sudo), or by hand: {by_hand}"))));
    }
    let change = Change {
        setting: setting.clone(),
        from: Some(SettingValue::Integer(i64::try_from(soft).unwrap_or(i64::MAX))),
        to: to.clone(),
        file: limits_file(service.pid).to_string_lossy().into_owned(),
        class: ApplyClass::Live,
    };
    let diff = format!(
        "--- {0}\n+++ {0}\n@@ -1 +1 @@\n-Max open files {soft}\n+Max open files {wanted}\n",
        change.file
    );
    let to_keep = format!(
        "{OPEN_FILES} {wanted} lasts until {name} is started anew; to keep it: {}",
        to_keep(service, wanted, hard)
    );
    Ok((RenderedPlan::live(vec![change], diff), LimitedProcess { process, hard, to_keep }))
}

/// Where the limits of a process are shown: a change of them is in no other file.
pub fn limits_file(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/limits"))
}

/// Whether this process may replace the limits of a process and all below it. For those of other users and to raise a hard
/// limit it takes CAP_SYS_RESOURCE (capabilities(7)), which root of a container often has not.
fn may_set_limits(pid: u32, raises_hard: bool) -> bool {
    if procfs::read_text("/proc/self/status").is_ok_and(|status| has_sys_resource(&status)) {
        return true;
    }
    let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let is_own = |pid: &u32| procfs::acts_as(*pid) == Some(own);
    !raises_hard && descendants(pid).iter().chain([&pid]).all(is_own)
}

fn has_sys_resource(status: &str) -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask & (1 << CAP_SYS_RESOURCE) != 0)
}

/// How a value is made to last over a start, of a process with this hard limit. What a unit starts may take less than the
/// unit grants, as apachectl of Debian does by `ulimit -n 8192`: then more of the unit changes nothing.
fn to_keep(service: &ServiceSnapshot, wanted: u64, hard: u64) -> String {
    let takes_less = |unit: &String| unit::open_files(unit).is_some_and(|granted| hard < granted);
    match unit::unit(service.pid).filter(|unit| !takes_less(unit)) {
        Some(unit) => format!("`systemctl edit {unit}` with LimitNOFILE={wanted} below [Service]"),
        None if service.service == super::apache::NAME => format!(
            "APACHE_ULIMIT_MAX_FILES='ulimit -n {wanted}' in /etc/apache2/envvars, or `ulimit -n {wanted}` where it is started"
        ),
        None => format!("`ulimit -n {wanted}` where it is started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use webdyno_model::setting::SettingId;

    /// A process with a child.
    fn parent() -> (std::process::Child, ServiceSnapshot) {
        let child = Command::new("/bin/sh").args(["-c", "ulimit -n 100; sleep 60 & wait"]).spawn().unwrap();
        let pid = child.id();
        let is_ready =
            || !procfs::children_of(pid).is_empty() && open_files(pid).is_ok_and(|(soft, _)| soft == 100);
        assert!(crate::os::process::wait_until(std::time::Duration::from_secs(10), is_ready));
        (child, ServiceSnapshot { service: "apache".into(), pid, ..ServiceSnapshot::default() })
    }

    fn wanted(name: &str, to: SettingValue) -> [SettingChange; 1] {
        [SettingChange { setting: SettingId::of_service("apache", name), to }]
    }

    #[test]
    fn the_limit_of_a_process_and_its_children_is_replaced_and_given_back() {
        let (mut shell, service) = parent();
        let (plan, holder) =
            planned(&service, &wanted(OPEN_FILES, SettingValue::Integer(90))).err().map_or_else(
                || panic!("90 is less than it has"),
                |(why, _)| {
                    assert!(why.contains("may have 100 open files already"), "{why}");
                    // A lower soft limit leaves room to raise it without root.
                    LimitedProcess {
                        process: ProcessName::of(service.pid).unwrap(),
                        hard: 100,
                        to_keep: String::new(),
                    }
                    .write(OPEN_FILES, "70")
                    .unwrap();
                    planned(&service, &wanted(OPEN_FILES, SettingValue::Integer(90))).unwrap()
                },
            );
        assert_eq!(plan.changes[0].from, Some(SettingValue::Integer(70)));
        assert!(holder.to_keep.contains("APACHE_ULIMIT_MAX_FILES='ulimit -n 90'"), "{}", holder.to_keep);
        let children = descendants(service.pid);
        let soft =
            || children.iter().chain([&service.pid]).map(|pid| open_files(*pid).unwrap()).collect::<Vec<_>>();
        holder.write(OPEN_FILES, "90").unwrap();
        assert_eq!(soft(), [(90, 100), (90, 100)]);
        holder.write(OPEN_FILES, "70").unwrap();
        assert_eq!(soft(), [(70, 100), (70, 100)]);
        assert!(holder.write(OPEN_FILES, "1").is_err() && holder.write("LimitNPROC", "90").is_err());
        for child in children {
            ProcessName::of(child).unwrap().signal(rustix::process::Signal::KILL).unwrap();
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(holder.read(OPEN_FILES).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_planned_is_told() {
        let service =
            ServiceSnapshot { service: "apache".into(), pid: std::process::id(), ..Default::default() };
        let own = open_files(std::process::id()).unwrap().0;
        for (name, to, part) in [
            ("TasksMax", SettingValue::Integer(100), "TasksMax of apache is granted by what starts it"),
            (OPEN_FILES, SettingValue::Integer(3), "LimitNOFILE cannot be `3`"),
            (OPEN_FILES, SettingValue::Text("many".into()), "LimitNOFILE cannot be `many`"),
            (
                OPEN_FILES,
                SettingValue::Integer(i64::try_from(own).unwrap_or(i64::MAX).min(1000)),
                "open files already",
            ),
        ] {
            let (why, _) = planned(&service, &wanted(name, to)).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn limits_are_read_as_the_kernel_shows_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             95000                unlimited            processes \n\
                    Max open files            1024                 unlimited            files     \n";
        assert_eq!(parse_open_files(text), Some((1024, u64::MAX)));
        assert_eq!(parse_open_files(""), None);
        assert!(has_sys_resource("CapInh:\t0\nCapEff:\t000001ffffffffff\n"));
        assert!(!has_sys_resource("CapEff:\t00000000a80425fb\n") && !has_sys_resource(""));
    }
}
