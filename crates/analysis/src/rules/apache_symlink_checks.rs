//! `apache-symlink-checks`: for each request the kernel is asked whether folders on the way are links.
//!
//! Where `Options` lacks `FollowSymLinks`, or has `SymLinksIfOwnerMatch`, Apache must know that no part of a path is a
//! link (or whose it is), and asks the kernel about each part, for each request: an lstat(2), for which the kernel walks the
//! path from its beginning. A path of twice the depth costs four times as much.
//!
//! ## How it is recognised
//! The option is not in force where requests go, the service's processors are full, it sends files, and by arithmetic the
//! checks are a good part of what a request costs: a call for each part of the path, and a step for each part before it.
//! On paths of usual depth that is a few microseconds, and no finding.
//!
//! ## What to do
//! `Options FollowSymLinks` (or `+FollowSymLinks`), where nobody can put links there that must not be followed. It is no
//! protection against somebody who can: between the check and the opening a link may be put in place.
//!
//! ## By hand
//! `strace -c -f -p PID` counts the lstat (newfstatat) calls; `perf top` shows path walks (`link_path_walk`).

use super::{say, say_us};
use crate::facts::Facts;
use crate::files_work::files_work;
use crate::in_force::{self, InForce};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;

/// Stable id.
pub const ID: &str = "apache-symlink-checks";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] =
    &["cpu-saturated", "cpu-throttled", "apache-workers-exhausted", "accept-queue-overflow"];

/// A system call with what Apache does around it.
const CALL_US: f64 = 0.4;
/// A step of the kernel's walk, from one folder to the next: a hash of the name, and a look into the cache of names.
const STEP_US: f64 = 0.015;
/// The share of the work that the checks must be.
const SHARE_MIN: f64 = 0.2;

/// Fires when the checks are a good part of what fills the processors.
pub fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    let mut found: Option<InForce> = None;
    let (mut us, mut parts, mut share) = (0.0, 0.0_f64, 0.0);
    for asked in &facts.asked {
        let options = in_force::value(service, "Options", Some(asked)).filter(checks);
        let Some(options) = options else { continue };
        let depth = asked.folders() as f64 + 1.0;
        us += asked.share * (depth * CALL_US + depth * (depth + 1.0) / 2.0 * STEP_US);
        parts = parts.max(depth);
        share += asked.share;
        found = found.or(Some(options));
    }
    let options = found?;
    let files = files_work(facts)?;
    let explains = files.work.share(us);
    if explains < SHARE_MIN {
        return None;
    }
    let written = options.written_at.as_ref().map_or(String::new(), |place| format!(" ({place})"));
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "The processors are full, and about {} of the {} that a request takes go into checks for links: with `Options {}`{written} Apache asks the kernel about each of up to {} parts of a path, which it walks from its beginning each time.",
            say_us(us / share),
            say_us(files.work.request_us),
            options.value,
            say(parts),
        ),
        confidence: significant(files.work.sure(0.85 - files.doubt).max(0.2), 2),
        explains_fraction: Some(significant(explains, 3)),
        facts: facts.cite(&[
            "cpu_per_request_us",
            "service_cpu_cores",
            "service_cores_limit",
            "cores",
            "pressure_group_cpu_some_fraction",
            "cpu_system_cores",
            "cpu_user_cores",
            "rate",
        ]),
        remedies: vec![Remedy {
            service: "apache".into(),
            setting: "Options".into(),
            from: Some(SettingValue::Text(options.value.clone())),
            to: Some(SettingValue::Text(with_links(&options.value))),
            class: ApplyClass::Manual,
            risk: "links in the folders of the site are followed, wherever they lead: look for those of users first".into(),
            why: "with FollowSymLinks Apache asks the kernel nothing of the kind".into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

/// Whether these options make Apache check each part of a path.
fn checks(options: &InForce) -> bool {
    let follows = options.has("FollowSymLinks") || options.has("All");
    !follows || options.has("SymLinksIfOwnerMatch")
}

/// The options with links followed.
fn with_links(options: &str) -> String {
    let keeps = |word: &&str| {
        !["none", "symlinksifownermatch", "followsymlinks"].contains(&word.to_ascii_lowercase().as_str())
    };
    let words: Vec<&str> = options.split_whitespace().filter(keeps).chain(["FollowSymLinks"]).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;
    use crate::in_force::Asked;
    use webdyno_model::service::ScopedSetting;

    fn with(depth: usize, options: &str) -> Option<Finding> {
        let values = [("service_cpu_cores", 0.98), ("cores", 1.0), ("cpu_per_request_us", 200.0)];
        let mut facts = facts(&values, &[]);
        let service = facts.service.as_mut().unwrap();
        service.modules = vec!["core_module".into()];
        service.scoped = vec![ScopedSetting {
            setting: "Options".into(),
            value: options.into(),
            scope: vec!["DocumentRoot /srv/store/".into()],
            ..ScopedSetting::default()
        }];
        let asked = Asked::of(&format!("http://h/{}object", "d/".repeat(depth))).unwrap();
        facts.asked = vec![Asked { share: 1.0, ..asked }];
        check(&facts)
    }

    #[test]
    fn depth_makes_it_dear() {
        for (depth, options, fires) in [
            (128, "None", true),
            (128, "Indexes SymLinksIfOwnerMatch", true),
            (128, "Indexes FollowSymLinks", false),
            (128, "All", false),
            (6, "None", false),
            (20, "Indexes", false),
        ] {
            assert_eq!(with(depth, options).is_some(), fires, "{depth} {options}");
        }
        let finding = with(128, "Indexes SymLinksIfOwnerMatch").unwrap();
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Text("Indexes FollowSymLinks".into())));
        assert_eq!((finding.confidence, finding.explains_fraction), (0.85, Some(0.887)));
    }
}
