//! The seam to processes and clocks: who runs, which boot this is, what time it is, and programs that are started for a
//! session. Tests bring a simulated system, in which waiting takes no time and anything may end.

use crate::change::action::{Launch, Launched};
use crate::change::seams::claim::Claimed;
use crate::change::seams::init_system::Booting;
use crate::change::seams::session_location::SessionLocation;
use crate::change::seams::state_dir::StateDir;
use crate::os::cancellation::Cancellation;
use crate::os::process::ProcessName;
use crate::probes::site::{Answer, SiteClient};
use crate::services::sysctl::space::NetSpace;
use crate::services::value_holder::ValueHolder;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use webdyno_model::Result;
use webdyno_model::change::SiteProbe;
use webdyno_model::service::FileId;

/// How often something is looked at while it is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Processes and clocks.
pub trait System: Send + Sync {
    /// This process.
    fn this_process(&self) -> Result<ProcessName>;
    /// Whether a process of this boot still runs.
    fn is_running(&self, process: ProcessName) -> bool;
    /// Ends a process, and its group where that is its own: kindly, after `patience` with force.
    fn end_process(&self, process: ProcessName, own_group: Option<u32>, patience: Duration) -> Result<()>;
    /// Changes with every boot; `None` where it is unknown.
    fn boot_id(&self) -> Option<String>;
    /// Which machine this is; `None` where that is unknown.
    fn machine_id(&self) -> Option<String> {
        None
    }
    /// Where this process is, with a given state directory, reached by given words of `--server`; `None` in a simulated
    /// world, which is one place.
    fn location(&self, state: &Path, server: Option<&str>) -> Option<SessionLocation> {
        let _ = (state, server);
        None
    }
    /// Whether process ids of a session that was there mean the same here.
    fn has_pids_of(&self, location: &SessionLocation) -> bool {
        let _ = location;
        true
    }
    /// Identifies a folder; `None` where that is not known.
    fn file_id(&self, path: &Path) -> Option<FileId> {
        let _ = path;
        None
    }
    /// The time of day, microseconds since 1970.
    fn now_us(&self) -> i64;
    /// The time since some fixed instant; it never goes back.
    fn monotonic(&self) -> Duration;
    /// Does nothing for a while.
    fn pause(&self, time: Duration);

    /// How the machine boots; `None` when nothing can or need be hooked there.
    fn booting(&self, state: &StateDir) -> Option<Booting> {
        let _ = state;
        None
    }

    /// Claims a name that only one process of the machine may hold.
    fn claim(&self, name: &str) -> io::Result<Claimed> {
        let _ = name;
        Ok(Claimed::Ours(Box::new(())))
    }

    /// Refuses what cannot be launched, before anything is written or started.
    fn check_launch(&self, launch: &Launch) -> Result<()>;
    /// Starts a program. What it will become is found by [`Running::wait_until_ready`].
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Running>>;
    /// Stops a launched program and everything that it started, also when only its command is known; one that has ended
    /// already is no error. `Ok(false)` when there was nothing to stop.
    fn stop_launched(&self, launch: &Launch, launched: Option<Launched>, agent: ProcessName) -> Result<bool>;

    /// Asks a site something, as its clients do. Where there is no network nothing answers.
    fn request_site(&self, address: SocketAddr, probe: &SiteProbe, at_most: Duration) -> io::Result<Answer> {
        let _ = (address, probe, at_most);
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    /// The network namespace that a setting of the kernel belongs to here; `None` for what is no network's.
    fn sysctl_space(&self, name: &str) -> Option<NetSpace> {
        let _ = name;
        None
    }

    /// A value as its holder has it; `None` when the holder is gone.
    fn read_value(&self, name: &str, holder: &ValueHolder) -> io::Result<Option<String>> {
        let _ = (name, holder);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Replaces a value.
    fn write_value(&self, name: &str, holder: &ValueHolder, value: &str) -> io::Result<()> {
        let _ = (name, holder, value);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has systemd read its units again, where it runs: what was added to one is in force for its next start, and its control
    /// group has it at once.
    fn reload_units(&self) -> Result<()> {
        Ok(())
    }

    /// Asks until it is true or the time is up; the last answer.
    fn wait_until(&self, at_most: Duration, is_true: &mut dyn FnMut() -> bool) -> bool {
        let start = self.monotonic();
        loop {
            if is_true() {
                return true;
            }
            if self.monotonic().saturating_sub(start) >= at_most {
                return false;
            }
            self.pause(POLL_INTERVAL);
        }
    }
}

/// What compares a site's responses through this network and by this clock.
pub fn site_client(system: &dyn System) -> SiteClient<'_> {
    SiteClient::new(
        |address, probe, at_most| system.request_site(address, probe, at_most),
        || system.monotonic(),
        |time| system.pause(time),
    )
}

/// A program that was started here.
pub trait Running: Send {
    /// Waiting ends with an error once this is set.
    fn cancel_with(&mut self, cancellation: &Cancellation) {
        let _ = cancellation;
    }
    /// Waits until the program has written its pid file and answers; `found` hears of its process as soon as it is known.
    fn wait_until_ready(
        &mut self,
        launch: &Launch,
        found: &mut dyn FnMut(Launched) -> Result<()>,
    ) -> Result<()>;
    /// What it said on its standard error so far; `None` for nothing.
    fn stderr_text(&self) -> Option<String> {
        None
    }
    /// Ends and reaps the process that was started; the program may have left it. Whether it still ran.
    fn end(&mut self) -> bool;
}
