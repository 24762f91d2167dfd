//! A private site of several programs: Apache in front of PHP-FPM, with a database and a small server that nobody knows.

use crate::apache::server::{MODULES, Server};
use crate::ports::free_port;
use crate::programs::Program;
use crate::tables;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use webdyno_host::os::process::wait_until;

const FPM: &str = "/usr/sbin/php-fpm8.2";
const PATIENCE: Duration = Duration::from_secs(30);

pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(wait_until(PATIENCE, is_so), "{what}");
}

/// All of it in one folder.
pub struct Stack {
    pub apache: Server,
    pub fpm: Program,
    pub db: Program,
    pub db_port: u16,
    pub fpm_port: u16,
    /// Listens on `store.sock`, and is a program that webdyno does not know.
    pub store: Program,
}

impl Stack {
    pub fn is_installed() -> bool {
        [FPM, tables::DATABASE, "/usr/bin/python3"].iter().all(|path| Path::new(path).exists())
    }

    pub fn start() -> Self {
        let apache = Server::debian(
            "event",
            "StartServers 1\nServerLimit 2\nThreadsPerChild 25\nMaxRequestWorkers 50\n",
        );
        let (db_port, fpm_port) = (free_port(), free_port());
        let at = |name: &str| apache.path(name).display().to_string();
        let pages = format!("{}/pages", at(""));
        for (name, text) in pages_of(&apache, db_port) {
            apache.write(&format!("pages/{name}"), &text);
        }
        let port = apache.port;
        let load: String = ["proxy", "proxy_fcgi", "proxy_http"]
            .map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"))
            .concat();
        apache.write("mods-enabled/proxy.load", &load);
        apache.write(
            "conf-enabled/site.conf",
            &format!(
                "ProxyPassMatch ^/a/(.*\\.php)$ \"unix:{}|fcgi://localhost{pages}/$1\"\n\
                 ProxyPassMatch ^/b/(.*\\.php)$ \"fcgi://127.0.0.1:{fpm_port}{pages}/$1\"\n\
                 ProxyPass /self/ http://127.0.0.1:{port}/\n",
                at("a.sock")
            ),
        );
        let pool = |name: &str, listen: &str| {
            format!(
                "[{name}]\nuser = www-data\ngroup = www-data\nlisten = {listen}\nlisten.owner = www-data\n\
                 pm = static\npm.max_children = 3\npm.status_path = /fpm-{name}\n"
            )
        };
        let pools = pool("a", &at("a.sock")) + &pool("b", &format!("127.0.0.1:{fpm_port}"));
        apache.write("fpm.conf", &format!("[global]\nerror_log = {}\n{pools}", at("fpm.log")));
        let fpm = Program::start(Command::new(FPM).args(["-F", "-y", &at("fpm.conf")]));
        let db = database(&apache, db_port);
        let store = format!(
            "import os,socket,time\ns=socket.socket(socket.AF_UNIX)\ns.bind('{0}')\nos.chmod('{0}',0o777)\ns.listen(9)\n\
             kept=[]\nwhile True: kept=(kept+[s.accept()])[-50:]\n",
            at("store.sock")
        );
        let store = Program::start(Command::new("/usr/bin/python3").args(["-c", &store]));
        apache.start();
        let stack = Self { apache, fpm, db, db_port, fpm_port, store };
        until("php-fpm and the database answer", || stack.get("/a/tcp.php?0").ends_with("ok"));
        until("the small server listens", || stack.get("/a/store.php?0").ends_with("ok"));
        stack
    }

    /// The answer to a request, whole.
    pub fn get(&self, path: &str) -> String {
        get(self.apache.port, path)
    }
}

pub fn get(port: u16, path: &str) -> String {
    use std::io::{Read, Write};
    let mut text = String::new();
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return text };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let _ = stream.read_to_string(&mut text);
    text
}

/// Each takes a number of microseconds for which it keeps its connection.
fn pages_of(apache: &Server, db_port: u16) -> Vec<(&'static str, String)> {
    let wait = "usleep((int) $_SERVER['QUERY_STRING']); echo 'ok';";
    let socket = apache.path("db.sock").display().to_string();
    let store = apache.path("store.sock").display().to_string();
    vec![
        ("hold.php", format!("<?php {wait}")),
        ("tcp.php", format!("<?php $c = new mysqli('127.0.0.1', 'root', '', '', {db_port}); {wait}")),
        ("unix.php", format!("<?php $c = new mysqli('localhost', 'root', '', '', 0, '{socket}'); {wait}")),
        ("store.php", format!("<?php $c = stream_socket_client('unix://{store}') or die('no'); {wait}")),
    ]
}

fn database(apache: &Server, port: u16) -> Program {
    let at = |name: &str| apache.path(name).display().to_string();
    tables::lay(&apache.path("db"), "www-data");
    fs::set_permissions(apache.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    Program::start(Command::new(tables::DATABASE).args([
        "--no-defaults".to_owned(),
        "--user=www-data".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--innodb-buffer-pool-size=8M".to_owned(),
        "--innodb-log-file-size=4M".to_owned(),
        "--skip-grant-tables".to_owned(),
        format!("--datadir={}", at("db")),
        format!("--socket={}", at("db.sock")),
        format!("--port={port}"),
        format!("--log-error={}", at("db.log")),
    ]))
}
