//! Why a request failed, as the class that a user can act on.
//!
//! The meaning of the error numbers is that of connect(2), send(2), recv(2) and socket(2) of the Linux manual.

use crate::io::network_io::SocketError;
use rustix::io::Errno;
use webdyno_model::interval::ErrorCounts;

/// The class of a failure; each failed request has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Dns,
    Tls,
    Proxy,
    ConnectRefused,
    ConnectTimeout,
    Unreachable,
    LocalPortsExhausted,
    NoDescriptors,
    Reset,
    ClosedEarly,
    Timeout,
    Protocol,
    Status,
    Grpc,
    Expect,
}

impl Failure {
    /// The class of an error of `socket` or `connect`, also when it is reported later by the first `send`.
    pub(crate) fn from_connect(error: SocketError) -> Self {
        let errno = match error {
            SocketError::Dns => return Self::Dns,
            SocketError::Tls => return Self::Tls,
            SocketError::Proxy(_) => return Self::Proxy,
            SocketError::Upgrade(Some(_)) => return Self::Status,
            SocketError::Upgrade(None) => return Self::Protocol,
            SocketError::Truncated | SocketError::Refused => return Self::ClosedEarly,
            SocketError::Protocol => return Self::Protocol,
            SocketError::StreamReset => return Self::Reset,
            SocketError::Os(errno) => errno,
        };
        match errno {
            // A unix socket is also gone when its file is.
            Errno::CONNREFUSED | Errno::NOENT => Self::ConnectRefused,
            // Some kernels return EAGAIN when no local port is free for an unbound socket.
            Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => Self::LocalPortsExhausted,
            // Kernel memory for one more socket is the same wall to a user as one more descriptor.
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::NoDescriptors,
            Errno::TIMEDOUT => Self::ConnectTimeout,
            Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => Self::Reset,
            _ => Self::Unreachable,
        }
    }

    /// The class of an error on an established connection.
    pub(crate) fn from_transfer(error: SocketError) -> Self {
        match error {
            SocketError::Dns => Self::Dns,
            SocketError::Tls => Self::Tls,
            SocketError::Proxy(_) => Self::Proxy,
            SocketError::Upgrade(Some(_)) => Self::Status,
            SocketError::Truncated => Self::ClosedEarly,
            SocketError::Protocol | SocketError::Upgrade(None) => Self::Protocol,
            SocketError::Refused | SocketError::StreamReset => Self::Reset,
            SocketError::Os(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN) => {
                Self::Unreachable
            }
            SocketError::Os(_) => Self::Reset,
        }
    }

    /// Whether it is a timeout: those go into the response times at their bound, other failures do not.
    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, Self::Timeout | Self::ConnectTimeout)
    }

    /// Whether no connection could be established, so that the next attempt should wait a little.
    pub(crate) fn is_connect(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::Tls
                | Self::Proxy
                | Self::ConnectRefused
                | Self::Unreachable
                | Self::LocalPortsExhausted
                | Self::NoDescriptors
        )
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        let mut counts = ErrorCounts::default();
        self.add_to(&mut counts);
        counts.named().iter().find(|(_, count)| *count > 0).map_or("", |(name, _)| name)
    }

    /// Counts one failure of this class.
    pub(crate) fn add_to(self, errors: &mut ErrorCounts) {
        let counter = match self {
            Self::Dns => &mut errors.dns,
            Self::Tls => &mut errors.tls,
            Self::Proxy => &mut errors.proxy,
            Self::ConnectRefused => &mut errors.connect_refused,
            Self::ConnectTimeout => &mut errors.connect_timeout,
            Self::Unreachable => &mut errors.unreachable,
            Self::LocalPortsExhausted => &mut errors.local_ports_exhausted,
            Self::NoDescriptors => &mut errors.no_descriptors,
            Self::Reset => &mut errors.reset,
            Self::ClosedEarly => &mut errors.closed_early,
            Self::Timeout => &mut errors.timeout,
            Self::Protocol => &mut errors.protocol,
            Self::Status => &mut errors.status,
            Self::Grpc => &mut errors.grpc,
            Self::Expect => &mut errors.expect,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_become_the_classes_a_user_can_act_on() {
        for (errno, class) in [
            (Errno::CONNREFUSED, Failure::ConnectRefused),
            (Errno::ADDRNOTAVAIL, Failure::LocalPortsExhausted),
            (Errno::MFILE, Failure::NoDescriptors),
            (Errno::NFILE, Failure::NoDescriptors),
            (Errno::NETUNREACH, Failure::Unreachable),
            (Errno::HOSTUNREACH, Failure::Unreachable),
            (Errno::CONNRESET, Failure::Reset),
            (Errno::TIMEDOUT, Failure::ConnectTimeout),
        ] {
            assert_eq!(Failure::from_connect(errno.into()), class, "{errno:?}");
        }
        for errno in [Errno::CONNRESET, Errno::PIPE, Errno::TIMEDOUT] {
            assert_eq!(Failure::from_transfer(errno.into()), Failure::Reset, "{errno:?}");
        }
    }

    #[test]
    fn every_class_counts_once_and_in_its_own_place() {
        use Failure::*;
        let all = [
            Dns,
            Tls,
            Proxy,
            ConnectRefused,
            ConnectTimeout,
            Unreachable,
            LocalPortsExhausted,
            NoDescriptors,
            Reset,
            ClosedEarly,
            Timeout,
            Protocol,
            Status,
            Grpc,
            Expect,
        ];
        let mut errors = ErrorCounts::default();
        all.iter().for_each(|class| class.add_to(&mut errors));
        assert_eq!(errors.total(), all.len() as u64);
        assert!(errors.named().iter().all(|&(_, count)| count <= 1), "{errors:?}");
    }
}
