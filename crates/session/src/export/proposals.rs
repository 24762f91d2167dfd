//! What only a person decides, as files to commit: quotas of the control group that the service runs in. The scripts beside
//! them carry out none of it.
//!
//! Facts: systemd.resource-control(5) (`CPUQuota=`, `MemoryMax=`), systemd.unit(5) (drop-ins),
//! Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max), docker-container-update(1).

use webdyno_analysis::limits::LimitId;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::Target;

/// The folder that they lie in.
pub const FOLDER: &str = "proposals";

/// A unit where the service's own is not known.
const SOME_UNIT: &str = "UNIT.service";

/// A quota, and how it is raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// `cpus`, `memory`.
    name: &'static str,
    /// As a drop-in of systemd has it.
    pub property: String,
    /// Without systemd, a command each.
    others: [String; 2],
    unit: String,
    finding: String,
    summary: String,
    why: String,
    risk: String,
}

impl Proposal {
    /// Of a remedy for a limit of the group that the unit's processes are in; `None` where it is about something else.
    pub fn of(finding: &Finding, remedy: &Remedy, unit: Option<&str>) -> Option<Self> {
        let number = |value: &Option<SettingValue>| value.as_ref()?.number().filter(|value| *value > 0.0);
        let (_, to) = number(&remedy.from).zip(number(&remedy.to))?;
        let is_of = |limit: LimitId, name: &str| {
            remedy.setting.target == Target::Hardware && remedy.setting.name == name && finding.id == limit
        };
        let command = |value: String, file: &str| format!("echo '{value}' > /sys/fs/cgroup/GROUP/{file}");
        let (name, property, others) = if is_of(LimitId::CpuThrottled, "cpus") {
            let group = command(format!("{:.0} 100000", (to * 1e5).round()), "cpu.max");
            let percent = ((to * 1000.0).round() / 10.0).ceil();
            (
                "cpus",
                format!("CPUQuota={percent:.0}%"),
                [group, format!("docker update --cpus {to} CONTAINER")],
            )
        } else if is_of(LimitId::MemoryExhausted, "memory") {
            let docker = format!("docker update --memory {to:.0} --memory-swap {to:.0} CONTAINER");
            ("memory", format!("MemoryMax={to:.0}"), [command(format!("{to:.0}"), "memory.max"), docker])
        } else {
            return None;
        };
        // It names a file here, and comes from the server.
        let is_plain = |unit: &&str| {
            unit.ends_with(".service")
                && unit.chars().all(|c| c.is_ascii_alphanumeric() || "_.@:-\\".contains(c))
        };
        Some(Self {
            name,
            property,
            others,
            unit: unit.filter(is_plain).unwrap_or(SOME_UNIT).to_owned(),
            finding: finding.id.clone(),
            summary: finding.summary.clone(),
            why: remedy.why.clone(),
            risk: remedy.risk.clone(),
        })
    }

    /// Whether it is about the same quota.
    pub fn replaces(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// Its file, below the directory of the export.
    pub fn path(&self) -> String {
        format!("{FOLDER}{}", self.place())
    }

    /// Where that belongs.
    fn place(&self) -> String {
        format!("/etc/systemd/system/{}.d/zzz-webdyno-{}.conf", self.unit, self.name)
    }

    /// The drop-in.
    pub fn text(&self) -> String {
        let comment = |text: &str| format!("# {}\n", text.replace(['\r', '\n'], " "));
        let [group, docker] = &self.others;
        let lines = [
            "A PROPOSAL of webdyno, for a person to decide: no script of this directory carries it out.",
            &format!("Why ({}): {} {}", self.finding, self.summary, self.why),
            &format!("Risk: {}", self.risk),
            &format!(
                "To carry it out: as {}, then systemctl daemon-reload; to undo: remove it, and the same.",
                self.place()
            ),
            &format!("If no unit sets the quota: {group}"),
            &format!("or: {docker}"),
        ];
        let head: String = lines.iter().map(|line| comment(line)).collect();
        format!("{head}[Service]\n{}\n", self.property)
    }

    /// Its part of the ticket.
    pub fn ticket(&self) -> String {
        let [group, docker] = &self.others;
        format!(
            "\n## Proposed, and not carried out by the scripts: {property}\n{} ({}). {}\n\nRisk: {}\n\nTo carry it out: `{}` as `{}`, then \
             `systemctl daemon-reload`; if no unit sets the quota, `{group}` or `{docker}`. To undo it: remove the file, and the same.\n",
            self.summary,
            self.finding,
            self.why,
            self.risk,
            self.path(),
            self.place(),
            property = self.property,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{plan, read, round};
    use super::super::{DIFF, Export, README};
    use super::*;
    use webdyno_model::change::ApplyClass;
    use webdyno_model::setting::SettingId;

    /// A quota that a group has used up, raised from so much to that.
    fn propose(export: &mut Export, limit: &str, (name, from, to): (&str, f64, f64), unit: Option<&str>) {
        let remedy = Remedy {
            setting: SettingId::hardware(name),
            from: Some(SettingValue::parse(&from.to_string())),
            to: Some(SettingValue::parse(&to.to_string())),
            class: ApplyClass::Manual,
            risk: "others have less".into(),
            why: "it is used up".into(),
            predicted: None,
            together_with: vec![],
        };
        let finding = Finding {
            id: limit.into(),
            summary: "The service is\nthrottled.".into(),
            confidence: 0.9,
            ..Finding::default()
        };
        export.propose(&finding, &remedy, unit);
    }

    #[test]
    fn quotas_are_proposed_beside_what_the_scripts_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut export = Export::begin(&folder.path().join("x/y")).unwrap();
        export.add(&plan(&[("/a", None, "1\n")]), &round(1));
        propose(&mut export, "cpu-throttled", ("cpus", 0.1, 0.2), Some("apache2.service"));
        propose(&mut export, "cpu-throttled", ("cpus", 0.1, 0.275), Some("apache2.service"));
        propose(&mut export, "memory-exhausted", ("memory", 4e8, 536_870_912.0), Some("../../x.service"));
        // Of the machine's memory no quota speaks.
        propose(&mut export, "working-set-exceeds-memory", ("memory", 4e8, 6e8), None);
        export.write().unwrap();
        let cpus =
            read(&folder, "proposals/etc/systemd/system/apache2.service.d/zzz-webdyno-cpus.conf").unwrap();
        assert!(cpus.ends_with("\n[Service]\nCPUQuota=28%\n"), "{cpus}");
        let is_comment = |line: &str| line.starts_with('#');
        assert_eq!(cpus.lines().filter(|line| !is_comment(line)).count(), 2, "{cpus}");
        assert!(cpus.contains("echo '27500 100000' > /sys/fs/cgroup/GROUP/cpu.max"), "{cpus}");
        let memory =
            read(&folder, "proposals/etc/systemd/system/UNIT.service.d/zzz-webdyno-memory.conf").unwrap();
        assert!(memory.ends_with("\nMemoryMax=536870912\n"), "{memory}");
        for name in ["ticket.md", README] {
            let page = read(&folder, name).unwrap();
            for part in [
                "not carried out by the scripts: CPUQuota=28%",
                "zzz-webdyno-cpus.conf",
                "MemoryMax=536870912",
            ] {
                assert!(page.contains(part), "no `{part}` in {name}:\n{page}");
            }
        }
        for name in ["apply.sh", "undo.sh", "ansible.yml", DIFF] {
            assert!(!read(&folder, name).unwrap().contains("zzz-webdyno"), "{name}");
        }
    }

    #[test]
    fn a_proposal_alone_has_a_ticket_and_no_script() {
        let folder = tempfile::tempdir().unwrap();
        let mut export = Export::begin(&folder.path().join("x/y")).unwrap();
        propose(&mut export, "cpu-throttled", ("cpus", 0.1, 0.2), None);
        export.write().unwrap();
        let ticket = read(&folder, "ticket.md").unwrap();
        assert!(ticket.starts_with("# Change: none; proposed: CPUQuota=20%\n"), "{ticket}");
        assert!(!ticket.contains("apply.sh") && read(&folder, "apply.sh").is_none(), "{ticket}");
    }
}
