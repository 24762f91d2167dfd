//! The engine's side of the machine: clock and sockets behind one trait, epoll and io_uring, TLS, names, timestamps, local ports.

pub(crate) mod blocking_connection;
pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod http2;
pub(crate) mod http3;
pub(crate) mod kernel;
pub(crate) mod multiplexed;
pub(crate) mod network_io;
pub(crate) mod origin;
pub mod ports;
pub(crate) mod resolver;
pub(crate) mod rx_timestamps;
pub(crate) mod sockets;
pub(crate) mod tcp_info;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub(crate) mod websocket;
