//! Loads through a real proxy: a private Apache that makes tunnels and forwards, for whoever has its password.

use crate::http2::{Http2Server, MODULES, apache, prepare, started};
use crate::ports::free_port;
use crate::support::{Place, run, shared_turn, skip};
use std::path::Path;
use std::process::Command;

/// The password that is nowhere to be found.
const PASSWORD: &str = "s3kr1t-proxy";
/// The same as Apache keeps it (SHA-1).
const KEPT: &str = "me:{SHA}m8f7PpEqvpuDCiVkDzk1INh8/yE=\n";

/// A proxy on the second port that tunnels to `port` alone.
fn proxy_to(place: &Place, attempt: usize, port: u16) -> (Command, [u16; 3]) {
    let folder = place.path(&format!("proxy-{attempt}"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("users"), KEPT).unwrap();
    let own = free_port();
    let modules = [
        "mpm_event",
        "authz_core",
        "authn_core",
        "auth_basic",
        "authn_file",
        "authz_user",
        "proxy",
        "proxy_http",
        "proxy_connect",
    ];
    let modules: String =
        modules.iter().map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n")).collect();
    let shown = folder.display();
    let text = format!(
        "{modules}ServerRoot {shown}\nServerName localhost\nPidFile {shown}/pid\nErrorLog {shown}/error.log\nListen 127.0.0.1:{own}\n\
         ProxyRequests On\nAllowCONNECT {port}\nProxyVia Off\n<Proxy *>\nAuthType Basic\nAuthName proxy\nAuthBasicProvider file\n\
         AuthUserFile {shown}/users\nRequire valid-user\n</Proxy>\n"
    );
    std::fs::write(folder.join("proxy.conf"), text).unwrap();
    let mut command = Command::new("/usr/sbin/apache2");
    command.arg("-X").arg("-f").arg(folder.join("proxy.conf"));
    (command, [own; 3])
}

fn check(place: &Place, server: &Http2Server, proxy: &Http2Server) {
    let of = |user: &str| format!("http://{user}127.0.0.1:{}", proxy.plain_port);
    let with_password = of(&format!("me:{PASSWORD}@"));
    let tls = format!("https://127.0.0.1:{}/small", server.tls_port);
    let plain = format!("http://127.0.0.1:{}/small", server.plain_port);
    let cert = place.path("cert.pem");
    let load = |url: &str, proxy: &str, more: &[&str]| {
        run(place
            .webdyno()
            .args(["run", url, "--proxy", proxy, "-c", "3", "-n", "300", "--expect", "length=1000"])
            .args(more)
            .arg("--cacert")
            .arg(&cert)
            .args(["-q", "--json", "-"]))
    };
    for (url, more, handshakes) in
        [(&tls, &[][..], true), (&tls, &["--http2", "--streams", "4"], true), (&plain, &[], false)]
    {
        let ended = load(url, &with_password, more).with_code_in(&[0, 3]);
        assert!(!ended.stdout.contains(PASSWORD) && !ended.stderr.contains(PASSWORD), "{url}");
        let report = ended.json();
        let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_u64);
        assert_eq!(
            (number("/requests/completed"), number("/requests/failed")),
            (Some(300), Some(0)),
            "{url} {more:?}"
        );
        assert_eq!(number("/tls_handshake_us/count").unwrap_or(0) > 0, handshakes, "{url}");
    }
    // Without the password, and to a port that it makes no tunnel to.
    load(&tls, &of(""), &[]).with_code(1).assert_error("it answers 407", "USER:PASSWORD");
    let other = format!("https://127.0.0.1:{}/small", server.http1_port);
    load(&other, &with_password, &[]).with_code(1).assert_error("it answers 403", "AllowCONNECT");
    let ended = load(&plain, &of("me:wrong@"), &[]).with_code(3);
    assert_eq!(ended.json().pointer("/status/407").and_then(serde_json::Value::as_u64), Some(300));
    let mut written = 0;
    for file in crate::secrets::files(&place.path("webdyno-runs")) {
        written += 1;
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(PASSWORD.len()).any(|some| some == PASSWORD.as_bytes()), "{}", file.display());
    }
    assert!(written > 0);
}

#[test]
fn apache_is_loaded_through_apache() {
    let _turn = shared_turn();
    let place = Place::new();
    let is_there = ["http2", "proxy_connect", "proxy_http", "authn_file"]
        .iter()
        .all(|name| Path::new(MODULES).join(format!("mod_{name}.so")).exists());
    if !(prepare(&place) && is_there) {
        return skip("apache2, one of its modules or openssl is missing; install apache2 and openssl");
    }
    let server = started(&place, apache).expect("apache2 does not start");
    let port = server.tls_port;
    let proxy =
        started(&place, |place, attempt| proxy_to(place, attempt, port)).expect("the proxy does not start");
    check(&place, &server, &proxy);
}

#[test]
fn what_does_not_go_with_a_proxy_is_refused_without_its_password() {
    let place = Place::new();
    let url = format!("http://me:{PASSWORD}@127.0.0.1:1");
    for (arguments, first, second) in [
        (
            &["run", "--proxy", "socks5://me:s3kr1t-proxy@h:1"][..],
            "--proxy: it wants http://HOST:PORT",
            "SOCKS",
        ),
        (&["run", "--proxy", "http://me:s3kr1t-proxy@h"], "--proxy: it wants http://HOST:PORT", ""),
        (&["run", "--proxy", &url, "--unix-socket", "/run/x"], "--proxy", "leave one of them out"),
        (&["diagnose", "--proxy", &url], "the proxy http://127.0.0.1:1 stands between", "--proxy"),
    ] {
        let ended = run(place.webdyno().args(arguments).arg("http://127.0.0.1:1/")).with_code(2);
        assert!(!ended.stderr.contains(PASSWORD), "{}", ended.stderr);
        ended.assert_error(first, second);
    }
}
