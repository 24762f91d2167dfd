//! A type map: the files among which a DirectoryIndex without an ending chooses, in a list, so that nobody reads the folder.
//!
//! <https://httpd.apache.org/docs/2.4/mod/mod_negotiation.html#typemaps>: a file of blocks with a blank line between them, one for
//! each choice; `#` begins a comment. What MultiViews finds in the endings of the files is written there, so that the choice
//! stays the same. Whatever else could say what a file is makes it a matter for a person.

use crate::services::apache::config::Placed;
use crate::services::apache::in_force::InForce;
use std::collections::BTreeMap;

/// What begins it.
const HEAD: &str = "# Written by webdyno: the choices of the front page, which Apache would look for among all files of the folder.\n\
                    # A file that is added later has to be added here. Undo with: webdyno rollback\n";

/// Directives that say what a file is, beside its endings.
const OTHER_SOURCES: [&str; 10] = [
    "ForceType",
    "DefaultLanguage",
    "MultiviewsMatch",
    "RemoveType",
    "RemoveLanguage",
    "RemoveHandler",
    "RemoveCharset",
    "RemoveEncoding",
    "ModMimeUsePathInfo",
    "CacheNegotiatedDocs",
];

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
    let types = by_ending(&at.all(&["AddType"]));
    let others = by_ending(&at.all(&["AddCharset", "AddEncoding", "AddOutputFilter", "AddInputFilter"]));
    let mut text = HEAD.to_owned();
    for file in files {
        let endings: Vec<&str> = file.strip_prefix(bare).unwrap_or_default().split('.').skip(1).collect();
        let is_plain = file.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let unknown = || format!("what the endings of {file} mean is not sure");
        let [kind, language] = endings[..] else { return Err(unknown()) };
        let is_else = |ending: &str| others.contains_key(ending) || handlers.contains_key(ending);
        if !is_plain
            || is_else(kind)
            || is_else(language)
            || languages.contains_key(kind)
            || types.contains_key(language)
        {
            return Err(unknown());
        }
        let usual = ["html", "htm"].contains(&kind).then(|| "text/html".to_owned());
        let (Some(kind), Some(language)) = (types.get(kind).cloned().or(usual), languages.get(language))
        else {
            return Err(unknown());
        };
        text.push_str(&format!("\nURI: {file}\nContent-Type: {kind}\nContent-Language: {language}\n"));
    }
    Ok(text)
}

/// What directives like `AddLanguage de .de .ger` say of each ending, in lower case: the last one counts.
fn by_ending(placed: &[&Placed]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for placed in placed {
        let mut words = placed.words().into_iter();
        let Some(what) = words.next() else { continue };
        for ending in words {
            found.insert(ending.trim_start_matches('.').to_ascii_lowercase(), what.clone());
        }
    }
    found
}
