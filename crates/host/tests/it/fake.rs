//! A simulated server in a folder, and what a test needs to compare.
//!
//! The server's configuration is `etc/*.conf`; what is "running" is a copy of it that activating makes. `INVALID` in
//! a file fails the validation, `DEADLY` ends the service when it is activated, `Workers N` is its setting. `# WAITS
//! FILE` says that a file waits for a reload, and so does a line of the file `waiting` beside the configuration.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::booting::{BootWorld, tree};
use crate::extent::{leave_out, runs_all};
use crate::fake_harm_guard::{FakeHarmGuard, NoWatch};
pub use crate::fault_injection::{FaultInjection, FaultyDisk, Label, What};
use crate::prove::{self, PretendedWorld};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};
use webdyno_host::agent::host::{HarmGuard, Host, Watch};
use webdyno_host::change::action::Served;
use webdyno_host::change::apply::Changer;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::seams::disk::{Disk, sha256_hex};
use webdyno_host::change::seams::processes::System;
use webdyno_host::change::seams::services::Programs;
use webdyno_host::change::{StateDir, Tools};
use webdyno_host::collectors::Target;
use webdyno_host::harm_guard::watch::HarmHandler;
use webdyno_host::os::process::ProcessName;
use webdyno_host::services::{Activation, Observe, PendingChange, SettingRevert, Shadow, Tunable};
use webdyno_model::change::{ApplyClass, Change, FileEdit, Preparation, RenderedPlan, SettingChange};
use webdyno_model::environment::Environment;
use webdyno_model::sample::{CollectorInfo, Sample};
use webdyno_model::service::{Control, ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::setting::SettingId;
use webdyno_model::{Result, UserError};

/// The port that the simulated server says it listens on.
pub const PORT: u16 = 8000;

/// An empty folder, in memory where there is such a place: these tests wait for the disk thousands of times.
pub fn empty_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A simulated server and machine in a folder.
#[derive(Clone)]
pub struct FakeServer {
    pub folder: PathBuf,
    pub fault: FaultInjection,
    /// How long activating takes.
    pub slow: Duration,
    /// How long testing the configuration takes.
    pub slow_test: Duration,
    /// Whether the service takes over what it is told to.
    pub obeys: bool,
    /// Whether it has shadow instances and answers requests, on a simulated system.
    pub shadows: bool,
    /// Whether it tells when it took its configuration.
    pub tells_reads: bool,
}

/// The files of the simulated server at the beginning, with their modes.
pub const FILES: [(&str, &str, u32); 2] =
    [("a.conf", "Workers 10\n", 0o640), ("b.conf", "KeepAlive On\n# é\n", 0o604)];

impl FakeServer {
    /// One in an empty folder of its own, which lasts as long as what is returned for it.
    pub fn fresh() -> (tempfile::TempDir, Self) {
        let folder = empty_folder();
        let server = Self::set_up(folder.path());
        (folder, server)
    }

    /// Sets one up in an empty folder, with owners of their own where that is possible.
    pub fn set_up(folder: &Path) -> Self {
        let server = Self::at(folder);
        std::fs::create_dir_all(folder.join("etc")).unwrap();
        for (index, (name, text, mode)) in FILES.into_iter().enumerate() {
            let path = server.conf(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&path, Some(100 + index as u32), Some(200)).unwrap();
            }
            let old = std::time::UNIX_EPOCH + Duration::new(1_600_000_000 + index as u64, 5000);
            File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
        }
        std::fs::write(folder.join("alive"), "1").unwrap();
        std::fs::create_dir_all(folder.join("root/etc/systemd/system")).unwrap();
        server.take_over();
        server
    }

    /// The one that was set up in a folder.
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            fault: FaultInjection::default(),
            slow: Duration::ZERO,
            slow_test: Duration::ZERO,
            obeys: true,
            shadows: false,
            tells_reads: false,
        }
    }

    pub fn conf(&self, name: &str) -> PathBuf {
        self.folder.join("etc").join(name)
    }

    pub fn state(&self) -> StateDir {
        StateDir::at(self.folder.join("state"))
    }

    pub fn tools(&self, disk: Arc<dyn Disk>) -> Tools {
        let system = BootWorld {
            folder: self.folder.clone(),
            boot_id: None,
            machine_id: None,
            fault: self.fault.clone(),
        };
        let system: Arc<dyn System> = match self.shadows {
            true => Arc::new(PretendedWorld(self.clone(), system)),
            false => Arc::new(system),
        };
        Tools { disk, system, ..Tools::with_programs(self.state(), Arc::new(self.clone())) }
    }

    pub fn changer(&self) -> Changer {
        let owner = Owner { tool: None, what: "webdyno tune".into() };
        let mut changer = Changer::with(self.tools(Arc::new(FaultyDisk(self.fault.clone()))), owner);
        changer.set_read_back_time(Duration::from_millis(100));
        changer.set_cancellation(self.fault.gone());
        changer
    }

    /// Everything that must be as before: names, bytes, modes, owners and times of the files, and what runs.
    pub fn picture(&self) -> BTreeMap<String, (Vec<u8>, u32, u32, u32, i64)> {
        let mut picture = BTreeMap::new();
        for entry in std::fs::read_dir(self.folder.join("etc")).unwrap() {
            let (path, found) = {
                let e = entry.unwrap();
                (e.path(), e.metadata().unwrap())
            };
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let time = found.mtime() * 1_000_000_000 + found.mtime_nsec();
            picture
                .insert(name, (std::fs::read(&path).unwrap(), found.mode(), found.uid(), found.gid(), time));
        }
        for path in tree(&self.folder.join("root")) {
            let content = std::fs::read(&path).unwrap_or_default();
            picture.insert(path.display().to_string(), (content, 0, 0, 0, 0));
        }
        let alive = self.pid().is_some();
        let running = self.running().into_bytes();
        picture.insert("running".into(), (running, u32::from(alive), 0, 0, 0));
        picture
    }

    pub fn running(&self) -> String {
        std::fs::read_to_string(self.folder.join("running")).unwrap()
    }

    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.folder.join("alive")).ok()?.parse().ok()
    }

    pub fn set_alive(&self, pid: Option<u32>) {
        match pid {
            Some(pid) => std::fs::write(self.folder.join("alive"), pid.to_string()).unwrap(),
            None => std::fs::remove_file(self.folder.join("alive")).unwrap(),
        }
    }

    fn configuration(&self) -> String {
        let mut names: Vec<_> =
            std::fs::read_dir(self.folder.join("etc")).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.retain(|path| path.extension().is_some_and(|end| end == "conf"));
        names.sort();
        names.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    /// What the configuration would be.
    fn configuration_with(&self, edits: &[FileEdit]) -> String {
        let text = |name: &str| {
            let path = self.conf(name);
            let edit = edits.iter().find(|edit| Path::new(&edit.path) == path);
            edit.map_or_else(|| std::fs::read_to_string(path).unwrap_or_default(), |edit| edit.after.clone())
        };
        ["a.conf", "b.conf", "new.conf"].map(text).concat()
    }

    /// So many connections are open from now on: fewer workers than that would drop some.
    pub fn set_in_use(&self, connections: u64) {
        std::fs::write(self.folder.join("in_use"), connections.to_string()).unwrap();
    }

    fn in_use(&self) -> Option<f64> {
        std::fs::read_to_string(self.folder.join("in_use")).ok()?.parse().ok()
    }

    fn take_over(&self) {
        std::fs::write(self.folder.join("running"), self.configuration()).unwrap();
    }

    /// How it is controlled now, or was last.
    pub fn control(&self) -> Control {
        Control {
            pid: self.pid().unwrap_or(0),
            start_ticks: 1,
            executable: "/fake".into(),
            arguments: vec!["/fake".into()],
            directory: "/".into(),
            ..Control::default()
        }
    }

    pub fn snapshot_now(&self) -> ServiceSnapshot {
        self.snapshot(self.pid().unwrap_or(0), PORT).unwrap()
    }

    /// A plan that gives files new texts; the text's last `Workers` is the wanted value.
    pub fn plan(&self, edits: &[(&str, &str)], class: ApplyClass) -> RenderedPlan {
        let file = |(name, after): &(&str, &str)| FileEdit {
            path: self.conf(name).to_str().unwrap().to_owned(),
            before_sha256: std::fs::read(self.conf(name)).ok().map(|bytes| sha256_hex(&bytes)),
            before: std::fs::read_to_string(self.conf(name)).ok(),
            after: (*after).to_owned(),
        };
        let change = |(name, after): &(&str, &str)| {
            let to = SettingValue::parse(after.lines().find_map(|line| line.strip_prefix("Workers "))?);
            Some(Change {
                setting: SettingId::of_service("fake", "Workers"),
                from: None,
                to,
                file: (*name).into(),
                class,
                server: None,
            })
        };
        RenderedPlan {
            files: edits.iter().map(file).collect(),
            class,
            ..RenderedPlan::live(edits.iter().filter_map(change).collect(), String::new())
        }
    }

    pub fn act(&self, act: impl Fn()) -> Result<()> {
        let whole = || {
            act();
            Ok(())
        };
        let done = self.fault.act(whole, |_| act());
        done.map_err(|error| UserError::cannot_run(format!("fake: {error}")))
    }
}

fn workers(text: &str) -> Option<SettingValue> {
    text.lines().filter_map(|line| line.strip_prefix("Workers ")).next_back().map(SettingValue::parse)
}

impl Observe for FakeServer {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn recognises(&self, executable: &str, _: &[String]) -> bool {
        executable == "/fake"
    }

    fn snapshot(&self, pid: u32, port: u16) -> Result<ServiceSnapshot> {
        let running = workers(&self.running());
        let setting = SettingInForce { running, ..SettingInForce::default() };
        Ok(ServiceSnapshot {
            service: "fake".into(),
            pid,
            executable: Some("/fake".into()),
            port,
            settings: BTreeMap::from([("Workers".to_owned(), setting)]),
            control: Some(self.control()),
            ..ServiceSnapshot::default()
        })
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for FakeServer {
    fn init_names(&self) -> &'static [&'static str] {
        &["fake"]
    }

    fn prepare(&self, _: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
        let text = changes
            .iter()
            .map(|change| {
                format!(
                    "{} {}
",
                    change.setting.name, change.to
                )
            })
            .collect::<String>();
        Ok(Preparation::Plan(Box::new(self.plan(&[("a.conf", &text)], ApplyClass::Reload))))
    }

    fn validate(&self, _: &Control) -> Result<()> {
        std::thread::sleep(self.slow_test);
        match self.configuration().contains("INVALID") {
            true => Err(UserError::cannot_run("fake: the configuration is invalid")),
            false => Ok(()),
        }
    }

    fn activate(&self, control: &Control, class: ApplyClass, _: u16) -> Result<Activation> {
        std::thread::sleep(self.slow);
        if !self.is_alive(control) {
            return Err(UserError::cannot_run("fake: not running"));
        }
        if self.configuration().contains("DEADLY") {
            self.set_alive(None);
            return Err(UserError::cannot_run("fake: died"));
        }
        self.act(|| {
            if self.obeys {
                self.take_over();
            }
            if class == ApplyClass::Restart {
                self.set_alive(Some(control.pid + 1));
            }
        })?;
        let outage_us = (class == ApplyClass::Restart).then_some(1000);
        Ok(Activation { control: self.control(), outage_us, unsettled: None })
    }

    fn start(&self, control: &Control, _: u16) -> Result<Activation> {
        self.act(|| {
            self.set_alive(Some(control.pid + 1));
            self.take_over();
        })?;
        Ok(Activation { control: self.control(), outage_us: None, unsettled: None })
    }

    fn pending_changes(&self, _: &Control, _: u16, own: &[PathBuf]) -> Result<Vec<PendingChange>> {
        let named = std::fs::read_to_string(self.folder.join("waiting")).unwrap_or_default();
        let in_files = self.configuration();
        let marked = in_files.lines().filter_map(|line| line.strip_prefix("# WAITS "));
        let all = named.lines().chain(marked).map(|name| self.conf(name)).filter(|path| !own.contains(path));
        let why = "was changed 2 min after Fake last read its configuration".to_owned();
        Ok(all.map(|path| PendingChange { path, why: why.clone() }).collect())
    }

    fn shadow(&self, _: &Control, edits: &[FileEdit], _: u16, folder: &Path) -> Result<Option<Shadow>> {
        match self.shadows {
            true => prove::shadow(&self.configuration_with(edits), folder).map(Some),
            false => Ok(None),
        }
    }

    fn undo_drops(&self, _: &Control, _: u16, undoing: &SettingRevert<'_>) -> Option<String> {
        let (in_use, back) = (self.in_use()?, undoing.back?.number()?);
        (undoing.setting == "Workers" && back < in_use)
            .then(|| format!("{:.0} of {in_use} connections are dropped", in_use - back))
    }

    fn read_since(&self, _: &Control, time: SystemTime) -> Option<bool> {
        let taken = std::fs::metadata(self.folder.join("running")).ok()?.modified().ok()?;
        // Files are stamped in ticks of the kernel's clock.
        self.tells_reads.then(|| taken + Duration::from_millis(20) >= time)
    }

    fn running_values(&self, snapshot: &ServiceSnapshot) -> BTreeMap<String, SettingValue> {
        let shown =
            |(name, setting): (&String, &SettingInForce)| Some((name.clone(), setting.running.clone()?));
        snapshot.settings.iter().filter_map(shown).collect()
    }
}

impl Programs for FakeServer {
    fn tunable(&self, name: &str) -> Option<&dyn Tunable> {
        match name {
            "fake" => Some(self),
            // A real one, behind it.
            _ => webdyno_host::services::tunable(name),
        }
    }

    fn on_port(&self, name: &str, port: u16, before: &Control) -> Option<Control> {
        match name {
            "fake" => (port == PORT && self.pid().is_some()).then(|| self.control()),
            _ => webdyno_host::services::tunable(name)?.find_again(before, port),
        }
    }

    fn other_on_port(&self, _: &str, _: u16) -> Option<String> {
        std::fs::read_to_string(self.folder.join("other")).ok()
    }

    fn claim_names(&self, served: &Served) -> Vec<String> {
        vec![format!("{}/{}", self.folder.display(), served.port)]
    }

    fn is_alive(&self, control: &Control) -> bool {
        let is_fake = control.executable == self.control().executable;
        if is_fake { self.pid() == Some(control.pid) } else { ProcessName::from(control).is_alive() }
    }
}

impl Host for FakeServer {
    fn environment(&self) -> Environment {
        let cores =
            std::fs::read_to_string(self.folder.join("cores")).ok().and_then(|text| text.parse().ok());
        Environment { hostname: Some("fake".into()), cores, ..Environment::default() }
    }

    fn collectors(&self) -> Vec<CollectorInfo> {
        vec![]
    }

    fn discover(&self, port: u16) -> Result<ServiceSnapshot> {
        match self.pid() {
            Some(pid) if port == PORT => self.snapshot(pid, port),
            _ => Err(UserError::cannot_run(format!("nothing listens on port {port}"))),
        }
    }

    fn observe(&self, target: Target, sink: Sender<(u64, Sample)>) -> Result<Box<dyn Watch>> {
        let values = BTreeMap::new();
        let sample = Sample {
            source: format!("fake on {:?}", target.port),
            duration_us: 1,
            values,
            ..Sample::default()
        };
        sink.send((webdyno_host::os::clock::clock_us(), sample)).unwrap();
        Ok(Box::new(NoWatch))
    }

    fn watch_loads(
        &self,
        _: &Target,
        _: Option<&ServiceSnapshot>,
        pull: HarmHandler,
    ) -> Result<Box<dyn HarmGuard>> {
        Ok(Box::new(FakeHarmGuard::in_folder(&self.folder, pull)))
    }

    fn owns(&self, address: IpAddr) -> bool {
        webdyno_host::os::machine::owns(address)
    }
}

/// The environment variable that makes a test the process that is killed: `FOLDER|ACT|WITHIN|`, and what it does.
const VICTIM: &str = "WEBDYNO_TEST_VICTIM";

/// In a process that is to be killed at an act: its server, its fault, and the words that say what it does.
pub fn victim_order() -> Option<(FakeServer, FaultInjection, Vec<String>)> {
    let order = std::env::var(VICTIM).ok()?;
    let parts: Vec<String> = order.split('|').map(str::to_owned).collect();
    let what = if parts[2] == "true" { What::AbortWithin } else { What::AbortBefore };
    let fault = FaultInjection::at(parts[1].parse().unwrap(), what);
    let server = FakeServer { fault: fault.clone(), ..FakeServer::at(Path::new(&parts[0])) };
    Some((server, fault, parts[3..].to_vec()))
}

/// On real services a session is killed at every so many acts, if not all kills are wanted; on the made-up one at each.
const ACTS_APART: usize = 3;

/// How many acts lie between two kills.
pub fn acts_apart() -> usize {
    if runs_all() { 1 } else { ACTS_APART }
}

/// States how many kills were left out beside these.
pub fn leave_out_between(kills: usize) {
    leave_out(kills * (acts_apart() - 1), "kills of a session on a real service, at one of its acts");
}

/// Runs this test, by a prefix of the command, as the process that is killed. False when it ended before it came to that.
pub fn victim_of(prefix: &[&str], test: &str, order: &str) -> bool {
    let program = std::env::current_exe().unwrap();
    let words = prefix.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]).collect::<Vec<_>>();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--exact", test, "--nocapture"]);
    let output = command.env(VICTIM, order).output().unwrap();
    let killed = output.status.signal() == Some(6);
    assert!(killed || output.status.code() == Some(77), "{:?}", String::from_utf8_lossy(&output.stderr));
    killed
}
