//! What the end-to-end tests share: the program, servers of their own, and turns on the machine.

pub use crate::mounts::can_mount;
use crate::programs::Keeper;
pub use crate::skip::skip;
pub use crate::turns::{paced_turn, shared_turn, turn};
use assert_cmd::Command;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_host::agent::client::AgentClient;
use webdyno_model::change::{ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A place of a test's own: run directories and journals.
pub struct Place {
    folder: tempfile::TempDir,
    /// What the program sees as /proc/stat here.
    stat: Option<PathBuf>,
}

impl Place {
    /// A new one. Reachable by others, as Apache's workers need it.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, stat: None }
    }

    /// A new one where what else keeps the processors busy decides nothing: /proc/stat stands still for the program, so
    /// that nothing is known of them. As any other where nothing can be mounted.
    pub fn shielded() -> Self {
        let mut place = Self::new();
        if can_mount() {
            let path = place.path("stat");
            std::fs::write(&path, std::fs::read("/proc/stat").unwrap()).unwrap();
            place.stat = Some(path);
        }
        place
    }

    /// The program and what goes before it.
    fn command_line(&self) -> Vec<OsString> {
        let program = assert_cmd::cargo::cargo_bin("webdyno").into_os_string();
        let Some(stat) = &self.stat else { return vec![program] };
        let script = "mount --bind \"$0\" /proc/stat && exec \"$@\"";
        let before = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script];
        let before = before.into_iter().map(OsString::from);
        before.chain([stat.clone().into_os_string(), program]).collect()
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program, with journals and working directory here.
    pub fn webdyno(&self) -> Command {
        let line = self.command_line();
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).env("WEBDYNO_STATE", self.path("state")).current_dir(self.folder.path());
        command.timeout(Duration::from_secs(150));
        command
    }

    /// The program as a child that the test itself signals.
    pub fn child(&self, arguments: &[&str]) -> std::process::Child {
        let line = self.command_line();
        std::process::Command::new(&line[0])
            .args(&line[1..])
            .args(arguments)
            .env("WEBDYNO_STATE", self.path("state"))
            .current_dir(self.folder.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// What a run of the program came to.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs to the end.
pub fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// JSON that the program wrote, valid under its schema.
fn parsed(text: &[u8], reported: impl Fn() -> String) -> serde_json::Value {
    let json = serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}:\n{}", reported()));
    crate::valid::assert_valid(&json);
    json
}

/// The JSON in a file.
pub fn read_json(path: std::path::PathBuf) -> serde_json::Value {
    parsed(&std::fs::read(&path).unwrap(), || path.display().to_string())
}

/// Runs to the end; the JSON on its stdout.
pub fn run_json(command: &mut std::process::Command) -> serde_json::Value {
    let output = command.output().unwrap();
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    parsed(&output.stdout, || String::from_utf8_lossy(&both).into_owned())
}

impl Ended {
    /// Checks the exit code; shows everything when it is another one.
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Checks that the exit code is one of these.
    pub fn with_code_in(self, codes: &[i32]) -> Self {
        let code = if codes.contains(&self.code) { self.code } else { codes[0] };
        self.with_code(code)
    }

    /// One error line with a hint, and no panic.
    pub fn assert_error(self, message: &str, hint: &str) {
        assert!(self.stderr.contains(message), "no `{message}` in:\n{}", self.stderr);
        assert!(self.stderr.contains(hint), "no `{hint}` in:\n{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    /// The JSON on stdout.
    pub fn json(&self) -> serde_json::Value {
        parsed(self.stdout.as_bytes(), || self.stdout.clone())
    }
}

/// A small HTTP server of the test's own: each connection is answered by `answer` until it gives nothing.
pub struct Server {
    pub port: u16,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Answers every request with the same bytes.
    pub fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                std::thread::spawn(move || serve(stream, answer));
            }
        });
        Self { port, stop }
    }

    /// A URL of it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(mut stream: TcpStream, answer: &str) {
    let mut buffer = [0u8; 4096];
    let mut observed = Vec::new();
    while let Ok(count) = stream.read(&mut buffer) {
        if count == 0 {
            return;
        }
        observed.extend_from_slice(&buffer[..count]);
        while let Some(end) = observed.windows(4).position(|window| window == b"\r\n\r\n") {
            observed.drain(..end + 4);
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Files with their bytes, modes and owners.
pub type Snapshot = Vec<(PathBuf, Vec<u8>, u32, u32)>;

/// A real Apache that the test started, as an operator would have: not by webdyno.
pub struct Apache {
    pub files: webdyno_lab::quickstart::PrivateApache,
    /// A second configuration that this test wants, already written.
    pub mpm_conf: PathBuf,
    /// Ends it also when the test is killed.
    keeper: Option<Keeper>,
}

impl Apache {
    /// A place of its own for a prefork Apache with twenty workers at most, and its configuration.
    pub fn placed() -> (Place, Self, Snapshot) {
        let place = Place::shielded();
        let (apache, before) = Self::placed_at(&place);
        (place, apache, before)
    }

    /// The same in this place.
    pub fn placed_at(place: &Place) -> (Self, Snapshot) {
        let apache = Self::start(&place.path("server"), 20);
        let before = apache.configuration();
        (apache, before)
    }

    /// Its files are those from before, and so is the limit in force.
    pub fn assert_unchanged(&self, before: &Snapshot) {
        assert_eq!(&self.configuration(), before);
        assert!(self.has_limit(20), "{}", self.scoreboard());
    }

    /// Has an agent set thirty workers.
    pub fn raise_limit(&self, client: &AgentClient) {
        client.discover(self.files.port).unwrap();
        let setting = SettingId::of_service("apache", "MaxRequestWorkers");
        let wanted = SettingChange { setting, to: SettingValue::Integer(30) };
        let plan = client.prepare(&[wanted]).and_then(Preparation::into_plan).unwrap();
        client.apply(&plan, &ApplyOptions::default()).unwrap();
    }

    /// Starts a prefork Apache in `folder` with so many workers at most.
    pub fn start(folder: &Path, max_request_workers: u32) -> Self {
        Self::start_prefork(folder, &format!("MaxRequestWorkers       {max_request_workers}"))
    }

    /// The same with the ServerLimit to match: it takes a restart to have more.
    pub fn start_bounded(folder: &Path, max_request_workers: u32) -> Self {
        let limits =
            format!("ServerLimit {max_request_workers}\n    MaxRequestWorkers {max_request_workers}");
        Self::start_prefork(folder, &limits)
    }

    fn start_prefork(folder: &Path, workers: &str) -> Self {
        let apache = Self::files(folder);
        let text = std::fs::read_to_string(&apache.mpm_conf).unwrap();
        std::fs::write(&apache.mpm_conf, text.replace("MaxRequestWorkers       150", workers)).unwrap();
        apache.started()
    }

    /// Starts an event Apache with processes of ten threads.
    pub fn start_event(folder: &Path, max_request_workers: u32) -> Self {
        Self::event_files(folder, max_request_workers).started()
    }

    /// The files of such a one, which is not started yet.
    pub fn event_files(folder: &Path, max_request_workers: u32) -> Self {
        let apache = Self::files(folder);
        let load = apache.files.root.join("mods-enabled/modules.load");
        let text = std::fs::read_to_string(&load).unwrap().replace("mpm_prefork", "mpm_event");
        std::fs::write(&load, text).unwrap();
        let conf = format!(
            "StartServers 1\nThreadsPerChild 10\nMinSpareThreads 5\nMaxSpareThreads 20\n\
             ServerLimit 16\nMaxRequestWorkers {max_request_workers}\n"
        );
        std::fs::write(&apache.mpm_conf, conf).unwrap();
        apache
    }

    /// The files of one that is not started yet.
    pub fn files(folder: &Path) -> Self {
        let files = webdyno_lab::quickstart::PrivateApache::create(folder).unwrap();
        let mpm_conf = files.root.join("mods-enabled/mpm_prefork.conf");
        Self { files, mpm_conf, keeper: None }
    }

    /// Starts it.
    pub fn started(mut self) -> Self {
        let word = self.files.root.display().to_string();
        self.keeper = Some(Keeper::of_daemon(&self.files.pid_file, &word));
        for _ in 0..5 {
            let command = &self.files.command;
            let status = std::process::Command::new(&command[0]).args(&command[1..]).status().unwrap();
            if status.success() && answers_within(self.files.port, Duration::from_secs(10)) {
                return self;
            }
            self.files.take_free_port().unwrap();
        }
        panic!("the private Apache does not start");
    }

    /// The slow page.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/app", self.files.port)
    }

    /// Its main process now.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(&self.files.pid_file).ok()?.trim().parse().ok()
    }

    /// Every configuration file with its bytes, mode and owner.
    pub fn configuration(&self) -> Snapshot {
        snapshot(&self.files.root)
    }

    /// Whether so many workers may be the limit that is in force.
    pub fn has_limit(&self, workers: usize) -> bool {
        allows(&self.scoreboard(), workers)
    }

    /// The scoreboard of the status page.
    pub fn scoreboard(&self) -> String {
        scoreboard(self.files.port)
    }
}

/// Whether so many workers may be the limit that a scoreboard shows: it is as long, or behind the limit it has only
/// places that are taken (prefork never clears those above a lowered limit).
pub fn allows(board: &str, workers: usize) -> bool {
    let until_open = board.rfind('.').map_or(1, |last| last + 1);
    (until_open..=board.len()).contains(&workers)
}

/// The scoreboard of the status page of an Apache on this port.
pub fn scoreboard(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /server-status?auto HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().find_map(|line| line.strip_prefix("Scoreboard: ")).unwrap().to_owned()
}

impl Drop for Apache {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            end(pid);
        }
    }
}

/// Configuration files below a ServerRoot; logs and run files are not configuration.
pub fn snapshot(root: &Path) -> Snapshot {
    use std::os::unix::fs::MetadataExt;
    let mut found = vec![];
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("log") && !path.ends_with("run") {
                    folders.push(path);
                }
            } else {
                let meta = std::fs::metadata(&path).unwrap();
                found.push((path.clone(), std::fs::read(&path).unwrap(), meta.mode(), meta.uid()));
            }
        }
    }
    found.sort();
    found
}

/// Ends a process that this test started, by its id, and waits for it.
pub fn end(pid: u32) {
    let Some(process) = rustix::process::Pid::from_raw(pid as i32) else {
        return;
    };
    let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    let _ = wait_until(Duration::from_secs(10), || !is_alive(pid));
}

/// Sends a signal to a process that this test started.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The children of a process: the agent among them.
pub fn children(pid: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let parent = |child: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    all.filter(|child| parent(*child) == Some(pid)).collect()
}

/// Whether a process lives (a zombie does not).
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Whether something answers HTTP on the port in time.
pub fn answers_within(port: u16, at_most: Duration) -> bool {
    wait_until(at_most, || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
            return false;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
        let mut start = [0u8; 5];
        stream.write_all(b"HEAD /index.html HTTP/1.0\r\n\r\n").is_ok()
            && stream.read_exact(&mut start).is_ok()
            && &start == b"HTTP/"
    })
}

/// Asks until it is true or the time is up.
pub fn wait_until(at_most: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < at_most {
        if is_true() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    is_true()
}

/// Starts what says that it is ready, and goes on until its stdin is closed.
pub fn ready(command: &mut std::process::Command) -> std::process::Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}
