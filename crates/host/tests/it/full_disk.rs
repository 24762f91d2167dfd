//! A disk that really is full, under the journals or under the configuration: the change is refused or taken back, and
//! nothing of it stays.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::fake::{FakeServer, PORT, empty_folder};
use crate::mounts::can_mount;
use crate::skip::needs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{notice, pending};
use webdyno_host::services::Tunable;
use webdyno_model::change::{ApplyClass, ApplyOptions};

/// The environment variable that makes the test below the one that mounts small disks: `FOLDER|state` or `FOLDER|etc`.
const MOUNTER: &str = "WEBDYNO_TEST_SMALL_DISK";

const PAGE_BYTES: u64 = 4096;

/// As a test: runs itself in a mount namespace of its own. With [`MOUNTER`]: in there.
#[test]
fn on_a_full_disk_nothing_half_done_stays() {
    if let Ok(order) = std::env::var(MOUNTER) {
        let (folder, name) = order.split_once('|').unwrap();
        return fill_up(Path::new(folder), name);
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        command
    };
    needs!(can_mount(), "a small disk cannot be mounted here");
    for name in ["state", "etc"] {
        let folder = empty_folder();
        let test = "full_disk::on_a_full_disk_nothing_half_done_stays";
        let output = unshare()
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(MOUNTER, format!("{}|{name}", folder.path().display()))
            .output()
            .unwrap();
        let message =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success() && message[0].contains("1 passed"), "{name}: {}", message.concat());
    }
}

/// Applies one change again and again, with one page more of free space each time, until there is enough; and where the
/// journal is, with originals of different lengths, so that its records end everywhere in a page.
fn fill_up(folder: &Path, name: &str) {
    let place = folder.join(name);
    let step_bytes = if name == "state" { 211 } else { 4000 };
    for shift_bytes in (0..PAGE_BYTES as usize).step_by(step_bytes) {
        let mut free_pages = 0;
        while !on_a_small_disk(&place, || apply_with_space(folder, &place, free_pages, shift_bytes)) {
            free_pages += 1;
            assert!(free_pages < 50, "{name}: no free space is enough");
        }
        assert!(free_pages > 3, "{name}: {free_pages} free pages were enough");
    }
}

fn on_a_small_disk<T>(place: &Path, act: impl FnOnce() -> T) -> T {
    std::fs::create_dir_all(place).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=512k,mode=755", "small", place.to_str().unwrap()]);
    let done = act();
    assert!(Command::new("umount").arg(place).status().unwrap().success());
    done
}

fn mount(arguments: &[&str]) {
    assert!(Command::new("mount").args(arguments).status().unwrap().success());
}

/// Whether the change could be applied. When it could not, everything must be as before.
fn apply_with_space(folder: &Path, place: &Path, free_pages: u64, shift_bytes: usize) -> bool {
    let server = FakeServer::set_up(folder);
    // Originals of several pages each make a journal of many.
    let shift = "#".repeat(shift_bytes);
    std::fs::write(server.conf("a.conf"), "Workers 10\n".repeat(1000) + &shift).unwrap();
    std::fs::write(server.conf("b.conf"), "KeepAlive On\n".repeat(1000)).unwrap();
    server.activate(&server.control(), ApplyClass::Reload, PORT).unwrap();
    fill(place, free_pages);
    let original = server.picture();
    let (long, longer) = ("# more\n".repeat(900), "# yet more\n".repeat(2000));
    let workers = format!("Workers 20\n{long}");
    let edits = [("a.conf", workers.as_str()), ("b.conf", longer.as_str()), ("new.conf", "Extra 1\n")];
    let mut changer = server.changer();
    let plan = server.plan(&edits, ApplyClass::Reload);
    let applied = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default());
    if let Err(error) = &applied {
        let hint = error.hint.clone().unwrap_or_default();
        let context = format!("{free_pages} pages free in {}: {error}; {hint}", place.display());
        assert!(error.message.contains("no space left on the disk"), "{context}");
        assert!(error.message.contains(place.to_str().unwrap()), "{context}");
        assert!(hint.contains("free space") && !hint.contains("failed too"), "{context}");
        assert_eq!(server.picture(), original, "{context}");
    } else {
        assert!(server.running().contains("Workers 20"));
    }
    let ended = changer.end(ClosedBy::Tool);
    assert!(ended.is_ok(), "{free_pages} pages free in {}: {ended:?}", place.display());
    assert_eq!(server.picture(), original);
    assert_eq!(pending(&server.state()).unwrap(), []);
    assert_eq!(notice(&server.state()), None);
    assert_eq!(rollback_with(&server.tools(Arc::new(RealDisk))).unwrap(), Vec::<String>::new());
    applied.is_ok()
}

/// Fills a disk up but for some pages.
fn fill(place: &Path, free_pages: u64) {
    let mut ballast = std::fs::File::create(place.join("ballast")).unwrap();
    let page = [0_u8; PAGE_BYTES as usize];
    let mut pages = 0;
    while ballast.write_all(&page).is_ok() {
        pages += 1;
    }
    assert!(pages > free_pages);
    ballast.set_len((pages - free_pages) * PAGE_BYTES).unwrap();
}
