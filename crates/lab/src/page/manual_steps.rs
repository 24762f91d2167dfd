//! The command that shows a metric by hand, with what the scenario knows put in: the catalogue of the collectors cannot
//! know where a server's process id is kept, or on which host its database runs.

use super::port;
use crate::scenario::{LabProgram, SERVER, Scenario, ScenarioLoad};
use webdyno_model::sample::Metric;

/// What words of the catalogue stand for where a scenario does not tell.
pub const LEFT: &str = "In them PID is the process id of the service's parent process, ADDRESS where a pool of PHP-FPM listens \
    (`listen` in its file), STATUS the path of its status page, and `INSTANCE` the one that a star in the name stands for.";

/// The host that the command is typed on, and the command.
pub fn command(metric: &Metric, name: &str, scenario: &Scenario, load: &ScenarioLoad) -> (String, String) {
    let program = program(name, scenario);
    let host = scenario.services.iter().find(|service| Some(service.program) == program);
    // The front is the one on `server`; what is behind it may be anywhere.
    let host = host.filter(|_| program == Some(LabProgram::Mariadb)).map_or(SERVER, |service| &service.host);
    // Words of the catalogue stand for what is known here.
    let instance = metric.instance(name).filter(|instance| *instance != "*").unwrap_or("INSTANCE");
    let mut text = metric.reproduce.replace("PORT", &port(load)).replace("INSTANCE", instance);
    // On its own host root needs neither name nor password.
    text = text.replace("mariadb DATABASE ", "mariadb ");
    text = text.replace("URL?auto", "http://localhost/server-status?auto");
    if let Some(pid) = program.and_then(parent) {
        text = text.replace("PID", pid);
    }
    (host.to_owned(), text.replace('`', "'"))
}

/// Whether words are left that only the reader can put in.
pub fn has_placeholder(text: &str) -> bool {
    ["PID", "ADDRESS", "STATUS", "INSTANCE"]
        .iter()
        .any(|word| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == *word))
}

/// The program that a metric is of.
fn program(name: &str, scenario: &Scenario) -> Option<LabProgram> {
    match name.split('.').next() {
        Some("mariadb") => Some(LabProgram::Mariadb),
        Some("php_fpm" | "opcache") => Some(LabProgram::PhpFpm),
        _ => {
            let on_server = scenario.services.iter().filter(|service| service.host == SERVER);
            on_server
                .map(|service| service.program)
                .find(|program| matches!(program, LabProgram::Apache | LabProgram::Nginx))
        }
    }
}

/// What gives the process id of a program's parent process.
fn parent(program: LabProgram) -> Option<&'static str> {
    match program {
        LabProgram::Apache => Some("$(cat /run/apache2/apache2.pid)"),
        LabProgram::Nginx => Some("$(cat /run/nginx.pid)"),
        LabProgram::PhpFpm => Some("$(pgrep -o php-fpm)"),
        LabProgram::Mariadb => Some("$(pidof mariadbd)"),
        LabProgram::Command => None,
    }
}
