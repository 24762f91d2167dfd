//! Values of a part of a site, prepared for a real Apache and read back from it.

use super::server::{MODULES, Server, apache_is_installed};
use super::{PREFORK, apache, write};
use crate::skip::needs;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use webdyno_model::change::{ApplyClass, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

fn wanted(name: &str, part: &str, to: &str) -> SettingChange {
    SettingChange {
        setting: SettingId::of_service("apache", name).of_part(part),
        to: SettingValue::Text(to.into()),
    }
}

/// A server with documents in `site/`, and this between its virtual host's lines and beside them.
fn serving(in_host: &str, beside: &str, modules: &[&str]) -> Server {
    let server = Server::debian("prefork", PREFORK);
    let (port, root) = (server.port, server.root.path().display().to_string());
    let fill = |text: &str| text.replace("ROOT", &root);
    let load = |name: &&str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    server.write("mods-enabled/more.load", &modules.iter().map(load).collect::<String>());
    server.write("site/deep/a.html", "a\n");
    server.write("conf-enabled/beside.conf", &fill(beside));
    server.write(
        "sites-enabled/000-default.conf",
        &fill(&format!("<VirtualHost *:{port}>\nDocumentRoot ROOT/site\n{in_host}\n</VirtualHost>\n")),
    );
    server
}

/// Prepares FollowSymLinks for the root of the site; where that is possible, writes it and reads it back.
fn takes_options(server: &Server, name: &str, expected: Result<&str, &str>) {
    let before = server.snapshot();
    let prepared = apache().prepare(&before, &[wanted("Options", "localhost/", "FollowSymLinks")]);
    let plan = match (prepared, expected) {
        (Ok(Preparation::Plan(plan)), Ok(_)) => plan,
        (Ok(Preparation::NotPreparable { why, .. }), Err(part)) => {
            assert!(why.contains(part), "{name}: {why}");
            return;
        }
        (Err(error), Err(part)) => {
            assert!(error.message.contains(part), "{name}: {error}");
            return;
        }
        (other, _) => panic!("{name}: {other:?}"),
    };
    assert_eq!((plan.class, plan.is_proposal()), (ApplyClass::Reload, false), "{name}: {plan:?}");
    assert!(plan.files[0].path.ends_with(expected.unwrap()), "{name}: {}", plan.diff);
    write(&plan);
    let control = before.control.clone().unwrap();
    apache().validate(&control).unwrap();
    apache().activate(&control, plan.class, server.port).unwrap();
    let after = server.snapshot();
    let root = after.scoped.iter().find(|one| one.setting == "Options" && one.scope.len() > 1).unwrap();
    assert_eq!(root.value, "FollowSymLinks", "{name}");
    // Written again it takes the same line.
    let again = apache().prepare(&after, &[wanted("AllowOverride", "localhost/", "None")]);
    assert!(again.is_err(), "{name}: {again:?}");
}

#[test]
fn a_value_is_written_where_it_wins() {
    needs!(apache_is_installed());
    let directory = |path: &str, lines: &str| format!("<Directory {path}>\n{lines}\n</Directory>\n");
    let none = directory("ROOT/site", "Options None");
    for (name, in_host, beside, expected) in [
        ("of the server", "", none.as_str(), Ok("conf-enabled/zzz-webdyno.conf")),
        ("of the host", none.as_str(), "", Ok("sites-enabled/000-default.conf")),
        // Not for all that is beside the site.
        (
            "of a wider folder",
            directory("ROOT", "Options None").as_str(),
            "",
            Ok("conf-enabled/zzz-webdyno.conf"),
        ),
        (
            "of a location",
            "<Location />\nOptions None\n</Location>",
            "",
            Err("no place was found where Options"),
        ),
        (
            "in force already",
            "",
            directory("ROOT/site", "Options FollowSymLinks").as_str(),
            Err("nothing to change"),
        ),
        (
            "by a condition",
            "",
            directory("ROOT/site", "Options None\n<If \"-n %{HTTP_HOST}\">\nOptions Indexes\n</If>").as_str(),
            Err("under a condition"),
        ),
    ] {
        let server = serving(in_host, beside, &[]);
        server.start();
        takes_options(&server, name, expected);
    }
}

#[test]
fn allow_override_is_only_proposed() {
    needs!(apache_is_installed());
    let lines = "AllowOverride All\nAllowOverrideList AddDefaultCharset";
    let server = serving("", &format!("<Directory ROOT/site>\n{lines}\n</Directory>\n"), &[]);
    server.write("site/deep/.htaccess", "# rules\n");
    server.start();
    let snapshot = server.snapshot();
    for names in [&["AllowOverride"][..], &["AllowOverride", "AllowOverrideList"]] {
        let changes: Vec<_> = names.iter().map(|name| wanted(name, "localhost/", "None")).collect();
        let plan = apache().prepare(&snapshot, &changes).unwrap().into_plan().unwrap();
        assert_eq!((plan.class, plan.is_proposal()), (ApplyClass::Manual, true));
        assert_eq!((plan.changes.len(), plan.to_decide.len()), (names.len(), 1));
        assert!(
            plan.to_decide[0].contains("site/deep/.htaccess would no longer count"),
            "{:?}",
            plan.to_decide
        );
        assert!(names.iter().all(|name| plan.diff.contains(&format!("+    {name} None\n"))), "{}", plan.diff);
    }
}

/// The status, the language and the body of the front page for a visitor.
fn front_page(server: &Server, language: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let accept = if language.is_empty() { String::new() } else { format!("Accept-Language: {language}\r\n") };
    write!(stream, "GET / HTTP/1.0\r\nHost: localhost\r\n{accept}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let line = |name: &str| head.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    (head.lines().next().unwrap_or_default().into(), line("Content-Language"), body.into())
}

#[test]
fn a_type_map_answers_as_the_search_did() {
    needs!(apache_is_installed());
    let negotiates =
        "<Directory ROOT/site>\nOptions FollowSymLinks MultiViews\nDirectoryIndex index\n</Directory>";
    let mime = "TypesConfig /dev/null\nAddHandler type-map var\nAddType text/html .html\nAddLanguage de .de\nAddLanguage en .en\n\
                AddLanguage fr .fr\nLanguagePriority en de fr\nForceLanguagePriority Prefer Fallback\n";
    let server = serving(negotiates, mime, &["dir", "mime", "negotiation"]);
    for language in ["de", "en", "fr"] {
        server.write(&format!("site/index.html.{language}"), &format!("<p>{language}</p>\n"));
    }
    server.start();
    let visitors = ["", "de", "fr;q=0.9, de;q=0.5", "it", "en-GB, en;q=0.8"];
    let before: Vec<_> = visitors.iter().map(|language| front_page(&server, language)).collect();
    assert_eq!(before[1].2, "<p>de</p>\n");
    let snapshot = server.snapshot();
    let files = snapshot.scoped.iter().find(|one| one.setting == "DirectoryIndex files").unwrap();
    assert_eq!(files.value, "index.html.de index.html.en index.html.fr");
    let plan =
        apache().prepare(&snapshot, &[wanted("DirectoryIndex", "localhost/", "index.var index")]).unwrap();
    let plan = plan.into_plan().unwrap();
    // A file among the documents is a person's to write.
    assert_eq!((plan.class, plan.files.len(), plan.is_proposal()), (ApplyClass::Manual, 2, true));
    write(&plan);
    let control = snapshot.control.clone().unwrap();
    apache().validate(&control).unwrap();
    apache().activate(&control, ApplyClass::Reload, server.port).unwrap();
    let answers = || visitors.iter().map(|language| front_page(&server, language)).collect::<Vec<_>>();
    assert_eq!(answers(), before);
    // A site that is deployed anew without it still answers, as slowly as before.
    fs::remove_file(server.path("site/index.var")).unwrap();
    assert_eq!(answers(), before);
}

#[test]
fn the_value_that_a_host_has_is_the_one_that_is_changed() {
    needs!(apache_is_installed());
    for (in_host, from) in [("KeepAliveTimeout 4", 4), ("", 9), ("KeepAliveTimeout 7", 9)] {
        let beside = if in_host.ends_with('4') { "KeepAliveTimeout 3" } else { "KeepAliveTimeout 9" };
        let server = serving(in_host, beside, &[]);
        server.start();
        let setting = SettingId::of_service("apache", "KeepAliveTimeout");
        let change = SettingChange { setting, to: SettingValue::Integer(3) };
        let prepared = apache().prepare(&server.snapshot(), &[change]).unwrap();
        let Preparation::Plan(plan) = prepared else { panic!("{in_host}: {prepared:?}") };
        assert_eq!(plan.changes[0].from, Some(SettingValue::Integer(from)), "{in_host}: {}", plan.diff);
    }
}
