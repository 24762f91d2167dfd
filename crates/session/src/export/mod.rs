//! Plans as files, for people who take a change over by hand or through what manages their server: each file as it
//! should be, a diff for patch(1), scripts that make and take back the change, and pages that say what it is. What only a
//! person decides lies beside them as proposals.
//!
//! The diff is the `-p1` form of patch(1): names begin with `a/` and `b/`, a new file comes from /dev/null. It is made
//! from whole texts and must fit them to the byte, so nothing in it is replaced as in the diff of the report; only its
//! owner may read it.

mod proposals;
mod scripts;

use proposals::Proposal;
use similar::TextDiff;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use webdyno_model::change::{ApplyClass, Change, FileEdit, ManagedFile, RenderedPlan};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::error::io_error;
use webdyno_model::tune::Round;
use webdyno_model::{Result, UserError};

/// The diff beside the files.
const DIFF: &str = "change.diff";
/// The page that explains them.
const README: &str = "README.txt";

/// A directory that plans are written to at the end of a session.
#[derive(Debug)]
pub struct Export {
    directory: PathBuf,
    sets: Vec<CompatiblePlans>,
    proposals: Vec<Proposal>,
}

/// Plans that fit together.
#[derive(Debug, Default)]
struct CompatiblePlans {
    /// The role of the host that they are for; `None` for the one under load.
    server: Option<String>,
    files: Vec<FileEdit>,
    rounds: Vec<Round>,
}

impl Export {
    /// Takes a directory that does not exist yet, or is empty. Errors are those of usage.
    pub fn begin(directory: &Path) -> Result<Self> {
        let displayed = directory.display();
        let wrong = |what: String| UserError::usage(what).hint("--export takes a new or empty directory");
        match fs::read_dir(directory) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(wrong(format!(
                        "{displayed} is not empty, and an export would mix with what is there"
                    )));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
                made.map_err(|error| wrong(format!("cannot create {displayed}: {error}")))?;
            }
            Err(error) => return Err(wrong(format!("cannot export to {displayed}: {error}"))),
        }
        let probe = directory.join(README);
        let tried = create(&probe, "").and_then(|()| fs::remove_file(&probe));
        tried.map_err(|error| wrong(format!("cannot write to {displayed}: {error}")))?;
        Ok(Self { directory: directory.to_owned(), sets: vec![], proposals: vec![] })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a plan. One that starts from what the last ones made goes on with them; one that changes the same files in
    /// another way, or is for another host, gets a directory of its own.
    pub fn add(&mut self, plan: &RenderedPlan, round: &Round) {
        let server = plan.server();
        let fitting = self
            .sets
            .iter_mut()
            .find(|set| set.server.as_deref() == server && plan.files.iter().all(|edit| set.fits(edit)));
        let set = match fitting {
            Some(set) => set,
            None => {
                let server = server.map(str::to_owned);
                self.sets.push(CompatiblePlans { server, ..CompatiblePlans::default() });
                let last = self.sets.len() - 1;
                &mut self.sets[last]
            }
        };
        for edit in &plan.files {
            match set.files.iter_mut().find(|known| known.path == edit.path) {
                Some(known) => known.after.clone_from(&edit.after),
                None => set.files.push(edit.clone()),
            }
        }
        set.rounds.push(round.clone());
    }

    /// Adds what only a person decides, where there is a file for it: a quota of the group of the service that this unit runs.
    /// The last word on a quota counts.
    pub fn propose(&mut self, finding: &Finding, remedy: &Remedy, unit: Option<&str>) {
        let Some(proposal) = Proposal::of(finding, remedy, unit) else { return };
        self.proposals.retain(|known| !proposal.replaces(known));
        self.proposals.push(proposal);
    }

    /// Writes everything.
    pub fn write(&self) -> Result<()> {
        for (index, set) in self.sets.iter().enumerate() {
            let (place, proposed) = match index {
                0 => (self.directory.clone(), &self.proposals[..]),
                _ => (self.directory.join(set.name()), &[][..]),
            };
            set.write(&place, proposed)?;
        }
        let mut files: Vec<(String, String)> =
            self.proposals.iter().map(|proposal| (proposal.path(), proposal.text())).collect();
        if self.sets.is_empty() && !self.proposals.is_empty() {
            files.push((scripts::TICKET.to_owned(), scripts::ticket(&[], &self.proposals)));
        }
        files.push((README.to_owned(), self.readme()));
        for (name, text) in files {
            let path = self.directory.join(name);
            create(&path, &text).map_err(|error| io_error("write", path.display(), &error))?;
        }
        Ok(())
    }

    fn readme(&self) -> String {
        let mut page = readme(self.sets.first(), self.sets.get(1..).unwrap_or_default());
        for proposal in &self.proposals {
            let _ = writeln!(
                page,
                "\nProposed, and not carried out by the scripts: {}, as {}",
                proposal.property,
                proposal.path()
            );
        }
        page
    }
}

impl CompatiblePlans {
    /// Whether an edit starts from where this set leaves the file.
    fn fits(&self, edit: &FileEdit) -> bool {
        let known = self.files.iter().find(|known| known.path == edit.path);
        known.is_none_or(|known| edit.before.as_ref() == Some(&known.after))
    }

    fn name(&self) -> String {
        let on = self.server.as_ref().map(|role| format!("on-{role}-")).unwrap_or_default();
        format!("{on}round-{}", self.rounds.first().map_or(0, |round| round.n))
    }

    fn write(&self, place: &Path, proposed: &[Proposal]) -> Result<()> {
        for edit in &self.files {
            let path = place.join(relative(&edit.path)?);
            create(&path, &edit.after).map_err(|error| io_error("write", path.display(), &error))?;
        }
        let paths: Vec<&str> = self.files.iter().map(|edit| edit.path.as_str()).collect();
        let script = |is_undo| scripts::script(&self.rounds, !self.files.is_empty(), DIFF, is_undo);
        for (name, text) in [
            (DIFF, self.diff()),
            (scripts::APPLY, script(false)),
            (scripts::UNDO, script(true)),
            (scripts::ANSIBLE, scripts::ansible(&self.rounds, &paths)),
            (scripts::TICKET, scripts::ticket(&self.rounds, proposed)),
        ] {
            let path = place.join(name);
            create(&path, &text).map_err(|error| io_error("write", path.display(), &error))?;
        }
        Ok(())
    }

    fn diff(&self) -> String {
        self.files.iter().map(diff).collect()
    }
}

/// The diff of one file.
fn diff(edit: &FileEdit) -> String {
    let before = edit.before.as_deref().unwrap_or_default();
    let name = |side: &str| {
        // A tab ends a name in which patch(1) would take a blank for its end.
        let end = if edit.path.contains(char::is_whitespace) { "\t" } else { "" };
        format!("{side}{}{end}", edit.path)
    };
    let from = if edit.before.is_some() { name("a") } else { "/dev/null".to_owned() };
    TextDiff::from_lines(before, &edit.after)
        .unified_diff()
        .context_radius(3)
        .header(&from, &name("b"))
        .to_string()
}

/// The path of a file below the directory. It comes from the agent, which may be another machine's.
fn relative(path: &str) -> Result<&Path> {
    let below = Path::new(path).strip_prefix("/").ok();
    let plain = |path: &&Path| {
        path.file_name().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
    };
    let own =
        [DIFF, README, scripts::APPLY, scripts::UNDO, scripts::ANSIBLE, scripts::TICKET, proposals::FOLDER];
    let named = |path: &&Path| !own.iter().any(|own| path.starts_with(own));
    below.filter(plain).filter(named).ok_or_else(|| {
        UserError::cannot_run(format!("`{path}` cannot be exported: it is no plain absolute path"))
    })
}

/// Creates a file that must not be there yet, with its directories; only its owner may read it.
fn create(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// The page: what, why, how it takes effect, how to undo it.
fn readme(set: Option<&CompatiblePlans>, others: &[CompatiblePlans]) -> String {
    let Some(set) = set else {
        return "webdyno planned no change: nothing was found that it could improve by writing files.\n"
            .into();
    };
    let mut out = String::from(
        "A change that webdyno prepared. Each file lies here as it should be, below its own path.\n",
    );
    for round in &set.rounds {
        let _ = write!(out, "\nWhat, in round {}\n", round.n);
        round.changes.iter().for_each(|change| changed(&mut out, change));
        let _ = write!(out, "Why\n  {} ({})\n{}", round.summary, round.finding, proof(round));
        let class = round.changes.iter().map(|change| change.class).max();
        let _ = writeln!(out, "How it takes effect\n  {}", effect(class));
        for ManagedFile { path, by, why } in &round.managed {
            let _ = writeln!(out, "Whose it is\n  {path} is managed by {by} ({why}): make the change there");
        }
        for why in &round.to_decide {
            let _ = writeln!(out, "Manual change\n  {why}");
        }
    }
    let _ = write!(
        out,
        "\nTo take it over by hand\n  sh {apply}, or patch -p1 -d / < {DIFF}\n\
         To undo it\n  sh {undo}, or patch -R -p1 -d / < {DIFF}\n\
         After patch test the configuration, and let it take effect, as above.\n\
         {ansible} does the same with Ansible; {ticket} is a page for those who approve changes.\n",
        apply = scripts::APPLY,
        undo = scripts::UNDO,
        ansible = scripts::ANSIBLE,
        ticket = scripts::TICKET,
    );
    if set.rounds.iter().any(|round| round.kept) {
        out.push_str(
            "What webdyno carried out itself stands in its report; `webdyno rollback` undoes that.\n",
        );
    }
    for other in others {
        let what = match &other.server {
            Some(role) if other.server != set.server => format!("a change of the host {role}"),
            _ if other.server != set.server => "a change of the host under load".to_owned(),
            _ => {
                "another change of the same files: it starts from what they hold without this one".to_owned()
            }
        };
        let _ = writeln!(out, "\n{} is {what}.", other.name());
    }
    out
}

fn changed(out: &mut String, Change { setting, from, to, file, server, .. }: &Change) {
    let on = server.as_ref().map(|role| format!(" on the host {role}")).unwrap_or_default();
    let (setting, from) =
        (setting.full_name(), from.as_ref().map_or_else(|| "unset".to_owned(), ToString::to_string));
    let _ = writeln!(out, "  {setting} {from} -> {to}, in {file}{on}");
}

fn proof(round: &Round) -> String {
    match (round.ratio, round.ci95, &round.predicted) {
        (Some(ratio), Some([low, high]), _) => {
            format!("  measured: {ratio:.2} times the rate, 95% interval {low:.2} to {high:.2}\n")
        }
        (_, _, Some(predicted)) => format!("  expected: {:.0} req/s\n", predicted.rate),
        _ => String::new(),
    }
}

fn effect(class: Option<ApplyClass>) -> &'static str {
    match class {
        Some(ApplyClass::Live) => "at once",
        Some(ApplyClass::Reload) => {
            "by a graceful reload; for Apache: apachectl configtest && apachectl graceful"
        }
        Some(ApplyClass::Restart) => {
            "by restart, with downtime; for Apache: apachectl configtest && apachectl stop, then apachectl start"
        }
        Some(ApplyClass::Manual) | None => "by a restart through what supervises the service",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    pub(super) fn plan(files: &[(&str, Option<&str>, &str)]) -> RenderedPlan {
        let edit = |(path, before, after): &(&str, Option<&str>, &str)| FileEdit {
            path: (*path).into(),
            before_sha256: before.map(|_| "0".into()),
            before: before.map(str::to_owned),
            after: (*after).into(),
        };
        let files = files.iter().map(edit).collect();
        RenderedPlan { files, class: ApplyClass::Reload, ..RenderedPlan::live(vec![], String::new()) }
    }

    pub(super) fn round(n: u32) -> Round {
        let change = Change {
            setting: SettingId::of_service("apache", "Timeout"),
            from: None,
            to: SettingValue::Integer(5),
            file: "/etc/a.conf".into(),
            class: ApplyClass::Reload,
            server: None,
        };
        Round {
            n,
            finding: "apache-workers-exhausted".into(),
            summary: "All workers are busy.".into(),
            changes: vec![change],
            ..Round::default()
        }
    }

    fn exported(plans: &[RenderedPlan]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut export = Export::begin(&folder.path().join("x/y")).unwrap();
        for (plan, n) in plans.iter().zip(1..) {
            export.add(plan, &round(n));
        }
        export.write().unwrap();
        folder
    }

    pub(super) fn read(folder: &tempfile::TempDir, name: &str) -> Option<String> {
        fs::read_to_string(folder.path().join("x/y").join(name)).ok()
    }

    #[test]
    fn files_diff_and_page_are_for_their_owner_only() {
        let before = "A 1\nSetEnv DB_PASSWORD hunter2\nTimeout 60";
        let after = before.replace("60", "5");
        let plan = plan(&[("/etc/a.conf", Some(before), &after), ("/etc/b c/new.conf", None, "B 1\n")]);
        let folder = exported(&[plan]);
        assert_eq!(read(&folder, "etc/a.conf").as_ref(), Some(&after));
        assert_eq!(read(&folder, "etc/b c/new.conf").as_deref(), Some("B 1\n"));
        let diff = "--- a/etc/a.conf\n+++ b/etc/a.conf\n@@ -1,3 +1,3 @@\n A 1\n SetEnv DB_PASSWORD hunter2\n\
                    -Timeout 60\n\\ No newline at end of file\n+Timeout 5\n\\ No newline at end of file\n\
                    --- /dev/null\n+++ b/etc/b c/new.conf\t\n@@ -0,0 +1 @@\n+B 1\n";
        assert_eq!(read(&folder, DIFF).as_deref(), Some(diff));
        let page = read(&folder, README).unwrap();
        for part in
            ["apache Timeout unset -> 5, in /etc/a.conf", "All workers are busy", "graceful", "patch -R"]
        {
            assert!(page.contains(part), "no `{part}` in:\n{page}");
        }
        for (name, mode) in
            [("", 0o700), ("etc", 0o700), ("etc/a.conf", 0o600), (DIFF, 0o600), (README, 0o600)]
        {
            let found = fs::metadata(folder.path().join("x/y").join(name)).unwrap();
            assert_eq!(found.mode() & 0o777, mode, "{name}");
        }
    }

    /// With a stub for what tests and reloads Apache, on a root of its own.
    #[test]
    fn the_scripts_make_the_change_and_take_it_back() {
        let before = "A 1\nTimeout 60\n";
        let plan =
            plan(&[("/etc/a.conf", Some(before), "A 1\nTimeout 5\n"), ("/etc/new.conf", None, "B 1\n")]);
        let folder = exported(&[plan]);
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/a.conf"), before).unwrap();
        let stub = |exit: &str| {
            let text =
                format!("#!/bin/sh\necho \"$1\" >> {}\n{exit}\n", folder.path().join("said").display());
            let path = folder.path().join("apachectl");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let run = |name: &str| {
            let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
            let mut command = std::process::Command::new("sh");
            command.arg(folder.path().join("x/y").join(name)).env("ROOT", &root).env("PATH", path);
            command.output().unwrap()
        };
        let state = || {
            let text = |name: &str| fs::read_to_string(root.join(name)).ok();
            (text("etc/a.conf").unwrap(), text("etc/new.conf"))
        };
        let original = (before.to_owned(), None);
        stub("exit 1");
        let refused = run("apply.sh");
        assert!(!refused.status.success() && state() == original, "{refused:?} {:?}", state());
        stub("exit 0");
        let made = run("apply.sh");
        assert!(made.status.success(), "{made:?}");
        assert_eq!(state(), ("A 1\nTimeout 5\n".into(), Some("B 1\n".into())));
        let again = run("apply.sh");
        assert!(!again.status.success(), "what is there already does not fit: {again:?}");
        assert!(run("undo.sh").status.success());
        assert_eq!(state(), original);
        let said = fs::read_to_string(folder.path().join("said")).unwrap();
        assert_eq!(said, "configtest\nconfigtest\ngraceful\nconfigtest\ngraceful\n");
        let tasks = read(&folder, "ansible.yml").unwrap();
        for part in [
            "dest: \"/etc/a.conf\"",
            "src: \"etc/a.conf\"",
            "notify: [\"reload apache\"]",
            "- name: reload apache",
        ] {
            assert!(tasks.contains(part), "no `{part}` in:\n{tasks}");
        }
        let ticket = read(&folder, "ticket.md").unwrap();
        assert!(
            ticket.starts_with("# Change: apache Timeout 5\n") && ticket.contains("sh undo.sh"),
            "{ticket}"
        );
    }

    #[test]
    fn values_of_running_holders_are_quoted() {
        let change = |setting: SettingId, from: &str, to: &str| Change {
            setting,
            from: Some(SettingValue::parse(from)),
            to: SettingValue::parse(to),
            file: "/x".into(),
            class: ApplyClass::Live,
            server: None,
        };
        const ADDED: &str = "/etc/systemd/system/nginx.service.d/zzz-webdyno.conf";
        let changes = vec![
            change(SettingId::sysctl("net.ipv4.ip_local_port_range"), "32768 60999", "1024 65535"),
            change(SettingId::of_service("mariadb", "max_connections"), "20", "129"),
            change(SettingId::of_service("mariadb", "sql_mode"), "A", "a'; rm x"),
            change(SettingId::of_service("mariadb", "x = 1; DROP"), "1", "2"),
            change(SettingId::of_service("apache", "LimitNOFILE"), "160", "8192"),
            Change {
                file: ADDED.into(),
                ..change(SettingId::of_service("nginx", "LimitNOFILE"), "1024", "4096")
            },
            Change { file: ADDED.into(), ..change(SettingId::of_service("nginx", "TasksMax"), "32", "240") },
        ];
        let rounds = [Round { changes, ..round(1) }];
        let made = scripts::script(&rounds, false, DIFF, false);
        for line in [
            "sysctl -w 'net.ipv4.ip_local_port_range=1024 65535'",
            "mariadb -e 'SET GLOBAL max_connections = 129'",
            r"mariadb -e 'SET GLOBAL sql_mode = '\''a'\'''\''; rm x'\'''",
            "echo 'apache: LimitNOFILE 8192 by hand, where it is started'",
            "systemctl daemon-reload; echo 'nginx.service: LimitNOFILE 4096 from its next start; of a process that runs: prlimit(1)'",
            "systemctl daemon-reload",
        ] {
            assert!(made.lines().any(|own| own == line), "no `{line}` in:\n{made}");
        }
        assert!(!made.contains("patch") && !made.contains("x = 1"), "{made}");
        let undone = scripts::script(&rounds, false, DIFF, true);
        let position = |part: &str| undone.find(part).unwrap();
        assert!(position("max_connections = 20") < position("ip_local_port_range=32768 60999"), "{undone}");
        // Copying makes no folder.
        let tasks = scripts::ansible(&rounds, &[ADDED]);
        assert!(tasks.contains("path: \"/etc/systemd/system/nginx.service.d\""), "{tasks}");
    }

    #[test]
    fn plans_go_on_with_each_other_or_stand_apart() {
        let first = plan(&[("/a", Some("1\n"), "2\n")]);
        let next = plan(&[("/a", Some("2\n"), "3\n"), ("/b", None, "b\n")]);
        let other = plan(&[("/a", Some("1\n"), "9\n")]);
        let folder = exported(&[first, next, other]);
        assert_eq!(read(&folder, "a").as_deref(), Some("3\n"));
        assert!(read(&folder, DIFF).unwrap().contains("-1\n+3\n"));
        assert_eq!(read(&folder, "round-3/a").as_deref(), Some("9\n"));
        assert!(read(&folder, "round-3/change.diff").unwrap().contains("-1\n+9\n"));
        assert!(read(&folder, README).unwrap().contains("round-3 is another change"));
        assert_eq!(read(&folder, "b").as_deref(), Some("b\n"));
    }

    #[test]
    fn whose_a_file_is_stands_on_the_page() {
        let managed =
            ManagedFile { path: "/a".into(), by: "Puppet".into(), why: "it is in its catalog".into() };
        let folder = tempfile::tempdir().unwrap();
        let mut export = Export::begin(&folder.path().join("x/y")).unwrap();
        export.add(&plan(&[("/a", None, "1\n")]), &Round { managed: vec![managed], ..round(1) });
        export.write().unwrap();
        assert!(
            read(&folder, README).unwrap().contains("/a is managed by Puppet (it is in its catalog): make")
        );
        assert!(read(&exported(&[]), README).unwrap().contains("planned no change"));
    }

    #[test]
    fn a_directory_that_does_not_fit_is_wrong_usage() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        fs::create_dir(folder.path().join("full")).unwrap();
        fs::write(folder.path().join("full/x"), "").unwrap();
        for (name, good) in
            [("new/deep", true), ("empty", true), ("full", false), ("full/x", false), ("full/x/y", false)]
        {
            let begun = Export::begin(&folder.path().join(name));
            assert_eq!(begun.is_ok(), good, "{name}: {begun:?}");
            let reported = begun.err().is_none_or(|error| error.exit_code() == 2 && error.hint.is_some());
            assert!(reported, "{name}");
        }
        assert_eq!(fs::read_to_string(folder.path().join("full/x")).unwrap(), "");
    }

    #[test]
    fn nothing_is_written_outside_of_the_directory() {
        for path in
            ["../x", "/../x", "/etc/../../x", "x", "/", "/change.diff", "/README.txt/x", "/proposals/x"]
        {
            let folder = tempfile::tempdir().unwrap();
            let mut export = Export::begin(&folder.path().join("d")).unwrap();
            export.add(&plan(&[(path, None, "x")]), &round(1));
            let error = export.write().unwrap_err();
            assert!(error.message.contains("cannot be exported"), "{path}: {error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{path}");
        }
    }
}
