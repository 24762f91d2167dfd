//! The tables of a fresh MariaDB: made once, and copied for each test, which takes a fiftieth of the time.
//!
//! Facts: mariadb-install-db(1), flock(2).

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The server.
pub const DATABASE: &str = "/usr/sbin/mariadbd";

/// Who it is run as by default: it does not run as root unless it is told to.
pub fn user() -> &'static str {
    if rustix::process::geteuid().is_root() { "root" } else { "nobody" }
}

/// Puts the tables of a fresh database into a folder that is not there yet. They are the owner's, and root may connect by
/// the socket.
pub fn lay(data: &Path, owner: &str) {
    let copied = Command::new("cp").arg("-R").args([&template(), data]).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    if owner != user() {
        let given = Command::new("chown").args(["-R", owner]).arg(data).output().unwrap();
        assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
    }
}

/// What is copied: of this very build of the server, kept from one run of the tests to the next.
fn template() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = fs::metadata(DATABASE).unwrap();
    let name = format!("mariadb-{}-{}-{}", built.mtime(), built.size(), user());
    let (whole, begun) = (place.join(&name), place.join(format!("{name}.begun")));
    // Test programs of several crates may run at once.
    let lock = File::create(place.join("mariadb.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if !whole.exists() {
        install(&begun);
        fs::rename(&begun, &whole).unwrap();
    }
    whole
}

/// Makes them. That fails now and then where the machine is busy: then it is begun anew.
fn install(data: &Path) {
    let mut said = String::new();
    for _ in 0..3 {
        let _ = fs::remove_dir_all(data);
        let made = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=socket"])
            .args([format!("--auth-root-socket-user={}", user()), format!("--user={}", user())])
            .args(["--innodb-log-file-size=8M", &format!("--datadir={}", data.display())])
            .output()
            .unwrap();
        if made.status.success() {
            return;
        }
        said = [made.stdout, made.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    }
    panic!("{said}");
}
