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
use webdyno_model::change::{ApplyClass, Change, Preparation, RenderedPlan, SettingChange};
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

/// Renders one change of a part of the site. Writes nothing.
pub fn prepare(apache: Apache, port: u16, changes: &[SettingChange]) -> Result<Preparation> {
    let [change] = changes else {
        return Ok(Preparation::not_preparable("values of a part of a site are changed one by one"));
    };
    let part = Part::of(change.setting.part.as_deref().unwrap_or_default(), port);
    let (name, to) = (change.setting.name.as_str(), change.to.to_string());
    let site = Site::of(&apache.evaluation);
    let now = part.in_force(&site);
    let not_preparable = |why: String| Ok(Preparation::not_preparable(why));
    let (Some(folder), Some(value)) = (folder(&now), now.value(name)) else {
        return not_preparable(format!("it is not known where {name} stands for {}{}", part.host, part.path));
    };
    if let Some(why) = now.undetermined(name).into_iter().next() {
        return not_preparable(why);
    }
    if is_same(&value.text, &to) {
        return Err(UserError::cannot_run(format!("nothing to change: {name} {to} is in force already")));
    }
    let Decision { to_decide, new_file } =
        match rules::decision(apache.control.pid, &now, name, (&value.text, &to), &folder) {
            Ok(decision) => decision,
            Err(why) => return not_preparable(why),
        };
    for place in places(&apache, &value, &folder) {
        let edit = SectionEdit { place: &place, name, to: &to, folder: &folder };
        let new_file = new_file.clone().map(|(path, text)| PartEdit::NewFile(path, text));
        let edits: Vec<PartEdit<'_>> = [PartEdit::Value(edit)].into_iter().chain(new_file).collect();
        let edited = crate::services::common::edit::apply(&edits, &Managers::here())?;
        if is_proved(&apache, part, (name, &to, &folder), &edited)? {
            return Ok(Preparation::Plan(Box::new(plan(change, &value, edited, to_decide))));
        }
    }
    not_preparable(format!(
        "no place was found where {name} {to} would win in {} and nowhere else: {} stands at {}",
        folder.display(),
        value.text,
        value.placed.map_or_else(|| "its default".to_owned(), Placed::place)
    ))
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

/// Evaluates the configuration as the edit would leave it: the value must win at the part, and the roots of the other hosts must
/// keep theirs, unless they lie in the same folder.
fn is_proved(
    apache: &Apache,
    part: Part<'_>,
    (name, to, folder): (&str, &str, &Path),
    edited: &Edited,
) -> Result<bool> {
    let then = Apache::with_overlay(apache.control.clone(), edited.overlay())?;
    let (before, after) = (Site::of(&apache.evaluation), Site::of(&then.evaluation));
    let wins = part.in_force(&after).value(name).is_some_and(|value| is_same(&value.text, to));
    Ok(wins && roots(&before, name, folder) == roots(&after, name, folder))
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

fn plan(change: &SettingChange, value: &Value<'_>, edited: Edited, to_decide: Vec<String>) -> RenderedPlan {
    let Edited { files, diff, managed } = edited;
    let file = files.first().map(|file| file.path.clone()).unwrap_or_default();
    let change = Change {
        setting: change.setting.clone(),
        from: Some(SettingValue::parse(&value.text)),
        to: change.to.clone(),
        file,
        class: ApplyClass::Reload,
        server: None,
    };
    let is_written = managed.is_empty() && to_decide.is_empty();
    let class = if is_written { ApplyClass::Reload } else { ApplyClass::Manual };
    RenderedPlan { changes: vec![change], files, class, diff, managed, to_decide }
}

#[cfg(test)]
mod tests;
