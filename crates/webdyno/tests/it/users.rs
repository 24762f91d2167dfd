//! Visitors on a real site: Apache with mod_cgi and mod_auth_basic, in front of a program that keeps sessions, verifies
//! tokens, passwords, forms and uploads with libraries of its own, and writes down what it saw. Its records decide.

use crate::support::{Apache, Place, run, shared_turn};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SITE: &str = include_str!("site/site.py");

/// Who may enter the protected part. `{SHA}`: `printf 'pa:ss wörd' | openssl sha1 -binary | base64`.
const PASSWORDS: &str = "ann:{SHA}cRQ3iPZN/cUFUyAxdC91S5hcXvA=\n";

/// Users with names and passwords that have to be encoded, as their CSV file and as the site's own list.
const USERS: [(&str, &str); 4] = [
    ("ann", "pass"),
    ("bob & c=d", "+ %41 \"q\""),
    ("ümläut, 😀", "semi;colon\nand line"),
    ("<script>", "\\back'slash${user}"),
];

/// An Apache with the site, and where its data lies.
struct Site {
    apache: Apache,
    data: PathBuf,
}

impl Site {
    fn start(folder: &Path) -> Self {
        let apache = Apache::files(&folder.join("server"));
        let root = apache.files.root.clone();
        let data = root.join("data");
        for directory in ["", "sessions", "uploads"] {
            std::fs::create_dir_all(data.join(directory)).unwrap();
            // Apache's workers are somebody else when they were started by root.
            std::fs::set_permissions(data.join(directory), PermissionsExt::from_mode(0o777)).unwrap();
        }
        let program = root.join("site.py");
        std::fs::write(&program, SITE).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let users: BTreeMap<_, _> = USERS.into();
        std::fs::write(data.join("users.json"), serde_json::to_vec(&users).unwrap()).unwrap();
        std::fs::write(root.join("passwords"), PASSWORDS).unwrap();
        let load = root.join("mods-enabled/modules.load");
        let mut lines = std::fs::read_to_string(&load).unwrap();
        let core = lines.lines().find(|line| line.contains("mod_authz_core.so")).unwrap().to_owned();
        for module in
            ["alias", "auth_basic", "authn_core", "authn_file", "authz_user", "cgi", "env", "log_config"]
        {
            let line = core.replace("authz_core", module);
            // Some are built in.
            if Path::new(line.rsplit(' ').next().unwrap().trim_matches('"')).exists() {
                lines += &format!("{line}\n");
            }
        }
        std::fs::write(&load, lines).unwrap();
        let conf = format!(
            "ScriptAlias /site \"{program}\"\nScriptAlias /protected \"{program}\"\n\
             SetEnv SITE_DATA \"{data}\"\nCustomLog log/access.log \"%m %U %>s\"\n\
             <Location /site>\nCGIPassAuth On\n</Location>\n\
             <Location /protected>\nAuthType Basic\nAuthName site\nAuthUserFile \"{passwords}\"\n\
             Require valid-user\n</Location>\n",
            program = program.display(),
            data = data.display(),
            passwords = root.join("passwords").display(),
        );
        std::fs::write(root.join("conf-enabled/site.conf"), conf).unwrap();
        Self { apache: apache.started(), data }
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.apache.files.port)
    }

    /// What it saw of visitors, in order. Requests before the load, which see whether there is a server, are nobody's.
    fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.data.join("records.jsonl")).unwrap_or_default();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["session"].is_string()).collect()
    }

    /// How many requests Apache itself has logged: `METHOD PATH STATUS`.
    fn logged(&self) -> BTreeMap<String, u64> {
        let text = std::fs::read_to_string(self.apache.files.root.join("log/access.log")).unwrap();
        text.lines().fold(BTreeMap::new(), |mut counts, line| {
            *counts.entry(line.to_owned()).or_default() += 1;
            counts
        })
    }
}

const SESSION: &str = r##"
[[table]]
file = "users.csv"

[[session]]
name = "customer"

[[session.step]]
request = { name = "form", url = "/site/login?user=${user}&session=${session}" }
capture = [{ name = "csrf", html = "form#login input[name=csrf]", attribute = "value" }]

[[session.step]]
request = { name = "log in", url = "/site/login?user=${user}&session=${session}", form = { name = "${name}", password = "${password}", csrf = "${csrf}", odd = "a&b=c d+e%20;\r\n\"é😀" } }
capture = [{ name = "next", header = "X-Next" }]

[[session.step]]
request = { name = "token", method = "POST", url = "${next}", json = { for = "${name}", scopes = ["read", "write"], number = 1 } }
capture = [{ name = "token", json = "/data/0/x~1y/token" }]

[[session.step]]
request = { name = "api", url = "/site/api?user=${user}&session=${session}&name=${name|url}", auth = { bearer = "${token}" } }

[[session.step]]
request = { name = "upload", url = "/site/upload?user=${user}&session=${session}", multipart = { comment = "from ${name}", file = { file = "photo.bin", type = "image/x-odd", filename = "a \"photo\" é.bin" } } }

[[session.step]]
request = { name = "protected", url = "/protected/basic?user=${user}&session=${session}", auth = { user = "ann", password = "pa:ss wörd" } }
"##;

/// Steps of a session as the site sees them: the redirect after the login is one more.
const STEPS: [&str; 7] = ["/login", "/login", "/home", "/token", "/api", "/upload", "/basic"];

fn write_files(place: &Place, site: &Site, settings: &str, session: &str) {
    let quoted = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
    let rows: String =
        USERS.iter().map(|(name, password)| format!("{},{}\n", quoted(name), quoted(password))).collect();
    std::fs::write(place.path("users.csv"), format!("name,password\n{rows}")).unwrap();
    // Every byte, boundaries and line ends among them.
    let photo: Vec<u8> = (0..70_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(place.path("photo.bin"), [&photo[..], b"\r\n--\r\n\r\n--x--\r\n\0"].concat()).unwrap();
    let text = format!("base = \"{}\"\n{settings}\n{session}", site.base());
    std::fs::write(place.path("load.toml"), text).unwrap();
}

fn sha256sum(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().trim_start_matches('\\').to_owned()
}

fn loaded(place: &Place, duration: &str) -> Value {
    let arguments = ["run", "--workload", "load.toml", "-d", duration, "-q", "--json", "-"];
    run(place.webdyno().args(arguments)).with_code_in(&[0, 3]).json()
}

/// Sessions of the load and of the server are the same, and no two share anything.
fn check_sessions(records: &[Value]) {
    let mut sessions: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for record in records {
        let text = |key: &str| record[key].as_str().unwrap().to_owned();
        sessions.entry((text("user"), text("session"))).or_default().push(record);
    }
    let mut ids = BTreeSet::new();
    let mut complete = 0;
    for (who, observed) in &sessions {
        let steps: Vec<&str> = observed.iter().map(|record| record["step"].as_str().unwrap()).collect();
        assert!(STEPS.starts_with(&steps), "{who:?}: {observed:#?}");
        complete += u64::from(steps.len() == STEPS.len());
        let of: BTreeSet<&str> = observed.iter().filter_map(|record| record["sid"].as_str()).collect();
        // One before the login, one after it.
        assert!(of.len() <= 2, "{who:?}: {of:?}");
        for id in of {
            assert!(ids.insert(id), "{who:?} has the session {id} of somebody else");
        }
        let names: BTreeSet<&str> = observed
            .iter()
            .filter(|record| record["step"] != "/basic")
            .filter_map(|r| r["name"].as_str())
            .collect();
        assert!(names.len() <= 1, "{who:?}: {names:?}");
    }
    assert!(complete >= 3, "{complete} of {} sessions are complete", sessions.len());
    // Rows are handed out in turn: with three sessions there were three users.
    let names: BTreeSet<_> =
        records.iter().filter(|r| r["step"] == "/home").map(|r| r["name"].to_string()).collect();
    assert!(names.len() >= 3, "{names:?}");
}

#[test]
fn a_real_site_confirms_every_step_of_every_session() {
    let _turn = shared_turn();
    // How long a session takes is the machine's business. Each load counts its sessions from 1, and has a site of its own.
    let enough = ["4s", "30s"].into_iter().any(|duration| {
        let place = Place::shielded();
        let site = Site::start(&place.path("site"));
        write_files(&place, &site, "users = 3\nthink = \"none\"", SESSION);
        let json = loaded(&place, duration);
        let enough = json["visits"]["sessions_completed"].as_u64().unwrap() >= 3;
        if enough {
            check_visits(&place, &site, &json);
        }
        enough
    });
    assert!(enough, "fewer than three sessions in 30 s");
}

/// What the load reports, the site's records and Apache's log agree.
fn check_visits(place: &Place, site: &Site, json: &Value) {
    let mut records = site.records();
    // Before a load one request sees whether there is a server, as the first visitor would make it.
    assert_eq!(records.remove(0)["step"], "/login");
    let refused: Vec<_> = records.iter().filter(|record| record["ok"] != true).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(json["visits"]["sessions_broken"], 0, "{json:#}");
    assert_eq!(json["requests"]["failed"], 0, "{json:#}");

    check_sessions(&records);
    let uploads: Vec<&Value> = records.iter().filter(|record| record["step"] == "/upload").collect();
    let wanted = sha256sum(&place.path("photo.bin"));
    assert_eq!(wanted.len(), 64);
    for upload in &uploads {
        assert_eq!(sha256sum(Path::new(upload["stored"].as_str().unwrap())), wanted);
        assert_eq!(upload["kind"], "image/x-odd");
        // As browsers write it: WHATWG HTML, 4.10.21.8.
        assert_eq!(upload["filename"], "a %22photo%22 é.bin");
    }
    assert!(uploads.len() >= 3);
    // A redirect is followed as browsers follow it: by a GET.
    assert!(records.iter().all(|record| record["step"] != "/home" || record["method"] == "GET"));
    // The last one may still be on its way into the server's log, or out of the script, when the load has ended.
    let reported = || {
        let stored = site.records().iter().filter(|record| record["step"] == "/upload").count() as u64;
        (site.logged().get("POST /site/upload 201").copied().unwrap_or(0), stored)
    };
    let agrees = |_: &u32| {
        let (logged, stored) = reported();
        logged == stored || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            false
        }
    };
    assert!((0..50).find(agrees).is_some(), "(logged, stored): {:?}", reported());
}

#[test]
fn what_the_site_does_not_say_is_not_made_up() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let site = Site::start(&place.path("site"));
    let session = SESSION.replace("form#login input[name=csrf]", "form#login input[name=nothing]");
    write_files(&place, &site, "users = 2\nthink = \"100ms\"", &session);
    let json = loaded(&place, "2s");
    let records = site.records();
    // The login needs the token, and what comes later needs what comes of the login: only the rest was asked for.
    let steps: BTreeSet<&str> = records.iter().map(|record| record["step"].as_str().unwrap()).collect();
    assert!(steps.contains("/login"), "{json:#}");
    assert!(
        !site
            .logged()
            .keys()
            .any(|line| line.starts_with("POST /site/login") || line.contains("/site/token"))
    );
    assert!(json["visits"]["captures_missed"]["form: csrf"].as_u64().unwrap() >= 1, "{json:#}");
    assert!(json["visits"]["steps_skipped"].as_u64().unwrap() >= 1, "{json:#}");
    assert_eq!(json["visits"]["sessions_completed"], 0, "{json:#}");
}

/// Without the right password Apache itself lets nobody in.
#[test]
fn a_wrong_password_is_refused_by_the_server() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let site = Site::start(&place.path("site"));
    let session = "[[session]]\n[[session.step]]\nrequest = { name = \"who\", url = \"/protected/basic\", \
                   auth = { user = \"ann\", password = \"wrong\" } }\n";
    write_files(&place, &site, "users = 1\nthink = \"200ms\"", session);
    let json = loaded(&place, "1s");
    let logged = site.logged();
    let answered: Vec<_> = logged.keys().filter(|line| line.contains("/protected")).collect();
    assert_eq!(answered, ["GET /protected/basic 401"]);
    assert!(json["status"]["401"].as_u64().unwrap() >= 1, "{json:#}");
    assert!(site.records().is_empty());
}
