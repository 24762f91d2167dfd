//! The programs on hosts made by hand (unshare(1) and bind mounts).

use super::tests::{folder, is_root};
use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A folder of namespaces' files, and its first process.
struct NamespaceHost {
    folder: ScenarioFolder,
    root: tempfile::TempDir,
    unshare: Child,
    first: String,
    _catalogue: tempfile::TempDir,
}

impl NamespaceHost {
    fn new(services: &str, files: &[(&str, &str)]) -> Self {
        let (folder, catalogue) = folder(services, files);
        let missing = missing_packages(&folder.scenario);
        assert!(missing.is_empty(), "scripts/setup lab installs {missing:?}");
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        write_files(&folder, "server", root.path(), &[("server".into(), "10.80.0.2".into())]).unwrap();
        let script = "cd \"$1\" && for own in etc var srv root; do mount --bind $own /$own || exit 1; done \
             && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /tmp && ip link set lo up && ip address add 10.80.0.2 dev lo \
             && hostname server && echo ready && exec sleep 60";
        let mut unshare = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--net", "--uts", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", script, "sh"])
            .arg(root.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(unshare.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let first = std::fs::read_to_string(children).unwrap().trim().to_owned();
        Self { folder, root, unshare, first, _catalogue: catalogue }
    }

    fn enter(&self) -> Command {
        let bare = || {
            let mut command = Command::new("nsenter");
            command.args(["-t", &self.first, "-m", "-p", "-n", "-u", "--"]);
            command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
            command
        };
        let mut command = bare();
        command.env("HOME", "/root").envs(environment(bare(), Path::new(ENVVARS)));
        command
    }

    fn start(&self) -> Result<()> {
        self.start_within(Duration::from_secs(20))
    }

    fn start_within(&self, time: Duration) -> Result<()> {
        let enter = || Ok(self.enter());
        let inside = CommandHost { host: "server", scratch: self.root.path(), enter: &enter };
        let deadline = Instant::now() + time;
        let services = &self.folder.scenario.services;
        services.iter().try_for_each(|service| {
            let begun = Instant::now();
            let started = start_in(&inside, &self.folder, service, deadline);
            eprintln!("{:?}: {:?}", service.program, begun.elapsed());
            started
        })
    }

    /// What a line typed on the host says.
    fn typed(&self, line: &str) -> String {
        let output = self.enter().args(["sh", "-c", line]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {printed}");
        printed.into_owned()
    }
}

impl Drop for NamespaceHost {
    fn drop(&mut self) {
        // Its end ends the first process, and with it all others.
        self.unshare.kill().unwrap();
        self.unshare.wait().unwrap();
    }
}

#[test]
fn apache_starts_with_each_mpm_and_reloads_as_typed() {
    if !is_root("a host") {
        return;
    }
    for mpm in ["prefork", "worker", "event"] {
        let host = NamespaceHost::new(&format!("[[services]]\nprogram = \"apache\"\nmpm = \"{mpm}\"\n"), &[]);
        host.start().unwrap();
        let mut stream = String::new();
        stream += &host.typed("curl -s http://server/ http://server/server-status?auto");
        assert!(stream.contains("<h1>It works</h1>"), "{stream}");
        assert!(stream.contains(&format!("ServerMPM: {mpm}")), "{stream}");
        assert_eq!(host.typed("apache2 -k graceful"), "");
        let limits = host.typed("grep 'open files' /proc/$(cat /run/apache2/apache2.pid)/limits");
        assert_eq!(limits.split_whitespace().nth(3), Some("8192"), "{limits}");
    }
}

#[test]
fn a_page_of_php_asks_the_database() {
    if !is_root("a host") {
        return;
    }
    let services = "[[services]]\nprogram = \"mariadb\"\nsql = \"srv/shop.sql\"\n\
         [[services]]\nprogram = \"php-fpm\"\n\
         [[services]]\nprogram = \"apache\"\nmodules = [\"proxy_fcgi\"]\nconfs = [\"php8.2-fpm\"]\n";
    let page = "<?php $db = new mysqli('localhost', 'shop', '', 'shop');\
         echo $db->query('select name from article')->fetch_row()[0], opcache_get_status()['opcache_enabled'];";
    let sql = "create database shop; use shop; create table article (name text) engine=innodb;\
         insert into article values ('teapot'); create user shop@localhost;\
         grant all on shop.* to shop@localhost;";
    let host =
        NamespaceHost::new(services, &[("server/srv/shop.sql", sql), ("server/var/www/html/shop.php", page)]);
    host.start().unwrap();
    assert_eq!(host.typed("curl -s http://server/shop.php"), "teapot1");
    assert_eq!(
        host.typed("stat -c '%a %U' /var/lib/php/sessions /var/lib/mysql /var/log/apache2"),
        "1733 root\n755 mysql\n750 root\n"
    );
}

/// A file with a line for each of these programs, which must accept its configuration on this host.
#[test]
fn every_configuration_passes_its_programs_own_test() {
    if !is_root("a host") {
        return;
    }
    let has = |path: &str| Path::new(path).exists();
    let entries = std::fs::read_dir(apache::MODULES).unwrap();
    let names = entries.filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        Some(name.strip_prefix("mod_")?.strip_suffix(".so")?.replace("dumpio", "dump_io"))
    });
    // One of a kind at a time, and those that want to be told more than Debian's files say.
    let left_out = |name: &String| name.starts_with("mpm_") || ["cgid", "perl"].contains(&name.as_str());
    let modules: Vec<String> = names.filter(|name| !left_out(name)).collect();
    assert!(modules.len() > 90, "{modules:?}");
    for (mpm, more) in [("prefork", "php8.2"), ("prefork", "perl"), ("worker", "cgid"), ("event", "cgid")] {
        if more == "php8.2" && !has(apache::PHP.1)
            || more == "perl" && !has("/usr/lib/apache2/modules/mod_perl.so")
        {
            eprintln!("skipped: {more} is not installed");
            continue;
        }
        let modules: Vec<&str> = modules.iter().map(String::as_str).chain([more]).collect();
        let services = format!(
            "[[services]]\nprogram = \"apache\"\nmpm = \"{mpm}\"\nmodules = {modules:?}\n\
             confs = [\"php8.2-fpm\"]\nsites = [\"000-default\", \"default-ssl\"]\n"
        );
        let host = NamespaceHost::new(&services, &[]);
        let prepare = "mkdir -p /run/apache2/socks /run/lock/apache2 && ";
        assert_eq!(host.typed(&format!("{prepare} apache2 -t")), "Syntax OK\n", "{mpm} {more}");
        let loaded = host.typed(&format!("{prepare} apache2 -M"));
        for module in ["ssl", "proxy_fcgi", "lua", "http2", "status"] {
            assert!(loaded.contains(&format!(" {module}_module (shared)")), "{mpm} {module}: {loaded}");
        }
    }
    let services = "[[services]]\nprogram = \"php-fpm\"\n[[services]]\nprogram = \"mariadb\"\n\
         [[services]]\nprogram = \"nginx\"\n";
    let host = NamespaceHost::new(services, &[]);
    host.typed(
        "mkdir /run/php && php-fpm8.2 -t && nginx -t && mariadbd --user=mysql --help --verbose >/dev/null",
    );
}

#[test]
fn php_and_its_pool_have_debians_values() {
    const TEMPLATE: &str = "/usr/lib/php/8.2/php.ini-production";
    if !is_root("a host") {
        return;
    }
    let host = NamespaceHost::new("[[services]]\nprogram = \"php-fpm\"\n", &[]);
    let pool = host.typed("mkdir /run/php && php-fpm8.2 -tt");
    for value in [
        "listen = /run/php/php8.2-fpm.sock",
        "user = www-data",
        "pm = dynamic",
        "pm.max_children = 5",
        "pm.start_servers = 2",
        "pm.min_spare_servers = 1",
        "pm.max_spare_servers = 3",
        "pm.max_requests = 0",
        "listen.backlog = -1",
        "rlimit_files = 0",
        "error_log = /var/log/php8.2-fpm.log",
    ] {
        assert!(pool.contains(&format!("\t{value}\n")), "{value}: {pool}");
    }
    // Debian's package php8.2-common has the settings that its packages install: with all extensions both come to the same.
    let reported = |file: &str| {
        let all = host.typed(&format!("php-fpm8.2 -c {file} -i"));
        let lines = all
            .lines()
            .filter(|line| !line.contains("Loaded Configuration File") && !line.contains("REQUEST_TIME"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for sapi in ["fpm", "apache2"] {
        let file = format!("/etc/php/8.2/{sapi}/php.ini");
        if host.root.path().join(&file[1..]).exists() {
            assert_eq!(reported(&file), reported(TEMPLATE), "{sapi}");
        }
    }
    let extensions = host.typed("php-fpm8.2 -m");
    for extension in ["mysqli", "mysqlnd", "PDO", "pdo_mysql", "Zend OPcache"] {
        assert!(extensions.lines().any(|line| line == extension), "{extension}: {extensions}");
    }
}

#[test]
fn the_database_has_debians_values_and_roots_socket() {
    if !is_root("a host") {
        return;
    }
    let host = NamespaceHost::new("[[services]]\nprogram = \"mariadb\"\n", &[]);
    host.start().unwrap();
    let values = host.typed(
        "mariadb -Ne 'select @@max_connections, @@innodb_buffer_pool_size, @@innodb_log_file_size, @@table_open_cache, \
         @@query_cache_type, @@innodb_flush_log_at_trx_commit, @@innodb_flush_method, @@bind_address, \
         @@character_set_server, @@datadir, @@socket, current_user()'",
    );
    let wanted = "151 134217728 100663296 2000 OFF 1 O_DIRECT 127.0.0.1 utf8mb4 /var/lib/mysql/ /run/mysqld/mysqld.sock \
         root@localhost";
    assert_eq!(values.split_whitespace().collect::<Vec<_>>().join(" "), wanted);
    let others = host.typed("setpriv --reuid www-data mariadb -uroot -e 'select 1' || true");
    assert!(others.contains("Access denied"), "{others}");
}

#[test]
fn scripts_run_inside_of_apache_and_pages_are_encrypted() {
    let modules = [apache::PHP.1, "/usr/lib/apache2/modules/mod_perl.so"];
    if !is_root("a host") || !modules.iter().all(|path| Path::new(path).exists()) {
        return;
    }
    let services = "[[services]]\nprogram = \"apache\"\nmpm = \"prefork\"\nmodules = [\"php8.2\", \"perl\", \"ssl\", \"cgi\"]\n\
         sites = [\"000-default\", \"default-ssl\", \"perl\"]\nopen_files = 700\n";
    let perl = "PerlModule Pages::Sum\n<Location /perl>\nSetHandler modperl\nPerlResponseHandler Pages::Sum\n</Location>\n\
         <Perl>\nuse lib '/srv';\n</Perl>\n";
    let perl = perl.replace("PerlModule", "PerlSwitches -I/srv\nPerlModule");
    let sum = "package Pages::Sum; use Apache2::RequestIO (); use Apache2::Const -compile => 'OK';\n\
         sub handler { $_[0]->print(1 + 2); Apache2::Const::OK } 1;\n";
    let files = [
        ("server/etc/apache2/sites-available/perl.conf", perl.as_str()),
        ("server/srv/Pages/Sum.pm", sum),
        ("server/var/www/html/sum.php", "<?php echo php_sapi_name(), 1 + 2;"),
    ];
    let host = NamespaceHost::new(services, &files);
    host.start().unwrap();
    assert_eq!(host.typed("curl -s http://server/sum.php http://server/perl"), "apache2handler33");
    let certificate = "/etc/ssl/certs/ssl-cert-snakeoil.pem";
    assert_eq!(
        host.typed(&format!("curl -s --cacert {certificate} https://server/sum.php")),
        "apache2handler3"
    );
    let limits = host.typed("grep 'open files' /proc/$(cat /run/apache2/apache2.pid)/limits");
    assert_eq!(limits.split_whitespace().nth(3), Some("700"), "{limits}");
}

#[test]
fn programs_run_behind_apache_whether_it_has_threads_or_not() {
    if !is_root("a host") {
        return;
    }
    let site = "<VirtualHost *:80>\nScriptAlias /cgi/ /srv/cgi/\n\
         <Directory /srv/cgi>\nRequire all granted\n</Directory>\n</VirtualHost>\n";
    let files = [
        ("server/etc/apache2/sites-available/000-default.conf", site),
        ("server/srv/cgi/name", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$SERVER_NAME\"\n"),
    ];
    for mpm in ["prefork", "event"] {
        let services = format!("[[services]]\nprogram = \"apache\"\nmpm = \"{mpm}\"\nmodules = [\"cgi\"]\n");
        let host = NamespaceHost::new(&services, &files);
        host.start().unwrap();
        assert_eq!(host.typed("curl -s http://server/cgi/name"), "server", "{mpm}");
    }
}

#[test]
fn nginx_serves_its_page() {
    if !is_root("a host") {
        return;
    }
    let host = NamespaceHost::new("[[services]]\nprogram = \"nginx\"\n", &[]);
    host.start().unwrap();
    assert!(host.typed("curl -s http://server/").contains("Welcome to nginx"));
}

#[test]
fn a_command_is_ready_when_it_says_and_tells_why_it_ended() {
    if !is_root("a host") {
        return;
    }
    let of = |command: &str, ready: &str| {
        NamespaceHost::new(
            &format!("[[services]]\nprogram = \"command\"\ncommand = \"{command}\"\n{ready}\n"),
            &[],
        )
    };
    let server = "sleep 0.2; exec python3 -m http.server 8080";
    let host = of(server, "ready = \"8080\"");
    host.start().unwrap();
    host.typed("curl -s http://server:8080/ && test -s /var/log/command.log");
    let host = of("sleep 0.2; touch /run/there; exec sleep 60", "ready = \"/run/there\"");
    host.start().unwrap();
    host.typed("test -e /run/there");
    of("exec sleep 60", "").start().unwrap();
    for ready in ["", "ready = \"8080\"", "ready = \"/run/there\""] {
        let reported = of("echo no teapot; exit 3", ready).start().unwrap_err();
        assert_eq!(
            reported.message, "`echo no teapot; exit 3` does not start on server: no teapot",
            "{ready}"
        );
    }
    // The time is over; on a busy machine it may be before the command has said anything.
    let reported = [1, 4, 16].into_iter().map(|seconds| {
        let host = of("echo at it; exec sleep 60", "ready = \"8080\"");
        host.start_within(Duration::from_secs(seconds)).unwrap_err().message
    });
    let wanted = "`echo at it; exec sleep 60` is not ready in time on server: at it";
    assert!(reported.into_iter().any(|message| message == wanted));
}

#[test]
fn what_keeps_a_program_from_starting_is_told() {
    if !is_root("a host") {
        return;
    }
    let reported = |program: &str, path: &str, text: &str| {
        let services = format!("[[services]]\nprogram = \"{program}\"\n");
        NamespaceHost::new(&services, &[(path, text)]).start().unwrap_err().message
    };
    let apache = reported("apache", "server/etc/apache2/conf-available/charset.conf", "Teapot On\n");
    assert!(
        apache.starts_with("Apache does not start on server: ") && apache.contains("'Teapot'"),
        "{apache}"
    );
    let fpm = reported("php-fpm", "server/etc/php/8.2/fpm/pool.d/www.conf", "[www]\nteapot = on\n");
    assert!(fpm.contains("teapot"), "{fpm}");
    let nginx = reported("nginx", "server/etc/nginx/conf.d/teapot.conf", "teapot on;\n");
    assert!(nginx.contains("teapot"), "{nginx}");
    let mariadb = reported("mariadb", "server/etc/mysql/conf.d/mysql.cnf", "[mysqld]\nteapot = on\n");
    assert!(mariadb.contains("teapot"), "{mariadb}");
}

#[test]
fn modules_come_with_what_they_depend_on() {
    let enabled = |more: &str| {
        let (folder, _catalogue) = folder(&format!("[[services]]\nprogram = \"apache\"\n{more}"), &[]);
        apache::enabled_modules(&folder.scenario.services[0])
    };
    let usual = enabled("");
    assert!(usual.contains("mpm_event") && usual.contains("status") && !usual.contains("proxy"), "{usual:?}");
    for (more, added) in [
        ("modules = [\"proxy_fcgi\"]", &["proxy", "proxy_fcgi"][..]),
        (
            "modules = [\"lbmethod_byrequests\"]",
            &["lbmethod_byrequests", "proxy", "proxy_balancer", "slotmem_shm"],
        ),
        ("modules = [\"ssl\"]", &["socache_shmcb", "ssl"]),
        ("modules = [\"cgi\"]", &["cgid"]),
    ] {
        let all = enabled(more);
        assert_eq!(all.difference(&usual).collect::<Vec<_>>(), added, "{more}");
    }
    let prefork = enabled("mpm = \"prefork\"\nmodules = [\"cgi\", \"-deflate\"]");
    assert!(prefork.contains("cgi") && prefork.contains("mpm_prefork"), "{prefork:?}");
    assert!(!prefork.contains("deflate") && !prefork.contains("mpm_event"), "{prefork:?}");
}
