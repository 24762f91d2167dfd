//! `webdyno lab-users`: the users of a scenario whom nobody knows. It becomes wrk where wrk can send the load, else it sends
//! the load as `webdyno run` does, and goes on until it is ended.

use crate::cli::lab_run::LabUsersArgs;
use crate::cli::stages::StageArgs;
use crate::cli::workers::OnArgs;
use crate::cli::{OutputArgs, RunArgs};
use crate::commands::run;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use webdyno_lab::packages;
use webdyno_lab::users::{SCRIPT, UsersInfo, wrk};
use webdyno_model::error::io_error;
use webdyno_model::workload::Stop;
use webdyno_model::{Result, UserError};

/// They are ended long before, or something went wrong.
const AT_MOST_S: u64 = 600;

/// Sends. Gives the exit code, or becomes wrk.
pub fn users(arguments: &LabUsersArgs) -> Result<u8> {
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|error| io_error("find", path.display(), &error));
    let place = absolute(&arguments.place)?;
    let out = arguments.output.out.as_deref().map(absolute).transpose()?;
    if let Some(place) = &arguments.directory {
        std::env::set_current_dir(place).map_err(|error| io_error("go to", place.display(), &error))?;
    }
    let draft = arguments.load.draft()?;
    let workload = arguments.load.workload_until(&draft, Stop { duration_us: None, requests: None })?;
    let users = UsersInfo::of(&workload, arguments.load.warmup)?;
    let plan = wrk::plan(&workload).ok();
    users.write(&place)?;
    if users.before_s < 0.0 {
        std::thread::sleep(Duration::from_secs_f64(-users.before_s));
    }
    match plan {
        Some(plan) => Err(exec_wrk(&plan, &place)),
        None => run::run(&run_arguments(arguments, out)),
    }
}

/// Gives why it did not become wrk.
fn exec_wrk(plan: &wrk::WrkArguments, place: &Path) -> UserError {
    let program = match packages::WRK.find() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new(&program);
    command.args(&plan.arguments).arg(format!("-d{AT_MOST_S}s"));
    if let Some(script) = &plan.script {
        let path = place.join(SCRIPT);
        if let Err(error) = std::fs::write(&path, script) {
            return io_error("write", path.display(), &error);
        }
        command.arg("-s").arg(path);
    }
    io_error("run", program.display(), &command.arg(&plan.url).exec())
}

/// The same load for `webdyno run`: it goes on, whatever comes of it.
fn run_arguments(arguments: &LabUsersArgs, out: Option<PathBuf>) -> RunArgs {
    let mut load = arguments.load.clone();
    (load.duration, load.warmup) = (Some(AT_MOST_S * 1_000_000), None);
    load.objectives.clear();
    RunArgs {
        load,
        on: OnArgs::default(),
        stages: StageArgs::default(),
        repeat: 1,
        no_early_stop: true,
        compare_documents_only: false,
        output: OutputArgs {
            exports: arguments.output.exports.clone(),
            live: arguments.output.live.clone(),
            out,
            quiet: true,
            verbose: false,
            color: clap::ColorChoice::Never,
            no_tui: true,
            web: None,
        },
    }
}
