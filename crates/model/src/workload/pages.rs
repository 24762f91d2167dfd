//! What a workload's requests and pages are called, and its pages without their resources.

use super::Workload;
use crate::workload::visit::{Resources, StepSpec};
use std::collections::BTreeSet;

impl Workload {
    /// The names of its requests.
    pub fn request_names(&self) -> BTreeSet<&str> {
        self.requests.iter().map(|request| request.name.as_str()).collect()
    }

    /// The names of its pages, which are those of their documents.
    pub fn page_names(&self) -> BTreeSet<&str> {
        let pages = self.steps().filter(|step| step.page.is_some());
        pages
            .filter_map(|step| self.requests.get(step.request))
            .map(|request| request.name.as_str())
            .collect()
    }

    /// Whether a page of it asks for what its document names: requests whose names are not known before.
    pub fn finds_resources(&self) -> bool {
        self.steps().filter_map(|step| step.page.as_ref()).any(|page| page.resources == Resources::Found)
    }

    /// The same workload with the documents of its pages only; `None` when its pages have nothing else.
    pub fn without_resources(&self) -> Option<Self> {
        let has_parts = |step: &StepSpec| match step.page.as_ref().map(|page| &page.resources) {
            None | Some(Resources::Left) => false,
            Some(Resources::Listed(parts)) => !parts.is_empty(),
            Some(Resources::Found) => true,
        };
        if !self.steps().any(has_parts) {
            return None;
        }
        let mut copy = self.clone();
        let sessions = copy.visits.iter_mut().flat_map(|visits| &mut visits.sessions);
        for page in sessions.flat_map(|session| &mut session.steps).filter_map(|step| step.page.as_mut()) {
            page.resources = Resources::Left;
        }
        Some(copy)
    }

    fn steps(&self) -> impl Iterator<Item = &StepSpec> {
        self.visits.iter().flat_map(|visits| &visits.sessions).flat_map(|session| &session.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::visit::{PageSpec, Part, SessionSpec, Visits};

    #[test]
    fn pages_can_be_left_without_their_resources() {
        let of = |resources: &[Resources]| {
            let step = |resources: &Resources| StepSpec {
                page: Some(PageSpec { resources: resources.clone() }),
                ..StepSpec::default()
            };
            let steps = resources.iter().map(step).chain([StepSpec::default()]).collect();
            let session = SessionSpec { name: "s".into(), weight: 1.0, steps };
            let visits = Visits { sessions: vec![session], ..Visits::default() };
            Workload { visits: Some(Box::new(visits)), connections: 7, ..Workload::default() }
        };
        let part = Part { request: 1, required: true };
        let with = of(&[Resources::Found, Resources::Listed(vec![part]), Resources::Left]);
        let left = of(&[Resources::Left, Resources::Left, Resources::Left]);
        assert_eq!(with.without_resources(), Some(left.clone()));
        for nothing in [left, of(&[Resources::Listed(vec![])]), of(&[]), Workload::default()] {
            assert_eq!(nothing.without_resources(), None);
        }
    }
}
