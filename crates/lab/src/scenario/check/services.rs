//! Services: programs on hosts that exist, with what belongs to them and nothing else.

use super::{Check, below};
use crate::scenario::value_path::PathStep;
use crate::scenario::{CLIENT, LabProgram, ScenarioService};
use crate::units;
use webdyno_model::Result;

/// Apache's multi-processing modules.
const MPMS: [&str; 3] = ["prefork", "worker", "event"];

impl Check<'_> {
    pub(super) fn services(&self) -> Result<()> {
        let services = &self.folder.scenario.services;
        if services.is_empty() {
            return Err(self.wrong(&[], "nothing serves").hint("as in: [[services]] program = \"apache\""));
        }
        for (index, service) in services.iter().enumerate() {
            let at: [PathStep<'_>; 2] = ["services".into(), index.into()];
            self.service(&at, service)?;
            let same =
                |other: &&ScenarioService| other.program == service.program && other.host == service.host;
            if service.program != LabProgram::Command && services[..index].iter().any(|other| same(&other)) {
                let why = format!("the host `{}` runs this program already", service.host);
                return Err(self
                    .wrong(&at, why)
                    .hint("give it a host of its own: [hosts.NAME], and a link to it"));
            }
        }
        Ok(())
    }

    fn service(&self, at: &[PathStep<'_>], service: &ScenarioService) -> Result<()> {
        let at = |key: &'static str| below(at, &[key.into()]);
        self.host(&at("host"), &service.host)?;
        if service.host == CLIENT {
            let why =
                "nothing is served on `client`: it has the machine's own files, which a service would write";
            return Err(self
                .wrong(&at("host"), why)
                .hint("give it a host of its own: [hosts.NAME], and a link to it"));
        }
        self.check_program_keys(&at, service)?;
        if let Some(mpm) = service.mpm.as_deref().filter(|mpm| !MPMS.contains(mpm)) {
            let reported = self.wrong(&at("mpm"), format!("`{mpm}` is no multi-processing module"));
            return Err(reported.hint("prefork, worker or event"));
        }
        if let Some(ready) = service.ready.as_deref() {
            let is_port = ready.parse::<u16>().is_ok_and(|port| port > 0);
            let is_path = ready.starts_with('/') && ready.len() > 1;
            if !(is_port || is_path) {
                let reported = self.wrong(&at("ready"), format!("`{ready}` is neither a port nor a path"));
                return Err(reported.hint("as in: ready = \"8080\", or ready = \"/run/app.sock\""));
            }
        }
        if let Some(sql) = &service.sql {
            self.file(&at("sql"), &format!("{}/", service.host), sql)?;
        }
        let memory = service.memory.as_deref().map_or(Ok(0), units::bytes);
        memory.map_err(|error| self.error_with_cause(&at("memory"), error))?;
        self.cpus(&at("cpus"), service.cpus)?;
        for (key, count) in
            [("processes", service.processes.map(u64::from)), ("open_files", service.open_files)]
        {
            if count == Some(0) {
                return Err(self.wrong(&at(key), "with a limit of 0 it cannot be started"));
            }
        }
        Ok(())
    }

    /// Keys that mean something to one program alone.
    fn check_program_keys<'b>(
        &self,
        at: &impl Fn(&'static str) -> Vec<PathStep<'b>>,
        service: &ScenarioService,
    ) -> Result<()> {
        let of_one: [(&'static str, bool, LabProgram); 6] = [
            ("mpm", service.mpm.is_some(), LabProgram::Apache),
            ("modules", !service.modules.is_empty(), LabProgram::Apache),
            ("sites", service.sites.is_some(), LabProgram::Apache),
            ("confs", !service.confs.is_empty(), LabProgram::Apache),
            ("command", service.command.is_some(), LabProgram::Command),
            ("sql", service.sql.is_some(), LabProgram::Mariadb),
        ];
        for (key, is_given, program) in of_one {
            if is_given && service.program != program {
                let why = format!("`{key}` means nothing to the program `{}`", service.program.name());
                return Err(self.wrong(&at(key), why).hint(format!("it belongs to `{}`", program.name())));
            }
        }
        let is_blank = service.command.as_deref().is_none_or(|command| command.trim().is_empty());
        if service.program == LabProgram::Command && is_blank {
            let reported = self.wrong(&at("program"), "a service of this kind needs its command line");
            return Err(reported.hint("as in: command = \"exec python3 /srv/app.py\""));
        }
        Ok(())
    }
}

impl LabProgram {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::PhpFpm => "php-fpm",
            Self::Mariadb => "mariadb",
            Self::Nginx => "nginx",
            Self::Command => "command",
        }
    }
}
