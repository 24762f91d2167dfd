//! What is reported of flags that change nothing in a load, or cannot have what they ask for.

use super::{Origin, Plan};
use webdyno_model::transport::{Io, TlsOptions};

impl Plan {
    /// Leaves io_uring, if it was asked for, where there is a reason why it cannot be used, and tells it.
    pub(super) fn choose_io(&mut self, unavailable: impl FnOnce(u32) -> Option<String>) -> Option<String> {
        let threads = self.share.threads;
        let reason = (self.transport.io == Io::Uring).then(|| unavailable(threads)).flatten()?;
        self.transport.io = Io::Epoll;
        Some(format!("the load goes by epoll, not by io_uring (--io uring): {reason}"))
    }

    /// Addresses that no connection begins from, as no server has one of their kind.
    pub(super) fn unused_sources_warning(&self) -> Option<String> {
        let reached = |ipv4: bool| {
            let one = |origin: &Origin| origin.address().is_some_and(|address| address.is_ipv4() == ipv4);
            self.transport.resolve_each || self.origins.iter().any(one)
        };
        let idle = self.transport.source_ips.iter().filter(|source| !reached(source.is_ipv4()));
        let idle: Vec<String> = idle.map(ToString::to_string).collect();
        let kind = if self.origins.iter().any(|origin| origin.address().is_some_and(|to| to.is_ipv4())) {
            "IPv4"
        } else {
            "IPv6"
        };
        (!idle.is_empty()).then(|| {
            format!("no connection begins from {} (--source-ip): the load goes over {kind}", idle.join(", "))
        })
    }

    /// Flags of TLS that change nothing, as no server speaks it.
    pub(super) fn unused_tls_warning(&self) -> Option<String> {
        let secure = self.origins.iter().any(|origin| origin.server_name.is_some());
        let given = self.transport.tls != TlsOptions::default();
        (given && !secure).then(|| {
            "the flags of TLS (--cacert, --insecure, --cert, --no-tls-resumption) change nothing: no https:// URL is loaded"
                .to_owned()
        })
    }
}
