//! An nginx in a folder of its own, as tests of several crates start it.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::ports::free_port;
use crate::skip::skip;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for whatever else keeps the machine busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// It runs as long as this value lives.
pub struct Nginx {
    child: Child,
    pub address: SocketAddr,
}

impl Nginx {
    /// With one worker, and these directives of `http` for its address; `None` where it is not installed.
    pub fn start(folder: &Path, http: impl FnOnce(SocketAddr) -> String) -> Option<Self> {
        std::fs::create_dir(folder).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (shown, http) = (folder.display(), http(address));
        // The workers of root are nobody, who may not read a folder of the test's.
        let user = if geteuid().is_root() { "user root;" } else { "" };
        let text = format!(
            "{user} daemon off; pid {shown}/pid; error_log {shown}/error.log; worker_processes 1;\n\
             events {{ worker_connections 256; }}\n\
             http {{ client_body_temp_path {shown}/b; proxy_temp_path {shown}/p;\n\
             fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u; scgi_temp_path {shown}/s;\n\
             {http} }}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder).arg("-c").arg(&file).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            assert!(std::env::var_os("CI").is_none(), "nginx is missing: apt-get install nginx-light");
            skip("nginx is missing; install nginx-light");
            return None;
        };
        let nginx = Self { child, address };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
