//! The seams as they are on this machine: its services, its processes and its clocks.

use crate::change::action::{Launch, Launched, Served};
use crate::change::seams::claim::{self, Claimed};
use crate::change::seams::init_system::Booting;
use crate::change::seams::launch;
use crate::change::seams::processes::{Running, System};
use crate::change::seams::services::Programs;
use crate::change::seams::session_location::SessionLocation;
use crate::change::seams::state_dir::StateDir;
use crate::os::process::{self, ProcessName};
use crate::os::process_location;
use crate::probes::site::{self, Answer};
use crate::services::common::unit;
use crate::services::sysctl::space::{self, NetSpace};
use crate::services::value_holder::ValueHolder;
use crate::services::{self, Tunable};
use crate::visibility::listeners;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use webdyno_model::Result;
use webdyno_model::change::SiteProbe;
use webdyno_model::service::{Control, FileId};

/// The services of [`crate::services`] on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl Programs for ThisMachine {
    fn tunable(&self, name: &str) -> Option<&dyn Tunable> {
        let found: &dyn Tunable = services::tunable(name)?;
        Some(found)
    }

    fn on_port(&self, name: &str, port: u16, before: &Control) -> Option<Control> {
        services::tunable(name)?.find_again(before, port)
    }

    fn other_on_port(&self, name: &str, port: u16) -> Option<String> {
        let listener = listeners::listener(port).ok()?;
        let executable = listener.executable.unwrap_or_else(|| format!("process {}", listener.main_pid));
        let known = services::recognise(&executable, &listener.arguments);
        known.is_none_or(|known| known.name() != name).then_some(executable)
    }

    fn claim_names(&self, served: &Served) -> Vec<String> {
        if served.port == 0 {
            // Its sockets have no ports: what it reads tells it from others of its kind.
            return vec![claim::name_of(&served.service, &served.control.arguments)];
        }
        // Who serves the port now: after a restart it has another process, and may have other ports.
        let now = listeners::listener(served.port).ok().map(|listener| listener.main_pid);
        let ports = now.map(listeners::ports_of).unwrap_or_default();
        claim::names(ports.into_iter().chain([served.port]))
    }
}

impl System for ThisMachine {
    fn this_process(&self) -> Result<ProcessName> {
        ProcessName::this()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        process.is_alive()
    }

    fn end_process(&self, process: ProcessName, own_group: Option<u32>, patience: Duration) -> Result<()> {
        process::stop(process, own_group, patience)
    }

    fn boot_id(&self) -> Option<String> {
        process::boot_id()
    }

    fn location(&self, state: &Path, server: Option<&str>) -> Option<SessionLocation> {
        Some(SessionLocation::of_this_process(state, server))
    }

    fn has_pids_of(&self, location: &SessionLocation) -> bool {
        location.has_our_pids()
    }

    fn file_id(&self, path: &Path) -> Option<FileId> {
        process_location::file_id(path)
    }

    fn booting(&self, state: &StateDir) -> Option<Booting> {
        Booting::of_this_machine(state.root())
    }

    fn claim(&self, name: &str) -> io::Result<Claimed> {
        claim::claim(name)
    }

    fn machine_id(&self) -> Option<String> {
        process::machine_id()
    }

    fn now_us(&self) -> i64 {
        jiff::Timestamp::now().as_microsecond()
    }

    fn monotonic(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        launch::check(launch)
    }

    fn launch(&self, launch: &Launch) -> Result<Box<dyn Running>> {
        Ok(Box::new(launch::start(launch)?))
    }

    fn stop_launched(&self, launch: &Launch, launched: Option<Launched>, agent: ProcessName) -> Result<bool> {
        launch::stop(launch, launched, agent)
    }

    fn request_site(&self, address: SocketAddr, probe: &SiteProbe, at_most: Duration) -> io::Result<Answer> {
        site::request(address, probe, at_most)
    }

    fn sysctl_space(&self, name: &str) -> Option<NetSpace> {
        space::of(name)
    }

    fn read_value(&self, name: &str, holder: &ValueHolder) -> io::Result<Option<String>> {
        holder.read(name)
    }

    fn write_value(&self, name: &str, holder: &ValueHolder, value: &str) -> io::Result<()> {
        holder.write(name, value)
    }

    fn reload_units(&self) -> Result<()> {
        unit::reload_manager()
    }
}
