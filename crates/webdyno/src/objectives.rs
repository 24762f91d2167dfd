//! Objectives of requests and pages that a workload does not have, told before anything is sent.

use std::collections::BTreeSet;
use webdyno_model::objective::{Objective, Scope};
use webdyno_model::workload::{Workload, redact_query};
use webdyno_model::{Result, UserError};

/// More names than this are not listed in a hint.
const LISTED_MAX: usize = 10;

/// Refuses an objective of a request or page that cannot come up. What pages find while they are loaded is not known
/// before: an objective of such a request is unmet when it never came.
pub fn check(objectives: &[Objective], workload: &Workload) -> Result<()> {
    let (pages, requests) = (workload.page_names(), workload.request_names());
    for objective in objectives {
        match objective.scope() {
            Scope::All => {}
            Scope::Pages | Scope::Page(_) if pages.is_empty() => return Err(no_pages(objective)),
            Scope::Pages => {}
            Scope::Page(name) => known(objective, ("page", name), &pages)?,
            Scope::Request(name) => {
                // A name with a secret would stand in the recording, and the names there have none.
                if !workload.finds_resources() || redact_query(name) != *name {
                    known(objective, ("request", name), &requests)?;
                }
            }
        }
    }
    Ok(())
}

fn no_pages(objective: &Objective) -> UserError {
    UserError::usage(format!("the objective `{}` is of pages, and this workload has none", objective.text()))
        .hint("without `page` it is of all requests, as in --slo 'p95<2s'")
}

fn known(objective: &Objective, (what, name): (&str, &str), names: &BTreeSet<&str>) -> Result<()> {
    if names.contains(name) {
        return Ok(());
    }
    let text = format!(
        "the objective `{}` is of the {what} `{name}`, which this workload does not have",
        objective.text()
    );
    let distance = |known: &&&str| strsim::damerau_levenshtein(name, known);
    let nearest = names.iter().min_by_key(distance).filter(|known| distance(known) <= name.len() / 2);
    let listed: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > LISTED_MAX { ", ..." } else { "" };
    let list = format!("its {what}s are {}{more}", listed.join(", "));
    Err(UserError::usage(text).hint(match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? {list}"),
        None => list,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::visit::{PageSpec, Resources, SessionSpec, StepSpec, Visits};
    use webdyno_model::workload::RequestSpec;

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

    fn told(slo: &str, resources: Option<Resources>) -> Option<UserError> {
        let error = check(&[Objective::parse(slo).unwrap()], &workload(resources)).err();
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
            // Its document may name it.
            ("request /b.png: p99<1s", Some(Resources::Found), None),
            ("page /b.png: p99<1s", Some(Resources::Found), Some("its pages are `/shop`")),
            ("request /s?token=s3cret: p99<1s", Some(Resources::Found), Some("/s?token=[redacted]")),
        ] {
            let told = told(slo, resources).and_then(|error| error.hint);
            match (hint, &told) {
                (None, None) => {}
                (Some(part), Some(told)) => assert!(told.contains(part), "{slo}: {told}"),
                _ => panic!("{slo}: {told:?}"),
            }
        }
    }
}
