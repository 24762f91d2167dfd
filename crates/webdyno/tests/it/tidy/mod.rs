//! Checks on the source: what every file must have, which crates may know each other, which names may not come back, and
//! that nothing is unfinished.

mod names;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// A function fits a screen.
const FUNCTION_LINES_MAX: usize = 60;
/// A file fits a head.
const FILE_LINES_MAX: usize = 600;

/// Which crate may use which: `model <- {load, host, analysis, logs} <- session <- {report, lab} <- {webdyno, evaluation}`.
const EDGES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("load", &["model"]),
    ("host", &["model"]),
    ("analysis", &["model"]),
    ("logs", &["model"]),
    ("session", &["model", "load", "host", "analysis"]),
    ("distributed", &["model", "load", "session"]),
    ("report", &["model", "analysis", "session"]),
    ("lab", &["model", "host", "analysis", "session"]),
    ("evaluation", &["model", "host", "analysis", "session", "report", "lab"]),
    ("webdyno", &["model", "load", "host", "analysis", "logs", "session", "distributed", "report", "lab"]),
];

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rust_files() -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 50, "only {} files were found: is the root right?", found.len());
    found.sort();
    found
}

fn relative_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// All complaints at once: mending one at a time would need as many runs.
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_file_opens_with_its_purpose() {
    let lacks = |path: &PathBuf| !std::fs::read_to_string(path).unwrap().starts_with("//! ");
    let complaints: Vec<_> = rust_files()
        .iter()
        .filter(|path| lacks(path))
        .map(|path| format!("{}: no //! head", relative_path(path)))
        .collect();
    assert_none(&complaints);
}

#[test]
fn files_fit_a_head() {
    let mut complaints = vec![];
    for path in rust_files() {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        if lines > FILE_LINES_MAX {
            complaints.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", relative_path(&path)));
        }
    }
    assert_none(&complaints);
}

struct Functions<'a> {
    file: &'a str,
    complaints: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn check(&mut self, name: &syn::Ident, block: &syn::Block) {
        let lines = block.span().end().line - block.span().start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            self.complaints
                .push(format!("{}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}", self.file));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig.ident, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig.ident, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn functions_fit_a_screen() {
    let mut complaints = vec![];
    for path in rust_files() {
        let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let name = relative_path(&path);
        Functions { file: &name, complaints: &mut complaints }.visit_file(&file);
    }
    assert_none(&complaints);
}

#[test]
fn crates_depend_in_one_direction() {
    let mut complaints = vec![];
    let folders: BTreeSet<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> = EDGES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, listed, "a crate is missing from the list of edges");
    for (name, allowed) in EDGES {
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        let used = dependencies.lines().filter_map(|line| line.strip_prefix("webdyno-")?.split('.').next());
        complaints.extend(
            used.filter(|used| !allowed.contains(used)).map(|used| format!("{name} must not use {used}")),
        );
    }
    assert_none(&complaints);
}

/// A list and the folder beside it: each module of the folder must be named in the list's own file.
#[test]
fn no_file_is_forgotten_in_its_list() {
    let mut complaints = vec![];
    for (folder, list) in
        [("crates/analysis/src/limits", "mod.rs"), ("crates/webdyno/src/commands", "mod.rs")]
    {
        let text = std::fs::read_to_string(root().join(folder).join(list)).unwrap();
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let module = name.trim_end_matches(".rs");
            let needed = match folder.ends_with("limits") {
                true if entry.path().join("finding.rs").exists() => format!("\n    {module} "),
                true => format!("mod {module};"),
                false => format!("pub mod {module};"),
            };
            if name != list && !text.contains(&needed) {
                complaints.push(format!("{folder}/{name}: `{needed}` is missing in {list}"));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn analysis_does_no_input_or_output_and_reads_no_clock() {
    let mut complaints = vec![];
    let [analysis, logs] = ["crates/analysis/src", "crates/logs/src"].map(|folder| root().join(folder));
    let is_pure = |path: &&PathBuf| {
        path.starts_with(&analysis) || (path.starts_with(&logs) && !path.starts_with(logs.join("reading")))
    };
    for path in rust_files().iter().filter(is_pure) {
        let text = std::fs::read_to_string(path).unwrap();
        for forbidden in
            ["std::fs", "std::net", "std::process", "std::time", "Instant::", "SystemTime", "std::env"]
        {
            if text.contains(forbidden) {
                complaints.push(format!("{}: {forbidden}", relative_path(path)));
            }
        }
    }
    assert_none(&complaints);
}

/// The names of facts in this source, without its tests.
fn facts_in(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let is_in_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    let alone = code.split("FactId::").skip(1).map(|rest| rest.chars().take_while(is_in_name).collect());
    let lists = code.split("fact_ids! {").skip(1).flat_map(|rest| rest.split('}').next().unwrap().split(','));
    let listed = lists.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    alone.chain(listed).collect()
}

#[test]
fn what_the_code_of_a_limit_reads_is_registered() {
    assert_eq!(facts_in("[FactId::a] fact_ids! {\n b, c,\n}").len(), 3);
    let limits = root().join("crates/analysis/src/limits");
    let read = |path: &Path| facts_in(&std::fs::read_to_string(path).unwrap());
    let mut complaints = vec![];
    for limit in webdyno_analysis::limits::ALL {
        let folder = limits.join(limit.id.as_str().replace('-', "_"));
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let code = files.filter(|file| !file.ends_with("mod.rs") && !file.ends_with("tests.rs"));
        let named: BTreeSet<_> = code.flat_map(|file| read(&file)).collect();
        let reads: BTreeSet<_> = limit.reads.concat().iter().map(|fact| fact.as_str().to_owned()).collect();
        let registered = read(&folder.join("mod.rs"));
        let missing = (&named - &reads).into_iter().map(|name| format!("{}: it reads {name}", limit.id));
        let unread = &registered - &named;
        complaints.extend(
            missing.chain(unread.iter().map(|name| format!("{}: it does not read {name}", limit.id))),
        );
    }
    assert_none(&complaints);
}

/// Flags of other programs that are named in hints and commands.
const FOREIGN_FLAGS: &[&str] = &[
    "--allow-to-run-as-root",
    "--conf-path",
    "--cpus",
    "--daemonize",
    "--data-binary",
    "--encode",
    "--no-defaults",
    "--direct-io",
    "--dry-run",
    "--error-log-path",
    "--exact",
    "--fpm-config",
    "--host",
    "--http-log-path",
    "--memory",
    "--memory-swap",
    "--no-children",
    "--no-legend",
    "--nocapture",
    "--pdeathsig",
    "--pids-limit",
    "--plain",
    "--ppid",
    "--prefix",
    "--privileged",
    "--property",
    "--protocol",
    "--schemafile",
    "--seeds",
    "--show",
    "--socket",
    "--sort",
    "--stdio",
    "--user",
    "--value",
    "--with",
];

/// The help texts of all commands.
pub fn helps() -> String {
    let help = |command: &str| {
        let program = assert_cmd::cargo::cargo_bin("webdyno");
        let words = command.split_whitespace().chain(["--help"]);
        let output = std::process::Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{command}");
        String::from_utf8(output.stdout).unwrap()
    };
    [
        "",
        "run",
        "check",
        "capacity",
        "sweep",
        "explain",
        "diagnose",
        "observe",
        "tune",
        "quickstart",
        "report",
        "export",
        "compare",
        "predict",
        "size",
        "logs",
        "history",
        "serve",
        "worker",
        "resume",
        "rollback",
        "schema",
        "lab run",
        "lab list",
        "lab up",
        "lab draw",
        "lab exec",
        "lab down",
        "lab host",
        "lab show",
        "agent",
        "lab-load",
        "lab-users",
        "packaging",
        "workload check",
        "workload make-tree",
        "workload from-tree",
        "workload from-urls",
        "workload from-har",
        "workload from-site",
        "workload from-log",
    ]
    .map(help)
    .concat()
}

/// A hint that names a flag which does not exist is worse than none.
#[test]
fn hints_name_only_flags_that_exist() {
    let helps = helps();
    let known: BTreeSet<&str> = flags(&helps).chain(FOREIGN_FLAGS.iter().copied()).collect();
    let mut complaints = vec![];
    // What tests give to programs is no hint.
    let is_product = |path: &&PathBuf| {
        let is_of_tests = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        // The flags of other tools are these tools' own.
        let has = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
        !is_of_tests && has("src") && !has("other_tools")
    };
    for path in rust_files().iter().filter(is_product) {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let unknown = lines.flat_map(flags).filter(|flag| !known.contains(flag));
        complaints.extend(unknown.map(|flag| format!("{}: there is no {flag}", relative_path(path))));
    }
    assert_none(&complaints);
}

/// The long flags in a text: `--` and a name, not inside of a word.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("--").map(|(at, _)| at);
    starts.filter_map(|at| {
        let inside = text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '-');
        let name =
            text[at + 2..].find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(text.len() - at - 2);
        let begins = text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase());
        (!inside && begins).then(|| text[at..at + 2 + name].trim_end_matches('-'))
    })
}

#[test]
fn nothing_is_unfinished() {
    // Put together here, so that this file does not find itself.
    let marks = ["TO", "FIX", "X"].map(|first| {
        format!(
            "{first}{}",
            if first == "TO" {
                "DO"
            } else if first == "FIX" {
                "ME"
            } else {
                "XX"
            }
        )
    });
    let ignored = format!("#[{}]", "ignore");
    let mut complaints = vec![];
    for path in rust_files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = marks.iter().chain([&ignored]).filter(|mark| text.contains(mark.as_str()));
        complaints.extend(found.map(|mark| format!("{}: {mark}", relative_path(&path))));
    }
    assert_none(&complaints);
}
