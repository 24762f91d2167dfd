//! A private PHP-FPM in a directory of its own.

use crate::programs::Program;
use crate::skip::skip;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use webdyno_host::collectors::Target;
use webdyno_host::os::process::wait_until;
use webdyno_host::probes::fastcgi::Request;
use webdyno_host::services::by_name;
use webdyno_host::visibility::process_view::{Root, connect};
use webdyno_model::service::ServiceSnapshot;

/// The program, which has its version in its name.
fn executable() -> Option<PathBuf> {
    let programs = fs::read_dir("/usr/sbin").ok()?.flatten().map(|entry| entry.path());
    programs.into_iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with("php-fpm"))
}

/// Whether PHP-FPM is there, and can be run: it wants root to give its pools users. On CI it must be.
pub fn fpm_is_installed() -> bool {
    let installed = executable().is_some();
    assert!(installed || std::env::var_os("CI").is_none(), "php-fpm is missing: apt-get install php-fpm");
    if !installed {
        skip("php-fpm is missing; install it");
    }
    let root = rustix::process::geteuid().is_root();
    if installed && !root {
        skip("needs root");
    }
    installed && root
}

/// A private PHP-FPM. It ends with the test.
pub struct Fpm {
    /// Everything of it is in here.
    pub root: tempfile::TempDir,
    /// Its main process.
    pub pid: u32,
    program: std::sync::Mutex<Program>,
}

impl Fpm {
    /// Pools with their settings; they listen on `NAME.sock` unless they say else. ROOT stands for the directory.
    pub fn start(pools: &[(&str, &str)]) -> Self {
        Self::start_with(pools, "", &[])
    }

    /// With a network and a /tmp of its own, and without php.ini.
    pub fn start_apart(pools: &[(&str, &str)]) -> Self {
        // What is mounted over /tmp hides the directory of the test: it is kept elsewhere meanwhile.
        let script = "mount --bind \"$1\" /mnt && mount -t tmpfs none /tmp && mkdir -p \"$1\" && mount --bind /mnt \"$1\" && \
                      ip link set lo up && shift && exec \"$@\"";
        let unshare = ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script, "sh"];
        Self::start_in(&unshare, pools, "", &["-n"])
    }

    /// With a php.ini, and arguments.
    pub fn start_with(pools: &[(&str, &str)], php_ini: &str, arguments: &[&str]) -> Self {
        Self::start_in(&[], pools, php_ini, arguments)
    }

    /// By a command that gets the directory and the command line of php-fpm, and becomes it.
    fn start_in(by: &[&str], pools: &[(&str, &str)], php_ini: &str, arguments: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
        let place = root.path().to_string_lossy().into_owned();
        let mut text = String::new();
        for (name, settings) in pools {
            let settings = settings.replace("ROOT", &place);
            let listen = if settings.starts_with("listen = ") {
                String::new()
            } else {
                format!("listen = {place}/{name}.sock\n")
            };
            text += &format!(
                "[{name}]\nuser = www-data\ngroup = www-data\ncatch_workers_output = yes\n{listen}{settings}\n"
            );
        }
        fs::write(at("pools.conf"), text).unwrap();
        fs::write(
            at("fpm.conf"),
            format!("[global]\npid = {place}/fpm.pid\nerror_log = {place}/error.log\ninclude = {place}/pools.conf\n"),
        )
        .unwrap();
        fs::write(at("php.ini"), php_ini).unwrap();
        // Holds a child until the file `held` is gone.
        let hold = format!(
            "<?php while (true) {{ clearstatcache(); if (!file_exists('{place}/held')) break; usleep(20000); }}\n"
        );
        fs::write(at("hold.php"), hold).unwrap();
        let mut command = match by {
            [] => Command::new(executable().unwrap()),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&place).arg(executable().unwrap());
                command
            }
        };
        command.args(["-F", "-y", &at("fpm.conf"), "-c", &at("php.ini")]).args(arguments);
        let program = Program::start(&mut command);
        let fpm = Self { pid: program.pid(), program: program.into(), root };
        let log = || fs::read_to_string(fpm.path("error.log")).unwrap_or_default();
        assert!(wait_until(Duration::from_secs(20), || log().contains("ready to handle")), "{}", log());
        fpm
    }

    pub fn path(&self, name: &str) -> String {
        self.root.path().join(name).to_string_lossy().into_owned()
    }

    pub fn snapshot(&self) -> ServiceSnapshot {
        by_name("php_fpm").unwrap().backend(self.pid).unwrap().unwrap()
    }

    /// It is behind something.
    pub fn target(&self) -> Target {
        Target { backends: vec![self.snapshot()].into(), ..Target::default() }
    }

    /// Requests that are not answered until they are let go.
    pub fn hold(&self, pool: &str, count: usize) -> Vec<Request> {
        fs::write(self.path("held"), "").unwrap();
        (0..count).map(|_| self.request(pool, "hold.php")).collect()
    }

    pub fn let_go(&self) {
        fs::remove_file(self.path("held")).unwrap();
    }

    /// Asks a pool for a script.
    pub fn request(&self, pool: &str, script: &str) -> Request {
        let snapshot = self.snapshot();
        let endpoint = snapshot.endpoints.iter().find(|endpoint| endpoint.name == pool).unwrap();
        let stream = connect(self.pid, &Root::ours(), &endpoint.address, Duration::from_secs(5)).unwrap();
        let file = self.path(script);
        let parameters =
            [("SCRIPT_FILENAME", file.as_str()), ("SCRIPT_NAME", "/x.php"), ("REQUEST_METHOD", "GET")];
        Request::send(stream, &parameters).unwrap()
    }

    /// Ends it at once, with its children.
    pub fn stop(&self) {
        self.program.lock().unwrap().end();
    }
}
