//! A real Apache that compresses its pages (mod_deflate, mod_brotli) and redirects: what is expected of a page holds in
//! every coding, while the bytes on the wire are counted.

use crate::ports::free_port;
use crate::server::{load, workload};
use crate::skip::skip;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use webdyno_model::workload::Expectation;

const EXECUTABLE: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";

/// An Apache of one process. It ends with the test.
struct Apache {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Apache {
    /// Serves `/page` in the coding that is asked for, and `/folder/`.
    fn start(page: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(root.join("folder")).unwrap();
        std::fs::write(root.join("page"), page).unwrap();
        std::fs::write(root.join("folder/index.html"), "in the folder").unwrap();
        let port = free_port();
        let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
        let modules: String =
            ["mpm_event", "authz_core", "dir", "filter", "deflate", "brotli"].map(load).concat();
        let place = root.display();
        let text = format!(
            "{modules}ServerRoot {place}\nPidFile {place}/pid\nErrorLog {place}/error.log\nServerName localhost\n\
             DefaultRuntimeDir {place}\nUser www-data\nGroup www-data\nListen 127.0.0.1:{port}\nDocumentRoot {place}\n\
             <Location /page>\nSetOutputFilter BROTLI_COMPRESS;DEFLATE\n</Location>\n"
        );
        std::fs::write(root.join("apache.conf"), text).unwrap();
        // One process without a parent: whoever ends it, ends all of it.
        let process =
            Command::new(EXECUTABLE).arg("-X").arg("-f").arg(root.join("apache.conf")).spawn().unwrap();
        let apache = Self { process, port, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "Apache does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        apache
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn pages_of_a_real_server_are_what_they_should_be() {
    if !Path::new(MODULES).join("mod_brotli.so").exists() {
        return skip(&format!("{EXECUTABLE} is missing; install apache2-bin"));
    }
    let page = "a good page\n".repeat(3000);
    let apache = Apache::start(&page);
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", apache.port);
    let mut load_of = workload(&url("/page"));
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(60), None);
    let good = [Expectation::Length(36_000), Expectation::Regex("(?m)^a good page$".into())];
    for (accepted, received_max) in [("identity", 40_000), ("gzip", 1500), ("br", 1000)] {
        load_of.requests[0].headers = vec![("Accept-Encoding".into(), accepted.into())];
        load_of.expect = good.to_vec();
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (60, 0), "{accepted}");
        let received = outcome.sum(|interval| interval.bytes_received) / 60;
        assert!((200..received_max).contains(&received), "{accepted}: {received}");
        load_of.expect.push(Expectation::Regex("Fatal error".into()));
        let outcome = load(&load_of);
        assert_eq!(outcome.sum(|interval| interval.errors.expect), 60, "{accepted}");
    }
    // Apache sends those who leave out the slash to the folder, by its full address.
    load_of.requests[0].url = url("/folder");
    load_of.expect = vec![Expectation::Regex("^in the folder$".into())];
    for (redirects_max, completed) in [(1, 60), (0, 0)] {
        load_of.redirects_max = redirects_max;
        let outcome = load(&load_of);
        assert_eq!(outcome.completed(), completed);
        assert_eq!(outcome.sum(|interval| interval.redirects), completed);
    }
}
