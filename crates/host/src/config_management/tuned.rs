//! The settings of the kernel that TuneD sets by its profile.
//!
//! Facts: tuned-profiles(7), tuned.conf(5): `tuned.conf` in a directory of the profile's name, `include=` in [main], and
//! `name=value` in [sysctl]. An active profile may be several, which are merged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where profiles lie, what counts most first: today's places, and those before 2.23.
const FOLDERS: [&str; 4] = ["etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"];

/// More profiles than one includes of another.
const PROFILES_COUNT_MAX: usize = 32;

/// What the active profile sets, each with the file that says so.
pub fn sysctls(root: &Path, active: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut profiles: Vec<String> = active.split_whitespace().map(str::to_owned).collect();
    let mut next = 0;
    while let Some(profile) = profiles.get(next).cloned().filter(|_| next < PROFILES_COUNT_MAX) {
        next += 1;
        let places = FOLDERS.map(|folder| root.join(folder).join(&profile).join("tuned.conf"));
        let Some((path, text)) =
            places.into_iter().find_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        else {
            continue;
        };
        for (section, key, value) in entries(&text) {
            match (section, key) {
                ("main", "include") => {
                    profiles.extend(value.split([',', ';', ' ']).map(str::trim).map(str::to_owned));
                }
                ("sysctl", name) => {
                    found.entry(name.replace('/', ".")).or_insert_with(|| path.clone());
                }
                _ => {}
            }
        }
    }
    found
}

/// Section, key and value of each line that has them.
fn entries(text: &str) -> Vec<(&str, &str, &str)> {
    let (mut section, mut found) = ("", vec![]);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.split_once('=') {
            found.push((section, key.trim(), value.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::config_management::Managers;
    use std::time::SystemTime;

    #[test]
    fn a_profile_and_what_it_includes_own_what_they_set() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/tuned/active_profile", "web\n");
        write(
            "etc/tuned/web/tuned.conf",
            "[main]\ninclude=throughput-performance\n[sysctl]\nnet.core.somaxconn=>2048\n",
        );
        write(
            "usr/lib/tuned/throughput-performance/tuned.conf",
            "[vm]\nx=1\n[sysctl]\n# fs.file-max=1\nvm.swappiness = 10\n",
        );
        let managers = Managers::of(root.path(), vec![], SystemTime::now());
        let owner = managers.sysctl_owner("net.core.somaxconn").unwrap();
        assert_eq!(
            (owner.by.as_str(), owner.why.as_str()),
            ("TuneD", "its profile web sets net.core.somaxconn")
        );
        assert!(
            managers
                .sysctl_owner("vm.swappiness")
                .unwrap()
                .path
                .ends_with("throughput-performance/tuned.conf")
        );
        assert_eq!(managers.sysctl_owner("fs.file-max"), None);
    }
}
