//! Objectives of requests and pages that a workload does not have, told before anything is sent.

use std::collections::BTreeSet;
use webdyno_model::objective::{Objective, Scope};
use webdyno_model::workload::Workload;
use webdyno_model::workload::visit::RequestList;
use webdyno_model::{Result, UserError};

/// The name of requests that have none of their own.
const OTHERS: &str = "(other)";
/// More names than this are not listed in a hint.
const LISTED_MAX: usize = 10;

/// The same as [`check`], before the pages of the workload were looked into: how their parts are named is not known yet.
pub fn check_before_probe(
    objectives: &[Objective],
    places: &[String],
    workload: &Workload,
    counted: &[String],
) -> Result<()> {
    let finds = workload.finds_resources();
    let is_known = |objective: &Objective| !(finds && matches!(objective.scope(), Scope::Request(_)));
    check_names(objectives, places, (workload, counted), is_known)
}

/// Refuses an objective of a request or page that is not counted by that name. Requests are counted by these names; by
/// none when all have the same. `places` says where the first objectives stand, if a file holds them.
pub fn check(
    objectives: &[Objective],
    places: &[String],
    workload: &Workload,
    counted: &[String],
) -> Result<()> {
    check_names(objectives, places, (workload, counted), |_| true)
}

fn check_names(
    objectives: &[Objective],
    places: &[String],
    (workload, counted): (&Workload, &[String]),
    is_known: impl Fn(&Objective) -> bool,
) -> Result<()> {
    let pages = workload.page_names();
    let requests = match (counted.is_empty(), &workload.list) {
        (false, _) => counted.iter().map(String::as_str).collect(),
        (true, Some(RequestList { entries: Some(entries), .. })) => {
            entries.names.iter().map(String::as_str).collect()
        }
        (true, _) => {
            let others = workload.finds_resources().then_some(OTHERS);
            workload.request_names().into_iter().chain(others).collect()
        }
    };
    let one = |objective: &Objective| match objective.scope() {
        Scope::All => Ok(()),
        Scope::Pages | Scope::Page(_) if pages.is_empty() => Err(no_pages_error(objective)),
        Scope::Pages => Ok(()),
        Scope::Page(name) => check_known_name(objective, ("page", name), &pages),
        Scope::Request(name) => check_known_name(objective, ("request", name), &requests),
    };
    for (number, objective) in objectives.iter().enumerate().filter(|(_, objective)| is_known(objective)) {
        one(objective).map_err(|reported| match places.get(number) {
            Some(place) => UserError { message: format!("{place}: {}", reported.message), ..reported },
            None => reported,
        })?;
    }
    Ok(())
}

fn no_pages_error(objective: &Objective) -> UserError {
    UserError::usage(format!("the objective `{}` is of pages, and this workload has none", objective.text()))
        .hint("without `page` it is of all requests, as in --slo 'p95<2s'")
}

fn check_known_name(objective: &Objective, (what, name): (&str, &str), names: &BTreeSet<&str>) -> Result<()> {
    if names.contains(name) {
        return Ok(());
    }
    let text = format!(
        "the objective `{}` is of the {what} `{name}`, which this workload does not have",
        objective.text()
    );
    let distance = |known: &&&str| strsim::damerau_levenshtein(name, known);
    let nearest = names.iter().min_by_key(distance).filter(|known| distance(known) <= name.len() / 2);
    let others = match what {
        "request" if names.contains(OTHERS) => "; all others, as those that pages find, are `(other)`",
        _ => "",
    };
    let own = names.iter().filter(|name| **name != OTHERS);
    let listed: Vec<String> = own.take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > LISTED_MAX { ", ..." } else { "" };
    let list = format!("its {what}s are {}{more}{others}", listed.join(", "));
    Err(UserError::usage(text).hint(match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? {list}"),
        None => list,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::RequestSpec;
    use webdyno_model::workload::visit::{ListEntries, PageSpec, Resources, SessionSpec, StepSpec, Visits};

    fn workload(resources: Option<Resources>) -> Workload {
        let request = |name: &str| RequestSpec { name: name.into(), ..RequestSpec::default() };
        let requests = ["/shop", "/a.png", "/s?token=[redacted]"].map(request).to_vec();
        let visits = resources.map(|resources| {
            let step = StepSpec { page: Some(PageSpec { resources }), ..StepSpec::default() };
            let session = SessionSpec { name: "visit".into(), weight: 1.0, steps: vec![step] };
            Box::new(Visits { sessions: vec![session], ..Visits::default() })
        });
        Workload { requests, visits, ..Workload::default() }
    }

    fn check_error(slo: &str, resources: Option<Resources>) -> Option<UserError> {
        let finds = resources == Some(Resources::Found);
        let workload = workload(resources);
        let mut counted: Vec<String> = workload.request_names().into_iter().map(str::to_owned).collect();
        counted.extend(finds.then(|| OTHERS.to_owned()));
        let error = check(&[Objective::parse(slo).unwrap()], &[], &workload, &counted).err();
        assert!(error.as_ref().is_none_or(|error| error.exit_code() == 2 && error.hint.is_some()));
        error
    }

    #[test]
    fn what_the_workload_does_not_have_is_told() {
        for (slo, resources, hint) in [
            ("p99<1s", None, None),
            ("request /shop: p99<1s", None, None),
            ("request /shpo: p99<1s", None, Some("did you mean `/shop`?")),
            ("request x: p99<1s", None, Some("its requests are `/a.png`, `/s?token=[redacted]`, `/shop`")),
            ("page: p99<1s", None, Some("all requests")),
            ("page /shop: p99<1s", None, Some("all requests")),
            ("page: p99<1s", Some(Resources::Left), None),
            ("page /shop: p99<1s", Some(Resources::Left), None),
            ("page /a.png: p99<1s", Some(Resources::Left), Some("its pages are `/shop`")),
            ("request /b.png: p99<1s", Some(Resources::Left), Some("did you mean `/a.png`?")),
            // Its document may name it, but it is counted with others.
            ("request /b.png: p99<1s", Some(Resources::Found), Some("those that pages find, are `(other)`")),
            ("request (other): p99<1s", Some(Resources::Found), None),
            ("page /b.png: p99<1s", Some(Resources::Found), Some("its pages are `/shop`")),
            ("request /s?token=s3cret: p99<1s", Some(Resources::Found), Some("/s?token=[redacted]")),
        ] {
            let reported = check_error(slo, resources).and_then(|error| error.hint);
            match (hint, &reported) {
                (None, None) => {}
                (Some(part), Some(reported)) => assert!(reported.contains(part), "{slo}: {reported}"),
                _ => panic!("{slo}: {reported:?}"),
            }
        }
    }

    #[test]
    fn parts_that_pages_find_have_names_once_they_were_looked_into() {
        let slo = [Objective::parse("request /found.png: p99<1s").unwrap()];
        for (resources, before) in
            [(None, false), (Some(Resources::Left), false), (Some(Resources::Found), true)]
        {
            let workload = workload(resources);
            assert_eq!(check_before_probe(&slo, &[], &workload, &[]).is_ok(), before, "{workload:?}");
        }
        let workload = workload(Some(Resources::Found));
        let counted = ["/shop", OTHERS, "/found.png"].map(str::to_owned);
        assert!(check(&slo, &[], &workload, &counted).is_ok());
        let reported = check(&slo, &[], &workload, &counted[..2]).unwrap_err();
        assert!(reported.exit_code() == 2 && reported.hint.is_some_and(|hint| hint.contains("(other)")));
        let page = [Objective::parse("page /found.png: p99<1s").unwrap()];
        assert!(check_before_probe(&page, &[], &workload, &[]).is_err());
    }

    #[test]
    fn an_objective_of_a_file_is_told_with_its_place() {
        let slo = ["p99<1s", "request x: p99<1s"].map(|slo| Objective::parse(slo).unwrap());
        let workload = workload(None);
        let places = ["w.toml:3:8", "w.toml:3:18"].map(str::to_owned);
        for (places, begin) in [(&places[..], "w.toml:3:18: the objective"), (&places[..1], "the objective")]
        {
            let reported = check(&slo, places, &workload, &[]).unwrap_err();
            assert!(reported.message.starts_with(begin), "{reported}");
        }
    }

    #[test]
    fn one_name_alone_is_known_too() {
        let alone = RequestSpec { name: "/only".into(), ..RequestSpec::default() };
        let workload = Workload { requests: vec![alone], ..Workload::default() };
        let check = |slo: &str, workload: &Workload| {
            check(&[Objective::parse(slo).unwrap()], &[], workload, &[]).is_ok()
        };
        assert!(check("request /only: p99<1s", &workload) && !check("request /other: p99<1s", &workload));
        let entries = ListEntries { names: vec!["/c/*".into()], ..ListEntries::default() };
        let list = RequestList { entries: Some(entries.into()), ..RequestList::default() };
        let listed = Workload { list: Some(list), ..workload };
        assert!(check("request /c/*: p99<1s", &listed) && !check("request /only: p99<1s", &listed));
    }
}
