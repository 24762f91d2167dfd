//! When `htaccess-lookups` is found, what proves it, and what to change.

use super::ALLOWING;
use crate::facts::Facts;
use crate::limits::LimitId;
use crate::resources::file_cost;
use crate::resources::file_cost::{FileCost, file_cost};
use crate::resources::processor_time;
use crate::resources::request_cost::request_cost;
use crate::resources::syscall_cost::scaled_to_machine_us;
use crate::settings::effective;
use crate::wording::{format_number, format_time};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::processor_time::ProcessorWork;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A lookup of a file that is not there: the path is put together and walked by the kernel. 1 to 2 us.
const LOOKUP_US: f64 = 1.5;
/// The share of the work that lookups alone must be.
const LOOKUPS_SHARE_MIN: f64 = 0.2;
/// The kernel's share of the time above which it is not the reading of rules that costs it.
const KERNEL_SHARE_MAX: f64 = 0.6;
/// So many files of rules for one request were seen: opening and reading them is the kernel's work, and what else may cost the
/// time is less likely than they are.
const FILES_MANY: usize = 3;

/// Settings are read during requests for no other reason.
const SAMPLED_SHARE_MIN: f64 = 0.2;
/// From this share on, the rules that are read are a good part of those that are applied.
const SAMPLED_WITH_PATTERNS_MIN: f64 = 0.1;
const CONFIDENCE_SAMPLED: f64 = 0.85;

/// What the requests meet.
struct HtaccessLookups {
    /// What lets files have rules, and what else does, with the part of the site that has it.
    setting: &'static str,
    others: Vec<(&'static str, String)>,
    value: String,
    written_at: Option<String>,
    /// The part of the site that has it.
    part: String,
    /// The share of the requests for which it is in force.
    share: f64,
    /// Folders that are looked into for each of them.
    folders: f64,
    file: Option<String>,
    /// The most files that are read for one request, of those that are known.
    files: usize,
}

/// Fires when rules are read anew for each request, and that is what the processors do: by samples, whatever else makes the
/// answers, or by what a request costs where files are sent.
pub fn check(facts: &Facts) -> Option<Finding> {
    let met = htaccess_lookups(facts)?;
    let work = request_cost(facts)?;
    let files = file_cost(facts);
    let by_look_ups = work.share(met.folders * scaled_to_machine_us(facts, LOOKUP_US));
    let by_cost = files.and_then(|files| {
        let excess = files.excess();
        let is_much = excess >= file_cost::EXCESS_MIN;
        let share = if is_much { excess * (1.0 - files.tls_share) } else { by_look_ups };
        (share >= LOOKUPS_SHARE_MIN).then(|| (met.share * share, confidence(&met, &files, by_look_ups)))
    });
    let by_samples = sampled_share(facts, &met).map(|share| (share, CONFIDENCE_SAMPLED));
    let all = by_cost.into_iter().chain(by_samples);
    let (explains, confidence) = all.reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    let more = if met.files > 1 { format!(" and {} more", met.files - 1) } else { String::new() };
    let found = met.file.as_ref().map_or(String::new(), |file| format!(", and finds {file}{more}"));
    let file =
        files.map_or(String::new(), |_| format!(", sending a file at most {}", format_time(work.file_us)));
    Some(Finding {
        id: LimitId::HtaccessLookups.into(),
        summary: format!(
            "CPU saturated: a request takes {} of CPU time{file}. {} is {}{}: for each request Apache looks for .htaccess in {} folder{}{found}, and processes all rules there.",
            format_time(work.request_us),
            met.setting,
            met.value,
            met.written_at.as_ref().map_or(String::new(), |place| format!(" ({place})")),
            format_number(met.folders),
            if met.folders == 1.0 { "" } else { "s" },
        ),
        confidence: significant(work.scaled_confidence(confidence).max(0.2), 2),
        explains_fraction: Some(significant(explains.min(1.0), 3)),
        facts: facts.cite(&file_cost::FACTS),
        remedies: vec![remedy(&met)],
    })
}

/// The share of the processors' time in which settings are read for requests. Where files of rules are found, and patterns are
/// translated for requests, applying these counts as well: those of the server's own files are translated once.
fn sampled_share(facts: &Facts, met: &HtaccessLookups) -> Option<f64> {
    let share = |works: &[ProcessorWork]| processor_time::share_of_all(facts, works);
    let settings = share(&[ProcessorWork::Settings])?;
    let with_patterns = || share(&[ProcessorWork::Settings, ProcessorWork::Rewriting]);
    let has_rules = met.file.is_some() && settings >= SAMPLED_WITH_PATTERNS_MIN;
    let all = if has_rules { with_patterns()? } else { settings };
    (all >= SAMPLED_SHARE_MIN).then_some(all)
}

fn confidence(met: &HtaccessLookups, files: &FileCost, by_look_ups: f64) -> f64 {
    let in_kernel = files.kernel_share.is_some_and(|share| share >= KERNEL_SHARE_MAX);
    let observed = match &met.file {
        Some(_) if in_kernel && met.files < FILES_MANY => 0.6,
        Some(_) if in_kernel => 0.85,
        Some(_) => 0.9,
        None if by_look_ups >= LOOKUPS_SHARE_MIN => 0.8,
        // Further in there may be files that nobody looked for.
        None => 0.5,
    };
    observed - if met.files >= FILES_MANY { files.doubt / 2.0 } else { files.doubt }
}

/// Where requests go, if `.htaccess` is looked up there; the first that has files where several do.
fn htaccess_lookups(facts: &Facts) -> Option<HtaccessLookups> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    let mut met: Option<HtaccessLookups> = None;
    let everything =
        [effective::RequestTarget { path: "/".into(), share: 1.0, ..effective::RequestTarget::default() }];
    let targets = if facts.request_targets.is_empty() { &everything[..] } else { &facts.request_targets };
    for target in targets {
        let mut allowing = ALLOWING.into_iter().filter_map(|name| {
            let found = effective::value(service, name, Some(target)).filter(|found| !found.has("None"))?;
            Some((name, found))
        });
        let Some((setting, found)) = allowing.next() else { continue };
        let others = allowing.map(|(name, found)| (name, found.part)).collect();
        let (folders, files, file) = effective::htaccess(service, target);
        let before = met.take();
        let (share, sum) =
            before.as_ref().map_or((0.0, 0.0), |before| (before.share, before.folders * before.share));
        let all = share + target.share;
        met = Some(HtaccessLookups {
            setting,
            others,
            value: found.value,
            written_at: found.written_at,
            part: found.part,
            share: all,
            folders: if all > 0.0 {
                ((sum + folders as f64 * target.share) / all).round()
            } else {
                folders as f64
            },
            files: before.as_ref().map_or(files, |before| before.files.max(files)),
            file: before.and_then(|before| before.file).or(file),
        });
    }
    met
}

fn remedy(met: &HtaccessLookups) -> Remedy {
    let none = || SettingValue::Text("None".into());
    let id = |name: &str, part: &str| SettingId::of_service("apache", name).of_part(part);
    let other = |(name, part): &(&str, String)| SettingChange { setting: id(name, part), to: none() };
    Remedy {
        setting: id(met.setting, &met.part),
        from: Some(SettingValue::Text(met.value.clone())),
        to: Some(none()),
        // The server's side looks for the files, and only proposes it.
        class: ApplyClass::Reload,
        risk: "redirects, protections and caching rules in .htaccess no longer apply: move them into the server's configuration first".into(),
        why: "rules in the server's configuration are read once, at startup, not for each request".into(),
        predicted: None,
        together_with: met.others.iter().map(other).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactId;
    use crate::facts::testing::{facts, scoped_setting};
    use crate::settings::effective::RequestTarget;
    use webdyno_model::service::ScopedSetting;

    fn with(us: f64, override_is: &str, file: Option<&str>, url: &str) -> Option<Finding> {
        check(&facts_of(us, override_is, file, url))
    }

    fn facts_of(us: f64, override_is: &str, file: Option<&str>, url: &str) -> Facts {
        let values =
            [(FactId::service_cpu_cores, 0.98), (FactId::cores, 1.0), (FactId::cpu_per_request_us, us)];
        let mut facts = facts(&values, &[]);
        let scoped = |setting: &str, value: &str, part: &str, file: Option<&str>| ScopedSetting {
            file: file.map(Into::into),
            ..scoped_setting(setting, value, &["VirtualHost *:80", part])
        };
        let service = facts.service.as_mut().unwrap();
        service.modules = vec!["core_module".into()];
        service.scoped = vec![
            scoped("AllowOverride", override_is, "DocumentRoot /srv/shop/", None),
            scoped("AccessFileName", ".htaccess", "Directory /srv/shop/", file),
        ];
        facts.request_targets = vec![RequestTarget { share: 1.0, ..RequestTarget::of(url).unwrap() }];
        facts
    }

    // Over TLS, or for requests that nobody knows, what a file costs says little.
    #[test]
    fn patterns_that_are_translated_for_requests_tell_that_rules_are_read() {
        let file = Some("/srv/shop/.htaccess");
        for (translated, applied, file, confidence) in [
            (120, 180, file, Some(0.85)),
            (300, 0, None, Some(0.85)),
            (120, 180, None, None),
            (60, 400, file, None),
        ] {
            let mut facts = facts_of(2300.0, "All", file, "http://h/shop.php");
            let own = 1000 - translated - applied;
            crate::facts::testing::add_samples(
                &mut facts,
                &[
                    ("apache2;libpcre2-8.so.0;~pcre2_compile_8", translated),
                    ("apache2;libpcre2-8.so.0", applied),
                    ("apache2;apache2", own),
                ],
            );
            let found = check(&facts).map(|finding| finding.confidence).filter(|sure| *sure > 0.55);
            assert_eq!(found, confidence, "{translated} {applied} {file:?}");
        }
    }

    #[test]
    fn what_costs_processors_is_named_and_what_does_not_is_not() {
        let file = Some("/srv/shop/.htaccess");
        let page = "http://h/a/b/page.html";
        for (us, value, file, url, confidence) in [
            (2300.0, "All", file, page, Some(0.9)),
            (2300.0, "FileInfo Limit", file, page, Some(0.9)),
            (2300.0, "None", file, page, None),
            (2300.0, "All", None, page, Some(0.5)),
            // As cheap as a file is: the setting costs nothing.
            (60.0, "All", file, page, None),
            (120.0, "All", file, page, None),
            (2300.0, "All", file, "http://h/shop.php", None),
        ] {
            let found = with(us, value, file, url).map(|finding| finding.confidence);
            let expected = confidence.filter(|_| !url.ends_with("php"));
            if url.ends_with("php") {
                // No module runs it: what answers is not known, and so it is no more than a suspicion.
                assert!(found.is_none_or(|found| found <= 0.55), "{found:?}");
            } else {
                assert_eq!(found, expected, "{us} {value} {file:?}");
            }
        }
        let finding = with(2300.0, "All", file, page).unwrap();
        assert!(
            finding.summary.contains("in 3 folders, and finds /srv/shop/.htaccess"),
            "{}",
            finding.summary
        );
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Text("None".into())));
        assert_eq!(finding.remedies[0].setting.part.as_deref(), Some("h/"));
    }

    #[test]
    fn a_list_of_directives_has_the_files_read_too() {
        for (kinds, list, expected) in [
            ("None", "Redirect RedirectMatch", Some("AllowOverrideList")),
            ("All", "Redirect", Some("AllowOverride + AllowOverrideList")),
            ("All", "None", Some("AllowOverride")),
            ("None", "None", None),
        ] {
            let mut facts = facts_of(2300.0, kinds, None, "http://h/a/b/page.html");
            let root = ["VirtualHost *:80", "DocumentRoot /srv/shop/"];
            facts.service.as_mut().unwrap().scoped.push(scoped_setting("AllowOverrideList", list, &root));
            let names = check(&facts).map(|finding| {
                let changes = finding.remedies[0].setting_changes();
                changes.iter().map(|change| change.setting.name.clone()).collect::<Vec<_>>().join(" + ")
            });
            assert_eq!(names.as_deref(), expected, "{kinds} {list}");
        }
        // Of a folder further in.
        let mut facts = facts_of(2300.0, "All", None, "http://h/a/b/page.html");
        let folder = ["VirtualHost *:80", "Directory /srv/shop/a"];
        let root = ["VirtualHost *:80", "DocumentRoot /srv/shop/"];
        for (list, scope) in [("None", root), ("Redirect", folder)] {
            facts.service.as_mut().unwrap().scoped.push(scoped_setting("AllowOverrideList", list, &scope));
        }
        let changes = check(&facts).unwrap().remedies[0].setting_changes();
        let parts: Vec<_> = changes.iter().map(|change| change.setting.part.as_deref()).collect();
        assert_eq!(parts, [Some("h/"), Some("h/a/")]);
    }

    #[test]
    fn many_files_that_were_seen_come_before_cores_that_are_full_with_reading_them() {
        for (levels, kernel, extension, confidence) in
            [(1, 0.8, ".html", 0.6), (11, 0.8, ".html", 0.85), (11, 0.2, "", 0.73), (1, 0.2, "", 0.55)]
        {
            let values = [
                (FactId::service_cpu_cores, 0.98),
                (FactId::cores, 1.0),
                (FactId::cpu_per_request_us, 3800.0),
                (FactId::cpu_system_cores, kernel),
                (FactId::cpu_user_cores, 1.0 - kernel),
            ];
            let mut facts = facts(&values, &[]);
            let service = facts.service.as_mut().unwrap();
            service.modules =
                if extension.is_empty() { vec!["php_module".into()] } else { vec!["core_module".into()] };
            let scoped = |setting: &str, value: &str, part: String, file: Option<String>| ScopedSetting {
                file,
                ..scoped_setting(setting, value, &["VirtualHost *:80", &part])
            };
            service.scoped = vec![scoped("AllowOverride", "All", "DocumentRoot /srv/".into(), None)];
            service.scoped.extend((0..levels).map(|level| {
                let folder = format!("/srv/{}", "d/".repeat(level));
                scoped(
                    "AccessFileName",
                    ".htaccess",
                    format!("Directory {folder}"),
                    Some(format!("{folder}.htaccess")),
                )
            }));
            let url = format!("http://h/{}page{extension}", "d/".repeat(11));
            facts.request_targets = vec![RequestTarget { share: 1.0, ..RequestTarget::of(&url).unwrap() }];
            let found = check(&facts).unwrap();
            assert_eq!(found.confidence, confidence, "{levels} {kernel} {extension}");
            assert_eq!(found.summary.contains("and 10 more"), levels == 11, "{}", found.summary);
        }
    }

    #[test]
    fn look_ups_in_a_deep_tree_cost_enough_by_themselves() {
        let url = format!("http://h/{}a.html", "d/".repeat(60));
        let finding = with(160.0, "All", None, &url).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.8, Some(0.572)));
    }
}
