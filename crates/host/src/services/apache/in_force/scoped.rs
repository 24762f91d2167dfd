//! What a snapshot says of the parts of a site: the values in force at the root of each virtual host, the backends, and
//! the directives that hold in a part only. Bounded, and only of directives that are known to be harmless.

use super::{Host, InForce, Site, at_root, backends, harmless, index_files};
use crate::services::apache::config::known::{self, Merge};
use crate::services::apache::config::section_kind::{Kind, kind};
use crate::services::apache::config::{Placed, Section};
use crate::services::apache::settings;
use crate::services::common::certificate::{CERTIFICATES_MAX, key_kind};
use crate::visibility::process_view::Root;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingScope};

/// Most values that a snapshot holds.
pub const SCOPED_MAX: usize = 600;

/// Most virtual hosts of which the values at the root are told.
pub const HOSTS_MAX: usize = 32;

/// Most backends.
const BACKENDS_MAX: usize = 128;

/// Most files of a DirectoryIndex without an ending.
const INDEX_FILES_MAX: usize = 8;

/// Longest name of a part that is shown.
const SCOPE_CHARACTERS_MAX: usize = 160;

/// What is told of the root of a host, whether it is set or not.
const AT_ROOT: [&str; 8] = [
    "AllowOverride",
    ONLY_IF_SET,
    "Options",
    "DirectoryIndex",
    "HostnameLookups",
    "EnableSendfile",
    "EnableMMAP",
    "LogLevel",
];

/// Told where any part of the site sets it.
const ONLY_IF_SET: &str = "AllowOverrideList";

/// Directives that name backends.
const PASSING: [&str; 8] = [
    "ProxyPass",
    "ProxyPassMatch",
    "BalancerMember",
    "SetHandler",
    "AddHandler",
    "RewriteRule",
    "FastCgiExternalServer",
    "ProxyRemote",
];

/// The values, and what was left out or could not be told, in words.
#[derive(Debug, Clone, Default)]
pub struct Scoped {
    /// At the roots first, then backends, then the server's own, then those of its parts.
    pub settings: Vec<ScopedSetting>,
    /// What was left out or could not be told.
    pub notes: Vec<String>,
}

/// What a snapshot says of the parts of a site.
pub fn scoped(site: &Site<'_>, port: u16) -> Scoped {
    let mut scoped = Scoped::default();
    let mut scopes = Scopes::of(site);
    let hosts: Vec<&Host<'_>> = site.hosts.list.iter().filter(|host| host.is_on(port)).collect();
    for host in hosts.iter().take(HOSTS_MAX) {
        scoped.root(&at_root(site, Some(host), port));
    }
    // Requests that no host is for are the server's own.
    if site.hosts.chain(None, port).is_none() {
        scoped.root(&at_root(site, None, port));
    }
    let left_out_count = hosts.len().saturating_sub(HOSTS_MAX);
    if left_out_count > 0 {
        scoped.notes.push(format!(
            "values at the root are told of {HOSTS_MAX} of the {} virtual hosts of port {port}",
            hosts.len()
        ));
    }
    scoped.notes.extend(site.hosts.undetermined.iter().cloned());
    let chosen = chosen(site, port);
    let total_count = chosen.len();
    for placed in chosen {
        if scoped.settings.len() >= SCOPED_MAX {
            break;
        }
        scoped.written(placed, &mut scopes);
    }
    scoped.certificates(site, &mut scopes, port);
    if scoped.settings.len() >= SCOPED_MAX {
        scoped.notes.push(format!(
            "{SCOPED_MAX} of {} values that hold in parts of the site are told",
            total_count + (scoped.settings.len() - scoped.written_count())
        ));
    }
    scoped
}

impl Scoped {
    /// Adds a value, with where it stands if that is in a file.
    fn add(
        &mut self,
        setting: impl Into<String>,
        value: String,
        scope: Vec<SettingScope>,
        placed: Option<&Placed>,
    ) {
        let stands = placed.and_then(|placed| Some((placed.file.as_ref()?, placed.line)));
        let file = stands.map(|(file, _)| file.to_string_lossy().into_owned());
        let line = stands.map(|(_, line)| line);
        self.settings.push(ScopedSetting { setting: setting.into(), value, scope, file, line });
    }

    /// How many of the values are as they are written.
    fn written_count(&self) -> usize {
        let root = |scoped: &&ScopedSetting| {
            scoped.scope.iter().any(|part| matches!(part, SettingScope::DocumentRoot(_)))
        };
        self.settings.len() - self.settings.iter().filter(root).count()
    }

    /// The values at the root of a host, and the directories in which `.htaccess` is looked up.
    fn root(&mut self, at: &InForce<'_, '_>) {
        let Some(file) = at.file.as_deref() else {
            return self.notes.extend(at.walk.undetermined.iter().cloned());
        };
        let host: Vec<_> = at.host.iter().map(|host| shortened(host.scope())).collect();
        let scope = [host.as_slice(), &[shortened(SettingScope::DocumentRoot(file.to_owned()))]].concat();
        let is_set = at.site.evaluation.all(&[ONLY_IF_SET]).next().is_some();
        for name in AT_ROOT.into_iter().filter(|name| is_set || *name != ONLY_IF_SET) {
            // What the program does not know, it does not do.
            let module = known::find(name).map_or("core_module", |known| known.module);
            if module != "core_module" && !at.site.evaluation.has_module(module) {
                continue;
            }
            let Some(value) = at.value(name) else { continue };
            self.add(name, cut(&value.text), scope.clone(), value.placed);
            self.notes.extend(at.undetermined(name));
        }
        self.notes.extend(at.walk.undetermined.iter().cloned());
        self.lookups(at, &host);
        self.index_files(at, file, &scope);
    }

    /// The files among which Apache looks for the one of a DirectoryIndex without an ending.
    fn index_files(&mut self, at: &InForce<'_, '_>, folder: &str, scope: &[SettingScope]) {
        let views = at.value("Options").is_some_and(|options| options.text.contains("MultiViews"));
        let index = at.value("DirectoryIndex").filter(|_| views && folder.ends_with('/'));
        let bare = index.as_ref().and_then(|index| index_files::bare(&index.text));
        let found = bare.and_then(|bare| index_files::choices(Path::new(folder), bare, INDEX_FILES_MAX).ok());
        if let Some(found) = found {
            self.add("DirectoryIndex files", cut(&found.join(" ")), scope.to_vec(), None);
        }
    }

    /// The directories in which `.htaccess` is looked up; the file where there is one.
    fn lookups(&mut self, at: &InForce<'_, '_>, host: &[SettingScope]) {
        let name = at.value("AccessFileName").map_or(".htaccess".to_owned(), |value| value.text);
        for directory in at.htaccess_directories() {
            let files = name.split(' ').map(|name| Path::new(&directory).join(name));
            let found = files.into_iter().find(|file| file.symlink_metadata().is_ok());
            self.settings.push(ScopedSetting {
                setting: "AccessFileName".into(),
                value: cut(&name),
                scope: [host, &[shortened(SettingScope::Directory(directory))]].concat(),
                file: found.map(|file| file.to_string_lossy().into_owned()),
                line: None,
            });
        }
    }

    /// A directive as it is written, as far as it may be shown.
    fn written(&mut self, placed: &Placed, scopes: &mut Scopes) {
        let Some((setting, value)) =
            known::find(&placed.name).and_then(|known| harmless::displayable(known, placed))
        else {
            return;
        };
        self.add(setting, value, scopes.of_placed(placed), Some(placed));
    }

    /// The kinds of keys of certificates.
    fn certificates(&mut self, site: &Site<'_>, scopes: &mut Scopes, port: u16) {
        let all = site.evaluation.all(&["SSLCertificateFile"]);
        let on_port = |placed: &&Placed| !is_on_other_port(site, placed, port);
        for placed in all.filter(on_port).take(CERTIFICATES_MAX) {
            let Some(path) = placed.words().into_iter().next().map(|word| site.evaluation.path(&word)) else {
                continue;
            };
            match key_kind(&Root::ours(), &path.to_string_lossy()) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    self.add("SSLCertificateFile key", value, scopes.of_placed(placed), Some(placed));
                }
                Err(error) => {
                    self.notes.push(format!("cannot read {} ({}): {error}", path.display(), placed.place()));
                }
            }
        }
    }
}

/// The directives to show, the most telling first: those that pass to a backend that none before does, the server's own,
/// those of hosts of the port, the others.
fn chosen<'a>(site: &Site<'a>, port: u16) -> Vec<&'a Placed> {
    let mut winning: HashMap<(usize, &'static str), usize> = HashMap::new();
    let mut all: Vec<(&Placed, bool)> = vec![];
    for placed in &site.evaluation.directives {
        let Some(known) = known::find(&placed.name) else { continue };
        if placed.is_global() && settings::find(&placed.name).is_some() {
            continue;
        }
        let id = placed.scope.last().map_or(0, |section| section.id);
        let is_single = known.merge == Merge::Last || known.merge == Merge::Override;
        if is_single
            && let Some(name) = known.names.first()
            && let Some(before) = winning.insert((id, name), all.len())
        {
            all[before].1 = false;
        }
        all.push((placed, true));
    }
    let mut addresses = BTreeSet::new();
    let rank = |placed: &Placed, addresses: &mut BTreeSet<String>| {
        let passes = PASSING.iter().any(|name| placed.name.eq_ignore_ascii_case(name));
        let url = passes.then(|| placed.words().iter().find_map(|word| backends::url(word))).flatten();
        let is_new = url
            .and_then(|url| backends::address(&url))
            .is_some_and(|address| addresses.len() < BACKENDS_MAX && addresses.insert(address));
        match (is_new, placed.is_global(), is_on_other_port(site, placed, port)) {
            (true, ..) => 0,
            (_, true, _) => 1,
            (_, _, false) => 2,
            _ => 3,
        }
    };
    let all = all.into_iter().filter(|(_, counts)| *counts);
    let mut ranked: Vec<(u8, &Placed)> =
        all.map(|(placed, _)| (rank(placed, &mut addresses), placed)).collect();
    ranked.sort_by_key(|(rank, placed)| (*rank, placed.order));
    ranked.into_iter().map(|(_, placed)| placed).collect()
}

/// Whether a directive is in a virtual host that is not for a port.
fn is_on_other_port(site: &Site<'_>, placed: &Placed, port: u16) -> bool {
    let outer = placed.scope.first().filter(|section| kind(&section.name) == Kind::Host);
    let Some(outer) = outer else { return false };
    site.hosts.by_id(outer.id).is_none_or(|host| !host.is_on(port))
}

fn cut(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SCOPE_CHARACTERS_MAX).collect()
}

fn shortened(scope: SettingScope) -> SettingScope {
    cut(&scope.to_string()).into()
}

/// How parts of the site are named.
struct Scopes {
    hosts: HashMap<usize, SettingScope>,
}

impl Scopes {
    fn of(site: &Site<'_>) -> Self {
        let hosts = site.hosts.list.iter().map(|host| (host.opened.section.id, shortened(host.scope())));
        Self { hosts: hosts.collect() }
    }

    fn of_placed(&mut self, placed: &Placed) -> Vec<SettingScope> {
        let sections = placed.scope.iter().filter(|section| kind(&section.name) != Kind::Access);
        sections.map(|section| self.section(section)).collect()
    }

    fn section(&self, section: &Section) -> SettingScope {
        match kind(&section.name) {
            Kind::Host => {
                self.hosts.get(&section.id).cloned().unwrap_or_else(|| section.name.as_str().into())
            }
            Kind::Proxy => {
                let url = section.words.iter().find_map(|word| backends::url(word));
                cut(&format!("{} {}", section.name, url.as_deref().unwrap_or("*"))).into()
            }
            Kind::Directory | Kind::Files | Kind::Location => {
                cut(&format!("{} {}", section.name, section.words.join(" "))).into()
            }
            // Conditions may compare with what nobody should know.
            _ => cut(&section.name).into(),
        }
    }
}

/// The addresses that requests are passed to, as a snapshot names them.
pub fn configured_backends(snapshot: &ServiceSnapshot) -> Vec<String> {
    let passing = snapshot.scoped.iter().filter(|scoped| PASSING.contains(&scoped.setting.as_str()));
    let mut found: Vec<String> = vec![];
    for scoped in passing {
        let url = scoped.value.split_whitespace().find_map(backends::url);
        let address = url.and_then(|url| backends::address(&url));
        found.extend(address.filter(|address| !found.contains(address)));
    }
    found
}
