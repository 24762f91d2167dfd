//! Prepares a workload for the engine, once: names resolved, request bytes built, limits raised.

mod choice;
mod connections;
mod dynamic;
pub(crate) mod probe;
mod refusals;
pub(crate) mod request_message;
mod request_template;
pub(crate) mod script;
mod session_templates;
pub(crate) mod thread_share;
mod warnings;

pub(crate) use crate::plan::request_template::{
    LOCATION_BYTES_MAX, Redirect, RequestForm, Template, check_fields, is_redirect, parse_url,
};
use crate::plan::session_templates::is_grpc;
pub(crate) use crate::plan::session_templates::{Script, StepPlan};
pub(crate) use choice::{Choice, number_in_turn};
pub(crate) use dynamic::Dynamic;

use crate::http::content_check::ResponseChecks;
use crate::io::kernel::uring_unavailable;
use crate::io::origin::{Endpoint, Origin, Origins, TcpEndpoint, authority, position};
use crate::io::tls;
use crate::schedule::rate_profile::RateProfile;
use choice::ListRequests;
use connections::{all_lanes, check_ports, lanes, lanes_per_connection};
use rustls::ClientConfig;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::Url;
use webdyno_model::transport::{TlsOptions, Transport};
use webdyno_model::worker::LoadShare;
use webdyno_model::workload::stage::Stage;
use webdyno_model::workload::{Arrival, Clock, Workload};
use webdyno_model::{Result, UserError};

/// Most request names that are reported one by one; the rest share the last place.
const NAMES_MAX: usize = 64;
/// The name of the requests beyond them.
const OTHER_NAMES: &str = "(other)";
/// Most engine threads.
const THREADS_MAX: u32 = 256;
/// The default `User-Agent`.
pub const USER_AGENT: &str = concat!("webdyno/", env!("CARGO_PKG_VERSION"));
/// Statuses have three digits.
const STATUS_CODES: usize = 1000;

/// A server that a workload really connects to, whichever host its URLs name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// All addresses that the name has; at least one.
    pub addresses: Vec<SocketAddr>,
}

/// A workload that is ready to be run, any number of times.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) warnings: Vec<String>,
    pub(crate) alone_us: Option<u64>,
}

impl Prepared {
    /// How long the slowest of a few requests took that were sent alone; `None` where none was
    /// ([`crate::measure_alone`]).
    pub fn alone_us(&self) -> Option<u64> {
        self.alone_us
    }

    /// Takes its share over from somebody else: what was due before so many seconds of the load is not sent. For loads with a rate.
    pub fn take_over_from(&mut self, seconds: u64) {
        self.plan.from_ns = seconds.saturating_mul(1_000_000_000);
    }

    /// The address that the first request really goes to; `None` for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.plan.origins[self.plan.templates[0].origin].address()
    }

    /// The addresses that the requests really go to, each once; none for a unix socket.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = self.plan.origins.iter().filter_map(Origin::address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The servers that the requests really go to; none for a unix socket.
    pub fn destinations(&self) -> Vec<Destination> {
        let tcp = |origin: &Origin| match &origin.endpoint {
            Endpoint::Unix(_) => None,
            Endpoint::Tcp(TcpEndpoint { host, port, addresses, .. }) => {
                Some(Destination { host: host.to_string(), port: *port, addresses: addresses.clone() })
            }
        };
        self.plan.origins.iter().filter_map(tcp).collect()
    }

    /// The addresses of this machine that connections begin from; empty when the kernel chooses.
    pub fn sources(&self) -> &[IpAddr] {
        &self.plan.transport.source_ips
    }

    /// From now on a good response has a body of so many bytes, coded as they come: as [`crate::Probe::body_bytes`] counts them.
    pub fn expect_length(&mut self, bytes: u64) {
        self.plan.checks.expect_framed_bytes(bytes);
    }

    /// The names under which requests are counted, one of them for all that have none of their own; empty when all have
    /// the same.
    pub fn names(&self) -> &[String] {
        &self.plan.names
    }

    /// What may go wrong with this load, or is not done as it was perhaps meant, a sentence or two each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Tells it with the load, once.
    pub(crate) fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Engine threads that will run on this machine.
    pub fn threads(&self) -> u32 {
        self.plan.share.threads
    }

    /// The same requests to the same addresses, at the arrival and with the connections of `workload`: at most as many
    /// as before.
    pub fn lower_to(&mut self, workload: &Workload) {
        let plan = &mut self.plan;
        plan.arrival = workload.arrival;
        plan.stages = stages_of(workload);
        plan.rate_profile = rate_profile_of(workload);
        if let (Some(script), Some(visits)) = (&mut plan.script, &workload.visits) {
            script.users = visits.users.clamp(1, script.users);
        }
        plan.connections = lanes(workload.connections, plan.lanes_per_connection).clamp(1, plan.connections);
        plan.share = LoadShare::whole(plan.share.threads.min(workload.connections.max(1)));
        plan.parked_max = plan.parked_max.min(plan.connections);
    }

    /// The server that a URL names, which the load may go to from now on. `None`, and a warning, when it cannot be
    /// found. An error when it cannot have what the load needs for it.
    pub(crate) fn add_origin(&mut self, url: &Url) -> Result<Option<usize>> {
        let plan = &mut self.plan;
        let known = plan.origins.len();
        let mut origins = Origins::resumed(&plan.transport, std::mem::take(&mut plan.origins));
        let origin = origins.index_of(url);
        plan.origins = origins.into_vec();
        let discovers = plan.script.as_ref().is_some_and(|script| script.discovers);
        let by = if discovers { "redirects or pages lead" } else { "redirects lead" };
        let origin = match origin {
            Ok(origin) => origin,
            Err(error) => {
                self.warn(format!("{by} to {}, which is not loaded: {}", authority(url), error.message));
                return Ok(None);
            }
        };
        if plan.origins.len() > known
            && let Err(error) = plan.prepare_new_origin()
        {
            plan.origins.truncate(known);
            return Err(error);
        }
        if self.plan.origins.len() > known {
            self.warn(format!("{by} to {}, which is loaded too", authority(url)));
        }
        Ok(Some(origin))
    }

    /// What is reported of the connections once all servers are known.
    pub(crate) fn add_connection_warnings(&mut self) {
        let notes = [
            self.plan.connection_shortage_warning(),
            self.plan.unused_sources_warning(),
            self.plan.unused_tls_warning(),
        ];
        notes.into_iter().flatten().for_each(|text| self.warn(text));
    }
}

/// The workload in the engine's terms.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) templates: Vec<Template>,
    /// Which of them is sent next.
    pub(crate) choice: Choice,
    pub(crate) origins: Vec<Origin>,
    /// How TLS is spoken, if any of the servers speaks it.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) transport: Transport,
    /// Distinct request names; empty when there is only one, which needs no figures of its own.
    pub(crate) names: Vec<String>,
    pub(crate) arrival: Arrival,
    /// How the level changes; empty for one that does not.
    pub(crate) stages: Vec<Stage>,
    /// The same for open arrival.
    pub(crate) rate_profile: Option<Arc<RateProfile>>,
    pub(crate) duration_ns: Option<u64>,
    pub(crate) requests: Option<u64>,
    /// Requests that can be in flight: the connections, over HTTP/2 with their streams. The engine sees a connection in
    /// each, and so does what follows here.
    pub(crate) connections: u32,
    /// How many of them share a connection.
    pub(crate) lanes_per_connection: u32,
    /// The engine threads: which of all that make the load.
    pub(crate) share: LoadShare,
    /// Starts before this moment of the load are those of others.
    pub(crate) from_ns: u64,
    pub(crate) timeout_ns: u64,
    pub(crate) keepalive: bool,
    /// Whether requests are calls of gRPC.
    pub(crate) speaks_grpc: bool,
    /// Most redirects that a request follows.
    pub(crate) redirects_max: u32,
    /// What is expected of responses besides their status.
    pub(crate) checks: ResponseChecks,
    /// What visitors do; `None` for requests that have nothing to do with each other.
    pub(crate) script: Option<Script>,
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    /// Most connections that wait for the server to close first.
    pub(crate) parked_max: u32,
    /// Connections that the limit of open files has room for.
    open_files_left: u32,
    /// Connections of visitors that there are local ports for.
    ports_left: u32,
    ok: Vec<bool>,
}

impl Plan {
    /// Whether a response with this status is good.
    #[inline]
    pub(crate) fn is_ok(&self, status: u16) -> bool {
        self.ok.get(usize::from(status)).copied().unwrap_or(false)
    }

    /// Whether anything of a response is examined besides its status and its framing.
    #[inline]
    pub(crate) fn inspects_responses(&self) -> bool {
        self.redirects_max > 0 || self.checks.may_read_bodies() || self.script.is_some()
    }

    /// Requests that can be distinguished: entries of the list, or what is planned.
    pub(crate) fn distinct(&self) -> usize {
        self.choice.list().map_or(self.templates.len(), ListRequests::count)
    }

    /// Entry `item` of the list as a request of its own; `None` without a list.
    pub(crate) fn entry(&self, item: usize) -> Option<Template> {
        self.choice.list()?.template(item, &self.templates)
    }

    /// The server that a URL names, if it is one of those that the load may go to.
    pub(crate) fn origin_at(&self, url: &Url) -> Option<usize> {
        position(url, &self.origins)
    }

    /// Gets what one more server needs: TLS if it is the first that speaks it, and open files.
    fn prepare_new_origin(&mut self) -> Result<()> {
        if self.tls.is_none() && self.origins.iter().any(|origin| origin.server_name.is_some()) {
            self.tls = Some(tls::config(&self.transport.tls, protocol(&self.transport))?);
        }
        self.reserve_descriptors()
    }
}

/// Reads a URL as one of a workload is read. A usage error for one that cannot be loaded.
pub fn check_url(text: &str) -> Result<Url> {
    parse_url(text)
}

/// Checks a workload and makes it ready: resolves names, builds the requests, and raises this process's limit of open
/// files to its maximum. A wrong workload is a usage error; a name that does not resolve, or a limit that is too
/// low, is an error of the machine.
pub fn prepare(workload: &Workload) -> Result<Prepared> {
    prepare_share(workload, None)
}

/// The same of a part of a load, the rest of which other machines make.
pub fn prepare_share(workload: &Workload, share: Option<LoadShare>) -> Result<Prepared> {
    refusals::check(workload)?;
    let checks = ResponseChecks::compile(&workload.expect)?;
    let requests = crate::plan::session_templates::with_browser_headers(workload);
    let script = Script::from_workload(workload, &requests)?;
    let (mut origins, mut names) = (Origins::new(&workload.transport)?, vec![]);
    let mut templates = Vec::with_capacity(workload.requests.len());
    for spec in &requests {
        let url = crate::plan::session_templates::representative_url(spec, &requests)?;
        let request = crate::plan::request_template::Source::from_spec(
            &crate::plan::session_templates::fixed_part(spec),
            url,
            RequestForm::of(workload),
        )?;
        let origin = origins.index_of_upgraded(request.url(), request.upgrade())?;
        templates.push(Template::new(request, origin, name_index(&spec.name, &mut names)));
    }
    let choice = Choice::from_workload(workload, &templates)?;
    choice.list().into_iter().for_each(|list| names = list.names().to_vec());
    let origins = origins.into_vec();
    let tls = tls_config(workload, origins.iter().any(|origin| origin.server_name.is_some()))?;
    if script.as_ref().is_some_and(|script| script.discovers) {
        crate::plan::session_templates::add_other_name(&mut names);
    }
    if names.len() <= 1 {
        names.clear();
    }
    let mut plan = Plan {
        templates,
        choice,
        origins,
        tls,
        transport: workload.transport.clone(),
        names,
        arrival: workload.arrival,
        stages: stages_of(workload),
        rate_profile: rate_profile_of(workload),
        duration_ns: workload.stop.duration_us.map(|us| us.saturating_mul(1000)),
        requests: workload.stop.requests,
        connections: all_lanes(workload, script.as_ref()),
        lanes_per_connection: lanes_per_connection(workload, script.as_ref()),
        from_ns: 0,
        share: share.unwrap_or_else(|| LoadShare::whole(thread_count(workload, script.as_ref()))),
        timeout_ns: workload.timeout_us.saturating_mul(1000),
        keepalive: workload.keepalive,
        speaks_grpc: requests.iter().any(is_grpc),
        redirects_max: workload.redirects_max,
        checks,
        script,
        seed: workload.seed,
        clock: workload.clock,
        parked_max: 0,
        open_files_left: u32::MAX,
        ports_left: u32::MAX,
        ok: (0..STATUS_CODES as u16).map(|status| workload.ok_status.contains(status)).collect(),
    };
    plan.reserve_descriptors()?;
    let notes = [check_ports(&mut plan, workload)?, plan.choose_io(uring_unavailable)];
    Ok(Prepared { plan, warnings: notes.into_iter().flatten().collect(), alone_us: None })
}

/// How the level changes; in closed arrival it is in connections, and here in requests.
fn stages_of(workload: &Workload) -> Vec<Stage> {
    let by = match (workload.arrival, &workload.visits) {
        (Arrival::Closed, None) => f64::from(workload.transport.streams()),
        _ => 1.0,
    };
    workload.stages.iter().map(|stage| Stage { shape: stage.shape.scaled(by), ..*stage }).collect()
}

/// What ALPN offers.
fn protocol(transport: &Transport) -> &'static [u8] {
    match (transport.http2_streams, transport.http3_streams) {
        (_, Some(_)) => tls::HTTP3,
        (Some(_), None) => tls::HTTP2,
        (None, None) => tls::HTTP1,
    }
}

/// How many engine threads the load has.
fn thread_count(workload: &Workload, script: Option<&Script>) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let threads = workload.threads.unwrap_or(cores);
    // A thread without a user has nothing to do.
    let users = script.filter(|_| workload.arrival == Arrival::Closed).map(|script| script.users);
    threads.clamp(1, workload.connections.min(users.unwrap_or(u32::MAX)).min(THREADS_MAX))
}

/// The rates of a load that changes them.
fn rate_profile_of(workload: &Workload) -> Option<Arc<RateProfile>> {
    let changes = !workload.stages.is_empty() && workload.arrival != Arrival::Closed;
    changes.then(|| Arc::new(RateProfile::from_stages(&workload.stages)))
}

/// How TLS is spoken, if a server speaks it. Files that cannot be used are reported also when nothing needs them yet.
fn tls_config(workload: &Workload, secure: bool) -> Result<Option<Arc<ClientConfig>>> {
    match secure || workload.transport.tls != TlsOptions::default() {
        true => {
            let config = tls::config(&workload.transport.tls, protocol(&workload.transport));
            config.map(Some).map_err(with_path_hint)
        }
        false => Ok(None),
    }
}

/// A file of TLS that cannot be read: the flags that name one.
fn with_path_hint(error: UserError) -> UserError {
    match error.hint {
        Some(_) => error,
        None => error.hint("check the path that --cacert, --cert or --key gives: ls -l FILE"),
    }
}

fn name_index(name: &str, names: &mut Vec<String>) -> usize {
    let known = |names: &[String], name: &str| names.iter().position(|known| known == name);
    let full = names.len() >= NAMES_MAX - 1 && known(names, name).is_none();
    let name = if full { OTHER_NAMES } else { name };
    known(names, name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

#[cfg(test)]
mod tests;
