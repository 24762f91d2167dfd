//! A configuration sorted by its sections: what stands directly in each, and which are in which.
//!
//! server/core.c of httpd: `<VirtualHost>`, `<Directory>`, `<Location>`, `<Files>`, `<If>` and `<Proxy>` have values of
//! their own; containers of conditions of access (`<Limit>`, `<RequireAll>`) belong to what they stand in.

use super::hosts::Hosts;
use crate::services::apache::config::model::Opened;
use crate::services::apache::config::section_kind::{Kind, kind};
use crate::services::apache::config::{Evaluation, Placed};

/// A configuration sorted by its sections. The server itself has the number 0.
#[derive(Debug)]
pub struct Site<'a> {
    /// The configuration.
    pub evaluation: &'a Evaluation,
    /// Its virtual hosts.
    pub hosts: Hosts<'a>,
    inside: Vec<Vec<&'a Placed>>,
    children: Vec<Vec<usize>>,
}

impl<'a> Site<'a> {
    /// Sorts a configuration.
    pub fn of(evaluation: &'a Evaluation) -> Self {
        let count = evaluation.sections.len() + 1;
        // What each section belongs to: itself, or the one around it.
        let mut owner: Vec<usize> = (0..count).collect();
        let mut children: Vec<Vec<usize>> = vec![vec![]; count];
        for (at, opened) in evaluation.sections.iter().enumerate() {
            let id = at + 1;
            let parent = owner[opened.parent.unwrap_or(0)];
            match kind(&opened.section.name) {
                Kind::Access => owner[id] = parent,
                _ => children[parent].push(id),
            }
        }
        let mut inside: Vec<Vec<&Placed>> = vec![vec![]; count];
        for placed in &evaluation.directives {
            let id = placed.scope.last().map_or(0, |section| section.id);
            if let Some(owner) = owner.get(id) {
                inside[*owner].push(placed);
            }
        }
        let hosts = Hosts::of(evaluation, &|id| inside.get(id).cloned().unwrap_or_default());
        Self { evaluation, hosts, inside, children }
    }

    /// The directives that stand directly in a section, in order.
    pub fn inside(&self, id: usize) -> &[&'a Placed] {
        self.inside.get(id).map_or(&[], Vec::as_slice)
    }

    /// The sections of a kind that stand directly in a section, in order.
    pub fn children(&self, id: usize, wanted: Kind) -> impl Iterator<Item = &'a Opened> {
        let children = self.children.get(id).map_or(&[][..], Vec::as_slice);
        let opened = children.iter().filter_map(|child| self.opened(*child));
        opened.filter(move |opened| kind(&opened.section.name) == wanted)
    }

    /// A section by its number.
    pub fn opened(&self, id: usize) -> Option<&'a Opened> {
        self.evaluation.sections.get(id.checked_sub(1)?)
    }
}

/// The directives of a name in one section, in order.
pub fn named<'a, 's>(
    inside: &'s [&'a Placed],
    names: &'s [&'s str],
) -> impl DoubleEndedIterator<Item = &'a Placed> + 's {
    let is_named = |placed: &&&Placed| names.iter().any(|name| placed.name.eq_ignore_ascii_case(name));
    inside.iter().filter(is_named).copied()
}
