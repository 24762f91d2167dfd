//! HTTP/3 below the engine: RFC 9114, over QUIC (RFC 9000) of quinn-proto, which has no sockets and no threads of its own. How
//! slots share its connections is in [`multiplexed`](super::multiplexed). Why, and what it costs: docs/decisions/052.

pub(crate) mod blocking;
pub(crate) mod connection;
mod frames;
mod qpack;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
