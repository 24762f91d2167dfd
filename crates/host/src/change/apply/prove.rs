//! Proves new files on a shadow instance of the service, before any of the real ones is written.
//!
//! The shadow with the new files has to start, and to answer as the site does. When it does not, one with the files that
//! are there shows what that says: does that not start either, then no shadow does here, and nothing is proved; does it
//! start and answer as the site does, or otherwise than the first, then it is the change, and it is refused. Before that the
//! first is tried once more, as a port may be taken or a backend silent for a moment.
//!
//! Only one shadow runs at a time. It is in the journal before the first of its files is written, so whatever ends this
//! session, it is stopped and its files are removed.

use super::Changer;
use crate::change::action::{Action, Launch, Served, Surroundings};
use crate::change::seams::processes::site_client;
use crate::change::seams::state_dir::state_error;
use crate::change::seams::tree::Tree;
use crate::probes::site::{self, Site, SiteClient};
use crate::services::{Shadow, Tunable};
use std::path::Path;
use std::sync::Arc;
use webdyno_model::change::{FileEdit, SiteProbe};
use webdyno_model::{Result, UserError};

/// The most that is read of a shadow's log.
const LOG_BYTES_MAX: u64 = 64 << 10;

/// What is to be proved.
pub(super) struct Subject<'a> {
    pub service: &'a dyn Tunable,
    pub served: &'a Served,
    pub probes: &'a [SiteProbe],
}

/// What a shadow did.
#[derive(Debug, PartialEq, Eq)]
enum ShadowOutcome {
    /// It started and answered as it should.
    Well,
    /// It did not start, in its own words.
    NotStart(String),
    /// It answered otherwise; how.
    AnswerOtherwise(String),
    /// There can be none, and why; `None` where the service has none by its nature, which is no news.
    Nothing(Option<String>),
}

impl Changer {
    /// Proves new files. Gives warnings when nothing can be proved; an error when the new files are proved to be wrong.
    pub(super) fn prove(
        &mut self,
        files: &[FileEdit],
        subject: &Subject<'_>,
        site: Option<&Site>,
    ) -> Result<Vec<String>> {
        let name = subject.service.name();
        let like = |site: Option<&Site>, client: &SiteClient<'_>, port: u16| {
            let compared = match site {
                Some(site) => site.is_answered_alike(client, port),
                // Nothing to compare: but a request takes as long as an early end.
                None => {
                    let first = subject.probes.get(..1).unwrap_or_default();
                    site::learn(client, &[site::own_address(port)], first);
                    Ok(())
                }
            };
            compared.map_or_else(
                |difference| ShadowOutcome::AnswerOtherwise(difference.message),
                |()| ShadowOutcome::Well,
            )
        };
        match self.show(files, subject, &mut |client, port| like(site, client, port))? {
            ShadowOutcome::Well => return Ok(vec![]),
            ShadowOutcome::Nothing(why) => return Ok(why.map(|why| unproved(&why)).into_iter().collect()),
            ShadowOutcome::NotStart(_) | ShadowOutcome::AnswerOtherwise(_) => {}
        }
        let mut learnt = None;
        let current = self.show(&[], subject, &mut |client, port| {
            let shown = like(site, client, port);
            if matches!(shown, ShadowOutcome::AnswerOtherwise(_)) {
                learnt = site::learn(client, &[site::own_address(port)], subject.probes).site;
            }
            shown
        })?;
        let judge = match current {
            ShadowOutcome::Well => site,
            // It differs from the site for reasons of its own: those of the first may be the same.
            ShadowOutcome::AnswerOtherwise(_) => learnt.as_ref(),
            ShadowOutcome::NotStart(why) => {
                return Ok(vec![unproved(&format!("none starts here, not even with the old one: {why}"))]);
            }
            ShadowOutcome::Nothing(why) => return Ok(why.map(|why| unproved(&why)).into_iter().collect()),
        };
        match self.show(files, subject, &mut |client, port| like(judge, client, port))? {
            ShadowOutcome::Well if site.is_some() && judge.is_none() => Ok(vec![unproved(
                "its shadow instance starts, and answers nothing here, as with the old one",
            )]),
            ShadowOutcome::Well => Ok(vec![]),
            ShadowOutcome::Nothing(why) => Ok(why.map(|why| unproved(&why)).into_iter().collect()),
            ShadowOutcome::NotStart(why) => {
                Err(refused(format!("{name} does not start with the new configuration: {why}")))
            }
            ShadowOutcome::AnswerOtherwise(how) => {
                Err(refused(format!("{name} answers otherwise with the new configuration: {how}")))
            }
        }
    }

    /// Starts a shadow with these files, judges it when it answers, and stops it.
    fn show(
        &mut self,
        files: &[FileEdit],
        subject: &Subject<'_>,
        judge: &mut dyn FnMut(&SiteClient<'_>, u16) -> ShadowOutcome,
    ) -> Result<ShadowOutcome> {
        let Subject { service, served, .. } = subject;
        self.cancellation.check()?;
        let agent = self.tools.system.this_process()?;
        let folder = self.tools.state.shadow(agent.pid, self.next_n());
        let shadow = match service.shadow(&served.control, files, served.port, &folder) {
            Ok(Some(shadow)) => shadow,
            Ok(None) => return Ok(ShadowOutcome::Nothing(None)),
            Err(error) => return Ok(ShadowOutcome::Nothing(Some(error.message))),
        };
        let launch = launch(&shadow, &folder);
        if let Err(error) = self.tools.system.check_launch(&launch) {
            return Ok(ShadowOutcome::NotStart(error.message));
        }
        self.cancellation.check()?;
        let n = self.intend(Action::Launch(launch.clone()))?;
        let did = self.run(n, &shadow, &launch, *service, judge);
        match self.stop_shadows().error() {
            // Cut short, it proves nothing.
            None => self.cancellation.check().and(did),
            Some(error) => Err(UserError {
                message: format!(
                    "the shadow instance of {} cannot be cleared away: {}",
                    service.name(),
                    error.message
                ),
                ..error
            }),
        }
    }

    fn run(
        &mut self,
        n: u64,
        shadow: &Shadow,
        launch: &Launch,
        service: &dyn Tunable,
        judge: &mut dyn FnMut(&SiteClient<'_>, u16) -> ShadowOutcome,
    ) -> Result<ShadowOutcome> {
        let root = launch.folder.as_ref().map(Path::new).unwrap_or(Path::new("/"));
        let tree = Tree { root, folders: &shadow.folders, files: &shadow.files, owner: shadow.user };
        let text = |error: std::io::Error| state_error("write the shadow instance to", root, &error);
        let disk = self.tools.disk.as_ref();
        disk.passable_directory(&self.tools.state.shadows())
            .and_then(|()| disk.plant(&tree))
            .map_err(text)?;
        self.cancellation.check()?;
        let not_started = |this: &Self, error: String| {
            ShadowOutcome::NotStart(this.words(n, shadow, service).unwrap_or(error))
        };
        if let Err(error) = self.start(n, launch) {
            return Ok(not_started(self, error.message));
        }
        let system = Arc::clone(&self.tools.system);
        let did = judge(&site_client(system.as_ref()).until(&self.cancellation), launch.port);
        // It listens before it knows whether it can work, and an end in between is no answer.
        match self.has_ended(n) {
            true => Ok(not_started(self, "it ended by itself".to_owned())),
            false => Ok(did),
        }
    }

    /// Whether a launched program has ended.
    fn has_ended(&self, n: u64) -> bool {
        let mut entries = self.session.iter().flat_map(|session| &session.journal.history().entries);
        let launched = entries.find(|entry| entry.n == n).and_then(|entry| entry.launched);
        launched.is_some_and(|launched| !self.tools.system.is_running(launched.process))
    }

    /// What a shadow says of itself, as if it were the original.
    fn words(&self, n: u64, shadow: &Shadow, service: &dyn Tunable) -> Option<String> {
        let running = self.session.as_ref().and_then(|session| session.running.get(&n));
        let stderr = running.and_then(|running| running.stderr_text()).unwrap_or_default();
        let log = self.tools.disk.read_start(&shadow.log, LOG_BYTES_MAX).unwrap_or_default();
        let said = service.start_failure(&stderr, &String::from_utf8_lossy(&log));
        Some(shadow.translated(&said)).filter(|said| !said.is_empty())
    }
}

fn launch(shadow: &Shadow, folder: &Path) -> Launch {
    let surroundings = Surroundings {
        environment: shadow.environment.clone(),
        directory: shadow.directory.clone(),
        user: shadow.user,
        inherited: shadow.inherited.clone(),
    };
    Launch {
        folder: Some(folder.display().to_string()),
        surroundings: Some(surroundings),
        ..Launch::new(shadow.command.clone(), shadow.pid_file.display().to_string(), shadow.port)
    }
}

fn unproved(why: &str) -> String {
    format!("the new configuration was not proved on a shadow instance before it was put in force: {why}")
}

fn refused(what: String) -> UserError {
    UserError::cannot_run(what)
        .hint("this was seen on a shadow instance; nothing of the server itself was changed")
}
