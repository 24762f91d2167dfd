//! `webdyno agent`: the server's end of `--server`, and the guardian that reverts when the tool is gone.

use crate::cli::AgentArgs;
use webdyno_host::agent::{Options, serve_stdio};
use webdyno_model::Result;

/// Serves one tool on stdin and stdout.
pub fn agent(arguments: &AgentArgs) -> Result<u8> {
    serve_stdio(Options::for_this_machine(arguments.settings_only)?)?;
    Ok(0)
}
