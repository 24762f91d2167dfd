//! An ssh server of a test's own: keys, configuration and temporary folder in one place, on a port of its own. `ssh` in
//! front of the PATH is the system's with a configuration of this place, as ssh looks for the user's where passwd says.

use crate::ports::free_port;
use crate::support::wait_until;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The hosts of the configuration: `web1` and `web2` let us in. The first value of an option counts.
const CONFIG: &str = "
Host web1 web2 stranger
    IdentityFile @FOLDER/key
Host refused
    IdentityFile @FOLDER/other_key
Host stranger
    HostKeyAlias stranger
Host web1 web2 refused stranger
    HostName 127.0.0.1
    Port @PORT
    User root
    HostKeyAlias web1
Host *
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile @FOLDER/known_hosts
    GlobalKnownHostsFile /dev/null
    # As a user may have it: nothing of it is for us.
    RequestTTY force
    RemoteCommand echo never
    LocalForward 1 127.0.0.1:1
";

const SERVER: &str = "
Port @PORT
ListenAddress 127.0.0.1
HostKey @FOLDER/host_key
AuthorizedKeysFile @FOLDER/key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
Banner @FOLDER/banner
SetEnv TMPDIR=@FOLDER/tmp
";

/// It ends with the test.
pub struct Sshd {
    folder: tempfile::TempDir,
    process: Child,
}

impl Sshd {
    /// Starts one. The folder that sshd wants below /run is one of its own.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for key in ["host_key", "key", "other_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(key))
                .status();
            assert!(made.unwrap().success());
        }
        let port = free_port();
        let fill = |text: &str| {
            text.replace("@PORT", &port.to_string()).replace("@FOLDER", &folder.path().display().to_string())
        };
        fs::write(path("sshd_config"), fill(SERVER)).unwrap();
        fs::write(path("config"), fill(CONFIG)).unwrap();
        fs::write(path("banner"), "Welcome. All is logged.\n").unwrap();
        let host_key = fs::read_to_string(path("host_key.pub")).unwrap();
        fs::write(path("known_hosts"), format!("web1 {host_key}")).unwrap();
        for name in ["tmp", "bin"] {
            fs::create_dir(path(name)).unwrap();
        }
        program(&path("bin/ssh"), &fill("exec /usr/bin/ssh -F @FOLDER/config \"$@\""));
        let script = fill(
            "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f @FOLDER/sshd_config",
        );
        let process = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stderr(fs::File::create(path("log")).unwrap())
            .spawn()
            .unwrap();
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(wait_until(Duration::from_secs(20), listens), "{}", fs::read_to_string(path("log")).unwrap());
        Self { folder, process }
    }

    /// A file of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The PATH in which `ssh` goes there.
    pub fn search_path(&self) -> String {
        format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap())
    }

    /// A command of `exec:` that logs in.
    pub fn login(&self) -> String {
        let ours = "-oRequestTTY=no -oRemoteCommand=none -oClearAllForwardings=yes";
        format!("{} {ours} web1", self.path("bin/ssh").display())
    }

    /// The processes that run in sessions of this server: their pids and command lines.
    pub fn there(&self) -> Vec<(u32, String)> {
        let mark = format!("TMPDIR={}", self.path("tmp").display());
        processes()
            .filter(|pid| read(*pid, "environ").contains(&mark))
            .map(|pid| (pid, read(pid, "cmdline")))
            .collect()
    }

    /// The agents among them.
    pub fn agents(&self) -> Vec<u32> {
        let there = self.there().into_iter();
        there.filter(|(_, line)| line.starts_with("/proc/self/fd/5\0agent")).map(|(pid, _)| pid).collect()
    }

    /// Whether nothing is left there: no process, and no file.
    pub fn is_clean(&self) -> bool {
        self.there().is_empty() && fs::read_dir(self.path("tmp")).unwrap().next().is_none()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shell script that can be run.
pub fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// All processes.
pub fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A file of a process; empty when it is gone.
pub fn read(pid: u32, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()).into_owned()
}
