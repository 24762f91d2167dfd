//! A private Apache in a directory of its own, laid out as Debian does it.

use crate::programs::Keeper;
use crate::skip::skip;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use webdyno_host::services::by_name;
use webdyno_model::service::ServiceSnapshot;

pub const EXECUTABLE: &str = "/usr/sbin/apache2";
pub const MODULES: &str = "/usr/lib/apache2/modules";

/// Whether Apache is there; on CI it must be.
pub fn apache_is_installed() -> bool {
    let installed = Path::new(EXECUTABLE).exists() && Path::new(MODULES).exists();
    assert!(
        installed || std::env::var_os("CI").is_none(),
        "{EXECUTABLE} is missing: apt-get install apache2-bin"
    );
    if !installed {
        skip(&format!("{EXECUTABLE} is missing; install apache2-bin"));
    }
    installed
}

/// A private Apache in a directory of its own. It ends with the test.
pub struct Server {
    /// Everything of it is in here.
    pub root: tempfile::TempDir,
    /// The program that runs it.
    pub executable: PathBuf,
    /// It listens on 127.0.0.1.
    pub port: u16,
    keeper: OnceLock<Keeper>,
}

impl Server {
    /// A tree as Debian lays it out. `mpm_conf` is the content of mods-enabled/mpm.conf.
    pub fn debian(mpm: &str, mpm_conf: &str) -> Self {
        let port = crate::ports::free_port();
        let root = tempfile::tempdir().unwrap();
        let server = Self { root, executable: EXECUTABLE.into(), port, keeper: OnceLock::new() };
        fs::set_permissions(server.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let root = server.root.path().display();
        let user = if rustix::process::geteuid().is_root() { "User www-data\nGroup www-data\n" } else { "" };
        let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
        let status =
            "<Location /server-status>\n    SetHandler server-status\n    Require local\n</Location>\n";
        let main = format!(
            "# As Debian lays it out\nServerRoot \"{root}\"\nDefine RUN {root}/run\nPidFile ${{RUN}}/apache2.pid\n\
             DefaultRuntimeDir ${{RUN}}\nErrorLog ${{RUN}}/error.log\nServerName localhost\n{user}Timeout 30\n\
             IncludeOptional mods-enabled/*.load\nIncludeOptional mods-enabled/*.conf\nInclude ports.conf\n\
             IncludeOptional conf-enabled/*.conf\nIncludeOptional sites-enabled/*.conf\n"
        );
        let site = format!("<VirtualHost *:{port}>\n    DocumentRoot ${{RUN}}\n</VirtualHost>\n");
        for (name, text) in [
            ("apache2.conf", main.as_str()),
            (
                "ports.conf",
                &format!("Listen 127.0.0.1:{port}\n<IfModule ssl_module>\nListen 443\n</IfModule>\n"),
            ),
            ("mods-enabled/mpm.load", &load(&format!("mpm_{mpm}"))),
            ("mods-enabled/mpm.conf", mpm_conf),
            ("mods-enabled/core.load", &(load("authz_core") + &load("authz_host"))),
            ("mods-enabled/status.load", &load("status")),
            ("mods-enabled/status.conf", status),
            ("conf-enabled/security.conf", "ServerTokens OS\n"),
            ("sites-enabled/000-default.conf", &site),
            ("run/.keep", ""),
        ] {
            server.write(name, text);
        }
        server
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn run(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(&self.executable);
        command.arg("-f").arg(self.path("apache2.conf")).args(arguments);
        command.env("DB_PASSWORD", "s3cret").env("APACHE_RUN_DIR", "/run/x").output().unwrap()
    }

    pub fn start(&self) {
        let word = self.path("apache2.conf").display().to_string();
        self.keeper.get_or_init(|| Keeper::of_daemon(&self.path("run/apache2.pid"), &word));
        let output = self.run(&["-k", "start"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.pid().is_none() || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                Instant::now() < deadline,
                "{}",
                fs::read_to_string(self.path("run/error.log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.path("run/apache2.pid")).ok()?.trim().parse().ok()
    }

    pub fn snapshot(&self) -> ServiceSnapshot {
        by_name("apache").unwrap().snapshot(self.pid().unwrap(), self.port).unwrap()
    }

    /// Ends the server and waits for it; only a process that runs this very configuration.
    pub fn stop(&self) {
        let ours = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&*self.path("apache2.conf").to_string_lossy())
        };
        let Some(pid) = self.pid().filter(|&pid| ours(pid)) else {
            return;
        };
        let id = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        // What still runs then is told by who starts it again.
        let deadline = Instant::now() + Duration::from_secs(60);
        while ours(pid) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
