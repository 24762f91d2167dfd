//! Services in network namespaces of their own, and in containers: found, read, and not changed from outside.

use super::stack::until;
use crate::apache::server::{EXECUTABLE, Server, apache_is_installed};
use crate::mounts::can_mount;
use crate::programs::Program;
use crate::skip::{needs, skip};
use std::process::{Command, Stdio};
use webdyno_host::agent::host::Host;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::collectors::services::apache_status::ApacheStatus;
use webdyno_host::collectors::{Collector, Target};
use webdyno_host::os::procfs;
use webdyno_host::visibility::foreign_namespace;
use webdyno_model::service::SettingValue;
use webdyno_model::topology::Access;

const EVENT: &str = "StartServers 1\nServerLimit 3\nThreadsPerChild 7\nMaxRequestWorkers 21\n";

/// A network namespace with a name; it is removed with the test.
struct Network(String);

impl Network {
    /// `None` where none can be made.
    fn new(name: &str) -> Option<Self> {
        let name = format!("wd-{name}-{}", std::process::id());
        let ip = |arguments: &[&str]| {
            let done = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        let made = ip(&["netns", "add", &name]).then_some(Self(name))?;
        ip(&["-n", &made.0, "link", "set", "lo", "up"]).then_some(made)
    }

    /// Runs a server in it, in the foreground.
    fn run(&self, server: &Server) -> Program {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, EXECUTABLE, "-DFOREGROUND", "-f"]);
        Program::start(command.arg(server.path("apache2.conf")))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).stderr(Stdio::null()).status();
    }
}

fn can_run() -> bool {
    apache_is_installed() && {
        let root = rustix::process::geteuid().is_root();
        if !root {
            skip("needs root");
        }
        root
    }
}

#[test]
fn a_service_in_another_network_namespace_is_found_and_not_changed() {
    needs!(can_run());
    let (Some(one), Some(two)) = (Network::new("a"), Network::new("b")) else {
        return skip("network namespaces cannot be made here");
    };
    let server = Server::debian("event", EVENT);
    let apache = one.run(&server);
    until("it is found in its namespace", || ThisMachine.discover(server.port).is_ok());
    let seen = ThisMachine.topology(Some(server.port), &Access::default()).unwrap();
    let front = seen.front.unwrap();
    // `ip netns exec` becomes the program that it runs.
    assert_eq!((front.service.as_str(), front.pid), ("apache", apache.pid()));
    assert_eq!(front.settings["MaxRequestWorkers"].configured, Some(SettingValue::Integer(21)));
    assert!(front.status_url.is_some(), "its page is asked for in its network: {:?}", front.missing);
    assert_eq!(front.listens, [format!("127.0.0.1:{}", server.port)]);
    assert!(front.warnings.iter().any(|warning| warning.contains("network namespace")), "{front:?}");
    let refused = foreign_namespace::refusal(&front).unwrap();
    assert!(refused.message.contains("from outside of its network namespace"), "{refused}");
    assert!(refused.hint.unwrap().contains("ip netns exec"));
    // What is read each second is read there, too, though another server has the same address here.
    let here = std::net::TcpListener::bind(("127.0.0.1", server.port)).unwrap();
    let target = Target {
        service_pid: Some(front.pid),
        status_url: front.status_url.clone(),
        service: Some(std::sync::Arc::new(front)),
        ..Target::default()
    };
    let status = ApacheStatus::default().read(&target);
    assert_eq!(status.value("apache.slots_count"), Some(21.0), "{status:?}");
    drop(here);
    let all = ThisMachine.topology(None, &Access::default()).unwrap();
    assert!(all.services().any(|service| service.pid == apache.pid()), "{all:#?}");
    // The same port once more: which one is meant has to be said.
    let second = Server::debian("event", EVENT);
    second.write("ports.conf", &format!("Listen 127.0.0.1:{}\n", server.port));
    let other = two.run(&second);
    let several = || ThisMachine.discover(server.port).err();
    until("both are told", || several().is_some());
    let error = several().unwrap();
    for pid in [apache.pid(), other.pid()] {
        assert!(error.message.contains(&format!("apache2 (process {pid})")), "{error}");
    }
    assert!(error.hint.unwrap().contains("--server exec:"));
}

/// Everything of its own as a container has it: processes, network, mounts, and an `/etc` that is not ours.
#[test]
fn a_service_in_a_container_is_read_with_its_own_files() {
    needs!(can_run());
    needs!(can_mount(), "nothing can be mounted here");
    let server = Server::debian("event", EVENT);
    let etc = own_etc(&server);
    let inside = format!(
        "mount --bind {} /etc && ip link set lo up && exec {EXECUTABLE} -DFOREGROUND -f /etc/httpd/apache2.conf",
        etc.display()
    );
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    let container = Program::start(command.args(["sh", "-c", &inside]));
    until("it is found in its container", || ThisMachine.discover(server.port).is_ok());
    let front = ThisMachine.discover(server.port).unwrap();
    assert_eq!(procfs::children_of(container.pid()), [front.pid], "its number is ours");
    assert_eq!((front.service.as_str(), front.mode.as_deref()), ("apache", Some("event")));
    assert_eq!(front.config_file.as_deref(), Some("/etc/httpd/apache2.conf"));
    let workers = &front.settings["MaxRequestWorkers"];
    assert_eq!(workers.configured, Some(SettingValue::Integer(14)), "{:?}", front.warnings);
    assert_eq!(workers.file.as_deref(), Some("/etc/httpd/workers.conf"));
    let outside = Server::debian("event", EVENT);
    outside.start();
    let version = |server: &Server| ThisMachine.discover(server.port).unwrap().version;
    assert_eq!(version(&server), version(&outside));
    assert!(front.control.is_none() && front.pending.is_empty(), "{front:?}");
    assert!(front.status_url.is_some(), "{:?}", front.missing);
    let lacking = front.missing.iter().find(|missing| missing.signal == "service control").unwrap();
    assert!(lacking.how_to_enable.contains("docker exec"), "{lacking:?}");
    let refused = foreign_namespace::refusal(&front).unwrap();
    assert!(refused.message.contains("from outside of its container"), "{refused}");
    drop(container);
}

/// An `/etc` for a container, in which the server's configuration is.
fn own_etc(server: &Server) -> std::path::PathBuf {
    // The same path means another file outside.
    let etc = server.path("etc");
    std::fs::create_dir(&etc).unwrap();
    for name in ["passwd", "group"] {
        std::fs::copy(format!("/etc/{name}"), etc.join(name)).unwrap();
    }
    let main = std::fs::read_to_string(server.path("apache2.conf")).unwrap();
    server.write(
        "etc/httpd/apache2.conf",
        &main.replace("Include ports.conf", "Include /etc/links/ports.conf"),
    );
    server.write("etc/httpd/workers.conf", "MaxRequestWorkers 14\n");
    server.write(
        "etc/httpd/ports.conf",
        &format!("Listen 127.0.0.1:{}\nInclude /etc/httpd/workers.conf\n", server.port),
    );
    // A link of the container that leads nowhere outside of it.
    std::os::unix::fs::symlink("/etc/httpd", etc.join("links")).unwrap();
    etc
}
