//! Where Apache is now: packages move programs (`/usr/sbin/httpd` to `/usr/bin/httpd`) and rename units, and who is to be
//! put back knows only where they were.
//!
//! Facts: systemctl(1), `show`: one block of properties per unit, with `LoadState=not-found` for a unit that is not there.

use super::{Apache, EXECUTABLES};
use crate::os::process::ProcessName;
use crate::os::timeouts;
use crate::services::Tunable;
use crate::services::common::unit::systemctl;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use webdyno_model::service::Control;

/// Where distributions install it, beside the directories of `PATH`.
const FOLDERS: [&str; 5] =
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/local/apache2/bin"];

/// The control with the program and the unit that are there now; `None` when no program is.
pub fn locate(control: &Control) -> Option<Control> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from)).collect();
    let executable = installed(&control.executable, &folders)?;
    let unit = control.unit.as_ref().and_then(|unit| present_unit(unit, control));
    Some(Control { executable, unit, ..control.clone() })
}

/// The program, or one of the same name elsewhere, or one of its other names.
fn installed(executable: &str, folders: &[PathBuf]) -> Option<String> {
    let name = Path::new(executable).file_name()?.to_str()?;
    let names = std::iter::once(name).chain(EXECUTABLES);
    let elsewhere = names.flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let mut candidates = std::iter::once(PathBuf::from(executable)).chain(elsewhere);
    let found = candidates.find(|path| path.is_absolute() && is_program(path))?;
    Some(found.to_str()?.to_owned())
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The unit, or the one that took its place; `None` when there is none: then signals do. Where systemd does not answer
/// nothing better is known.
fn present_unit(unit: &str, control: &Control) -> Option<String> {
    let others: Vec<String> = Apache.init_names().iter().map(|name| format!("{name}.service")).collect();
    let units = std::iter::once(unit).chain(others.iter().map(String::as_str));
    let asked: Vec<&str> = ["show", "--property=Id,LoadState,MainPID"].into_iter().chain(units).collect();
    let Ok(answer) = crate::os::program::run(&systemctl(&asked), timeouts::QUERY) else {
        return Some(unit.to_owned());
    };
    let main = ProcessName::from(control);
    choose(&answer.stdout, main.is_alive().then_some(main.pid))
}

/// Of the units in an answer the first one that is loaded and, for a process that lives, has it for its main process.
fn choose(answer: &str, main_pid: Option<u32>) -> Option<String> {
    let mut blocks = answer.split("\n\n").map(|block| {
        let value = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        (value("Id"), value("LoadState"), value("MainPID").and_then(|pid| pid.parse::<u32>().ok()))
    });
    let fits = |pid: Option<u32>| main_pid.is_none() || pid == main_pid;
    blocks.find(|(_, state, pid)| *state == Some("loaded") && fits(*pid))?.0.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "Id=old.service\nLoadState=not-found\nMainPID=7\n\nId=apache2.service\nLoadState=loaded\n\
        MainPID=0\n\nMainPID=41\nId=httpd.service\nLoadState=loaded\n";

    #[test]
    fn the_unit_that_took_the_place_is_chosen() {
        for (answer, main_pid, expected) in [
            (ANSWER, None, Some("apache2.service")),
            (ANSWER, Some(41), Some("httpd.service")),
            (ANSWER, Some(7), None),
            ("Id=apache2.service\nLoadState=loaded\nMainPID=5\n", Some(5), Some("apache2.service")),
            ("", None, None),
        ] {
            assert_eq!(choose(answer, main_pid).as_deref(), expected, "{main_pid:?}");
        }
    }

    #[test]
    fn a_program_is_found_where_it_is_now() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, mode: u32| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let folders = ["a", "b"].map(|name| root.path().join(name));
        let gone = "/no/such/sbin/httpd";
        assert_eq!(installed(gone, &folders), None);
        let other = write("a/apache2", 0o755);
        assert_eq!(installed(gone, &folders), Some(other));
        write("a/httpd", 0o644);
        let same = write("b/httpd", 0o755);
        assert_eq!(installed(gone, &folders), Some(same.clone()), "what cannot be run is no program");
        let here = write("c/httpd", 0o755);
        assert_eq!(installed(&here, &folders), Some(here.clone()));
    }
}
