//! `webdyno workload from-urls`: a workload file of a list of URLs.

use super::workload_file::{new_file, relative_path, toml_string};
use crate::cli::tree::FromUrlsArgs;
use crate::terminal;
use webdyno_load::workload::urls;
use webdyno_model::{Result, UserError};

/// Reads the list, and writes the file. Gives the exit code.
pub fn from_urls(arguments: &FromUrlsArgs) -> Result<u8> {
    let (file, output) = (&arguments.file, &arguments.output);
    if file.as_os_str() == "-" {
        return Err(UserError::usage("a workload file names its list, and stdin has no name")
            .hint("write the list to a file first"));
    }
    let list = urls::read(file, "GET")?;
    let count = list.entries.entries.len();
    if arguments.random && !list.entries.weights.is_empty() {
        return Err(UserError::usage(format!("{} says by weights how its URLs are drawn", file.display()))
            .hint("leave --random out, or the weights"));
    }
    new_file(output, |to| {
        writeln!(to, "# {count} requests of a list, by webdyno workload from-urls.")?;
        writeln!(to, "[urls]\nfile = {}", toml_string(&relative_path(output, file).to_string_lossy()))?;
        if arguments.random { writeln!(to, "order = \"random\"") } else { Ok(()) }
    })?;
    terminal::print(&format!(
        "{}: {count} requests of {}\nload them with: webdyno run --workload {}\n",
        output.display(),
        file.display(),
        output.display()
    ))?;
    Ok(0)
}
