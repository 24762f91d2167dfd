//! Hosts made by hand (unshare(1) and bind mounts), their files, and the programs on them.

use super::*;
use crate::scenario::Catalogue;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A folder of namespaces' files, and its first process.
struct Host {
    folder: Folder,
    root: tempfile::TempDir,
    unshare: Child,
    first: String,
    _catalogue: tempfile::TempDir,
}

/// Tests that make namespaces need root; elsewhere they say so and check nothing.
fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {what} needs root");
    }
    root
}

/// A scenario of the services that are given in TOML, with files.
fn folder(services: &str, files: &[(&str, &str)]) -> (Folder, tempfile::TempDir) {
    let catalogue = tempfile::tempdir().unwrap();
    let text = format!(
        "title = \"A test\"\ngroup = \"healthy\"\nstory = \"None.\"\n{services}\n\
         [load]\nurls = [\"http://server/\"]\nflags = \"-c 1 -d 1s\"\n\
         [[rounds]]\nname = \"one\"\nfinding = \"healthy\"\n"
    );
    for (path, text) in files.iter().copied().chain([("scenario.toml", text.as_str())]) {
        let path = catalogue.path().join("test").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let folder = Catalogue::Directory(catalogue.path().to_owned()).open("test").unwrap();
    (folder, catalogue)
}

impl Host {
    fn new(services: &str, files: &[(&str, &str)]) -> Self {
        let (folder, catalogue) = folder(services, files);
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        lay_out(&folder, "server", root.path(), &[("server".into(), "10.80.0.2".into())]).unwrap();
        let script = "cd \"$1\" && for own in etc var srv root; do mount --bind $own /$own || exit 1; done \
             && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /tmp && ip link set lo up && ip address add 10.80.0.2 dev lo \
             && hostname server && echo ready && exec sleep 60";
        let mut unshare = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--net", "--uts", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", script, "sh"])
            .arg(root.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(unshare.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let first = std::fs::read_to_string(children).unwrap().trim().to_owned();
        Self { folder, root, unshare, first, _catalogue: catalogue }
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first, "-m", "-p", "-n", "-u", "--"]);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").envs(environment(self.root.path()));
        command
    }

    fn start(&self) -> Result<()> {
        let enter = || Ok(self.enter());
        let inside = Inside { host: "server", scratch: self.root.path(), enter: &enter };
        let deadline = Instant::now() + Duration::from_secs(20);
        let services = &self.folder.scenario.services;
        services.iter().try_for_each(|service| {
            let begun = Instant::now();
            let started = start_in(&inside, &self.folder, service, deadline);
            eprintln!("{:?}: {:?}", service.program, begun.elapsed());
            started
        })
    }

    /// What a line typed on the host says.
    fn typed(&self, line: &str) -> String {
        let output = self.enter().args(["sh", "-c", line]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        said.into_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its end ends the first process, and with it all others.
        self.unshare.kill().unwrap();
        self.unshare.wait().unwrap();
    }
}

#[test]
fn apache_starts_with_each_mpm_and_reloads_as_typed() {
    if !is_root("a host") {
        return;
    }
    for mpm in ["prefork", "worker", "event"] {
        let host = Host::new(&format!("[[services]]\nprogram = \"apache\"\nmpm = \"{mpm}\"\n"), &[]);
        host.start().unwrap();
        let mut stream = String::new();
        stream += &host.typed("curl -s http://server/ http://server/server-status?auto");
        assert!(stream.contains("<h1>It works</h1>"), "{stream}");
        assert!(stream.contains(&format!("ServerMPM: {mpm}")), "{stream}");
        assert_eq!(host.typed("apache2 -k graceful"), "");
        let limits = host.typed("grep 'open files' /proc/$(cat /run/apache2/apache2.pid)/limits");
        assert_eq!(limits.split_whitespace().nth(3), Some("8192"), "{limits}");
    }
}

#[test]
fn a_page_of_php_asks_the_database() {
    if !is_root("a host") {
        return;
    }
    let services = "[[services]]\nprogram = \"mariadb\"\nsql = \"srv/shop.sql\"\n\
         [[services]]\nprogram = \"php-fpm\"\n\
         [[services]]\nprogram = \"apache\"\nmodules = [\"proxy_fcgi\"]\nconfs = [\"php8.2-fpm\"]\n";
    let page = "<?php $db = new mysqli('localhost', 'shop', '', 'shop');\
         echo $db->query('select name from article')->fetch_row()[0], opcache_get_status()['opcache_enabled'];";
    let sql = "create database shop; use shop; create table article (name text) engine=innodb;\
         insert into article values ('teapot'); create user shop@localhost;\
         grant all on shop.* to shop@localhost;";
    let host = Host::new(services, &[("server/srv/shop.sql", sql), ("server/var/www/html/shop.php", page)]);
    host.start().unwrap();
    assert_eq!(host.typed("curl -s http://server/shop.php"), "teapot1");
    assert_eq!(
        host.typed("stat -c '%a %U' /var/lib/php/sessions /var/lib/mysql /var/log/apache2"),
        "1733 root\n755 mysql\n750 root\n"
    );
}
