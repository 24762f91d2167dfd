//! `webdyno serve [DIR]`: the sessions below a directory in a browser.

use crate::cli::serve::ServeArgs;
use crate::process::interrupt_flag;
use crate::terminal;
use crate::web::{Control, Served, WebServer};
use std::sync::atomic::Ordering;
use std::time::Duration;
use webdyno_model::{Result, UserError};
use webdyno_session::history::history;

/// Serves until it is interrupted.
pub fn serve(arguments: &ServeArgs) -> Result<u8> {
    let (address, directory) = (arguments.listen, &arguments.directory);
    if !address.ip().is_loopback() && !arguments.allow_remote {
        let port = if address.port() == 0 { 8090 } else { address.port() };
        return Err(UserError::usage(format!("{address} is reached by other machines, and what is served is not encrypted"))
            .hint(format!(
                "listen on 127.0.0.1:{port}, and use `ssh -L {port}:127.0.0.1:{port} HOST` from elsewhere; --allow-remote listens all the same"
            )));
    }
    // What is wrong with the directory is said before a browser is opened, and the index is made.
    let index_error = history(directory, terminal::print_reading)?.index_error;
    if let Some(error) = index_error {
        terminal::print_status(&format!("webdyno: {error}; every list reads all recordings again"));
    }
    let control = arguments.control.then(|| Control::new(&arguments.workloads, directory)).transpose()?;
    let interrupted = interrupt_flag()?;
    let server = WebServer::start(address, Served::Below(directory.clone()), control)?;
    terminal::print(&format!("{}\n", server.url()))?;
    while !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    server.end_run();
    Ok(0)
}
