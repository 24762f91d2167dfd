//! How the values of several sections come together.
//!
//! `merge_core_dir_configs` and `set_options` in server/core.c, `ap_merge_log_config` and `update_loglevel` in
//! server/config.c and core.c, `merge_dir_configs` in modules/mappers/mod_dir.c of httpd. For most directives the last
//! one wins, and in one section the last one of it.

use super::{InForce, Site};
use crate::services::apache::config::Placed;
use crate::services::apache::config::known::{self, Merge};
use crate::services::apache::in_force::site::named;
use std::collections::BTreeMap;

/// A value in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value<'a> {
    /// `FollowSymLinks Indexes`, `warn ssl:info`; for most directives the arguments as they are written.
    pub text: String,
    /// The directive that decided last; `None` for a default.
    pub placed: Option<&'a Placed>,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Placed {}

/// The value of a directive over layers.
pub fn value<'a>(at: &InForce<'a, '_>, name: &str, layers: &[usize]) -> Option<Value<'a>> {
    let known = known::find(name);
    let names = known.map_or(vec![name], |known| known.names.to_vec());
    let inside = |id: usize| -> Vec<&'a Placed> { named(at.site.inside(id), &names).collect() };
    let by_layer: Vec<Vec<&'a Placed>> = layers.iter().map(|id| inside(*id)).collect();
    let last = by_layer.iter().flatten().next_back().copied();
    let default = || {
        let text = known.and_then(|known| known.default)?;
        Some(Value { text: text.to_owned(), placed: None })
    };
    match known.map_or(Merge::Last, |known| known.merge) {
        Merge::Last | Merge::List => last.map(|placed| plain(placed)).or_else(default),
        Merge::Options => Some(options(&by_layer)),
        Merge::LogLevel => Some(log_level(&by_layer)),
        Merge::Index => index(&by_layer).or_else(default),
        // Elsewhere than in a plain `<Directory>` it does nothing.
        Merge::Override => {
            let sections = at.walk.directories.iter().map(|(opened, _)| opened.section.id);
            let last = sections.filter_map(|id| inside(id).pop()).next_back();
            last.map(plain).or_else(default)
        }
    }
}

fn plain(placed: &Placed) -> Value<'_> {
    Value { text: placed.words().join(" "), placed: Some(placed) }
}

/// Whether words of AllowOverride allow nothing.
pub fn allows_nothing(words: &[String]) -> bool {
    let mut nothing = true;
    for word in words {
        // `Nonfatal` only says what becomes of what is not allowed; still its bits count as something.
        nothing = word.eq_ignore_ascii_case("none");
    }
    nothing
}

/// Options by their bits, in the order in which they are shown.
const OPTIONS: [(&str, u16); 7] = [
    ("Indexes", 1),
    ("Includes", 2 | 4),
    ("IncludesNOEXEC", 2),
    ("FollowSymLinks", 8),
    ("SymLinksIfOwnerMatch", 16),
    ("ExecCGI", 32),
    ("MultiViews", 64),
];

/// OPT_ALL: not MultiViews and not SymLinksIfOwnerMatch.
const ALL: u16 = 1 | 2 | 4 | 8 | 32;
const FOLLOW: u16 = 8;
const OWNER: u16 = 16;

/// The options of one section, or what was merged so far.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    /// Whether no word without a sign was given.
    relative: bool,
    set: u16,
    add: u16,
    remove: u16,
}

impl Options {
    fn of(inside: &[&Placed]) -> Self {
        let mut options = Self { relative: true, ..Self::default() };
        for placed in inside {
            for (at, word) in placed.words().iter().enumerate() {
                options.word(word, at == 0);
            }
        }
        options
    }

    fn word(&mut self, word: &str, first: bool) {
        let (sign, name) = match word.strip_prefix(['+', '-']) {
            Some(name) => (word.chars().next(), name),
            None => (None, word),
        };
        let known = OPTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let bits = match known {
            Some((_, bits)) => *bits,
            None if name.eq_ignore_ascii_case("All") => ALL,
            None => 0,
        };
        match sign {
            Some('-') => {
                self.remove |= bits;
                self.add &= !bits;
                self.set &= !bits;
            }
            Some(_) => {
                self.add |= bits;
                self.remove &= !bits;
                self.set |= bits;
            }
            None => {
                if first {
                    (self.relative, self.set) = (false, 0);
                }
                self.set |= bits;
            }
        }
    }

    fn merged(self, new: Self) -> Self {
        if !new.relative {
            return new;
        }
        let add = (self.add & !new.remove) | new.add;
        let remove = (self.remove & !new.add) | new.remove;
        let mut set = (self.set & !remove) | add;
        // Includes with programs, then without: programs are taken away.
        if self.set & 6 == 6 && new.set & 6 == 2 {
            set &= !4;
        }
        Self { relative: self.relative, set, add, remove }
    }

    fn text(self) -> String {
        let mut left = self.set;
        let mut words: Vec<&str> = vec![];
        for (name, bits) in OPTIONS {
            if left & bits == bits {
                left &= !bits;
                words.push(name);
            }
        }
        if words.is_empty() { "None".into() } else { words.join(" ") }
    }
}

fn options<'a>(by_layer: &[Vec<&'a Placed>]) -> Value<'a> {
    let placed = by_layer.iter().flatten().next_back().copied();
    Value { text: merged(by_layer).text(), placed }
}

/// The options of the server (the first layer), changed by those of each section.
fn merged(by_layer: &[Vec<&Placed>]) -> Options {
    // It begins with FollowSymLinks, which its own directives change in place.
    let mut merged = Options { relative: true, set: FOLLOW, add: 0, remove: 0 };
    for (at, inside) in by_layer.iter().enumerate().filter(|(_, inside)| !inside.is_empty()) {
        let own = Options::of(inside);
        merged = match at {
            0 if own.relative => Options { set: own.set | (FOLLOW & !own.remove), ..own },
            0 => own,
            _ => merged.merged(own),
        };
    }
    merged
}

/// Whether links are followed in sections without looking at them.
pub fn follows_links(site: &Site<'_>, layers: &[usize]) -> bool {
    let by_layer: Vec<Vec<&Placed>> =
        layers.iter().map(|id| named(site.inside(*id), &["Options"]).collect()).collect();
    merged(&by_layer).set & (FOLLOW | OWNER) == FOLLOW
}

/// The levels of the server, and of modules that have one of their own.
fn log_level<'a>(by_layer: &[Vec<&'a Placed>]) -> Value<'a> {
    let mut level = "warn".to_owned();
    let mut modules: BTreeMap<String, String> = BTreeMap::new();
    for word in by_layer.iter().flatten().flat_map(|placed| placed.words()) {
        match word.rsplit_once(':') {
            Some((module, of_module)) => {
                let module =
                    module.trim_end_matches("_module").trim_start_matches("mod_").trim_end_matches(".c");
                modules.insert(module.to_owned(), of_module.to_owned());
            }
            // It resets those of all modules.
            None => {
                level = word;
                modules.clear();
            }
        }
    }
    let modules = modules.iter().map(|(module, level)| format!("{module}:{level}"));
    let text: Vec<String> = [level].into_iter().chain(modules).collect();
    Value { text: text.join(" "), placed: by_layer.iter().flatten().next_back().copied() }
}

/// Those of the last section that names any; several directives in one section add to each other.
fn index<'a>(by_layer: &[Vec<&'a Placed>]) -> Option<Value<'a>> {
    let inside = by_layer.iter().rfind(|inside| !inside.is_empty())?;
    let mut names: Vec<String> = vec![];
    for placed in inside {
        match placed.words().as_slice() {
            [word] if word.eq_ignore_ascii_case("disabled") => names.clear(),
            words => names.extend(words.iter().cloned()),
        }
    }
    let text = if names.is_empty() { "disabled".to_owned() } else { names.join(" ") };
    Some(Value { text, placed: inside.last().copied() })
}
