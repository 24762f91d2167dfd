//! Debian's packages that a scenario's services need, by the files that prove them: wherever a file came from, it is there.

use super::apache;
use crate::scenario::{LabProgram, Scenario};
use std::path::Path;

/// A package and a file of it.
type PackageFile = (&'static str, &'static str);

const APACHE: PackageFile = ("apache2-bin", "/usr/sbin/apache2");
const MOD_PERL: PackageFile = ("libapache2-mod-perl2", "/usr/lib/apache2/modules/mod_perl.so");
const MOD_PHP: PackageFile = ("libapache2-mod-php8.2", apache::PHP.1);
const OPENSSL: PackageFile = ("openssl", "/usr/bin/openssl");
const PHP_FPM: PackageFile = ("php8.2-fpm", "/usr/sbin/php-fpm8.2");
const PHP_MYSQL: PackageFile = ("php8.2-mysql", "/usr/lib/php/20220829/mysqli.so");
const MARIADB: [PackageFile; 2] =
    [("mariadb-server-core", "/usr/sbin/mariadbd"), ("mariadb-client-core", "/usr/bin/mariadb")];
const NGINX: PackageFile = ("nginx-light", "/usr/sbin/nginx");
/// Programs that command lines begin with.
const COMMANDS: [PackageFile; 6] = [
    ("busybox-static", "/usr/bin/busybox"),
    ("perl", "/usr/bin/perl"),
    ("python3", "/usr/bin/python3"),
    ("curl", "/usr/bin/curl"),
    ("gunicorn", "/usr/bin/gunicorn"),
    ("lighttpd", "/usr/sbin/lighttpd"),
];

/// The packages that are not there, each once, in the order in which they are needed.
pub fn missing_packages(scenario: &Scenario) -> Vec<&'static str> {
    let mut missing = vec![];
    for (package, file) in needed_packages(scenario) {
        if !Path::new(file).exists() && !missing.contains(&package) {
            missing.push(package);
        }
    }
    missing
}

fn needed_packages(scenario: &Scenario) -> Vec<PackageFile> {
    let mut needed = vec![];
    let has = |program| scenario.services.iter().any(|service| service.program == program);
    for service in &scenario.services {
        match service.program {
            LabProgram::Apache => {
                needed.push(APACHE);
                let of_modules = [("perl", MOD_PERL), (apache::PHP.0, MOD_PHP), ("ssl", OPENSSL)];
                let used = of_modules.into_iter().filter(|(module, _)| apache::uses(service, module));
                needed.extend(used.map(|(_, proof)| proof));
            }
            LabProgram::PhpFpm => needed.push(PHP_FPM),
            LabProgram::Mariadb => needed.extend(MARIADB),
            LabProgram::Nginx => needed.push(NGINX),
            LabProgram::Command => {
                let line = service.command.as_deref().unwrap_or_default();
                needed.extend(packages_of_command(line));
            }
        }
    }
    let runs_php = has(LabProgram::PhpFpm) || needed.contains(&MOD_PHP);
    if runs_php && has(LabProgram::Mariadb) {
        needed.push(PHP_MYSQL);
    }
    let by_hand = scenario
        .rounds
        .iter()
        .flat_map(|round| round.by_hand.iter().chain(round.by_hand_on.values().flatten()));
    needed.extend(by_hand.flat_map(|line| packages_of_command(line)));
    needed
}

/// The programs in a command line that have a package of their own, by whole words.
fn packages_of_command(line: &str) -> impl Iterator<Item = PackageFile> + '_ {
    let is_named = |file: &str| {
        let name = file.rsplit('/').next().unwrap_or(file);
        line.split([' ', ';', '|', '&', '(', '\n']).any(|word| word == name || word == file)
    };
    COMMANDS.into_iter().filter(move |(_, file)| is_named(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_follow_from_what_is_used() {
        let of = |services: &str| {
            let head =
                "title = \"x\"\ngroup = \"fault\"\nstory = \"x\"\nrounds = []\nload = { flags = \"\" }\n";
            let scenario = crate::scenario::parse(&format!("{head}{services}"), Path::new("x")).unwrap();
            needed_packages(&scenario).iter().map(|(package, _)| *package).collect::<Vec<_>>()
        };
        let apache = "[[services]]\nprogram = \"apache\"\n";
        for (services, packages) in [
            (String::new(), &[][..]),
            (apache.into(), &["apache2-bin"]),
            (
                format!("{apache}mpm = \"prefork\"\nmodules = [\"php8.2\"]"),
                &["apache2-bin", "libapache2-mod-php8.2"],
            ),
            (
                format!("{apache}modules = [\"perl\", \"ssl\"]"),
                &["apache2-bin", "libapache2-mod-perl2", "openssl"],
            ),
            (format!("{apache}modules = [\"-status\", \"proxy_fcgi\"]"), &["apache2-bin"]),
            (
                "[[services]]\nprogram = \"mariadb\"\n[[services]]\nprogram = \"php-fpm\"".into(),
                &["mariadb-server-core", "mariadb-client-core", "php8.2-fpm", "php8.2-mysql"],
            ),
            ("[[services]]\nprogram = \"nginx\"".into(), &["nginx-light"]),
            (
                "[[services]]\nprogram = \"command\"\ncommand = \"exec python3 /srv/perl.py\"".into(),
                &["python3"],
            ),
            (
                "[[services]]\nprogram = \"command\"\ncommand = \"exec gunicorn desk:application\"".into(),
                &["gunicorn"],
            ),
            (
                "[[services]]\nprogram = \"command\"\ncommand = \"exec lighttpd -D -f x\"".into(),
                &["lighttpd"],
            ),
        ] {
            assert_eq!(of(&services), packages, "{services}");
        }
    }
}
