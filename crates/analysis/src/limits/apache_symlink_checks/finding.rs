//! When `apache-symlink-checks` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::resources::file_cost;
use crate::resources::file_cost::{FileCost, file_cost};
use crate::resources::syscall_cost::{path_part_us, scaled_to_machine_us};
use crate::settings::effective;
use crate::settings::effective::{EffectiveSetting, RequestTarget};
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::fact::Fact;
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A system call with what Apache does around it.
const CALL_US: f64 = 0.4;
/// The share of the work that the checks must be.
const SHARE_MIN: f64 = 0.2;

/// The kernel's share of the CPU time from which on nearly all of it is its work: of plain files it is two thirds to
/// three quarters.
const KERNEL_SHARE_MIN: f64 = 0.85;
/// Where it is, this share suffices: on some CPUs a step costs six times of what it costs on others (130 parts took
/// 180 us on one machine and 1,000 us on another), and nothing else of a file's request is the kernel's alone.
const SHARE_MIN_IN_KERNEL: f64 = 0.05;
const SLOW_STEPS_DOUBT: f64 = 0.1;
/// Where only the log tells how deep paths are, they may lie in other folders than the first ones.
const WATCHED_DOUBT: f64 = 0.1;
const CONFIDENCE_SUSPECTED: f64 = 0.5;

/// Fires when the checks are a good part of what saturates the CPUs.
pub fn check(facts: &Facts) -> Option<Finding> {
    let SymlinkChecks { options, us, parts, share } = symlink_checks(facts)?;
    let files = file_cost(facts)?;
    let watched = facts.request_targets.is_empty();
    let explains = files.work.share(us);
    // With unknown path depth, CPU time that is all kernel time is a suspicion.
    let in_kernel = files.kernel_share.is_some_and(|share| share >= KERNEL_SHARE_MIN);
    let suspected = watched && parts.is_none() && in_kernel;
    if suspected {
        return Some(suspicion(facts, &files, &options));
    }
    if explains < if in_kernel { SHARE_MIN_IN_KERNEL } else { SHARE_MIN } {
        return None;
    }
    let is_more = explains < SHARE_MIN;
    let doubts = [(watched, WATCHED_DOUBT), (is_more, SLOW_STEPS_DOUBT)];
    let doubt: f64 = doubts.iter().filter(|(is, _)| *is).map(|(_, doubt)| doubt).sum();
    let written = options.written_at.as_ref().map_or(String::new(), |place| format!(" ({place})"));
    Some(Finding {
        id: LimitId::ApacheSymlinkChecks.into(),
        summary: format!(
            "CPU saturated: checks for symbolic links take {} {} of the {} of CPU time per request. With `Options {}`{written} Apache checks each of up to {} parts of a path, and the kernel walks it from the root each time.",
            if is_more { "at least" } else { "about" },
            format_time(us / share),
            format_time(files.work.request_us),
            options.value,
            format_number(parts.unwrap_or(1.0)),
        ),
        confidence: confidence(&files, 0.85 - doubt),
        explains_fraction: (!is_more).then(|| significant(explains, 3)),
        facts: cited_facts(facts),
        remedies: vec![remedy(&options)],
    })
}

/// What the findings rest on.
fn cited_facts(facts: &Facts) -> Vec<Fact> {
    facts.cite(&[&file_cost::FACTS[..], &[FactId::path_parts_mean]].concat())
}

fn confidence(files: &FileCost, observed: f64) -> f64 {
    significant(files.work.scaled_confidence(observed - files.doubt).max(0.2), 2)
}

fn suspicion(facts: &Facts, files: &FileCost, options: &EffectiveSetting) -> Finding {
    Finding {
        id: LimitId::ApacheSymlinkChecks.into(),
        summary: format!(
            "CPU saturated, nearly all of it kernel time: with `Options {}` Apache checks each part of each path for symbolic links, and the kernel walks it from the root each time. Path depth unknown: on deep paths that costs more than the rest of a request.",
            options.value
        ),
        confidence: confidence(files, CONFIDENCE_SUSPECTED),
        explains_fraction: None,
        facts: cited_facts(facts),
        remedies: vec![remedy(options)],
    }
}

fn remedy(options: &EffectiveSetting) -> Remedy {
    Remedy {
        setting: SettingId::of_service("apache", "Options").of_part(&options.part),
        from: Some(SettingValue::Text(options.value.clone())),
        to: Some(SettingValue::Text(with_links(&options.value))),
        class: ApplyClass::Reload,
        risk:
            "symbolic links below the site are followed, wherever they lead: check for those of users first"
                .into(),
        why: "with FollowSymLinks Apache makes no such checks".into(),
        predicted: None,
        together_with: vec![],
    }
}

/// The checks that requests meet.
struct SymlinkChecks {
    options: EffectiveSetting,
    /// What they cost each request, on average over all of them.
    us: f64,
    /// Parts of the deepest path; for other clients the mean, if the log tells it.
    parts: Option<f64>,
    /// The share of the requests.
    share: f64,
}

fn symlink_checks(facts: &Facts) -> Option<SymlinkChecks> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    if facts.request_targets.is_empty() {
        let front = RequestTarget { path: "/".into(), share: 1.0, ..RequestTarget::default() };
        let options = effective::value(service, "Options", Some(&front)).filter(checks)?;
        let parts = facts.value(FactId::path_parts_mean);
        return Some(SymlinkChecks {
            options,
            us: parts.map_or(0.0, |parts| path_us(facts, parts)),
            parts,
            share: 1.0,
        });
    }
    let mut found: Option<SymlinkChecks> = None;
    for target in &facts.request_targets {
        let options = effective::value(service, "Options", Some(target)).filter(checks);
        let Some(options) = options else { continue };
        let depth = target.folders() as f64 + 1.0;
        let all = found.get_or_insert(SymlinkChecks { options, us: 0.0, parts: None, share: 0.0 });
        all.us += target.share * path_us(facts, depth);
        all.parts = Some(all.parts.map_or(depth, |parts| parts.max(depth)));
        all.share += target.share;
    }
    found
}

/// What the checks of a path of so many parts cost.
fn path_us(facts: &Facts, parts: f64) -> f64 {
    parts * scaled_to_machine_us(facts, CALL_US) + parts * (parts + 1.0) / 2.0 * path_part_us(facts)
}

/// Whether these options make Apache check each part of a path.
fn checks(options: &EffectiveSetting) -> bool {
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
    use crate::facts::testing::{facts, scoped_setting};
    use webdyno_model::service::ServiceSnapshot;

    fn service(options: &str) -> Option<ServiceSnapshot> {
        let mut service = facts(&[], &[]).service.unwrap();
        service.modules = vec!["core_module".into()];
        service.scoped = vec![scoped_setting("Options", options, &["DocumentRoot /srv/store/"])];
        Some(service)
    }

    fn with(depth: usize, options: &str) -> Option<Finding> {
        let values =
            [(FactId::service_cpu_cores, 0.98), (FactId::cores, 1.0), (FactId::cpu_per_request_us, 200.0)];
        let mut facts = facts(&values, &[]);
        facts.service = service(options);
        let target = RequestTarget::of(&format!("http://h/{}object", "d/".repeat(depth))).unwrap();
        facts.request_targets = vec![RequestTarget { share: 1.0, ..target }];
        check(&facts)
    }

    #[test]
    fn by_watching_alone_the_log_tells_how_deep_paths_are() {
        let values =
            [(FactId::service_cpu_cores, 0.98), (FactId::cores, 1.0), (FactId::cpu_per_request_us, 200.0)];
        for (more, confidence) in [
            (&[(FactId::path_parts_mean, 120.0)][..], Some(0.75)),
            (
                &[
                    (FactId::path_parts_mean, 6.0),
                    (FactId::cpu_system_cores, 0.95),
                    (FactId::cpu_user_cores, 0.05),
                ],
                None,
            ),
            (&[(FactId::cpu_system_cores, 0.95), (FactId::cpu_user_cores, 0.05)], Some(0.5)),
            // A quarter of it on a core of the fast kind.
            (
                &[
                    (FactId::path_parts_mean, 40.0),
                    (FactId::cpu_system_cores, 0.9),
                    (FactId::cpu_user_cores, 0.1),
                ],
                Some(0.65),
            ),
            (
                &[
                    (FactId::path_parts_mean, 40.0),
                    (FactId::cpu_system_cores, 0.7),
                    (FactId::cpu_user_cores, 0.3),
                ],
                None,
            ),
            (&[(FactId::cpu_system_cores, 0.7), (FactId::cpu_user_cores, 0.3)], None),
            (&[], None),
        ] {
            let mut facts = facts(&[&values[..], more].concat(), &[]);
            facts.service = service("None");
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{more:?}");
        }
    }

    #[test]
    fn depth_makes_it_expensive() {
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
        let remedy = &finding.remedies[0];
        assert_eq!(remedy.to, Some(SettingValue::Text("Indexes FollowSymLinks".into())));
        // The server's side knows whether that protects from anyone, and then only proposes it.
        assert_eq!((remedy.setting.part.as_deref(), remedy.setting_changes().len()), (Some("h/"), 1));
        assert_eq!((finding.confidence, finding.explains_fraction), (0.85, Some(0.887)));
    }
}
