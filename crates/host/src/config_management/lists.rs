//! What the agents of configuration managements on this machine manage, from the state that they keep.
//!
//! - Puppet: its catalog (`client_data/catalog/NAME.json` in its vardir) has each file with `purge` and `recurse`; where
//!   there is none, `state/resources.txt` has the references in lower case, `file[/etc/apache2/ports.conf]`
//!   (lib/puppet/resource/catalog.rb, lib/puppet/defaults.rb).
//! - Chef and Cinc: a copy of each file that they overwrote, `PATH.chef-TIME` below `file_backup_path` of client.rb
//!   (/var/chef/backup), or beside the file where that is nil (lib/chef/util/backup.rb). The lock of the last run,
//!   `cache/chef-client-running.pid`, tells when that was. What Chef wrote only once has no copy.
//! - Salt: the results of the last highstate, `highstate.cache.p` in its cache, in which each state is named
//!   `file_|-ID_|-PATH_|-managed` (salt/modules/state.py).
//! - TuneD: /etc/tuned and the two files that it writes elsewhere, while /etc/tuned/active_profile names a profile
//!   (tuned/consts.py).

use super::{IDLE_AFTER, tuned};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The longest list that is read. Catalogs of large sites have a few MB.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Puppet's vardir: of its own packages, of old ones, of Debian's.
const PUPPET: [&str; 3] = ["opt/puppetlabs/puppet/cache", "var/lib/puppet", "var/cache/puppet"];

/// Chef's and Cinc's client.rb, state directory and program.
const CHEF: [(&str, &str, &str); 2] =
    [("etc/chef/client.rb", "var/chef", "chef-client"), ("etc/cinc/client.rb", "var/cinc", "cinc-client")];

const SALT: &str = "var/cache/salt/minion/highstate.cache.p";

/// What TuneD writes.
const TUNED: [&str; 3] =
    ["/etc/tuned", "/etc/modprobe.d/tuned.conf", "/etc/systemd/system.conf.d/00-tuned.conf"];

/// A directory this deep that is listed without further word is one of the service's; `/etc` itself says nothing.
const DEPTH_MIN: usize = 3;

/// What agents manage.
#[derive(Debug, Default)]
pub struct Lists {
    puppet: Option<Puppet>,
    chef: Vec<Chef>,
    salt: Option<Vec<u8>>,
    tuned: Option<String>,
    /// The settings of the kernel that its profile sets, each with the file that says so.
    tuned_sysctls: BTreeMap<String, PathBuf>,
}

impl Lists {
    /// Reads the lists of agents that are at work. `runs` says whether the agent of a tool runs.
    pub fn of(root: &Path, now: SystemTime, runs: &dyn Fn(&str) -> bool) -> Self {
        let is_fresh = |path: &Path| {
            let written = fs::metadata(path).and_then(|found| found.modified());
            written.is_ok_and(|written| now.duration_since(written).map_or(true, |age| age < IDLE_AFTER))
        };
        let works = |tool: &str, path: &Path| runs(tool) || is_fresh(path);
        let salt = root.join(SALT);
        let chef = CHEF.iter().map(|names| Chef::of(root, *names));
        let tuned = tuned_profile(root);
        Self {
            puppet: PUPPET.iter().find_map(|vardir| Puppet::of(&root.join(vardir), &works)),
            chef: chef.filter(|chef| works("Chef", &chef.last_run)).collect(),
            salt: read(&salt).filter(|_| works("Salt", &salt)),
            tuned_sysctls: tuned.as_deref().map(|profile| tuned::sysctls(root, profile)).unwrap_or_default(),
            tuned,
        }
    }

    /// Whether what a tool manages is known.
    pub fn knows(&self, tool: &str) -> bool {
        match tool {
            "Puppet" => self.puppet.is_some(),
            "Salt" => self.salt.is_some(),
            // Its files are the same on every machine.
            "TuneD" => true,
            // Chef keeps only what it overwrote, and CFEngine nothing.
            _ => false,
        }
    }

    /// The file that has TuneD set a setting of the kernel, and its profile.
    pub fn tuned_sysctl(&self, name: &str) -> Option<(&Path, &str)> {
        Some((self.tuned_sysctls.get(name)?, self.tuned.as_deref()?))
    }

    /// Who lists a file, and how that is known. `exists` is whether it does already.
    pub fn owner(&self, path: &Path, exists: bool) -> Option<(&'static str, String)> {
        let puppet = || Some(("Puppet", self.puppet.as_ref()?.why(path, exists)?));
        let chef = || Some(("Chef", self.chef.iter().find_map(|chef| chef.why(path))?));
        let salt = || Some(("Salt", salt_why(self.salt.as_ref()?, path)?));
        let tuned = || {
            let profile = self.tuned.as_ref()?;
            let is_its_own = TUNED.iter().any(|place| path.starts_with(place));
            is_its_own.then(|| ("TuneD", format!("TuneD writes it for its profile {profile}")))
        };
        puppet().or_else(chef).or_else(salt).or_else(tuned)
    }
}

/// The profile that TuneD keeps in force; `None` when it has none.
fn tuned_profile(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("etc/tuned/active_profile")).ok()?;
    Some(text.trim().to_owned()).filter(|profile| !profile.is_empty())
}

/// What Puppet manages.
#[derive(Debug, PartialEq, Eq)]
enum Puppet {
    /// From its catalog.
    Catalog {
        files: BTreeSet<PathBuf>,
        /// Directories from which it removes what it does not know.
        purged: BTreeSet<PathBuf>,
        /// Directories that it keeps with all that is in them.
        recursed: BTreeSet<PathBuf>,
    },
    /// From the list of its resources: paths in lower case.
    Resources(BTreeSet<String>),
}

impl Puppet {
    fn of(vardir: &Path, works: &dyn Fn(&str, &Path) -> bool) -> Option<Self> {
        let catalogs = fs::read_dir(vardir.join("client_data/catalog")).into_iter().flatten().flatten();
        let catalogs = catalogs.map(|entry| entry.path()).filter(|path| works("Puppet", path));
        // A machine that was renamed has one of each name.
        let newest = catalogs.max_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
        let catalog = newest.and_then(|path| Self::parse_catalog(&read(&path)?));
        catalog.or_else(|| {
            let path = vardir.join("state/resources.txt");
            let text = read(&path).filter(|_| works("Puppet", &path))?;
            Some(Self::parse_resources(&String::from_utf8_lossy(&text)))
        })
    }

    fn parse_catalog(bytes: &[u8]) -> Option<Self> {
        let catalog: Value = serde_json::from_slice(bytes).ok()?;
        // Before Puppet 4 it was wrapped once more.
        let resources = catalog.get("resources").or_else(|| catalog.get("data")?.get("resources"))?;
        let (mut files, mut purged, mut recursed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for resource in resources.as_array()? {
            let text = |name: &str| resource.get(name).and_then(Value::as_str);
            let parameter = |name: &str| resource.get("parameters").and_then(|all| all.get(name));
            if !matches!(text("type"), Some("File" | "Concat" | "Concat_file")) {
                continue;
            }
            let path = parameter("path").and_then(Value::as_str).or(text("title")).map(PathBuf::from);
            let Some(path) = path.filter(|path| path.is_absolute()) else { continue };
            if is_set(parameter("recurse")) {
                let purges = is_set(parameter("purge"));
                if purges {
                    purged.insert(path.clone())
                } else {
                    recursed.insert(path.clone())
                };
            }
            files.insert(path);
        }
        Some(Self::Catalog { files, purged, recursed })
    }

    fn parse_resources(text: &str) -> Self {
        let path = |line: &str| {
            let (kind, rest) = line.trim().split_once('[')?;
            let is_file = matches!(kind.to_lowercase().as_str(), "file" | "concat" | "concat_file");
            is_file.then(|| rest.strip_suffix(']').map(|path| path.trim_end_matches('/').to_lowercase()))?
        };
        Self::Resources(text.lines().filter_map(path).collect())
    }

    fn why(&self, path: &Path, exists: bool) -> Option<String> {
        let above = |paths: &BTreeSet<PathBuf>| {
            path.ancestors()
                .skip(1)
                .find(|folder| paths.contains(*folder))
                .map(|folder| folder.display().to_string())
        };
        match self {
            Self::Catalog { files, .. } if files.contains(path) => Some("it is in Puppet's catalog".into()),
            Self::Catalog { purged, recursed, .. } => above(purged)
                .map(|folder| format!("Puppet removes from {folder} what it does not know"))
                .or_else(|| {
                    above(recursed)
                        .filter(|_| exists)
                        .map(|folder| format!("Puppet keeps {folder} with all that is in it"))
                }),
            Self::Resources(paths) => {
                let listed = |path: &Path| paths.contains(&path.to_string_lossy().to_lowercase());
                let is_deep = |folder: &&Path| folder.components().count() >= DEPTH_MIN;
                if listed(path) {
                    return Some("it is in the list of what Puppet manages".into());
                }
                let folder = path.ancestors().skip(1).filter(is_deep).find(|folder| listed(folder))?;
                Some(format!(
                    "Puppet manages {}, and may remove from it what it does not know",
                    folder.display()
                ))
            }
        }
    }
}

/// Whether a parameter says yes: `true`, `"true"`, `"remote"`, `"inf"`.
fn is_set(parameter: Option<&Value>) -> bool {
    match parameter {
        Some(Value::Bool(set)) => *set,
        Some(Value::String(text)) => !matches!(text.as_str(), "false" | "no" | "undef"),
        _ => false,
    }
}

/// Where Chef keeps the files that it overwrote.
#[derive(Debug)]
struct Chef {
    root: PathBuf,
    /// `None`: beside the file.
    backups: Option<PathBuf>,
    /// Written by each run.
    last_run: PathBuf,
}

impl Chef {
    fn of(root: &Path, (config, state, program): (&str, &str, &str)) -> Self {
        let config = read(&root.join(config)).unwrap_or_default();
        let config = String::from_utf8_lossy(&config).into_owned();
        let below = |path: String| root.join(path.trim_start_matches('/'));
        let set = |name: &str| config.lines().find_map(|line| setting(line, name));
        let default = |name: &str| format!("{state}/{name}");
        let backups = match set("file_backup_path").as_deref() {
            Some("nil") => None,
            set => Some(below(set.map_or_else(|| default("backup"), str::to_owned))),
        };
        let cache = below(set("file_cache_path").unwrap_or_else(|| default("cache")));
        Self { root: root.to_owned(), backups, last_run: cache.join(format!("{program}-running.pid")) }
    }

    fn why(&self, path: &Path) -> Option<String> {
        let place = self.backups.as_ref().unwrap_or(&self.root).join(path.strip_prefix("/").ok()?);
        let name = format!("{}.chef-", place.file_name()?.to_string_lossy());
        let entries = fs::read_dir(place.parent()?).ok()?.flatten();
        let found = entries.map(|entry| entry.path()).find(|path| {
            let found =
                path.file_name().and_then(|found| found.to_str()).and_then(|found| found.strip_prefix(&name));
            found.is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit()))
        })?;
        Some(format!("Chef wrote it, and kept what was there before as {}", found.display()))
    }
}

/// The value of a line of client.rb: `file_backup_path "/var/lib/chef/backup"`, or `nil`.
fn setting(line: &str, name: &str) -> Option<String> {
    let value = line.trim().strip_prefix(name)?;
    value.starts_with(|first: char| first.is_whitespace()).then_some(())?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// Whether the last highstate of Salt has a state for a file, or for its directory.
fn salt_why(highstate: &[u8], path: &Path) -> Option<String> {
    let has = |text: &str| highstate.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    if has(&format!("_|-{}_|-", path.display())) {
        return Some("it is in Salt's last highstate".into());
    }
    let folder = path.parent()?;
    let of_folder = |state: &&&str| has(&format!("_|-{}_|-{state}", folder.display()));
    ["directory", "recurse"].iter().find(of_folder)?;
    Some(format!("Salt manages {}, and may remove from it what it does not know", folder.display()))
}

/// Reads a list; `None` when it is not there, too long, or not for us to read.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = fs::File::open(path).ok()?;
    let mut bytes = vec![];
    file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LIST_BYTES_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A tree of state files, and who owns what by it.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = machine.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            machine
        }

        fn lists(&self, days_later: u64, running: &[&str]) -> Lists {
            let now = SystemTime::now() + Duration::from_secs(days_later * 86_400);
            Lists::of(self.0.path(), now, &|tool| running.contains(&tool))
        }

        /// `(path, exists, words of why or nothing)`.
        fn check(&self, by: &str, expected: &[(&str, bool, &str)]) {
            let lists = self.lists(0, &[]);
            for (path, exists, why) in expected {
                let owner = lists.owner(Path::new(path), *exists);
                assert_eq!(
                    owner.as_ref().map(|(by, _)| *by),
                    (!why.is_empty()).then_some(by),
                    "{path}: {owner:?}"
                );
                assert!(owner.is_none_or(|(_, message)| message.contains(why)), "{path}");
            }
        }
    }

    const CATALOG: &str = r#"{"name":"web1","version":1,"resources":[
        {"type":"Class","title":"Apache","parameters":{}},
        {"type":"File","title":"/etc/apache2/apache2.conf","parameters":{"ensure":"file"}},
        {"type":"File","title":"ports","parameters":{"path":"/etc/apache2/ports.conf"}},
        {"type":"File","title":"/etc/apache2/conf.d","parameters":{"ensure":"directory","recurse":true,"purge":true}},
        {"type":"File","title":"/etc/apache2/mods","parameters":{"recurse":"remote","purge":false}},
        {"type":"File","title":"/etc/apache2/sites-enabled","parameters":{"ensure":"directory"}},
        {"type":"Concat","title":"/etc/apache2/sites-available/25-a.conf","parameters":{}},
        {"type":"Service","title":"/etc/apache2/x.conf"},{"title":1},7]}"#;

    #[test]
    fn the_catalog_of_puppet_is_exact() {
        for vardir in PUPPET {
            let name = format!("{vardir}/client_data/catalog/web1.json");
            // The list beside it knows less, and is not asked.
            let list = format!("{vardir}/state/resources.txt");
            Machine::new(&[(&name, CATALOG), (&list, "file[/etc/apache2/sites-enabled]\n")]).check(
                "Puppet",
                &[
                    ("/etc/apache2/apache2.conf", true, "in Puppet's catalog"),
                    ("/etc/apache2/ports.conf", true, "in Puppet's catalog"),
                    ("/etc/apache2/sites-available/25-a.conf", true, "in Puppet's catalog"),
                    ("/etc/apache2/conf.d/zzz.conf", false, "removes from /etc/apache2/conf.d"),
                    ("/etc/apache2/conf.d/a/b.conf", true, "removes from /etc/apache2/conf.d"),
                    ("/etc/apache2/mods/a.conf", true, "keeps /etc/apache2/mods"),
                    ("/etc/apache2/mods/new.conf", false, ""),
                    ("/etc/apache2/sites-enabled/new.conf", false, ""),
                    ("/etc/apache2/x.conf", true, ""),
                ],
            );
        }
    }

    #[test]
    fn the_list_of_puppet_is_taken_with_its_directories() {
        let list = "class[apache]\nfile[/etc/apache2/Ports.conf]\nfile[/etc/apache2/conf.d/]\nfile[/etc]\n\
                    service[apache2]\nconcat[/etc/apache2/sites/a.conf]\nfile[title]\ntorn[";
        Machine::new(&[("var/lib/puppet/state/resources.txt", list)]).check(
            "Puppet",
            &[
                ("/etc/apache2/ports.conf", true, "in the list"),
                ("/etc/apache2/sites/a.conf", true, "in the list"),
                ("/etc/apache2/conf.d/new.conf", false, "manages /etc/apache2/conf.d"),
                ("/etc/apache2/apache2.conf", true, ""),
            ],
        );
    }

    #[test]
    fn a_list_of_old_claims_nothing() {
        let puppet = ("var/cache/puppet/state/resources.txt", "file[/etc/a/b.conf]\n");
        let salt = (SALT, "file_|-a_|-/etc/a/c.conf_|-managed");
        let machine = Machine::new(&[puppet, salt]);
        let owns = |days: u64, running: &[&str], path: &str| {
            machine.lists(days, running).owner(Path::new(path), true).is_some()
        };
        for (path, tool) in [("/etc/a/b.conf", "Puppet"), ("/etc/a/c.conf", "Salt")] {
            assert!(owns(1, &[], path) && !owns(31, &[], path) && owns(31, &[tool], path), "{path}");
            assert!(machine.lists(1, &[]).knows(tool) && !machine.lists(31, &[]).knows(tool), "{path}");
        }
    }

    #[test]
    fn chef_is_known_by_what_it_overwrote() {
        let kept = "etc/apache2/ports.conf.chef-20240101120000.123456";
        let expected = [
            ("/etc/apache2/ports.conf", true, "kept what was there before as"),
            ("/etc/apache2/apache2.conf", true, ""),
        ];
        let run = ("var/chef/cache/chef-client-running.pid", "7");
        Machine::new(&[run, (&format!("var/chef/backup/{kept}"), "")]).check("Chef", &expected);
        let cinc = ("var/cinc/cache/cinc-client-running.pid", "7");
        Machine::new(&[cinc, (&format!("var/cinc/backup/{kept}"), "")]).check("Chef", &expected);
        let config =
            "# file_backup_path \"/x\"\nfile_backup_path '/srv/kept'\nfile_cache_path \"/srv/cache\"\n";
        let run_elsewhere = ("srv/cache/chef-client-running.pid", "7");
        let elsewhere = (&*format!("srv/kept/{kept}"), "");
        Machine::new(&[("etc/chef/client.rb", config), run_elsewhere, elsewhere]).check("Chef", &expected);
        let beside = ("etc/chef/client.rb", "file_backup_path nil\n");
        Machine::new(&[beside, run, (kept, "")]).check("Chef", &expected);
        // It was given up: nobody has run it for a long time.
        let machine = Machine::new(&[run, (&format!("var/chef/backup/{kept}"), "")]);
        let path = Path::new("/etc/apache2/ports.conf");
        assert_eq!(machine.lists(31, &[]).owner(path, true), None);
        assert!(machine.lists(31, &["Chef"]).owner(path, true).is_some());
        assert!(!machine.lists(0, &["Chef"]).knows("Chef"));
    }

    #[test]
    fn salt_is_known_by_its_last_highstate() {
        let states = "\u{81}file_|-conf_|-/etc/apache2/apache2.conf_|-managed\u{7}\
                      file_|-dir_|-/etc/apache2/conf-enabled_|-directory file_|-x_|-/etc/apache2/mods_|-symlink";
        Machine::new(&[(SALT, states)]).check(
            "Salt",
            &[
                ("/etc/apache2/apache2.conf", true, "last highstate"),
                ("/etc/apache2/conf-enabled/new.conf", false, "manages /etc/apache2/conf-enabled"),
                ("/etc/apache2/mods/new.conf", false, ""),
                ("/etc/apache2/apache2", true, ""),
            ],
        );
    }

    #[test]
    fn tuned_owns_its_files_while_it_has_a_profile() {
        Machine::new(&[("etc/tuned/active_profile", "throughput-performance\n")]).check(
            "TuneD",
            &[
                ("/etc/tuned/bootcmdline", true, "profile throughput-performance"),
                ("/etc/modprobe.d/tuned.conf", true, "throughput-performance"),
                ("/etc/apache2/apache2.conf", true, ""),
            ],
        );
        Machine::new(&[("etc/tuned/active_profile", "\n")]).check("TuneD", &[("/etc/tuned/x", true, "")]);
    }

    proptest! {
        // State files of any content are read without a panic, and claim nothing that they do not name.
        #[test]
        fn any_state_is_survived(noise in "[\\[\\]{}\":,a-z/0-9|_ \n-]{0,200}") {
            let machine = Machine::new(&[
                ("var/lib/puppet/client_data/catalog/a.json", &noise),
                ("var/lib/puppet/state/resources.txt", &noise),
                ("etc/chef/client.rb", &format!("file_backup_path {noise}")),
                (SALT, &noise),
            ]);
            let owner = machine.lists(0, &["Chef"]).owner(Path::new("/etc/apache2/UPPER/x.conf"), true);
            prop_assert!(owner.is_none(), "{owner:?}");
        }
    }
}
