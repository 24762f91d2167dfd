//! Settings of the kernel that webdyno changes: at once below /proc/sys, and kept in a file that is read at boot.
//!
//! Facts: Documentation/admin-guide/sysctl/{net,fs}.rst and Documentation/networking/{ip-sysctl,nf_conntrack-sysctl}.rst of
//! the kernel; sysctl.d(5), sysctl(8). Most of `net.*` belong to a network namespace. What is the machine's is only writable
//! in the initial one: `nf_conntrack_max` is shown in all (net/netfilter/nf_conntrack_standalone.c), `netdev_max_backlog` in
//! none but that (net/core/sysctl_net_core.c).

pub mod files;
pub mod space;

use crate::config_management::Managers;
use crate::os::machine;
use crate::services::common::edit;
use crate::services::common::kept_values::KeptValue;
use crate::services::common::shape::Shape;
use files::SysctlFile;
use std::io;
use std::path::Path;
use webdyno_model::change::{
    ApplyClass, Change, ManagedFile, NOTHING_TO_CHANGE, Obstacle, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::{SettingId, Target};
use webdyno_model::{Result, UserError};

/// The name of the target in journals and changes.
pub const NAME: &str = "sysctl";

/// The share of the memory that a table may take at most.
const MEMORY_FRACTION_MAX: f64 = 0.125;

/// Whose a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Of each network namespace.
    Namespace,
    /// Of the whole machine: only writable in the initial network namespace.
    Machine,
}

/// A setting of the kernel.
#[derive(Debug)]
pub struct Sysctl {
    /// With dots.
    pub name: &'static str,
    /// What a value may be.
    pub shape: Shape,
    /// Whose it is.
    pub scope: Scope,
    /// Kernel memory that each one of it may take.
    pub bytes_each: Option<u32>,
    /// Why writing it changes nothing for a server that runs; `None` when it does.
    pub waits_for: Option<&'static str>,
}

const fn row(name: &'static str, scope: Scope, shape: Shape, bytes_each: Option<u32>) -> Sysctl {
    Sysctl { name, shape, scope, bytes_each, waits_for: None }
}

use Scope::{Machine, Namespace};

/// All that webdyno changes. Sizes: struct request_sock, nf_conn, inet_timewait_sock and file, a
/// list's head, and a small packet with its buffer. tcp_tw_recycle broke clients behind one address, and is not among them.
#[rustfmt::skip] // a table, one a line
pub const SYSCTLS: &[Sysctl] = &[
    row("fs.file-max", Machine, Shape::Integer(1024, i64::MAX), Some(1024)),
    row("net.core.netdev_max_backlog", Machine, Shape::Integer(1, 1_000_000), Some(2304)),
    Sysctl { waits_for: Some("a listening socket keeps its queue until the server is stopped and started"), ..row("net.core.somaxconn", Namespace, Shape::Integer(1, 65_535), None) },
    row("net.ipv4.ip_local_port_range", Namespace, Shape::Ports, None),
    row("net.ipv4.tcp_fin_timeout", Namespace, Shape::Integer(5, 120), None),
    row("net.ipv4.tcp_max_syn_backlog", Namespace, Shape::Integer(1, 1 << 20), Some(320)),
    row("net.ipv4.tcp_max_tw_buckets", Namespace, Shape::Integer(128, 1 << 22), Some(256)),
    row("net.ipv4.tcp_syncookies", Namespace, Shape::Integer(0, 2), None),
    row("net.ipv4.tcp_tw_reuse", Namespace, Shape::Integer(0, 2), None),
    row("net.netfilter.nf_conntrack_buckets", Machine, Shape::Integer(1024, 1 << 26), Some(8)),
    row("net.netfilter.nf_conntrack_max", Machine, Shape::Integer(1, i32::MAX as i64), Some(320)),
];

/// A setting by its name.
pub fn find(name: &str) -> Option<&'static Sysctl> {
    SYSCTLS.iter().find(|known| known.name == name)
}

/// Whether a setting is one of the whole machine.
pub fn is_of_machine(setting: &SettingId) -> bool {
    setting.target == Target::Sysctl && find(&setting.name).is_some_and(|known| known.scope == Machine)
}

/// What counts how much of a limit is in use, and what that is; lowering the limit below drops some of it.
pub fn in_use(name: &str) -> Option<(&'static str, &'static str)> {
    const TRACKED: (&str, &str) = (
        "net.netfilter.nf_conntrack_count",
        "connections are tracked, and no new one is while that is above the limit",
    );
    (name == "net.netfilter.nf_conntrack_max").then_some(TRACKED)
}

/// What is seen of a setting where it is to be changed.
#[derive(Debug)]
struct SettingState {
    /// Its value; `None` when it is not there.
    now: Option<String>,
    /// Whether it may be written here.
    writable: io::Result<()>,
    /// Whether this is the initial network namespace.
    is_initial: bool,
    memory_bytes: Option<u64>,
}

impl SettingState {
    fn here(name: &str) -> Self {
        Self {
            now: space::read_here(name).ok(),
            writable: space::writable_here(name),
            is_initial: space::is_initial_here(),
            memory_bytes: machine::environment().memory_bytes,
        }
    }
}

/// What is to be done about a setting of the whole machine.
fn on_machine(change: &SettingChange) -> String {
    let SettingChange { setting, to } = change;
    format!(
        "on the machine itself: sysctl -w {}={to}; with --server host=S webdyno sets it there",
        setting.name
    )
}

/// The value that a change replaces; else why the change is not one that webdyno makes here.
fn replaced(
    change: &SettingChange,
    seen: &SettingState,
    is_passed_on: bool,
) -> std::result::Result<SettingValue, Obstacle> {
    let name = &change.setting.name;
    let Some(known) = find(name) else {
        let names: Vec<_> = SYSCTLS.iter().map(|known| known.name).collect();
        let hint = format!("it sets {}", names.join(", "));
        return Err((format!("`{name}` is not a setting of the kernel that webdyno changes"), Some(hint)));
    };
    known.shape.check(name, &change.to)?;
    let of_machine = || {
        let why =
            format!("{name} belongs to the whole machine: it is only set from its initial network namespace");
        (why, Some(on_machine(change)))
    };
    let Some(now) = &seen.now else {
        return Err(match known.scope {
            Machine if !seen.is_initial && name.starts_with("net.") => of_machine(),
            _ => (format!("this kernel has no {name}"), None),
        });
    };
    if let Err(error) = &seen.writable {
        return Err(match (known.scope, error.kind()) {
            (Machine, io::ErrorKind::PermissionDenied) if !seen.is_initial => of_machine(),
            (scope, io::ErrorKind::ReadOnlyFilesystem) => {
                let why = format!("{name} is read-only here, as in a container: the host has to set it");
                (why, (scope == Machine).then(|| on_machine(change)))
            }
            _ => (format!("{name} may not be written: {error}"), Some("run the agent as root".into())),
        });
    }
    if let (Some(bytes), Some(memory), Some(to)) = (known.bytes_each, seen.memory_bytes, change.to.number()) {
        let most = (MEMORY_FRACTION_MAX * memory as f64 / f64::from(bytes)).floor();
        if to > most && to > SettingValue::parse(now).number().unwrap_or(0.0) {
            let why = format!("{name} {to} could take more than an eighth of the memory, which {most} would");
            return Err((why, None));
        }
    }
    match known.waits_for.filter(|_| !is_passed_on) {
        Some(why) => Err((format!("writing {name} is not enough: {why}"), None)),
        None => Ok(SettingValue::parse(now)),
    }
}

/// Renders changes for the network namespace that this process is in, which must be that of the service. Writes nothing.
pub fn prepare(changes: &[SettingChange]) -> Result<Preparation> {
    prepare_with(changes, false)
}

/// The same; where `is_passed_on` the running server gets the value as well, for which it would have to be started anew.
pub fn prepare_with(changes: &[SettingChange], is_passed_on: bool) -> Result<Preparation> {
    let root = Path::new("/");
    // Without the folder nothing here reads such files at boot.
    let keeps = space::is_set_at_boot() && files::are_read(root);
    let mut wanted: Vec<Change> = vec![];
    for change in changes {
        let SettingChange { setting, to } = change;
        let from = match replaced(change, &SettingState::here(&setting.name), is_passed_on) {
            Ok(from) => from,
            Err(obstacle) => return Ok(obstacle.into()),
        };
        if from != *to {
            let place = if keeps { files::place(root, &setting.name) } else { space::path(&setting.name) };
            let setting = SettingId::sysctl(&setting.name);
            wanted.push(Change { setting, ..change.planned(Some(from), place, ApplyClass::Live) });
        }
    }
    if wanted.is_empty() {
        return Err(UserError::cannot_run(NOTHING_TO_CHANGE));
    }
    Ok(match plan(root, wanted, keeps) {
        Ok(plan) => Preparation::Plan(Box::new(plan)),
        Err(error) => error.into(),
    })
}

/// The plan of changes, with the file that keeps them as it will be written then.
fn plan(root: &Path, changes: Vec<Change>, keeps: bool) -> Result<RenderedPlan> {
    let managers = Managers::here();
    let kept: Vec<KeptValue<SysctlFile>> =
        if keeps { changes.iter().map(KeptValue::of).collect() } else { vec![] };
    let mut edited = edit::apply(&kept, &managers)?;
    edited.managed.extend(changes.iter().filter_map(|change| manager(root, &managers, &change.setting.name)));
    edited.managed.dedup();
    Ok(edited.plan(changes, ApplyClass::Live))
}

/// Who else sets it: TuneD by its profile, or a configuration management in a file that does.
fn manager(root: &Path, managers: &Managers, name: &str) -> Option<ManagedFile> {
    let of_file =
        |path: &std::path::PathBuf| managers.owner(path, std::fs::read_to_string(path).ok().as_deref());
    let is_own = |path: &&std::path::PathBuf| path.file_name().is_some_and(|name| name != edit::DROP_IN);
    let holders = files::holders(root, name);
    managers.sysctl_owner(name).or_else(|| holders.iter().filter(is_own).find_map(of_file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, to: &str) -> SettingChange {
        SettingChange { setting: SettingId::sysctl(name), to: SettingValue::parse(to) }
    }

    fn state(now: Option<&str>, writable: Option<io::ErrorKind>, is_initial: bool) -> SettingState {
        let writable = writable.map_or(Ok(()), |kind| Err(kind.into()));
        SettingState { now: now.map(str::to_owned), writable, is_initial, memory_bytes: Some(1 << 30) }
    }

    const SYN: &str = "net.ipv4.tcp_max_syn_backlog";
    const TRACKED: &str = "net.netfilter.nf_conntrack_max";

    #[test]
    fn what_can_be_set_here_and_what_is_for_a_person() {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        for (name, to, seen, expected) in [
            (SYN, "4096", state(Some("512"), None, false), Ok("512")),
            (TRACKED, "200000", state(Some("65536"), None, true), Ok("65536")),
            (
                "net.ipv4.ip_local_port_range",
                "1024 65535",
                state(Some("32768 60999"), None, false),
                Ok("32768 60999"),
            ),
            (
                "kernel.pid_max",
                "99999",
                state(Some("32768"), None, true),
                Err("is not a setting of the kernel that"),
            ),
            (SYN, "many", state(Some("512"), None, true), Err("cannot be `many`")),
            (SYN, "0", state(Some("512"), None, true), Err("cannot be `0`")),
            ("net.ipv4.ip_local_port_range", "9 8", state(Some("1 2"), None, true), Err("cannot be `9 8`")),
            // The machine's: shown and read-only in other namespaces, or not shown at all.
            (
                TRACKED,
                "200000",
                state(Some("65536"), Some(PermissionDenied), false),
                Err("belongs to the whole machine"),
            ),
            (
                "net.core.netdev_max_backlog",
                "9000",
                state(None, None, false),
                Err("belongs to the whole machine"),
            ),
            (TRACKED, "200000", state(None, None, true), Err("this kernel has no net.netfilter")),
            (SYN, "4096", state(Some("512"), Some(PermissionDenied), false), Err("may not be written")),
            (SYN, "4096", state(Some("512"), Some(ReadOnlyFilesystem), false), Err("the host has to set it")),
            // An eighth of 1 GiB holds 419,430 entries of 320 bytes.
            (TRACKED, "500000", state(Some("65536"), None, true), Err("more than an eighth of the memory")),
            (TRACKED, "500000", state(Some("600000"), None, true), Ok("600000")),
            (
                "net.core.somaxconn",
                "8192",
                state(Some("4096"), None, true),
                Err("is not enough: a listening socket"),
            ),
        ] {
            let found = replaced(&change(name, to), &seen, false);
            match (&found, expected) {
                (Ok(from), Ok(value)) => assert_eq!(from.to_string(), value, "{name} {to}"),
                (Err((why, _)), Err(part)) => assert!(why.contains(part), "{name} {to}: {why}"),
                _ => panic!("{name} {to}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_table_is_sorted_and_of_net_and_fs() {
        let names: Vec<_> = SYSCTLS.iter().map(|known| known.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("net.") || name.starts_with("fs.")));
    }
}
