//! HTTPS of requests beside the load: to a site whose links are followed, and to a collector of metrics.

use std::sync::Arc;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// TLS as of the load: ring, and the certificates that this machine trusts.
pub fn tls() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs();
    let roots: Vec<_> = found.certs.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::from(roots.into_iter()))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
