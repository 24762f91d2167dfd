//! A server that speaks TLS, by rustls and std::net, with certificates made for the test; and the load that is put on
//! it.

use crate::server::workload;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use webdyno_model::workload::Workload;

/// A connection that has spoken TLS.
pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// An authority of the test's own, and a folder with its certificate and those that it signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
    root: CertificateDer<'static>,
}

/// A certificate with its key.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("an authority")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        let root = certificate.der().clone();
        Self { issuer: Issuer::new(params, key), folder, root }
    }

    /// Its certificate as a file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A place for more files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Signs a certificate for these names, changed by the test before.
    pub fn identity(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        self.written(&names.join("-"), &signed, &key)
    }

    /// A certificate for localhost that signed itself, as `openssl req -x509` makes it.
    pub fn self_signed(&self) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        self.written("self", &params.self_signed(&key).unwrap(), &key)
    }

    fn written(&self, name: &str, certificate: &rcgen::Certificate, key: &KeyPair) -> Identity {
        let (certificate_file, key_file) =
            (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&certificate_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Identity { certificate: certificate.der().clone(), key, certificate_file, key_file }
    }

    /// What a server is set up with.
    pub fn server(&self, identity: &Identity) -> ServerConfig {
        config(identity).with_no_client_auth().with_single(identity)
    }

    /// The same for a server that wants a certificate of this authority from its clients.
    pub fn server_that_asks(&self, identity: &Identity) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        config(identity).with_client_cert_verifier(verifier).with_single(identity)
    }
}

type Builder<State> = rustls::ConfigBuilder<ServerConfig, State>;

fn config(_: &Identity) -> Builder<rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

trait WithSingle {
    fn with_single(self, identity: &Identity) -> ServerConfig;
}

impl WithSingle for Builder<rustls::server::WantsServerCert> {
    fn with_single(self, identity: &Identity) -> ServerConfig {
        let mut config =
            self.with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key()).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

/// A server that lives as long as this value; each connection is given to the test's function, on a thread of its own.
pub struct Secure {
    pub address: SocketAddr,
    over: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Secure {
    /// Gives on plain connections.
    pub fn raw(serve: impl Fn(TcpStream) -> Option<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (serve, seen_over) = (Arc::new(serve), over.clone());
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming() {
                if seen_over.load(Ordering::Acquire) {
                    return;
                }
                let serve = serve.clone();
                thread::spawn(move || {
                    let stream = stream.ok()?;
                    // Bounds the thread's life whatever the client does.
                    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
                    stream.set_nodelay(true).ok()?;
                    serve(stream)
                });
            }
        });
        Self { address, over, acceptor: Some(acceptor) }
    }

    /// Gives on connections that will speak TLS.
    pub fn start(config: ServerConfig, serve: impl Fn(Stream) -> Option<()> + Send + Sync + 'static) -> Self {
        let config = Arc::new(config);
        Self::raw(move |stream| {
            let connection = ServerConnection::new(config.clone()).ok()?;
            serve(StreamOwned::new(connection, stream))
        })
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}/", self.address.port())
    }

    /// A load of so many requests that trusts the authority.
    pub fn load_of(&self, authority: &Authority, requests: u64) -> Workload {
        let mut load_of = workload(&self.url());
        // The server is on one of the two loopback addresses.
        load_of.transport.address_family = webdyno_model::transport::AddressFamily::Ipv4;
        load_of.transport.tls.ca_file = Some(authority.file());
        (load_of.stop.requests, load_of.stop.duration_us) = (Some(requests), None);
        load_of
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Reads one request without a body; `None` when the client closed or went away.
pub fn read_request(stream: &mut impl Read) -> Option<Vec<u8>> {
    let (mut seen, mut buffer) = (vec![], [0; 4096]);
    while !seen.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut buffer).ok().filter(|&count| count > 0)?;
        seen.extend_from_slice(&buffer[..count]);
    }
    Some(seen)
}

/// Returns the same response to each request until the client closes.
pub fn responding(response: Vec<u8>) -> impl Fn(Stream) -> Option<()> + Send + Sync + 'static {
    move |mut stream| {
        loop {
            read_request(&mut stream)?;
            stream.write_all(&response).ok()?;
            stream.flush().ok()?;
        }
    }
}

/// Returns the response once, says that it ends, and waits for the client to do the same.
pub fn closing(response: Vec<u8>) -> impl Fn(Stream) -> Option<()> + Send + Sync + 'static {
    move |mut stream| {
        read_request(&mut stream)?;
        stream.write_all(&response).ok()?;
        stream.conn.send_close_notify();
        stream.flush().ok()?;
        stream.sock.shutdown(std::net::Shutdown::Write).ok()?;
        while stream.read(&mut [0; 1024]).ok()? > 0 {}
        Some(())
    }
}

/// A response with a body of this many bytes.
pub fn response_of(bytes: usize) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    response.resize(response.len() + bytes, b'x');
    response
}
