//! Which value of a directive is in force for a request, and from which file and line: a pure function of a
//! configuration as it was read.
//!
//! The parts: `site` sorts directives by their sections, `hosts` chooses the virtual host, `walk` the sections, `merge`
//! knows how values of several sections come together, `known` the directives that may be shown, `harmless` what of
//! their arguments may be; `scoped`, `logs` and `backends` tell a snapshot what it needs.
//!
//! What depends on more than the configuration is not guessed but told in [`InForce::undetermined`]: conditions of `<If>`,
//! expressions that cannot be evaluated, rewriting. `.htaccess` files are not read; where they are looked up is.

pub mod backends;
pub mod harmless;
pub mod hosts;
pub mod index_files;
pub mod merge;
pub mod scoped;
pub mod site;
pub mod walk;

use crate::services::apache::config::known::Level;
use crate::services::apache::config::{Evaluation, Placed};
pub use hosts::{Host, Hosts};
pub use merge::Value;
pub use site::Site;
use site::named;
use std::net::IpAddr;
use walk::{RequestTarget, Walk, alias_rest, ancestors};

/// What decides which sections count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The address that was connected to; `None` when only wildcards are to count.
    pub address: Option<IpAddr>,
    /// The port that was connected to.
    pub port: u16,
    /// The `Host` that was asked for.
    pub host: Option<&'a str>,
    /// The path of the URL, decoded and without its query.
    pub path: &'a str,
}

/// The sections that count for a request.
#[derive(Debug, Clone)]
pub struct InForce<'a, 's> {
    /// The configuration.
    pub site: &'s Site<'a>,
    /// The virtual host; `None` when the server itself answers.
    pub host: Option<&'s Host<'a>>,
    /// The host that waits between requests of a connection: the first one behind the address.
    pub first: Option<&'s Host<'a>>,
    /// The file that is asked for; one that ends with a slash is a directory. `None` when no file of the server is.
    pub file: Option<String>,
    /// The backend that gets the request by ProxyPass.
    pub passed: Option<&'a Placed>,
    /// The sections, in order.
    pub walk: Walk<'a>,
}

/// The sections that count for a request to a configuration.
pub fn in_force<'a, 's>(site: &'s Site<'a>, request: &Request<'_>) -> InForce<'a, 's> {
    let host = site.hosts.serving(request.address, request.port, request.host);
    let first = site.hosts.serving(request.address, request.port, None);
    of_host(site, host, first, request.path)
}

/// The same where the virtual host is known.
pub fn of_host<'a, 's>(
    site: &'s Site<'a>,
    host: Option<&'s Host<'a>>,
    first: Option<&'s Host<'a>>,
    path: &str,
) -> InForce<'a, 's> {
    let id = host.map(|host| host.opened.section.id);
    let mapped = Mapped::of(site, id, path);
    let asked = RequestTarget { path, file: mapped.file.as_deref(), passed_to: mapped.url.as_deref() };
    let mut walk = Walk::of(site, id, asked);
    walk.undetermined.extend(mapped.undetermined);
    InForce { site, host, first, file: mapped.file, passed: mapped.passed, walk }
}

impl<'a> InForce<'a, '_> {
    /// The numbers of the sections that count, the server's own (0) and the virtual host first.
    pub fn layers(&self) -> Vec<usize> {
        let host = self.host.map(|host| host.opened.section.id);
        let sections = self.walk.sections.iter().map(|opened| opened.section.id);
        [0].into_iter().chain(host).chain(sections).collect()
    }

    /// The layers that a directive may stand in.
    fn layers_of(&self, name: &str) -> Vec<usize> {
        let host = |host: Option<&Host<'_>>| host.map(|host| host.opened.section.id);
        match crate::services::apache::config::known::find(name).map_or(Level::Directory, |known| known.level)
        {
            Level::Server => vec![0],
            Level::Host => [0].into_iter().chain(host(self.host)).collect(),
            // `ap_process_http_*_connection`: what the host itself sets, else what the first behind the address has.
            Level::Connection => {
                let own = host(self.host).filter(|id| named(self.site.inside(*id), &[name]).next().is_some());
                [0].into_iter().chain(host(self.first)).chain(own).collect()
            }
            Level::Directory => self.layers(),
        }
    }

    /// The value of a directive and where the last part of it stands; `None` when neither the configuration sets it nor a
    /// default is known.
    pub fn value(&self, name: &str) -> Option<Value<'a>> {
        merge::value(self, name, &self.layers_of(name))
    }

    /// All directives of these names that count, in order.
    pub fn all(&self, names: &[&str]) -> Vec<&'a Placed> {
        let layers = self.layers();
        layers.into_iter().flat_map(|id| named(self.site.inside(id), names).collect::<Vec<_>>()).collect()
    }

    /// What could not be told of a directive, in words: conditions that may set it.
    pub fn undetermined(&self, name: &str) -> Vec<String> {
        let set = |id| named(self.site.inside(id), &[name]).map(Placed::place).collect::<Vec<_>>();
        let undecided = self.walk.undecided.iter().flat_map(|opened| set(opened.section.id));
        undecided
            .map(|place| format!("{name} at {place} holds under a condition that is not evaluated"))
            .collect()
    }

    /// The directories in which `.htaccess` is looked up, from the root, each with a slash at its end.
    ///
    /// While no AllowOverride counts they are looked up too, and may then hold nothing: `ap_directory_walk` goes by the
    /// bits of the value, and that of a value which was never set is not zero (seen with 2.4.71).
    pub fn htaccess_directories(&self) -> Vec<String> {
        let Some(file) = self.file.as_deref() else { return vec![] };
        let mut looks_up = true;
        let mut lists = false;
        let mut sections = self.walk.directories.iter().peekable();
        let mut found = vec![];
        for (at, directory) in ancestors(file).into_iter().enumerate() {
            while let Some((opened, _)) = sections.next_if(|(_, depth)| *depth <= at + 1) {
                let inside = self.site.inside(opened.section.id);
                if let Some(placed) = named(inside, &["AllowOverride"]).next_back() {
                    looks_up = !merge::allows_nothing(&placed.words());
                }
                if let Some(placed) = named(inside, &["AllowOverrideList"]).next_back() {
                    lists = !placed.arguments.trim().eq_ignore_ascii_case("none");
                }
            }
            if looks_up || lists {
                found.push(directory.to_owned());
            }
        }
        found
    }
}

/// Sections that count at the root of a virtual host, or of the server when there is none.
pub fn at_root<'a, 's>(site: &'s Site<'a>, host: Option<&'s Host<'a>>, port: u16) -> InForce<'a, 's> {
    let address = host.and_then(|host| host.addresses.iter().find(|a| a.port == 0 || a.port == port));
    let first = address.and_then(|address| site.hosts.serving(address.ip, port, None));
    of_host(site, host, first.or(host), "/")
}

/// What a path stands for: a file, or a URL at a backend.
#[derive(Debug, Default)]
struct Mapped<'a> {
    file: Option<String>,
    url: Option<String>,
    passed: Option<&'a Placed>,
    undetermined: Vec<String>,
}

impl<'a> Mapped<'a> {
    /// Maps a path as mod_proxy and then mod_alias and the core do. Rewriting is told only.
    fn of(site: &Site<'a>, host: Option<usize>, path: &str) -> Self {
        let mut mapped = Self::default();
        let bases: Vec<usize> = [0].into_iter().chain(host).collect();
        let passing = ["ProxyPass", "ProxyPassMatch"];
        let asked = RequestTarget { path, file: None, passed_to: None };
        let locations = Walk::of(site, host, asked).sections;
        let by_location = locations.iter().rev().find_map(|opened| {
            let placed = named(site.inside(opened.section.id), &passing).next_back()?;
            Some((placed, backends::target(&placed.words(), 0)?))
        });
        let by_path = || {
            let all = bases.iter().flat_map(|base| named(site.inside(*base), &passing));
            let matching = |placed: &'a Placed| {
                let words = placed.words();
                let words: Vec<String> = words.into_iter().filter(|word| word != "~").collect();
                is_passed(placed, words.first()?, path).then_some((placed, backends::target(&words, 1)?))
            };
            all.filter_map(matching).next()
        };
        if let Some((placed, url)) = by_location.or_else(by_path)
            && url != "!"
        {
            mapped.passed = Some(placed);
            mapped.url = Some(url);
            return mapped;
        }
        mapped.rewriting(site, &bases);
        mapped.file = mapped.aliased(site, &bases, path).or_else(|| root(site, &bases, path));
        mapped
    }

    /// The file that an `Alias` gives; the host's own come first.
    fn aliased(&mut self, site: &Site<'a>, bases: &[usize], path: &str) -> Option<String> {
        let names = ["Alias", "ScriptAlias", "AliasMatch", "ScriptAliasMatch"];
        for placed in bases.iter().rev().flat_map(|base| named(site.inside(*base), &names)) {
            let words = placed.words();
            let [alias, real] = words.as_slice() else { continue };
            if placed.name.to_ascii_lowercase().ends_with("match") {
                match crate::services::apache::config::pattern::expression(alias) {
                    Ok(expression) if expression.is_match(path) => {
                        self.undetermined.push(format!(
                            "{} at {} decides the file, which is not followed",
                            placed.name,
                            placed.place()
                        ));
                        return None;
                    }
                    Ok(_) => {}
                    Err(why) => self.undetermined.push(format!("{why} ({})", placed.place())),
                }
            } else if let Some(rest) = alias_rest(alias, path) {
                return Some(joined(&site.evaluation.path(real).to_string_lossy(), rest));
            }
        }
        None
    }

    /// Says that rules may send the request elsewhere.
    fn rewriting(&mut self, site: &Site<'a>, bases: &[usize]) {
        let Some(base) = bases.last() else { return };
        let on = named(site.inside(*base), &["RewriteEngine"]).next_back();
        let rule = named(site.inside(*base), &["RewriteRule"]).next();
        if let (Some(on), Some(rule)) = (on, rule)
            && on.arguments.trim().eq_ignore_ascii_case("on")
        {
            self.undetermined.push(format!("RewriteRule at {} may send it elsewhere", rule.place()));
        }
    }
}

/// Whether a `ProxyPass` of the server or a host is for a path.
fn is_passed(placed: &Placed, from: &str, path: &str) -> bool {
    let by_expression = placed.name.eq_ignore_ascii_case("ProxyPassMatch")
        || placed.words().first().is_some_and(|word| word == "~");
    match by_expression {
        true => crate::services::apache::config::pattern::expression(from)
            .is_ok_and(|expression| expression.is_match(path)),
        false => alias_rest(from, path).is_some(),
    }
}

/// The file below DocumentRoot: that of the host, else that of the server, else the compiled one, which is not known.
fn root(site: &Site<'_>, bases: &[usize], path: &str) -> Option<String> {
    let all = bases.iter().rev();
    let placed = all.filter_map(|base| named(site.inside(*base), &["DocumentRoot"]).next_back()).next()?;
    let root = placed.words().into_iter().next()?;
    Some(joined(&site.evaluation.path(&root).to_string_lossy(), path))
}

fn joined(base: &str, rest: &str) -> String {
    match (base.ends_with('/'), rest.starts_with('/')) {
        (true, true) => format!("{base}{}", &rest[1..]),
        (false, false) if !rest.is_empty() => format!("{base}/{rest}"),
        _ => format!("{base}{rest}"),
    }
}

/// The configuration of a request in one call, for who asks once.
pub fn value_of(
    evaluation: &Evaluation,
    request: &Request<'_>,
    name: &str,
) -> Option<(String, Option<String>)> {
    let site = Site::of(evaluation);
    let value = in_force(&site, request).value(name)?;
    Some((value.text, value.placed.map(Placed::place)))
}

#[cfg(test)]
mod tests;
