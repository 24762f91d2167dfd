//! What is changed in a part of a site, and what is left to a person. That a real Apache agrees is tested in tests/it/apache/parts.rs.

use super::rules::{Decision, decision};
use super::*;
use crate::services::apache::config::{Input, evaluate};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A folder of documents, and what a change of it comes to under a configuration.
struct Documents {
    root: tempfile::TempDir,
    configuration: String,
}

impl Documents {
    fn with(configuration: &str, files: &[&str]) -> Self {
        let documents = Self { root: tempfile::tempdir().unwrap(), configuration: configuration.into() };
        for file in files {
            let path = documents.root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        documents
    }

    fn decision(&self, name: &str, from: &str, to: &str) -> std::result::Result<Decision, String> {
        let main_file = PathBuf::from("/httpd.conf");
        let text = format!("DocumentRoot {}\n{}", self.root.path().display(), self.configuration);
        let evaluation = evaluate(Input {
            main_file: main_file.clone(),
            overlay: [(main_file, text)].into(),
            is_isolated: true,
            ..Input::default()
        });
        let site = Site::of(&evaluation);
        let at = Part::of("h/", 80).in_force(&site);
        decision(std::process::id(), &at, name, (from, to), &folder(&at).unwrap())
    }

    /// Nothing where it is made, else why it is not.
    fn reason(&self, name: &str, from: &str, to: &str) -> String {
        match self.decision(name, from, to) {
            Ok(decision) => decision.to_decide.join("; "),
            Err(why) => format!("never: {why}"),
        }
    }
}

#[test]
fn links_are_followed_where_that_protects_from_nobody() {
    let follow = |documents: &Documents, from: &str, to: &str| documents.reason("Options", from, to);
    let quiet = Documents::with("", &["a/b/c.html", "d.html"]);
    for (from, to, part) in [
        ("None", "FollowSymLinks", ""),
        ("Indexes", "Indexes FollowSymLinks", ""),
        ("SymLinksIfOwnerMatch", "FollowSymLinks", "somebody asked for that"),
        ("FollowSymLinks SymLinksIfOwnerMatch", "FollowSymLinks", "somebody asked for that"),
        ("FollowSymLinks MultiViews", "FollowSymLinks", "addresses without the ending"),
        ("None", "FollowSymLinks ExecCGI", "never: "),
        ("Indexes", "FollowSymLinks", "never: "),
    ] {
        let found = follow(&quiet, from, to);
        assert!(
            if part.is_empty() { found.is_empty() } else { found.contains(part) },
            "{from} {to}: {found}"
        );
    }
    let linked = Documents::with("", &["a/b.html"]);
    symlink("/etc", linked.root.path().join("a/link")).unwrap();
    assert!(follow(&linked, "None", "FollowSymLinks").contains("a/link is a link"));
    let open = Documents::with("", &["a/b.html"]);
    fs::set_permissions(open.root.path().join("a"), fs::Permissions::from_mode(0o775)).unwrap();
    assert!(follow(&open, "None", "FollowSymLinks").contains("others than its owner may write"));
    if rustix::process::geteuid().is_root() {
        let uploads = Documents::with("", &["uploads/a.html"]);
        std::os::unix::fs::chown(uploads.root.path().join("uploads"), Some(1234), None).unwrap();
        assert!(follow(&uploads, "None", "FollowSymLinks").contains("uploads belongs to user 1234"));
    }
}

#[test]
fn rules_that_would_be_lost_are_named() {
    let documents =
        Documents::with("AccessFileName .rules .htaccess\n", &["a/.htaccess", ".rules", "b.html"]);
    let reason = documents.reason("AllowOverride", "All", "None");
    let root = documents.root.path().display();
    assert_eq!(
        reason,
        format!(
            "the rules in {root}/.rules, {root}/a/.htaccess would no longer count: move them into <Directory> sections of the server's configuration first"
        )
    );
    assert_eq!(documents.reason("AllowOverrideList", "Redirect", "None"), reason);
    let reason = Documents::with("", &["b.html"]).reason("AllowOverride", "All", "None");
    assert!(
        reason.starts_with("no .htaccess lies in ") && reason.contains("nothing is lost now"),
        "{reason}"
    );
    assert!(documents.reason("AllowOverride", "None", "All").starts_with("never: "));
}

/// What makes a list of choices.
const NEGOTIATES: &str = "TypesConfig /dev/null\nAddHandler type-map .var\nRemoveType en\nAddLanguage de .de\nAddLanguage en .en\nAddType text/html .html\n";

#[test]
fn a_front_page_is_named_in_full_where_it_stays_the_same() {
    let index = |documents: &Documents, to: &str| documents.decision("DirectoryIndex", "index", to);
    let one = Documents::with("", &["index.html", "indexes.html", "picture.jpg"]);
    assert_eq!(index(&one, "index.html index"), Ok(Decision::default()));
    assert!(index(&one, "indices.html index").is_err() && index(&one, "index.html").is_err());
    let two = Documents::with(NEGOTIATES, &["index.html.de", "index.html.en"]);
    let choice = index(&two, "index.html.de index").unwrap().to_decide;
    assert!(choice[0].contains("index.html.de, index.html.en"), "{choice:?}");
    let (path, text) = index(&two, "index.var index").unwrap().new_file.unwrap();
    assert_eq!(path, two.root.path().join("index.var"));
    assert!(
        text.ends_with(
            "\n\nURI: index.html.de\nContent-Type: text/html\nContent-Language: de\n\nURI: index.html.en\nContent-Type: text/html\nContent-Language: en\n"
        ),
        "{text}"
    );
    for (configuration, files) in [
        (
            "TypesConfig /dev/null\nAddType text/html .html\nAddLanguage de .de\nAddLanguage en .en\n",
            ["index.html.de", "index.html.en"],
        ),
        (NEGOTIATES, ["index.html.de", "index.html.bak"]),
        (NEGOTIATES, ["index.html.de", "index.html"]),
        (
            "TypesConfig /dev/null\nAddHandler type-map .var\nAddType text/html .html\nAddLanguage de .de\nAddLanguage en .en\nRemoveType .html\n",
            ["index.html.de", "index.html.en"],
        ),
        (
            "TypesConfig /dev/null\nAddHandler type-map .var\nAddType text/html .html\nForceType text/plain\nAddLanguage de .de\n",
            ["index.html.de", "index.de.html"],
        ),
    ] {
        let odd = Documents::with(configuration, &files);
        assert!(index(&odd, "index.var index").is_err(), "{configuration} {files:?}");
    }
}
