//! A load over TLS against nginx: its own library of TLS, and connections that it closes after some requests.

use super::{LARGE, pki};
use crate::nginx::Nginx;
use crate::server::{load, workload};
use webdyno_load::{prepare, probe};
use webdyno_model::transport::AddressFamily;
use webdyno_model::workload::Expectation;

#[test]
fn nginx_is_loaded_over_tls() {
    let (authority, identity) = pki();
    let site = authority.path("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("large"), vec![b'x'; LARGE]).unwrap();
    std::fs::write(site.join("index.html"), "ok").unwrap();
    let (root, certificate, key) =
        (site.display(), identity.certificate_file.display(), identity.key_file.display());
    let http = |address| {
        format!(
            "access_log off; server {{ listen {address} ssl; keepalive_requests 50; root {root};\n\
             ssl_certificate {certificate}; ssl_certificate_key {key}; }}"
        )
    };
    let Some(nginx) = Nginx::start(&authority.path("nginx"), http) else { return };
    let mut load_of = workload(&format!("https://localhost:{}/", nginx.address.port()));
    load_of.transport.address_family = AddressFamily::Ipv4;
    load_of.transport.tls.ca_file = Some(authority.file());
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(2000), None);
    load_of.connections = 10;
    assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (2000, 0), "{:?}", outcome.intervals);
    // It closes each connection after 50 requests, and the next one resumes its session.
    let opened = outcome.sum(|interval| interval.connections.opened);
    let resumed = outcome.sum(|interval| interval.connections.tls_resumed);
    assert!(opened >= 40 && resumed >= 20 && resumed < opened, "{opened} {resumed}");
    load_of.requests[0].url = format!("https://localhost:{}/large", nginx.address.port());
    load_of.stop.requests = Some(30);
    load_of.expect = vec![Expectation::Length(LARGE as u64)];
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (30, 0), "{:?}", outcome.intervals);
}
