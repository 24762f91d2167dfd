//! A check on the source: modules beside each other use each other in one direction, on every level of a crate. A module and
//! those in its folder may know each other. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// Crates without circles; those that still have some are to be added once they are straight.
const CRATES: [&str; 10] =
    ["model", "load", "analysis", "logs", "session", "report", "lab", "evaluation", "webdyno", "host"];

/// The place of a module: the names from the top of its crate.
type Place = Vec<String>;

/// Modules that use each other, and for each pair an example.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

fn files(folder: &Path, place: &Place, found: &mut BTreeMap<Place, PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let inner = [place.as_slice(), std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            files(&path, &inner, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !name.ends_with("tests") {
            let is_top = ["lib", "main"].contains(&name.as_str()) && place.is_empty();
            let own = if name == "mod" || is_top { place.clone() } else { inner };
            found.insert(own, path);
        }
    }
}

/// Gathers the paths that a file names.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                self.tree(&[before, &[path.ident.to_string()]].concat(), &path.tree);
            }
            syn::UseTree::Name(name) => self.0.push([before, &[name.ident.to_string()]].concat()),
            syn::UseTree::Rename(name) => self.0.push([before, &[name.ident.to_string()]].concat()),
            syn::UseTree::Glob(_) => self.0.push(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(before, item)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item::{Fn, Impl, Mod, Use};
        let attributes = match item {
            Fn(item) => &item.attrs,
            Impl(item) => &item.attrs,
            Mod(item) => &item.attrs,
            Use(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        let is_test = |one: &syn::Attribute| one.path().is_ident("cfg");
        if !attributes.iter().any(is_test) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

/// The module that a path leads to, as far as it leads through modules of this crate.
fn leads_to(path: &[String], from: &Place, known: &BTreeMap<Place, PathBuf>) -> Option<Place> {
    let has_child =
        |name: &String| known.keys().any(|one| one.starts_with(from) && one.get(from.len()) == Some(name));
    let (mut place, mut rest) = match path.first()?.as_str() {
        "crate" => (vec![], &path[1..]),
        "self" | "super" => (from.clone(), path),
        _ if has_child(&path[0]) => (from.clone(), path),
        _ => return None,
    };
    while let Some((first, others)) =
        rest.split_first().filter(|(first, _)| ["self", "super"].contains(&first.as_str()))
    {
        if first == "super" {
            place.pop();
        }
        rest = others;
    }
    for name in rest {
        place.push(name.clone());
        if !known.keys().any(|one| one.starts_with(&place)) {
            place.pop();
            break;
        }
    }
    Some(place)
}

/// On every level: which of the modules there uses which other one.
fn levels(known: &BTreeMap<Place, PathBuf>) -> BTreeMap<Place, Uses> {
    let mut levels: BTreeMap<Place, Uses> = BTreeMap::new();
    for (from, file) in known {
        let mut paths = Paths::default();
        paths.visit_file(&syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap());
        for to in paths.0.iter().filter_map(|path| leads_to(path, from, known)) {
            let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
                let uses = levels.entry(from[..common].to_vec()).or_default().entry(one.clone()).or_default();
                uses.entry(other.clone())
                    .or_insert_with(|| format!("{} -> {}", from.join("::"), to.join("::")));
            }
        }
    }
    levels
}

/// All that one leads to.
fn reached<'a>(uses: &'a Uses, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left = vec![from];
    while let Some(one) = left.pop() {
        let next = uses.get(one).into_iter().flat_map(BTreeMap::keys);
        left.extend(next.map(String::as_str).filter(|next| found.insert(*next)));
    }
    found
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut complaints = vec![];
    for name in CRATES {
        let mut known = BTreeMap::new();
        files(&crates.join(name).join("src"), &vec![], &mut known);
        assert!(known.len() > 1, "{name}");
        for uses in levels(&known).values() {
            for (one, others) in uses {
                let back = others.iter().filter(|(other, _)| reached(uses, other).contains(one.as_str()));
                complaints.extend(back.map(|(_, example)| format!("{name}: in a circle: {example}")));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn a_folder_has_its_module_in_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in CRATES {
        let mut known = BTreeMap::new();
        files(&crates.join(name).join("src"), &vec![], &mut known);
        let beside = known.values().find(|file| file.with_extension("").is_dir());
        assert_eq!(beside, None, "write it as `name/mod.rs`");
    }
}
