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
