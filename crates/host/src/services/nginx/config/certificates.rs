//! With which kinds of keys the servers of http sign TLS handshakes.
//!
//! Facts: <https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_certificate>: a server may name several certificates with
//! different kinds of keys, and has those of http where it names none. A name may have variables, and `data:` is followed by
//! the certificate itself.

use super::{Config, Placed};
use crate::services::common::certificate::{CERTIFICATES_MAX, key_kind};
use crate::visibility::process_view::Root;
use webdyno_model::error::io_error;
use webdyno_model::service::ScopedSetting;

impl Config {
    /// The kinds of the keys of certificates, each as the setting `ssl_certificate key` of http or of a server; and which files cannot
    /// be read, in words. Of a certificate that a variable chooses nothing is known.
    pub fn certificate_keys(&self, root: &Root) -> (Vec<ScopedSetting>, Vec<String>) {
        let mut certificates = vec![];
        self.each(|placed| {
            if certificates.len() < CERTIFICATES_MAX {
                certificates.extend(self.certificate(placed));
            }
        });
        let (mut keys, mut problems) = (vec![], vec![]);
        for (path, key) in certificates {
            match key_kind(root, &path) {
                Ok(kind) => keys.extend(kind.map(|value| ScopedSetting { value, ..key })),
                Err(error) => problems.push(io_error("read", &path, &error).message),
            }
        }
        problems.sort();
        problems.dedup();
        (keys, problems)
    }

    /// The file of a certificate of http or of a server there, and the setting for the kind of its key.
    fn certificate(&self, placed: &Placed<'_>) -> Option<(String, ScopedSetting)> {
        if placed.directive.name != "ssl_certificate" {
            return None;
        }
        let blocks: Vec<&str> = placed.scope.iter().map(|(block, _)| block.name.as_str()).collect();
        let is_of_http = matches!(blocks[..], ["http"] | ["http", "server"]);
        let name = placed.directive.words.first().filter(|_| is_of_http)?;
        let path = self.named_file(name)?.to_string_lossy().into_owned();
        let key = placed.scoped(String::new());
        Some((path, ScopedSetting { setting: "ssl_certificate key".into(), ..key }))
    }
}
