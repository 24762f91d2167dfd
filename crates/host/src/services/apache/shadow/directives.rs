//! The directives that a second instance must not share with the first: where it listens, what it writes, what it
//! starts, and what it tells others.
//!
//! https://httpd.apache.org/docs/2.4/mod/directives.html for those of httpd itself; the manuals of mod_fcgid,
//! mod_wsgi, mod_jk, ModSecurity, mod_auth_mellon, mod_auth_openidc, mod_auth_gssapi and mod_evasive for theirs.
//! Paths are relative to ServerRoot or to DefaultRuntimeDir (`ap_server_root_relative`, `ap_runtime_dir_relative`).

/// What a directive's arguments are, as far as a second instance has to care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An address to listen on.
    Listen,
    /// Addresses of virtual hosts.
    Addresses,
    /// Files with directives.
    Include,
    /// A file that is written, or the beginning of the names of such files.
    File,
    /// A file that is written, or a program that gets what would be written.
    Log,
    /// The same, or a place of another kind (`syslog`), which may be named by two words.
    ErrorLog,
    /// A directory that is written to.
    Folder,
    /// A provider and its argument, which is a file for some: `shmcb:/run/x(512000)`.
    Cache,
    /// A mechanism and perhaps a directory: `file:/run/lock`.
    Mutex,
    /// The name of a setting of PHP and its value.
    Php,
    /// It must not be done twice: telling the cluster of a server that is none.
    LeftOut,
}

/// By kind, lower case.
const KINDS: [(Kind, &[&str]); 11] = [
    (Kind::Listen, &["listen"]),
    (Kind::Addresses, &["virtualhost", "namevirtualhost"]),
    (Kind::Include, &["include", "includeoptional"]),
    (
        Kind::File,
        &[
            "pidfile",
            "scoreboardfile",
            "scriptsock",
            "scriptlog",
            "davlockdb",
            "davgenericlockdb",
            "lockfile",
            "heartbeatstorage",
            "ldapsharedcachefile",
            "fcgidprocesstablefile",
            "wsgisocketprefix",
            "jkshmfile",
            "secdebuglog",
            "mellonlockfile",
        ],
    ),
    (
        Kind::Log,
        &[
            "customlog",
            "transferlog",
            "globallog",
            "forensiclog",
            "cookielog",
            "jklogfile",
            "secauditlog",
            "secauditlog2",
            "secguardianlog",
        ],
    ),
    (Kind::ErrorLog, &["errorlog"]),
    (
        Kind::Folder,
        &[
            "defaultruntimedir",
            "defaultstatedir",
            "statedir",
            "coredumpdirectory",
            "gprofdir",
            "cacheroot",
            "cachelockpath",
            "fcgidipcdir",
            "secdatadir",
            "sectmpdir",
            "secuploaddir",
            "secauditlogstoragedir",
            "doslogdir",
            "oidccachedir",
            "gssapidelegccachedir",
        ],
    ),
    (Kind::Cache, &["sslsessioncache", "sslstaplingcache", "authncachesocache", "cachesocache"]),
    (Kind::Mutex, &["mutex", "sslmutex"]),
    (Kind::Php, &["php_value", "php_admin_value"]),
    (Kind::LeftOut, &["heartbeataddress", "heartbeatlisten", "serveradvertise"]),
];

/// The kind of a directive or section; `None` when it may stay as it is.
pub fn kind(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    KINDS.iter().find(|(_, names)| names.contains(&name.as_str())).map(|(kind, _)| *kind)
}

/// Sections and directives with which Apache gets its certificates itself: a second instance would ask for them, too.
pub const MANAGES_CERTIFICATES: [&str; 3] = ["MDomain", "MDomainSet", "ManagedDomain"];

/// Files that modules write where the configuration does not name them: the module, its directive, and a name for it.
pub const DEFAULTS: [(&str, &str, &str); 7] = [
    ("mod_cgid.c", "ScriptSock", "cgisock"),
    ("mod_dav_fs.c", "DavLockDB", "davlockdb"),
    ("mod_heartmonitor.c", "HeartbeatStorage", "hb.dat"),
    ("mod_fcgid.c", "FcgidIPCDir", "fcgidsock"),
    ("mod_fcgid.c", "FcgidProcessTableFile", "fcgid_shm"),
    ("mod_wsgi.c", "WSGISocketPrefix", "wsgi"),
    ("mod_jk.c", "JkShmFile", "jk-runtime-status"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_known_in_any_case_and_once() {
        assert_eq!(kind("ErrorLog"), Some(Kind::ErrorLog));
        assert_eq!(kind("INCLUDEOPTIONAL"), Some(Kind::Include));
        assert_eq!(kind("DocumentRoot"), None);
        let mut names: Vec<_> = KINDS.iter().flat_map(|(_, names)| names.iter()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| **name == name.to_ascii_lowercase()));
        // What a module gets by default must be what would be rewritten if it were configured.
        assert!(DEFAULTS.iter().all(|(_, name, _)| matches!(kind(name), Some(Kind::File | Kind::Folder))));
    }
}
