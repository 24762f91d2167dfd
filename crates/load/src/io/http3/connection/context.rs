//! What the connections of a thread have in common: how QUIC is spoken.

use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, EndpointConfig, RandomConnectionIdGenerator, TransportConfig, VarInt};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use webdyno_model::{Result, UserError};

/// What a peer may send on a stream before it must wait: larger than what a long path holds.
const STREAM_WINDOW: u32 = 1 << 24;
/// The same for all streams of a connection.
const CONNECTION_WINDOW: u32 = 1 << 26;
/// What of requests is held until the peer has it.
const SEND_WINDOW: u64 = 1 << 23;
/// Streams in one direction that the peer may have: control, two of QPACK, and some that mean nothing here.
const PEER_STREAMS_MAX: u32 = 16;
/// The address of the peer, as QUIC is told it: whom a datagram comes from and goes to is the business of a connected socket,
/// and to QUIC it is always the same.
pub(super) const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 443);

/// How QUIC is spoken on a thread.
pub(crate) struct Context {
    pub(super) endpoint: Arc<EndpointConfig>,
    pub(super) client: ClientConfig,
    /// When the engine's clock was at 0; which moment that is does not matter.
    pub(super) base: Instant,
}

impl Context {
    /// By this configuration of TLS.
    pub(crate) fn new(tls: &Arc<rustls::ClientConfig>) -> Result<Self> {
        let crypto = QuicClientConfig::try_from(tls.clone())
            .map_err(|error| UserError::cannot_run(format!("QUIC cannot be set up: {error}")))?;
        let mut client = ClientConfig::new(Arc::new(crypto));
        client.transport_config(Arc::new(transport()));
        let mut endpoint = EndpointConfig::default();
        // A connected socket receives nothing of other connections: they need no names (RFC 9000, section 5.1).
        endpoint.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        Ok(Self { endpoint: Arc::new(endpoint), client, base: Instant::now() })
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(PEER_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        // How long an idle connection lives is the server's to say, as with TCP.
        .max_idle_timeout(None)
        // Requests are short: datagrams that find out how long they may be would only add to them.
        .mtu_discovery_config(None)
        .enable_segmentation_offload(false)
        .datagram_receive_buffer_size(None);
    transport
}
