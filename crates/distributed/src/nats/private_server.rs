//! A nats-server of our own, for workers on this machine or at the other end of ssh: on a free loopback port, with a store and a key of its own. It ends with
//! this program (setpriv(1) `--pdeathsig`; `ports_file_dir` of nats-server says on which port it listens).

use super::connecting::{Broker, Credentials};
use super::random_name;
use crate::signing::Signer;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// It listens within milliseconds, or something is wrong.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);
const PREFIX: &str = "webdyno-nats-";
const LOCK: &str = "lock";

/// A running server; it ends, and its files go, when this is dropped.
pub struct PrivateServer {
    child: Child,
    directory: PathBuf,
    broker: Broker,
    credentials: Credentials,
    /// Held as long as the folder is used; the kernel lets go of it when this program is killed.
    _lock: fs::File,
    /// What the workers are to trust.
    pub public_key: String,
}

impl PrivateServer {
    /// Starts it below the directory for temporary files.
    pub fn start() -> Result<Self> {
        let program = find("nats-server").ok_or_else(|| {
            UserError::cannot_run(
                "--on local and --on ssh need nats-server, and there is none on this machine",
            )
            .hint("install it: apt-get install nats-server; or load from this process, without --on")
        })?;
        remove_left();
        let directory = std::env::temp_dir().join(format!("{PREFIX}{}", random_name()?));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|error| io_error("create", directory.display(), &error))?;
        let signer = Signer::generate();
        let public_key = signer.public_key();
        let credentials = Credentials::from_seed(signer.seed()?);
        let start = |lock| {
            write_files(&directory, &signer)?;
            spawn(&program, &directory).map(|child| (child, lock))
        };
        let started = hold(&directory).and_then(start);
        let (child, _lock) = started.inspect_err(|_| drop(fs::remove_dir_all(&directory)))?;
        // From here on dropping ends it.
        let broker = Broker::parse("nats://127.0.0.1")?;
        let mut server = Self { child, directory, broker, credentials, _lock, public_key };
        let url = server.listening()?;
        server.broker = Broker::parse(&url)?;
        server.broker.credentials = Some(server.credentials.clone());
        Ok(server)
    }

    /// What a coordinator needs.
    pub fn access(&self) -> Result<(Broker, Signer)> {
        Ok((self.broker.clone(), self.credentials.signer()?))
    }

    /// The file with the key that opens it.
    pub fn seed_file(&self) -> PathBuf {
        self.directory.join("user.seed")
    }

    /// The key that opens it.
    pub fn seed(&self) -> &str {
        self.credentials.text()
    }

    /// Its address, for the command line of a worker.
    pub fn url(&self) -> &str {
        &self.broker.name
    }

    /// Where it listens, once it does.
    fn listening(&mut self) -> Result<String> {
        let begun = Instant::now();
        let path = self.directory.join(format!("nats-server_{}.ports", self.child.id()));
        let gone = |directory: &Path| {
            let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it said nothing").to_owned();
            UserError::cannot_run(format!("nats-server did not start: {last}"))
                .hint("start one by hand to see why: nats-server -js")
        };
        while begun.elapsed() < STARTS_WITHIN {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Err(gone(&self.directory));
            }
            let ports = fs::read_to_string(&path).ok();
            let ports = ports.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
            if let Some(url) = ports.and_then(|ports| Some(ports["nats"][0].as_str()?.to_owned())) {
                return Ok(url);
            }
            thread::sleep(POLL);
        }
        Err(gone(&self.directory))
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < ENDS_WITHIN {
            thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes folders of servers whose command was killed: nobody holds their lock any more.
fn remove_left() {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if is_own
            && entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Ok(lock) = fs::File::open(entry.path().join(LOCK))
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// It has its name only once it is held, so that nobody takes it for one that was left.
fn hold(directory: &Path) -> Result<fs::File> {
    let path = directory.join(LOCK);
    let new = path.with_extension("new");
    let held = fs::File::create(&new).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&new, &path)?;
        Ok(file)
    });
    held.map_err(|error| io_error("lock", path.display(), &error))
}

fn write_files(directory: &Path, signer: &Signer) -> Result<()> {
    write_private(&directory.join("user.seed"), &signer.seed()?)?;
    let at = directory.display();
    let key = signer.public_key();
    let config = format!(
        "listen: \"127.0.0.1:-1\"\nports_file_dir: \"{at}\"\nlog_file: \"{at}/log\"\n\
         jetstream {{ store_dir: \"{at}/store\" }}\nauthorization {{ users: [ {{ nkey: {key} }} ] }}\n"
    );
    write_private(&directory.join("server.conf"), &config)
}

/// Writes a file that nobody else reads. An error when it is there already.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| io_error("write", path.display(), &error))
}

/// The server ends with the thread that starts it.
fn spawn(program: &Path, directory: &Path) -> Result<Child> {
    let mut command = match find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg("-c").arg(directory.join("server.conf"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| io_error("start", program.display(), &error))
}

/// A program in the search path, or where Debian has those of administrators.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|place| place.join(name)).find(|path| path.is_file())
}
