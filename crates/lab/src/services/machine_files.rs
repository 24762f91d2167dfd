//! What a host has of the machine's /etc: names of users and services, where libraries are, time zone, certificates.
//! Whatever not everybody may read is left out, and so are fields where old machines keep passwords (passwd(5)).

use super::tree::HostFiles;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use walkdir::WalkDir;
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// Files and folders that are taken over as they are, links as links.
const BORROWED: [&str; 20] = [
    "alternatives",
    "debian_version",
    "ethertypes",
    "gai.conf",
    "host.conf",
    "iproute2",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "perl",
    "protocols",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

/// Lays them out, with users and groups. What the machine does not have, the host has not either.
pub fn write_files(tree: &HostFiles) -> Result<()> {
    for name in BORROWED {
        let entries = WalkDir::new(Path::new("/etc").join(name)).into_iter().flatten();
        // Most alternatives are pages of the manual.
        for entry in entries.filter(|entry| entry.path().extension().is_none_or(|end| end != "gz")) {
            copy_from_machine(tree, entry.path())?;
        }
    }
    write_users(tree)
}

fn copy_from_machine(tree: &HostFiles, path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
    if meta.is_symlink() {
        let target = std::fs::read_link(path).map_err(|error| io_error("read", path.display(), &error))?;
        return tree.link(&name, &target);
    }
    if meta.is_dir() {
        return tree.folder(&name);
    }
    if !meta.is_file() || meta.permissions().mode() & 0o004 == 0 {
        return Ok(());
    }
    let bytes = std::fs::read(path).map_err(|error| io_error("read", path.display(), &error))?;
    tree.file(&name, &bytes, 0o644)
}

/// The machine's users and groups, and the database's, which its package makes and the program alone does not bring.
fn write_users(tree: &HostFiles) -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| io_error("read", path, &error));
    let mut users = without_passwords(&read("/etc/passwd")?);
    let mut groups = without_passwords(&read("/etc/group")?);
    add_mysql(&mut users, &mut groups);
    tree.file("/etc/passwd", users.as_bytes(), 0o644)?;
    tree.file("/etc/group", groups.as_bytes(), 0o644)
}

/// The second field is a password where it is not an `x`.
fn without_passwords(text: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let Some(password) = fields.get_mut(1) {
            *password = "x";
        }
        fields.join(":") + "\n"
    };
    text.lines().filter(|line| !line.is_empty()).map(line).collect()
}

fn add_mysql(users: &mut String, groups: &mut String) {
    let has = |text: &str| text.lines().any(|line| line.starts_with("mysql:"));
    let id_of = |line: &str| line.split(':').nth(2)?.parse::<u32>().ok();
    let group = groups.lines().find(|line| line.starts_with("mysql:")).and_then(id_of);
    let taken: Vec<u32> = users.lines().chain(groups.lines()).filter_map(id_of).collect();
    // The range of system accounts (Debian policy 9.2.2).
    let free = (100..1000).find(|id| !taken.contains(id)).unwrap_or(999);
    if group.is_none() {
        let _ = writeln!(groups, "mysql:x:{free}:");
    }
    if !has(users) {
        let group = group.unwrap_or(free);
        let _ = writeln!(users, "mysql:x:{free}:{group}:MySQL Server,,,:/nonexistent:/bin/false");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_left_out_and_the_database_has_a_user() {
        let mut users =
            without_passwords("root:$6$secret$hash:0:0:root:/root:/bin/sh\na:x:100:100::/:/bin/sh\n");
        let mut groups = without_passwords("root:secret:0:\nb:!:101:\n");
        add_mysql(&mut users, &mut groups);
        assert_eq!(
            users,
            "root:x:0:0:root:/root:/bin/sh\na:x:100:100::/:/bin/sh\n\
             mysql:x:102:102:MySQL Server,,,:/nonexistent:/bin/false\n"
        );
        assert_eq!(groups, "root:x:0:\nb:x:101:\nmysql:x:102:\n");
        let before = (users.clone(), groups.clone());
        add_mysql(&mut users, &mut groups);
        assert_eq!((users, groups), before, "who is there is not added again");
        let (mut users, mut groups) = (String::new(), "mysql:x:700:\n".to_owned());
        add_mysql(&mut users, &mut groups);
        assert_eq!(users, "mysql:x:100:700:MySQL Server,,,:/nonexistent:/bin/false\n");
        assert_eq!(groups, "mysql:x:700:\n");
    }
}
