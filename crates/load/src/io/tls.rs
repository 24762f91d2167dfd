//! The rustls configuration for the TLS options, and hints for the errors of rustls.
//!
//! The provider of the cryptography is ring: it builds with a C compiler alone. What is trusted is the system's store
//! (as OpenSSL finds it, `SSL_CERT_FILE` and `SSL_CERT_DIR` included) or the file given. Versions 1.2 and 1.3 are
//! spoken, and one version of HTTP is offered (ALPN, RFC 7301).

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError,
    PeerMisbehaved, RootCertStore, SignatureScheme,
};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use webdyno_model::transport::TlsOptions;
use webdyno_model::{ErrorKind, Result, UserError};

/// Sessions that a thread remembers for resumption. A server's latest eight are among them, whatever this is.
const SESSIONS_MAX: usize = 256;

/// webpki's error for a server certificate that is a CA certificate.
const OF_AN_AUTHORITY: &str = "CaUsedAsEndEntity";

/// The protocols of ALPN: RFC 7301; RFC 9113, section 3.2.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";
pub(crate) const HTTP3: &[u8] = b"h3";

thread_local! {
    /// Certificates of servers that this thread has checked, and why the last one was not accepted.
    static CHECKED: Cell<u64> = const { Cell::new(0) };
    static REFUSAL: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Certificates that this thread has checked: a handshake that resumes a session checks none. QUIC tells nothing else of it.
pub(crate) fn certificates_checked() -> u64 {
    CHECKED.get()
}

/// Why this thread accepted no certificate since it was asked last.
pub(crate) fn take_refusal() -> Option<Error> {
    REFUSAL.take()
}

fn note_check<T>(checked: std::result::Result<T, Error>) -> std::result::Result<T, Error> {
    CHECKED.set(CHECKED.get() + 1);
    checked.inspect_err(|error| REFUSAL.set(Some(error.clone())))
}

/// What connections are made with that speak this protocol. Each engine thread makes its own of it by [`for_thread`].
pub(crate) fn config(options: &TlsOptions, protocol: &[u8]) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| UserError::cannot_run(format!("TLS cannot be set up: {error}")))?;
    let verifier: Arc<dyn ServerCertVerifier> = match options.insecure {
        true => Arc::new(AcceptAnyCertificate { provider }),
        false => Arc::new(CaOrPinnedCertificate::new(options.ca_file.as_deref(), provider)?),
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match (&options.certificate_file, &options.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), key) => {
            // As with curl, the key may stand in the same file.
            let key = key.as_ref().unwrap_or(certificate);
            builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|error| key_mismatch(certificate, key, &error))?
        }
        (None, Some(key)) => {
            return Err(UserError::usage(format!("the key {} comes without its certificate", key.display()))
                .hint("give the certificate with --cert"));
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    if options.no_resumption {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// The same for one thread, which shares its sessions with no other one.
pub(crate) fn for_thread(config: &ClientConfig, options: &TlsOptions) -> Arc<ClientConfig> {
    let mut own = config.clone();
    if !options.no_resumption {
        own.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    }
    Arc::new(own)
}

/// Reads the certificates of a PEM file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| cannot_read("certificates", path, &error))?;
    if read.is_empty() {
        return Err(UserError::usage(format!("there is no certificate in {}", path.display()))
            .hint("it must hold a block that begins with -----BEGIN CERTIFICATE-----"));
    }
    Ok(read)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            UserError::usage(format!("there is no private key in {}", path.display())).hint(
                "it must hold a block such as -----BEGIN PRIVATE KEY-----, not encrypted; openssl pkey decrypts one",
            )
        }
        error => cannot_read("private key", path, &error),
    })
}

fn cannot_read(what: &str, path: &Path, error: &pem::Error) -> UserError {
    match error {
        pem::Error::Io(error) => UserError {
            kind: ErrorKind::Usage,
            ..webdyno_model::error::io_error(&format!("read the {what} in"), path.display(), error)
        },
        error => UserError::usage(format!("{} is not PEM: {error}", path.display()))
            .hint("openssl converts it: openssl x509 -inform DER -in FILE, for a certificate"),
    }
}

fn key_mismatch(certificate: &Path, key: &Path, error: &Error) -> UserError {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        Error::InconsistentKeys(_) => {
            UserError::usage(format!("the key in {key} is not that of the certificate in {certificate}"))
                .hint("the first certificate of the file given with --cert must be that of the key")
        }
        error => UserError::usage(format!("{certificate} with {key} cannot be used: {error}"))
            .hint("keys may be RSA, ECDSA (P-256, P-384) or Ed25519"),
    }
}

#[derive(Debug)]
struct AcceptAnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        note_check(Ok(ServerCertVerified::assertion()))
    }

    // Who may show any certificate need not prove that it has its key.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts what an authority has signed, and a certificate of a server that itself stands in the file given.
#[derive(Debug)]
struct CaOrPinnedCertificate {
    by_authority: Arc<WebPkiServerVerifier>,
    /// The certificates of the file given.
    given: Vec<CertificateDer<'static>>,
}

impl CaOrPinnedCertificate {
    fn new(ca_file: Option<&Path>, provider: Arc<CryptoProvider>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let given = ca_file.map(certificates).transpose()?.unwrap_or_default();
        match ca_file {
            Some(path) => {
                let (usable, _) = roots.add_parsable_certificates(given.iter().cloned());
                if usable == 0 {
                    return Err(UserError::usage(format!(
                        "no certificate in {} can be read",
                        path.display()
                    ))
                    .hint("look at it: openssl x509 -noout -text -in FILE"));
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                let (usable, _) = roots.add_parsable_certificates(found.certs);
                if usable == 0 {
                    return Err(UserError::cannot_run("this machine trusts no certificates").hint(
                        "install the package ca-certificates, or name the authority with --cacert FILE",
                    ));
                }
            }
        }
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| UserError::cannot_run(format!("TLS cannot be set up: {error}")))?;
        Ok(Self { by_authority, given })
    }

    /// Whether a certificate is trusted.
    fn check(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let verified = self.by_authority.verify_server_cert(shown, others, name, ocsp, now);
        if verified.is_ok() || !self.given.contains(shown) {
            return verified;
        }
        // By itself, so that nothing else that the server sends can be what is wrong with it.
        match self.by_authority.verify_server_cert(shown, &[], name, ocsp, now) {
            Err(Error::InvalidCertificate(why)) if is_unknown_issuer_only(&why) => {
                let parsed = rustls::server::ParsedCertificate::try_from(shown)?;
                rustls::client::verify_server_name(&parsed, name)?;
                Ok(ServerCertVerified::assertion())
            }
            alone => alone,
        }
    }
}

impl ServerCertVerifier for CaOrPinnedCertificate {
    /// A server certificate that the user has named is trusted whichever authority has signed it (it itself
    /// perhaps, as one of an authority, which webpki accepts for no server): its name and dates still have to be right.
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        note_check(self.check(shown, others, name, ocsp, now))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Whether everything else is right, the name perhaps excepted: webpki looks at the dates of a certificate first, then
/// at its use, and at last for who has signed it.
fn is_unknown_issuer_only(why: &CertificateError) -> bool {
    match why {
        CertificateError::UnknownIssuer => true,
        CertificateError::Other(OtherError(why)) => why.to_string() == OF_AN_AUTHORITY,
        _ => false,
    }
}

/// What the server did that TLS failed, worded to follow its name, and what helps.
pub(crate) fn explain(error: &Error) -> (String, &'static str) {
    match error {
        Error::InvalidCertificate(why) => {
            let (cause, hint) = explain_certificate(why);
            (format!("is not trusted: its certificate {cause}"), hint)
        }
        Error::AlertReceived(alert) => {
            (format!("refused TLS with the alert {alert:?}"), explain_alert(*alert))
        }
        Error::InvalidMessage(_) => (
            "speaks no TLS: what it answers is not TLS".into(),
            "is it a port for plain HTTP? then load the http:// address of the same server",
        ),
        // Apache answers so who offers what it does not speak.
        Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => {
            ("chooses another HTTP than was offered in the TLS handshake (ALPN)".into(), OTHER_HTTP)
        }
        Error::PeerIncompatible(why) => {
            (format!("speaks another TLS than this client: {why:?}"), OTHER_VERSION)
        }
        other => (
            format!("breaks the rules of TLS: {other}"),
            "see what it speaks: openssl s_client -connect HOST:PORT",
        ),
    }
}

const OTHER_VERSION: &str =
    "TLS 1.2 and 1.3 are spoken here; see what the server speaks: openssl s_client -connect HOST:PORT";

const OTHER_HTTP: &str =
    "it speaks another HTTP than was offered: give --http2 or --http3, or leave them out";

/// What helps against an alert. RFC 8446, section 6.2.
fn explain_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => OTHER_VERSION,
        AlertDescription::UnrecognisedName => {
            "it has no site of that name; load it by one that it has (--connect-to leads that name anywhere)"
        }
        AlertDescription::NoApplicationProtocol => OTHER_HTTP,
        AlertDescription::HandshakeFailure => {
            "it may want to know who calls (--cert FILE and --key FILE), or speak none of the ciphers offered; its error \
             log says more"
        }
        AlertDescription::NoCertificate
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
        | AlertDescription::CertificateRequired => {
            "a server that wants to know who calls needs --cert FILE and --key FILE that it accepts; its error log says \
             more"
        }
        _ => "its error log says more; or see openssl s_client -connect HOST:PORT",
    }
}

/// Told after "its certificate".
fn explain_certificate(why: &CertificateError) -> (String, &'static str) {
    const TRUST: &str =
        "name the authority that signed it with --cacert FILE, or accept any certificate with --insecure";
    const NAME: &str = "load it by a name that the certificate has (--connect-to leads that name anywhere), or accept \
         any certificate with --insecure";
    const NO_NAME: &str = "make one with a name: openssl req -addext subjectAltName=DNS:HOST, or accept any certificate \
         with --insecure";
    const RENEW: &str =
        "renew the certificate, check the clock with `date`, or accept any certificate with --insecure";
    const ANY: &str =
        "accept any certificate with --insecure, or see it with openssl s_client -connect HOST:PORT";
    match why {
        CertificateError::UnknownIssuer => ("is signed by an unknown authority".into(), TRUST),
        CertificateError::BadSignature => {
            ("is signed by another key than that of the authority of that name".into(), TRUST)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => ("has expired".into(), RENEW),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet".into(), RENEW)
        }
        CertificateError::NotValidForName => ("is for another name".into(), NAME),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            ("has no subject alternative name, and a common name does not count (RFC 9525)".into(), NO_NAME)
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            (format!("is for another name: {}", names(presented)), NAME)
        }
        CertificateError::Other(OtherError(why)) if why.to_string() == OF_AN_AUTHORITY => {
            ("is one of an authority, and signed by itself".into(), TRUST)
        }
        other => (format!("is not accepted: {other}"), ANY),
    }
}

/// The names of a certificate, without what rustls shows around them: DnsName("a.example"), IpAddress(127.0.0.1).
fn names(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
        inner.trim_end_matches(')').trim_matches('"').to_owned()
    };
    let names: Vec<_> = presented.iter().take(4).map(bare).collect();
    names.join(", ")
}
