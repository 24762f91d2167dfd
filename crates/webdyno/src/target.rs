//! From URLs to the listener on the server's host: which port is under load, and does it belong to that server?

use std::net::{SocketAddr, ToSocketAddrs};
use url::Url;
use webdyno_host::machine;
use webdyno_model::{Result, UserError};

/// The port that all these URLs have in common. An error when they have not, or when a URL cannot be read.
pub fn common_port(urls: &[String]) -> Result<u16> {
    let mut ports = urls.iter().map(|url| port(url));
    let first = ports.next().ok_or_else(|| UserError::usage("no URL was given"))??;
    for other in ports {
        let other = other?;
        if other != first {
            return Err(UserError::usage(format!(
                "the URLs name two listeners, port {first} and port {other}"
            ))
            .hint("one session observes one listener: give URLs of one port"));
        }
    }
    Ok(first)
}

/// The port of one URL.
pub fn port(url: &str) -> Result<u16> {
    let wrong = |why: String| {
        UserError::usage(format!("`{url}` is not a URL to load: {why}")).hint("as in http://127.0.0.1:8080/")
    };
    let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    parsed.port_or_known_default().ok_or_else(|| wrong("it names no port".into()))
}

/// Whether the host of every URL is this machine: only then can `--server local` observe and change what answers.
pub fn require_local(urls: &[String]) -> Result<()> {
    for url in urls {
        let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        // An address that does not resolve is told by the engine, in better words.
        let Ok(addresses) = (bare.as_str(), 0u16).to_socket_addrs() else {
            continue;
        };
        if !is_this_machine(addresses) {
            return Err(UserError::usage(format!("{host} is not this machine, and --server is `local`"))
                .hint("`webdyno run` loads any server; to observe or change one, run webdyno on its host"));
        }
    }
    Ok(())
}

/// One address is enough: a name may have one more in a protocol that is switched off here, as `::1` for localhost where
/// there is no IPv6. The one that is really loaded is looked at again by the agent.
fn is_this_machine(mut addresses: impl Iterator<Item = SocketAddr>) -> bool {
    addresses.any(|address| machine::owns(address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_one_listener_have_one_port() {
        let of = |urls: &[&str]| common_port(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["http://h/a", "http://h:80/b"]), Ok(80));
        for wrong in [&["http://h/", "http://h:81/"][..], &["h"], &[]] {
            assert_eq!(of(wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn one_address_of_this_machine_is_enough() {
        for (addresses, local) in [
            // TEST-NET-1 and -3 (RFC 5737) are nobody's addresses; they stand for what is switched off.
            (&["192.0.2.1:0", "127.0.0.1:0"][..], true),
            (&["127.0.0.1:0", "192.0.2.1:0"], true),
            (&["192.0.2.1:0", "203.0.113.1:0"], false),
            (&[], false),
        ] {
            let parsed = addresses.iter().map(|address| address.parse().unwrap());
            assert_eq!(is_this_machine(parsed), local, "{addresses:?}");
        }
    }

    #[test]
    fn another_machine_is_not_local() {
        assert!(require_local(&["http://127.0.0.1:1/".into(), "http://localhost/".into()]).is_ok());
        // TEST-NET-1 (RFC 5737) is nobody's address.
        assert_eq!(require_local(&["http://192.0.2.1/".into()]).unwrap_err().exit_code(), 2);
    }
}
