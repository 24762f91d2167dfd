//! The limits of a running service's processes: read and replaced while it runs. They are inherited, so that what starts it
//! decides at its next start: a value is kept where that is written ([`kept`]), or a person is told how.
//!
//! Facts: prlimit(2), getrlimit(2), proc_pid_limits(5).

pub mod kept;
pub mod task_group;

use crate::config_management::Managers;
use crate::os::process::{self, ProcessName};
use crate::os::procfs;
use crate::services::common::edit::{self, Edited};
use crate::services::common::kept_values::{KeptValue, ValueFile, with_values};
use crate::services::common::{shape, unit};
use crate::visibility::mount_namespace;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use task_group::TaskGroup;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, Change, Obstacle, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// The name of the target in journals.
pub const NAME: &str = "process_limit";

/// Open files of a process.
const OPEN_FILES: &str = "LimitNOFILE";

/// The least that may be asked for.
const LIMIT_MIN: u64 = 64;

/// A limit that is replaced.
#[derive(Debug)]
struct Limit {
    /// As systemd names it (systemd.exec(5)).
    name: &'static str,
    resource: Resource,
    /// Its line in proc_pid_limits(5).
    line: &'static str,
    /// What is counted, in words.
    words: &'static str,
    /// Where the kernel shows the most that it grants.
    most: &'static str,
}

#[rustfmt::skip] // a table, one a line
const LIMITS: [Limit; 2] = [
    Limit { name: OPEN_FILES, resource: Resource::Nofile, line: "Max open files", words: "open files", most: "fs/nr_open" },
    Limit { name: "LimitNPROC", resource: Resource::Nproc, line: "Max processes", words: "processes", most: "kernel/threads-max" },
];

/// The processes of a service whose limits are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedProcess {
    /// Its main process when it was seen last.
    pub process: ProcessName,
    /// The hard limit that it was found with: never lowered below it, and given back.
    pub hard: u64,
    /// What tells a person how the value is made to last; empty where a file keeps it.
    pub to_keep: String,
    /// The unit that starts it anew; `None` where none does, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl LimitedProcess {
    /// The main process now: the one that was seen, else that of its unit.
    fn main(&self) -> Option<u32> {
        match self.process.is_alive() {
            true => Some(self.process.pid),
            false => self.unit.as_deref().and_then(unit::main_pid),
        }
    }

    /// The soft limit; `None` when the process is gone.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        let limit = known(name)?;
        self.main().map(|main| Ok(limit.of(main)?.0.to_string())).transpose()
    }

    /// Gives the main process and all that it started another soft limit, and the hard limit that this takes.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let limit = known(name)?;
        let soft: u64 = value.parse().map_err(|_| io::Error::other(format!("`{value}` is no limit")))?;
        let Some(main) = self.main().filter(|_| soft >= LIMIT_MIN) else {
            return Err(io::Error::other("the process is gone, or the limit is too low"));
        };
        let (now, _) = limit.of(main)?;
        // Who has a limit of its own keeps it; who is started between the looks has that of the main process. This is what is
        // read, so that on the way down it comes after the first look: whoever is killed before finds that there is more to do.
        if now < soft {
            self.replace(limit, main, now, soft)?;
        }
        for _ in 0..2 {
            for pid in descendants(main) {
                process::unless_gone(self.replace(limit, pid, now, soft))?;
            }
            self.replace(limit, main, now, soft)?;
        }
        Ok(())
    }

    /// Gives a process another soft limit, if it has the one of before; the hard limit goes up as far as that takes, and back.
    fn replace(&self, limit: &Limit, pid: u32, before: u64, soft: u64) -> io::Result<()> {
        let Ok((own, own_hard)) = limit.of(pid) else { return Ok(()) };
        if own != before {
            return Ok(());
        }
        let is_raised = own_hard == before.max(self.hard);
        let hard = if soft < before && is_raised { self.hard } else { own_hard };
        let limits = Rlimit { current: Some(soft), maximum: maximum(hard.max(soft)) };
        prlimit(Some(pid_of(pid)?), limit.resource, limits)?;
        Ok(())
    }

    /// A value as a file has it: a hard limit above it stays.
    fn written(&self, path: &Path, value: &str) -> String {
        let is_above = value.parse().is_ok_and(|soft: u64| soft < self.hard) && unit::is_drop_in(path);
        match self.hard {
            _ if !is_above => value.to_owned(),
            u64::MAX => format!("{value}:infinity"),
            hard => format!("{value}:{hard}"),
        }
    }

    /// A text of the file that keeps values, with these.
    pub fn with_values<'a>(
        &self,
        path: &Path,
        text: &str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let values: Vec<_> =
            values.into_iter().map(|(name, value)| (name, self.written(path, value))).collect();
        let values = values.iter().map(|(name, value)| (*name, value.as_str()));
        match unit::is_drop_in(path) {
            true => with_values::<kept::UnitFile>(path, text, values),
            false => with_values::<kept::VariablesFile>(path, text, values),
        }
    }
}

impl Limit {
    /// The soft and the hard limit of a process.
    fn of(&self, pid: u32) -> io::Result<(u64, u64)> {
        let text = procfs::read_text(format!("/proc/{pid}/limits"))?;
        parse(&text, self.line).ok_or_else(|| io::Error::other("its limits cannot be read"))
    }

    /// The most that the kernel lets any process have.
    fn most(&self) -> u64 {
        let most = procfs::read_text(format!("/proc/sys/{}", self.most));
        most.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX)
    }
}

/// `RLIM_INFINITY` as rustix has it.
fn maximum(hard: u64) -> Option<u64> {
    (hard != u64::MAX).then_some(hard)
}

fn known(name: &str) -> io::Result<&'static Limit> {
    let found = LIMITS.iter().find(|limit| limit.name == name);
    found.ok_or_else(|| io::Error::other(format!("{name} is not a limit that is changed")))
}

fn pid_of(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// All processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let own = procfs::children_of(pid);
    let further: Vec<u32> = own.iter().flat_map(|child| descendants(*child)).collect();
    [own, further].concat()
}

/// The soft and the hard limit of open files of a process.
pub fn open_files(pid: u32) -> io::Result<(u64, u64)> {
    LIMITS[0].of(pid)
}

fn parse(limits: &str, name: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let value = |word: &str| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() };
    Some((value(words.next()?)?, value(words.next()?)?))
}

/// What holds a limit.
#[derive(Debug, Clone)]
pub enum Limited {
    /// The processes of a service.
    Process(LimitedProcess),
    /// Its control group.
    Tasks(TaskGroup),
}

/// Renders a change of a limit of a service, with what holds it. Writes nothing.
pub fn prepare(
    service: &ServiceSnapshot,
    changes: &[SettingChange],
) -> Result<(Preparation, Option<Limited>)> {
    let planned = match changes {
        [change] if change.setting.name == task_group::SETTING => {
            task_group::planned(service, change).map(|(plan, group)| (plan, Limited::Tasks(group)))
        }
        _ => planned(service, changes).map(|(plan, process)| (plan, Limited::Process(process))),
    };
    Ok(match planned {
        Ok((plan, holder)) => (Preparation::Plan(Box::new(plan)), Some(holder)),
        Err(obstacle) => (obstacle.into(), None),
    })
}

/// How many a change asks for.
fn wanted(name: &str, to: &SettingValue, most: u64) -> std::result::Result<u64, Obstacle> {
    let wanted = match to {
        SettingValue::Integer(to) => u64::try_from(*to).ok().filter(|to| (LIMIT_MIN..=most).contains(to)),
        SettingValue::Text(_) => None,
    };
    let expected = || format!("a whole number from {LIMIT_MIN} to {most}, the most that the kernel grants");
    wanted.ok_or_else(|| shape::refusal(name, to, &expected()))
}

/// That a service cannot be reached in its container.
fn of_container(service: &ServiceSnapshot) -> Option<Obstacle> {
    let why = format!("{} runs in a container, whose limits what started it has set", service.service);
    mount_namespace::has_other_root(service.pid)
        .then(|| (why, Some("set them where the container is started".into())))
}

fn planned(
    service: &ServiceSnapshot,
    changes: &[SettingChange],
) -> std::result::Result<(RenderedPlan, LimitedProcess), Obstacle> {
    let [change] = changes else {
        return Err(("limits of processes are changed one at a time".into(), None));
    };
    let (name, setting) = (&service.service, &change.setting.name);
    let limit = known(setting).map_err(|error| (error.to_string(), None))?;
    of_container(service).map_or(Ok(()), Err)?;
    let wanted = wanted(setting, &change.to, limit.most())?;
    let gone = || (format!("{name} (process {}) has ended", service.pid), None);
    let process = ProcessName::of(service.pid).ok_or_else(gone)?;
    let (soft, hard) = limit
        .of(service.pid)
        .map_err(|error| (format!("the limits of process {} cannot be read: {error}", service.pid), None))?;
    let words = limit.words;
    if soft >= wanted {
        return Err((format!("{name} may have {soft} {words} already"), None));
    }
    let has_own = |pid: &u32| limit.of(*pid).is_ok_and(|(own, _)| own != soft);
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
    let unit = unit::unit(service.pid);
    let mut holder = LimitedProcess { process, hard, to_keep: String::new(), unit: unit.clone() };
    let keeper = kept::keeper(service, unit.as_deref(), setting, &change.to.to_string(), hard);
    if !may_set_limits(service.pid, wanted > hard) {
        let why = format!("the limits of {name} cannot be raised: CAP_SYS_RESOURCE is missing");
        let by_hand = keeper.manual_step(setting, wanted);
        return Err((why, Some(format!("run the agent as root (--sudo), or by hand: {by_hand}"))));
    }
    if let kept::Keeper::Person(by_hand) = &keeper {
        holder.to_keep =
            format!("{setting} {wanted} lasts until {name} is started anew; to keep it: {by_hand}");
    }
    let line = |value: u64| format!("{} {value}", limit.line);
    let shown = LimitDisplay { path: limits_file(service.pid), from: soft, line: &line };
    let plan = plan(change, &shown, &keeper, |path, value| holder.written(path, value))?;
    Ok((plan, holder))
}

/// Where a limit is shown, and as what.
struct LimitDisplay<'a> {
    path: PathBuf,
    from: u64,
    line: &'a dyn Fn(u64) -> String,
}

/// The plan of a limit, with the file that keeps it as it will be written then.
fn plan(
    change: &SettingChange,
    shown: &LimitDisplay<'_>,
    keeper: &kept::Keeper,
    written: impl Fn(&Path, &str) -> String,
) -> std::result::Result<RenderedPlan, Obstacle> {
    let file = match keeper {
        kept::Keeper::File(path) => path,
        kept::Keeper::Person(_) => &shown.path,
    };
    let from = SettingValue::Integer(i64::try_from(shown.from).unwrap_or(i64::MAX));
    let change = change.planned(Some(from), file, ApplyClass::Live);
    let edited = match keeper {
        kept::Keeper::Person(_) => Ok(Edited::default()),
        kept::Keeper::File(path) if unit::is_drop_in(path) => edited::<kept::UnitFile>(&change, &written),
        kept::Keeper::File(_) => edited::<kept::VariablesFile>(&change, &written),
    }
    .map_err(|error| (error.message, error.hint))?;
    let to = change.to.number().unwrap_or(0.0) as u64;
    let (path, line) = (shown.path.display(), shown.line);
    let live = format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-{}\n+{}\n", line(shown.from), line(to));
    let diff = format!("{live}{}", edited.diff);
    Ok(Edited { diff, ..edited }.plan(vec![change], ApplyClass::Live))
}

fn edited<F: ValueFile>(change: &Change, written: &impl Fn(&Path, &str) -> String) -> Result<Edited> {
    let value = written(Path::new(&change.file), &change.to.to_string());
    edit::apply(&[KeptValue::<F>::of(change).written(value)], &Managers::here())
}

/// Where the limits of a process are shown: a change of them is in no other file.
pub fn limits_file(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/limits"))
}

/// Whether this process may replace the limits of a process and all below it. For those of other users and to raise a hard
/// limit it takes CAP_SYS_RESOURCE (capabilities(7)), which root of a container often has not.
fn may_set_limits(pid: u32, raises_hard: bool) -> bool {
    if process::has_capability(CapabilitySet::SYS_RESOURCE) {
        return true;
    }
    let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let is_own = |pid: &u32| procfs::acts_as(*pid) == Some(own);
    !raises_hard && descendants(pid).iter().chain([&pid]).all(is_own)
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

    fn change(name: &str, to: SettingValue) -> [SettingChange; 1] {
        [SettingChange { setting: SettingId::of_service("apache", name), to }]
    }

    #[test]
    fn the_limit_of_a_process_and_its_children_is_replaced_and_given_back() {
        let (mut shell, service) = parent();
        let (plan, holder) =
            planned(&service, &change(OPEN_FILES, SettingValue::Integer(90))).err().map_or_else(
                || panic!("90 is less than it has"),
                |(why, _)| {
                    assert!(why.contains("may have 100 open files already"), "{why}");
                    // A lower soft limit leaves room to raise it without root.
                    LimitedProcess {
                        process: ProcessName::of(service.pid).unwrap(),
                        hard: 100,
                        to_keep: String::new(),
                        unit: None,
                    }
                    .write(OPEN_FILES, "70")
                    .unwrap();
                    planned(&service, &change(OPEN_FILES, SettingValue::Integer(90))).unwrap()
                },
            );
        assert_eq!(plan.changes[0].from, Some(SettingValue::Integer(70)));
        assert!(
            holder.to_keep.contains("to keep it: `ulimit -n 90` where it is started"),
            "{}",
            holder.to_keep
        );
        let children = descendants(service.pid);
        let soft =
            || children.iter().chain([&service.pid]).map(|pid| open_files(*pid).unwrap()).collect::<Vec<_>>();
        holder.write(OPEN_FILES, "90").unwrap();
        assert_eq!(soft(), [(90, 100), (90, 100)]);
        holder.write(OPEN_FILES, "70").unwrap();
        assert_eq!(soft(), [(70, 100), (70, 100)]);
        assert!(holder.write(OPEN_FILES, "1").is_err() && holder.write("TasksMax", "90").is_err());
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
            ("LimitSTACK", SettingValue::Integer(100), "LimitSTACK is not a limit that is changed"),
            ("LimitNPROC", SettingValue::Integer(3), "LimitNPROC cannot be `3`"),
            (OPEN_FILES, SettingValue::Integer(3), "LimitNOFILE cannot be `3`"),
            (OPEN_FILES, SettingValue::Text("many".into()), "LimitNOFILE cannot be `many`"),
            (
                OPEN_FILES,
                SettingValue::Integer(i64::try_from(own).unwrap_or(i64::MAX).min(1000)),
                "open files already",
            ),
        ] {
            let (why, _) = planned(&service, &change(name, to)).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn limits_are_read_as_the_kernel_shows_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             95000                unlimited            processes \n\
                    Max open files            1024                 unlimited            files     \n";
        assert_eq!(parse(text, LIMITS[0].line), Some((1024, u64::MAX)));
        assert_eq!(parse(text, LIMITS[1].line), Some((95_000, u64::MAX)));
        assert_eq!(parse("", LIMITS[0].line), None);
    }
}
