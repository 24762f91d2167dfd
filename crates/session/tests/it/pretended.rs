//! A pretended server's machine behind a real agent, in a process of its own, and a real site that answers at once.
//!
//! The agent's brake is pulled 100 ms after a load began, for as many loads as the file `harmful` says; `pulled` says when
//! that was, on the clock that all processes share. `unrest` says how often the server is found not quiet.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use webdyno_host::agent::host::{HarmGuard, Host, Watch};
use webdyno_host::agent::{BUILD, Options, ServerAddress, serve};
use webdyno_host::change::StateDir;
use webdyno_host::change::seams::services::Programs;
use webdyno_host::collectors::Target;
use webdyno_host::harm_guard::watch::HarmHandler;
use webdyno_host::os::clock::clock_us;
use webdyno_host::os::machine;
use webdyno_host::services::{Tunable, snapshot_unknown};
use webdyno_model::Result;
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip, SiteUnderLoad};
use webdyno_model::number::Number;
use webdyno_model::sample::{CollectorInfo, MissingSignal, Sample};
use webdyno_model::service::{Control, ServiceSnapshot};

/// How long after the begin of a load the brake is pulled.
const HARM_AFTER: Duration = Duration::from_millis(100);

/// The machine, in a folder.
#[derive(Clone)]
pub struct Machine {
    folder: PathBuf,
}

impl Machine {
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Loads that do harm, and how often the server is not quiet after them.
    pub fn will(&self, harmful: u32, unrest: u32) {
        self.write("harmful", u64::from(harmful));
        self.write("unrest", u64::from(unrest));
    }

    pub fn read(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn write(&self, name: &str, value: u64) {
        std::fs::write(self.folder.join(name), value.to_string()).unwrap();
    }

    /// One less of what a file counts; whether there was any.
    fn take(&self, name: &str) -> bool {
        let left = self.read(name);
        self.write(name, left.saturating_sub(1));
        left > 0
    }
}

impl Programs for Machine {
    fn tunable(&self, _: &str) -> Option<&dyn Tunable> {
        None
    }

    fn on_port(&self, _: &str, _: u16, _: &Control) -> Option<Control> {
        None
    }
}

struct NoWatch;

impl Watch for NoWatch {
    fn set_target(&self, _: Target) {}
}

impl Host for Machine {
    fn environment(&self) -> Environment {
        Environment::default()
    }

    fn collectors(&self) -> Vec<CollectorInfo> {
        vec![]
    }

    fn discover(&self, port: u16) -> Result<ServiceSnapshot> {
        Ok(snapshot_unknown(1, port, None))
    }

    fn observe(&self, _: Target, sink: Sender<(u64, Sample)>) -> Result<Box<dyn Watch>> {
        let sample = Sample { source: "x".into(), duration_us: 1, ..Sample::default() };
        // Whoever listens has just begun to.
        let _ = sink.send((clock_us(), sample));
        Ok(Box::new(NoWatch))
    }

    fn watch_loads(
        &self,
        _: &Target,
        _: Option<&ServiceSnapshot>,
        pull: HarmHandler,
    ) -> Result<Box<dyn HarmGuard>> {
        Ok(Box::new(PretendedHarmGuard { machine: self.clone(), pull: Arc::new(Mutex::new(pull)) }))
    }

    fn owns(&self, address: IpAddr) -> bool {
        machine::owns(address)
    }
}

struct PretendedHarmGuard {
    machine: Machine,
    pull: Arc<Mutex<HarmHandler>>,
}

impl HarmGuard for PretendedHarmGuard {
    fn set_target(&self, _: &Target) {}

    fn begin(&self, site: &SiteUnderLoad) -> Vec<MissingSignal> {
        if self.machine.take("harmful") {
            let (machine, pull, text) =
                (self.machine.clone(), Arc::clone(&self.pull), site.user_agents.join(" and "));
            std::thread::spawn(move || {
                std::thread::sleep(HARM_AFTER);
                machine.write("pulled", clock_us());
                (pull.lock().unwrap())(HarmGuardTrip {
                    cause: HarmCause::Swapping,
                    metric: "memory.swapped_out_pages".into(),
                    value: Number(5000.0),
                    limit: Number(4096.0),
                    text: format!("it swaps under {text}"),
                });
            });
        }
        vec![MissingSignal::new("errors", "none", "see to it")]
    }

    fn end(&self) {}

    fn disturbance(&self) -> Option<String> {
        self.machine.take("unrest").then(|| "it still swaps".into())
    }
}

/// The environment variable that makes a test an agent, on descriptors 3 and 4: the folder of its machine.
const AGENT: &str = "WEBDYNO_TEST_AGENT";

/// In the process that a test was started in as an agent: serves and ends it.
pub fn be_the_agent_if_asked() {
    let Ok(folder) = std::env::var(AGENT) else { return };
    let (input, output) = (File::open("/dev/fd/4").unwrap(), File::create("/dev/fd/3").unwrap());
    let options = Options {
        state: StateDir::at(Path::new(&folder).join("state")),
        host: Arc::new(Machine::at(Path::new(&folder))),
        silence_max: Duration::from_secs(60),
        build: BUILD.to_owned(),
        detach: true,
        settings_only: false,
    };
    std::process::exit(i32::from(serve(input, output, options).is_err()));
}

/// Where the agent of a test is: the test itself, started once more.
pub fn agent(folder: &Path, test: &str) -> ServerAddress {
    let (program, folder) = (std::env::current_exe().unwrap(), folder.display());
    let test = format!("--exact {test} --nocapture");
    let command = format!("{AGENT}={folder} exec {} {test} 3>&1 4<&0 >/dev/null # agent", program.display());
    ServerAddress::parse(&format!("exec:{command}")).unwrap()
}

/// Answers every request at once, on a port of its own, as long as the process lives.
pub fn site() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

fn answer(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(1..) = stream.read(&mut buffer) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
