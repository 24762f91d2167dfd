//! The files of hosts.

use super::*;
use crate::scenario::Catalogue;

/// A service without files of its own.
pub const NOTHING: &str = "[[services]]\nprogram = \"command\"\ncommand = \"sleep 60\"\n";

/// Tests that make namespaces need root; elsewhere they say so and check nothing.
pub fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {what} needs root");
    }
    root
}

/// A scenario of the services that are given in TOML, with files.
pub fn folder(services: &str, files: &[(&str, &str)]) -> (ScenarioFolder, tempfile::TempDir) {
    let catalogue = tempfile::tempdir().unwrap();
    let text = format!(
        "title = \"A test\"\ngroup = \"healthy\"\nstory = \"None.\"\n{services}\n\
         [load]\nurls = [\"http://server/\"]\nflags = \"-c 1 -d 1s\"\n\
         [[rounds]]\nname = \"one\"\nfinding = \"healthy\"\n\
         binds = [{{ metric = \"load.rate\", at_least = 1 }}]\n"
    );
    for (path, text) in files.iter().copied().chain([("scenario.toml", text.as_str())]) {
        let path = catalogue.path().join("test").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let folder = Catalogue::Directory(catalogue.path().to_owned()).open("test").unwrap();
    (folder, catalogue)
}

/// The files of a host of these services.
pub fn laid_out(services: &str, files: &[(&str, &str)]) -> Result<tempfile::TempDir> {
    let (folder, _catalogue) = folder(services, files);
    let root = tempfile::tempdir().unwrap();
    write_files(&folder, "server", root.path(), &[])?;
    Ok(root)
}

/// Everything below a folder, links not followed, with what each entry is.
fn entries(root: &Path) -> Vec<(PathBuf, std::fs::Metadata)> {
    let all = walkdir::WalkDir::new(root).into_iter().map(|entry| {
        let entry = entry.unwrap();
        (Path::new("/").join(entry.path().strip_prefix(root).unwrap()), entry.metadata().unwrap())
    });
    all.collect()
}

#[test]
fn nothing_secret_of_the_machine_is_on_a_host() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root("who owns the files of a host") {
        return;
    }
    let services = "[[services]]\nprogram = \"apache\"\n[[services]]\nprogram = \"php-fpm\"\n\
         [[services]]\nprogram = \"mariadb\"\n[[services]]\nprogram = \"nginx\"\n";
    let root = laid_out(services, &[]).unwrap();
    for (path, _) in entries(root.path()).iter().filter(|(_, meta)| meta.is_file()) {
        let ours = std::fs::read(root.path().join(path.strip_prefix("/").unwrap())).unwrap();
        let Ok(of_machine) = path.symlink_metadata() else { continue };
        let is_public = of_machine.permissions().mode() & 0o004 != 0;
        let is_same = of_machine.is_file() && std::fs::read(path).unwrap() == ours;
        assert!(is_public || !is_same || ours.is_empty(), "{} is not for everybody", path.display());
    }
    for name in ["shadow", "gshadow", "sudoers", "ssh", "ssl/private", "krb5.keytab"] {
        assert!(!root.path().join("etc").join(name).exists(), "{name}");
    }
    for name in ["passwd", "group"] {
        let text = std::fs::read_to_string(root.path().join("etc").join(name)).unwrap();
        assert!(text.lines().all(|line| line.split(':').nth(1) == Some("x")), "{text}");
        assert!(text.contains("\nmysql:x:"), "{text}");
    }
}

#[test]
fn files_belong_to_whom_the_packages_give_them() {
    use std::os::unix::fs::MetadataExt;
    if !is_root("who owns the files of a host") {
        return;
    }
    let services = "[[services]]\nprogram = \"apache\"\n[[services]]\nprogram = \"php-fpm\"\n\
         [[services]]\nprogram = \"mariadb\"\n[[services]]\nprogram = \"nginx\"\n";
    let root = laid_out(services, &[("server/var/www/html/a/b.html", "b")]).unwrap();
    let users = std::fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    let name = |uid: u32| {
        let of = |line: &&str| line.split(':').nth(2) == Some(&uid.to_string());
        users.lines().find(of).unwrap().split(':').next().unwrap().to_owned()
    };
    for (path, owner, mode) in [
        ("etc/apache2/apache2.conf", "root", 0o644),
        ("etc/apache2/mods-available", "root", 0o755),
        ("root", "root", 0o700),
        ("var/cache/apache2/mod_cache_disk", "www-data", 0o755),
        ("var/lib/mysql", "mysql", 0o755),
        ("var/lib/php/sessions", "root", 0o1733),
        ("var/log/apache2", "root", 0o750),
        ("var/log/apache2/error.log", "root", 0o640),
        ("var/log/mysql", "mysql", 0o2750),
        ("var/log/nginx", "root", 0o755),
        ("var/tmp", "root", 0o1777),
        ("var/www/html/a", "root", 0o755),
        ("var/www/html/a/b.html", "root", 0o644),
    ] {
        let meta = root.path().join(path).symlink_metadata().unwrap();
        assert_eq!((name(meta.uid()).as_str(), meta.mode() & 0o7777), (owner, mode), "{path}");
    }
}

#[test]
fn no_file_of_a_scenario_leaves_its_host() {
    if !is_root("a host's files") {
        return;
    }
    let refused = |path: &str| laid_out(NOTHING, &[(path, "x")]).unwrap_err().message;
    assert_eq!(refused("server/var/run/x"), "/var/run is no folder on a host");
    assert_eq!(
        refused("server/usr/bin/x"),
        "scenario test: server/usr/bin/x is in no folder of the host's own"
    );
    // What stands beside the folders is the lab's.
    let root = laid_out(NOTHING, &[("server/rules.nft", "x"), ("server/srv/x", "x")]).unwrap();
    assert!(root.path().join("srv/x").exists() && !root.path().join("rules.nft").exists());
    // A file where the machine has a link replaces the link, and not what it leads to.
    let before = std::fs::read("/etc/os-release").unwrap();
    let root = laid_out(NOTHING, &[("server/etc/os-release", "x")]).unwrap();
    assert_eq!(std::fs::read(root.path().join("etc/os-release")).unwrap(), b"x");
    assert_eq!(std::fs::read("/etc/os-release").unwrap(), before);
}

#[test]
fn the_clients_host_has_names_alone() {
    let (folder, _catalogue) = folder(NOTHING, &[("client/etc/resolv.conf", "nameserver 10.80.0.2\n")]);
    let root = tempfile::tempdir().unwrap();
    write_files(&folder, "client", root.path(), &[("server".into(), "10.80.0.2".into())]).unwrap();
    let files: Vec<String> = entries(root.path())
        .iter()
        .filter(|(_, meta)| meta.is_file())
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let hosts = std::fs::read_to_string(root.path().join("etc/hosts")).unwrap();
    assert!(hosts.contains("\n10.80.0.2\tserver.test server\n"), "{hosts}");
    assert_eq!(
        std::fs::read_to_string(root.path().join("etc/resolv.conf")).unwrap(),
        "nameserver 10.80.0.2\n"
    );
}

#[test]
fn what_is_enabled_must_be_there() {
    if !is_root("a host's files") {
        return;
    }
    let reported = |more: &str| {
        laid_out(&format!("[[services]]\nprogram = \"apache\"\n{more}\n"), &[]).unwrap_err().message
    };
    assert_eq!(reported("modules = [\"teapot\"]"), "Apache has no mods-available/teapot.load");
    assert_eq!(reported("confs = [\"teapot\"]"), "Apache has no conf-available/teapot.conf");
    assert_eq!(reported("sites = [\"teapot\"]"), "Apache has no sites-available/teapot.conf");
}

/// Debian's values, as its package apache2 has them, read as our own reader of Apache does.
#[test]
fn apaches_values_in_force_are_debians() {
    use webdyno_host::services::apache::config::{Input, evaluate};
    if !is_root("a host's files") {
        return;
    }
    let of_mpm = |mpm: &str| {
        let root = laid_out(&format!("[[services]]\nprogram = \"apache\"\nmpm = \"{mpm}\"\n"), &[]).unwrap();
        let folder = root.path().join("etc/apache2");
        let environment = environment(Command::new("env"), &folder.join("envvars")).into_iter().collect();
        let main_file = folder.join("apache2.conf");
        let evaluation = evaluate(Input { main_file, server_root: folder, environment, ..Input::default() });
        assert!(evaluation.warnings.is_empty(), "{:?}", evaluation.warnings);
        evaluation
    };
    let threads = [
        ("MinSpareThreads", "25"),
        ("MaxSpareThreads", "75"),
        ("ThreadLimit", "64"),
        ("ThreadsPerChild", "25"),
    ];
    let processes = [("MinSpareServers", "5"), ("MaxSpareServers", "10")];
    for (mpm, start, own) in
        [("prefork", "5", &processes[..]), ("worker", "2", &threads), ("event", "2", &threads)]
    {
        let evaluation = of_mpm(mpm);
        assert!(evaluation.has_module(&format!("mpm_{mpm}_module")), "{mpm}");
        let common = [
            ("StartServers", start),
            ("MaxRequestWorkers", "150"),
            ("MaxConnectionsPerChild", "0"),
            ("Timeout", "300"),
            ("KeepAlive", "On"),
            ("MaxKeepAliveRequests", "100"),
            ("KeepAliveTimeout", "5"),
            ("HostnameLookups", "Off"),
            ("LogLevel", "warn"),
            ("User", "www-data"),
            ("PidFile", "/var/run/apache2/apache2.pid"),
            ("ErrorLog", "/var/log/apache2/error.log"),
            ("Listen", "80"),
            ("ExtendedStatus", "On"),
            ("ServerTokens", "OS"),
            ("TraceEnable", "Off"),
            ("DirectoryIndex", "index.html index.cgi index.pl index.php index.xhtml index.htm"),
            ("RequestReadTimeout", "body=10,minrate=500"),
        ];
        for (name, value) in common.iter().chain(own) {
            let found = evaluation.global(&[name]).map(|placed| placed.words().join(" "));
            assert_eq!(found.as_deref(), Some(*value), "{mpm}: {name}");
        }
        assert!(evaluation.global(&["ListenBacklog", "ServerLimit", "SendBufferSize"]).is_none(), "{mpm}");
        // Those that the installation of the package apache2 enables, and what they depend on.
        assert_eq!(evaluation.modules.len(), 19, "{:?}", evaluation.modules);
    }
}
