//! The connection to a site: plain, or TLS with the name that the site is asked for.
//!
//! Any certificate is taken: the question is whether the site still shows the one that it showed before, and whether that is
//! the right one has been decided by whoever loads it. The key behind it must be proven all the same. SNI is RFC 6066.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

/// The SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// A connection to a site.
pub enum Connection {
    /// Without TLS.
    Plain(TcpStream),
    /// With it.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Speaks TLS on a connection. The handshake comes with the first bytes that are sent.
    pub fn tls(stream: TcpStream, host: &str) -> io::Result<Self> {
        let invalid =
            |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
        let name = ServerName::try_from(name_of(host).to_owned()).map_err(|error| invalid(&error))?;
        let config = config().map_err(|error| invalid(&error))?;
        let connection = ClientConnection::new(config, name).map_err(|error| invalid(&error))?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// What carries it.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// The certificate that the site showed; `None` without TLS.
    pub fn certificate(&self) -> Option<Fingerprint> {
        let Self::Tls(stream) = self else { return None };
        let first = stream.conn.peer_certificates()?.first()?;
        Some(Sha256::digest(first).into())
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            // A site that hangs up without a farewell has answered all the same.
            Self::Tls(stream) => match stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// The name of a `Host` header, without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or(host),
    }
}

fn config() -> Result<Arc<ClientConfig>, Error> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, Error>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let provider = Arc::new(ring::default_provider());
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
            let mut config = builder
                .with_safe_default_protocol_versions()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        })
        .clone()
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_host_has_no_port() {
        for (host, expected) in [
            ("a.example", "a.example"),
            ("a.example:8443", "a.example"),
            ("[::1]:443", "::1"),
            ("127.0.0.1:1", "127.0.0.1"),
        ] {
            assert_eq!(name_of(host), expected);
        }
    }
}
