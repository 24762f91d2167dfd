//! The private Apache of the quickstart: the distribution's program with its out-of-the-box prefork values, in front of
//! a small slow application of its own (mod_lua), in a directory of its own, on loopback, without root.
//!
//! Values: Debian's mods-available/mpm_prefork.conf (StartServers 5, MinSpareServers 5, MaxSpareServers 10,
//! MaxRequestWorkers 150, MaxConnectionsPerChild 0). The application waits about 200 ms, as pages that wait for a
//! database do, and uses hardly any CPU. This module writes files only; starting is the agent's, so that it is journaled.

use std::fs::DirEntry;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Virtual users that drive it: three times its workers.
pub const USERS: u32 = 450;

/// A private Apache whose files are written and which was not started yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateApache {
    /// Its ServerRoot.
    pub root: PathBuf,
    /// Whether the root lies outside of the run directory and is to be removed at the end.
    pub temporary: bool,
    /// The loopback port it will listen on.
    pub port: u16,
    /// The command that starts it.
    pub command: Vec<String>,
    /// Where it writes its main process id.
    pub pid_file: PathBuf,
}

/// Begins the name of a ServerRoot outside of the run directory; the id of the tool's process ends it.
const TEMPORARY: &str = "webdyno-quickstart-";
/// Where in the ServerRoot Apache writes its process id.
const PID_FILE: &str = "run/apache2.pid";

const MODULES: [&str; 6] = ["mpm_prefork", "authz_core", "status", "dir", "mime", "lua"];
const MODULE_DIRECTORIES: [&str; 4] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/usr/libexec/apache2",
];
const PROGRAMS: [&str; 2] = ["apache2", "httpd"];
const PROGRAM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"];

impl PrivateApache {
    /// Writes the files of a private Apache below `run_directory`, for a port that is free at this moment. On an error
    /// none of them stays.
    pub fn create(run_directory: &Path) -> Result<Self> {
        let program = find_program(&search_path())?;
        let modules = find_modules()?;
        remove_abandoned(&std::env::temp_dir());
        Self::create_in(run_directory, &program, &modules)
    }

    fn create_in(run_directory: &Path, program: &Path, modules: &Path) -> Result<Self> {
        let (root, temporary) = choose_server_root(run_directory)?;
        let written = Self::write_files(program, modules, root.clone(), temporary);
        written.inspect_err(|_| discard(&root))
    }

    fn write_files(program: &Path, modules: &Path, root: PathBuf, temporary: bool) -> Result<Self> {
        let mut apache = Self {
            port: 0,
            command: vec![
                program.display().to_string(),
                "-f".into(),
                root.join("apache2.conf").display().to_string(),
                "-k".into(),
                "start".into(),
            ],
            pid_file: root.join(PID_FILE),
            root,
            temporary,
        };
        for directory in ["mods-enabled", "conf-enabled", "run", "log", "htdocs"] {
            create_directory(&apache.root.join(directory))?;
        }
        write(&apache.root.join("mods-enabled/modules.load"), &load_lines(modules))?;
        write(&apache.root.join("mods-enabled/mpm_prefork.conf"), MPM_CONF)?;
        write(&apache.root.join("mods-enabled/status.conf"), STATUS_CONF)?;
        write(&apache.root.join("app.lua"), APPLICATION)?;
        write(&apache.root.join("htdocs/index.html"), &static_page())?;
        apache.take_free_port()?;
        Ok(apache)
    }

    /// Takes another free port: for when somebody else took the last one before Apache could.
    pub fn take_free_port(&mut self) -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let address = listener.and_then(|listener| listener.local_addr());
        self.port = address.map_err(|error| io_error("find a free port on", "127.0.0.1", &error))?.port();
        write(&self.root.join("apache2.conf"), &main_conf(&self.root, self.port))
    }

    /// What the users ask for: nine slow pages to one static file.
    pub fn urls(&self) -> Vec<String> {
        let url = |path: &str| format!("http://127.0.0.1:{}{path}", self.port);
        let mut urls = vec![url("/app"); 9];
        urls.push(url("/index.html"));
        urls
    }

    /// Removes what lies outside of the run directory.
    pub fn remove(&self) -> Result<()> {
        if !self.temporary {
            return Ok(());
        }
        std::fs::remove_dir_all(&self.root).map_err(|error| io_error("remove", self.root.display(), &error))
    }
}

fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The distribution's place comes first, and is rarely in the path of ordinary users.
    PROGRAM_DIRECTORIES.iter().map(PathBuf::from).chain(std::env::split_paths(&path)).collect()
}

fn find_program(directories: &[PathBuf]) -> Result<PathBuf> {
    let candidates = directories.iter().flat_map(|directory| PROGRAMS.map(|program| directory.join(program)));
    let runnable = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    candidates.into_iter().find(runnable).ok_or_else(|| {
        UserError::cannot_run("there is no apache2 program on this machine")
            .hint("install it without starting a service: sudo apt-get install apache2-bin")
    })
}

fn find_modules() -> Result<PathBuf> {
    let has_all =
        |directory: &Path| MODULES.iter().all(|module| directory.join(format!("mod_{module}.so")).exists());
    MODULE_DIRECTORIES.iter().map(PathBuf::from).find(|directory| has_all(directory)).ok_or_else(|| {
        let wanted: Vec<String> = MODULES.iter().map(|module| format!("mod_{module}")).collect();
        UserError::cannot_run(format!("Apache's modules {} are not all installed", wanted.join(", ")))
            .hint("on Debian they come with: sudo apt-get install apache2-bin")
    })
}

/// The ServerRoot: in the run directory, unless Apache's unprivileged workers could not reach it there (as root they
/// run as another user, and a home directory is closed to it).
fn choose_server_root(run_directory: &Path) -> Result<(PathBuf, bool)> {
    std::fs::create_dir_all(run_directory)
        .map_err(|error| io_error("create", run_directory.display(), &error))?;
    let inside = create_root(&run_directory.join("apache"))?;
    if !running_as_root() || inside.ancestors().all(reachable_by_others) {
        return Ok((inside, false));
    }
    discard(&inside);
    let outside = std::env::temp_dir().join(format!("{TEMPORARY}{}", std::process::id()));
    Ok((create_root(&outside)?, true))
}

/// Creates a directory that was not there, and gives its path without links. On an error it does not stay.
fn create_root(path: &Path) -> Result<PathBuf> {
    std::fs::create_dir(path).map_err(|error| io_error("create", path.display(), &error))?;
    let resolved = path.canonicalize().map_err(|error| io_error("resolve", path.display(), &error));
    resolved.and_then(|root| open_to_others(&root).map(|()| root)).inspect_err(|_| discard(path))
}

/// Removes a ServerRoot that is of no use. That it could not be removed matters less than why that is so.
fn discard(root: &Path) {
    drop(std::fs::remove_dir_all(root));
}

/// Removes the ServerRoots of quickstarts that were killed, when their process and their Apache are gone.
fn remove_abandoned(folder: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let abandoned = |entry: &DirEntry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)?.parse::<u32>().ok());
        // Of the entry itself: a link is not followed.
        let ours = entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
        let apache = std::fs::read_to_string(entry.path().join(PID_FILE)).ok();
        let apache = apache.and_then(|text| text.trim().parse::<u32>().ok());
        ours && pid.is_some_and(|pid| !exists(pid)) && !apache.is_some_and(exists)
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(abandoned).for_each(|entry| discard(&entry.path()));
}

/// Whether there is a process of this id, of whoever it is.
fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn running_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn reachable_by_others(directory: &Path) -> bool {
    std::fs::metadata(directory).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0)
}

fn create_directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| io_error("create", path.display(), &error))?;
    open_to_others(path)
}

/// Whatever the umask says: the workers run as another user when we are root.
fn open_to_others(path: &Path) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| io_error("set the mode of", path.display(), &error))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| io_error("write", path.display(), &error))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
        .map_err(|error| io_error("set the mode of", path.display(), &error))
}

fn load_lines(directory: &Path) -> String {
    let line =
        |module: &str| format!("LoadModule {module}_module \"{}/mod_{module}.so\"\n", directory.display());
    MODULES.iter().map(|module| line(module)).collect()
}

fn main_conf(root: &Path, port: u16) -> String {
    let root = root.display();
    let user = if running_as_root() { user_lines() } else { String::new() };
    format!(
        r#"# A private Apache for webdyno's quickstart, laid out as Debian does. Nothing else uses it.
ServerRoot "{root}"
DefaultRuntimeDir run
PidFile run/apache2.pid
Listen 127.0.0.1:{port}
ServerName 127.0.0.1
{user}Timeout 300
KeepAlive On
MaxKeepAliveRequests 100
KeepAliveTimeout 5
HostnameLookups Off
ErrorLog log/error.log
LogLevel warn
TypesConfig /dev/null
IncludeOptional mods-enabled/*.load
IncludeOptional mods-enabled/*.conf
DocumentRoot "{root}/htdocs"
LuaScope thread
LuaCodeCache forever
LuaMapHandler "^/app$" "{root}/app.lua"
<Directory />
    AllowOverride None
    Require all granted
</Directory>
IncludeOptional conf-enabled/*.conf
"#
    )
}

/// Started by root, Apache's workers become this user; Apache refuses to let them stay root.
fn user_lines() -> String {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let exists = |name: &&str| known.lines().any(|line| line.split(':').next() == Some(*name));
    let user = ["www-data", "apache", "nobody"].into_iter().find(exists).unwrap_or("nobody");
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let group_exists = |name: &&str| groups.lines().any(|line| line.split(':').next() == Some(*name));
    let group = [user, "nogroup", "nobody"].into_iter().find(group_exists).unwrap_or("nogroup");
    format!("User {user}\nGroup {group}\n")
}

const MPM_CONF: &str = "\
# The values of a fresh installation.
<IfModule mpm_prefork_module>
    StartServers            5
    MinSpareServers         5
    MaxSpareServers         10
    MaxRequestWorkers       150
    MaxConnectionsPerChild  0
</IfModule>
";

const STATUS_CONF: &str = "\
<IfModule mod_status.c>
    ExtendedStatus On
    <Location /server-status>
        SetHandler server-status
    </Location>
</IfModule>
";

const APPLICATION: &str = "\
-- A page that waits for its database: about 200 ms, hardly any CPU.
function handle(r)
    r.content_type = 'text/html'
    r.usleep(math.random(190000, 210000))
    r:puts('<!doctype html><title>A slow page</title><h1>A slow page</h1>')
    r:puts('<p>It waited for something, as pages that ask a database do.</p>')
    return apache2.OK
end
";

fn static_page() -> String {
    let line = "<p>A static page of about a kilobyte, served from a file and from memory ever after.</p>\n";
    format!("<!doctype html><title>A static page</title>\n{}", line.repeat(11))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_the_package() {
        let error = find_program(&[PathBuf::from("/nonexistent")]).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.hint.unwrap().contains("apache2-bin"));
    }

    #[test]
    fn the_files_stay_in_the_run_directory_when_workers_can_reach_it() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        open_to_others(place.path()).unwrap();
        let (root, temporary) = choose_server_root(place.path()).unwrap();
        assert_eq!((root, temporary), (place.path().canonicalize().unwrap().join("apache"), false));
    }

    #[test]
    fn a_closed_directory_is_avoided_as_root() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let (root, temporary) = choose_server_root(place.path()).unwrap();
        std::fs::remove_dir(&root).unwrap();
        assert_eq!(temporary, running_as_root(), "only workers that are somebody else are locked out");
        assert_eq!(temporary, !root.starts_with(place.path().canonicalize().unwrap()));
        assert!(!place.path().join("apache").exists(), "an empty directory stays in the run directory");
    }

    #[test]
    fn files_that_cannot_be_written_leave_no_half_root() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        open_to_others(place.path()).unwrap();
        // So long that the root fits into the longest path of Linux (PATH_MAX, 4,096 bytes) and its files do not.
        let mut run_directory = place.path().canonicalize().unwrap();
        while let Some(left) =
            4070_usize.checked_sub(run_directory.as_os_str().len() + 1).filter(|left| *left > 0)
        {
            run_directory.push("r".repeat(left.min(200)));
        }
        let error = PrivateApache::create_in(&run_directory, Path::new("/apache2"), Path::new("/modules"));
        assert!(error.unwrap_err().message.contains("mods-enabled"));
        assert!(run_directory.exists() && !run_directory.join("apache").exists());
    }

    #[test]
    fn what_is_there_already_is_neither_taken_nor_removed() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("apache")).unwrap();
        std::fs::write(place.path().join("apache/notes"), "of somebody else").unwrap();
        let error = choose_server_root(place.path()).unwrap_err();
        assert!(error.message.contains("apache"), "{error}");
        assert!(place.path().join("apache/notes").exists());
    }

    #[test]
    fn only_abandoned_roots_of_our_own_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let dead = ended_process();
        let root = |pid: u32| folder.path().join(format!("{TEMPORARY}{pid}"));
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("file"), "").unwrap();
        let keep = [
            root(std::process::id()),
            folder.path().join("webdyno-quickstart-notes"),
            folder.path().join("x"),
        ];
        keep.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        std::fs::create_dir_all(root(dead).join("run")).unwrap();
        let serving = std::process::id().to_string();
        std::fs::write(root(dead).join(PID_FILE), &serving).unwrap();
        remove_abandoned(folder.path());
        assert!(root(dead).exists(), "its Apache still runs");
        std::fs::write(root(dead).join(PID_FILE), dead.to_string()).unwrap();
        remove_abandoned(folder.path());
        assert!(!root(dead).exists());
        std::os::unix::fs::symlink(elsewhere.path(), root(dead)).unwrap();
        remove_abandoned(folder.path());
        assert!(elsewhere.path().join("file").exists() && root(dead).exists(), "a link is left alone");
        assert!(keep.iter().all(|path| path.exists()));
    }

    /// The id of a process that has ended and was reaped.
    fn ended_process() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn nine_pages_in_ten_are_slow() {
        let apache = PrivateApache {
            root: "/x".into(),
            temporary: false,
            port: 81,
            command: vec![],
            pid_file: "/y".into(),
        };
        let urls = apache.urls();
        assert_eq!(urls.iter().filter(|url| url.ends_with("/app")).count(), 9);
        assert_eq!(urls.len(), 10);
    }
}
