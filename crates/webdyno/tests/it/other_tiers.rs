//! The limit is not in the web server but in what stands behind it: found under load, lifted where it is, proven, kept by a
//! file of its own, and undone. Scenarios of the lab, with real programs.

use crate::disturbance::measured_unshielded;
use crate::skip::needs;
use crate::support::{Place, can_mount, run, shared_turn};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// A scenario that is up under a name of its own: control groups are everybody's.
struct Lab<'a> {
    place: &'a Place,
    name: String,
}

impl<'a> Lab<'a> {
    fn up(place: &'a Place, scenario: &str) -> Self {
        let name = format!("tier-{}", std::fs::metadata(place.path(".")).unwrap().ino());
        let folder = place.path("scenarios").join(&name);
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(scenario);
        std::fs::create_dir(place.path("scenarios")).unwrap();
        run(assert_cmd::Command::new("cp").arg("-r").arg(shipped).arg(folder)).with_code(0);
        let lab = Self { place, name };
        run(&mut lab.command(&["up"], &[])).with_code(0);
        lab
    }

    fn command(&self, verb: &[&str], words: &[&str]) -> assert_cmd::Command {
        let mut command = self.place.webdyno();
        command.args(["lab", "--scenarios", "scenarios"]).args(verb).arg(&self.name).args(words);
        command.timeout(Duration::from_secs(180));
        command
    }

    /// What a shell command on the server prints.
    fn shell(&self, script: &str) -> String {
        run(&mut self.command(&["exec"], &["server", "--", "sh", "-c", script])).with_code(0).stdout
    }

    fn tune(&self, words: &[&str]) -> Value {
        let program = assert_cmd::cargo::cargo_bin("webdyno").display().to_string();
        let out = self.place.path("tuned").display().to_string();
        let tune = ["server", "--", &program, "tune", "--apply", "-q", "--json", "-", "--out", &out];
        run(&mut self.command(&["exec"], &[&tune, words].concat())).with_code(0).json()
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["down"], &[]).output();
    }
}

#[test]
fn a_database_of_too_few_connections_gets_more_and_has_them_taken_back() {
    let _turn = shared_turn();
    needs!(can_mount(), "needs root and mount(8)");
    measured_unshielded(|place| {
        let lab = Lab::up(place, "db-connections-exhausted");
        let state =
            "mariadb -Ne 'SELECT @@max_connections'; ls /etc/mysql/mariadb.conf.d; ps -C mariadbd -o pid=";
        let before = lab.shell(state);
        assert!(before.starts_with("12\n"), "{before}");
        let load = ["-r", "200", "-c", "100", "-d", "4s", "--warmup", "1s", "--goal", "150 req/s"];
        let json = lab.tune(&[&["http://localhost/article.php"], &load[..]].concat());
        assert_eq!(
            (json["state"].as_str(), json["goal_met"].as_bool()),
            (Some("applied"), Some(true)),
            "{json:#}"
        );
        let rounds = json["rounds"].as_array().unwrap();
        assert_eq!((rounds.len(), rounds[0]["verdict"].as_str()), (1, Some("better")), "{json:#}");
        let change = &rounds[0]["changes"][0];
        assert_eq!(
            (change["service"].as_str(), change["setting"].as_str()),
            (Some("mariadb"), Some("max_connections"))
        );
        let after = lab.shell(state);
        assert!(after.starts_with("76\n") && after.contains("zzz-webdyno.cnf"), "{after}");
        let program = assert_cmd::cargo::cargo_bin("webdyno");
        let undone = lab.shell(&format!("{} rollback", program.display()));
        assert!(undone.contains("restored max_connections to 12"), "{undone}");
        assert_eq!(lab.shell(state), before, "the same values, files and process");
    });
}
