//! A type map: the files among which a DirectoryIndex without an ending chooses, in a list, so that nobody reads the folder.
//!
//! <https://httpd.apache.org/docs/2.4/mod/mod_negotiation.html#typemaps>: a file of blocks with a blank line between them, one for
//! each choice; `#` begins a comment. What MultiViews finds in the endings of the files is written there, so that the choice
//! stays the same. Whatever else could say what a file is makes it a matter for a person.

use crate::services::apache::config::Placed;
use crate::services::apache::in_force::InForce;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// What begins it.
const HEAD: &str = "# Written by webdyno: the choices of the front page, which Apache would look for among all files of the folder.\n\
                    # A file that is added later has to be added here. Undo with: webdyno rollback\n";

/// Directives that say what a file is, beside its endings.
const OTHER_SOURCES: [&str; 5] =
    ["ForceType", "DefaultLanguage", "MultiviewsMatch", "ModMimeUsePathInfo", "CacheNegotiatedDocs"];

/// Directives that take from endings what others say of them: an ending that one of them names is not sure.
const REMOVING: [&str; 4] = ["RemoveLanguage", "RemoveHandler", "RemoveCharset", "RemoveEncoding"];

/// Most that is read of a table of types: Debian's has 74 KB.
const TYPES_BYTES_MAX: u64 = 1 << 20;

/// The type map of files that stand for a name. The error says why it is for a person to write.
pub fn rendered(at: &InForce<'_, '_>, bare: &str, files: &[String]) -> Result<String, String> {
    if let Some(other) = at.all(&OTHER_SOURCES).first() {
        return Err(format!("{} at {} has a say in what a file is", other.name, other.place()));
    }
    let handlers = by_ending(&at.all(&["AddHandler"]));
    if handlers.get("var").map(String::as_str) != Some("type-map") {
        return Err(
            "no `AddHandler type-map .var` is in force, which makes a list of choices of a file".into()
        );
    }
    let languages = by_ending(&at.all(&["AddLanguage"]));
    let types = types(at)?;
    let others = by_ending(&at.all(&["AddCharset", "AddEncoding", "AddOutputFilter", "AddInputFilter"]));
    let removed: BTreeSet<String> =
        at.all(&REMOVING).iter().flat_map(|placed| placed.words()).map(|word| ending(&word)).collect();
    let mut text = HEAD.to_owned();
    for file in files {
        let endings: Vec<&str> = file.strip_prefix(bare).unwrap_or_default().split('.').skip(1).collect();
        let is_plain = file.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let unknown = || format!("what the endings of {file} mean is not sure");
        let [kind, language] = endings[..] else { return Err(unknown()) };
        let is_else = |ending: &str| {
            others.contains_key(ending) || handlers.contains_key(ending) || removed.contains(ending)
        };
        if !is_plain
            || is_else(kind)
            || is_else(language)
            || languages.contains_key(kind)
            || types.get(language).is_some_and(|kind| !kind.is_empty())
        {
            return Err(unknown());
        }
        let kind = types.get(kind).filter(|kind| !kind.is_empty());
        let (Some(kind), Some(language)) = (kind, languages.get(language)) else {
            return Err(unknown());
        };
        text.push_str(&format!("\nURI: {file}\nContent-Type: {kind}\nContent-Language: {language}\n"));
    }
    Ok(text)
}

/// The type of each ending. `RemoveType` says that it has none, whatever the table says (`remove_extension_type` in mod_mime.c).
fn types(at: &InForce<'_, '_>) -> Result<BTreeMap<String, String>, String> {
    let table = at.all(&["TypesConfig"]).last().and_then(|placed| placed.words().into_iter().next());
    let path = at.site.evaluation.path(table.as_deref().unwrap_or("conf/mime.types"));
    let mut text = String::new();
    let file = std::fs::File::open(&path).map(|file| file.take(TYPES_BYTES_MAX));
    let read = file.and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        let Some(kind) = words.next() else { continue };
        found.extend(words.map(|word| (ending(word), kind.to_owned())));
    }
    for placed in at.all(&["AddType", "RemoveType"]) {
        let words = placed.words();
        let (kind, endings) = match words.split_first() {
            Some((kind, endings)) if placed.name.eq_ignore_ascii_case("AddType") => (kind.as_str(), endings),
            _ => ("", &words[..]),
        };
        found.extend(endings.iter().map(|word| (ending(word), kind.to_owned())));
    }
    Ok(found)
}

/// What directives like `AddLanguage de .de .ger` say of each ending, in lower case: the last one counts.
fn by_ending(placed: &[&Placed]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for placed in placed {
        let mut words = placed.words().into_iter();
        let Some(what) = words.next() else { continue };
        for word in words {
            found.insert(ending(&word), what.clone());
        }
    }
    found
}

/// An ending without its dot, in lower case.
fn ending(word: &str) -> String {
    word.trim_start_matches('.').to_ascii_lowercase()
}
