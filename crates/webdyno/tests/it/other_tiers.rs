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
    /// `edit` is a shell script that changes the scenario's files first.
    fn up(place: &'a Place, scenario: &str, edit: &str) -> Self {
        let name = format!("tier-{}", std::fs::metadata(place.path(".")).unwrap().ino());
        let folder = place.path("scenarios").join(&name);
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(scenario);
        std::fs::create_dir(place.path("scenarios")).unwrap();
        run(assert_cmd::Command::new("cp").arg("-r").arg(shipped).arg(&folder)).with_code(0);
        run(assert_cmd::Command::new("sh").args(["-ec", edit]).current_dir(folder)).with_code(0);
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
        let lab = Lab::up(place, "db-connections-exhausted", "");
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

/// PHP runs inside of Apache, not in PHP-FPM.
const WITH_MOD_PHP: &str = "mv server/etc/php/8.2/fpm server/etc/php/8.2/apache2; rm -r server/etc/php/8.2/apache2/pool.d; \
    sed -i -e '/^\\[\\[services\\]\\]$/{N;/php-fpm/d}' -e '/^confs = /d' \
    -e 's/^modules = .*/mpm = \"prefork\"\\nmodules = [\"php8.2\"]/' scenario.toml";

#[test]
fn a_full_opcache_inside_of_apache_gets_more_memory_and_has_it_taken_back() {
    let _turn = shared_turn();
    needs!(can_mount(), "needs root and mount(8)");
    measured_unshielded(|place| {
        let lab = Lab::up(place, "opcache-full", WITH_MOD_PHP);
        let state = "ls /etc/php/8.2/apache2/conf.d; cat /run/apache2/apache2.pid";
        let before = lab.shell(state);
        // The memory that workers share for it.
        let cache_kb = || {
            let youngest = lab.shell("pgrep -n -P $(cat /run/apache2/apache2.pid)");
            let script = format!(
                "grep -A1 -E ' rw-s .*zero' /proc/{}/smaps | sed -n 's/^Size: *//p'",
                youngest.trim()
            );
            let sizes = lab.shell(&script);
            sizes.lines().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).max()
        };
        assert_eq!(cache_kb(), Some(8 << 10), "{before}");
        let load = ["-r", "300", "-c", "20", "-d", "4s", "--warmup", "1s", "--goal", "200 req/s"];
        let json = lab.tune(&[&["http://localhost/start.php"], &load[..]].concat());
        let (first, change) = (&json["rounds"][0], &json["rounds"][0]["changes"][0]);
        assert_eq!(
            (first["verdict"].as_str(), first["kept"].as_bool()),
            (Some("better"), Some(true)),
            "{json:#}"
        );
        let named = (change["service"].as_str(), change["setting"].as_str(), change["to"].as_i64());
        assert_eq!(named, (Some("apache"), Some("opcache.memory_consumption"), Some(128)));
        assert_eq!(cache_kb(), Some(128 << 10), "{json:#}");
        let program = assert_cmd::cargo::cargo_bin("webdyno");
        lab.shell(&format!("{} rollback", program.display()));
        assert_eq!((lab.shell(state), cache_kb()), (before.clone(), Some(8 << 10)));
    });
}
