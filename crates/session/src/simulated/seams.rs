//! The seam to the modelled processes and clocks. Waiting takes no time but that of the model.

use crate::simulated::disk::HeldLock;
use crate::simulated::faults::ActKind;
use crate::simulated::layout::{BEGIN_US, PORT};
use crate::simulated::machine::Process;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_host::change::StateDir;
use webdyno_host::change::action::{Launch, Launched};
use webdyno_host::change::seams::claim::{Claimed, Holder};
use webdyno_host::change::seams::init_system::{Booting, Init};
use webdyno_host::change::seams::processes::{Running, System};
use webdyno_host::os::process::ProcessName;
use webdyno_host::probes::site::Answer;
use webdyno_model::change::SiteProbe;
use webdyno_model::{Result, UserError};

/// How often something is looked at while it is waited for.
const POLLS_COUNT: u32 = 8;

impl System for Process {
    fn this_process(&self) -> Result<ProcessName> {
        Ok(self.name)
    }

    fn is_running(&self, process: ProcessName) -> bool {
        self.act(ActKind::Other, || format!("is {} there", process.pid), |state, _| state.exists(process))
    }

    fn end_process(&self, process: ProcessName, _: Option<u32>, _: Duration) -> Result<()> {
        self.act(ActKind::Other, || format!("end {}", process.pid), |state, _| state.end(process));
        Ok(())
    }

    fn boot_id(&self) -> Option<String> {
        Some(self.machine().state().boot_id())
    }

    fn now_us(&self) -> i64 {
        BEGIN_US + self.machine().state().clock_us as i64
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.machine().state().clock_us)
    }

    fn pause(&self, time: Duration) {
        self.act(
            ActKind::Other,
            || format!("wait {time:?}"),
            |state, _| {
                state.clock_us += time.as_micros() as u64;
            },
        );
    }

    fn booting(&self, _: &StateDir) -> Option<Booting> {
        let program = PathBuf::from("/usr/bin/webdyno");
        let booting = Booting { init: Init::Systemd, root: "/".into(), program, copy_of: None };
        Some(booting).filter(|_| self.machine().state().has_init)
    }

    fn claim(&self, name: &str) -> io::Result<Claimed> {
        let claimed = self.act(
            ActKind::Other,
            || format!("claim {name}"),
            |state, _| {
                let path = Path::new("claims").join(name);
                (state.lock(&path, self.name), path)
            },
        );
        Ok(match claimed {
            (true, path) => Claimed::Ours(Box::new(HeldLock::new(self, &path))),
            // All of them are root's.
            (false, _) => Claimed::Theirs(Some(Holder { pid: 1, is_trusted: true })),
        })
    }

    /// As the real one, with a few looks where that takes hundreds of thousands.
    fn wait_until(&self, at_most: Duration, is_true: &mut dyn FnMut() -> bool) -> bool {
        for _ in 0..POLLS_COUNT {
            if is_true() {
                return true;
            }
            self.pause(at_most / POLLS_COUNT);
        }
        is_true()
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        match self.machine().state().shadows.iter().any(|(_, port)| *port == launch.port) {
            true => Err(UserError::cannot_run(format!("port {} is taken", launch.port))),
            false => Ok(()),
        }
    }

    fn launch(&self, launch: &Launch) -> Result<Box<dyn Running>> {
        Ok(Box::new(self.start_shadow(launch)))
    }

    fn stop_launched(&self, launch: &Launch, _: Option<Launched>, _: ProcessName) -> Result<bool> {
        Ok(self.stop_shadow(launch))
    }

    fn request_site(&self, address: SocketAddr, _: &SiteProbe, _: Duration) -> io::Result<Answer> {
        self.act(
            ActKind::Other,
            || format!("ask {address}"),
            |state, _| {
                let port = address.port();
                let answers = match port {
                    PORT => state.server.is_running(),
                    _ => state.shadows.iter().any(|(_, taken)| *taken == port),
                };
                let answer = Answer { status: 200, length_bytes: 1000, certificate: None };
                if answers { Ok(answer) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
            },
        )
    }
}
