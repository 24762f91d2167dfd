//! What evaluation makes of trees of files; that it agrees with a real Apache is tested in tests/it/apache.rs.

use super::{Evaluation, Input, Module, evaluate};
use std::fs;
use std::path::Path;

/// Writes files, `httpd.conf` first among them, and evaluates them.
fn read(root: &Path, files: &[(&str, &str)], defines: &[&str]) -> Evaluation {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    evaluate(Input {
        main_file: root.join("httpd.conf"),
        server_root: root.into(),
        defines: defines.iter().map(|&define| define.to_owned()).collect(),
        version: Some([2, 4, 62]),
        static_modules: vec![Module { symbol: "core_module".into(), source: "core.c".into(), file: None }],
        ..Input::default()
    })
}

/// The value of Timeout at server scope, and how many warnings there are.
fn check(files: &[(&str, &str)], defines: &[&str], timeout: Option<&str>, warnings: usize) {
    let root = tempfile::tempdir().unwrap();
    let evaluation = read(root.path(), files, defines);
    assert_eq!(evaluation.global(&["Timeout"]).map(|placed| placed.arguments.as_str()), timeout, "{files:?}");
    assert_eq!(evaluation.warnings.len(), warnings, "{:?}", evaluation.warnings);
}

fn one(text: &str, defines: &[&str], timeout: Option<&str>, warnings: usize) {
    check(&[("httpd.conf", text)], defines, timeout, warnings);
}

#[test]
fn the_last_directive_at_server_scope_wins() {
    one("Timeout 1\nTIMEOUT 2\n", &[], Some("2"), 0);
    one("Timeout 1\n<VirtualHost *>\nTimeout 2\n</VirtualHost>\n", &[], Some("1"), 0);
    one("<Directory />\n<If true>\nTimeout 2\n</If>\n</Directory>\nTimeout 3", &[], Some("3"), 0);
    one("# Timeout 1\n", &[], None, 0);
}

#[test]
fn conditions_are_decided_where_they_stand() {
    one("<IfDefine A>\nTimeout 1\n</IfDefine>\n", &[], None, 0);
    one("<IfDefine A>\nTimeout 1\n</IfDefine>\n", &["A"], Some("1"), 0);
    one(
        "<IfDefine !A>\nTimeout 1\n</IfDefine>\nDefine A\n<IfDefine !A>\nTimeout 2\n</IfDefine>\n",
        &[],
        Some("1"),
        0,
    );
    one("<IfModule core.c>\nTimeout 1\n</IfModule>\n", &[], Some("1"), 0);
    one("<IfModule x_module>\nTimeout 1\n</IfModule>\nLoadModule x_module m/mod_x.so\n", &[], None, 0);
    one("LoadModule x_module m/mod_x.so\n<ifmodule mod_x.c>\nTimeout 1\n</ifmodule>\n", &[], Some("1"), 0);
    one("<IfDefine A>\n<IfModule core.c>\n</IfModule>\nTimeout 1\n</IfDefine>\nTimeout 2", &[], Some("2"), 0);
    one("<IfVersion ~ ^2>\nTimeout 1\n</IfVersion>\n", &[], Some("1"), 0);
    one("<IfVersion ~ (?!2)>\nTimeout 1\n</IfVersion>\n", &[], Some("1"), 1);
    one("<IfDirective KeepAlive>\nTimeout 1\n</IfDirective>\n", &[], Some("1"), 0);
    one("<IfDirective !SSLEngine>\nTimeout 1\n</IfDirective>\n", &[], Some("1"), 0);
    one(
        "<IfSection VirtualHost>\nTimeout 1\n</IfSection>\n<IfSection Proxy>\nTimeout 2\n</IfSection>\n",
        &[],
        Some("1"),
        0,
    );
    one("<IfDirective Foo>\nTimeout 1\n</IfDirective>\n", &[], Some("1"), 1);
}

#[test]
fn variables_have_the_value_of_their_moment() {
    one("Define T 1\nTimeout ${T}\nDefine T 2\n", &[], Some("1"), 0);
    one("Define A \"Timeout 5\"\n${A}\n", &[], Some("5"), 0);
    one("Timeout ${NONE}\n", &[], Some("${NONE}"), 1);
    one("Define A 1\nUnDefine A\n<IfDefine A>\nTimeout 1\n</IfDefine>\n", &[], None, 0);
}

#[test]
fn what_apache_would_refuse_is_a_warning_and_the_rest_is_read() {
    one("</IfModule>\nTimeout 1\n", &[], Some("1"), 1);
    one("<VirtualHost *>\nTimeout 1\n", &[], None, 1);
    one("<Directory />\n</VirtualHost>\nTimeout 1\n", &[], Some("1"), 1);
    one("Include none.conf\nTimeout 1\n", &[], Some("1"), 1);
    one("Include none/*.conf\nTimeout 1\n", &[], Some("1"), 1);
    one("<Macro M $x>\nTimeout 5\n</Macro>\nTimeout 1\n", &[], Some("1"), 1);
}

#[test]
fn circles_and_depths_end() {
    check(&[("httpd.conf", "Timeout 1\nInclude httpd.conf\nTimeout 2\n")], &[], Some("2"), 1);
    check(
        &[("httpd.conf", "Include a\n"), ("a", "Include b\nTimeout 1"), ("b", "Include a\n")],
        &[],
        Some("1"),
        1,
    );
    // A link to the main file has another name each time: the bound on depth ends it.
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    std::os::unix::fs::symlink(root.path(), root.path().join("d/d")).unwrap();
    let evaluation =
        read(root.path(), &[("httpd.conf", "Define P ${P}/d/d\nInclude .${P}/httpd.conf\nTimeout 1\n")], &[]);
    assert_eq!(evaluation.global(&["Timeout"]).unwrap().arguments, "1");
    assert!(evaluation.files.len() <= 64 && !evaluation.warnings.is_empty());
}

#[test]
fn a_red_hat_tree_is_read_in_its_order() {
    let main = "ServerRoot \"ROOT\"\nListen 80\nInclude conf.modules.d/*.conf\nUser apache\n<Directory />\n  AllowOverride none\n\
                </Directory>\nErrorLog \"logs/error_log\"\n<IfModule log_config_module>\n  LogLevel warn\n</IfModule>\nTimeout 60\n\
                IncludeOptional conf.d/*.conf\n";
    let root = tempfile::tempdir().unwrap();
    let main = main.replace("ROOT", &root.path().to_string_lossy());
    let files = [
        ("httpd.conf", main.as_str()),
        ("conf.modules.d/00-base.conf", "LoadModule log_config_module modules/mod_log_config.so\n"),
        (
            "conf.modules.d/00-mpm.conf",
            "# LoadModule mpm_event_module x\nLoadModule mpm_prefork_module modules/mod_mpm_prefork.so\n",
        ),
        ("conf.d/README", "Timeout 1\n"),
        (
            "conf.d/tune.conf",
            "Timeout 5\r\n<IfModule prefork.c>\r\nMaxRequestWorkers  300\r\n</IfModule>\r\n",
        ),
    ];
    let evaluation = read(root.path(), &files, &[]);
    assert_eq!(evaluation.warnings, Vec::<String>::new());
    let names: Vec<_> = evaluation.modules.iter().map(|module| module.symbol.as_str()).collect();
    assert_eq!(names, ["core_module", "log_config_module", "mpm_prefork_module"]);
    let workers = evaluation.global(&["MaxClients", "MaxRequestWorkers"]).unwrap();
    assert_eq!((workers.arguments.as_str(), workers.line), ("300", 3));
    assert_eq!(workers.place(), format!("{}:3", root.path().join("conf.d/tune.conf").display()));
    assert_eq!(evaluation.global(&["Timeout"]).unwrap().arguments, "5");
    assert_eq!(evaluation.path("logs/../run"), root.path().join("run"));
}

#[test]
fn an_overlay_is_read_instead_of_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let real = root.path().canonicalize().unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    fs::write(root.path().join("httpd.conf"), "Timeout 1\nIncludeOptional d/*.conf\n").unwrap();
    fs::write(root.path().join("d/a.conf"), "Timeout 2\n").unwrap();
    let with = |overlay: &[(&str, &str)]| {
        let overlay = overlay.iter().map(|(name, text)| (real.join(name), (*text).to_owned())).collect();
        let evaluation = evaluate(Input {
            main_file: root.path().join("httpd.conf"),
            server_root: root.path().into(),
            overlay,
            ..Input::default()
        });
        evaluation.global(&["Timeout"]).unwrap().arguments.clone()
    };
    assert_eq!(with(&[]), "2");
    assert_eq!(with(&[("d/a.conf", "Timeout 3\n")]), "3");
    assert_eq!(with(&[("d/b.conf", "Timeout 4\n")]), "4");
    assert_eq!(with(&[("d/Z.conf", "Timeout 4\n")]), "2");
    assert_eq!(with(&[("d/b.txt", "Timeout 4\n")]), "2");
}

const MACRO: &str = "LoadModule macro_module m/mod_macro.so\n";

#[test]
fn macros_are_put_where_they_are_used() {
    let root = tempfile::tempdir().unwrap();
    let text = format!(
        "{MACRO}<Macro Site $name @port>\n# not a line\n<VirtualHost *:80>\nServerName $name\nTimeout \\\n @port\n\
         </VirtualHost>\n</Macro>\nUse site a 7\nUSE Site b 8\nUndefMacro Site\nUse Site c 9\n"
    );
    let evaluation = read(root.path(), &[("httpd.conf", &text)], &[]);
    let message = |placed: &super::Placed| (placed.words().join(" "), placed.line);
    let names: Vec<_> = evaluation.all(&["ServerName", "Timeout"]).map(message).collect();
    let expected = [("a", 5), ("7", 7), ("b", 5), ("8", 7)].map(|(word, line)| (word.to_owned(), line));
    assert_eq!(names, expected);
    let place = evaluation.all(&["ServerName"]).next().unwrap().place();
    let file = root.path().join("httpd.conf");
    let file = file.display();
    assert_eq!(place, format!("{file}:5 (macro site, used at {file}:10)"));
    assert_eq!(evaluation.warnings.len(), 1, "{:?}", evaluation.warnings);
    assert!(evaluation.warnings[0].ends_with(&format!("({file}:13)")), "{:?}", evaluation.warnings);
    // A section that a macro opens may be closed behind its use.
    one(
        &format!(
            "{MACRO}<Macro Open>\n<VirtualHost *>\n</Macro>\nUse Open\nTimeout 1\n</VirtualHost>\nTimeout 2\n"
        ),
        &[],
        Some("2"),
        0,
    );
    one(&format!("{MACRO}<Macro A $x>\nDefine T $x\n</Macro>\nUse A 5\nTimeout ${{T}}\n"), &[], Some("5"), 0);
    one(&format!("{MACRO}<Macro A>\nUse A\nTimeout 1\n</Macro>\nUse A\n"), &[], Some("1"), 1);
    one(&format!("{MACRO}<Macro A $x>\nTimeout $x\n</Macro>\nUse A\nTimeout 3\n"), &[], Some("3"), 1);
    one(&format!("{MACRO}<Macro A>\nTimeout 1\n"), &[], None, 1);
    one("Use A\nTimeout 3\n", &[], Some("3"), 1);
}

#[test]
fn macros_that_multiply_end() {
    let mut text = MACRO.to_owned() + "<Macro M0>\nKeepAlive On\n</Macro>\n";
    for n in 1..30 {
        let uses = format!("Use M{}\n", n - 1).repeat(10);
        text += &format!("<Macro M{n}>\n{uses}</Macro>\n");
    }
    let root = tempfile::tempdir().unwrap();
    let evaluation = read(root.path(), &[("httpd.conf", &(text + "Use M29\n"))], &[]);
    assert!(evaluation.directives.len() <= 1_000_000);
    assert!(evaluation.warnings[0].starts_with("macros give more than"), "{:?}", evaluation.warnings);
}

#[test]
fn odd_bytes_and_ends_are_told_with_their_line() {
    for (text, timeout, line) in [
        (&b"KeepAlive On\nTimeout 5\0 6 \\\nKeepAlive Off\n"[..], Some("5"), 2),
        (b"\n\nTimeout \xff\n", Some("\u{fffd}"), 3),
        (b"\xef\xbb\xbfKeepAlive On\nTimeout 5\n", Some("5"), 1),
        (b"Timeout 5\n<VirtualHost *\n</VirtualHost>\n", Some("5"), 2),
        (b"Timeout 5\r\n<VirtualHost *>\r\n", Some("5"), 2),
        (b"Timeout 5\n</Directory>\n", Some("5"), 2),
        (b"Timeout 5\nInclude a b\n", Some("5"), 2),
        (b"Timeout 5\nInclude none/\n", Some("5"), 2),
        (b"Timeout 5\nInclude httpd.conf\n", Some("5"), 2),
        (b"Timeout 5\n<Perl>\nTimeout 9\n</Perl>\n", Some("5"), 2),
    ] {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("httpd.conf");
        fs::write(&file, text).unwrap();
        let evaluation =
            evaluate(Input { main_file: file.clone(), server_root: root.path().into(), ..Input::default() });
        let value = evaluation.global(&["Timeout"]).map(|placed| placed.arguments.as_str());
        assert_eq!(value, timeout, "{}", String::from_utf8_lossy(text));
        let place = format!("{}:{line})", file.display());
        assert_eq!(evaluation.warnings.len(), 1, "{:?}", evaluation.warnings);
        assert!(evaluation.warnings[0].ends_with(&place), "{:?} {place}", evaluation.warnings);
    }
    one("Timeout 5 \\\n", &[], Some("5"), 0);
    one("KeepAlive On\nTimeout \\", &[], Some("\\"), 0);
    one(&format!("KeepAlive {}\nTimeout 5", "x".repeat(1 << 20)), &[], Some("5"), 0);
    let many: String = (0..100).map(|n| format!("Include none{n}\n")).collect();
    let root = tempfile::tempdir().unwrap();
    let evaluation = read(root.path(), &[("httpd.conf", &many)], &[]);
    assert_eq!(evaluation.warnings.len(), 31);
    assert_eq!(evaluation.warnings[30], "70 more problems of the configuration are left out");
}
