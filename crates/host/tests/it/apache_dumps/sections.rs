//! Which sections count for a request, asked of a running server: each section adds its number to a header of the answer,
//! and each `.htaccess` its directory, so that the header tells the order in which they came together. Whether a
//! directory is listed tells Options.

use super::{Random, Tree, load};
use crate::apache::server::{EXECUTABLE, apache_is_installed};
use crate::programs::Program;
use crate::skip::needs;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;
use webdyno_host::os::process::wait_until;
use webdyno_host::services::apache::in_force::{Request, Site, in_force};

/// How many servers are tried.
const SERVERS: u64 = 4;

const DIRECTORIES: [&str; 11] = [
    "Directory /",
    "Directory @ROOT@",
    "Directory \"@ROOT@/www\"",
    "Directory @ROOT@/www/a/",
    "Directory @ROOT@/www/a/../a/c",
    "Directory @ROOT@/www/*",
    "Directory @ROOT@/www/[ab]",
    "Directory @ROOT@/*/a",
    "Directory ~ ^@ROOT@/www/(a|b)",
    "DirectoryMatch /c$",
    "DirectoryMatch www/.*x",
];
const FILES: [&str; 5] =
    ["Files x.html", "Files *.txt", "Files ~ \\.(html|txt)$", "FilesMatch ^x", "Files ?.html"];
const LOCATIONS: [&str; 10] = [
    "Location /",
    "Location /a",
    "Location /a/",
    "Location /a/c",
    "Location /*/c",
    "Location /x*",
    "Location ~ ^/a",
    "LocationMatch x\\.html$",
    "LocationMatch ^/(?<part>a|b)/",
    "Location /al",
];
const PATHS: [&str; 12] = [
    "/",
    "/a/",
    "/a/c/",
    "/b/",
    "/x.html",
    "/y.txt",
    "/a/x.html",
    "/a/c/y.txt",
    "/b/x.html",
    "/al/x.html",
    "/al/c/",
    "/al",
];
const HOSTS: [&str; 3] = ["one", "x.two", "none"];

/// A server in the foreground; it ends with the test.
struct Running {
    _program: Program,
    port: u16,
}

impl Running {
    fn start(tree: &Tree, port: u16) -> Self {
        let mut command = Command::new(EXECUTABLE);
        command.arg("-d").arg(tree.path("")).arg("-f").arg(tree.path("httpd.conf")).arg("-DFOREGROUND");
        let running = Self { _program: Program::start(&mut command), port };
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let log = || fs::read_to_string(tree.path("error.log"));
        assert!(wait_until(Duration::from_secs(20), answers), "{:?}", log());
        running
    }

    /// The status and the sections of an answer.
    fn request(&self, host: &str, path: &str) -> (u16, Vec<String>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let header = answer.lines().find_map(|line| line.strip_prefix("X-Sections: "));
        let sections = header.map(|value| value.split(", ").map(str::to_owned).collect());
        (status, sections.unwrap_or_default())
    }
}

/// Sections of the server or of a host.
fn sections(random: &mut Random, number: &mut usize) -> String {
    let mut out = String::new();
    let mut mark = || {
        *number += 1;
        format!("Header always append X-Sections s{number}\n")
    };
    if random.one_in(2) {
        out += &mark();
    }
    for _ in 0..3 + random.below(8) {
        let (open, inside) = match random.below(4) {
            0 | 1 => (random.pick(&DIRECTORIES), true),
            2 => (random.pick(&FILES), false),
            _ => (random.pick(&LOCATIONS), false),
        };
        let end = open.split(' ').next().unwrap();
        out += &format!("<{open}>\n{}", mark());
        if inside {
            let options = [
                "",
                "Options Indexes\n",
                "Options +Indexes\n",
                "Options -Indexes\n",
                "Options None\n",
                "Options +FollowSymLinks\n",
                "Options FollowSymLinks MultiViews\n",
            ];
            out += random.pick(&options);
            if !open.contains('~') && !open.contains("Match") {
                out += random.pick(&[
                    "",
                    "AllowOverride None\n",
                    "AllowOverride All\n",
                    "AllowOverride FileInfo\n",
                ]);
            }
            if random.one_in(3) {
                let files = random.pick(&FILES);
                let end = files.split(' ').next().unwrap();
                out += &format!("<{files}>\n{}</{end}>\n", mark());
            }
        }
        out += &format!("</{end}>\n");
    }
    out
}

fn configuration(random: &mut Random, port: u16) -> String {
    let user = if rustix::process::geteuid().is_root() { "User www-data\nGroup www-data\n" } else { "" };
    let mut number = 0;
    let mut out = load(&["mpm_event", "authz_core", "dir", "alias", "headers", "autoindex"]);
    out += &format!(
        "Listen 127.0.0.1:{port}\nServerName main\nErrorLog @ROOT@/error.log\nPidFile @ROOT@/pid\nDefaultRuntimeDir @ROOT@\n{user}\
         StartServers 1\nMinSpareThreads 1\nMaxSpareThreads 25\nThreadsPerChild 25\nMaxRequestWorkers 25\n\
         DocumentRoot @ROOT@/www\nAlias /al @ROOT@/www/a\n<Directory />\nAllowOverride None\n</Directory>\n"
    );
    out += &sections(random, &mut number);
    for (name, alias) in [("one", "uno"), ("two", "*.two")] {
        let inside = sections(random, &mut number);
        out += &format!(
            "<VirtualHost *:{port}>\nServerName {name}\nServerAlias {alias}\n{inside}</VirtualHost>\n"
        );
    }
    out + &sections(random, &mut number)
}

fn files(tree: &Tree) {
    fs::set_permissions(tree.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for directory in ["www/", "www/a/", "www/a/c/", "www/b/"] {
        for name in ["x.html", "y.txt"] {
            tree.write(&format!("{directory}{name}"), "x");
        }
        let marked = format!("Header always append X-Sections ht:@ROOT@/{directory}\n");
        tree.write(&format!("{directory}.htaccess"), &marked);
    }
}

#[test]
fn sections_count_for_requests_as_in_a_running_apache() {
    needs!(apache_is_installed());
    for seed in 0..SERVERS {
        let tree = Tree::new("httpd.conf");
        files(&tree);
        let port = crate::ports::free_port();
        let text = configuration(&mut Random::new(seed), port);
        tree.write("httpd.conf", &text);
        let running = Running::start(&tree, port);
        let evaluation = tree.evaluate();
        let site = Site::of(&evaluation);
        for (host, path) in HOSTS.iter().flat_map(|host| PATHS.iter().map(move |path| (*host, *path))) {
            let (status, sections) = running.request(host, path);
            let request = Request { address: Some([127, 0, 0, 1].into()), port, host: Some(host), path };
            let ours = in_force(&site, &request);
            let all = ours.all(&["Header"]);
            let marks: Vec<String> = all.iter().map(|placed| placed.words()[3].clone()).collect();
            let (lookups, theirs): (Vec<String>, Vec<String>) =
                sections.into_iter().partition(|mark| mark.starts_with("ht:"));
            let at = format!("seed {seed}: {host}{path}\n{text}");
            // A directory that is asked for without a slash is a file to who does not look at the disk.
            if path != "/al" {
                assert_eq!(marks, theirs, "{at}");
                let own: Vec<String> =
                    ours.htaccess_directories().iter().map(|d| format!("ht:{d}")).collect();
                let under = format!("ht:{}", tree.path("www").display());
                let own: Vec<String> = own.into_iter().filter(|mark| mark.starts_with(&under)).collect();
                assert_eq!(own, lookups, "{at}");
            }
            if path.ends_with('/') {
                let options = ours.value("Options").unwrap().text;
                assert_eq!(status == 200, options.contains("Indexes"), "{status} {options} {at}");
            }
        }
    }
}
