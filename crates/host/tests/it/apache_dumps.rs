//! What the evaluator makes of configurations against what a real Apache says of them: `-D DUMP_VHOSTS`, `DUMP_MODULES`
//! and `DUMP_INCLUDES` on trees as distributions lay them out and on generated ones, and, of a running server, which
//! sections count for a request.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod generated;
mod sections;
mod snapshot;

use crate::apache::server::{EXECUTABLE, MODULES, apache_is_installed};
use crate::skip::needs;
use generated::Random;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use webdyno_host::services::apache::config::condition::{parse_version, static_symbol};
use webdyno_host::services::apache::config::{Evaluation, Input, Module, evaluate};
use webdyno_host::services::apache::in_force::hosts::{Chain, Host};
use webdyno_host::services::apache::in_force::{Hosts, Site};

/// A tree of files, and how Apache is to read it.
pub struct Tree {
    root: tempfile::TempDir,
    main: &'static str,
    defines: Vec<&'static str>,
    environment: BTreeMap<String, String>,
}

impl Tree {
    fn new(main: &'static str) -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { root, main, defines: vec![], environment: BTreeMap::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("@ROOT@", &self.root.path().to_string_lossy())).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(EXECUTABLE);
        command.arg("-d").arg(self.root.path()).arg("-f").arg(self.path(self.main));
        command.args(self.defines.iter().flat_map(|define| ["-D", define]));
        command.args(arguments).env_clear().envs(&self.environment).output().unwrap()
    }

    pub fn evaluate(&self) -> Evaluation {
        evaluate(Input {
            main_file: self.path(self.main),
            server_root: self.root.path().into(),
            defines: self.defines.iter().map(|&define| define.to_owned()).collect(),
            environment: self.environment.clone(),
            static_modules: compiled_in(),
            version: version(),
            ..Input::default()
        })
    }

    /// Compares files, modules and virtual hosts with what Apache says.
    fn agrees(&self) {
        let output = self.run(&["-t", "-D", "DUMP_INCLUDES", "-D", "DUMP_MODULES", "-D", "DUMP_VHOSTS"]);
        let theirs = String::from_utf8(output.stdout).unwrap();
        let text = || fs::read_to_string(self.path(self.main)).unwrap();
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), text());
        let ours = self.evaluate();
        // The numbers in brackets are of the last include that was seen, not always of the file's own.
        let file = |line: &str| Some(PathBuf::from(line.trim().strip_prefix('(')?.split_once(") ")?.1));
        assert_eq!(ours.files, theirs.lines().filter_map(file).collect::<Vec<_>>(), "{}", text());
        let module = |line: &str| {
            Some(line.trim().rsplit_once(" (")?.0.to_owned()).filter(|name| name.ends_with("_module"))
        };
        let mut modules: Vec<String> = theirs.lines().filter_map(module).collect();
        let mut own: Vec<_> = ours.modules.iter().map(|module| module.symbol.clone()).collect();
        modules.sort();
        own.sort();
        assert_eq!(own, modules);
        assert_eq!(our_hosts(&ours), their_hosts(&theirs), "{}", text());
    }
}

fn compiled_in() -> Vec<Module> {
    let output = Command::new(EXECUTABLE).arg("-l").output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let source = |line: &str| line.trim().ends_with(".c").then(|| line.trim().to_owned());
    let module = |source: String| Module { symbol: static_symbol(&source), source, file: None };
    listed.lines().filter_map(source).map(module).collect()
}

fn version() -> Option<[u32; 3]> {
    let text = String::from_utf8(Command::new(EXECUTABLE).arg("-v").output().unwrap().stdout).unwrap();
    parse_version(text.split('/').nth(1)?.split(' ').next()?)
}

/// The hosts by their addresses, in the words of the dump.
fn our_hosts(evaluation: &Evaluation) -> BTreeMap<String, Vec<String>> {
    let site = Site::of(evaluation);
    let server = evaluation.global(&["ServerName"]).unwrap().words().remove(0);
    let server = server.split(':').next().unwrap();
    site.hosts.chains().map(|chain| (address(chain), lines(&site.hosts, chain, server))).collect()
}

fn address(chain: &Chain) -> String {
    let ip = match chain.ip {
        None => "*".to_owned(),
        Some(ip) if ip.is_ipv6() => format!("[{ip}]"),
        Some(ip) => ip.to_string(),
    };
    let port = if chain.port == 0 { "*".to_owned() } else { chain.port.to_string() };
    format!("{ip}:{port}")
}

fn lines(hosts: &Hosts<'_>, chain: &Chain, server: &str) -> Vec<String> {
    let named = |host: &Host<'_>| {
        let place = match &host.opened.via {
            Some(via) => via.to_string(),
            None => host.opened.place(),
        };
        format!("{} ({place})", host.name.as_deref().unwrap_or(server))
    };
    let all: Vec<&Host<'_>> = chain.hosts.iter().map(|(at, _)| &hosts.list[*at]).collect();
    if let [host] = all.as_slice() {
        return vec![named(host)];
    }
    let mut lines = vec![format!("default {}", named(all[0]))];
    for host in all {
        lines.push(format!("namevhost {}", named(host)));
        let mut aliases: Vec<String> = host.aliases.iter().map(|alias| format!("alias {alias}")).collect();
        aliases.sort_by_key(|alias| alias.contains(['*', '?']));
        lines.extend(aliases);
    }
    lines
}

/// The same of the dump.
fn their_hosts(dump: &str) -> BTreeMap<String, Vec<String>> {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut at = String::new();
    let (_, dump) = dump.split_once("VirtualHost configuration:\n").unwrap_or_default();
    for line in dump.lines().take_while(|line| !line.starts_with("Loaded") && !line.starts_with("Included")) {
        let text = line.trim();
        if !line.starts_with(' ') {
            let Some((address, rest)) = text.split_once(' ') else { continue };
            at = address.to_owned();
            let rest = rest.trim();
            let first = (rest != "is a NameVirtualHost").then(|| of_macro(rest));
            hosts.insert(at.clone(), first.into_iter().collect());
        } else if let Some(lines) = hosts.get_mut(&at) {
            let text = text.strip_prefix("wild ").unwrap_or(text);
            let text = text.strip_prefix("default server ").map_or_else(
                || {
                    text.split_once("namevhost ")
                        .map_or(text.to_owned(), |(_, name)| format!("namevhost {name}"))
                },
                |name| format!("default {name}"),
            );
            lines.push(of_macro(&text));
        }
    }
    hosts
}

/// `a (macro 'x' (defined on ..) used on line 7 of "/f":1)` as we say it.
fn of_macro(text: &str) -> String {
    let Some((name, rest)) = text.split_once(" (macro '") else { return text.to_owned() };
    let (defined, _) = rest.split_once('\'').unwrap();
    let (_, used) = rest.rsplit_once("used on line ").unwrap();
    let (line, file) = used.split_once(" of ").unwrap();
    let file = file.trim_start_matches('"').split('"').next().unwrap();
    format!("{name} (macro {defined}, used at {file}:{line})")
}

fn load(names: &[&str]) -> String {
    let load = |name: &&str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    names.iter().map(load).collect()
}

/// As Debian lays it out, with variables of envvars.
fn debian() -> Tree {
    let mut tree = Tree::new("apache2.conf");
    tree.environment =
        [("APACHE_LOG_DIR", "@ROOT@/log"), ("APACHE_RUN_DIR", "/run"), ("APACHE_PID_FILE", "/run/a.pid")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    tree.write(
        "apache2.conf",
        "DefaultRuntimeDir ${APACHE_RUN_DIR}\nPidFile ${APACHE_PID_FILE}\nServerName main.example\nErrorLog /dev/null\n\
         IncludeOptional mods-enabled/*.load\nIncludeOptional mods-enabled/*.conf\nInclude ports.conf\n\
         <Directory />\n\tOptions FollowSymLinks\n\tAllowOverride None\n</Directory>\nAccessFileName .htaccess\n\
         <FilesMatch \"^\\.ht\">\n\tRequire all denied\n</FilesMatch>\n\
         IncludeOptional conf-enabled/*.conf\nIncludeOptional sites-enabled/*.conf\n",
    );
    tree.write("ports.conf", "Listen 80\n<IfModule ssl_module>\n\tListen 443\n</IfModule>\n<IfModule mod_gnutls.c>\n\tListen 443\n</IfModule>\n");
    for name in ["authz_core", "alias", "dir", "mpm_event", "macro", "headers"] {
        tree.write(&format!("mods-available/{name}.load"), &load(&[name]));
        fs::create_dir_all(tree.path("mods-enabled")).unwrap();
        let link = tree.path(&format!("mods-enabled/{name}.load"));
        std::os::unix::fs::symlink(format!("../mods-available/{name}.load"), link).unwrap();
    }
    tree.write(
        "mods-enabled/dir.conf",
        "<IfModule mod_dir.c>\n\tDirectoryIndex index.html index.php\n</IfModule>\n",
    );
    tree.write("mods-enabled/mpm_event.conf", "StartServers 2\nMaxRequestWorkers 150\n");
    tree.write("conf-enabled/security.conf", "ServerTokens OS\r\nServerSignature On\r\n");
    tree.write("conf-enabled/readme.txt", "NoSuchDirective\n");
    tree.write(
        "sites-enabled/000-default.conf",
        "<VirtualHost *:80>\n\tServerAdmin webmaster@localhost\n\tDocumentRoot /tmp\n\tErrorLog /dev/null\n</VirtualHost>\n",
    );
    tree.write(
        "sites-enabled/sites.conf",
        "<Macro Site $name $port>\n# a comment\n<VirtualHost *:$port>\n  ServerName $name.example\n  ServerAlias www.$name.example *.$name.example\n\
         </VirtualHost>\n</Macro>\nUse Site one 80\nUse Site two 8080\n<VirtualHost 127.0.0.1:80 [::1]:80>\nServerName local\n</VirtualHost>\n",
    );
    tree
}

/// As Red Hat lays it out.
fn red_hat() -> Tree {
    let tree = Tree::new("conf/httpd.conf");
    tree.write(
        "conf/httpd.conf",
        "ServerRoot \"@ROOT@\"\nListen 80\nInclude conf.modules.d/*.conf\nServerName main.example:8000\n<Directory />\n    AllowOverride none\n\
         </Directory>\nDocumentRoot \"/tmp\"\n<IfModule dir_module>\n    DirectoryIndex index.html\n</IfModule>\nErrorLog \"/dev/null\"\n\
         LogLevel warn\n<IfModule mime_magic_module>\n    MIMEMagicFile conf/magic\n</IfModule>\nEnableSendfile on\nIncludeOptional conf.d/*.conf\n",
    );
    tree.write("conf.modules.d/00-base.conf", &load(&["authz_core", "alias", "dir"]));
    tree.write("conf.modules.d/00-mpm.conf", &format!("#{}{}", load(&["mpm_prefork"]), load(&["mpm_event"])));
    tree.write("conf.modules.d/00-proxy.conf", &load(&["proxy", "proxy_fcgi"]));
    tree.write(
        "conf.d/php.conf",
        "<Files \".user.ini\">\n    Require all denied\n</Files>\nAddType text/html .php\nDirectoryIndex index.php\n<IfModule !mod_php5.c>\n  \
         <IfModule !mod_php.c>\n    <FilesMatch \\.(php|phar)$>\n        SetHandler \"proxy:unix:/run/php-fpm/www.sock|fcgi://localhost\"\n    \
         </FilesMatch>\n  </IfModule>\n</IfModule>\n",
    );
    tree.write("conf.d/README", "NoSuchDirective\n");
    // Without a port it takes that of the server's name.
    tree.write("conf.d/vhosts.conf", "<VirtualHost *>\n  ServerName a\n</VirtualHost>\n<VirtualHost _default_:80>\n  ServerName b\n  Include extra/*.inc\n</VirtualHost>\n");
    tree.write("extra/names.inc", "ServerAlias b2 \"b3\" b?\n");
    tree
}

#[test]
fn trees_of_distributions_are_read_as_apache_reads_them() {
    needs!(apache_is_installed());
    let debian = debian();
    debian.agrees();
    let warnings = debian.evaluate().warnings;
    // AddType is of a module that is not loaded there.
    assert_eq!(warnings, Vec::<String>::new());
    let red_hat = red_hat();
    red_hat.write("conf.modules.d/01-mime.conf", &load(&["mime"]));
    red_hat.write("conf/mime.types", "text/html html\n");
    red_hat.agrees();
    assert_eq!(red_hat.evaluate().warnings, Vec::<String>::new());
}

#[test]
fn generated_configurations_are_read_as_apache_reads_them() {
    needs!(apache_is_installed());
    for seed in 0..generated::COUNT {
        let mut tree = Tree::new("httpd.conf");
        let mut random = Random::new(seed);
        tree.defines = if random.one_in(2) { vec!["GIVEN"] } else { vec![] };
        generated::write(&tree, &mut random);
        println!("seed {seed}");
        tree.agrees();
    }
}
