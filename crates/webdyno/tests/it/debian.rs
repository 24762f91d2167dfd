//! A real Apache under a whole /etc of its own, laid out as Debian's packages do it: bound over /etc in a private mount
//! namespace (mount_namespaces(7)), so that the program finds everything at its compiled-in places.
//!
//! Layout: /usr/share/doc/apache2/README.Debian and the files of the package apache2 (2.4, bookworm), on a machine that
//! sysvinit boots. Files have modes, owners and times that no careless writer would give them. Journals are at their
//! usual place, /var/lib/webdyno, which is the server's own as well.
//!
//! What else keeps this machine's processors busy must not decide what a session finds to change: /proc/stat stands
//! still in the namespace, so that nothing is known of them.

use crate::support::{Place, answers_within, can_mount, end, is_alive, skip, wait_until};
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const EXECUTABLE: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";

/// What programs need of /etc besides their own configuration.
const BORROWED: [&str; 7] =
    ["passwd", "group", "nsswitch.conf", "hosts", "ld.so.cache", "os-release", "localtime"];

/// Who owns what an administrator sized by hand: users that exist nowhere, so that nobody gives it to them by accident.
const ODD_OWNER: (u32, u32) = (54_321, 54_322);

/// Workers of every layout before it is tuned.
pub const WORKERS: usize = 10;

/// Where the number of workers is written, and what changing it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// In mods-available/mpm_prefork.conf: a drop-in wins, and a reload suffices.
    DropIn,
    /// In a linked file that is read last: it is edited in place, and a reload suffices.
    InPlace,
    /// As the first, with the ServerLimit to match: a restart is needed.
    Restart,
    /// As the first, with the event MPM.
    Event,
}

/// The server.
pub struct Debian {
    /// Where its /etc, its logs and its documents are, seen from outside.
    folder: PathBuf,
    /// It listens on 127.0.0.1.
    pub port: u16,
    /// Keeps the namespace alive also while no process is in it.
    namespace: Option<File>,
}

/// Whether such a server can run here, which is said where it cannot. On CI the program must be there.
pub fn can_run() -> bool {
    let installed = Path::new(EXECUTABLE).exists() && Path::new(MODULES).exists();
    assert!(installed || std::env::var_os("CI").is_none(), "{EXECUTABLE} is missing");
    let why = match (installed, can_mount()) {
        (false, _) => "/usr/sbin/apache2 is missing; install apache2-bin",
        (_, false) => "nothing can be mounted over /etc here",
        _ => return true,
    };
    skip(why);
    false
}

impl Debian {
    /// Writes the tree and starts the server.
    pub fn start(place: &Place, name: &str, layout: Layout) -> Self {
        let mut debian = Self { folder: place.path(name), port: 0, namespace: None };
        for folder in ["lib", "log", "run", "www"] {
            debian.folder(folder);
        }
        write(&debian.folder.join("www/index.html"), "<!doctype html><title>It works</title>\n", 0o644);
        write(&debian.folder.join("www/app.lua"), APPLICATION, 0o644);
        fs::write(debian.folder.join("stat"), fs::read("/proc/stat").unwrap()).unwrap();
        fs::write(debian.folder.join("comm"), "init\n").unwrap();
        for _ in 0..5 {
            debian.port = crate::ports::free_port();
            debian.write_etc(layout);
            if debian.enter_and_start() && answers_within(debian.port, Duration::from_secs(10)) {
                return debian;
            }
        }
        panic!("Apache does not start: {}", debian.log());
    }

    fn folder(&self, name: &str) {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Starts Apache as `apache2ctl start` does, in a new mount namespace.
    fn enter_and_start(&mut self) -> bool {
        let script = "cd \"$1\" && mount --bind lib /var/lib && mount --bind stat /proc/stat \
             && mount --bind comm /proc/1/comm && mount --bind etc /etc && . /etc/apache2/envvars \
             && /usr/sbin/apache2 -k start; echo $?; read _";
        let log = File::create(self.folder.join("log/start.log")).unwrap();
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut code = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut code).unwrap();
        self.namespace = Some(File::open(format!("/proc/{}/ns/mnt", child.id())).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
        code.trim() == "0"
    }

    /// A program that sees this /etc.
    fn inside(&self, program: &Path) -> Command {
        let namespace = self.namespace.as_ref().unwrap().as_raw_fd();
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/fd/{namespace}", std::process::id())).arg("--").arg(program);
        command.env_remove("WEBDYNO_STATE");
        command
    }

    /// The program, as it runs on this server.
    pub fn webdyno(&self) -> Command {
        self.inside(&assert_cmd::cargo::cargo_bin("webdyno"))
    }

    /// The state directory of the program, seen from outside.
    pub fn state(&self) -> PathBuf {
        self.folder.join("lib/webdyno")
    }

    /// What an administrator types on this server, and what it shows.
    pub fn typed(&self, line: &str) -> String {
        let webdyno = assert_cmd::cargo::cargo_bin("webdyno");
        let folder = webdyno.parent().unwrap().display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let mut command = self.inside(Path::new("sh"));
        let output = command.args(["-c", line]).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// `webdyno rollback`, and what it said.
    pub fn roll_back(&self) -> String {
        let output = self.webdyno().arg("rollback").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{}", self.log());
        text.into_owned()
    }

    /// A page that takes a tenth of a second and hardly any CPU.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/app", self.port)
    }

    /// Its main process now.
    pub fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join("run/apache2.pid")).ok()?.trim().parse().ok()
    }

    /// Everything that runs on this server.
    pub fn processes(&self) -> Vec<u32> {
        let namespace = |path: String| fs::read_link(path).ok();
        let ours = namespace(format!("/proc/self/fd/{}", self.namespace.as_ref().unwrap().as_raw_fd()));
        let all = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        all.filter(|pid| is_alive(*pid) && namespace(format!("/proc/{pid}/ns/mnt")) == ours).collect()
    }

    /// What it wrote to its logs.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join("log").join(name)).unwrap_or_default();
        read("start.log") + &read("error.log")
    }

    /// Everything below its /etc.
    pub fn tree(&self) -> Tree {
        Tree::of(&self.folder.join("etc"))
    }

    /// The SHA-256 of a file that is at this place under its /etc.
    pub fn sha256(&self, path: &str) -> String {
        use sha2::Digest;
        let bytes = fs::read(self.folder.join(path.trim_start_matches('/'))).unwrap();
        sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn write_etc(&self, layout: Layout) {
        let etc = self.folder.join("etc");
        let _ = fs::remove_dir_all(&etc);
        for folder in ["mods", "conf", "sites"] {
            self.folder(&format!("etc/apache2/{folder}-available"));
            self.folder(&format!("etc/apache2/{folder}-enabled"));
        }
        for name in BORROWED {
            let _ = fs::copy(Path::new("/etc").join(name), etc.join(name));
        }
        let folder = self.folder.display();
        let apache = etc.join("apache2");
        let port = self.port;
        write(&apache.join("apache2.conf"), &main_conf(layout), 0o640);
        write(
            &apache.join("ports.conf"),
            &format!("Listen 127.0.0.1:{port}\n\n<IfModule ssl_module>\n\tListen 443\n</IfModule>\n"),
            0o644,
        );
        write(&apache.join("envvars"), &envvars(&folder.to_string()), 0o644);
        write(
            &apache.join("magic"),
            "# Magic data for mod_mime_magic\n0\tstring\t\\037\\213\tapplication/gzip\n",
            0o444,
        );
        self.write_boot_scripts(&etc);
        self.write_modules(&apache, layout);
        write(&apache.join("conf-available/charset.conf"), "#AddDefaultCharset UTF-8\n", 0o644);
        write(
            &apache.join("conf-available/security.conf"),
            "ServerTokens OS\nServerSignature On\nTraceEnable Off\n",
            0o600,
        );
        let site = format!(
            "<VirtualHost *:{port}>\n\tServerAdmin webmaster@localhost\n\tDocumentRoot {folder}/www\n\
             \tErrorLog ${{APACHE_LOG_DIR}}/error.log\n</VirtualHost>\n"
        );
        write(&apache.join("sites-available/000-default.conf"), &site, 0o644);
        let sized = format!("# Sized by hand; ask before you touch it.\nMaxRequestWorkers\t{WORKERS}\t\n");
        write(&apache.join("conf-available/sizing.conf"), &sized, 0o646);
        chown(apache.join("conf-available/sizing.conf"), Some(ODD_OWNER.0), Some(ODD_OWNER.1)).unwrap();
        symlink("conf-available/sizing.conf", apache.join("sizing.conf")).unwrap();
        for (kind, name) in [("conf", "charset"), ("conf", "security"), ("sites", "000-default")] {
            enable(&apache, kind, &format!("{name}.conf"));
        }
        age(&etc);
    }

    /// As update-rc.d leaves them.
    fn write_boot_scripts(&self, etc: &Path) {
        self.folder("etc/init.d");
        write(&etc.join("init.d/apache2"), "#!/bin/sh\n# Provides: apache2\nexec apache2ctl \"$1\"\n", 0o755);
        for (level, prefix) in (0..=6).zip(["K", "K", "S", "S", "S", "S", "K"]) {
            self.folder(&format!("etc/rc{level}.d"));
            symlink("../init.d/apache2", etc.join(format!("rc{level}.d/{prefix}01apache2"))).unwrap();
        }
    }

    fn write_modules(&self, apache: &Path, layout: Layout) {
        let mpm = if layout == Layout::Event { "mpm_event" } else { "mpm_prefork" };
        for module in [mpm, "authz_core", "status", "dir", "mime", "lua"] {
            let text = format!("LoadModule {module}_module {MODULES}/mod_{module}.so\n");
            write(&apache.join(format!("mods-available/{module}.load")), &text, 0o644);
            enable(apache, "mods", &format!("{module}.load"));
        }
        let www = self.folder.join("www");
        let app = format!(
            "LuaScope thread\nLuaCodeCache forever\nLuaMapHandler \"^/app$\" \"{}/app.lua\"\n",
            www.display()
        );
        for (name, text, mode) in [
            ("mime", "<IfModule mod_mime.c>\n\tTypesConfig /dev/null\n</IfModule>\n", 0o644),
            ("status", STATUS, 0o640),
            ("lua", app.as_str(), 0o644),
            (mpm, &mpm_conf(layout), 0o664),
        ] {
            write(&apache.join(format!("mods-available/{name}.conf")), text, mode);
            enable(apache, "mods", &format!("{name}.conf"));
        }
        chown(apache.join(format!("mods-available/{mpm}.conf")), Some(ODD_OWNER.0), Some(0)).unwrap();
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        // A child that was started a moment ago may not have written its id yet.
        wait_until(Duration::from_secs(2), || self.pid().is_some());
        if let Some(pid) = self.pid() {
            end(pid);
        }
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// As a2enmod, a2enconf and a2ensite do it.
fn enable(apache: &Path, kind: &str, file: &str) {
    symlink(format!("../{kind}-available/{file}"), apache.join(format!("{kind}-enabled/{file}"))).unwrap();
}

/// Gives every file a time long ago, each another one, to the nanosecond.
fn age(folder: &Path) {
    for (at, (path, entry)) in (1..).zip(Tree::of(folder).0) {
        if matches!(entry.what, What::File(_)) {
            let past = Duration::new(1_700_000_000 + at, 123_456_789 + at as u32);
            let times = FileTimes::new().set_modified(std::time::UNIX_EPOCH + past);
            File::open(folder.join(path)).unwrap().set_times(times).unwrap();
        }
    }
}

fn main_conf(layout: Layout) -> String {
    let last = if layout == Layout::InPlace { "\nInclude sizing.conf\n" } else { "" };
    format!(
        "# This is the main Apache server configuration file.\n\
         DefaultRuntimeDir ${{APACHE_RUN_DIR}}\nPidFile ${{APACHE_PID_FILE}}\nTimeout 300\nKeepAlive On\n\
         MaxKeepAliveRequests 100\nKeepAliveTimeout 5\nUser ${{APACHE_RUN_USER}}\nGroup ${{APACHE_RUN_GROUP}}\n\
         HostnameLookups Off\nErrorLog ${{APACHE_LOG_DIR}}/error.log\nLogLevel warn\nServerName localhost\n\n\
         IncludeOptional mods-enabled/*.load\nIncludeOptional mods-enabled/*.conf\n\nInclude ports.conf\n\n\
         <Directory />\n\tOptions FollowSymLinks\n\tAllowOverride None\n\tRequire all granted\n</Directory>\n\n\
         AccessFileName .htaccess\n\nIncludeOptional conf-enabled/*.conf\n\nIncludeOptional sites-enabled/*.conf\n{last}"
    )
}

fn envvars(folder: &str) -> String {
    format!(
        "unset HOME\nexport APACHE_RUN_USER=www-data\nexport APACHE_RUN_GROUP=www-data\n\
         export APACHE_PID_FILE={folder}/run/apache2$SUFFIX.pid\nexport APACHE_RUN_DIR={folder}/run\n\
         export APACHE_LOCK_DIR={folder}/run\nexport APACHE_LOG_DIR={folder}/log\nexport LANG=C\n"
    )
}

/// More processes at the start than there may be: once there may be more they come at once, and nobody waits for them.
fn mpm_conf(layout: Layout) -> String {
    if layout == Layout::Event {
        return format!(
            "StartServers 8\nThreadsPerChild 5\nMinSpareThreads 40\nMaxSpareThreads 100\nServerLimit 32\n\
             MaxRequestWorkers {WORKERS}\nMaxConnectionsPerChild 0\n"
        );
    }
    let limit =
        if layout == Layout::Restart { format!("\tServerLimit\t\t{WORKERS}\n") } else { String::new() };
    format!(
        "# prefork MPM\n\n<IfModule mpm_prefork_module>\n\tStartServers\t\t40\n\tMinSpareServers\t\t40\n\
         \tMaxSpareServers\t\t60\n{limit}\tMaxRequestWorkers\t{WORKERS}\n\tMaxConnectionsPerChild\t0\n</IfModule>\n"
    )
}

const STATUS: &str = "\
<IfModule mod_status.c>
\t<Location /server-status>
\t\tSetHandler server-status
\t</Location>
\tExtendedStatus On
</IfModule>
";

/// Each answer takes another time, or all workers would come free at the same moment: when the status page is served.
const APPLICATION: &str = "\
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(math.random(70000, 130000))
    r:puts('done')
    return apache2.OK
end
";

/// All that is below a folder, to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    what: What,
    mode: u32,
    owner: (u32, u32),
    /// Of files: a folder in which a file came and went has another time.
    modified: Option<(i64, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Folder,
    Link(PathBuf),
    File(String),
}

impl Tree {
    /// All below this folder.
    pub fn of(root: &Path) -> Self {
        let mut found = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let entry = Entry::of(&path);
                if entry.what == What::Folder {
                    folders.push(path.clone());
                }
                found.insert(path.strip_prefix(root).unwrap().to_owned(), entry);
            }
        }
        Self(found)
    }

    /// What is another one in the other tree, a line each.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let reported =
            |entry: Option<&Entry>| entry.map_or_else(|| "nothing".into(), |entry| format!("{entry:?}"));
        let paths: std::collections::BTreeSet<&PathBuf> = self.0.keys().chain(other.0.keys()).collect();
        let differs = |path: &&&PathBuf| self.0.get(**path) != other.0.get(**path);
        let line = |path: &PathBuf| {
            format!(
                "{}: {} is now {}",
                path.display(),
                reported(self.0.get(path)),
                reported(other.0.get(path))
            )
        };
        paths.iter().filter(differs).map(|path| line(path)).collect()
    }
}

impl Entry {
    fn of(path: &Path) -> Self {
        let meta = fs::symlink_metadata(path).unwrap();
        let what = if meta.is_dir() {
            What::Folder
        } else if meta.is_symlink() {
            What::Link(fs::read_link(path).unwrap())
        } else {
            What::File(String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
        };
        let is_file = matches!(what, What::File(_));
        let modified = is_file.then(|| (meta.mtime(), meta.mtime_nsec()));
        Self { what, mode: meta.mode(), owner: (meta.uid(), meta.gid()), modified }
    }
}
