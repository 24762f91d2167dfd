//! `webdyno packaging DIR`: man pages and shell completions, made of the definition of the command line.
//!
//! Where they belong: man-db's manpath(5), the READMEs of bash-completion and of Debian's zsh, fish's `fish_complete_path`.

use crate::cli::help;
use clap::builder::Resettable;
use clap::{Arg, Command};
use clap_complete::Shell;
use std::io;
use std::path::Path;
use webdyno_model::{Result, UserError};

/// Folder and name of each shell's completions.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "webdyno"),
    (Shell::Zsh, "zsh/vendor-completions", "_webdyno"),
    (Shell::Fish, "fish/vendor_completions.d", "webdyno.fish"),
];

/// Writes all of them below this folder.
pub fn write(share: &Path) -> Result<u8> {
    write_all(share).map_err(|error| {
        UserError::cannot_run(format!("cannot write below {}: {error}", share.display()))
            .hint("name a directory that you may write, as ~/.local/share")
    })?;
    Ok(0)
}

fn write_all(share: &Path) -> io::Result<()> {
    let pages = share.join("man/man1");
    std::fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(documented(help::command(true)), pages)?;
    let mut offered = offered(&help::command(false));
    for (shell, folder, name) in COMPLETIONS {
        let folder = share.join(folder);
        std::fs::create_dir_all(&folder)?;
        let mut text = vec![];
        clap_complete::generate(shell, &mut offered, "webdyno", &mut text);
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// Pages have the documentation of all flags, also of those that the short help leaves out.
fn documented(command: Command) -> Command {
    command
        .long_version(Resettable::Reset)
        .mut_args(|arg| arg.hide_short_help(false))
        .mut_subcommands(documented)
}

/// What is there to be completed: without commands and flags that help does not show either.
fn offered(command: &Command) -> Command {
    // Names of a definition are static; the process ends soon.
    let permanent = |text: &str| -> &'static str { text.to_owned().leak() };
    let flag = |arg: &Arg| {
        Arg::new(arg.get_id().clone())
            .short(arg.get_short())
            .long(arg.get_long().map(permanent))
            .help(arg.get_help().cloned().unwrap_or_default())
            .action(arg.get_action().clone())
            .value_hint(arg.get_value_hint())
            .value_parser(arg.get_value_parser().clone())
            .value_names(arg.get_value_names().unwrap_or_default().to_vec())
    };
    Command::new(permanent(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).map(flag))
        .subcommands(command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(offered))
}
