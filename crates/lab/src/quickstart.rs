//! The private Apache of the quickstart: the distribution's program with its out-of-the-box prefork values, in front of
//! a small slow application of its own (mod_lua), in a directory of its own, on loopback, without root.
//!
//! Values: Debian's mods-available/mpm_prefork.conf (StartServers 5, MinSpareServers 5, MaxSpareServers 10,
//! MaxRequestWorkers 150, MaxConnectionsPerChild 0). The application waits about 200 ms, as pages that wait for a
//! database do, and uses hardly any CPU. This module writes files only; starting is the agent's, so that it is journaled.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
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
    /// Writes the files of a private Apache below `run_directory`, for a port that is free at this moment.
    pub fn create(run_directory: &Path) -> Result<Self> {
        let program = find_program(&search_path())?;
        let modules = find_modules()?;
        let (root, temporary) = choose_root(run_directory)?;
        let mut apache = Self {
            port: 0,
            command: vec![
                program.display().to_string(),
                "-f".into(),
                root.join("apache2.conf").display().to_string(),
                "-k".into(),
                "start".into(),
            ],
            pid_file: root.join("run/apache2.pid"),
            root,
            temporary,
        };
        for directory in ["mods-enabled", "conf-enabled", "run", "log", "htdocs"] {
            create_directory(&apache.root.join(directory))?;
        }
        write(&apache.root.join("mods-enabled/modules.load"), &load_lines(&modules))?;
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
fn choose_root(run_directory: &Path) -> Result<(PathBuf, bool)> {
    let inside = run_directory.join("apache");
    create_directory(&inside)?;
    let inside = inside.canonicalize().map_err(|error| io_error("resolve", inside.display(), &error))?;
    if !running_as_root() || inside.ancestors().all(reachable_by_others) {
        return Ok((inside, false));
    }
    let outside = std::env::temp_dir().join(format!("webdyno-quickstart-{}", std::process::id()));
    std::fs::create_dir(&outside).map_err(|error| io_error("create", outside.display(), &error))?;
    open_to_others(&outside)?;
    Ok((outside, true))
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
        let (root, temporary) = choose_root(place.path()).unwrap();
        assert_eq!((root, temporary), (place.path().canonicalize().unwrap().join("apache"), false));
    }

    #[test]
    fn a_closed_directory_is_avoided_as_root() {
        if !running_as_root() {
            return;
        }
        let place = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let (root, temporary) = choose_root(place.path()).unwrap();
        std::fs::remove_dir(&root).unwrap();
        assert!(temporary && root.starts_with(std::env::temp_dir()));
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
