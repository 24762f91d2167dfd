//! HTTP/2 as users meet it: against the servers of the distribution, over TLS and with prior knowledge.

use crate::ports::free_port;
use crate::support::{Place, run, shared_turn, signal, skip};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 5;
pub const MODULES: &str = "/usr/lib/apache2/modules";

/// A server with HTTP/2 on two ports, the first one with TLS, and HTTP/1.1 alone on a third one with TLS.
pub struct Http2Server {
    child: Child,
    pub tls_port: u16,
    pub plain_port: u16,
    pub http1_port: u16,
}

impl Drop for Http2Server {
    fn drop(&mut self) {
        signal(self.child.id(), rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A key and its certificate, and a file to be loaded.
pub fn prepare(place: &Place) -> bool {
    let root = place.path("tree");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("small"), "x".repeat(1000)).unwrap();
    // An empty message of gRPC.
    std::fs::write(root.join("empty"), [0; 5]).unwrap();
    std::fs::write(root.join("full"), [0; 5]).unwrap();
    std::fs::write(root.join("large"), "y".repeat(300_000)).unwrap();
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=h -addext"
                .split(' '),
        )
        .args(["subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(place.path("key.pem"))
        .arg("-out")
        .arg(place.path("cert.pem"))
        .stderr(Stdio::null())
        .status();
    made.is_ok_and(|status| status.success())
}

/// Starts a server, with other ports where one of them was taken meanwhile.
pub fn started(place: &Place, begin: impl Fn(&Place, usize) -> (Command, [u16; 3])) -> Option<Http2Server> {
    (0..ATTEMPTS).find_map(|attempt| {
        let (mut command, ports @ [tls_port, plain_port, http1_port]) = begin(place, attempt);
        let child = command.stderr(Stdio::null()).spawn().ok()?;
        let mut server = Http2Server { child, tls_port, plain_port, http1_port };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && matches!(server.child.try_wait(), Ok(None)) {
            std::thread::sleep(POLL);
            // A port of HTTP/2 does not answer in HTTP/1.1.
            let listens = ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok());
            if listens && matches!(server.child.try_wait(), Ok(None)) {
                return Some(server);
            }
        }
        None
    })
}

fn nginx(place: &Place, attempt: usize) -> (Command, [u16; 3]) {
    let folder = place.path(&format!("nginx-{attempt}"));
    std::fs::create_dir(&folder).unwrap();
    let ports @ [tls, plain, http1] = [(); 3].map(|()| free_port());
    let (shown, root) = (folder.display(), place.path("tree"));
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let keys = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        place.path("cert.pem").display(),
        place.path("key.pem").display()
    );
    // What calls of gRPC are answered with: an empty message, and none.
    std::fs::write(root.join("empty"), [0; 5]).unwrap();
    std::fs::write(root.join("full"), "").unwrap();
    // Connections end after 200 requests: the load meets GOAWAY.
    let text = format!(
        "{user} daemon off; pid {shown}/pid; error_log {shown}/error.log; worker_processes 1;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {shown}/b; proxy_temp_path {shown}/p; keepalive_requests 200;\n\
         fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u; scgi_temp_path {shown}/s; root {};\n\
         server {{ listen 127.0.0.1:{tls} ssl http2; {keys} }}\n\
         server {{ listen 127.0.0.1:{plain} http2; location /shop.Cart/Add {{ error_page 404 =200 /empty; }}\n\
         location /shop.Cart/Pay {{ error_page 404 =200 /full; }} default_type application/grpc;\n\
         location = /empty {{ add_trailer grpc-status 0; }} location = /full {{ add_trailer grpc-status 8; }} }}\n\
         server {{ listen 127.0.0.1:{http1} ssl; {keys} }} }}\n",
        root.display()
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(&folder).arg("-c").arg(&file);
    (command, ports)
}

pub fn apache(place: &Place, attempt: usize) -> (Command, [u16; 3]) {
    let folder = place.path(&format!("apache-{attempt}"));
    std::fs::create_dir(&folder).unwrap();
    let ports @ [tls, plain, http1] = [(); 3].map(|()| free_port());
    let module = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let modules: String = ["mpm_event", "authz_core", "http2", "ssl"].map(module).concat();
    let (shown, root) = (folder.display(), place.path("tree"));
    let site = |port: u16, protocols: &str, secure: bool| {
        let (cert, key) = (place.path("cert.pem"), place.path("key.pem"));
        let engine = match secure {
            false => String::new(),
            true => format!(
                "SSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\n",
                cert.display(),
                key.display()
            ),
        };
        format!(
            "Listen 127.0.0.1:{port}\n<VirtualHost 127.0.0.1:{port}>\nProtocols {protocols}\n{engine}</VirtualHost>\n"
        )
    };
    let text = format!(
        "{modules}ServerRoot {shown}\nServerName localhost\nPidFile {shown}/pid\nErrorLog {shown}/error.log\n\
         DocumentRoot {}\n{}{}{}",
        root.display(),
        site(tls, "h2 http/1.1", true),
        site(plain, "h2c http/1.1", false),
        site(http1, "http/1.1", true)
    );
    let file = folder.join("apache.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("/usr/sbin/apache2");
    command.arg("-X").arg("-f").arg(&file);
    (command, ports)
}

fn check(place: &Place, server: &Http2Server) {
    let tls = format!("https://127.0.0.1:{}", server.tls_port);
    let plain = format!("http://127.0.0.1:{}", server.plain_port);
    let cert = place.path("cert.pem");
    for (base, streams, file, bytes) in
        [(&tls, "10", "small", 1000_u64), (&plain, "7", "small", 1000), (&tls, "3", "large", 300_000)]
    {
        let url = format!("{base}/{file}");
        let expect = format!("length={bytes}");
        let arguments =
            ["run", &url, "--http2", "-c", "2", "--streams", streams, "-n", "900", "--expect", &expect];
        let ended =
            run(place.webdyno().args(arguments).arg("--cacert").arg(&cert).args(["-q", "--json", "-"]));
        let report = ended.with_code_in(&[0, 3]).json();
        let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_u64);
        assert_eq!(
            (number("/requests/completed"), number("/requests/failed")),
            (Some(900), Some(0)),
            "{url}"
        );
        let opened = number("/connections/opened").unwrap();
        assert!((2..=40).contains(&opened), "{url}: {opened} connections");
        assert_eq!(number("/workload/transport/http2_streams"), Some(streams.parse().unwrap()));
    }
    // Who does not speak it is told before the load.
    let http1 = format!("https://127.0.0.1:{}/small", server.http1_port);
    let refused = run(place.webdyno().args(["run", &http1, "--http2", "-n", "5", "--cacert"]).arg(&cert));
    refused.with_code(1).assert_error("127.0.0.1", "--http2");
}

/// Calls of gRPC, one of which nginx answers with RESOURCE_EXHAUSTED.
fn check_calls(place: &Place, server: &Http2Server) {
    let text = format!(
        "base = \"http://127.0.0.1:{}\"\nhttp2 = true\nstreams = 4\nconnections = 2\n\
         [[request]]\nurl = \"/shop.Cart/Add\"\ngrpc = true\nbody_hex = \"08 01\"\n[[request]]\nurl = \"/shop.Cart/Pay\"\ngrpc = true\n",
        server.plain_port
    );
    std::fs::write(place.path("calls.toml"), text).unwrap();
    let ended = run(place
        .webdyno()
        .args(["run", "--workload"])
        .arg(place.path("calls.toml"))
        .args(["-n", "400", "--json", "-"]));
    let report = ended.with_code_in(&[0, 3]).json();
    for (path, expected) in [
        ("/requests/completed", 200),
        ("/errors/grpc", 200),
        ("/status/200", 200),
        ("/status/RESOURCE_EXHAUSTED", 200),
    ] {
        assert_eq!(
            report.pointer(path).and_then(serde_json::Value::as_u64),
            Some(expected),
            "{path}: {report}"
        );
    }
}

#[test]
fn nginx_is_loaded_over_http2() {
    let _turn = shared_turn();
    let place = Place::new();
    match prepare(&place) && Path::new("/usr/sbin/nginx").exists() {
        true => {
            let server = started(&place, nginx).expect("nginx does not start");
            check(&place, &server);
            check_calls(&place, &server);
        }
        false => skip("nginx or openssl is missing; install nginx-light and openssl"),
    }
}

#[test]
fn apache_is_loaded_over_http2() {
    let _turn = shared_turn();
    let place = Place::new();
    match prepare(&place) && Path::new(MODULES).join("mod_http2.so").exists() {
        true => check(&place, &started(&place, apache).expect("apache2 does not start")),
        false => skip("apache2, its module http2 or openssl is missing; install apache2 and openssl"),
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let place = Place::new();
    for (arguments, first, second) in [
        (&["--streams", "4"][..], "streams are of HTTP/2", "--http2"),
        (&["--http2", "--streams", "0"], "--streams", "10"),
        (&["--http2", "--streams", "4", "--no-keepalive"], "--no-keepalive", "leave one of them out"),
    ] {
        run(place.webdyno().args(["run", "http://127.0.0.1:1/"]).args(arguments))
            .with_code(2)
            .assert_error(first, second);
    }
}
