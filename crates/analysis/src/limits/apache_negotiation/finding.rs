//! When `apache-negotiation` is found, what proves it, and what to change.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::file_cost;
use crate::resources::file_cost::file_cost;
use crate::settings::effective;
use crate::settings::effective::{EffectiveSetting, RequestTarget};
use crate::wording::format_time;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// The share of the requests that must name no file.
const SHARE_MIN: f64 = 0.3;
/// Reading a folder is the kernel's work; below this share of it something else costs the time.
const KERNEL_SHARE_MIN: f64 = 0.4;

/// How much less sure it is where the requested URLs are unknown.
const WATCHED_DOUBT: f64 = 0.1;

/// Fires when folders are read for each request, and that is what the CPUs do.
pub fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    let negotiated = |target: &RequestTarget| Some((target.share, negotiates(service, target)?));
    // Of other clients' requests some are for the front page; how many is not known.
    let front = [RequestTarget { path: "/".into(), share: 1.0, ..RequestTarget::default() }];
    let watched = facts.request_targets.is_empty();
    let targets = if watched { &front[..] } else { &facts.request_targets };
    let met: Vec<(f64, NegotiationCause)> = targets.iter().filter_map(negotiated).collect();
    let share: f64 = met.iter().map(|(share, _)| share).sum();
    let (_, met) = met.into_iter().next().filter(|_| share >= SHARE_MIN)?;
    let files = file_cost(facts)?;
    let excess = files.excess();
    if excess < file_cost::EXCESS_MIN {
        return None;
    }
    let observed = match files.kernel_share {
        Some(kernel) if kernel >= KERNEL_SHARE_MIN => 0.85,
        Some(_) => 0.45,
        None => 0.6,
    };
    let observed = if watched { observed - WATCHED_DOUBT } else { observed };
    let tls = match files.tls_share {
        share if share > 0.0 => format!(" ({:.0}% of it for TLS)", share * 100.0),
        _ => String::new(),
    };
    let written = met.options.written_at.as_ref().map_or(String::new(), |place| format!(" ({place})"));
    Some(Finding {
        id: LimitId::ApacheNegotiation.into(),
        summary: format!(
            "CPU saturated: each request costs {} of CPU time{tls}, sending a file at most {}. {}, and with MultiViews{written} Apache reads the whole directory for each request to find matching files.",
            format_time(files.work.request_us),
            format_time(files.work.file_us),
            met.words,
        ),
        confidence: significant(files.work.scaled_confidence(observed - files.doubt).max(0.2), 2),
        explains_fraction: Some(significant((excess * share * (1.0 - files.tls_share)).min(1.0), 3)),
        facts: facts.cite(&file_cost::FACTS),
        remedies: remedies(&met),
    })
}

/// Why a request is negotiated.
struct NegotiationCause {
    options: EffectiveSetting,
    words: String,
    index: Option<EffectiveSetting>,
    /// The name in full that can go first: of the one file, or of a list of all of them.
    first: Option<String>,
}

fn negotiates(service: &ServiceSnapshot, target: &RequestTarget) -> Option<NegotiationCause> {
    let options =
        effective::value(service, "Options", Some(target)).filter(|options| options.has("MultiViews"))?;
    if target.is_folder() {
        let index = effective::value(service, "DirectoryIndex", Some(target))?;
        let first = index.value.split_whitespace().next()?;
        let is_bare = !first.contains(['.', '/']) && !first.eq_ignore_ascii_case("disabled");
        return is_bare.then(|| NegotiationCause {
            options,
            words: format!("DirectoryIndex {first} is no full file name"),
            first: name_in_full(service, target, &index),
            index: Some(index.clone()),
        });
    }
    let words = format!("{} is no full file name", target.path);
    target.ending().is_none().then_some(NegotiationCause { options, words, index: None, first: None })
}

/// The file at the root of the site, if only one is there that the name can stand for; of several the list that the server's side
/// can make of them.
fn name_in_full(
    service: &ServiceSnapshot,
    target: &RequestTarget,
    index: &EffectiveSetting,
) -> Option<String> {
    let files = effective::value(service, "DirectoryIndex files", Some(target))?;
    let is_root = target.path == "/" && files.part == index.part;
    let mut names = files.value.split_whitespace().filter(|_| is_root);
    let (first, bare) = (names.next()?, index.value.split_whitespace().next()?);
    let map = format!("{bare}.var");
    let is_map_there = first == map || names.clone().any(|name| name == map);
    match names.next() {
        None => Some(first.to_owned()),
        Some(_) => (!is_map_there).then_some(map),
    }
}

fn remedies(met: &NegotiationCause) -> Vec<Remedy> {
    let remedy = |setting: &str, from: &EffectiveSetting, to: Option<String>, risk: &str, why: &str| Remedy {
        from: Some(SettingValue::Text(from.value.clone())),
        class: if to.is_some() { ApplyClass::Reload } else { ApplyClass::Manual },
        to: to.map(SettingValue::Text),
        ..manual(SettingId::of_service("apache", setting).of_part(&from.part), risk, why)
    };
    let index = met.index.as_ref().map(|index| {
        remedy(
            "DirectoryIndex",
            index,
            met.first.as_ref().map(|first| format!("{first} {}", index.value)),
            "with a type map, variants added later must be added to it",
            "a full file name, or a type map that lists the variants, needs no search",
        )
    });
    let without: Vec<&str> = met
        .options
        .value
        .split_whitespace()
        .filter(|word| !word.eq_ignore_ascii_case("multiviews"))
        .collect();
    let to = if without.is_empty() { "None".to_owned() } else { without.join(" ") };
    let options = remedy(
        "Options",
        &met.options,
        Some(to),
        "URLs without a file extension no longer work",
        "without MultiViews no directory is read",
    );
    index.into_iter().chain([options]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactId;
    use crate::facts::testing::{facts, scoped_setting};

    fn with(url: &str, options: &str, index: &str, us: f64, system: f64) -> Option<f64> {
        let values = [
            (FactId::service_cpu_cores, 0.98),
            (FactId::cores, 1.0),
            (FactId::cpu_per_request_us, us),
            (FactId::cpu_system_cores, system),
            (FactId::cpu_user_cores, 1.0 - system),
        ];
        let mut facts = facts(&values, &[]);
        let service = facts.service.as_mut().unwrap();
        service.modules = vec!["core_module".into()];
        let scoped =
            |(setting, value): (&str, &str)| scoped_setting(setting, value, &["DocumentRoot /srv/archive/"]);
        service.scoped = [("Options", options), ("DirectoryIndex", index)].map(scoped).into();
        facts.request_targets = vec![RequestTarget { share: 1.0, ..RequestTarget::of(url).unwrap() }];
        check(&facts).map(|finding| finding.confidence)
    }

    #[test]
    fn a_name_in_full_is_asked_for_where_all_choices_are_known() {
        for (files, to) in [
            ("index.html", Some("index.html index")),
            ("index.html.de index.html.en", Some("index.var index")),
            ("index.html.de index.var", None),
            ("", None),
        ] {
            let mut service = ServiceSnapshot { service: "apache".into(), ..ServiceSnapshot::default() };
            let scoped = |(setting, value): (&str, &str)| {
                scoped_setting(setting, value, &["DocumentRoot /srv/archive/"])
            };
            service.scoped =
                [("Options", "MultiViews"), ("DirectoryIndex", "index"), ("DirectoryIndex files", files)]
                    .map(scoped)
                    .into();
            let met = negotiates(&service, &RequestTarget::of("http://h/").unwrap()).unwrap();
            let index = &remedies(&met)[0];
            let expected = to.map(|to| SettingValue::Text(to.into()));
            assert_eq!(
                (index.to.clone(), index.setting_changes().len()),
                (expected, usize::from(to.is_some())),
                "{files}"
            );
            assert_eq!(index.setting.part.as_deref(), Some("h/"));
        }
    }

    #[test]
    fn a_folder_that_is_read_for_each_request_is_named() {
        let folder = "http://h/";
        for (url, options, index, us, system, confidence) in [
            (folder, "FollowSymLinks MultiViews", "index", 2300.0, 0.8, Some(0.85)),
            (folder, "FollowSymLinks MultiViews", "index", 2300.0, 0.2, Some(0.45)),
            (folder, "FollowSymLinks MultiViews", "index.html", 2300.0, 0.8, None),
            (folder, "FollowSymLinks", "index", 2300.0, 0.8, None),
            (folder, "FollowSymLinks MultiViews", "index", 40.0, 0.8, None),
            ("http://h/pictures/one", "MultiViews", "index.html", 2300.0, 0.8, Some(0.85)),
            ("http://h/pictures/one.jpg", "MultiViews", "index", 2300.0, 0.8, None),
        ] {
            let found = with(url, options, index, us, system);
            assert_eq!(found, confidence, "{url} {options} {index} {us} {system}");
        }
    }
}
