//! Addresses that refuse connections. A port of the kernel's choice that is let go of may be given to another test's server; these
//! stay taken, and refuse all the same, as nobody listens there (bind(2), listen(2)).

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;

/// An address of TCP that refuses connections as long as this value lives.
pub struct Refusing {
    pub address: SocketAddr,
    _socket: Socket,
}

impl Refusing {
    pub fn start() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        Self { address, _socket: socket }
    }
}
