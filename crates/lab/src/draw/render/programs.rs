//! Programs beside the web server: keys that are made, the application server, another program that uses the processors.

use super::php::{PERL_ROUNDS, rounds};
use super::site::{ARCHIVE, elements};
use super::{Program, Rendered};
use crate::draw::server::{Extra, Pages, Server};

/// An application server.
pub const APPLICATION: &str = include_str!("server.pl");
/// Where another host has it.
pub const PARTNER: &str = "/srv/server.pl";

pub fn render(server: &Server, rendered: &mut Rendered) {
    let names = &server.names;
    if server.tls {
        rendered.programs.push(Program {
            name: "keys".into(),
            command: keys(server),
            ready: "/run/keys-are-made".into(),
        });
    }
    if server.pages == Pages::Proxy {
        let path = format!("/srv/{}-programs/server.pl", names.site);
        rendered.file(&path, APPLICATION);
        rendered.programs.push(Program {
            name: format!("{}-app", names.site),
            command: format!(
                "exec perl {path} 127.0.0.1:{} {} {} {} {} '{}' {}",
                names.inner_port,
                server.settings.app_workers,
                server.wait_ms,
                rounds(server.work_ms - 0.3, PERL_ROUNDS),
                server.answer_bytes,
                elements(server),
                if server.extras.contains(&Extra::LocalPorts) { 5 } else { 0 }
            ),
            ready: names.inner_port.to_string(),
        });
    }
    if server.extras.contains(&Extra::Partner) {
        rendered.partner = Some(Program {
            name: "partner".into(),
            command: format!(
                "exec perl {PARTNER} 0.0.0.0:{} {} {} 0 900",
                names.partner_port(),
                server.settings.partner_workers,
                server.wait_ms
            ),
            ready: names.partner_port().to_string(),
        });
    }
    if server.extras.contains(&Extra::Swapped) {
        let path = format!("/srv/{}-tools/archive.pl", names.site);
        rendered.file(&path, include_str!("archive.pl"));
        rendered.programs.push(Program {
            name: "archive".into(),
            command: format!("exec perl {path}"),
            ready: "/run/archive-is-read".into(),
        });
    }
    for number in 0..server.settings.jobs {
        rendered.programs.push(Program {
            name: format!("nightly-{number}"),
            command: "exec perl -e 'my $x = 1; $x = ($x * 31 + 7) % 65521 while 1'".into(),
            ready: String::new(),
        });
    }
}

/// Clients who download the site's archive or send something to its page, each one again and again.
pub fn travellers(server: &Server) -> Option<Program> {
    let (settings, port) = (&server.settings, server.names.port);
    let photo = "--data-binary @/root/photo.raw";
    let each = |count: u32, request: String| {
        let request = format!("curl -s -o /dev/null {request}");
        format!("for number in $(seq {count}); do while :; do {request}; sleep 0.2; done & done; ")
    };
    let command = format!(
        "truncate -s 7M /root/photo.raw; {}{}wait",
        each(settings.downloads, format!("http://server:{port}/{ARCHIVE}")),
        each(settings.uploads, format!("{photo} http://server:{port}/{}.php", server.names.page))
    );
    let is_there = settings.downloads + settings.uploads > 0;
    is_there.then(|| Program { name: "travellers".into(), command, ready: String::new() })
}

/// Keys that a site of TLS may have, with certificates.
fn keys(server: &Server) -> String {
    let site = server.names.site;
    let name = "-subj /CN=server.test -addext subjectAltName=DNS:server,DNS:server.test -days 365";
    let make = |letter: &str, kind: &str| {
        format!(
            "openssl req -x509 -newkey {kind} -nodes -keyout {site}-{letter}.key -out {site}-{letter}.pem {name}"
        )
    };
    let large = server.extras.contains(&Extra::LargeKey).then(|| make("c", "rsa:4096"));
    let made = [Some(make("a", "ec -pkeyopt ec_paramgen_curve:P-256")), Some(make("b", "rsa:2048")), large];
    let made: Vec<String> = made.into_iter().flatten().collect();
    format!(
        "umask 077 && mkdir -p /etc/ssl/private && cd /etc/ssl/private && {} && touch /run/keys-are-made && exec sleep infinity",
        made.join(" && ")
    )
}
