//! What error classes and limits mean, in plain words, for somebody who has never tuned a server.
//!
//! Sources: connect(2), tcp(7) and socket(7) for the classes of transport errors, RFC 9110 and 9112 for HTTP, the
//! Apache documentation of MaxRequestWorkers and ListenBacklog for what a server does when it is full.

use webdyno_analysis::limits;

/// An error class for people.
pub(crate) struct ErrorText {
    /// What happened.
    pub(crate) what: &'static str,
    /// What usually causes it.
    pub(crate) usually: &'static str,
    /// What to do about it.
    pub(crate) advice: &'static str,
}

/// The words for a class of `ErrorCounts::named()`; `None` for a class that is not known here.
pub(crate) fn error(class: &str) -> Option<ErrorText> {
    connection_error(class).or_else(|| answer_error(class))
}

/// Failures before a connection stood.
fn connection_error(class: &str) -> Option<ErrorText> {
    let (what, usually, advice) = match class {
        "dns" => (
            "the name did not resolve",
            "a typing error in the host name, or a name server that does not answer",
            "check with `getent hosts NAME`, or give the address in the URL",
        ),
        "connect_refused" => (
            "the connection was refused",
            "nothing listens on that port, the server died or restarted under the load, or what stands before it \
             refuses: some systems and proxies do when their accept queue is full (Linux lets wait)",
            "see with `ss -ltn` on the server what listens and how long its queue is (Recv-Q), and read its error log",
        ),
        "connect_timeout" => (
            "no answer to the attempt to connect",
            "a full accept queue or connection table on the server, or a firewall that drops packets",
            "see with `nstat -az TcpExtListenOverflows` on the server whether its accept queue overflows; `webdyno diagnose \
             URL --server S` looks at all queues",
        ),
        "unreachable" => (
            "the network has no way there",
            "a wrong address, a missing route, or a firewall that rejects",
            "check with `ip route get ADDRESS`, and from another machine",
        ),
        "local_ports_exhausted" => (
            "this machine has no free local port towards the server",
            "new connection per request, no keep-alive: each closed one holds its port for 60 s. It is a limit of this \
             machine, not of the server",
            "use kept connections (without --no-keepalive) or a lower rate; `sysctl net.ipv4.ip_local_port_range` shows how \
             many ports there are",
        ),
        "no_descriptors" => (
            "this process may open no more files",
            "a limit of this machine (`ulimit -n`) below the number of connections",
            "raise it with `ulimit -n 65536` in this shell, or ask for fewer connections with -c",
        ),
        "tls" => (
            "the encrypted connection could not be set up",
            "a server that gives up handshakes when it has too many, a certificate that is not trusted or names another \
             host, or a server that wants one from its clients",
            "look into the server's error log and see with `openssl s_client -connect HOST:443`; --cacert names whom to \
             trust, --cert and --key show a certificate of our own",
        ),
        "proxy" => (
            "the proxy made no tunnel to the server",
            "407: the proxy wants a user and a password, or other ones; 403: it does not allow that host or port; 502, 503, \
             504: it does not reach the server; or no proxy of HTTP listens there",
            "look at it with `curl -v --proxy PROXY URL`, and read the proxy's log",
        ),
        _ => return None,
    };
    Some(ErrorText { what, usually, advice })
}

/// Failures of a request whose connection stood.
fn answer_error(class: &str) -> Option<ErrorText> {
    let (what, usually, advice) = match class {
        "reset" => (
            "the server cut the connection (reset)",
            "a process of the server that crashed or was killed, a restart, a protection against many requests, or a full \
             accept queue with net.ipv4.tcp_abort_on_overflow",
            "read the server's error log and `dmesg` for the time of the load",
        ),
        "closed_early" => (
            "the connection closed before the answer was complete",
            "a process of the server that ended while it answered, or a timeout of a proxy in between",
            "read the server's error log, see with `dmesg` whether a process was killed; compare its timeouts with the \
             response times",
        ),
        "timeout" => (
            "no complete answer within the timeout",
            "more load than the server can answer: requests wait longer than anybody would",
            "let `webdyno diagnose URL --server S` name the limit; to wait longer use --timeout",
        ),
        "protocol" => (
            "the answer was not HTTP",
            "another service behind that port, or an https port requested with http",
            "look at it with `curl -v URL`",
        ),
        "h2_reset" => (
            "the server gave up a request on a connection that it kept (HTTP/2 stream reset)",
            "a limit of the server on streams, or an application that failed",
            "read the server's error log, look at one with `curl -v URL`; try fewer requests at once with -c",
        ),
        "status" => (
            "the server answered with an error status",
            "500: the application failed; 502, 503, 504: what stands behind the server is full or away; 401, 403: \
             no login, a wrong one or an expired one; 404: a wrong address; 429: a protection against many requests; 301 to 308: with --redirects, \
             one that could not be followed",
            "look at one with `curl -i URL`; if such a status is right here, say so with --ok",
        ),
        "grpc" => (
            "the call ended with another status of gRPC than OK",
            "UNAVAILABLE: what stands behind the server is full or away; UNIMPLEMENTED: a wrong service or method; INVALID_ARGUMENT: \
             a message that is none of this method; DEADLINE_EXCEEDED: the time of grpc-timeout ran out",
            "look at one with `grpcurl`, and read the application's log",
        ),
        "expect" => (
            "the answer was not the expected one",
            "a page that changes from one request to the next, or an error page sent with a good status",
            "look at one with `curl -i URL`, then correct --expect or the server",
        ),
        _ => return None,
    };
    Some(ErrorText { what, usually, advice })
}

/// What it means for the reader that this limit remains.
pub(crate) fn limit_meaning(id: &str) -> String {
    let meaning = limits::by_id(id).and_then(|limit| limit.meaning);
    meaning.map_or_else(|| format!("Details and remedies: webdyno explain {id}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::ErrorCounts;

    #[test]
    fn every_error_class_has_plain_words() {
        for (class, _) in ErrorCounts::default().named() {
            let words = error(class).unwrap_or_else(|| panic!("{class} has no words"));
            for part in [words.what, words.usually, words.advice] {
                assert!(part.len() > 10 && !part.ends_with('.') && !part.contains("  "), "{class}: {part}");
            }
            assert!(words.advice.contains('`'), "{class}: no command to look with");
        }
        assert!(error("no such class").is_none());
    }

    #[test]
    fn no_two_classes_share_their_words() {
        let mut all: Vec<_> = ErrorCounts::default()
            .named()
            .iter()
            .filter_map(|(class, _)| error(class))
            .map(|words| words.what)
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), ErrorCounts::default().named().len());
    }
}
