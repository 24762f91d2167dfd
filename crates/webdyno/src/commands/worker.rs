//! `webdyno worker`: makes its part of loads that others order, within the limits that its operator sets.

use crate::cli::workers::WorkerArgs;
use crate::process::interrupt_flag;
use crate::terminal;
use std::path::Path;
use std::sync::Arc;
use webdyno_distributed::admission::Limits;
use webdyno_distributed::calibration;
use webdyno_distributed::nats::{Broker, Credentials, WorkerOptions, through_pipes, work, write_private};
use webdyno_distributed::signing::{Signer, TrustedKeys};
use webdyno_model::{Result, UserError};

/// Works until it is interrupted. Gives the exit code.
pub fn worker(arguments: &WorkerArgs) -> Result<u8> {
    if let Some(path) = &arguments.new_key {
        return make_key(path);
    }
    let on = arguments.on.as_deref().unwrap_or_default();
    if on.starts_with("local") {
        return Err(UserError::usage("local workers are started by the command that loads").hint(
            "as in webdyno run --on local:2 URL; a worker is given the servers of NATS: --on nats://HOST",
        ));
    }
    let interrupted = interrupt_flag()?;
    // What goes over ssh is the connection; its other end says what is wrong.
    let is_piped = on == "stdin";
    let mut broker = if is_piped { through_pipes(Arc::clone(&interrupted))? } else { Broker::parse(on)? };
    if !is_piped {
        broker.credentials = arguments.nats_creds.as_deref().map(Credentials::read).transpose()?;
        broker.ca_file.clone_from(&arguments.nats_ca);
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let hostname = webdyno_host::os::machine::environment().hostname;
    let limits = Limits {
        targets: arguments.targets.clone(),
        rate_per_s_max: arguments.max_rate,
        seconds_max: arguments.seconds_max,
    };
    work(WorkerOptions {
        broker,
        name: arguments.name.clone().or(hostname).unwrap_or_else(|| "worker".into()),
        build: env!("WEBDYNO_BUILD").into(),
        threads: arguments.threads.unwrap_or(cores),
        // Those of one machine would measure each other.
        requests_per_s: if arguments.parent.is_none() { calibration::requests_per_s() } else { None },
        limits,
        trusted: TrustedKeys::new(&arguments.trusted)?,
        parent: arguments.parent,
        interrupted,
        log: if is_piped { |_| {} } else { terminal::print_log_line },
    })?;
    Ok(0)
}

/// Writes the secret, and prints what workers need of it.
fn make_key(path: &Path) -> Result<u8> {
    let signer = Signer::generate();
    let written = write_private(path, &format!("{}\n", signer.seed()?));
    written.map_err(|error| error.hint("a key that is there is kept: give another name with --new-key"))?;
    terminal::print(&format!("{}\n", signer.public_key()))?;
    Ok(0)
}
