//! What kind of site a load met: files or programs, kept connections, encryption, what answers behind the server.
//!
//! Told from the URLs, the handlers that are set for them, the modules that are loaded, and who did the work. What cannot
//! be told is `None`.

use crate::facts::{FactId, Facts};
use crate::settings::effective;
use crate::settings::effective::RequestTarget;
use webdyno_model::number::significant;
use webdyno_model::service::{ServiceSnapshot, SettingScope};
use webdyno_model::site::{KeepAlive, Site, SiteBackend, SiteKind, SiteTls, SiteUrl};
use webdyno_model::workload::Workload;

/// Most URLs that are told.
const URLS_MAX: usize = 20;

/// Endings of files that are sent as they are.
const FILES: [&str; 45] = [
    "7z", "avif", "bin", "bmp", "br", "bz2", "css", "csv", "deb", "eot", "gif", "gz", "htm", "html", "ico",
    "iso", "jpeg", "jpg", "js", "json", "map", "md", "mjs", "mov", "mp3", "mp4", "ogg", "otf", "pdf", "png",
    "rpm", "svg", "tar", "tgz", "ttf", "txt", "wasm", "wav", "webm", "webp", "woff", "woff2", "xml", "xz",
    "zip",
];

/// Endings of programs.
const PROGRAMS: [&str; 17] = [
    "action", "asp", "aspx", "cfm", "cgi", "do", "fcgi", "jsp", "jspx", "lua", "phar", "php", "php5",
    "phtml", "pl", "py", "shtml",
];

/// Beginnings of the names of modules that make answers, or pass requests to what makes them.
const MAKERS: [&str; 17] = [
    "cgi",
    "cgid",
    "dav",
    "fastcgi",
    "fcgid",
    "include",
    "isapi",
    "jk",
    "lua",
    "passenger",
    "perl",
    "php",
    "proxy",
    "python",
    "ruby",
    "uwsgi",
    "wsgi",
];

/// Those of them that pass requests on to programs that were started by others.
const PASSING: [&str; 2] = ["jk", "proxy"];

/// Handlers that send files.
const FILE_HANDLERS: [&str; 4] = ["default-handler", "none", "type-map", "send-as-is"];

/// Processor time of a backend, as a share of the service's, from which on it made the answers.
const BACKEND_SHARE_MIN: f64 = 0.5;

/// The site as it was met.
pub fn site(facts: &Facts, workload: Option<&Workload>) -> Site {
    let mut target: Vec<&RequestTarget> = facts.request_targets.iter().collect();
    target.sort_by(|a, b| b.share.total_cmp(&a.share));
    let rounded = |value: Option<f64>| value.map(|value| significant(value, 3));
    let url = |target: &&RequestTarget| {
        let (kind, how) = site_kind(facts, target);
        SiteUrl { path: target.path.clone(), share_fraction: rounded(Some(target.share)), kind, how }
    };
    let service = facts.service.as_ref();
    let first = target.first().copied();
    let allowed = service.and_then(|service| effective::of_host(service, "KeepAlive", first));
    Site {
        urls: target.iter().take(URLS_MAX).map(url).collect(),
        keep_alive: KeepAlive {
            wanted: workload.map(|workload| workload.keepalive),
            allowed: allowed.map(|value| value.eq_ignore_ascii_case("on")),
            reused_fraction: rounded(reused(facts)),
        },
        answer_bytes_mean: rounded(facts.value(FactId::answer_bytes_mean)),
        tls: tls(facts),
        backends: backends(facts),
        cache: None,
    }
}

/// The share of the requests that came on a connection that was there: as the generator counted it, else by the
/// server's own counts.
pub fn reused(facts: &Facts) -> Option<f64> {
    let by_server = || {
        let opened = facts.value(FactId::new_connections_per_s)?;
        let requests = facts.value(FactId::server_requests_per_s).filter(|requests| *requests >= 1.0)?;
        Some((1.0 - opened / requests).clamp(0.0, 1.0))
    };
    facts.value(FactId::connections_reused_fraction).or_else(by_server)
}

fn tls(facts: &Facts) -> SiteTls {
    let rate = facts.ended_per_s();
    SiteTls {
        used: is_tls(facts),
        handshakes_per_request: facts
            .value(FactId::tls_handshakes_per_s)
            .zip(rate)
            .map(|(handshakes, rate)| significant(handshakes / rate, 3)),
        resumed_fraction: facts.value(FactId::tls_resumed_fraction).map(|share| significant(share, 3)),
        key: facts.service.as_ref().and_then(|service| key(service, facts.request_targets.first())),
    }
}

/// Whether connections are encrypted: as the load asks, else as the host of the port is set.
pub fn is_tls(facts: &Facts) -> Option<bool> {
    if facts.loaded && !facts.request_targets.is_empty() {
        return Some(facts.request_targets.iter().any(|target| target.tls));
    }
    effective::encrypts(facts.service.as_ref()?)
}

/// The kind of key of the host that is asked, as its certificates tell: of several the one that is not RSA, which all clients prefer
/// that know it.
pub fn key(service: &ServiceSnapshot, target: Option<&RequestTarget>) -> Option<String> {
    let is_nginx = service.service == "nginx";
    let setting = if is_nginx { "ssl_certificate key" } else { "SSLCertificateFile key" };
    let all = || effective::values_anywhere(service, setting);
    let first = effective::written_of_host(service, setting, target);
    // A server of nginx without a known key chooses its certificates by variables: those of others say nothing of it.
    let first = first.or_else(|| all().next().filter(|_| !is_nginx))?;
    let mut of_host = all().filter(|one| one.scope == first.scope);
    let key = of_host.find(|one| !one.value.starts_with("RSA")).unwrap_or(first);
    Some(key.value.clone())
}

fn backends(facts: &Facts) -> Vec<SiteBackend> {
    let Some(topology) = &facts.topology else { return vec![] };
    let of = |service: &ServiceSnapshot| {
        let link = topology.links.iter().find(|link| link.to_pid == Some(service.pid) && service.pid != 0);
        SiteBackend {
            service: service.service.clone(),
            by: link.map(|link| link.by.clone()).or_else(|| service.listens.first().cloned()),
            connections_count: link.and_then(|link| link.connections_count),
            cpu_cores: facts
                .value_of(FactId::backend_cpu_cores, &service.service)
                .map(|cores| significant(cores, 3)),
        }
    };
    topology.backends.iter().map(of).collect()
}

/// Whether the name of what is asked for is that of a file that is sent as it is.
pub fn is_file_by_name(target: &effective::RequestTarget) -> bool {
    target.ending().is_some_and(|ending| FILES.contains(&ending.as_str()))
}

/// How the answer to a request comes about, and how that was told.
pub fn site_kind(facts: &Facts, target: &RequestTarget) -> (Option<SiteKind>, String) {
    use SiteKind::{Dynamic, Static};
    let ending = target.ending();
    let ends_as = |list: &[&str]| ending.as_deref().is_some_and(|ending| list.contains(&ending));
    let ending = ending.clone().unwrap_or_default();
    if let Some((handler, place)) = facts.service.as_ref().and_then(|service| handler(service, target)) {
        return (Some(Dynamic), format!("served by {handler} ({place})"));
    }
    let maker = facts.service.as_ref().and_then(content_module);
    if ends_as(&PROGRAMS) {
        // Without anything that runs it, its text would be sent.
        return match (&facts.service, maker) {
            (Some(service), None) if service.service == "apache" && !service.modules.is_empty() => {
                (None, format!("its name ends in .{ending}, but no loaded module would run it"))
            }
            _ => (Some(Dynamic), format!("its name ends in .{ending}")),
        };
    }
    if let Some((backend, cores)) = busiest_backend(facts) {
        return (
            Some(Dynamic),
            format!("{backend} used {} cores meanwhile", crate::wording::format_number(cores)),
        );
    }
    if ends_as(&FILES) {
        return (Some(Static), format!("its name ends in .{ending}, with no handler set for it"));
    }
    match (&facts.service, maker) {
        (Some(service), None) if service.service == "apache" && !service.modules.is_empty() => {
            (Some(Static), "no loaded module generates responses".into())
        }
        (_, Some(module)) => (None, format!("generated by {module}, or a file")),
        _ => (None, "unknown from its name and the server's configuration".into()),
    }
}

/// Whether all that is asked for are files, as far as is known: without load of our own, whether there is nothing that could
/// make answers. `None` when it cannot be told.
pub fn serves_files_only(facts: &Facts) -> Option<bool> {
    if facts.request_targets.is_empty() {
        let service = facts.service.as_ref().filter(|service| !service.modules.is_empty())?;
        return (content_module(service).is_none() && busiest_backend(facts).is_none()).then_some(true);
    }
    let kinds: Vec<Option<SiteKind>> =
        facts.request_targets.iter().map(|target| site_kind(facts, target).0).collect();
    if kinds.contains(&Some(SiteKind::Dynamic)) {
        return Some(false);
    }
    (!kinds.is_empty() && kinds.iter().all(Option::is_some)).then_some(true)
}

/// What a request is handed to, and where that is said: a location or a file of this name, or a path that is passed on.
fn handler(service: &ServiceSnapshot, target: &RequestTarget) -> Option<(String, String)> {
    let name = target.path.rsplit('/').next().unwrap_or_default();
    let is_here = |part: &SettingScope| match part {
        SettingScope::Location(path) => begins_with(&target.path, path.trim_matches('"')),
        SettingScope::Files(file) => file == name,
        _ => false,
    };
    let set = effective::values_anywhere(service, "SetHandler").find(|one| {
        one.scope.last().is_some_and(is_here)
            && !FILE_HANDLERS.iter().any(|own| own.eq_ignore_ascii_case(&one.value))
    });
    set.map(|one| (one.value.clone(), one.innermost())).or_else(|| {
        let passes = effective::values_anywhere(service, "ProxyPass");
        let mut rules: Vec<(&str, Option<&str>)> = passes
            .filter_map(|one| {
                let mut words = one.value.split_whitespace();
                Some((words.next()?, words.next().filter(|to| *to != "!")))
            })
            .filter(|(path, _)| begins_with(&target.path, path))
            .collect();
        rules.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let (path, to) = rules.first()?;
        to.map(|to| (to.to_owned(), format!("ProxyPass {path}")))
    })
}

fn begins_with(path: &str, beginning: &str) -> bool {
    let rest = path.strip_prefix(beginning.trim_end_matches('/'));
    beginning.starts_with('/') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A loaded module that makes answers.
fn content_module(service: &ServiceSnapshot) -> Option<String> {
    let makes = |module: &&String| MAKERS.iter().any(|maker| is_module(module, maker));
    service.modules.iter().find(makes).map(|module| module.trim_end_matches("_module").to_owned())
}

/// Whether a loaded module makes answers in the server's own processes, or in children of these.
pub(crate) fn makes_content_itself(service: &ServiceSnapshot) -> bool {
    let makers = || MAKERS.iter().filter(|maker| !PASSING.contains(maker));
    service.modules.iter().any(|module| makers().any(|maker| is_module(module, maker)))
}

fn is_module(module: &str, maker: &str) -> bool {
    module.strip_prefix(maker).is_some_and(|rest| rest.starts_with(['_', '5', '7', '8']))
}

/// The backend that did most of the work, if it did much of it.
fn busiest_backend(facts: &Facts) -> Option<(String, f64)> {
    let own = facts.value(FactId::service_cpu_cores)?;
    let most = facts.each(FactId::backend_cpu_cores).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 >= BACKEND_SHARE_MIN * own && most.1 >= 0.02).then(|| (most.0.to_owned(), most.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, scoped_setting};
    use webdyno_model::service::ScopedSetting;

    fn of(url: &str, modules: &[&str], scoped: &[(&str, &str, &str)]) -> Facts {
        let mut facts = facts(&[(FactId::service_cpu_cores, 0.1)], &[]);
        let service = facts.service.as_mut().unwrap();
        service.modules = modules.iter().map(|module| (*module).to_owned()).collect();
        let setting = |(setting, value, scope): &(&str, &str, &str)| {
            scoped_setting(setting, value, &["VirtualHost *:80", *scope])
        };
        service.scoped = scoped.iter().map(setting).collect();
        facts.request_targets = vec![RequestTarget { share: 1.0, ..RequestTarget::of(url).unwrap() }];
        facts
    }

    #[test]
    fn files_and_programs_are_told_apart() {
        use SiteKind::{Dynamic, Static};
        let location = ("SetHandler", "modperl", "Location /compute");
        let file = ("SetHandler", "fcgi://127.0.0.1:9000", "Files search.php");
        let passed =
            [("ProxyPass", "/app http://b:1/", "VirtualHost *:80"), ("ProxyPass", "/app/files !", "x")];
        for (url, modules, scoped, expected) in [
            ("http://h/a.html", &["core_module", "php_module"][..], &[][..], Some(Static)),
            ("http://h/a", &["core_module"], &[], Some(Static)),
            ("http://h/a", &["core_module", "lua_module"], &[], None),
            ("http://h/a.php", &["core_module", "php7_module"], &[], Some(Dynamic)),
            ("http://h/a.php", &["core_module"], &[], None),
            ("http://h/compute/x.html", &["core_module"], &[location], Some(Dynamic)),
            ("http://h/computer.html", &["core_module"], &[location], Some(Static)),
            ("http://h/x/search.php", &["proxy_module"], &[file], Some(Dynamic)),
            ("http://h/app/a.html", &["proxy_module"], &passed, Some(Dynamic)),
            ("http://h/app/files/a.html", &["proxy_module"], &passed, Some(Static)),
            ("http://h/a", &[], &[], None),
        ] {
            let facts = of(url, modules, scoped);
            assert_eq!(site_kind(&facts, &facts.request_targets[0]).0, expected, "{url} {modules:?}");
            let all = expected.map(|kind| kind == Static);
            assert_eq!(serves_files_only(&facts), all, "{url}");
        }
    }

    #[test]
    fn who_works_made_the_answers() {
        for (cores, expected) in [(0.4, Some(SiteKind::Dynamic)), (0.01, Some(SiteKind::Static))] {
            let mut facts = of("http://h/a.html", &["core_module"], &[]);
            of_pool(&mut facts, "php_fpm", &[(FactId::backend_cpu_cores, cores)]);
            assert_eq!(site_kind(&facts, &facts.request_targets[0]).0, expected, "{cores}");
        }
    }

    #[test]
    fn a_watched_nginx_encrypts_where_its_port_says_so() {
        for (listens, encrypts) in [
            (&["443 ssl default_server backlog=511", "443 ssl"][..], Some(true)),
            (&["[::]:443 ssl", "80"], Some(true)),
            (&["80", "443"], Some(false)),
            (&["8443 ssl", "unix:/run/nginx.sock"], None),
            (&[], None),
        ] {
            let mut watched = of("http://h/a", &[], &[]);
            watched.request_targets.clear();
            watched.loaded = false;
            let service = watched.service.as_mut().unwrap();
            (service.service, service.port) = ("nginx".into(), 443);
            let listen = |value: &&str| scoped_setting("listen", value, &["server a"]);
            service.scoped = listens.iter().map(listen).collect();
            assert_eq!(is_tls(&watched), encrypts, "{listens:?}");
        }
    }

    fn key_of(service: &str, url: &str, scoped: &[(&str, &str, &str)]) -> Option<String> {
        let setting = |(setting, value, scope): &(&str, &str, &str)| ScopedSetting {
            setting: (*setting).into(),
            value: (*value).into(),
            scope: Some(*scope).filter(|scope| !scope.is_empty()).into_iter().map(Into::into).collect(),
            ..ScopedSetting::default()
        };
        let service = ServiceSnapshot {
            service: service.into(),
            port: 443,
            scoped: scoped.iter().map(setting).collect(),
            ..ServiceSnapshot::default()
        };
        key(&service, RequestTarget::of(url).as_ref())
    }

    #[test]
    fn the_key_is_that_of_the_host_and_not_rsa_where_it_has_others() {
        const KEY: &str = "SSLCertificateFile key";
        let rsa = (KEY, "RSA 2048", "VirtualHost *:443 h");
        let ecdsa = (KEY, "ECDSA P-256", "VirtualHost *:443 h");
        let other = (KEY, "Ed25519", "VirtualHost *:443 g");
        for (scoped, expected) in [
            (&[rsa][..], Some("RSA 2048")),
            (&[rsa, ecdsa], Some("ECDSA P-256")),
            (&[other, rsa], Some("RSA 2048")),
            (&[(KEY, "RSA 4096", "")], Some("RSA 4096")),
            (&[], None),
        ] {
            assert_eq!(key_of("apache", "https://h/", scoped).as_deref(), expected, "{scoped:?}");
        }
    }

    #[test]
    fn the_key_of_nginx_is_that_of_the_server_at_its_port() {
        const KEY: &str = "ssl_certificate key";
        let (a, b) = (("listen", "443 ssl", "server a"), ("listen", "443 ssl default_server", "server b"));
        let admin = ("listen", "8443 ssl", "server admin");
        let (rsa, ecdsa) = ((KEY, "RSA 2048", "server a"), (KEY, "ECDSA P-256", "server a"));
        let of_b = (KEY, "Ed25519", "server b");
        for (host, scoped, expected) in [
            ("a", &[a, b, of_b, rsa][..], Some("RSA 2048")),
            ("a", &[a, b, rsa, ecdsa], Some("ECDSA P-256")),
            ("10.0.0.1", &[a, b, rsa, of_b], Some("Ed25519")),
            ("10.0.0.1", &[a, rsa], Some("RSA 2048")),
            ("a", &[a, b, (KEY, "RSA 3072", ""), of_b], Some("RSA 3072")),
            // A variable chooses it.
            ("a", &[a, b, of_b], None),
            ("a.example", &[a, admin, (KEY, "RSA 2048", "server admin")], None),
        ] {
            let key = key_of("nginx", &format!("https://{host}/"), scoped);
            assert_eq!(key.as_deref(), expected, "{host} {scoped:?}");
        }
    }

    #[test]
    fn what_nobody_told_is_unknown() {
        assert_eq!(site(&Facts::default(), None), Site::default());
        for (module, files) in [("core_module", Some(true)), ("php_module", None)] {
            let mut watched = of("http://h/a", &[module], &[]);
            watched.request_targets.clear();
            assert_eq!(serves_files_only(&watched), files, "{module}");
        }
        let seen =
            facts(&[(FactId::new_connections_per_s, 10.0), (FactId::server_requests_per_s, 100.0)], &[]);
        assert_eq!(site(&seen, None).keep_alive.reused_fraction, Some(0.9));
    }
}
