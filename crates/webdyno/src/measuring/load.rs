//! A load that is measured until it has settled, and the server that is observed meanwhile.

use super::{objectives, observe, target};
use crate::cli::ServerArgs;
use crate::cli::load::{DURATION_US_DEFAULT, LoadArgs};
use webdyno_host::agent::{ServerAddress, ServerList, Start};
use webdyno_load::Prepared;
use webdyno_load::workload::file::Draft;
use webdyno_model::event::EventBody;
use webdyno_model::repeated_answer::RepeatedAnswer;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Access;
use webdyno_model::workload::{Stop, Workload};
use webdyno_model::{Result, UserError};
use webdyno_session::live::{LiveSession, LoadLength, Servers};

/// Rates that have not settled after this many seconds beyond the measured ones never do.
const SETTLE_S_MAX: u32 = 40;

/// A load that ends when enough was measured, and the server it is for.
pub struct MeasuredLoad {
    /// What is sent.
    pub workload: Workload,
    /// The engine's side of it.
    pub prepared: Prepared,
    /// How long.
    pub length: LoadLength,
    /// What requests showed that were sent twice ([`Self::repeat_requests`]).
    repeated_answers: Vec<RepeatedAnswer>,
    list: ServerList,
    how: Start,
    access: Access,
    port: u16,
}

impl MeasuredLoad {
    /// Checks everything that can be checked before anything is started: flags, URLs, and one probing request.
    pub fn prepare(arguments: &LoadArgs, draft: &Draft, server: &ServerArgs) -> Result<Self> {
        let mut load = Self::without_probe(arguments, draft, server)?;
        load.probe()?;
        let prepared = &load.prepared;
        objectives::check(&draft.objectives, &draft.objective_places, &load.workload, prepared.names())?;
        Ok(load)
    }

    /// The same without the request: for a server that may not answer.
    pub fn without_probe(arguments: &LoadArgs, draft: &Draft, server: &ServerArgs) -> Result<Self> {
        let list = server.list()?;
        let how = server.start(list.web()?)?;
        let address = &how.address;
        let measure_us = draft.settings.duration_us.unwrap_or(DURATION_US_DEFAULT);
        let mut workload =
            arguments.workload_until(draft, Stop { duration_us: None, requests: arguments.requests })?;
        if !workload.stages.is_empty() {
            return Err(UserError::usage("a load that has settled is measured, and this one has stages")
                .hint("leave the stages and ramps out of the workload; `webdyno run` follows them"));
        }
        if let Some(path) = &workload.transport.unix_socket {
            let text = format!(
                "diagnose and tune find a server by its port, the socket {} has none",
                path.display()
            );
            return Err(UserError::usage(text)
                .hint("`webdyno run` loads any server; to observe or change one, load a port of it"));
        }
        let length = load_length(arguments, measure_us);
        if let (LoadLength::Fixed { warmup_s: Some(warmup_s) }, None) = (length, arguments.requests) {
            // A given warm-up replaces the detection: then the load has a fixed end.
            workload.stop.duration_us = Some(measure_us + (warmup_s * 1e6) as u64);
        }
        if let Some(proxy) = &workload.transport.proxy {
            return Err(UserError::usage(format!(
                "the server that is observed must be the one that is loaded, and the proxy {proxy} stands between"
            ))
            .hint("`webdyno run` loads any server; to observe or change one, leave --proxy out"));
        }
        let prepared = webdyno_load::prepare(&workload)?;
        objectives::check_before_probe(
            &draft.objectives,
            &draft.objective_places,
            &workload,
            prepared.names(),
        )?;
        let port = observed_port(&prepared, address)?;
        let access = server.access();
        Ok(Self { workload, prepared, length, repeated_answers: vec![], list, how, access, port })
    }

    /// One request before the load: is there a server, and is it the one that is meant?
    pub fn probe(&mut self) -> Result<()> {
        webdyno_load::probe(&mut self.prepared)?;
        webdyno_load::measure_alone(&mut self.prepared);
        // The probe may have been led on to other servers.
        observed_port(&self.prepared, &self.how.address).map(|_| ()).map_err(|reported| {
            reported.hint("a redirect leads there: load what is meant, without --redirects")
        })
    }

    /// Looks whether answers repeat, before anything is observed: what a cache in front could answer.
    pub fn repeat_requests(&mut self) {
        self.repeated_answers = webdyno_load::repeated_answers(&self.prepared, &self.workload);
    }

    /// Writes into the log what that showed.
    pub fn record_repeated_answers(&self, session: &mut LiveSession) -> Result<()> {
        let answers = self.repeated_answers.clone();
        if answers.is_empty() { Ok(()) } else { session.append(EventBody::RepeatedAnswers { answers }) }
    }

    /// Seconds that are measured.
    pub fn measure_s(&self) -> f64 {
        match self.length {
            LoadLength::Settled { measure_s, .. } => f64::from(measure_s),
            LoadLength::Fixed { .. } => self.workload.stop.duration_us.map_or(1.0, |us| us as f64 / 1e6),
        }
    }

    /// Starts the agent, makes sure that what is loaded is its machine, finds the service behind the port and observes
    /// it.
    pub fn connect(&self) -> Result<Servers> {
        let mut servers = Servers::connect(&self.list, &self.how)?;
        servers.front_mut().require_served_here(&self.prepared, &self.how.address.to_string())?;
        observe(&mut servers, self.port, &self.access)?;
        Ok(servers)
    }

    /// The service behind the port, and those behind it, with what is known of their settings.
    pub fn services(&self, servers: &Servers) -> Result<Vec<ServiceSnapshot>> {
        let mut services: Vec<ServiceSnapshot> = servers.front().snapshot().cloned().into_iter().collect();
        for server in servers.all() {
            let port = server.role().is_none().then_some(self.port);
            services.extend(server.agent().topology(port, &self.access)?.backends);
        }
        Ok(services)
    }

    /// Starts the agent of the machine that the server's container or namespace runs on, if one was given.
    pub fn connect_machine(&self, servers: &mut Servers) -> Result<()> {
        servers.connect_machine(&self.list, &self.how)
    }

    /// Whether the load reaches its server over a network, although the server is this machine.
    pub fn is_this_machine_by_network(&self) -> bool {
        let is_local = self.how.address == ServerAddress::Local;
        is_local
            && !self
                .prepared
                .destinations()
                .iter()
                .all(|to| to.addresses.iter().all(|at| at.ip().is_loopback()))
    }
}

/// How long a load is that measures so many microseconds.
pub fn load_length(arguments: &LoadArgs, measure_us: u64) -> LoadLength {
    let measure_s = u32::try_from(measure_us.div_ceil(1_000_000)).unwrap_or(u32::MAX).max(4);
    match (arguments.requests, arguments.warmup) {
        (None, None) => LoadLength::Settled { measure_s, at_most_s: measure_s.saturating_add(SETTLE_S_MAX) },
        (_, warmup_us) => LoadLength::Fixed { warmup_s: Some(warmup_us.map_or(0.0, |us| us as f64 / 1e6)) },
    }
}

/// The port that the load goes to. An error when it is not one port, or not one of the host that is observed.
fn observed_port(prepared: &Prepared, address: &ServerAddress) -> Result<u16> {
    let destinations = prepared.destinations();
    if *address == ServerAddress::Local {
        target::require_local(&destinations)?;
    }
    target::common_port(&destinations)
}
