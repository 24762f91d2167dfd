//! A machine of a test's own: Debian 12 with a real systemd as process 1, which can be cut off from its power and booted
//! again with the disk that it had.
//!
//! It is made of namespaces (namespaces(7)) by boot.sh, over the packages that `scripts/setup test` unpacks once, and
//! dies with the test.

use crate::debian::Tree;
use crate::skip::skip;
use crate::support::{can_mount, children, signal, wait_until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const BOOT: &str = include_str!("boot.sh");

/// Where `scripts/setup test` puts the packages; the number there and here rises with their list.
const DEBIAN: &str = "/var/cache/webdyno-test/debian-12-systemd-2";

/// Where the program is on the machine, as an administrator installs it.
pub const PROGRAM: &str = "/usr/local/bin/webdyno";

/// The prefork MPM with more processes at the start than there may be: as many as are allowed are there at once.
const MPM: &str = "StartServers 40\nMinSpareServers 40\nMaxSpareServers 60\nMaxRequestWorkers 10\n";

/// Each answer takes about a tenth of a second and hardly any processor.
const APPLICATION: &str = "function handle(r)\n    r.content_type = 'text/plain'\n    \
     r.usleep(math.random(70000, 130000))\n    r:puts('done')\n    return apache2.OK\nend\n";

const SITE: &str =
    "ServerName web\nLuaScope thread\nLuaCodeCache forever\nLuaMapHandler \"^/app$\" \"/var/www/app.lua\"\n";

/// The machine.
pub struct Machine {
    folder: tempfile::TempDir,
    group: PathBuf,
    /// What waits for process 1.
    power: Option<Child>,
}

/// What systemd says of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub main_pid: u32,
    /// Another one after each start.
    pub invocation: String,
    /// How often systemd started it again by itself.
    pub restarts: u32,
    pub state: String,
    /// Messages of systemd that it was reloaded, since the boot.
    pub reloads: usize,
    /// Messages of systemd that it was started, since the boot.
    pub starts: usize,
}

/// Whether there can be a machine here, which is said where there can be none. On CI, root must have one.
pub fn can_boot() -> bool {
    let is_root = rustix::process::geteuid().is_root() && can_mount();
    let why = match (is_root, Path::new(DEBIAN).exists(), can_make_groups()) {
        (false, ..) => "needs root and mount(8), to boot a systemd in namespaces",
        (_, false, _) => "there is no Debian with systemd to boot; `scripts/setup test` unpacks one",
        (.., false) => "needs control groups of version 2 that can be written",
        _ => return true,
    };
    skip(why);
    false
}

/// Where the control groups of version 2 are: alone, or beside those of version 1.
fn unified_groups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.find(|fields| fields[2] == "cgroup2").map(|fields| fields[1].into())
}

/// As in a container as a rule they cannot.
fn can_make_groups() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let name = format!("webdyno-test-{}", std::process::id());
        let group = unified_groups().map(|groups| groups.join(name));
        group.is_some_and(|group| fs::create_dir(&group).is_ok() && fs::remove_dir(&group).is_ok())
    })
}

impl Machine {
    /// Boots one with the program and an Apache of ten workers.
    pub fn boot() -> Self {
        Self::boot_with(&[])
    }

    /// The same with these files more, which root alone may write.
    pub fn boot_with(files: &[(&str, &str)]) -> Self {
        // Like any disk, it outlives a boot: the program looks for that.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let name = format!("webdyno-test-{}", folder.path().file_name().unwrap().to_str().unwrap());
        let group = unified_groups().unwrap().join(name);
        let mut machine = Self { folder, group, power: None };
        for name in ["upper", "work", "root"] {
            fs::create_dir(machine.folder.path().join(name)).unwrap();
        }
        machine.install();
        files.iter().for_each(|(path, text)| machine.write(path, text));
        machine.power_on();
        let modules = "a2dismod -q mpm_event && a2enmod -q mpm_prefork lua && a2enconf -q site";
        machine.shell(&format!("{modules} && systemctl restart apache2"));
        machine
    }

    fn install(&self) {
        let debug = assert_cmd::cargo::cargo_bin("webdyno");
        let program = self.on_disk(PROGRAM);
        let stripped = Command::new("strip").arg("--strip-debug").arg("-o").arg(program).arg(debug).status();
        assert!(stripped.unwrap().success());
        self.write("/etc/hostname", "web\n");
        self.write("/etc/hosts", "127.0.0.1 localhost web\n");
        self.write("/etc/apache2/mods-available/mpm_prefork.conf", MPM);
        self.write("/etc/apache2/conf-available/site.conf", SITE);
        self.write("/var/www/app.lua", APPLICATION);
    }

    /// Where a file of the machine is on its own disk, seen from outside while it is off.
    fn on_disk(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join("upper").join(path.trim_start_matches('/'));
        let mut missing: Vec<&Path> =
            path.parent().unwrap().ancestors().take_while(|folder| !folder.exists()).collect();
        while let Some(folder) = missing.pop() {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.on_disk(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// Boots it with the disk that it has, and waits until everything is started.
    pub fn power_on(&mut self) {
        let path = |name: &str| self.folder.path().join(name);
        fs::write(path("stat"), fs::read("/proc/stat").unwrap()).unwrap();
        fs::copy("/proc/sys/kernel/random/uuid", path("boot_id")).unwrap();
        fs::create_dir_all(&self.group).unwrap();
        let console = fs::File::create(path("console")).unwrap();
        // The group first, so that it is the root of what the machine knows of groups. A killed test takes it along.
        let script = "echo 0 >\"$1/cgroup.procs\" && shift && exec setpriv --pdeathsig KILL \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.group);
        command.args(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
        command.args(["--uts", "--ipc", "--net", "--cgroup", "sh", "-c", BOOT, "boot"]);
        command.arg(self.folder.path()).arg(DEBIAN).stdin(Stdio::null());
        command.stdout(console.try_clone().unwrap()).stderr(console);
        self.power = Some(command.spawn().unwrap());
        let state = || self.type_in("systemctl is-system-running --wait");
        let is_up = || {
            let output = self.first().map(|_| state());
            output.is_some_and(|output| !output.stdout.is_empty() && !output.stdout.starts_with(b"offline"))
        };
        let up = wait_until(Duration::from_secs(60), is_up);
        assert!(up, "{}", fs::read_to_string(path("console")).unwrap());
        let state = printed(&state());
        assert_eq!(state.trim(), "running", "{}", printed(&self.type_in("systemctl --failed")));
    }

    /// All ends at once, as when the power fails: nothing of it has a last word.
    pub fn power_off(&mut self) {
        let Some(mut power) = self.power.take() else { return };
        if let Some(first) = children(power.id()).first() {
            signal(*first, Signal::KILL);
        }
        power.wait().unwrap();
    }

    /// It shuts down in good order, as somebody told it to; how long that took.
    pub fn shut_down(&mut self) -> Duration {
        let begun = Instant::now();
        self.type_in("systemctl poweroff");
        let Some(mut power) = self.power.take() else { return Duration::ZERO };
        let is_off = wait_until(Duration::from_secs(150), || !matches!(power.try_wait(), Ok(None)));
        if !is_off {
            power.kill().unwrap();
            power.wait().unwrap();
        }
        assert!(is_off, "it does not shut down");
        begun.elapsed()
    }

    /// Process 1, by its id out here, as soon as it is systemd.
    fn first(&self) -> Option<u32> {
        let first = *children(self.power.as_ref()?.id()).first()?;
        let name = fs::read_to_string(format!("/proc/{first}/comm")).ok()?;
        (name.trim() == "systemd").then_some(first)
    }

    /// What gets to the machine, before a command that is run there.
    pub fn entrance(&self) -> String {
        format!("nsenter --target {} --all --", self.first().unwrap())
    }

    fn type_in(&self, script: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first().unwrap().to_string(), "--all", "--", "env", "-i"]);
        command.args(["HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(["sh", "-c", script]).output().unwrap()
    }

    /// What an administrator types there, and what it shows.
    pub fn shell(&self, script: &str) -> String {
        let output = self.type_in(script);
        assert!(output.status.success(), "{script}: {}", printed(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, whatever comes of it: its exit code, and all that it printed.
    pub fn typed(&self, script: &str) -> (i32, String) {
        let output = self.type_in(script);
        (output.status.code().unwrap(), printed(&output))
    }

    /// The program there, as a service of its own: systemd knows all that it starts. What it said, and its exit code.
    pub fn webdyno(&self, words: &str) -> (i32, String) {
        let run = "systemd-run --quiet --pipe --wait --collect --setenv=HOME=/root";
        self.typed(&format!("{run} {PROGRAM} {words}"))
    }

    /// A path of the machine, as it is seen from outside.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first().unwrap()))
    }

    /// All that is configured there.
    pub fn configuration(&self) -> Tree {
        Tree::of(&self.path("/etc"))
    }

    /// What systemd says of a service.
    pub fn unit(&self, name: &str) -> Unit {
        let properties = "MainPID,InvocationID,NRestarts,ActiveState";
        let shown = self.shell(&format!("systemctl show {name} --property={properties}"));
        let value = |property: &str| {
            let line = shown.lines().find_map(|line| line.strip_prefix(property)?.strip_prefix('='));
            line.unwrap().to_owned()
        };
        let journal = self.shell(&format!(
            "journalctl --sync; journalctl -b -q -o cat --no-pager _PID=1 UNIT={name}.service"
        ));
        let said = |word: &str| journal.lines().filter(|line| line.starts_with(word)).count();
        Unit {
            main_pid: value("MainPID").parse().unwrap(),
            invocation: value("InvocationID"),
            restarts: value("NRestarts").parse().unwrap(),
            state: value("ActiveState"),
            reloads: said("Reloaded "),
            starts: said("Started "),
        }
    }

    /// The workers that its Apache has now.
    pub fn workers(&self) -> usize {
        let main = self.unit("apache2").main_pid;
        self.shell(&format!("pgrep -c -P {main} || true")).trim().parse().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.power_off();
        // Processes that were killed are in their groups until the kernel has taken them away.
        wait_until(Duration::from_secs(5), || {
            remove_groups(&self.group);
            !self.group.exists()
        });
    }
}

/// All that a command printed.
fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Control groups have files that go with them: only folders are removed, the inner ones first.
fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
