//! Which value of a setting holds where requests go: of the virtual host that is asked, and of the folders on the way.
//!
//! The snapshot tells the values at the root of each host of the port, after all sections were merged, and those that are
//! written in sections. Sections by patterns, aliases and conditions are not followed: where they matter, the value is
//! that of the root.

use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingScope};

/// What a load asks for: a URL, taken apart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestTarget {
    /// The name of the server, without the port.
    pub host: String,
    /// The path, without the query.
    pub path: String,
    /// Whether over TLS.
    pub tls: bool,
    /// Its share of the requests.
    pub share: f64,
    /// Whether the answer may come compressed.
    pub compressed: bool,
}

impl RequestTarget {
    /// Takes a URL apart; `None` for one without a server.
    pub fn of(url: &str) -> Option<Self> {
        let url = url::Url::parse(url).ok()?;
        Some(Self {
            host: url.host_str()?.into(),
            path: url.path().into(),
            tls: url.scheme() == "https",
            ..Self::default()
        })
    }

    /// Folders on the way from the root of the site to what is asked for.
    pub fn folders(&self) -> usize {
        self.path.split('/').filter(|name| !name.is_empty()).count() - usize::from(!self.is_folder())
    }

    /// Whether a folder is asked for.
    pub fn is_folder(&self) -> bool {
        self.path.ends_with('/')
    }

    /// The ending of the file, in lower case; `None` for folders and names without one.
    pub fn ending(&self) -> Option<String> {
        let name = self.path.rsplit('/').next()?;
        name.rsplit_once('.')
            .map(|(_, ending)| ending.to_ascii_lowercase())
            .filter(|ending| !ending.is_empty())
    }
}

/// A value, and where it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveSetting {
    /// As in the file; of `Options` with signs, what they come to.
    pub value: String,
    /// The innermost part of the site that it is of: `Directory /srv/shop`.
    pub place: String,
    /// The file and its line, where it is written in one.
    pub written_at: Option<String>,
    /// The part of the site that has it, as host and path: `example.org/shop/`; where changes are asked for.
    pub part: String,
}

impl EffectiveSetting {
    /// Whether one of the words of the value is this, in any case.
    pub fn has(&self, word: &str) -> bool {
        self.value.split_whitespace().any(|own| own.eq_ignore_ascii_case(word))
    }

    fn of(scoped: &ScopedSetting) -> Self {
        let line = scoped.line.map_or(String::new(), |line| format!(":{line}"));
        Self {
            value: scoped.value.clone(),
            place: scoped.innermost(),
            written_at: scoped.file.as_ref().map(|file| format!("{file}{line}")),
            part: "/".into(),
        }
    }
}

/// The value of a setting where a request goes; of any host of the port when nothing is known of the request. `None` when
/// the snapshot does not tell it.
pub fn value(
    service: &ServiceSnapshot,
    setting: &str,
    target: Option<&RequestTarget>,
) -> Option<EffectiveSetting> {
    let root = root(service, setting, target)?;
    let mut found = EffectiveSetting::of(root);
    let Some(target) = target else { return Some(found) };
    found.part = format!("{}/", target.host);
    let folder = document_root(root).map(|root| format!("{}{}", root.trim_end_matches('/'), target.path));
    let mut sections: Vec<_> = service.scoped.iter().filter(|one| one.setting == setting).collect();
    sections.retain(|one| {
        let section = folder_of(one).zip(folder.as_deref()).zip(document_root(root));
        let is_below = section.is_some_and(|((section, folder), root)| {
            section.trim_end_matches('/').len() > root.trim_end_matches('/').len()
                && contains(section, folder)
        });
        is_below && (one.scope.len() == 1 || one.scope.first() == root.scope.first())
    });
    sections.sort_by_key(|one| folder_of(one).map_or(0, str::len));
    for section in sections {
        let before = found.value;
        let below = folder_of(section).zip(document_root(root)).and_then(|(section, root)| {
            section.trim_end_matches('/').strip_prefix(root.trim_end_matches('/'))
        });
        found = EffectiveSetting {
            part: format!("{}{}/", target.host, below.unwrap_or_default()),
            ..EffectiveSetting::of(section)
        };
        if setting == "Options" {
            found.value = merged_options(&before, &found.value);
        }
    }
    Some(found)
}

/// The words of a value of a setting wherever it is told: of the hosts of the port, and of the parts written in files.
pub fn values_anywhere<'a>(
    service: &'a ServiceSnapshot,
    setting: &'a str,
) -> impl Iterator<Item = &'a ScopedSetting> {
    service.scoped.iter().filter(move |one| one.setting.eq_ignore_ascii_case(setting))
}

/// Whether connections to the service's port are encrypted; `None` where that is not told.
pub fn encrypts(service: &ServiceSnapshot) -> Option<bool> {
    if service.service == "nginx" {
        return listens_with_tls(service);
    }
    let engine = values_anywhere(service, "SSLEngine").filter(|one| {
        let port = format!(":{}", service.port);
        let Some(SettingScope::VirtualHost(host)) = one.scope.first() else { return false };
        host.split_whitespace().any(|word| word.ends_with(&port))
    });
    let mut values = engine.map(|one| one.value.eq_ignore_ascii_case("on")).peekable();
    values.peek()?;
    Some(values.any(|on| on))
}

/// Whether nginx encrypts at its port, by `listen 443 ssl` of any of its servers there; `None` where no server names the port.
fn listens_with_tls(service: &ServiceSnapshot) -> Option<bool> {
    let is_encrypted = |one: &ScopedSetting| one.value.split_ascii_whitespace().any(|word| word == "ssl");
    let mut of_port = service.listens_at_port().map(is_encrypted).peekable();
    of_port.peek()?;
    Some(of_port.any(|is_encrypted| is_encrypted))
}

/// A setting of the server or of the host that is asked.
pub fn of_host(service: &ServiceSnapshot, setting: &str, target: Option<&RequestTarget>) -> Option<String> {
    let of_host = in_host(service, setting, target).map(|one| one.value.clone());
    let of_server = || {
        let found = service.settings.get(setting)?;
        found
            .running
            .as_ref()
            .or(found.configured.as_ref())
            .or(found.default.as_ref())
            .map(ToString::to_string)
    };
    let written = || in_server(service, setting).map(|one| one.value.clone());
    of_host.or_else(of_server).or_else(written)
}

/// Whether it is written for a host that is not the one that is asked.
pub fn is_of_another_host(service: &ServiceSnapshot, one: &ScopedSetting, target: &RequestTarget) -> bool {
    let host = one.scope.first().filter(is_host);
    host.is_some_and(|host| !is_host_of(service, host, Some(target)))
}

/// The same as it is written: the first one in the host that is asked, else for the whole server.
pub fn written_of_host<'a>(
    service: &'a ServiceSnapshot,
    setting: &'a str,
    target: Option<&RequestTarget>,
) -> Option<&'a ScopedSetting> {
    in_host(service, setting, target).or_else(|| in_server(service, setting))
}

fn in_host<'a>(
    service: &'a ServiceSnapshot,
    setting: &'a str,
    target: Option<&RequestTarget>,
) -> Option<&'a ScopedSetting> {
    values_anywhere(service, setting)
        .find(|one| matches!(one.scope.as_slice(), [host] if is_host_of(service, host, target)))
}

fn in_server<'a>(service: &'a ServiceSnapshot, setting: &'a str) -> Option<&'a ScopedSetting> {
    values_anywhere(service, setting).find(|one| one.scope.is_empty())
}

/// In how many folders on the way to what is asked for `.htaccess` is looked up, how many of them are known to have one, and one
/// of these files.
pub fn htaccess(service: &ServiceSnapshot, target: &RequestTarget) -> (usize, usize, Option<String>) {
    let own = values_anywhere(service, "AccessFileName").filter(|one| {
        one.line.is_none()
            && folder_of(one).is_some()
            && (one.scope.len() == 1
                || one.scope.first().is_some_and(|host| is_host_of(service, host, Some(target))))
    });
    let (mut count, mut found, mut file) = (target.folders(), 0, None);
    for folder in own {
        count += 1;
        found += usize::from(folder.file.is_some());
        file = file.or_else(|| folder.file.clone());
    }
    (count, found, file)
}

/// The value at the root of the host that is asked: by its name, else the first one, which serves what no other does.
fn root<'a>(
    service: &'a ServiceSnapshot,
    setting: &str,
    target: Option<&RequestTarget>,
) -> Option<&'a ScopedSetting> {
    let mut roots =
        service.scoped.iter().filter(|one| one.setting == setting && document_root(one).is_some());
    let first = roots.next()?;
    let named = |one: &&ScopedSetting| {
        one.scope
            .first()
            .zip(target)
            .is_some_and(|(host, target)| host_names(host).any(|name| name == target.host))
    };
    Some(std::iter::once(first).chain(roots).find(named).unwrap_or(first))
}

fn document_root(scoped: &ScopedSetting) -> Option<&str> {
    scoped.scope.iter().find_map(|part| match part {
        SettingScope::DocumentRoot(path) => Some(path.as_str()),
        _ => None,
    })
}

/// The folder of a section, if it is one without a pattern.
fn folder_of(scoped: &ScopedSetting) -> Option<&str> {
    let SettingScope::Directory(folder) = scoped.scope.last()? else { return None };
    (!folder.contains(['*', '?', '[', '~'])).then_some(folder.as_str())
}

fn contains(folder: &str, path: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// `VirtualHost *:80 example.org` names `example.org`, as does `server example.org`, of whose names the first one is known.
fn host_names(part: &SettingScope) -> impl Iterator<Item = &str> {
    let words = match part {
        SettingScope::VirtualHost(words) | SettingScope::Other(words) if is_host(&part) => words.as_str(),
        _ => "",
    };
    words.split_whitespace().skip(1)
}

/// Whether this part is the host that is asked: by its name, else the first one, which serves what no other does; any when nothing
/// is known of the request.
fn is_host_of(service: &ServiceSnapshot, part: &SettingScope, target: Option<&RequestTarget>) -> bool {
    let Some(target) = target else { return is_host(&part) };
    let hosts = hosts(service);
    let is_named =
        |host: &&&SettingScope| host_names(host).any(|name| name.eq_ignore_ascii_case(&target.host));
    hosts.iter().find(is_named).or(hosts.first()) == Some(&part)
}

/// The hosts, first the one that serves what no other does: of nginx those at its port.
fn hosts(service: &ServiceSnapshot) -> Vec<&SettingScope> {
    let is_default = |one: &&ScopedSetting| one.value.split_whitespace().any(|word| word == "default_server");
    let parts = if service.service == "nginx" {
        let (default, others): (Vec<_>, Vec<_>) = service.listens_at_port().partition(is_default);
        [default, others].concat()
    } else {
        service.scoped.iter().collect()
    };
    parts.into_iter().filter_map(|one| one.scope.first()).filter(is_host).collect()
}

fn is_host(part: &&SettingScope) -> bool {
    match part {
        SettingScope::VirtualHost(_) => true,
        SettingScope::Other(words) => words.starts_with("server "),
        _ => false,
    }
}

/// `Options` with signs change those before; without any they take their place.
fn merged_options(before: &str, own: &str) -> String {
    let mut merged: Vec<&str> = before.split_whitespace().collect();
    if !own.split_whitespace().all(|word| word.starts_with(['+', '-'])) {
        return own.to_owned();
    }
    for word in own.split_whitespace() {
        let name = &word[1..];
        merged.retain(|other| !other.eq_ignore_ascii_case(name));
        if word.starts_with('+') {
            merged.push(name);
        }
    }
    merged.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scoped(setting: &str, value: &str, scope: &[&str]) -> ScopedSetting {
        ScopedSetting {
            setting: setting.into(),
            value: value.into(),
            scope: scope.iter().map(|part| (*part).into()).collect(),
            file: Some("/etc/a.conf".into()),
            line: Some(7),
        }
    }

    fn site() -> ServiceSnapshot {
        let first = ["VirtualHost *:80", "DocumentRoot /srv/a/"];
        let second = ["VirtualHost *:80 b.example", "DocumentRoot /srv/b/"];
        ServiceSnapshot {
            scoped: vec![
                scoped("Options", "FollowSymLinks", &first),
                scoped("Options", "None", &second),
                scoped("Options", "All", &["Directory /srv"]),
                scoped("Options", "-FollowSymLinks +MultiViews", &["Directory /srv/a/shop"]),
                scoped("Options", "Indexes", &["VirtualHost *:80 b.example", "Directory /srv/a/shop/new"]),
                scoped("Options", "None", &["Directory /srv/a/sh*"]),
                scoped("KeepAlive", "Off", &["VirtualHost *:80 b.example"]),
            ],
            ..ServiceSnapshot::default()
        }
    }

    #[test]
    fn the_value_is_that_of_the_host_and_of_the_folder() {
        for (url, value_is, place) in [
            ("http://a.example/x.html", "FollowSymLinks", "DocumentRoot /srv/a/"),
            ("http://B.example:80/x.html?y=/shop/", "None", "DocumentRoot /srv/b/"),
            ("http://a/shop/x.html", "MultiViews", "Directory /srv/a/shop"),
            ("http://a/shopping/x.html", "FollowSymLinks", "DocumentRoot /srv/a/"),
            ("http://a/shop/new/x.html", "MultiViews", "Directory /srv/a/shop"),
        ] {
            let found = value(&site(), "Options", RequestTarget::of(url).as_ref()).unwrap();
            assert_eq!((found.value.as_str(), found.place.as_str()), (value_is, place), "{url}");
        }
        let part = |url| value(&site(), "Options", RequestTarget::of(url).as_ref()).unwrap().part;
        assert_eq!(part("http://a.example/x.html"), "a.example/");
        assert_eq!(part("http://a/shop/x.html"), "a/shop/");
        assert_eq!(value(&site(), "Options", None).unwrap().written_at.as_deref(), Some("/etc/a.conf:7"));
        assert_eq!(value(&site(), "LogLevel", None), None);
    }

    #[test]
    fn urls_are_taken_apart() {
        let of = |url| {
            let target = RequestTarget::of(url).unwrap();
            (target.host.clone(), target.folders(), target.is_folder(), target.ending(), target.tls)
        };
        assert_eq!(of("http://h:8080/a/b/c.HTML?d.e"), ("h".into(), 2, false, Some("html".into()), false));
        assert_eq!(of("https://[::1]/"), ("[::1]".into(), 0, true, None, true));
        assert_eq!(of("http://h"), ("h".into(), 0, true, None, false));
        assert_eq!(of("http://h/a/b/"), ("h".into(), 2, true, None, false));
        assert_eq!(RequestTarget::of("nonsense"), None);
    }

    #[test]
    fn settings_of_hosts_come_before_those_of_the_server() {
        let target = |url| RequestTarget::of(url);
        assert_eq!(
            of_host(&site(), "KeepAlive", target("http://b.example/").as_ref()).as_deref(),
            Some("Off")
        );
        assert_eq!(of_host(&site(), "KeepAlive", target("http://a.example/").as_ref()), None);
    }
}
