//! What does an exported change by hand: a shell script and its way back, tasks for Ansible, and a page for those who approve
//! changes.
//!
//! Values come from the server that was tuned: in scripts they stand within quotes, and what no setting can be is refused.

use super::proposals::Proposal;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use webdyno_model::change::{ApplyClass, Change};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::Target;
use webdyno_model::tune::Round;

/// The names of the files.
pub const APPLY: &str = "apply.sh";
pub const UNDO: &str = "undo.sh";
pub const ANSIBLE: &str = "ansible.yml";
pub const TICKET: &str = "ticket.md";

/// What the shell needs to test, reload and restart each service: `(service, functions)`.
const SERVICES: [(&str, &str); 3] = [
    (
        "apache",
        "test_apache() { apachectl configtest; }\nreload_apache() { apachectl graceful; }\n\
         restart_apache() { apachectl stop; sleep 2; apachectl start; }\n",
    ),
    (
        "nginx",
        "test_nginx() { nginx -t; }\nreload_nginx() { nginx -s reload; }\nrestart_nginx() { nginx -s reload; }\n",
    ),
    (
        "php_fpm",
        "fpm_unit() { systemctl list-units --plain --no-legend 'php*fpm*' | awk 'NR==1 {print $1}'; }\n\
         test_php_fpm() { [ -n \"$(fpm_unit)\" ] || { echo 'which unit is PHP-FPM? set it in this script' >&2; return 1; }; }\n\
         reload_php_fpm() { systemctl reload \"$(fpm_unit)\"; }\nrestart_php_fpm() { systemctl restart \"$(fpm_unit)\"; }\n",
    ),
];

/// A text as one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The changes of a set, each setting once with its first and its last value.
fn merged(rounds: &[Round]) -> Vec<Change> {
    let mut all: Vec<Change> = vec![];
    for change in rounds.iter().flat_map(|round| &round.changes) {
        match all.iter_mut().find(|known| known.setting == change.setting) {
            Some(known) => (known.to, known.class) = (change.to.clone(), known.class.max(change.class)),
            None => all.push(change.clone()),
        }
    }
    all
}

/// The services whose files are changed, each with whether it takes a restart.
fn services(changes: &[Change]) -> Vec<(&'static str, &'static str, bool)> {
    let is_of = |name: &str, change: &Change| change.setting.target == Target::Service(name.to_owned());
    let known = SERVICES.iter().filter(|(name, _)| changes.iter().any(|change| is_of(name, change)));
    let restarts =
        |name: &str| changes.iter().any(|change| is_of(name, change) && change.class >= ApplyClass::Restart);
    known.map(|(name, text)| (*name, *text, restarts(name))).collect()
}

/// The unit that a file adds to (systemd.unit(5)).
fn unit_of(file: &str) -> Option<&str> {
    let folder = Path::new(file).parent()?.file_name()?.to_str()?;
    folder.strip_suffix(".d").filter(|unit| unit.ends_with(".service"))
}

/// The line that has systemd know of a limit that was added to a unit, and says what it does not do for what runs: of its
/// limits it gives that of tasks alone to what runs.
fn limit(service: &str, change: &Change, value: &str) -> String {
    let (name, unit) = (&change.setting.name, unit_of(&change.file));
    let by_hand = match unit {
        None if change.file.starts_with("/etc/") => format!("{service}: {name} {value} from its next start"),
        None => format!("{service}: {name} {value} by hand, where it is started"),
        Some(_) if name == "TasksMax" => return "systemctl daemon-reload".into(),
        Some(unit) => {
            format!("{unit}: {name} {value} from its next start; of a process that runs: prlimit(1)")
        }
    };
    let reload = unit.map_or("", |_| "systemctl daemon-reload; ");
    format!("{reload}echo {}", quoted(&by_hand))
}

/// The line that gives a running holder a value; `None` for values that files alone hold.
fn live(change: &Change, value: &SettingValue) -> Option<String> {
    let (name, value) = (&change.setting.name, value.to_string());
    let is_plain =
        name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && !value.contains(['\n', '\r']);
    let line = match &change.setting.target {
        Target::Sysctl => format!("sysctl -w {}", quoted(&format!("{name}={value}"))),
        Target::Service(service) if service == "mariadb" => {
            let value =
                if value.parse::<f64>().is_ok() { value } else { format!("'{}'", value.replace('\'', "''")) };
            format!("mariadb -e {}", quoted(&format!("SET GLOBAL {name} = {value}")))
        }
        Target::ProcessLimit(service) => limit(service, change, &value),
        _ => return None,
    };
    is_plain.then_some(line)
}

/// The script that makes the change, or takes it back.
pub fn script(rounds: &[Round], has_files: bool, diff: &str, is_undo: bool) -> String {
    let changes = merged(rounds);
    let services = services(&changes);
    let mut out = String::from("#!/bin/sh\n");
    let what = if is_undo {
        "Takes back what apply.sh made"
    } else {
        "Makes the change of this directory by hand; undo.sh takes it back"
    };
    let _ = write!(
        out,
        "# {what}. Written by webdyno; read it first.\nset -eu\ncd \"$(dirname \"$0\")\"\nROOT=${{ROOT:-/}}\n"
    );
    services.iter().for_each(|(_, functions, _)| out.push_str(functions));
    let reverse = if is_undo { " -R" } else { "" };
    if has_files {
        let _ = write!(
            out,
            "\n# Nothing is written unless all of it fits.\npatch{reverse} -p1 -d \"$ROOT\" --dry-run < {diff} > /dev/null\n\
             patch{reverse} -p1 -d \"$ROOT\" < {diff}\n"
        );
    }
    for (name, ..) in &services {
        let back = if is_undo { " -p1" } else { " -R -p1" };
        let _ = writeln!(
            out,
            "test_{name} || {{ patch{back} -d \"$ROOT\" < {diff}; echo '{name} rejects it: the files are as before' >&2; exit 1; }}"
        );
    }
    let ordered: Vec<&Change> =
        if is_undo { changes.iter().rev().collect() } else { changes.iter().collect() };
    for change in ordered {
        let value = if is_undo { change.from.as_ref() } else { Some(&change.to) };
        if let Some(line) = value.and_then(|value| live(change, value)) {
            let _ = writeln!(out, "{line}");
        }
    }
    for (name, _, restarts) in &services {
        let _ = writeln!(out, "{}_{name}", if *restarts { "restart" } else { "reload" });
    }
    out
}

/// Tasks for Ansible: files, values of running holders, and handlers.
pub fn ansible(rounds: &[Round], files: &[&str]) -> String {
    let changes = merged(rounds);
    let services = services(&changes);
    // JSON is YAML, and quotes whatever stands in it.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let mut out = String::from(
        "# Written by webdyno: include it in a play, with `become`.\n- hosts: all\n  become: true\n  tasks:\n",
    );
    let notify: BTreeSet<String> = services.iter().map(|(name, ..)| format!("reload {name}")).collect();
    for path in files {
        if let (Some(_), Some(folder)) = (unit_of(path), Path::new(path).parent().and_then(Path::to_str)) {
            let _ = write!(
                out,
                "    - name: {}\n      ansible.builtin.file:\n        path: {}\n        state: directory\n",
                text(&format!("webdyno: {folder}")),
                text(folder)
            );
        }
        let _ = write!(
            out,
            "    - name: {}\n      ansible.builtin.copy:\n        src: {}\n        dest: {}\n        backup: true\n",
            text(&format!("webdyno: {path}")),
            text(path.trim_start_matches('/')),
            text(path)
        );
        if !notify.is_empty() {
            let all: Vec<String> = notify.iter().map(|handler| text(handler)).collect();
            let _ = writeln!(out, "      notify: [{}]", all.join(", "));
        }
    }
    for (change, line) in changes.iter().filter_map(|change| Some((change, live(change, &change.to)?))) {
        let _ = write!(
            out,
            "    - name: {}\n      ansible.builtin.shell: {}\n",
            text(&format!("webdyno: {} {}", change.setting.full_name(), change.to)),
            text(&line)
        );
    }
    if files.is_empty() && changes.iter().all(|change| live(change, &change.to).is_none()) {
        out.push_str("    []\n");
    }
    if !services.is_empty() {
        out.push_str("  handlers:\n");
    }
    for (name, functions, restarts) in &services {
        let act = if *restarts { "restart" } else { "reload" };
        let line =
            format!("{}test_{name} && {act}_{name}", functions.replace('\n', "; ").replace("; ;", ";"));
        let _ = write!(out, "    - name: reload {name}\n      ansible.builtin.shell: {}\n", text(&line));
    }
    out
}

/// The page for those who approve changes.
pub fn ticket(rounds: &[Round], proposed: &[Proposal]) -> String {
    let changes = merged(rounds);
    let title: Vec<String> = match rounds {
        [] => proposed.iter().map(|proposal| proposal.property.clone()).collect(),
        _ => changes.iter().map(|change| format!("{} {}", change.setting.full_name(), change.to)).collect(),
    };
    let none = if rounds.is_empty() { "none; proposed: " } else { "" };
    let mut out = format!("# Change: {none}{}\n", title.join(", "));
    for round in rounds {
        let _ = write!(out, "\n## Reason ({})\n{}\n\n## Change\n", round.finding, round.summary);
        for change in &round.changes {
            let from = change.from.as_ref().map_or_else(|| "unset".to_owned(), ToString::to_string);
            let _ = writeln!(
                out,
                "- `{}`: {from} -> {} in `{}`",
                change.setting.full_name(),
                change.to,
                change.file
            );
        }
        let _ = writeln!(out, "\n## Expected effect\n{}", effect(round));
        let risk = round.risk.as_deref().unwrap_or("not known");
        let outage = match (round.changes.iter().map(|change| change.class).max(), round.outage_us) {
            (_, Some(us)) => format!("measured: {} ms", us / 1000),
            (Some(ApplyClass::Live | ApplyClass::Reload), None) => "none expected".into(),
            (_, None) => "a moment (restart)".to_owned(),
        };
        let _ = writeln!(out, "\n## Risk\n{risk}\n\n## Downtime\n{outage}");
    }
    proposed.iter().for_each(|proposal| out.push_str(&proposal.ticket()));
    if rounds.is_empty() {
        return out;
    }
    let _ = write!(
        out,
        "\n## Implementation\n`sh {APPLY}` in this directory, or the tasks of `{ANSIBLE}`. The script touches no file that does not fit, and \
         takes back a configuration that its program rejects; the tasks replace the files as a whole, keep a copy of each, and do not \
         reload what its program rejects.\n\n## Rollback\n`sh {UNDO}`\n\n## Verification\nMeasure again as before the \
         change: `webdyno tune` without `--apply`, or `webdyno diagnose`, with the same load.\n"
    );
    out
}

fn effect(round: &Round) -> String {
    match (round.ratio, round.ci95, &round.predicted) {
        (Some(ratio), Some([low, high]), _) => {
            format!("Measured: {ratio:.2} times the rate (95% interval {low:.2} to {high:.2}).")
        }
        (_, _, Some(predicted)) => format!(
            "Expected: {:.0} req/s (95% interval {:.0} to {:.0}).",
            predicted.rate, predicted.ci95[0], predicted.ci95[1]
        ),
        _ => "Not predicted: measure before and after.".into(),
    }
}
