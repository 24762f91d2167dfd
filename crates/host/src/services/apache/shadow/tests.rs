//! What is made of trees of files; that a real Apache does with them what it should is tested in tests/it/shadow.rs.

use super::*;
use crate::services::apache::config::{Input, evaluate};
use crate::services::apache::program::Compiled;
use std::fs;

/// Where the instance would be; `S` in what tests expect.
const FOLDER: &str = "/shadow";

/// A tree of files in an empty directory, which stands for `/`: `R` in what tests give and expect.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)], directories: &[&str]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for directory in directories {
            fs::create_dir_all(tree.path(directory)).unwrap();
        }
        for (name, text) in files {
            let path = tree.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("R/", &format!("{}/", tree.root()))).unwrap();
        }
        tree
    }

    fn root(&self) -> String {
        self.0.path().canonicalize().unwrap().to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.root()).join(name)
    }

    /// The instance of `etc/httpd.conf`, its ports from 5001 on; 80 is the one that is asked.
    fn shadow(&self, arguments: &str) -> Result<Shadow> {
        let arguments: Vec<String> =
            arguments.split('|').map(|word| word.replace("R/", &format!("{}/", self.root()))).collect();
        let options = Options::parse(&arguments);
        let control = Control {
            pid: 1,
            start_ticks: 1,
            executable: "/usr/sbin/apache2".into(),
            arguments,
            environment: BTreeMap::from([("RUN".to_owned(), self.path("run").to_str().unwrap().to_owned())]),
            directory: self.root(),
            ..Control::default()
        };
        let main_file = self.path("etc/httpd.conf");
        let evaluation = evaluate(Input {
            main_file: main_file.clone(),
            server_root: self.path("etc"),
            environment: control.environment.clone(),
            version: Some([2, 4, 62]),
            defines: options.defines,
            before: options.before,
            after: options.after,
            keeps_sources: true,
            ..Input::default()
        });
        let compiled = Compiled { pid_file: Some("/run/apache2.pid".into()), ..Compiled::default() };
        let apache = Apache { control, compiled, evaluation, main_file };
        let mut port = 5000;
        render(&apache, 80, Path::new(FOLDER), &mut || {
            port += 1;
            Ok(port)
        })
    }

    fn shown(&self, text: &str) -> String {
        text.replace(&self.root(), "R").replace(FOLDER, "S")
    }

    /// The content of the copies of a file.
    fn copies(&self, shadow: &Shadow, name: &str) -> Vec<String> {
        let original = self.path(name).to_str().unwrap().to_owned();
        let is_copy =
            |path: &Path| shadow.names.iter().any(|(own, of)| *own == path_text(path) && *of == original);
        let copies = shadow.files.iter().filter(|(path, _)| is_copy(path));
        copies.map(|(_, content)| self.shown(std::str::from_utf8(content).unwrap())).collect()
    }

    fn copy(&self, shadow: &Shadow, name: &str) -> String {
        let [copy] = <[String; 1]>::try_from(self.copies(shadow, name)).unwrap();
        copy
    }
}

/// What one line at server scope becomes, on a server that listens on 80, 443 and 8080.
fn check(line: &str, expected: &str) {
    let text = format!("Listen 80\nListen 443\nListen 8080\n{line}\n");
    let directories = ["etc/logs", "run/lock", "var/log"];
    let tree = Tree::new(&[("etc/httpd.conf", &text)], &directories);
    let copy = tree.copy(&tree.shadow("apache2").unwrap(), "etc/httpd.conf");
    let listens = "Listen 127.0.0.1:5001\nListen 127.0.0.1:5002 https\nListen 127.0.0.1:5003\n";
    assert_eq!(copy.strip_prefix(listens).unwrap().trim_end_matches('\n'), expected, "{line}");
}

#[test]
fn each_kind_of_directive_gets_a_place_of_its_own() {
    check("PidFile ${RUN}/a.pid", "PidFile \"S/filesR/run/a.pid\"");
    check(
        "CustomLog logs/a.log \"%h \\\"%r\\\"\" env=!x",
        "CustomLog \"S/filesR/etc/logs/a.log\" \"%h \\\"%r\\\"\" env=!x",
    );
    check("CustomLog \"|/bin/sh -c x\" common", "CustomLog \"S/other.log\" common");
    check("CustomLog ||/none/x common", "CustomLog \"S/missing/none/x\" common");
    check("TransferLog 'logs/a log'", "TransferLog \"S/filesR/etc/logs/a log\"");
    check("ErrorLog syslog:local1", "ErrorLog \"S/other.log\"");
    check("errorlog \"|/bin/cat\"", "errorlog \"S/other.log\"");
    check("ErrorLog /dev/stderr", "ErrorLog \"S/files/dev/stderr\"");
    check("ErrorLog journald x", "ErrorLog \"S/other.log\"");
    check("ScriptSock ${RUN}/cgi", "ScriptSock \"S/filesR/run/cgi\"");
    check("CacheRoot ${RUN}/lock", "CacheRoot \"S/filesR/run/lock\"");
    check("SSLSessionCache shmcb:${RUN}/ssl(512000)", "SSLSessionCache \"shmcb:S/filesR/run/ssl(512000)\"");
    check("SSLStaplingCache \"dbm:${RUN}/staple\"", "SSLStaplingCache \"dbm:S/filesR/run/staple\"");
    check("SSLSessionCache memcache:db:11211", "SSLSessionCache \"memcache:db:11211\"");
    check("Mutex file:${RUN}/lock default", "Mutex \"file:S/filesR/run/lock\" default");
    check("Mutex sem ssl-cache", "Mutex \"sem\" ssl-cache");
    check("php_admin_value error_log logs/php", "php_admin_value error_log \"S/filesR/etc/logs/php\"");
    check("php_admin_value memory_limit 5M", "php_admin_value memory_limit 5M");
    check("HeartbeatAddress 239.0.0.1:27999", "# HeartbeatAddress: not done twice");
    check("NameVirtualHost *:80", "NameVirtualHost *:5001");
    check(
        "<VirtualHost *:80  _default_:443 *:8080>\n</VirtualHost>",
        "<VirtualHost *:5001 _default_:5002 *:5003>\n</VirtualHost>",
    );
    check(
        "ServerName a:443\n<VirtualHost _default_>\n</VirtualHost>",
        "ServerName a:443\n<VirtualHost _default_:5002>\n</VirtualHost>",
    );
    check("DocumentRoot ${RUN}", "DocumentRoot ${RUN}");
    check("LoadModule x modules/x.so", "LoadModule x modules/x.so");
}

#[test]
fn every_line_stays_where_it_was() {
    check(
        "  Timeout \\\n 5\nErrorLog \\\n  logs/x\nTimeout 7",
        "  Timeout \\\n 5\n\nErrorLog \"S/filesR/etc/logs/x\"\nTimeout 7",
    );
    check("<VirtualHost \\\n\\\n *:80>\n</VirtualHost>", "\n\n<VirtualHost *:5001>\n</VirtualHost>");
}

#[test]
fn what_does_not_count_touches_nothing_of_the_original_either() {
    let skipped = "<IfDefine NO>\nListen 90\nInclude none\nCustomLog ${X}/a common\nErrorLog a b\nDefaultRuntimeDir /x\n\
                   <VirtualHost *:80>\n</VirtualHost>\n</IfDefine>";
    let expected = "<IfDefine NO>\n# Listen: not done twice\n# Include: not done twice\nCustomLog \"S/other.log\" common\n\
                    ErrorLog \"S/other.log\"\nDefaultRuntimeDir \"S\"\n<VirtualHost *:5001>\n</VirtualHost>\n</IfDefine>";
    check(skipped, expected);
    let written = "<Macro Host $name>\n<VirtualHost *:80>\nCustomLog logs/$name common\n</VirtualHost>\n</Macro>\nUse Host a";
    let expected = "<Macro Host $name>\n<VirtualHost *:5001>\nCustomLog \"S/other.log\" common\n</VirtualHost>\n</Macro>\nUse Host a";
    check(written, expected);
}

/// As Debian lays it out, with one file that is included twice.
fn debian() -> Tree {
    Tree::new(
        &[
            (
                "etc/httpd.conf",
                "DefaultRuntimeDir ${RUN}\nPidFile ${RUN}/a.pid\nErrorLog R/var/log/error.log\nInclude mods/*.load\n\
                 IncludeOptional none/*.conf\nInclude ports.conf\n# é\nIncludeOptional sites/*.conf\n",
            ),
            ("etc/mods/b.load", "LoadModule b modules/b.so\n"),
            ("etc/mods/a.load", "LoadModule a modules/a.so"),
            ("etc/ports.conf", "Listen 80\n<IfModule ssl_module>\nListen 443\n</IfModule>\n"),
            (
                "etc/sites/a.conf",
                "<VirtualHost *:80>\r\n  Define LOG a\r\n  Include vhost.inc\r\n</VirtualHost>\r\n",
            ),
            ("etc/sites/b.conf", "<VirtualHost *:80>\n  Define LOG b\n  Include vhost.inc\n</VirtualHost>\n"),
            ("etc/vhost.inc", "CustomLog R/var/log/${LOG}.log common\nDocumentRoot www\n"),
        ],
        &["run", "var/log"],
    )
}

#[test]
fn a_debian_tree_is_copied_whole() {
    let tree = debian();
    let shadow = tree.shadow("apache2|-k|start").unwrap();
    assert_eq!(
        tree.copy(&shadow, "etc/httpd.conf"),
        "DefaultRuntimeDir \"S/filesR/run\"\nPidFile \"S/filesR/run/a.pid\"\nErrorLog \"S/filesR/var/log/error.log\"\n\
         Include \"S/conf/0\"\nIncludeOptional \"S/conf/1\"\nInclude \"S/conf/2\"\n# é\nIncludeOptional \"S/conf/3\"\n"
    );
    assert_eq!(
        tree.copy(&shadow, "etc/ports.conf"),
        "Listen 127.0.0.1:5001\n<IfModule ssl_module>\n# Listen: not done twice\n</IfModule>\n"
    );
    assert_eq!(
        tree.copy(&shadow, "etc/sites/a.conf"),
        "<VirtualHost *:5001>\r\n  Define LOG a\r\nInclude \"S/conf/4\"\r\n</VirtualHost>\r\n"
    );
    // One file twice, with another value of its variable each time.
    let logs = ["a", "b"]
        .map(|name| format!("CustomLog \"S/filesR/var/log/{name}.log\" common\nDocumentRoot www\n"));
    let mut copies = tree.copies(&shadow, "etc/vhost.inc");
    copies.sort();
    assert_eq!(copies, logs);
    let names: Vec<_> = shadow.files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    for expected in
        ["conf/0/0000-a.load", "conf/0/0001-b.load", "conf/3/0001-b.conf", "main/httpd.conf", "first.conf"]
    {
        assert!(names.contains(&format!("{FOLDER}/{expected}").as_str()), "{expected} in {names:?}");
    }
    assert_eq!(shadow.port, 5001);
    assert_eq!(tree.shown(shadow.pid_file.to_str().unwrap()), "S/filesR/run/a.pid");
    assert_eq!(tree.shown(shadow.log.to_str().unwrap()), "S/filesR/var/log/error.log");
    let expected = "/usr/sbin/apache2|-f|S/main/httpd.conf|-C|Include \"S/first.conf\"|-c|Include \"S/last.conf\"|-k|start";
    assert_eq!(tree.shown(&shadow.command.join("|")), expected);
    let folders: Vec<_> =
        shadow.folders.iter().map(|folder| tree.shown(folder.path.to_str().unwrap())).collect();
    assert!(folders.is_sorted_by_key(|path| path != "S/run"), "{folders:?}");
    assert!(folders.contains(&"S/filesR/var/log".into()) && !folders.contains(&"S/filesR/etc/none".into()));
    let said = format!("Syntax error on line 2 of {FOLDER}/conf/2/0000-ports.conf: no {FOLDER}/files/var/x");
    assert_eq!(
        tree.shown(&shadow.translated(&said)),
        "Syntax error on line 2 of R/etc/ports.conf: no /var/x"
    );
}

#[test]
fn a_red_hat_tree_and_its_command_line_are_kept() {
    let tree = Tree::new(
        &[
            (
                "etc/httpd.conf",
                "ServerRoot \"R/etc\"\nListen 80\nInclude modules.d/*.conf\nErrorLog \"logs/error_log\"\n\
                 IncludeOptional conf.d/*.conf\n",
            ),
            ("etc/modules.d/00-mpm.conf", "LoadModule mpm_event_module modules/mod_mpm_event.so\n"),
            (
                "etc/conf.d/ssl.conf",
                "Listen 443 https\n<VirtualHost _default_:443>\nTransferLog logs/ssl\n</VirtualHost>\n",
            ),
            ("etc/extra.conf", "ForensicLog logs/f\n"),
        ],
        &["etc/logs"],
    );
    let shadow = tree
        .shadow(
            "httpd|-d|etc|-DFOREGROUND|-X|-C|Include extra.conf|-c|CustomLog R/run/x common|-E|/x|-e|debug",
        )
        .unwrap();
    assert_eq!(
        tree.copy(&shadow, "etc/conf.d/ssl.conf"),
        "Listen 127.0.0.1:5002 https\n<VirtualHost _default_:5002>\nTransferLog \"S/filesR/etc/logs/ssl\"\n</VirtualHost>\n"
    );
    assert_eq!(tree.copy(&shadow, "etc/extra.conf"), "ForensicLog \"S/filesR/etc/logs/f\"\n");
    let expected = "/usr/sbin/apache2|-d|R/etc|-f|S/main/httpd.conf|-D|FOREGROUND|-C|Include \"S/first.conf\"|-C|\
                    Include \"S/conf/0\"|-c|CustomLog \"S/filesR/run/x\" common|-c|Include \"S/last.conf\"|-k|start";
    assert_eq!(tree.shown(&shadow.command.join("|")), expected);
}

#[test]
fn what_is_not_named_gets_a_place_too() {
    let tree = Tree::new(&[("etc/httpd.conf", "Listen 80\nDavLockDB R/var/dav\n")], &[]);
    let shadow = tree.shadow("apache2").unwrap();
    let own = |name: &str| {
        let found = shadow.files.iter().find(|(path, _)| *path == Path::new(FOLDER).join(name)).unwrap();
        tree.shown(std::str::from_utf8(&found.1).unwrap())
    };
    assert_eq!(
        own("first.conf"),
        "PidFile \"S/files/run/apache2.pid\"\nDefaultRuntimeDir \"S/run\"\nErrorLog \"S/error.log\"\n"
    );
    assert!(own("last.conf").contains("<IfModule mod_cgid.c>\nScriptSock \"S/run/cgisock\"\n</IfModule>\n"));
    assert!(!own("last.conf").contains("DavLockDB"));
}

#[test]
fn what_cannot_be_shown_says_why() {
    for (files, expected) in [
        (&[("etc/httpd.conf", "Listen 8080\n")][..], "does not say that apache listens on port 80"),
        (&[("etc/httpd.conf", "Listen 80\nMDomain example.org\n")], "would ask for them, too"),
        (
            &[("etc/httpd.conf", "Listen 80\n<MDomainSet a>\nMDMember b\n</MDomainSet>\n")],
            "would ask for them, too",
        ),
        (
            &[("etc/httpd.conf", "Listen 80\nInclude none.conf\n")],
            "not all files of `Include none.conf` can be read",
        ),
        (&[("etc/httpd.conf", "Listen 80\n<Macro A>\nInclude x\n</Macro>\n")], "a macro includes files"),
        (&[], "cannot read R/etc/httpd.conf"),
    ] {
        let tree = Tree::new(files, &["etc"]);
        let error = tree.shadow("apache2").unwrap_err();
        assert!(tree.shown(&error.message).contains(expected), "{error}");
    }
}
