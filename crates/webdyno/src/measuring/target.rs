//! From where a load goes to the listener on the server's host: which port is under load, and does it belong to that
//! server?

use std::net::{SocketAddr, ToSocketAddrs};
use url::Url;
use webdyno_host::agent::ServerAddress;
use webdyno_host::os::machine;
use webdyno_load::Destination;
use webdyno_model::{Result, UserError};

/// The port that all these have in common. An error when they have not.
pub fn common_port(destinations: &[Destination]) -> Result<u16> {
    let mut ports = destinations.iter().map(|destination| destination.port);
    let first = ports.next().ok_or_else(|| UserError::usage("the load goes to no port"))?;
    match ports.find(|port| *port != first) {
        None => Ok(first),
        Some(other) => {
            Err(UserError::usage(format!("the load goes to two listeners, port {first} and port {other}"))
                .hint("one session observes one listener: give URLs of one port"))
        }
    }
}

/// The port of the listener that a URL leads to. An error when that is another machine than the one that is observed, as
/// far as this one can tell.
pub fn port(url: &str, observed: &ServerAddress) -> Result<u16> {
    let wrong = |why: String| {
        UserError::usage(format!("`{url}` is not a URL to load: {why}")).hint("as in http://127.0.0.1:8080/")
    };
    let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    if !["http", "https"].contains(&parsed.scheme()) {
        return Err(wrong(format!("webdyno speaks http and https, not {}", parsed.scheme())));
    }
    let port = parsed.port_or_known_default().ok_or_else(|| wrong("it names no port".into()))?;
    if *observed == ServerAddress::Local {
        // std takes IPv6 addresses without the brackets of a URL.
        let host = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let other = format!(
            "give --server ssh://{host} to look there, or --port {port} if its name only leads elsewhere"
        );
        require_local(&[destination(host, port)?]).map_err(|reported| reported.hint(other))?;
    }
    Ok(port)
}

/// A host by its addresses.
fn destination(host: &str, port: u16) -> Result<Destination> {
    let found = (host, port).to_socket_addrs();
    let addresses = found.map(Iterator::collect).map_err(|error| {
        let cause = error.to_string();
        let cause = cause.rsplit(": ").next().unwrap_or_default();
        UserError::cannot_run(format!("cannot resolve {host}: {cause}"))
            .hint(format!("check the name: getent hosts {host}; or give --port N instead"))
    })?;
    Ok(Destination { host: host.into(), port, addresses })
}

/// Whether every one of them is this machine: only then can `--server local` observe and change what answers.
pub fn require_local(destinations: &[Destination]) -> Result<()> {
    match destinations.iter().find(|destination| !is_this_machine(destination.addresses.iter().copied())) {
        None => Ok(()),
        Some(Destination { host, .. }) => Err(UserError::usage(format!(
            "{host} is not this machine, and --server is `local`"
        ))
        .hint(format!(
            "`webdyno run` loads any server; to observe or change this one, give --server ssh://{host}"
        ))),
    }
}

/// One address is enough: a name may have one more in a protocol that is switched off here, as `::1` for localhost where
/// there is no IPv6. The one that is really loaded is looked at again by the agent.
fn is_this_machine(mut addresses: impl Iterator<Item = SocketAddr>) -> bool {
    addresses.any(|address| machine::owns(address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(address: &str) -> Destination {
        let address: SocketAddr = address.parse().unwrap();
        Destination { host: address.ip().to_string(), port: address.port(), addresses: vec![address] }
    }

    #[test]
    fn a_session_is_about_one_port() {
        assert_eq!(common_port(&[to("127.0.0.1:80"), to("127.0.0.2:80")]), Ok(80));
        for wrong in [&[to("127.0.0.1:80"), to("127.0.0.1:81")][..], &[]] {
            assert_eq!(common_port(wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn a_url_names_a_listener_of_the_machine_that_is_observed() {
        let elsewhere = ServerAddress::Exec("x".into());
        assert_eq!(port("http://h/", &elsewhere).unwrap(), 80);
        assert_eq!(port("https://h/", &elsewhere).unwrap(), 443);
        assert_eq!(port("http://[::1]:81/", &ServerAddress::Local).unwrap(), 81);
        for (url, observed, code) in [
            ("h", &elsewhere, 2),
            ("ftp://h/", &elsewhere, 2),
            // TEST-NET-1 (RFC 5737) is nobody's address, .invalid (RFC 6761) nobody's name.
            ("http://192.0.2.1/", &ServerAddress::Local, 2),
            ("http://nobody.invalid/", &ServerAddress::Local, 1),
        ] {
            assert_eq!(port(url, observed).unwrap_err().exit_code(), code, "{url}");
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
        assert!(require_local(&[to("127.0.0.1:1"), to("[::1]:1")]).is_ok());
        // TEST-NET-1 (RFC 5737) is nobody's address.
        assert_eq!(require_local(&[to("127.0.0.1:1"), to("192.0.2.1:1")]).unwrap_err().exit_code(), 2);
    }
}
