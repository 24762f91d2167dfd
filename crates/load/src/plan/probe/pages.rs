//! Pages before the load: what they embed, under which names that counts, and on which servers it is.
//!
//! The load goes to no host that its URLs do not name: what pages embed from others is left out, with a warning. A part
//! that shows only during the load counts under `(other)`.

use super::{ChainError, Document, follow_chain};
use crate::plan::script::discover;
use crate::plan::script::discover::{FoundUrl, ResourceKind};
use crate::plan::{Prepared, Template};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use url::Url;
use webdyno_model::Result;

/// Pages that are examined, and as many style sheets.
const EXPLORED_MAX: usize = 16;
/// Hosts that are named when their parts are left out.
const SHOWN_MAX: usize = 5;

/// Looks once into the pages of a workload that are searched for what they embed, in the time of one timeout.
pub(super) fn explore(prepared: &mut Prepared, timeout: Duration) -> Result<()> {
    let started_at = Instant::now();
    let hosts = prepared.plan.hosts();
    let mut left_out = BTreeSet::new();
    let (mut style_sheets, mut capture) = (vec![], BTreeSet::new());
    for number in prepared.plan.discovered_pages().into_iter().take(EXPLORED_MAX) {
        let Some(page) = load_page(prepared, number, None, started_at, timeout)? else { continue };
        let found = discover::html(page.body.as_deref().unwrap_or_default(), &page.url);
        style_sheets.extend(register_found(prepared, number, &found, &hosts, &mut left_out)?);
    }
    while let Some((number, url)) = style_sheets.pop() {
        let is_new = capture.len() < EXPLORED_MAX && capture.insert(url.as_str().to_owned());
        let Some(origin) = prepared.plan.origin_at(&url).filter(|_| is_new) else { continue };
        let from = &prepared.plan.templates[number];
        let first_template = Template::new(from.part(url), origin, from.name);
        let Some(sheet) = load_page(prepared, number, Some(first_template), started_at, timeout)? else {
            continue;
        };
        let found = discover::css(sheet.body.as_deref().unwrap_or_default(), &sheet.url);
        style_sheets.extend(register_found(prepared, number, &found, &hosts, &mut left_out)?);
    }
    warn_left_out(prepared, &left_out);
    Ok(())
}

/// Fetches a page, or `first_template` as a part of it. What is wrong with servers, the load will report.
fn load_page(
    prepared: &mut Prepared,
    number: usize,
    first_template: Option<Template>,
    started_at: Instant,
    timeout: Duration,
) -> Result<Option<Document>> {
    let first_template = first_template.or_else(|| prepared.plan.with_first_values(number));
    if first_template.is_none() && prepared.plan.is_dynamic(number) {
        // Its values come from responses.
        return Ok(None);
    }
    match follow_chain(prepared, number, first_template, started_at, timeout) {
        Ok((_, document)) => Ok(Some(document)),
        Err(ChainError::Local(error)) => Err(error),
        Err(ChainError::Server(_)) => Ok(None),
    }
}

/// Records what was found: names and servers. Returns the style sheets among it.
fn register_found(
    prepared: &mut Prepared,
    number: usize,
    found: &[FoundUrl],
    hosts: &BTreeSet<String>,
    left_out: &mut BTreeSet<String>,
) -> Result<Vec<(usize, Url)>> {
    let mut style_sheets = vec![];
    for FoundUrl { url, kind } in found {
        let host = url.host_str().unwrap_or_default();
        let is_known = prepared.plan.origin_at(url).is_some();
        if !is_known && !hosts.contains(host) {
            left_out.insert(host.to_owned());
            continue;
        }
        if !is_known && prepared.add_origin(url)?.is_none() {
            continue;
        }
        prepared.plan.register_part_name(url.path());
        if *kind == ResourceKind::StyleSheet {
            style_sheets.push((number, url.clone()));
        }
    }
    Ok(style_sheets)
}

fn warn_left_out(prepared: &mut Prepared, left_out: &BTreeSet<String>) {
    if left_out.is_empty() {
        return;
    }
    let mut display_name: Vec<&str> = left_out.iter().take(SHOWN_MAX).map(String::as_str).collect();
    let more = format!("{} more", left_out.len().saturating_sub(SHOWN_MAX));
    if left_out.len() > SHOWN_MAX {
        display_name.push(&more);
    }
    prepared.warn(format!(
        "pages embed what lies on {}: it is left out, as only hosts that the URLs name, or that these redirect \
         to, are loaded",
        display_name.join(", ")
    ));
}
