//! Which backends a service names, and whether a listener is one of them.

use webdyno_model::service::{Endpoint, ScopedSetting, ServiceSnapshot, numbered};
use webdyno_model::topology::Topology;

/// The addresses that a service hands requests over to, and whether by FastCGI.
pub(crate) fn targets_of(service: &ServiceSnapshot) -> Vec<(String, bool)> {
    let of_apache = forwarding_settings(service).flat_map(|setting| addresses(&setting.value));
    let mut found: Vec<_> = of_apache.chain(passes(service)).collect();
    found.sort();
    found.dedup();
    found
}

/// Whether who connects to this address meets who listens there. What listens on all addresses is met by any of them, and a name may
/// be any of them.
pub(crate) fn leads_to(at: &str, listener: &str) -> bool {
    let is_any = |host: &str| matches!(host, "*" | "0.0.0.0" | "[::]");
    let is_name = |host: &str| !host.starts_with('[') && host.parse::<core::net::IpAddr>().is_err();
    match (at.rsplit_once(':'), listener.rsplit_once(':')) {
        _ if at == listener => true,
        _ if at.starts_with("unix:") || listener.starts_with("unix:") => false,
        (Some((host, port)), Some((own, own_port))) => port == own_port && (is_any(own) || is_name(host)),
        _ => false,
    }
}

/// Whether what listens there is behind the service: by its configuration, or by connections that were seen. Its own queue is not
/// behind it, also where it asks itself.
pub(crate) fn is_behind(service: &ServiceSnapshot, topology: Option<&Topology>, listener: &str) -> bool {
    let is_it = |at: &str| leads_to(at, listener);
    let mut observed = topology.into_iter().flat_map(|topology| &topology.links);
    if listener.ends_with(&format!(":{}", service.port)) {
        // Another machine may listen at the same port.
        let is_here =
            ["127.", "[::1]", "0.0.0.0", "[::]", "*:"].iter().any(|here| listener.starts_with(here));
        return !is_here
            && !are_unseen(topology)
            && observed.any(|link| is_it(&link.by) && link.to_pid.is_none());
    }
    targets_of(service).iter().any(|(at, _)| is_it(at)) || observed.any(|link| is_it(&link.by))
}

/// Whether the service's requests come to this pool of PHP-FPM (`www`, or `www@PID` where several have one of that name): by
/// its socket. Where none of its FPM's sockets is known by the address that leads there, any of them may be it.
pub(crate) fn leads_to_pool(service: &ServiceSnapshot, topology: &Topology, instance: &str) -> bool {
    let is_it = |fpm: &ServiceSnapshot, pool: &str| {
        instance == pool || instance.strip_prefix(pool) == Some(&format!("@{}", fpm.pid))
    };
    let all = topology.backends.iter().filter(|backend| backend.service == "php_fpm");
    let mut pools = all.flat_map(|fpm| fpm.endpoints.iter().map(move |pool| (fpm, pool)));
    let Some((fpm, pool)) = pools.find(|(fpm, pool)| is_it(fpm, &pool.name)) else { return true };
    let is_met = |pool: &Endpoint| is_behind(service, Some(topology), &pool.address);
    let is_linked = || topology.links.iter().any(|link| link.to_pid == Some(fpm.pid));
    is_met(pool) || (is_linked() && !fpm.endpoints.iter().any(is_met))
}

/// Whether it could not be seen which programs are behind the service: any other may be.
pub(crate) fn are_unseen(topology: Option<&Topology>) -> bool {
    topology.is_some_and(|topology| topology.missing.iter().any(|missing| missing.signal == "topology"))
}

/// The programs behind the service as the collectors name them.
pub(crate) fn named(topology: &Topology) -> impl Iterator<Item = (String, &ServiceSnapshot)> {
    numbered(&topology.backends)
}

/// The program that facts have this name for; the name itself where it is not known.
pub(crate) fn program_of<'a>(topology: Option<&'a Topology>, name: &'a str) -> &'a str {
    let mut all = topology.into_iter().flat_map(named);
    all.find(|(of_facts, _)| of_facts == name).map_or(name, |(_, service)| program_name(service))
}

/// The program that listens at an address as the kernel lists it, where it is known, with the name of its facts.
pub(crate) fn listening_at<'a>(topology: &'a Topology, at: &str) -> Option<(String, &'a ServiceSnapshot)> {
    let written = at.replacen("*:", "[::]:", 1);
    let port =
        |at: &str| at.rsplit_once(':').map(|(_, port)| port.to_owned()).filter(|_| !at.starts_with("unix:"));
    let mut linked = topology.links.iter().filter(|link| link.by == at || port(&link.by) == port(at));
    let linked = linked.find_map(|link| link.to_pid.filter(|_| link.by == at || port(at).is_some()));
    let listens = |backend: &ServiceSnapshot| backend.listens.iter().any(|own| *own == at || *own == written);
    named(topology)
        .find(|(_, backend)| listens(backend))
        .or_else(|| named(topology).find(|(_, backend)| Some(backend.pid) == linked))
}

/// What a program is called: by its own name where it is known, else by its executable.
pub(crate) fn program_name(service: &ServiceSnapshot) -> &str {
    let file = service.executable.as_deref().map(|path| path.trim_end_matches(" (deleted)"));
    let file = file.and_then(|path| path.rsplit('/').next()).filter(|file| !file.is_empty());
    file.filter(|_| service.service == UNKNOWN).unwrap_or(&service.service)
}

/// Services whose name in snapshots is not what users call them.
const DISPLAY_NAMES: [(&str, &str); 3] =
    [("apache", "Apache"), ("mariadb", "MariaDB"), ("php_fpm", "PHP-FPM")];

/// What texts call a program of this name.
pub(crate) fn display_name(program: &str) -> &str {
    DISPLAY_NAMES.iter().find(|(name, _)| *name == program).map_or(program, |(_, shown)| shown)
}

/// What a program is called in snapshots that nobody knows more of.
pub(crate) const UNKNOWN: &str = "unknown";

/// Settings that hand requests over.
pub(crate) fn forwarding_settings(service: &ServiceSnapshot) -> impl Iterator<Item = &ScopedSetting> {
    const SETTINGS: [&str; 4] = ["SetHandler", "ProxyPass", "ProxyPassMatch", "BalancerMember"];
    service.scoped.iter().filter(|setting| SETTINGS.contains(&setting.setting.as_str()))
}

/// Where nginx passes requests on, and lighttpd: the servers of an upstream in the place of its name.
fn passes(service: &ServiceSnapshot) -> impl Iterator<Item = (String, bool)> {
    let is_pass = |one: &&ScopedSetting| ["_pass", ".server"].iter().any(|end| one.setting.ends_with(end));
    service.scoped.iter().filter(is_pass).flat_map(|one| {
        let is_fastcgi = one.setting.starts_with("fastcgi");
        let name = one.value.rsplit_once(':').map_or(one.value.as_str(), |(name, _)| name);
        let of_upstream: Vec<String> = members(service, name).collect();
        let all = if of_upstream.is_empty() { vec![one.value.clone()] } else { of_upstream };
        all.into_iter().map(move |address| (address, is_fastcgi))
    })
}

/// The upstream of nginx that a server is a member of.
pub(crate) fn upstream_of(one: &ScopedSetting) -> Option<String> {
    let scope = one.scope.last().filter(|_| one.setting == "server")?.to_string();
    scope.strip_prefix("upstream ").map(str::to_owned)
}

/// The addresses of an upstream.
pub(crate) fn members<'a>(
    service: &'a ServiceSnapshot,
    upstream: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let of_it = service.scoped.iter().filter(move |one| upstream_of(one).as_deref() == Some(upstream));
    of_it.filter_map(|one| one.value.split_whitespace().next()).map(|address| {
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let is_whole = has_port || address.starts_with("unix:");
        if is_whole { address.to_owned() } else { format!("{address}:80") }
    })
}

/// The addresses in a value: `unix:/run/x.sock|fcgi://localhost`, `/app http://10.0.0.2:8080/app retry=0`.
pub(crate) fn addresses(value: &str) -> Vec<(String, bool)> {
    let words = value.split_whitespace().map(|word| word.trim_start_matches("proxy:"));
    let address = |word: &str| {
        let is_fastcgi = word.contains("fcgi://");
        if word.starts_with("unix:") {
            return word.split('|').next().map(|path| (path.to_owned(), is_fastcgi));
        }
        let (_, rest) = word.split_once("://")?;
        let host = rest.split('/').next().filter(|host| !host.is_empty() && !host.contains(['$', '@']))?;
        Some((host.to_owned(), is_fastcgi))
    };
    words.filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::topology::Link;

    #[test]
    fn addresses_are_found_in_what_is_configured() {
        for (value, expected) in [
            ("/app http://10.0.0.2:8080/app retry=0", vec![("10.0.0.2:8080", false)]),
            ("unix:/run/x.sock|fcgi://localhost/", vec![("unix:/run/x.sock", true)]),
            ("proxy:fcgi://127.0.0.1:9000", vec![("127.0.0.1:9000", true)]),
            ("^/(.*)$ http://$1/", vec![]),
            ("server-status", vec![]),
        ] {
            let found = addresses(value);
            let found: Vec<_> = found.iter().map(|(at, is)| (at.as_str(), *is)).collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn what_nginx_passes_to_an_upstream_goes_to_its_servers() {
        let set = |setting: &str, value: &str, scope: &str| ScopedSetting {
            setting: setting.into(),
            value: value.into(),
            scope: vec![scope.into()],
            ..ScopedSetting::default()
        };
        let service = ServiceSnapshot {
            scoped: vec![
                set("server", "10.0.0.2 weight=2", "upstream app"),
                set("server", "unix:/run/app.sock", "upstream app"),
                set("proxy_pass", "app:80", "location /"),
                set("fastcgi_pass", "127.0.0.1:9000", "location ~ \\.php$"),
                set("fastcgi_pass", "unix:/run/x.sock", "location /x"),
                set("listen", "80", "server a"),
            ],
            ..ServiceSnapshot::default()
        };
        let found = targets_of(&service);
        let found: Vec<_> = found.iter().map(|(at, is)| (at.as_str(), *is)).collect();
        let expected = [
            ("10.0.0.2:80", false),
            ("127.0.0.1:9000", true),
            ("unix:/run/app.sock", false),
            ("unix:/run/x.sock", true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn behind_is_where_requests_are_handed_over_or_connections_go() {
        let passed = |to: &str| ScopedSetting {
            setting: "ProxyPass".into(),
            value: format!("/ {to}"),
            ..ScopedSetting::default()
        };
        let service =
            |to: &str| ServiceSnapshot { port: 80, scoped: vec![passed(to)], ..ServiceSnapshot::default() };
        for (to, listener, behind) in [
            ("http://127.0.0.1:8000/", "127.0.0.1:8000", true),
            ("http://127.0.0.1:8000/", "*:8000", true),
            ("http://localhost:8000/", "127.0.0.1:8000", true),
            ("http://127.0.0.1:8000/", "10.0.0.1:8000", false),
            ("http://127.0.0.1:8000/", "127.0.0.1:8001", false),
            ("http://127.0.0.1:80/", "*:80", false),
            ("unix:/run/a.sock|fcgi://x", "unix:/run/a.sock", true),
            ("unix:/run/a.sock|fcgi://x", "unix:/run/b.sock", false),
        ] {
            assert_eq!(is_behind(&service(to), None, listener), behind, "{to} {listener}");
        }
        let link = Link { by: "127.0.0.1:3306".into(), ..Link::default() };
        let topology = Topology { links: vec![link], ..Topology::default() };
        assert!(is_behind(&service("http://a/"), Some(&topology), "127.0.0.1:3306"));
        // The service listens at all addresses, at the port that another machine's has, too.
        let link = Link { by: "10.0.0.2:80".into(), ..Link::default() };
        let elsewhere = Topology { links: vec![link], ..Topology::default() };
        let of_port_80 = ["*:80", "0.0.0.0:80", "10.0.0.2:80"];
        let behind = of_port_80.map(|at| is_behind(&service("http://a/"), Some(&elsewhere), at));
        assert_eq!(behind, [false, false, true]);
    }

    #[test]
    fn texts_call_a_service_as_its_users_do() {
        let shown = ["apache", "php_fpm", "mariadb", "nginx", "gunicorn"].map(display_name);
        assert_eq!(shown, ["Apache", "PHP-FPM", "MariaDB", "nginx", "gunicorn"]);
    }

    #[test]
    fn who_listens_is_known_by_its_sockets_or_by_who_connects_to_it() {
        let backend = |pid, listens: &[&str]| ServiceSnapshot {
            service: UNKNOWN.into(),
            pid,
            executable: Some(format!("/usr/bin/python{pid}")),
            listens: listens.iter().map(|at| (*at).to_owned()).collect(),
            ..ServiceSnapshot::default()
        };
        let link = Link { to_pid: Some(4), by: "127.0.0.1:9000".into(), ..Link::default() };
        let topology = Topology {
            backends: vec![backend(3, &["127.0.0.1:8000", "[::]:8001", "unix:/run/a"]), backend(4, &[])],
            links: vec![link],
            ..Topology::default()
        };
        for (at, found) in [
            ("127.0.0.1:8000", Some(("unknown", "python3"))),
            ("*:8001", Some(("unknown", "python3"))),
            ("unix:/run/a", Some(("unknown", "python3"))),
            ("0.0.0.0:9000", Some(("unknown_2", "python4"))),
            ("unix:/run/b", None),
            ("127.0.0.1:8002", None),
        ] {
            let known = listening_at(&topology, at);
            let known = known.as_ref().map(|(name, service)| (name.as_str(), program_name(service)));
            assert_eq!(known, found, "{at}");
        }
    }

    #[test]
    fn a_pool_is_one_of_the_chain_by_its_socket() {
        let pool =
            |name: &str| Endpoint { name: name.into(), address: format!("unix:/run/{name}"), path: None };
        let fpm = |pid, pools: &[&str]| ServiceSnapshot {
            service: "php_fpm".into(),
            pid,
            endpoints: pools.iter().map(|name| pool(name)).collect(),
            ..ServiceSnapshot::default()
        };
        let link = |(to, by): &(u32, &str)| Link { to_pid: Some(*to), by: (*by).into(), ..Link::default() };
        for (links, pool, leads) in [
            (&[(7, "unix:/run/a")][..], "a", true),
            (&[(7, "unix:/run/a")], "b", false),
            // Another FPM of the machine, and one of the same name.
            (&[(7, "unix:/run/a")], "c", false),
            (&[(7, "unix:/run/a")], "a@7", true),
            (&[(7, "unix:/run/a")], "b@7", false),
            // By a name of the socket that is not the pool's own.
            (&[(7, "unix:/run/alias")], "b", true),
            (&[(7, "unix:/run/alias")], "c", false),
            (&[], "a", false),
            // Nobody read which pools there are.
            (&[(7, "unix:/run/a")], "d", true),
        ] {
            let topology = Topology {
                backends: vec![fpm(7, &["a", "b"]), fpm(8, &["c"])],
                links: links.iter().map(link).collect(),
                ..Topology::default()
            };
            assert_eq!(
                leads_to_pool(&ServiceSnapshot::default(), &topology, pool),
                leads,
                "{links:?} {pool}"
            );
        }
    }
}
