//! The live target: the load engine in front, the agent at the server, the log between them.

use super::{HostAnswer, LiveSession, LoadLength, Server, Servers, lower_load};
use crate::export::Export;
use crate::live_traffic_policy;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use url::{Position, Url};
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::tuning::stop_loss::StopLoss;
use webdyno_load::Prepared;
use webdyno_model::change::{ApplyOptions, Preparation, RenderedPlan, SettingChange, SiteProbe};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::event::EventBody;
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::Round;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};

/// The most requests by which the site is known to be well.
const PROBES_COUNT_MAX: usize = 5;

/// So long a server is read after a load that did harm.
const AFTER_STOPPED_S: f64 = 4.2;

/// Asks a person before a plan is carried out.
pub type ConfirmPlan = Box<dyn FnMut(&RenderedPlan) -> Result<bool>>;

/// A real server that is tuned.
pub struct LiveTarget<'a> {
    /// Log and clock.
    pub session: &'a mut LiveSession,
    /// The agents.
    pub servers: &'a mut Servers,
    /// The engine's side of the workload.
    pub prepared: Prepared,
    /// What is sent.
    pub workload: Workload,
    /// How long each measurement takes.
    pub length: LoadLength,
    /// What the operator allows beside a restart, and by what the site is known to be well.
    pub options: ApplyOptions,
    /// Asked before each change, where somebody is there to ask.
    pub confirm: Option<ConfirmPlan>,
    /// Gathers the plans, where they are wanted as files.
    pub export: Option<Export>,
    /// Whether the server was started for this session, so that nobody else can be there.
    pub private: bool,
}

impl LiveTarget<'_> {
    fn read_service(&mut self) -> Result<()> {
        self.record_agent_notes()?;
        let Some(snapshot) =
            self.servers.front().snapshot().map(webdyno_model::service::ServiceSnapshot::for_log)
        else {
            return Ok(());
        };
        self.session.append(EventBody::Service { snapshot: Box::new(snapshot) })
    }

    /// Tells what the agents wanted to be known, such as changes of others that took effect with ours.
    fn record_agent_notes(&mut self) -> Result<()> {
        self.servers.all().flat_map(Server::notes).try_for_each(|note| self.session.append(note))
    }

    /// Connects again to agents that were killed, which puts back what they had changed.
    fn reach_agents(&mut self) -> Result<()> {
        let is_lost = self.servers.has_lost_agent() && !self.session.is_interrupted();
        if is_lost { self.session.observe_for(lower_load::CHECK_EVERY_S, self.servers) } else { Ok(()) }
    }

    /// Loads once, as it is set now.
    fn load_once(&mut self, purpose: Purpose, length: LoadLength) -> Result<LoadMeasurement> {
        self.detect_live_traffic(false)?;
        let load =
            self.session.load_or_recover(&self.prepared, &self.workload, purpose, length, self.servers)?;
        self.detect_live_traffic(false)?;
        let is_stopped = |target: &Self| {
            target.session.recording().loads.last().is_some_and(|last| last.harm_guard_trip.is_some())
        };
        if is_stopped(self) {
            // It may have ended before anything was read of what it made the server hold.
            self.session.observe_for(AFTER_STOPPED_S, self.servers)?;
        }
        let recording = self.session.recording();
        let record =
            recording.load(load).ok_or_else(|| UserError::cannot_run("the load was not recorded"))?;
        Ok(LoadMeasurement { load, measurement: recording.measurement(record) })
    }

    /// From now on at half the load, if there is half of it. What was halved and why stands in the log.
    fn halve_load(&mut self, trip: &HarmGuardTrip) -> Result<bool> {
        let Some(half) = lower_load::half_load(&self.workload) else { return Ok(false) };
        let text = lower_load::lower_load_note(&self.workload, &half, trip);
        self.prepared.lower_to(&half);
        self.workload = half;
        self.session.append(EventBody::Note { text })?;
        Ok(true)
    }

    /// Sees whether others use the server; once they do, the session treats it so to its end. Before a change `must_know`
    /// holds: what cannot be told then counts as if they did.
    fn detect_live_traffic(&mut self, must_know: bool) -> Result<()> {
        if self.private || self.options.live_traffic {
            return Ok(());
        }
        let Some(text) = live_traffic_policy::live_traffic_note(
            self.session.recording().live_traffic().as_ref(),
            must_know,
        ) else {
            return Ok(());
        };
        self.options.live_traffic = true;
        self.session.append(EventBody::Note { text })
    }

    fn stop_if_interrupted(&self) -> Result<()> {
        if self.session.is_interrupted() { Err(UserError::interrupted()) } else { Ok(()) }
    }
}

impl TuningTarget for LiveTarget<'_> {
    /// After a load that did harm, the next one begins when the server is quiet again.
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        self.stop_if_interrupted()?;
        if self.session.recording().loads.last().is_some_and(|last| last.harm_guard_trip.is_some())
            && let Some(why) = lower_load::wait_until_recovered(self.session, self.servers)?
        {
            return Err(lower_load::not_recovered_error(&why));
        }
        self.load_once(purpose, self.length)
    }

    fn measure_lower(&mut self, stopped: LoadMeasurement) -> Result<LoadMeasurement> {
        let began_us = self.session.elapsed_us();
        let mut measured = stopped;
        for _ in 0..lower_load::HALVINGS_COUNT_MAX {
            let Some(trip) = measured.measurement.harm_guard_trip.clone() else { break };
            if let Some(why) = lower_load::wait_until_recovered(self.session, self.servers)? {
                let text = format!("the load was not tried again: {why}");
                self.session.append(EventBody::Note { text })?;
                break;
            }
            if !self.halve_load(&trip)? {
                break;
            }
            let spent_us = self.session.elapsed_us() - began_us;
            measured =
                self.load_once(Purpose::Baseline, lower_load::remaining_length(self.length, spent_us))?;
        }
        Ok(measured)
    }

    fn verify(&mut self, best: &Measurement) -> Result<LoadMeasurement> {
        // One that had to be stopped is nothing to be held against.
        self.session.stop_loss = best.harm_guard_trip.is_none().then(|| StopLoss::new(best));
        let measured = self.measure(Purpose::Verify);
        self.session.stop_loss = None;
        measured
    }

    fn has_live_traffic(&self) -> bool {
        self.options.live_traffic
    }

    fn has_lost_agent(&self) -> bool {
        self.servers.has_lost_agent()
    }

    fn prepare(&mut self, changes: &[SettingChange]) -> Result<Preparation> {
        self.stop_if_interrupted()?;
        self.reach_agents()?;
        self.servers.prepare(changes)
    }

    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        self.stop_if_interrupted()?;
        if let Some(confirm) = &mut self.confirm
            && !confirm(plan)?
        {
            return Ok(None);
        }
        self.detect_live_traffic(true)?;
        let mut options = ApplyOptions { allow_restart, ..self.options.clone() };
        if options.probes.is_empty() {
            options.probes = probes(&self.workload);
        }
        let in_force = self.servers.apply(plan, &options);
        // What could not be proved matters whether the change is in force or not.
        let noted = self.record_agent_notes();
        let HostAnswer { host, answer: (in_force, journal) } = in_force?;
        let AppliedChange { mark, outage_us } = in_force;
        let applied = EventBody::Applied { mark, outage_us, journal, host };
        let reported = noted.and_then(|()| self.session.append(applied));
        if let Err(error) = reported.and_then(|()| self.read_service()) {
            // An error says that nothing of it stayed.
            return Err(self.servers.revert(mark, options.live_traffic).1.err().unwrap_or(error));
        }
        Ok(Some(in_force))
    }

    fn apply_again(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        let confirm = self.confirm.take();
        let applied = self.apply(plan, allow_restart);
        self.confirm = confirm;
        applied
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        self.reach_agents()?;
        let (done, outcome) = self.servers.revert(mark, self.options.live_traffic);
        // Where a host failed the log must not say that all is as before.
        outcome?;
        self.session.reverted(mark, done)?;
        self.read_service()
    }

    fn keep(&mut self) -> Result<()> {
        self.stop_if_interrupted()?;
        let kept = self.servers.keep();
        // What only a person can make last is told when it is kept.
        let noted = self.record_agent_notes();
        kept.and(noted)
    }

    fn export(&mut self, plan: &RenderedPlan, round: &Round) {
        if let Some(export) = &mut self.export {
            export.add(plan, round);
        }
    }

    fn propose(&mut self, finding: &Finding, remedy: &Remedy) {
        let control = self.servers.front().snapshot().and_then(|snapshot| snapshot.control.as_ref());
        let unit = control.and_then(|control| control.unit.as_deref());
        if let Some(export) = &mut self.export {
            export.propose(finding, remedy, unit);
        }
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        self.session.append(body)
    }

    fn elapsed_us(&self) -> u64 {
        self.session.elapsed_us()
    }
}

/// The requests of a workload that only read, as they tell whether the site is well. Their headers are left out: they
/// may be somebody's session. So are their values in any log: they go to the agent and nowhere else.
fn probes(workload: &Workload) -> Vec<SiteProbe> {
    let mut probes: Vec<SiteProbe> = vec![];
    for request in workload.requests.iter().filter(|request| request.method.eq_ignore_ascii_case("GET")) {
        let probe = probe(&request.url, &request.headers);
        if probes.len() < PROBES_COUNT_MAX && !probe.iter().any(|probe| probes.contains(probe)) {
            probes.extend(probe);
        }
    }
    probes
}

/// Host and target of an absolute URL; a `Host` header given beside it counts more.
fn probe(url: &str, headers: &[(String, String)]) -> Option<SiteProbe> {
    let url = Url::parse(url).ok()?;
    let given = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = given.map_or(&url[Position::BeforeHost..Position::AfterPort], |(_, value)| value).to_owned();
    let target = url[Position::BeforePath..Position::AfterQuery].to_owned();
    Some(SiteProbe { host, target, tls: url.scheme() == "https" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::RequestSpec;

    fn request(method: &str, url: &str, header: Option<(&str, &str)>) -> RequestSpec {
        let header = header.map(|(name, value)| (name.to_owned(), value.to_owned()));
        RequestSpec {
            method: method.into(),
            url: url.into(),
            headers: header.into_iter().collect(),
            ..RequestSpec::default()
        }
    }

    fn workload(requests: Vec<RequestSpec>) -> Workload {
        Workload { requests, connections: 1, timeout_us: 1, ..Workload::default() }
    }

    #[test]
    fn requests_that_only_read_are_the_probes() {
        let many = (0..9).map(|n| request("GET", &format!("http://a/{n}"), None)).collect();
        assert_eq!(probes(&workload(many)).len(), PROBES_COUNT_MAX);
        let found = probes(&workload(vec![
            request("GET", "http://a.example:8080/x?y=1", Some(("Cookie", "s=1"))),
            request("POST", "http://a.example/", None),
            request("get", "http://[::1]", Some(("HOST", "b.example"))),
            request("GET", "http://a.example:8080/x?y=1", None),
            request("GET", "http://c.example?q", None),
        ]));
        let found: Vec<_> = found.iter().map(|probe| (probe.host.as_str(), probe.target.as_str())).collect();
        assert_eq!(found, [("a.example:8080", "/x?y=1"), ("b.example", "/"), ("c.example", "/?q")]);
    }
}
