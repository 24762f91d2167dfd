//! Values that hold in a part of a site: Options, DirectoryIndex, AllowOverride, AllowOverrideList.
//!
//! A later `<Directory>` of the same path wins over those before, but for those of the virtual host, which come after all of the
//! server's (<https://httpd.apache.org/docs/2.4/sections.html#merging>). So our own file is tried first, then the line where the
//! value in force stands; the place is taken at which an evaluation of the whole shows that the value wins at that part, and
//! that the roots of the other hosts keep theirs.
//!
//! What would remove a protection, or break what no request of ours asks for, is a proposal for a person: [`rules`] decides.

mod edit;
mod rules;
mod tree;
mod type_map;

use super::config::Placed;
use super::config::section_kind::{Kind, kind};
use super::control::Apache;
use super::in_force::walk::directory;
use super::in_force::{Host, InForce, Site, Value, at_root, of_host};
use super::place::{Place, drop_in};
use crate::config_management::Managers;
use crate::os::wildcard::is_pattern;
use crate::services::common::edit::Edited;
use edit::{PartEdit, SectionEdit};
use rules::Decision;
use std::path::{Path, PathBuf};
use webdyno_model::change::{ApplyClass, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::{Result, UserError};

/// The settings that are changed in a part of a site: by a reload.
pub const NAMES: [&str; 4] = ["Options", "DirectoryIndex", "AllowOverride", "AllowOverrideList"];

/// A part of a site, by its host and the path of its root: `example.org/shop/`.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    host: &'a str,
    path: &'a str,
    port: u16,
}

impl<'a> Part<'a> {
    fn of(text: &'a str, port: u16) -> Self {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        Self { host, path: if path.is_empty() { "/" } else { path }, port }
    }

    /// What counts there: of the host with that name, else of the first one of the port, as the diagnosis takes it.
    fn in_force<'e, 's>(self, site: &'s Site<'e>) -> InForce<'e, 's> {
        let mut on_port = site.hosts.list.iter().filter(|host| host.is_on(self.port));
        let named = on_port.clone().find(|host| host.is_named(self.host));
        let host = named.or_else(|| on_port.next());
        of_host(site, host, host, self.path)
    }
}

/// A value that is to be another one.
struct Wanted<'a> {
    change: &'a SettingChange,
    part: Part<'a>,
    folder: PathBuf,
    now: Value<'a>,
    to: String,
    places: Vec<Place>,
    decision: Decision,
}

impl<'a> Wanted<'a> {
    /// What a change comes to; nothing where its value is in force. The error says why webdyno does not make it.
    fn of(
        apache: &'a Apache,
        site: &Site<'a>,
        port: u16,
        change: &'a SettingChange,
    ) -> std::result::Result<Option<Self>, String> {
        let part = Part::of(change.setting.part.as_deref().unwrap_or_default(), port);
        let (name, to) = (change.setting.name.as_str(), change.to.to_string());
        let at = part.in_force(site);
        let (Some(folder), Some(now)) = (folder(&at), at.value(name)) else {
            return Err(format!("it is not known where {name} stands for {}{}", part.host, part.path));
        };
        if let Some(why) = at.undetermined(name).into_iter().next() {
            return Err(why);
        }
        if is_same(&now.text, &to) {
            return Ok(None);
        }
        let decision = rules::decision(apache.control.pid, &at, name, (&now.text, &to), &folder)?;
        let places = places(apache, &now, &folder);
        Ok(Some(Self { change, part, folder, now, to, places, decision }))
    }

    fn name(&self) -> &str {
        &self.change.setting.name
    }

    /// What is written where its n-th place is taken, or its last one.
    fn edits(&self, nth: usize) -> Vec<PartEdit<'_>> {
        let place = self.places.get(nth).or(self.places.last());
        let edit = |place| SectionEdit { place, name: self.name(), to: &self.to, folder: &self.folder };
        let new_file = self.decision.new_file.clone().map(|(path, text)| PartEdit::NewFile(path, text));
        place.map(|place| PartEdit::Value(edit(place))).into_iter().chain(new_file).collect()
    }

    /// That it wins at none of its places.
    fn refusal(&self) -> String {
        format!(
            "no place was found where {} {} would win in {} and nowhere else: {} stands at {}",
            self.name(),
            self.to,
            self.folder.display(),
            self.now.text,
            self.now.placed.map_or_else(|| "its default".to_owned(), Placed::place)
        )
    }
}

/// Renders one change of a part of the site, or those of both settings that let files have rules, as these are one decision.
/// Writes nothing.
pub fn prepare(apache: Apache, port: u16, changes: &[SettingChange]) -> Result<Preparation> {
    let are_one = changes.iter().all(|change| change.setting.name.starts_with("AllowOverride"));
    if changes.len() > 1 && !are_one {
        return Ok(Preparation::not_preparable("values of a part of a site are changed one by one"));
    }
    let site = Site::of(&apache.evaluation);
    let understood = changes.iter().filter_map(|change| Wanted::of(&apache, &site, port, change).transpose());
    let wanted = match understood.collect::<std::result::Result<Vec<Wanted<'_>>, String>>() {
        Ok(wanted) => wanted,
        Err(why) => return Ok(Preparation::not_preparable(why)),
    };
    if wanted.is_empty() {
        let shown = changes.iter().map(|change| format!("{} {}", change.setting.name, change.to));
        let shown = shown.collect::<Vec<_>>().join(", ");
        return Err(UserError::cannot_run(format!("nothing to change: {shown} is in force already")));
    }
    for nth in 0..wanted.iter().map(|one| one.places.len()).max().unwrap_or(0) {
        let edits: Vec<PartEdit<'_>> = wanted.iter().flat_map(|one| one.edits(nth)).collect();
        let edited = crate::services::common::edit::apply(&edits, &Managers::here())?;
        if is_proved(&apache, &wanted, &edited)? {
            return Ok(Preparation::Plan(Box::new(plan(&wanted, edited))));
        }
    }
    let why: Vec<String> = wanted.iter().map(Wanted::refusal).collect();
    Ok(Preparation::not_preparable(why.join("; ")))
}

/// The folder of a part: only one that a `<Directory>` can name as it is.
fn folder(at: &InForce<'_, '_>) -> Option<PathBuf> {
    let file = at.file.as_deref().filter(|file| file.starts_with('/') && file.ends_with('/'))?;
    let is_plain = !is_pattern(file) && !file.contains(['"', '\\', '\n', '\r']);
    (is_plain && file.len() > 1).then(|| PathBuf::from(file.trim_end_matches('/')))
}

/// Whether two values mean the same: words in any order and case, for Options; names of files only as they are.
fn is_same(a: &str, b: &str) -> bool {
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_ascii_lowercase).collect() };
    let sorted = |text: &str| {
        let mut words = words(text);
        words.sort();
        words
    };
    a == b || (!a.contains('.') && sorted(a) == sorted(b))
}

/// Where the value may be written, the least intrusive first.
fn places(apache: &Apache, value: &Value<'_>, folder: &Path) -> Vec<Place> {
    let is_of_host = |placed: &&Placed| placed.scope.first().is_some_and(|one| kind(&one.name) == Kind::Host);
    let before: Vec<&Placed> = value.placed.filter(|placed| !is_of_host(placed)).into_iter().collect();
    let own = drop_in(&apache.evaluation, &apache.main_file, &before);
    let own = own.map_or_else(|| Place::Append(apache.main_file.clone()), Place::DropIn);
    let stands = value.placed.and_then(|placed| in_place(placed, folder));
    [own].into_iter().chain(stands).collect()
}

/// The line where the value stands, if that is in a `<Directory>` of this very folder.
fn in_place(placed: &Placed, folder: &Path) -> Option<Place> {
    let section = placed.scope.iter().rfind(|section| kind(&section.name) != Kind::Access)?;
    let is_plain = section.name.eq_ignore_ascii_case("Directory") && placed.via.is_none();
    let path = directory(section.words.first().filter(|path| is_plain && !is_pattern(path))?)?;
    let file = placed.file.as_ref()?;
    (Path::new(&path) == folder).then(|| Place::Line { file: file.to_path_buf(), line: placed.line })
}

/// Evaluates the configuration as the edits would leave it: each value must win at its part, and the roots of the other hosts must
/// keep theirs, unless they lie in the same folder.
fn is_proved(apache: &Apache, wanted: &[Wanted<'_>], edited: &Edited) -> Result<bool> {
    let then = Apache::with_overlay(apache.control.clone(), edited.overlay())?;
    let (before, after) = (Site::of(&apache.evaluation), Site::of(&then.evaluation));
    Ok(wanted.iter().all(|one| {
        let then = one.part.in_force(&after).value(one.name());
        let wins = then.is_some_and(|value| is_same(&value.text, &one.to));
        wins && roots(&before, one.name(), &one.folder) == roots(&after, one.name(), &one.folder)
    }))
}

/// The values at the roots of the server and of all hosts that do not lie in a folder.
fn roots(site: &Site<'_>, name: &str, folder: &Path) -> Vec<Option<String>> {
    let of = |host: Option<&Host<'_>>| {
        let at = at_root(site, host, 0);
        let is_inside = at.file.as_deref().is_some_and(|file| Path::new(file).starts_with(folder));
        (!is_inside).then(|| at.value(name).map(|value| value.text)).flatten()
    };
    std::iter::once(None).chain(site.hosts.list.iter().map(Some)).map(of).collect()
}

fn plan(wanted: &[Wanted<'_>], edited: Edited) -> RenderedPlan {
    let file = edited.files.first().map(|file| file.path.clone()).unwrap_or_default();
    let change = |one: &Wanted<'_>| {
        one.change.planned(Some(SettingValue::parse(&one.now.text)), &file, ApplyClass::Reload)
    };
    let changes = wanted.iter().map(change).collect();
    let mut to_decide: Vec<String> = wanted.iter().flat_map(|one| one.decision.to_decide.clone()).collect();
    to_decide.dedup();
    let class = if to_decide.is_empty() { ApplyClass::Reload } else { ApplyClass::Manual };
    RenderedPlan { to_decide, ..edited.plan(changes, class) }
}

#[cfg(test)]
mod tests;
