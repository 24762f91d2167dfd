//! Who prepares a change, by its target: the service under load, the kernel that it runs on, a server behind it, or nobody.

use crate::change::seams::services::Programs;
use crate::discovery::unprivileged;
use crate::os::procfs;
use crate::services::value_holder::ValueHolder;
use crate::services::{self, UNKNOWN, sysctl};
use crate::services::{Tunable, apache, listen_backlog, mariadb, php_fpm, process_limit, resource_control};
use crate::visibility::{foreign_namespace, listeners};
use webdyno_model::change::{Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::Target;
use webdyno_model::topology::Access;
use webdyno_model::{Result, UserError};

/// What a target answered.
#[derive(Debug)]
pub struct Prepared {
    /// Its plan, or why it has none.
    pub preparation: Preparation,
    /// What holds the values that the plan replaces, where only a running server or the kernel does.
    pub holders: Vec<ValueHolder>,
    /// The service behind the one under load that the plan is for, where it changes files of that.
    pub backend: Option<ServiceSnapshot>,
}

impl From<Preparation> for Prepared {
    fn from(preparation: Preparation) -> Self {
        Self { preparation, holders: vec![], backend: None }
    }
}

/// Lets the target of these changes render them. `front` is the service under load, private when this session started it;
/// `backends` looks for the services behind it, with the access that the operator gave.
pub fn prepare(
    programs: &dyn Programs,
    (front, is_private): (&ServiceSnapshot, bool),
    changes: &[SettingChange],
    backends: &mut dyn FnMut() -> Result<(Vec<ServiceSnapshot>, Access)>,
) -> Result<Prepared> {
    if front.pid == listeners::NO_PID {
        return Err(unprivileged::refusal(front));
    }
    if let Some(error) = foreign_namespace::refusal(front) {
        return Err(error);
    }
    let Some(first) = changes.first() else { return Err(UserError::usage("no setting is to be changed")) };
    if changes.iter().any(is_backlog) {
        return accept_queue(front, is_private, changes);
    }
    if let Some(other) = changes.iter().find(|other| other.setting.target != first.setting.target) {
        let why = format!(
            "{} and {} cannot be changed in one step",
            first.setting.full_name(),
            other.setting.full_name()
        );
        return Ok(Preparation::not_preparable(why).into());
    }
    let preparation = match &first.setting.target {
        Target::Service(name) if name == mariadb::NAME && *name != front.service => {
            return if is_private {
                kept_out("the database")
            } else {
                of_database(changes, backends, &procfs::may_inspect)
            };
        }
        Target::Service(name) if name == php_fpm::NAME && *name != front.service => {
            return if is_private { kept_out("PHP-FPM") } else { of_php_fpm(changes, backends) };
        }
        Target::Service(name) if name == apache::NAME && *name != front.service => {
            let behind = "the Apache behind it";
            return if is_private { kept_out(behind) } else { of_apache(programs, changes, backends) };
        }
        Target::Service(name) => of_service(programs, front, name, changes)?,
        Target::Sysctl if is_private => Preparation::not_preparable(
            "the server was started for this session, and the kernel's settings are not",
        ),
        Target::Sysctl => sysctl::prepare(changes)?,
        Target::ProcessLimit(_) if is_private && !changes.iter().all(is_resource) => {
            Preparation::not_preparable(
                "the server was started for this session, with the limits of this session",
            )
        }
        Target::ProcessLimit(name) => {
            let behind = if *name == front.service { vec![] } else { backends()?.0 };
            return of_the_only(name, std::iter::once(front).chain(&behind), changes);
        }
        Target::Hardware | Target::Application | Target::Generator | Target::External(_) => {
            Preparation::not_preparable(format!("webdyno does not change the {}", first.setting.full_name()))
        }
    };
    Ok(preparation.into())
}

/// The services that were seen; where one of them has ended, those that are left with what is found now: each reload gives PHP-FPM another
/// main process.
pub fn still_there(
    seen: Vec<ServiceSnapshot>,
    is_running: impl Fn(u32) -> bool,
    find: impl FnOnce() -> Result<Vec<ServiceSnapshot>>,
) -> Result<Vec<ServiceSnapshot>> {
    let seen_count = seen.len();
    let mut left: Vec<ServiceSnapshot> = seen.into_iter().filter(|service| is_running(service.pid)).collect();
    if left.is_empty() || left.len() < seen_count {
        let known: Vec<u32> = left.iter().map(|service| service.pid).collect();
        left.extend(find()?.into_iter().filter(|service| !known.contains(&service.pid)));
    }
    Ok(left)
}

/// The limits of the one service of this name.
fn of_the_only<'a>(
    name: &str,
    all: impl Iterator<Item = &'a ServiceSnapshot>,
    changes: &[SettingChange],
) -> Result<Prepared> {
    let mut all = all.filter(|service| service.service == name);
    let (Some(service), None) = (all.next(), all.next()) else {
        let why = format!("there is not just one {name} whose limits could be raised");
        return Ok(Preparation::not_preparable(why).into());
    };
    match foreign_namespace::refusal(service) {
        Some(error) => Ok(Preparation::from(error).into()),
        None => prepare_limits(service, changes),
    }
}

/// Limits of the processes of a service, and what they may use.
fn prepare_limits(service: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Prepared> {
    if changes.iter().any(is_resource) {
        let (preparation, holders) = resource_control::prepare(service, changes)?;
        return Ok(Prepared {
            holders: holders.into_iter().map(ValueHolder::from).collect(),
            ..preparation.into()
        });
    }
    let (preparation, holder) = process_limit::prepare(service, changes)?;
    Ok(Prepared { holders: holder.map(ValueHolder::from).into_iter().collect(), ..preparation.into() })
}

fn is_resource(change: &SettingChange) -> bool {
    resource_control::has(&change.setting.name)
}

fn is_backlog(change: &SettingChange) -> bool {
    matches!(change.setting.target, Target::ProcessLimit(_)) && change.setting.name == listen_backlog::SETTING
}

/// The backlog of the front's sockets, and what the kernel grants them, in one step.
fn accept_queue(front: &ServiceSnapshot, is_private: bool, changes: &[SettingChange]) -> Result<Prepared> {
    let (backlogs, others): (Vec<SettingChange>, Vec<_>) = changes.iter().cloned().partition(is_backlog);
    let is_of_kernel = |change: &SettingChange| change.setting.target == Target::Sysctl;
    let ([backlog], true) = (&backlogs[..], others.iter().all(is_of_kernel)) else {
        return Ok(Preparation::not_preparable(
            "a backlog is changed with net.core.somaxconn, and with nothing else",
        )
        .into());
    };
    if backlog.setting.target.name() != front.service || is_private {
        let why = "only the backlog of the server that others load, and that serves the port, is changed";
        return Ok(Preparation::not_preparable(why).into());
    }
    const GRANTED: &str = "net.core.somaxconn";
    let asked =
        others.iter().find(|change| change.setting.name == GRANTED).and_then(|change| change.to.number());
    let now = || sysctl::space::read_here(GRANTED).ok().and_then(|now| now.trim().parse().ok());
    let granted = asked.map(|asked| asked as u64).or_else(now);
    let (plan, sockets) = match listen_backlog::prepare(front, backlog, granted) {
        Ok(planned) => planned,
        Err(obstacle) => return Ok(Preparation::from(obstacle).into()),
    };
    let holders = vec![ValueHolder::Listener(sockets)];
    if others.is_empty() {
        return Ok(Prepared { holders, ..Preparation::Plan(Box::new(plan)).into() });
    }
    let whole = match sysctl::prepare_with(&others, true)? {
        Preparation::Plan(first) => RenderedPlan {
            changes: [first.changes, plan.changes].concat(),
            diff: format!("{}{}", first.diff, plan.diff),
            ..*first
        },
        refused => return Ok(refused.into()),
    };
    Ok(Prepared { holders, ..Preparation::Plan(Box::new(whole)).into() })
}

/// A private server has no backends of its own: others' are not changed for it.
fn kept_out(backend: &str) -> Result<Prepared> {
    let why = format!("the server was started for this session, and {backend} was not");
    Ok(Preparation::not_preparable(why).into())
}

/// What is to be done where a backend is not seen here.
fn other_host_hint(seen_count: usize, role: &str) -> Option<String> {
    (seen_count == 0).then(|| format!("where it runs on another host: --server {role}=S"))
}

/// A database behind the front: there must be just one.
fn of_database(
    changes: &[SettingChange],
    backends: &mut dyn FnMut() -> Result<(Vec<ServiceSnapshot>, Access)>,
    may_inspect: &dyn Fn(u32) -> bool,
) -> Result<Prepared> {
    let (found, access) = backends()?;
    let databases: Vec<_> = found.iter().filter(|service| service.service == mariadb::NAME).collect();
    let [database] = databases[..] else {
        let why = format!("{} databases are seen behind the server, and one is needed", databases.len());
        return Ok(Preparation::NotPreparable { why, hint: other_host_hint(databases.len(), "db") }.into());
    };
    // Who may not look into it has an account there at most, and may have taken it for the site's by a guess.
    if !may_inspect(database.pid) {
        let why = format!("whether the site asks the database, process {}, cannot be seen", database.pid);
        return Ok(Preparation::NotPreparable { why, hint: Some(listeners::NEEDS_RIGHTS.into()) }.into());
    }
    let (preparation, server) = mariadb::prepare::prepare(database, &access, changes)?;
    Ok(Prepared { holders: server.map(ValueHolder::Database).into_iter().collect(), ..preparation.into() })
}

/// A PHP-FPM behind the front: there must be just one, or one that has the pool.
fn of_php_fpm(
    changes: &[SettingChange],
    backends: &mut dyn FnMut() -> Result<(Vec<ServiceSnapshot>, Access)>,
) -> Result<Prepared> {
    let (found, _) = backends()?;
    let pool = changes.iter().find_map(|change| change.setting.pool.as_deref());
    let has_pool = |service: &&ServiceSnapshot| {
        pool.is_none_or(|pool| service.endpoints.iter().any(|endpoint| endpoint.name == pool))
    };
    let all = found.iter().filter(|service| service.service == php_fpm::NAME);
    let with_pool: Vec<_> = all.filter(has_pool).collect();
    let [fpm] = with_pool[..] else {
        let what = pool.map_or(String::new(), |pool| format!(" with a pool {pool}"));
        let why = format!("{} PHP-FPM{what} are seen behind the server, and one is needed", with_pool.len());
        return Ok(Preparation::NotPreparable { why, hint: other_host_hint(with_pool.len(), "php") }.into());
    };
    if let Some(error) = foreign_namespace::refusal(fpm) {
        return Ok(Preparation::from(error).into());
    }
    let backend = match php_fpm::controllable(fpm) {
        Ok(backend) => backend,
        Err(error) => return Ok(Preparation::from(error).into()),
    };
    let preparation = php_fpm::PhpFpm.prepare(&backend, changes)?;
    Ok(Prepared { backend: Some(backend), ..preparation.into() })
}

/// An Apache behind the front: there must be just one.
fn of_apache(
    programs: &dyn Programs,
    changes: &[SettingChange],
    backends: &mut dyn FnMut() -> Result<(Vec<ServiceSnapshot>, Access)>,
) -> Result<Prepared> {
    let (found, _) = backends()?;
    let all: Vec<_> = found.iter().filter(|service| service.service == apache::NAME).collect();
    let ([behind], Some(service)) = (&all[..], programs.tunable(apache::NAME)) else {
        let why = format!("{} Apache are seen behind the server, and one is needed", all.len());
        return Ok(Preparation::not_preparable(why).into());
    };
    let refused = foreign_namespace::refusal(behind).map_or_else(|| Ok(()), Err);
    match refused.and_then(|()| service.prepare(behind, changes)) {
        Ok(preparation) => Ok(Prepared { backend: Some((*behind).clone()), ..preparation.into() }),
        Err(error) => Ok(Preparation::from(error).into()),
    }
}

fn of_service(
    programs: &dyn Programs,
    front: &ServiceSnapshot,
    name: &str,
    changes: &[SettingChange],
) -> Result<Preparation> {
    if name != front.service {
        // A backend: its program is known, and none of these can be changed yet.
        return Ok(services::only_observed(name));
    }
    if name == UNKNOWN {
        let program = front.executable.as_deref().unwrap_or(name);
        let why = format!("webdyno cannot change the settings of {program} on port {}", front.port);
        return Ok(Preparation::not_preparable(why));
    }
    match programs.tunable(name) {
        Some(service) => service.prepare(front, changes),
        None => Ok(services::only_observed(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_is_looked_for_again() {
        let services = |pids: &[u32]| -> Vec<ServiceSnapshot> {
            pids.iter().map(|pid| ServiceSnapshot { pid: *pid, ..ServiceSnapshot::default() }).collect()
        };
        for (seen, found, expected) in [
            (&[33, 61][..], &[33][..], &[33, 61][..]),
            (&[241, 61], &[33, 61], &[61, 33]),
            // A site without load may not be connected to its database.
            (&[241, 61], &[33], &[61, 33]),
            (&[], &[33], &[33]),
        ] {
            let left = still_there(services(seen), |pid| pid != 241, || Ok(services(found))).unwrap();
            assert_eq!(left.iter().map(|service| service.pid).collect::<Vec<_>>(), expected, "{seen:?}");
        }
        let refused = || Err(UserError::cannot_run("no"));
        assert!(still_there(services(&[33]), |_| true, refused).is_ok(), "nothing is read in vain");
        assert!(still_there(services(&[33]), |_| false, refused).is_err());
    }

    // With an account there webdyno could set its variables; whether it is the site's own is a guess.
    #[test]
    fn a_database_that_may_be_another_s_is_not_changed() {
        let wanted = SettingChange {
            setting: webdyno_model::setting::SettingId::of_service("mariadb", "max_connections"),
            to: webdyno_model::service::SettingValue::Integer(200),
        };
        let database =
            ServiceSnapshot { service: mariadb::NAME.into(), pid: 61, ..ServiceSnapshot::default() };
        let mut backends = || Ok((vec![database.clone()], Access::default()));
        let prepared = of_database(&[wanted], &mut backends, &|_| false).unwrap();
        let Preparation::NotPreparable { why, hint } = prepared.preparation else { panic!("{prepared:?}") };
        assert_eq!(why, "whether the site asks the database, process 61, cannot be seen");
        assert!(hint.unwrap().contains("sudo") && prepared.holders.is_empty());
    }
}
