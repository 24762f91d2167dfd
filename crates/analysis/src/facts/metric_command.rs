//! Which service the command of a metric is about: the one in front, or the program behind it that the collector reads.
//!
//! A command that names the process of the service in front where that of PHP-FPM is meant shows another figure, or none.
//! Where nothing is known of the program, the words that only it could fill in are given by name.

use super::repro_command::with_service_values;
use crate::settings::backends;
use webdyno_model::service::{Endpoint, ServiceSnapshot};
use webdyno_model::topology::Topology;

/// Collectors that read a program, by the first word of their metrics, the service that it is, and a command that finds its
/// main process.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("php_fpm", "php_fpm", "$(pgrep -o php-fpm)"),
    ("opcache", "php_fpm", "$(pgrep -o php-fpm)"),
    ("mariadb", "mariadb", "$(pgrep -o -x 'mariadbd|mysqld')"),
    ("nginx", "nginx", "$(pgrep -o -x nginx)"),
    ("lighttpd", "lighttpd", "$(pgrep -o -x lighttpd)"),
];

/// The command of a metric with the values of the service that it is about in the places of its words.
pub(super) fn command(
    (metric, instance): (&str, Option<&str>),
    command: &str,
    front: Option<&ServiceSnapshot>,
    topology: Option<&Topology>,
) -> String {
    let first = metric.split('.').next().unwrap_or_default();
    // A program that nobody knows is found by the name of its executable.
    let unnamed = instance.filter(|instance| instance.starts_with(backends::UNKNOWN)).zip(topology);
    let program = unnamed.and_then(|(instance, topology)| {
        backends::named(topology).find(|(name, _)| name == instance).map(|(_, service)| service)
    });
    let instance = program.map(backends::program_name).or(instance);
    let Some((_, program, process)) = PROGRAMS.iter().find(|(collector, _, _)| *collector == first) else {
        return with_service_values(command, front, instance);
    };
    let behind = topology.iter().flat_map(|topology| topology.services());
    let own: Vec<&ServiceSnapshot> =
        front.into_iter().chain(behind).filter(|service| service.service == *program).collect();
    let has_it = |service: &&&ServiceSnapshot| {
        service.endpoints.iter().any(|endpoint| Some(endpoint.name.as_str()) == instance)
    };
    match own.iter().find(has_it).or(own.first()) {
        Some(service) => with_service_values(command, Some(service), instance),
        None => program_command(command, (program, process), front, instance),
    }
}

/// The same where nothing is known of the program: it is found by its name, a database where its client looks by itself, and a
/// pool where the service in front hands requests over, if that is one place.
fn program_command(
    command: &str,
    (program, process): (&str, &str),
    front: Option<&ServiceSnapshot>,
    instance: Option<&str>,
) -> String {
    let mut fastcgi: Vec<String> =
        front.into_iter().flat_map(backends::targets_of).filter_map(|(at, is)| is.then_some(at)).collect();
    fastcgi.dedup();
    let endpoint = |address: &String| Endpoint {
        name: instance.unwrap_or_default().to_owned(),
        address: address.clone(),
        path: None,
    };
    let endpoints = match fastcgi.as_slice() {
        [only] if program == "php_fpm" => vec![endpoint(only)],
        _ => vec![],
    };
    let known = ServiceSnapshot { endpoints, ..ServiceSnapshot::default() };
    let filled =
        with_service_values(command, Some(&known), instance).replace("mariadb DATABASE ", "mariadb ");
    filled.split("PID").collect::<Vec<_>>().join(process)
}

/// A command that shows a total: what counts is by how much it rises.
pub(super) fn repeated(command: String) -> String {
    if command.is_empty() { command } else { format!("{command} # run it twice: the difference counts") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{apache, scoped_setting};

    #[test]
    fn a_command_is_about_the_program_that_is_read() {
        let mut front = apache(&[]);
        front.pid = 30;
        front.scoped = vec![scoped_setting("SetHandler", "unix:/run/x.sock|fcgi://localhost", &[])];
        let endpoint =
            |name: &str, address: &str| Endpoint { name: name.into(), address: address.into(), path: None };
        let service = |program: &str, pid, endpoints: Vec<Endpoint>| ServiceSnapshot {
            service: program.into(),
            pid,
            endpoints,
            ..ServiceSnapshot::default()
        };
        let topology = Topology {
            backends: vec![
                service("php_fpm", 7, vec![endpoint("api", "127.0.0.1:9000")]),
                service("php_fpm", 8, vec![endpoint("www", "unix:/run/y.sock")]),
                service("mariadb", 9, vec![endpoint("server", "unix:/run/d.sock")]),
            ],
            ..Topology::default()
        };
        let pool = "pgrep -P PID; ask ADDRESS";
        for (metric, text, known, unknown) in [
            ("process.count", "ps -p PID", "ps -p 30", "ps -p 30"),
            (
                "php_fpm.www.x_count",
                pool,
                "pgrep -P 8; ask /run/y.sock",
                "pgrep -P $(pgrep -o php-fpm); ask /run/x.sock",
            ),
            ("mariadb.x_count", "mariadb DATABASE -e x", "mariadb --socket=/run/d.sock -e x", "mariadb -e x"),
        ] {
            let instance = metric.contains("www").then_some("www");
            let reported = |topology| command((metric, instance), text, Some(&front), topology);
            assert_eq!(
                (reported(Some(&topology)).as_str(), reported(None).as_str()),
                (known, unknown),
                "{metric}"
            );
        }
    }
}
