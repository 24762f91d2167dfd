//! Secrets of the servers that are observed stay where they are: nothing of configurations, arguments, URLs, cookies, logs
//! and statements that only their owners should know is in anything that is written or shown.

use crate::ports::free_port;
use crate::programs::Program;
use crate::skip::skip;
use crate::support::{Apache, Place, run, turn, wait_until};
use crate::tables::{self, DATABASE};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What every planted secret has in it.
const MARK: &str = "s3kr1t";
const MODULES: &str = "/usr/lib/apache2/modules";
const FPM: &str = "/usr/sbin/php-fpm8.2";

/// Directives that hold secrets, of modules that are there.
fn planted_configuration(fpm_socket: &Path) -> String {
    let modules = [
        "env",
        "headers",
        "rewrite",
        "alias",
        "proxy",
        "proxy_http",
        "proxy_fcgi",
        "dbd",
        "ldap",
        "authnz_ldap",
        "auth_basic",
        "authn_core",
        "authn_dbd",
        "authn_file",
        "authz_user",
        "log_config",
    ];
    let load = |name: &&str| {
        let file = format!("{MODULES}/mod_{name}.so");
        Path::new(&file)
            .exists()
            .then(|| format!("<IfModule !{name}_module>\nLoadModule {name}_module {file}\n</IfModule>\n"))
    };
    let loads: String = modules.iter().filter_map(load).collect();
    format!(
        "{loads}SetEnv API_TOKEN {MARK}-setenv\nDefine DB_PASSWORD {MARK}-define\nRequestHeader set Authorization \"Bearer {MARK}-header\"\n\
         ProxyPass /up http://user:{MARK}-proxy@127.0.0.1:9/ keepalive=on\n\
         ProxyPassMatch ^/(.*\\.php)$ unix:{}|fcgi://localhost/srv\n\
         <IfModule dbd_module>\nDBDParams \"host=127.0.0.1 user=app pass={MARK}-dbd\"\n</IfModule>\n\
         <Location /ldap>\n<IfModule authnz_ldap_module>\nAuthType Basic\nAuthName x\nAuthBasicProvider ldap\nAuthLDAPURL ldap://127.0.0.1/o=x\nAuthLDAPBindDN cn=x\n\
         AuthLDAPBindPassword {MARK}-ldap\nRequire valid-user\n</IfModule>\n</Location>\n\
         RewriteEngine On\nRewriteRule ^/go$ /index.html?token={MARK}-rewrite [R]\n\
         LogFormat \"%h %r %{{Cookie}}i {MARK}-format\" mine\nCustomLog log/mine.log mine\nErrorLog \"|/bin/cat {MARK}-pipe >/dev/null\"\n\
         <VirtualHost *>\nServerName inner.example.org\nSetEnv INNER {MARK}-inner\n</VirtualHost>\n",
        fpm_socket.display()
    )
}

fn start_fpm(folder: &Path) -> Option<Program> {
    if !Path::new(FPM).exists() || !rustix::process::geteuid().is_root() {
        skip("PHP-FPM is missing, or needs root");
        return None;
    }
    std::fs::create_dir(folder).unwrap();
    let place = folder.display();
    let text = format!(
        "[global]\nerror_log = {place}/error.log\n[www]\nuser = www-data\ngroup = www-data\nlisten = {place}/www.sock\n\
         listen.mode = 0666\npm = static\npm.max_children = 2\npm.status_path = /status\nenv[DB_PASSWORD] = {MARK}-fpmenv\n\
         php_admin_value[mysqli.default_pw] = {MARK}-fpmini\naccess.log = {place}/access.log\nslowlog = {place}/slow.log\n\
         request_slowlog_timeout = 1s\n"
    );
    std::fs::write(folder.join("fpm.conf"), text).unwrap();
    let fpm = Program::start(Command::new(FPM).args(["-F", "-y"]).arg(folder.join("fpm.conf")));
    assert!(wait_until(Duration::from_secs(30), || folder.join("www.sock").exists()));
    Some(fpm)
}

fn start_database(folder: &Path) -> Option<Program> {
    if !Path::new(DATABASE).exists() || !rustix::process::geteuid().is_root() {
        skip("MariaDB is missing, or needs root");
        return None;
    }
    std::fs::create_dir(folder).unwrap();
    let place = folder.display();
    tables::lay(&folder.join("data"), "root");
    let text = format!(
        "[client]\nsocket={place}/db.sock\nuser=root\npassword={MARK}-client\n[mysqld]\ndatadir={place}/data\nsocket={place}/db.sock\npid-file={place}/pid\nlog-error={place}/error.log\n\
         port={}\nbind-address=127.0.0.1\nuser=root\nperformance-schema=ON\nslow-query-log=ON\nslow-query-log-file={place}/slow.log\n\
         long-query-time=0\ninit-connect=\"SET @a='{MARK}-initconnect'\"\nreport-password={MARK}-report\ninnodb-buffer-pool-size=16M\n",
        free_port()
    );
    std::fs::write(folder.join("my.cnf"), text).unwrap();
    let mut command = Command::new(DATABASE);
    command.arg(format!("--defaults-file={place}/my.cnf")).arg(format!("--report-user={MARK}-argument"));
    let database = Program::start(&mut command);
    let asks = || {
        let query = format!(
            "SELECT '{MARK}-literal', SLEEP(0.01); SELECT COUNT(*) FROM mysql.user WHERE User = '{MARK}-where'"
        );
        let socket = format!("--socket={place}/db.sock");
        let ended =
            Command::new("mariadb").args(["--no-defaults", "-u", "root", &socket, "-e", &query]).output();
        ended.is_ok_and(|output| output.status.success())
    };
    assert!(wait_until(Duration::from_secs(60), asks));
    Some(database)
}

/// Requests with secrets in them, some of which fail.
fn visit(port: u16) {
    for path in ["/index.html?token=", "/absent?password=", "/x.php?session=", "/ldap?key=", "/up/"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let request = format!(
            "GET {path}{MARK}-url HTTP/1.0\r\nHost: h\r\nCookie: sid={MARK}-cookie\r\nAuthorization: Basic {MARK}-basic\r\n\
             User-Agent: {MARK}-agent\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        // The answer is of no interest, and may not come.
        let _ = stream.read_to_end(&mut vec![]);
    }
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The lines of a text that have a secret in them.
fn leaks(name: &str, text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let around = |(at, _): (usize, &str)| {
        let from = text[..at].char_indices().rev().nth(120).map_or(0, |(at, _)| at);
        format!("{name}: ..{}", text[from..].chars().take(200).collect::<String>())
    };
    text.match_indices(MARK).map(around).collect()
}

#[test]
fn no_secret_of_the_servers_is_written_or_shown() {
    // Without a port it asks all servers of the machine: to other tests that would be somebody else's requests.
    let _turn = turn();
    let place = Place::new();
    let socket = place.path("fpm/www.sock");
    let fpm = start_fpm(&place.path("fpm"));
    let database = start_database(&place.path("db"));
    let apache = Apache::files(&place.path("server"));
    std::fs::write(apache.files.root.join("conf-enabled/planted.conf"), planted_configuration(&socket))
        .unwrap();
    let apache = apache.started();
    // Somebody else's process with a secret among its arguments that keeps a processor busy for a while.
    let script =
        format!("end=$((SECONDS+20)); while [ $SECONDS -lt $end ]; do :; done # --password={MARK}-process");
    let foreign = Program::start(
        Command::new("bash")
            .args(["-c", &script, &format!("{MARK}-name")])
            .env("TOKEN", format!("{MARK}-environment")),
    );
    visit(apache.files.port);
    let port = apache.files.port.to_string();
    let leaks_of = |arguments: &[&str]| {
        visit(apache.files.port);
        let ended = run(place.webdyno().args(arguments)).with_code(0);
        let stdout = leaks(&format!("stdout of {arguments:?}"), ended.stdout.as_bytes());
        [stdout, leaks(&format!("stderr of {arguments:?}"), ended.stderr.as_bytes())].concat()
    };
    let mut found = leaks_of(&["observe", "--once", "--json", "-", "--port", &port]);
    found.extend(leaks_of(&["observe", "--once"]));
    // Each in a directory of its own.
    let for_a_while = [
        &["observe", "--for", "2s", "-v", "--port", &port][..],
        &["observe", "--for", "2s", "-v", "--ring", "1m", "--out", "webdyno-runs/ring"],
        &["diagnose", "--for", "2s", "-v", "--port", &port],
    ];
    found.extend(std::thread::scope(|scope| {
        let running = for_a_while.map(|arguments| scope.spawn(move || leaks_of(arguments)));
        running.map(|observer| observer.join().unwrap()).concat()
    }));
    let written = [files(&place.path("webdyno-runs")), files(&place.path("state"))].concat();
    assert!(written.len() >= 9, "{written:?}");
    for path in written {
        found.extend(leaks(&path.display().to_string(), &std::fs::read(&path).unwrap()));
    }
    drop((fpm, database, foreign));
    assert!(found.is_empty(), "{} leaks:\n{}", found.len(), found[..found.len().min(12)].join("\n"));
}
