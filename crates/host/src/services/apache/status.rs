//! Where the status page of mod_status is, whether it answers, and what to add when there is none.
//!
//! https://httpd.apache.org/docs/2.4/mod/mod_status.html: a `SetHandler server-status` inside a `<Location>`; the
//! query `?auto` gives the machine-readable form, whose `Scoreboard` line has one character per possible worker.

use super::config::{Evaluation, Placed, Section};
use crate::os::timeouts;
use crate::probes::apache_status::{Scoreboard, fetch_status};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;
use webdyno_model::Result;
use webdyno_model::sample::MissingSignal;

/// Most addresses and pages that are tried.
const TRIES_MAX: usize = 16;

/// A status page that is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its path, such as `/server-status`.
    pub path: String,
    /// The virtual host that has it; `None` when the whole server has it.
    pub host: Option<VirtualHost>,
    /// Where it is configured.
    pub place: String,
}

/// A virtual host, as far as reaching it goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VirtualHost {
    /// `*:80`, `127.0.0.1:8080`.
    pub addresses: Vec<String>,
    /// Its ServerName.
    pub name: Option<String>,
}

/// A page that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `http://127.0.0.1:80/server-status`.
    pub url: String,
    /// Its scoreboard; `None` when it shows none.
    pub board: Option<Scoreboard>,
    /// ParentServerConfigGeneration: rises by one at each reload.
    pub generation: Option<u64>,
}

impl Found {
    /// The effective MaxRequestWorkers, where `configured` is what the files give.
    pub fn workers(&self, configured: Option<i64>) -> Option<i64> {
        let configured = configured.and_then(|workers| u64::try_from(workers).ok());
        i64::try_from(self.board?.limit_count(configured)).ok()
    }

    /// All slots of the scoreboard: also those behind the limit.
    pub fn slots(&self) -> Option<i64> {
        self.workers(None)
    }
}

/// All pages that the configuration has, those of the whole server first.
pub fn pages(evaluation: &Evaluation) -> Vec<Page> {
    let is_status =
        |placed: &&Placed| placed.arguments.trim_matches('"').eq_ignore_ascii_case("server-status");
    let mut pages: Vec<_> = evaluation
        .all(&["SetHandler"])
        .filter(is_status)
        .filter_map(|placed| {
            let location = placed.scope.iter().rev().find(|section| is_location(section))?;
            let host = placed.scope.iter().find(|section| section.name.eq_ignore_ascii_case("VirtualHost"));
            Some(Page {
                path: path(location)?,
                host: host.map(|host| virtual_host(evaluation, host)),
                place: placed.place(),
            })
        })
        .collect();
    pages.sort_by_key(|page| page.host.is_some());
    pages
}

fn is_location(section: &Section) -> bool {
    ["Location", "LocationMatch"].iter().any(|name| section.name.eq_ignore_ascii_case(name))
}

/// The path of a location; of a pattern only when it is a plain path between anchors.
fn path(section: &Section) -> Option<String> {
    let by_pattern = section.name.eq_ignore_ascii_case("LocationMatch")
        || section.words.first().is_some_and(|word| word == "~");
    let text = section.words.iter().find(|word| *word != "~")?;
    if !by_pattern {
        return text.starts_with('/').then(|| text.clone());
    }
    let plain = text.trim_start_matches('^').trim_end_matches('$').trim_end_matches("/?").replace("\\-", "-");
    let is_plain =
        plain.starts_with('/') && plain.chars().all(|c| c.is_ascii_alphanumeric() || "/-_".contains(c));
    is_plain.then_some(plain)
}

fn virtual_host(evaluation: &Evaluation, section: &Section) -> VirtualHost {
    let inside = |placed: &&Placed| placed.scope.last().is_some_and(|last| last.id == section.id);
    let name = evaluation.all(&["ServerName"]).rfind(inside);
    VirtualHost {
        addresses: section.words.clone(),
        name: name.and_then(|placed| placed.words().into_iter().next()),
    }
}

/// The addresses on which Apache listens, loopback for those that listen on all; `port` first.
pub fn addresses(evaluation: &Evaluation, port: u16) -> Vec<SocketAddr> {
    let listens = evaluation.all(&["Listen"]).filter_map(|placed| listen(placed.words().first()?));
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in listens.flatten() {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if !addresses.iter().any(|address| address.port() == port) {
        addresses.extend(loopback(port));
    }
    addresses.sort_by_key(|address| (address.port() != port, !address.ip().is_loopback(), address.is_ipv6()));
    addresses.truncate(TRIES_MAX);
    addresses
}

/// Whether a directive says that Apache listens on this port.
pub fn listens(evaluation: &Evaluation, port: u16) -> bool {
    let is_on = |placed: &Placed| {
        let words = placed.words();
        words.first().and_then(|word| word.rsplit(':').next()).is_some_and(|text| text.parse() == Ok(port))
    };
    evaluation.all(&["Listen"]).any(is_on)
}

/// The addresses on which Apache listens with this port.
pub fn near(evaluation: &Evaluation, port: u16) -> Vec<SocketAddr> {
    let of_port = addresses(evaluation, port).into_iter().filter(|address| address.port() == port);
    of_port.take(timeouts::PROBE_ADDRESSES_COUNT_MAX).collect()
}

/// `80`, `1.2.3.4:80`, `[::1]:80`, `*:80`. A host name is not looked up.
fn listen(text: &str) -> Option<Vec<SocketAddr>> {
    if let Ok(port) = text.trim_start_matches("*:").parse() {
        return Some(loopback(port));
    }
    let address: SocketAddr = text.parse().ok()?;
    if address.ip().is_unspecified() { Some(loopback(address.port())) } else { Some(vec![address]) }
}

fn loopback(port: u16) -> Vec<SocketAddr> {
    let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    addresses.map(|address| SocketAddr::new(address, port)).to_vec()
}

/// Tries the pages until one answers. One of the whole server that takes the request and is silent is a page, too: while all
/// workers are held it waits for one like everybody else, and whoever goes on waiting learns what holds them. An error says
/// why there is none.
pub fn find(evaluation: &Evaluation, port: u16) -> std::result::Result<Found, Box<MissingSignal>> {
    if !evaluation.has_module("status_module") {
        return Err(missing("mod_status is not loaded".into(), evaluation));
    }
    let pages = pages(evaluation);
    if pages.is_empty() {
        return Err(missing("no <Location> has SetHandler server-status".into(), evaluation));
    }
    let begun = Instant::now();
    let addresses = addresses(evaluation, port);
    let places = pages.iter().flat_map(|page| addresses.iter().map(move |address| (page, address)));
    let mut refusals = Vec::new();
    let mut silent = None;
    for (page, address) in places.take(TRIES_MAX) {
        let (asked, url) = (Instant::now(), format!("http://{address}{}", page.path));
        match read(&url) {
            Ok(found) => return Ok(found),
            // Where the page is there and refuses, another one does not help.
            Err(error) => {
                if page.host.is_none() && asked.elapsed() >= timeouts::PAGE {
                    silent.get_or_insert(url);
                }
                let hint = error.hint.filter(|_| page.host.is_none());
                refusals.push((explained(page, &error.message), hint));
            }
        }
        if begun.elapsed() >= timeouts::PAGE_TRIES {
            break;
        }
    }
    if let Some(url) = silent {
        return Ok(Found { url, board: None, generation: None });
    }
    let (why, hint) = refusals.into_iter().next().unwrap_or_else(|| ("no address to ask".into(), None));
    let mut missing = missing(why, evaluation);
    if let Some(hint) = hint {
        missing.how_to_enable = hint;
    }
    Err(missing)
}

/// A refusal with what is likely behind it.
fn explained(page: &Page, why: &str) -> String {
    match &page.host {
        None => format!("{why} ({})", page.place),
        Some(host) => {
            let name = host.name.as_deref().unwrap_or("without a name");
            format!(
                "{why}: only the virtual host {name} ({}) has it, at {}",
                host.addresses.join(" "),
                page.place
            )
        }
    }
}

/// Asks for a page by its URL, without query. An error when it is not a status page.
pub fn read(url: &str) -> Result<Found> {
    let status = fetch_status(url, timeouts::PAGE)?;
    let board = status.scoreboard.filter(|board| board.slots_count > 0);
    Ok(Found { url: url.to_owned(), board, generation: status.config_generation })
}

/// The entry for a snapshot: why there is no page, and the lines that make one.
fn missing(why: String, evaluation: &Evaluation) -> Box<MissingSignal> {
    let mut lines = Vec::new();
    if !evaluation.has_module("status_module") {
        let loaded = evaluation.modules.iter().find_map(|module| module.file.as_ref()?.parent());
        let directory = loaded.map_or_else(|| "modules".into(), |path| path.display().to_string());
        lines.push(format!("LoadModule status_module {directory}/mod_status.so"));
    }
    lines.extend(
        [
            "ExtendedStatus On",
            "<Location \"/server-status\">",
            "    SetHandler server-status",
            "    Require local",
            "</Location>",
        ]
        .map(str::to_owned),
    );
    let how = "add to the configuration, outside of any <VirtualHost>, and reload Apache:";
    Box::new(MissingSignal::new("mod_status", why, format!("{how}\n{}", lines.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::super::config::{Input, evaluate};
    use super::*;

    fn evaluated(text: &str) -> Evaluation {
        let directory = tempfile::tempdir().unwrap();
        let main_file = directory.path().join("httpd.conf");
        std::fs::write(&main_file, text).unwrap();
        evaluate(Input { main_file, server_root: directory.path().into(), ..Input::default() })
    }

    #[test]
    fn pages_are_found_in_the_configuration() {
        for (text, expected) in [
            (
                "<Location /server-status>\nSetHandler server-status\n</Location>",
                vec![("/server-status", None)],
            ),
            ("<Location \"/a b\">\nSetHandler \"Server-Status\"\n</Location>", vec![("/a b", None)]),
            ("<LocationMatch ^/st-x/?$>\nSetHandler server-status\n</LocationMatch>", vec![("/st-x", None)]),
            ("<LocationMatch /(a|b)>\nSetHandler server-status\n</LocationMatch>", vec![]),
            ("<Location /x>\nSetHandler server-info\n</Location>", vec![]),
            ("SetHandler server-status", vec![]),
            (
                "<VirtualHost *:80>\nServerName a.example\n<Location /v>\nSetHandler server-status\n</Location>\n</VirtualHost>\n\
                 <Location /g>\nSetHandler server-status\n</Location>",
                vec![("/g", None), ("/v", Some("a.example"))],
            ),
        ] {
            let pages = pages(&evaluated(text));
            let found: Vec<_> = pages
                .iter()
                .map(|page| (page.path.as_str(), page.host.as_ref().and_then(|host| host.name.as_deref())))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn addresses_are_those_of_listen() {
        for (text, port, expected) in [
            ("Listen 8080", 8080, vec!["127.0.0.1:8080", "[::1]:8080"]),
            ("Listen *:80\nListen 10.0.0.1:81 http", 81, vec!["10.0.0.1:81", "127.0.0.1:80", "[::1]:80"]),
            ("Listen 0.0.0.0:80\nListen [::]:80", 80, vec!["127.0.0.1:80", "[::1]:80"]),
            ("Listen [::1]:82", 82, vec!["[::1]:82"]),
            ("Listen 127.0.0.1:90", 91, vec!["127.0.0.1:91", "[::1]:91", "127.0.0.1:90"]),
        ] {
            let found: Vec<_> = addresses(&evaluated(text), port).iter().map(SocketAddr::to_string).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_missing_page_says_what_to_add() {
        let none = find(&evaluated("Listen 1"), 1).unwrap_err();
        assert_eq!(none.why, "mod_status is not loaded");
        assert!(
            none.how_to_enable
                .contains("LoadModule status_module modules/mod_status.so\nExtendedStatus On\n<Location")
        );
        let loaded = find(&evaluated("LoadModule status_module /m/mod_status.so\nListen 1"), 1).unwrap_err();
        assert_eq!(loaded.why, "no <Location> has SetHandler server-status");
        assert!(!loaded.how_to_enable.contains("LoadModule"));
        let closed = "LoadModule status_module m.so\nListen 127.0.0.1:1\n<Location /s>\nSetHandler server-status\n</Location>";
        let closed = find(&evaluated(closed), 1).unwrap_err();
        assert!(closed.why.contains("http://127.0.0.1:1/s"), "{}", closed.why);
    }

    #[test]
    fn a_page_that_is_silent_while_all_workers_are_held_is_one() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = held.local_addr().unwrap().port();
        let head = format!("LoadModule status_module m.so\nListen 127.0.0.1:{port}\n");
        let page = "<Location /s>\nSetHandler server-status\n</Location>\n";
        let found = find(&evaluated(&format!("{head}{page}")), port).unwrap();
        assert_eq!((found.url, found.board), (format!("http://127.0.0.1:{port}/s"), None));
        let of_a_host = format!("{head}<VirtualHost *:{port}>\n{page}</VirtualHost>");
        assert!(find(&evaluated(&of_a_host), port).unwrap_err().why.contains("did not answer"));
    }
}
