//! The seam to the modelled service: how it is read, changed, tested, reloaded and started.

use crate::simulated::faults::{ActKind, ServiceFault};
use crate::simulated::files::WriteProgress;
use crate::simulated::layout::{BEGIN_US, ETC, PORT, PROGRAM};
use crate::simulated::machine::{ActOutcome, MachineState, Process};
use crate::simulated::server::configured;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use webdyno_host::change::action::Served;
use webdyno_host::change::seams::services::Programs;
use webdyno_host::services::{Activation, Observe, PendingChange, Shadow, Tunable};
use webdyno_model::change::{
    ApplyClass, Change, FileEdit, ManagedFile, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::{Control, ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::{Result, UserError};

fn refusal(what: &str) -> UserError {
    UserError::cannot_run(format!("apache: {what}"))
}

impl MachineState {
    fn control(&self) -> Option<Control> {
        self.server.main.map(|main| Control {
            pid: main.pid,
            start_ticks: main.start_ticks,
            executable: PROGRAM.into(),
            arguments: vec![PROGRAM.into()],
            directory: "/".into(),
            ..Control::default()
        })
    }

    fn runs_as(&self, control: &Control) -> bool {
        self.control().as_ref() == Some(control)
    }

    /// What runs now, as it shows itself.
    pub fn snapshot(&self) -> Result<ServiceSnapshot> {
        let running = self.server.running().ok_or_else(|| refusal("nothing listens on port 80"))?;
        let on_disk = configured(&self.files);
        let setting = |running: i64, on_disk: Option<i64>| SettingInForce {
            running: Some(SettingValue::Integer(running)),
            configured: on_disk.map(SettingValue::Integer),
            ..SettingInForce::default()
        };
        Ok(ServiceSnapshot {
            service: "apache".into(),
            pid: self.server.main.map_or(0, |main| main.pid),
            executable: Some(PROGRAM.into()),
            port: PORT,
            // Whose reload restores every worker.
            mode: None,
            settings: [
                ("MaxRequestWorkers", setting(running.workers, on_disk.map(|found| found.workers))),
                ("ServerLimit", setting(running.server_limit, on_disk.map(|found| found.server_limit))),
            ]
            .map(|(name, setting)| (name.to_owned(), setting))
            .into(),
            control: self.control(),
            ..ServiceSnapshot::default()
        })
    }

    fn activate(&mut self, control: &Control, class: ApplyClass, outcome: ActOutcome) -> Result<Activation> {
        if !self.runs_as(control) {
            return Err(refusal("its main process is gone"));
        }
        if class == ApplyClass::Restart && std::mem::take(&mut self.server.style.refuses_restart) {
            return Err(refusal("it did not do what it was told"));
        }
        let before = self.server.running();
        if outcome.service != Some(ServiceFault::Refuses) && outcome.progress != WriteProgress::None {
            self.take_over(class);
        }
        match outcome.service {
            Some(ServiceFault::Dies) => self.kill_server(),
            Some(ServiceFault::Ignores) => self.server.override_with(before),
            Some(ServiceFault::Hangs) => self.clock_us += 20_000_000,
            _ => {}
        }
        match (outcome.service, self.control()) {
            (_, None) => Err(refusal("it ended")),
            (None | Some(ServiceFault::Ignores), Some(control)) => {
                Ok(Activation { control, outage_us: None, unsettled: None })
            }
            (Some(_), _) => Err(refusal("it did not do what it was told")),
        }
    }

    fn take_over(&mut self, class: ApplyClass) {
        if class == ApplyClass::Restart {
            self.restart_server();
        } else {
            self.server.reload((&self.files, self.clock_us));
            self.reap_server();
        }
    }

    fn restart(&mut self, outcome: ActOutcome) -> Result<Activation> {
        if self.server.is_running() {
            return Err(refusal("it still runs"));
        }
        if matches!(outcome.service, None | Some(ServiceFault::LateError))
            && outcome.progress != WriteProgress::None
        {
            self.take_over(ApplyClass::Restart);
        }
        match self.control().filter(|_| outcome.service.is_none()) {
            Some(control) => Ok(Activation { control, outage_us: None, unsettled: None }),
            None => Err(refusal("it does not start")),
        }
    }

    /// Whether a setting is written that the model does not have.
    pub fn has_setting(&self, name: &str) -> bool {
        let file = self.files.read(&self.server.style.path(name));
        file.is_some_and(|file| String::from_utf8_lossy(&file.content).contains(name))
    }

    fn prepare(&self, wanted: &[SettingChange]) -> Preparation {
        let is_beyond = |change: &SettingChange| {
            change
                .to
                .number()
                .zip(self.server.style.preparable_up_to)
                .is_some_and(|(to, most)| to > most as f64)
        };
        match wanted.iter().find(|change| is_beyond(change)) {
            Some(change) => Preparation::not_preparable(format!("it cannot set {}", change.setting.name)),
            None => Preparation::Plan(Box::new(self.render(wanted))),
        }
    }

    fn render(&self, wanted: &[SettingChange]) -> RenderedPlan {
        let style = self.server.style;
        let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut changes = vec![];
        for change in wanted {
            let path = style.path(&change.setting.name);
            let text = texts.entry(path.clone()).or_insert_with(|| {
                self.files
                    .read(&path)
                    .map_or(String::new(), |file| String::from_utf8_lossy(&file.content).into())
            });
            *text = with_setting(text, &change.setting.name, &change.to);
            if let Some(poison) = style.poison {
                text.push_str(&format!("{poison}\n"));
            }
            changes.push(Change {
                setting: change.setting.clone(),
                from: None,
                to: change.to.clone(),
                file: path.display().to_string(),
                class: if change.setting.name == "ServerLimit" {
                    ApplyClass::Restart
                } else {
                    ApplyClass::Reload
                },
                server: None,
            });
        }
        let class = changes.iter().map(|change| change.class).max().unwrap_or(ApplyClass::Reload);
        let edit = |(path, after): (PathBuf, String)| FileEdit {
            before_sha256: self.files.read(&path).map(|file| file.sha256.clone()),
            path: path.display().to_string(),
            before: None,
            after,
        };
        let files = texts.into_iter().map(edit).collect();
        let above = |change: &SettingChange| {
            change.to.number().zip(style.managed_above).is_some_and(|(to, above)| to > above as f64)
        };
        let managed: Vec<_> = wanted.iter().find(|change| above(change)).map(managed).into_iter().collect();
        let class = if managed.is_empty() { class } else { ApplyClass::Manual };
        RenderedPlan { changes, files, class, diff: "+x".into(), managed, to_decide: vec![] }
    }
}

fn managed(change: &SettingChange) -> ManagedFile {
    let path = format!("{ETC}/mods-enabled/{}.conf", change.setting.name);
    ManagedFile { path, by: "Puppet".into(), why: "it is in its catalog".into() }
}

/// A text in which a setting has a value, on the line where it is, or at the end.
fn with_setting(text: &str, setting: &str, to: &SettingValue) -> String {
    let is_it = |line: &&str| line.split_once(' ').is_some_and(|(name, _)| name == setting);
    let mut lines: Vec<String> = text.lines().filter(|line| !is_it(line)).map(str::to_owned).collect();
    lines.push(format!("{setting} {to}"));
    lines.join("\n") + "\n"
}

impl Observe for Process {
    fn name(&self) -> &'static str {
        "apache"
    }

    fn recognises(&self, executable: &str, _: &[String]) -> bool {
        executable == PROGRAM
    }

    fn snapshot(&self, _: u32, _: u16) -> Result<ServiceSnapshot> {
        self.act(
            ActKind::Service,
            || "read the service".into(),
            |state, outcome| match outcome.service {
                None | Some(ServiceFault::Ignores) => state.snapshot(),
                Some(_) => Err(refusal("its status page does not answer")),
            },
        )
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for Process {
    fn prepare(&self, _: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
        self.act(
            ActKind::Service,
            || "prepare".into(),
            |state, outcome| match outcome.service {
                None | Some(ServiceFault::Ignores) => Ok(state.prepare(changes)),
                Some(_) => Err(refusal("its configuration cannot be read")),
            },
        )
    }

    fn validate(&self, _: &Control) -> Result<()> {
        self.act(
            ActKind::Service,
            || "test the configuration".into(),
            |state, outcome| match outcome.service {
                Some(ServiceFault::Ignores) => Ok(()),
                Some(_) => Err(refusal("the test failed")),
                None if configured(&state.files).is_none() => Err(refusal("the configuration is not valid")),
                None => Ok(()),
            },
        )
    }

    fn activate(&self, control: &Control, class: ApplyClass, _: u16) -> Result<Activation> {
        let name = || format!("{} {}", class.name(), control.pid);
        self.act(ActKind::Service, name, |state, outcome| state.activate(control, class, outcome))
    }

    fn start(&self, _: &Control, _: u16) -> Result<Activation> {
        self.act(ActKind::Service, || "start the service".into(), |state, outcome| state.restart(outcome))
    }

    fn pending_changes(&self, _: &Control, _: u16, own: &[PathBuf]) -> Result<Vec<PendingChange>> {
        self.act(
            ActKind::Service,
            || "what waits for a reload".into(),
            |state, outcome| match outcome.service {
                None | Some(ServiceFault::Ignores) => {
                    let waiting = state
                        .server
                        .pending_files(&state.files)
                        .into_iter()
                        .filter(|path| !own.contains(path));
                    Ok(waiting.map(|path| PendingChange { path, why: "was changed".into() }).collect())
                }
                Some(_) => Err(refusal("its configuration cannot be read")),
            },
        )
    }

    fn shadow(&self, _: &Control, edits: &[FileEdit], _: u16, folder: &Path) -> Result<Option<Shadow>> {
        self.act(
            ActKind::Service,
            || "render a shadow".into(),
            |state, outcome| match outcome.service {
                None | Some(ServiceFault::Ignores) => {
                    Ok(state.has_shadow.then(|| state.shadow(edits, folder)))
                }
                Some(_) => Err(refusal("its configuration cannot be read")),
            },
        )
    }

    fn read_since(&self, control: &Control, time: SystemTime) -> Option<bool> {
        self.act(
            ActKind::Service,
            || "when it read its files".into(),
            |state, outcome| {
                let is_told = outcome.service.is_none() && state.runs_as(control);
                let read_at = Duration::from_micros(BEGIN_US.cast_unsigned() + state.server.read_at_us);
                is_told.then(|| SystemTime::UNIX_EPOCH + read_at >= time)
            },
        )
    }

    fn running_values(&self, snapshot: &ServiceSnapshot) -> BTreeMap<String, SettingValue> {
        let displayed =
            |(name, setting): (&String, &SettingInForce)| Some((name.clone(), setting.running.clone()?));
        snapshot.settings.iter().filter_map(displayed).collect()
    }
}

impl Programs for Process {
    fn tunable(&self, name: &str) -> Option<&dyn Tunable> {
        (name == "apache").then_some(self as &dyn Tunable)
    }

    fn on_port(&self, name: &str, port: u16, _before: &Control) -> Option<Control> {
        self.act(
            ActKind::Other,
            || format!("who serves port {port}"),
            |state, _| state.control().filter(|_| name == "apache" && port == PORT),
        )
    }

    fn claim_names(&self, served: &Served) -> Vec<String> {
        vec![format!("tcp/{}", served.port)]
    }

    fn is_alive(&self, control: &Control) -> bool {
        self.act(
            ActKind::Other,
            || format!("does {} serve", control.pid),
            |state, _| state.exists(control.into()),
        )
    }
}
