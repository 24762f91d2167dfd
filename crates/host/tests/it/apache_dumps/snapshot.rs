//! What the snapshot of a running Apache says of modules, logs, backends and the parts of its site.

use crate::apache::server::{MODULES, Server, apache_is_installed};
use crate::skip::needs;
use std::path::Path;
use webdyno_host::services::by_name;
use webdyno_model::service::LogKind;

const SITE: &str = "LogFormat \"%h %>s\" short\n<VirtualHost *:@PORT@>\nServerName a.example\nDocumentRoot ${RUN}\nHostnameLookups On\n\
                    CustomLog ${RUN}/a.log short\nCustomLog \"|/bin/cat --token=s3cret\" short\n<FilesMatch \\.php$>\n\
                    SetHandler \"proxy:unix:/run/php/a.sock|fcgi://localhost\"\n</FilesMatch>\n\
                    ProxyPass /app http://me:s3cret@127.0.0.1:8081/ retry=0\n</VirtualHost>\n";

#[test]
fn a_snapshot_tells_the_parts_of_a_site() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", "StartServers 1\nMaxRequestWorkers 4\n");
    let mut load: String = ["proxy", "proxy_http", "proxy_fcgi"]
        .map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"))
        .concat();
    let php = format!("{MODULES}/libphp8.2.so");
    let has_php = Path::new(&php).exists();
    if has_php {
        load += &format!("LoadModule php_module {php}\n");
        server.write(
            "mods-enabled/php.conf",
            "php_admin_value memory_limit 96M\nphp_admin_value mysqli.default_pw s3cret\n",
        );
    }
    server.write("mods-enabled/proxy.load", &load);
    server.write("sites-enabled/000-default.conf", &SITE.replace("@PORT@", &server.port.to_string()));
    server.start();
    let snapshot = server.snapshot();
    assert!(!serde_json::to_string(&snapshot.for_log()).unwrap().contains("s3cret"));
    assert_eq!(snapshot.role.as_deref(), Some("web"));
    for module in ["core_module", "mpm_prefork_module", "proxy_fcgi_module"] {
        assert!(snapshot.modules.iter().any(|known| known == module), "{:?}", snapshot.modules);
    }
    let host = format!("VirtualHost *:{} a.example", server.port);
    let log = |kind| snapshot.logs.iter().find(|log| log.kind == kind).unwrap();
    let access = log(LogKind::Access);
    assert_eq!(access.path, server.path("run/a.log").to_string_lossy());
    assert_eq!((access.scope.as_deref(), access.format.as_deref()), (Some(host.as_str()), Some("%h %>s")));
    assert_eq!(log(LogKind::Error).path, server.path("run/error.log").to_string_lossy());
    let missing: Vec<_> =
        snapshot.missing.iter().map(|missing| (missing.signal.as_str(), missing.why.as_str())).collect();
    assert!(missing.contains(&("apache_access_log", "|/bin/cat: it is written to a program")), "{missing:?}");
    let mut backends = by_name("apache").unwrap().configured_backends(&snapshot);
    backends.sort();
    assert_eq!(backends, ["127.0.0.1:8081", "unix:/run/php/a.sock"]);
    let at_root = |name: &str| {
        let found = snapshot.scoped.iter().find(|scoped| scoped.setting == name);
        found.map(|scoped| (scoped.value.as_str(), scoped.line, scoped.scope[0].to_string())).unwrap()
    };
    assert_eq!(at_root("HostnameLookups"), ("On", Some(5), host.clone()));
    assert_eq!(at_root("AllowOverride"), ("None", None, host.clone()));
    // Nothing says None there, so Apache looks from the root down.
    assert_eq!(at_root("AccessFileName"), (".htaccess", None, host.clone()));
    if has_php {
        assert!(snapshot.modules.iter().any(|module| module == "php_module"));
        let limit =
            snapshot.scoped.iter().find(|scoped| scoped.setting == "php_admin_value memory_limit").unwrap();
        assert_eq!((limit.value.as_str(), limit.scope.len()), ("96M", 0));
    }
}
