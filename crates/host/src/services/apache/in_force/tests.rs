//! What is in force where. That walks and hosts agree with a real Apache is tested in tests/it/apache/in_force.rs.

use super::scoped::{configured_backends, scoped};
use super::*;
use crate::services::apache::config::{Input, Module, evaluate};
use std::fs;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot};

fn read(text: &str) -> Evaluation {
    let root = tempfile::tempdir().unwrap();
    let main_file = root.path().join("httpd.conf");
    fs::write(&main_file, text).unwrap();
    let module = |symbol: &str| Module { symbol: symbol.into(), source: String::new(), file: None };
    evaluate(Input {
        main_file,
        server_root: "/srv".into(),
        static_modules: vec![module("core_module"), module("dir_module")],
        ..Input::default()
    })
}

/// The value and the line of a directive for a request of a host and a path on port 80.
fn check(text: &str, host: &str, path: &str, name: &str, expected: Option<(&str, u32)>) {
    let evaluation = read(text);
    let site = Site::of(&evaluation);
    let request = Request { address: None, port: 80, host: Some(host), path };
    let value = in_force(&site, &request).value(name);
    let message = value.map(|value| (value.text, value.placed.map_or(0, |placed| placed.line)));
    assert_eq!(
        message,
        expected.map(|(text, line)| (text.to_owned(), line)),
        "{name} of {host}{path} in\n{text}"
    );
}

const SITE: &str = "DocumentRoot /srv/www
HostnameLookups On
<Directory />
  AllowOverride None
  Options None
</Directory>
<Directory /srv/www>
  Options Indexes FollowSymLinks
  AllowOverride All
</Directory>
<VirtualHost *:80>
  ServerName a
  HostnameLookups Double
  <Location /private>
    HostnameLookups Off
  </Location>
  <Directory /srv/www/deep>
    Options -Indexes +MultiViews
    AllowOverride None
  </Directory>
  <DirectoryMatch ^/srv/www/[a-z]+/cgi>
    Options +ExecCGI
    AllowOverride All
  </DirectoryMatch>
  <FilesMatch \"\\.php$\">
    SetHandler \"proxy:unix:/run/php/fpm.sock|fcgi://localhost\"
  </FilesMatch>
</VirtualHost>
<VirtualHost *:80>
  ServerName b
  ServerAlias *.b
  DocumentRoot /srv/b
  KeepAliveTimeout 9
</VirtualHost>
";

#[test]
fn later_and_deeper_sections_win() {
    check(SITE, "a", "/", "HostnameLookups", Some(("Double", 13)));
    check(SITE, "a", "/private/x", "HostnameLookups", Some(("Off", 15)));
    check(SITE, "a", "/privateer", "HostnameLookups", Some(("Double", 13)));
    check(SITE, "x.b", "/", "HostnameLookups", Some(("On", 2)));
    check(SITE, "unknown", "/", "HostnameLookups", Some(("Double", 13)));
    check(SITE, "a", "/x", "Options", Some(("Indexes FollowSymLinks", 8)));
    check(SITE, "a", "/deep/x", "Options", Some(("FollowSymLinks MultiViews", 18)));
    check(SITE, "a", "/deep/cgi/x", "Options", Some(("FollowSymLinks ExecCGI MultiViews", 22)));
    check(SITE, "b", "/", "Options", Some(("None", 5)));
    check(SITE, "a", "/x.php", "SetHandler", Some(("proxy:unix:/run/php/fpm.sock|fcgi://localhost", 26)));
    check(SITE, "a", "/x.html", "SetHandler", None);
    check(SITE, "a", "/", "EnableMMAP", Some(("On", 0)));
}

#[test]
fn a_keep_alive_timeout_is_that_of_the_first_host_unless_the_own_one_sets_it() {
    check(SITE, "b", "/", "KeepAliveTimeout", Some(("9", 33)));
    check(SITE, "a", "/", "KeepAliveTimeout", Some(("5", 0)));
    let text = "<VirtualHost *:80>\nKeepAliveTimeout 1\n</VirtualHost>\n<VirtualHost *:80>\nServerName b\n</VirtualHost>\n";
    check(text, "b", "/", "KeepAliveTimeout", Some(("1", 2)));
}

#[test]
fn htaccess_is_looked_up_where_it_is_allowed_and_where_nothing_is_said() {
    let looked = |text: &str, path: &str| {
        let evaluation = read(text);
        let site = Site::of(&evaluation);
        let request = Request { address: None, port: 80, host: Some("a"), path };
        in_force(&site, &request).htaccess_directories().join(" ")
    };
    assert_eq!(looked(SITE, "/x"), "/srv/www/");
    assert_eq!(looked(SITE, "/deep/x"), "/srv/www/");
    assert_eq!(looked(SITE, "/deep/cgi/x"), "/srv/www/");
    assert_eq!(looked("DocumentRoot /srv/www\n", "/x"), "/ /srv/ /srv/www/");
    assert_eq!(looked("DocumentRoot /a\n<Directory />\nAllowOverride None\n</Directory>\n", "/x"), "");
    let listed =
        "DocumentRoot /a\n<Directory />\nAllowOverride None\nAllowOverrideList Redirect\n</Directory>\n";
    assert_eq!(looked(listed, "/x"), "/ /a/");
    for (text, list) in [(listed, Some("Redirect")), (SITE, None)] {
        let evaluation = read(text);
        let settings = scoped(&Site::of(&evaluation), 80).settings;
        let is_list = |one: &&ScopedSetting| {
            one.setting == "AllowOverrideList"
                && one.parts().iter().any(|part| part.starts_with("DocumentRoot"))
        };
        assert_eq!(settings.iter().find(is_list).map(|one| one.value.as_str()), list);
    }
    let passed = "DocumentRoot /a\nProxyPass /app http://127.0.0.1:1/\n";
    assert_eq!(looked(passed, "/app/x"), "");
    assert_eq!(looked("DocumentRoot /a\nAlias /i /srv/icons\n", "/i/x.gif"), "/ /srv/ /srv/icons/");
}

#[test]
fn values_merge_as_their_modules_do() {
    let levels = "LogLevel info ssl:debug\n<VirtualHost *:80>\nServerName a\nLogLevel rewrite_module:trace3\n</VirtualHost>\n\
                  <VirtualHost *:80>\nServerName b\nLogLevel error\n</VirtualHost>\n";
    check(levels, "a", "/", "LogLevel", Some(("info rewrite:trace3 ssl:debug", 4)));
    check(levels, "b", "/", "LogLevel", Some(("error", 8)));
    let index = "DocumentRoot /a\nDirectoryIndex a\nDirectoryIndex b c\n<Directory /a/x>\nDirectoryIndex disabled\n</Directory>\n";
    check(index, "a", "/", "DirectoryIndex", Some(("a b c", 3)));
    check(index, "a", "/x/", "DirectoryIndex", Some(("disabled", 5)));
    let options =
        "DocumentRoot /a\nOptions +Indexes\n<Directory /a>\nOptions -FollowSymLinks\n</Directory>\n";
    check(options, "a", "/", "Options", Some(("Indexes", 4)));
    check("Options All\n", "a", "/", "Options", Some(("Indexes Includes FollowSymLinks ExecCGI", 1)));
    check("", "a", "/", "Options", Some(("FollowSymLinks", 0)));
}

#[test]
fn what_is_not_evaluated_is_told() {
    let evaluation = read(
        "DocumentRoot /a\n<If \"%{HTTP:X} == 's3cret'\">\nHostnameLookups On\n</If>\n\
         <LocationMatch \"^/(?!x)\">\nHostnameLookups Double\n</LocationMatch>\n",
    );
    let site = Site::of(&evaluation);
    let at = in_force(&site, &Request { path: "/", port: 80, ..Request::default() });
    assert_eq!(at.value("HostnameLookups").unwrap().text, "Off");
    assert_eq!(at.undetermined("HostnameLookups").len(), 2, "{:?}", at.undetermined("HostnameLookups"));
    assert!(
        at.walk.undetermined[0].contains("is not one that webdyno evaluates"),
        "{:?}",
        at.walk.undetermined
    );
}

#[test]
fn snapshots_hold_what_is_harmless_and_nothing_else() {
    let text = "DocumentRoot /a
SSLSessionCacheTimeout 400
SetEnv DB_PASSWORD s3cret
SetEnv rate-limit 400
RequestHeader set Authorization \"Bearer s3cret\"
Header set Set-Cookie s3cret
Header always set Cache-Control no-store
php_admin_value memory_limit 512M
php_admin_value mysqli.default_pw s3cret
DBDParams \"host=db password=s3cret\"
<VirtualHost *:80>
  ServerName a
  ProxyPass /app https://me:s3cret@b.example:8443/x?token=s3cret retry=0 secret=s3cret
  ProxyPassMatch ^/(.*\\.php)$ unix:/run/php/fpm.sock|fcgi://localhost/srv/
  RewriteRule ^/s3cret http://127.0.0.1:8081/ [P,L]
  RewriteRule ^/s3cret https://example.org/ [R]
  <If \"%{HTTP:Cookie} == 's3cret'\">
    SetOutputFilter RATE_LIMIT
  </If>
  <Location /x>
    Require host partner.example
    Require ip 10.0.0.1
    AuthLDAPBindPassword s3cret
  </Location>
  <Proxy balancer://app>
    BalancerMember ajp://tomcat1 route=s3cret max=20
    BalancerMember ajp://tomcat1
  </Proxy>
</VirtualHost>
";
    let evaluation = read(text);
    let site = Site::of(&evaluation);
    let found = scoped(&site, 80);
    let all = format!("{:?} {:?}", found.settings, found.notes);
    assert!(!all.contains("s3cret"), "{all}");
    let shown = |setting: &str| -> Vec<String> {
        let of = found.settings.iter().filter(|scoped| scoped.setting == setting);
        of.map(|scoped| format!("{} @ {}", scoped.value, scoped.parts().join(" > "))).collect()
    };
    assert_eq!(shown("SSLSessionCacheTimeout"), ["400 @ "]);
    assert_eq!(shown("SetEnv"), ["rate-limit 400 @ "]);
    assert_eq!(shown("Header"), ["set Cache-Control no-store @ "]);
    assert_eq!(shown("php_admin_value memory_limit"), ["512M @ "]);
    let host = "VirtualHost *:80 a";
    assert_eq!(shown("ProxyPass"), [format!("/app https://b.example:8443/x retry=0 @ {host}")]);
    assert_eq!(shown("RewriteRule"), [format!("http://127.0.0.1:8081/ [P] @ {host}")]);
    assert_eq!(shown("SetOutputFilter"), [format!("RATE_LIMIT @ {host} > If")]);
    let location = format!("{host} > Location /x");
    assert_eq!(shown("Require"), [format!("host partner.example @ {location}"), format!("ip @ {location}")]);
    assert_eq!(shown("AllowOverride"), [format!("None @ {host} > DocumentRoot /a/")]);
    assert_eq!(shown("AccessFileName").len(), 2);
    let snapshot = ServiceSnapshot { scoped: found.settings.clone(), ..ServiceSnapshot::default() };
    let mut backends = configured_backends(&snapshot);
    backends.sort();
    assert_eq!(backends, ["127.0.0.1:8081", "b.example:8443", "tomcat1:8009", "unix:/run/php/fpm.sock"]);
}

/// Ten thousand hosts in as many files, each with what people write in one.
fn many_hosts(root: &std::path::Path, count: usize) -> Evaluation {
    fs::create_dir(root.join("sites")).unwrap();
    for n in 0..count {
        let text = format!(
            "<VirtualHost *:80>\n    ServerName s{n}.example\n    ServerAlias www.s{n}.example *.s{n}.example\n    DocumentRoot /srv/s{n}/www\n\
             \x20   ErrorLog logs/s{n}-error.log\n    CustomLog logs/s{n}-access.log combined\n    <Directory /srv/s{n}/www>\n\
             \x20       Options -Indexes +FollowSymLinks\n        AllowOverride All\n        Require all granted\n    </Directory>\n\
             \x20   <FilesMatch \"\\.php$\">\n        SetHandler \"proxy:unix:/run/php/s{n}.sock|fcgi://localhost\"\n    </FilesMatch>\n\
             \x20   php_admin_value memory_limit 128M\n    RewriteEngine On\n    RewriteCond %{{HTTPS}} off\n    RewriteRule ^ https://s{n}.example/ [R]\n\
             </VirtualHost>\n"
        );
        fs::write(root.join(format!("sites/{n:05}.conf")), text).unwrap();
    }
    let main_file = root.join("httpd.conf");
    fs::write(
        &main_file,
        "LogFormat \"%h %>s\" combined\nErrorLog logs/error\nIncludeOptional sites/*.conf\n",
    )
    .unwrap();
    let module = |symbol: &str| Module { symbol: symbol.into(), source: String::new(), file: None };
    evaluate(Input {
        main_file,
        server_root: root.into(),
        static_modules: vec![module("core_module"), module("dir_module")],
        ..Input::default()
    })
}

#[test]
fn thousands_of_hosts_are_all_read_and_a_bounded_part_is_told() {
    const COUNT: usize = 5000;
    let root = tempfile::tempdir().unwrap();
    let evaluation = many_hosts(root.path(), COUNT);
    assert_eq!((evaluation.files.len(), evaluation.warnings.len()), (COUNT + 1, 0));
    let site = Site::of(&evaluation);
    assert_eq!(site.hosts.list.len(), COUNT);
    let request = Request { port: 80, host: Some("a.s4999.example"), path: "/", ..Request::default() };
    assert_eq!(in_force(&site, &request).file.as_deref(), Some("/srv/s4999/www/"));
    let message = scoped(&site, 80);
    assert_eq!(message.settings.len(), super::scoped::SCOPED_MAX);
    assert!(
        message.notes.iter().any(|note| note.contains("32 of the 5000 virtual hosts")),
        "{:?}",
        message.notes
    );
    assert!(message.notes.iter().any(|note| note.starts_with("600 of ")), "{:?}", message.notes);
    let logs = crate::services::apache::logs::logs(&site, 80, None);
    assert_eq!(
        (logs.files.len(), logs.left_out_count),
        (crate::services::apache::logs::LOGS_MAX, 2 * COUNT + 1 - crate::services::apache::logs::LOGS_MAX)
    );
    let json = serde_json::to_string(&message.settings).unwrap();
    assert!(json.len() < 200_000, "{}", json.len());
}

// Who counts requests takes the first log of each part.
#[test]
fn a_log_that_leaves_requests_out_comes_after_one_that_does_not() {
    let root = tempfile::tempdir().unwrap();
    let main_file = root.path().join("httpd.conf");
    let text = "CustomLog /l/images \"%>s\" env=image\nCustomLog /l/others \"%>s\" env=!image\nCustomLog /l/all \"%>s\"\n";
    std::fs::write(&main_file, text).unwrap();
    let evaluation = evaluate(Input { main_file, server_root: root.path().into(), ..Input::default() });
    let logs = crate::services::apache::logs::logs(&Site::of(&evaluation), 80, None);
    let paths: Vec<&str> = logs.files.iter().map(|log| log.path.as_str()).collect();
    assert_eq!(paths, ["/l/all", "/l/images", "/l/others"]);
}
