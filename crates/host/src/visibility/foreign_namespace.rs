//! A service whose files or network are not ours: in a container, or in a network namespace of this machine. It is read
//! from here as far as that goes, and never changed: what would be written and asked would be another server's.
//!
//! Facts: mount_namespaces(7), network_namespaces(7), pid_namespaces(7) (process ids are ours everywhere: a container is
//! seen from outside).

use crate::os::process_location::{location, namespace};
use crate::visibility::listeners::NO_PID;
use crate::visibility::mount_namespace;
use crate::visibility::network_namespace::{self, space_of};
use webdyno_model::UserError;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{Control, FileId, ServiceSnapshot};

/// What reaches everything of a container.
const ENTER: &str =
    "run the agent inside of the container, as with --server exec:'docker exec -i CONTAINER webdyno agent'";

/// What reaches everything of a network namespace.
const ENTER_NETWORK: &str =
    "run the agent inside of the namespace, as with --server exec:'ip netns exec NAME webdyno agent'";

/// Whether the network of a process is another one than ours; false when that cannot be seen.
pub fn has_own_network(pid: u32) -> bool {
    let spaces = space_of(pid).zip(space_of(std::process::id()));
    spaces.is_some_and(|(theirs, ours)| theirs != ours)
}

/// Says in a snapshot what is not ours about the service.
pub fn note(snapshot: &mut ServiceSnapshot) {
    let pid = snapshot.pid;
    if pid == NO_PID {
        return;
    }
    if has_own_network(pid) && network_namespace::on_own_thread(pid, || ()).is_err() {
        forget_page(snapshot);
    }
    if mount_namespace::has_other_root(pid) {
        // How it is started and what it reads are words of another place.
        snapshot.control = None;
        let why = format!("process {pid} is in a container: its files are not those of this machine");
        snapshot.missing.push(MissingSignal::new("service control", why, ENTER));
        snapshot.warnings.push(format!(
            "process {pid} is in a container: it is observed from outside, and nothing of it is changed from there"
        ));
    } else if has_own_network(pid) {
        snapshot.warnings.push(format!(
            "process {pid} is in another network namespace of this machine: it is observed from outside, and nothing of it is changed from there"
        ));
    }
}

/// Takes back what a status page told that was asked for in our network, as that of the service may not be entered: it may
/// be another server's.
fn forget_page(snapshot: &mut ServiceSnapshot) {
    let Some(url) = snapshot.status_url.take() else { return };
    snapshot.settings.values_mut().for_each(|setting| setting.running = None);
    let why = format!("{url} is in another network namespace, which may not be entered");
    snapshot.missing.push(MissingSignal::new("mod_status", why, ENTER_NETWORK));
}

/// Why a service may not be changed from here; `None` when it may.
pub fn refusal(snapshot: &ServiceSnapshot) -> Option<UserError> {
    let (pid, name) = (snapshot.pid, &snapshot.service);
    if pid == NO_PID {
        return None;
    }
    if mount_namespace::has_other_root(pid) {
        let why = format!("cannot change the {name} with process {pid} from outside of its container");
        return Some(UserError::cannot_run(why).hint(ENTER));
    }
    has_own_network(pid).then(|| {
        UserError::cannot_run(format!(
            "cannot change the {name} with process {pid} from outside of its network namespace"
        ))
        .hint(ENTER_NETWORK)
    })
}

/// Whether a process is where a service ran: in our network, with our files, and in the pid namespace that it had.
pub fn is_where(pid: u32, control: &Control) -> bool {
    let own = std::process::id();
    let recorded = location(control).and_then(|location| location.namespaces.get("pid").copied());
    let same = |name: &str, expected: Option<FileId>| {
        namespace(pid, name).zip(expected).is_none_or(|(theirs, expected)| theirs == expected)
    };
    same("net", namespace(own, "net"))
        && same("pid", recorded.or_else(|| namespace(own, "pid")))
        && !mount_namespace::has_other_root(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::service::{SettingInForce, SettingValue};

    // Without the right to enter its network, the page that answered here was not that of the service.
    #[test]
    fn what_another_network_told_is_taken_back() {
        let running = SettingInForce {
            configured: Some(SettingValue::Integer(10)),
            running: Some(SettingValue::Integer(99)),
            ..SettingInForce::default()
        };
        let mut snapshot = ServiceSnapshot {
            status_url: Some("http://127.0.0.1:80/server-status".into()),
            settings: [("MaxRequestWorkers".to_owned(), running)].into(),
            ..ServiceSnapshot::default()
        };
        forget_page(&mut snapshot);
        let workers = &snapshot.settings["MaxRequestWorkers"];
        assert_eq!((&workers.running, &workers.configured), (&None, &Some(SettingValue::Integer(10))));
        assert_eq!((snapshot.status_url, snapshot.missing[0].signal.as_str()), (None, "mod_status"));
    }

    #[test]
    fn what_is_here_is_changed_from_here() {
        let mut snapshot = ServiceSnapshot { pid: std::process::id(), ..ServiceSnapshot::default() };
        let before = snapshot.clone();
        note(&mut snapshot);
        assert_eq!((snapshot, refusal(&before)), (before.clone(), None));
        assert_eq!(refusal(&ServiceSnapshot { pid: NO_PID, ..before }), None);
    }
}
