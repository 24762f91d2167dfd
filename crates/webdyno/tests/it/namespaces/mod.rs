//! Servers in a network namespace, or in a container's root with processes and network of its own: whoever is killed, and
//! from wherever it is rolled back, the server gets its original bytes and listens again where it listened, and nowhere
//! else. Beside each of them runs another one of the same command line on the machine itself, which nobody touches.

mod apart;

use crate::skip::needs;
use crate::support::{
    Apache, Place, children, is_alive, ready, run, shared_turn, signal, snapshot, wait_until,
};
use crate::transport::program;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use webdyno_host::agent::{AgentClient, ServerAddress, Start};
use webdyno_host::change::{StateDir, pending};
use webdyno_host::os::process::ProcessName;
use webdyno_model::change::{ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A session that noise kept from its change is started again so often.
const TRIES_MAX: usize = 3;

/// The files of a server, as far as they are configuration.
type Files = Vec<(PathBuf, Vec<u8>, u32, u32)>;

/// Which files are not as they were.
fn changed(now: &Files, before: &Files) -> Vec<PathBuf> {
    let differ = now
        .iter()
        .filter(|file| !before.contains(file))
        .chain(before.iter().filter(|file| !now.contains(file)));
    differ.map(|(path, ..)| path.clone()).collect()
}

/// A command that must succeed.
fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    let reported = || String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {}", reported());
    String::from_utf8(output.stdout).unwrap()
}

fn is_root() -> bool {
    let may = Command::new("unshare").args(["--net", "--mount", "--pid", "--fork", "true"]).status();
    rustix::process::geteuid().is_root() && may.is_ok_and(|status| status.success())
}

/// A network namespace with a name.
struct Network(String);

impl Network {
    fn new(name: &str) -> Self {
        let network = Self(format!("wd-{name}-{}", std::process::id()));
        sh(&format!("ip netns add {0} && ip -n {0} link set lo up", network.0));
        network
    }

    fn enter(&self) -> String {
        format!("nsenter --net=/run/netns/{}", self.0)
    }

    /// The same name, and another namespace.
    fn make_anew(&self) {
        sh(&format!("ip netns del {0} && ip netns add {0} && ip -n {0} link set lo up", self.0));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).stderr(Stdio::null()).status();
    }
}

/// The processes that listen on a port in the network that a command enters; none on a machine where nobody does.
fn listeners(enter: &str, port: u16) -> Vec<u32> {
    let displayed = sh(&format!("{enter} ss -ltnpH 'sport = :{port}'"));
    let pid = |part: &str| part.split(',').next()?.parse().ok();
    let mut pids: Vec<u32> = displayed.split("pid=").skip(1).filter_map(pid).collect();
    pids.sort_unstable();
    pids
}

/// A server in a network of its own, and one of the same command line on the machine.
struct Pair {
    place: Place,
    network: Network,
    apache: Apache,
    /// Where the one on the machine writes its process id.
    other_pid_file: PathBuf,
    before: Files,
}

impl Pair {
    fn start(name: &str) -> Self {
        let (place, network) = (Place::new(), Network::new(name));
        let apache = Apache::files(&place.path("server"));
        let workers = fs::read_to_string(&apache.mpm_conf).unwrap();
        let bounded = "ServerLimit 20\n    MaxRequestWorkers 20";
        fs::write(&apache.mpm_conf, workers.replace("MaxRequestWorkers       150", bounded)).unwrap();
        // Only their environments tell which one is which.
        let conf = apache.files.root.join("apache2.conf");
        let text = fs::read_to_string(&conf).unwrap();
        let text = text.replace("PidFile run/apache2.pid", "PidFile run/apache2${WD_NAME}.pid");
        fs::write(&conf, text.replace("Listen 127.0.0.1:", "Listen ")).unwrap();
        let before = apache.configuration();
        let other_pid_file = apache.files.root.join("run/apache2-other.pid");
        let pair = Self { place, network, apache, other_pid_file, before };
        pair.start_in(&pair.network.enter(), "");
        pair.start_in("", "-other");
        pair
    }

    fn start_in(&self, enter: &str, name: &str) {
        sh(&format!("WD_NAME={name} {enter} {}", self.apache.files.command.join(" ")));
        let pid_file = self.apache.files.root.join(format!("run/apache2{name}.pid"));
        let runs = || pid_file.exists() && !listeners(enter, self.port()).is_empty();
        assert!(wait_until(Duration::from_secs(10), runs));
    }

    fn port(&self) -> u16 {
        self.apache.files.port
    }

    fn other(&self) -> ProcessName {
        ProcessName::of(fs::read_to_string(&self.other_pid_file).unwrap().trim().parse().unwrap()).unwrap()
    }

    fn words(&self) -> String {
        let state = self.place.path("state");
        let program = assert_cmd::cargo::cargo_bin("webdyno");
        format!(
            "exec:env WEBDYNO_STATE={} {} {} agent",
            state.display(),
            self.network.enter(),
            program.display()
        )
    }

    /// Changes the server as a session does, and kills its guardian, who has nobody left to put it back for.
    fn change_and_kill(&self) {
        change_and_kill(&self.words(), self.port(), &self.place.path("state"));
        assert_ne!(changed(&self.apache.configuration(), &self.before), Vec::<PathBuf>::new());
    }

    /// Ends the server as a change may do it.
    fn end_server(&self) {
        let pid = self.apache.pid().unwrap();
        crate::support::end(pid);
        assert_eq!(listeners(&self.network.enter(), self.port()), Vec::<u32>::new());
    }

    fn webdyno(&self, arguments: &[&str]) -> crate::support::Ended {
        run(self.place.webdyno().args(arguments))
    }

    fn check(&self, other: ProcessName, reported: &str) {
        assert_eq!(changed(&self.apache.configuration(), &self.before), Vec::<PathBuf>::new(), "{reported}");
        let inside = listeners(&self.network.enter(), self.port());
        let main = self.apache.pid().unwrap_or(0);
        assert!(inside.contains(&main), "{inside:?} listen there, not {main}: {reported}");
        let outside = listeners("", self.port());
        assert!(outside.contains(&other.pid) && !outside.contains(&main), "{outside:?}: {reported}");
        let its = children(other.pid);
        assert!(outside.iter().all(|pid| *pid == other.pid || its.contains(pid)), "{outside:?}: {reported}");
        assert_eq!(self.other(), other, "the other one was started anew: {reported}");
        assert_eq!(pending(&StateDir::at(self.place.path("state"))).unwrap(), [], "{reported}");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(&self.other_pid_file).unwrap_or_default().trim().parse() {
            crate::support::end(pid);
        }
        if let Some(pid) = self.apache.pid() {
            crate::support::end(pid);
        }
    }
}

/// More workers by a restart, and the guardian killed while that is in force. It may be in a pid namespace of its own.
fn change_and_kill(words: &str, port: u16, state: &Path) {
    let client = AgentClient::start(&Start::at(ServerAddress::parse(words).unwrap(), program())).unwrap();
    client.discover(port).unwrap();
    let to_30 = |name: &str| SettingChange {
        setting: SettingId::of_service("apache", name),
        to: SettingValue::Integer(30),
    };
    let wanted = [to_30("MaxRequestWorkers"), to_30("ServerLimit")];
    let plan = client.prepare(&wanted).and_then(Preparation::into_plan).unwrap();
    let options = ApplyOptions { allow_restart: true, ..ApplyOptions::default() };
    client.apply(&plan, &options).unwrap();
    let pid: u32 =
        pending(&StateDir::at(state)).unwrap().remove(0).id.rsplit('-').next().unwrap().parse().unwrap();
    // Other tests have namespaces with such a pid, too: ours has the journal open.
    let is_guardian = |child: &u32| pid_inside(*child) == Some(pid) && holds_a_file_of(*child, state);
    let guardian = all_children(std::process::id()).into_iter().find(is_guardian);
    signal(guardian.unwrap(), Signal::KILL);
    assert!(wait_until(Duration::from_secs(5), || !is_alive(guardian.unwrap())));
}

fn all_children(pid: u32) -> Vec<u32> {
    let own = children(pid);
    let further: Vec<u32> = own.iter().flat_map(|child| all_children(*child)).collect();
    [own, further].concat()
}

/// Whether a process has a file open that lies in a folder, whatever it calls that.
fn holds_a_file_of(pid: u32, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fn ids(folder: &Path) -> Vec<(u64, u64)> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| Some((entry.path(), fs::metadata(entry.path()).ok()?)));
        found
            .flat_map(|(path, found)| match found.is_dir() && !folder.starts_with("/proc") {
                true => ids(&path),
                false => vec![(found.dev(), found.ino())],
            })
            .collect()
    }
    let (own, open) = (ids(folder), ids(Path::new(&format!("/proc/{pid}/fd"))));
    open.iter().any(|id| own.contains(id))
}

/// The id of a process in its innermost pid namespace.
fn pid_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().next_back()?.parse().ok()
}

#[test]
fn a_server_in_a_network_namespace_is_rolled_back_in_there() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let pair = Pair::start("net");
    let other = pair.other();
    let inside = format!(
        "WEBDYNO_STATE={} ip netns exec {} {} rollback",
        pair.place.path("state").display(),
        pair.network.0,
        assert_cmd::cargo::cargo_bin("webdyno").display()
    );
    let by_hand = || {
        let ended = pair.webdyno(&["rollback"]).with_code(0);
        ended.stdout
    };
    let by_itself = || pair.webdyno(&["run", "http://127.0.0.1:1/", "-n", "1", "-q"]).stderr;
    let same_words = || pair.webdyno(&["rollback", "--server", &pair.words()]).with_code(0).stdout;
    let from_inside = || sh(&inside);
    let ways: [(&str, &dyn Fn() -> String); 4] = [
        ("rollback", &by_hand),
        ("the next command", &by_itself),
        ("rollback --server", &same_words),
        ("rollback in there", &from_inside),
    ];
    for (at, (way, undo)) in ways.into_iter().enumerate() {
        pair.change_and_kill();
        if at % 2 == 0 {
            // Nothing but its name is left of the namespace.
            pair.end_server();
        }
        let reported = undo();
        assert!(reported.contains("apache"), "{way}: {reported}");
        pair.check(other, &format!("{way}: {reported}"));
    }
}

/// A namespace with its number may be another one by now, and the one that has its name is its successor.
#[test]
fn a_network_namespace_that_was_made_anew_is_entered_by_its_name() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let pair = Pair::start("anew");
    let other = pair.other();
    pair.change_and_kill();
    pair.end_server();
    pair.network.make_anew();
    let reported = pair.webdyno(&["rollback"]).with_code(0).stdout;
    pair.check(other, &reported);
}

/// Without a name and a process nothing leads there: the files are put back, and nothing is started anywhere.
#[test]
fn a_network_namespace_that_is_gone_leaves_the_files_to_be_put_back() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let pair = Pair::start("gone");
    let other = pair.other();
    pair.change_and_kill();
    pair.end_server();
    sh(&format!("ip netns del {}", pair.network.0));
    let reported = pair.webdyno(&["rollback"]).with_code(0).stdout;
    assert!(reported.contains("was not started: the network namespace that it ran in is gone"), "{reported}");
    assert_eq!(changed(&pair.apache.configuration(), &pair.before), Vec::<PathBuf>::new(), "{reported}");
    let its = [children(other.pid), vec![other.pid]].concat();
    let outside = listeners("", pair.port());
    assert!(pair.other() == other && outside.iter().all(|pid| its.contains(pid)), "{outside:?}: {reported}");
}

/// The whole program tunes a server in there from outside, and is killed: its guardian is in there.
#[test]
fn a_guardian_in_a_network_namespace_puts_everything_back() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let pair = Pair::start("tune");
    let (other, name) = (pair.other(), &pair.network.0);
    // RFC 2544: addresses for tests like this one. They go with the namespace.
    let link = format!("wd{}", std::process::id());
    sh(&format!(
        "ip link add {link} type veth peer name wdup netns {name} && ip addr add 198.18.77.1/30 dev {link} && ip link set {link} up \
         && ip -n {name} addr add 198.18.77.2/30 dev wdup && ip -n {name} link set wdup up"
    ));
    let (url, words) = (format!("http://198.18.77.2:{}/app", pair.port()), pair.words());
    let tune = ["tune", &url, "--server", &words, "--apply", "--allow-restart", "--goal", "1000 req/s"];
    let load = ["-c", "60", "--no-keepalive", "-d", "3s", "--warmup", "0s", "-q"];
    let is_changed = || !changed(&pair.apache.configuration(), &pair.before).is_empty();
    // Where something else holds the processors, nothing is found to change.
    let is_killed_amid_its_change = (0..TRIES_MAX).any(|number| {
        let out = format!("t{number}");
        let mut tool = pair.place.child(&[&tune, &load[..], &["--out", &out]].concat());
        wait_until(Duration::from_secs(60), || is_changed() || tool.try_wait().unwrap().is_some());
        let amid = is_changed() && tool.try_wait().unwrap().is_none();
        tool.kill().unwrap();
        tool.wait().unwrap();
        amid
    });
    assert!(is_killed_amid_its_change, "nothing was changed in {TRIES_MAX} sessions");
    let is_back = || pending(&StateDir::at(pair.place.path("state"))).unwrap().is_empty();
    assert!(wait_until(Duration::from_secs(40), is_back), "the guardian did nothing");
    pair.check(other, "the guardian");
    let journals = fs::read_dir(pair.place.path("state/journals")).unwrap();
    let journal = fs::read_to_string(journals.last().unwrap().unwrap().path()).unwrap();
    assert!(journal.contains(&words) && journal.contains(&format!("/run/netns/{name}")), "{journal}");
}

/// A root, processes and a network of its own, as a container has them.
struct Container {
    root: PathBuf,
    /// What made it; everything in there ends with it.
    unshare: Child,
    /// Process 1 of it, seen from the machine.
    first: u32,
    /// Where the server's files are, seen from the machine.
    server: PathBuf,
    command: String,
    port: u16,
    before: Files,
}

impl Container {
    /// A server that no other one is like.
    fn start(root: PathBuf) -> Self {
        make_root(&root);
        let mut apache = Apache::files(&root.join("srv"));
        // Its process id would mean another process out here, which must not be ended for it.
        apache.files.pid_file = PathBuf::new();
        let outside = apache.files.root.display().to_string();
        let inside = outside.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        for (path, bytes, ..) in snapshot(&apache.files.root) {
            fs::write(&path, String::from_utf8(bytes).unwrap().replace(&outside, &inside)).unwrap();
        }
        let conf = fs::read_to_string(&apache.mpm_conf).unwrap();
        let bounded = "ServerLimit 20\n    MaxRequestWorkers 20";
        fs::write(&apache.mpm_conf, conf.replace("MaxRequestWorkers       150", bounded)).unwrap();
        let command = apache.files.command.join(" ").replace(&outside, &inside);
        Self::start_in(root, apache.files.root.clone(), command, apache.files.port)
    }

    /// A second one like it, to the byte.
    fn another(&self, root: PathBuf) -> Self {
        make_root(&root);
        sh(&format!(
            "cp -a {}/srv/. {}/srv/ && rm -f {}/srv/*/run/*",
            self.root.display(),
            root.display(),
            root.display()
        ));
        let server = root.join(self.server.strip_prefix(&self.root).unwrap());
        Self::start_in(root, server, self.command.clone(), self.port)
    }

    fn start_in(root: PathBuf, server: PathBuf, command: String, port: u16) -> Self {
        let script = format!(
            "cd {} && mount --rbind /usr usr && mount --rbind /dev dev && mount -t proc proc proc && ip link set lo up \
             && exec chroot . /bin/bash -c '{command} && echo ready; while read -r _; do :; done'",
            root.display()
        );
        let unshare = ready(
            Command::new("unshare")
                .args(["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--uts", "--ipc"])
                .args(["--kill-child", "sh", "-c", &script]),
        );
        let first = children(unshare.id())[0];
        let before = snapshot(&server);
        let container = Self { root, unshare, first, server, command, port, before };
        assert!(wait_until(Duration::from_secs(10), || !container.listeners().is_empty()));
        container
    }

    fn changed(&self) -> Vec<PathBuf> {
        changed(&snapshot(&self.server), &self.before)
    }

    fn enter(&self) -> String {
        format!("nsenter --target {} --mount --net --pid --root --wd", self.first)
    }

    fn listeners(&self) -> Vec<u32> {
        listeners(&format!("nsenter --net=/proc/{}/ns/net", self.first), self.port)
    }

    fn words(&self) -> String {
        format!("exec:{} webdyno agent", self.enter())
    }

    fn state(&self) -> PathBuf {
        self.root.join("var/lib/webdyno")
    }

    /// Ends the server as a change may do it; the container goes on.
    fn end_server(&self) {
        let main = *self.listeners().first().unwrap();
        crate::support::end(main);
        assert!(wait_until(Duration::from_secs(5), || self.listeners().is_empty()));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        let gone = || !is_alive(self.first);
        assert!(wait_until(Duration::from_secs(5), gone) || std::thread::panicking());
    }
}

/// Programs of the machine, and all else of its own.
fn make_root(root: &Path) {
    for folder in ["usr", "etc", "proc", "dev", "tmp", "run", "var/lib", "srv"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    for name in ["passwd", "group", "nsswitch.conf", "hosts", "ld.so.cache"] {
        let _ = fs::copy(Path::new("/etc").join(name), root.join("etc").join(name));
    }
}

/// The program as it would be installed: it is sent. Without a state directory with the usual one, wherever it comes to.
fn webdyno(place: &Place, state: Option<&Path>) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(program());
    command.current_dir(place.path("")).timeout(Duration::from_secs(60));
    match state {
        Some(state) => command.env("WEBDYNO_STATE", state),
        None => command.env_remove("WEBDYNO_STATE"),
    };
    command
}

#[test]
fn a_server_in_a_container_is_rolled_back_in_there() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let place = Place::new();
    let container = Container::start(place.path("root"));
    let other = container.another(place.path("other"));
    let (others, words) = (other.listeners(), container.words());
    let outside = |arguments: &[&str]| run(webdyno(&place, Some(&container.state())).args(arguments));
    let by_hand = || outside(&["rollback"]).with_code(0).stdout;
    let by_itself = || outside(&["run", "http://127.0.0.1:1/", "-n", "1", "-q"]).stderr;
    let same_words = || run(webdyno(&place, None).args(["rollback", "--server", &words])).with_code(0).stdout;
    fs::copy(program(), container.root.join("webdyno")).unwrap();
    let from_inside = || sh(&format!("{} /webdyno rollback", container.enter()));
    let ways: [(&str, &dyn Fn() -> String); 4] = [
        ("rollback", &by_hand),
        ("the next command", &by_itself),
        ("rollback --server", &same_words),
        ("rollback in there", &from_inside),
    ];
    for (at, (way, undo)) in ways.into_iter().enumerate() {
        change_and_kill(&words, container.port, &container.state());
        assert_ne!(container.changed(), Vec::<PathBuf>::new());
        if at % 2 == 0 {
            container.end_server();
        }
        // On the machine itself there is nothing of it, and the other container has other files.
        assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
        let reported = undo();
        assert_eq!(container.changed(), Vec::<PathBuf>::new(), "{way}: {reported}");
        assert!(!container.listeners().is_empty(), "{way}: {reported}");
        assert_eq!(listeners("", container.port), Vec::<u32>::new(), "{way}: {reported}");
        assert_eq!(
            (other.listeners(), snapshot(&other.server)),
            (others.clone(), other.before.clone()),
            "{way}"
        );
        assert_eq!(pending(&StateDir::at(container.state())).unwrap(), [], "{way}: {reported}");
    }
}

/// A journal that others see, too, is no reason to restore the files of others, nor to stop what has its name there.
#[test]
fn who_is_elsewhere_and_cannot_enter_touches_nothing() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let place = Place::new();
    let container = Container::start(place.path("root"));
    let other = container.another(place.path("other"));
    change_and_kill(&container.words(), container.port, &container.state());
    let changed = container.changed();
    sh(&format!("cp -a {}/. {}", container.state().display(), other.state().display()));
    fs::copy(program(), other.root.join("webdyno")).unwrap();
    let (others, line) = (other.listeners(), format!("{} /webdyno rollback", other.enter()));
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("cannot be undone from here") && reported.contains(&container.words()),
        "{reported}"
    );
    assert_eq!((other.listeners(), other.changed()), (others, vec![]), "{reported}");
    assert_eq!(container.changed(), changed);
    let words = container.words();
    let done = run(webdyno(&place, None).args(["rollback", "--server", &words])).with_code(0).stdout;
    assert_eq!(container.changed(), Vec::<PathBuf>::new(), "{done}");
}
