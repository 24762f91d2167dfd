//! Programs of others that the lab runs, and the packages of Debian that have them.

use crate::scenario::Scenario;
use crate::services;
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// Where programs for administrators are, which not everybody has in PATH.
const DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// A program of others, found anew each time: installing a package mends an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalProgram {
    /// Its file's name.
    pub name: &'static str,
    /// The package.
    pub package: &'static str,
}

/// Addresses and links.
pub const IP: ExternalProgram = ExternalProgram { name: "ip", package: "iproute2" };
/// Shaping.
pub const TC: ExternalProgram = ExternalProgram { name: "tc", package: "iproute2" };
/// Firewalls.
pub const NFT: ExternalProgram = ExternalProgram { name: "nft", package: "nftables" };
/// File systems.
pub const MKFS: ExternalProgram = ExternalProgram { name: "mkfs.ext4", package: "e2fsprogs" };
/// Disks on files.
pub const LOSETUP: ExternalProgram = ExternalProgram { name: "losetup", package: "mount" };
/// Mounts in hosts.
pub const MOUNT: ExternalProgram = ExternalProgram { name: "mount", package: "mount" };
/// Makes swap.
pub const MKSWAP: ExternalProgram = ExternalProgram { name: "mkswap", package: "util-linux" };
/// Swap in use.
pub const SWAPON: ExternalProgram = ExternalProgram { name: "swapon", package: "mount" };
/// And not.
pub const SWAPOFF: ExternalProgram = ExternalProgram { name: "swapoff", package: "mount" };
/// Enters a host.
pub const NSENTER: ExternalProgram = ExternalProgram { name: "nsenter", package: "util-linux" };
/// Ends what runs in a host with whoever started it.
pub const SETPRIV: ExternalProgram = ExternalProgram { name: "setpriv", package: "util-linux" };
/// Load of somebody else's.
pub const WRK: ExternalProgram = ExternalProgram { name: "wrk", package: "wrk" };
/// Limits of processes.
pub const PRLIMIT: ExternalProgram = ExternalProgram { name: "prlimit", package: "util-linux" };

impl ExternalProgram {
    /// Its file.
    pub fn find(self) -> Result<PathBuf> {
        self.search().ok_or_else(|| not_installed(&[self.package]))
    }

    fn search(self) -> Option<PathBuf> {
        DIRECTORIES.iter().map(|directory| Path::new(directory).join(self.name)).find(|path| path.is_file())
    }
}

/// An error when something is not installed that a scenario needs: all of it at once.
pub fn check(scenario: &Scenario) -> Result<()> {
    let mut missing: Vec<&'static str> = needed_programs(scenario)
        .into_iter()
        .filter(|program| program.search().is_none())
        .map(|program| program.package)
        .collect();
    missing.extend(services::missing_packages(scenario));
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() { Ok(()) } else { Err(not_installed(&missing)) }
}

/// The programs that the lab itself runs for a scenario.
fn needed_programs(scenario: &Scenario) -> Vec<ExternalProgram> {
    let mut needed = vec![IP, NSENTER, SETPRIV, PRLIMIT];
    let mut hosts = scenario.hosts.values();
    let shaped = |link: &crate::scenario::Link| link.rate_there.is_some() || link.rate_back.is_some();
    let rounds = scenario.rounds.iter().flat_map(|round| &round.links);
    if scenario.links.iter().chain(rounds).any(shaped) {
        needed.push(TC);
    }
    if hosts.clone().any(|host| host.firewall || host.nft.is_some()) {
        needed.push(NFT);
    }
    if hosts.any(|host| !host.disks.is_empty()) {
        needed.extend([MKFS, LOSETUP, MOUNT]);
    }
    if scenario.machine.swap.is_some() || scenario.rounds.iter().any(|round| round.machine.swap.is_some()) {
        needed.extend([MKSWAP, SWAPON, SWAPOFF]);
    }
    needed
}

fn not_installed(packages: &[&str]) -> UserError {
    let (noun, verb) = if packages.len() == 1 { ("package", "is") } else { ("packages", "are") };
    UserError::cannot_run(format!("the {noun} {} {verb} not installed", packages.join(", ")))
        .hint(format!("apt-get install {}", packages.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_command_that_installs_it() {
        let nothing = ExternalProgram { name: "no-such-program", package: "nothing" };
        let reported = nothing.find().unwrap_err();
        assert_eq!(reported.message, "the package nothing is not installed");
        assert_eq!(reported.hint.as_deref(), Some("apt-get install nothing"));
        assert_eq!(not_installed(&["a", "b"]).message, "the packages a, b are not installed");
    }

    #[test]
    fn only_what_a_scenario_uses_is_needed() {
        let head = "title = \"x\"\ngroup = \"fault\"\nstory = \"x\"\nrounds = []\nload = { flags = \"\" }\n";
        let names = |more: &str| {
            let scenario = crate::scenario::parse(&format!("{head}{more}"), Path::new("x")).unwrap();
            needed_programs(&scenario).iter().skip(4).map(|program| program.name).collect::<Vec<_>>()
        };
        assert!(names("").is_empty());
        assert_eq!(
            names("[hosts.server]\nfirewall = true\n[machine]\nswap = \"1M\""),
            ["nft", "mkswap", "swapon", "swapoff"]
        );
        assert_eq!(names("[[links]]\nends = [\"client\", \"server\"]\nrate_there = \"1mbit\""), ["tc"]);
    }
}
