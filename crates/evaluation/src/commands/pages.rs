//! `webdyno-evaluation pages` and `table`: the generated pages of `docs/`.

use super::{print, read, write};
use crate::cli::{PagesArgs, TableArgs};
use webdyno_evaluation::{guide, table};
use webdyno_lab::scenario::Catalogue;
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// Writes the pages of all scenarios, the list of metrics, and the manual.
pub fn pages(catalogue: &Catalogue, arguments: &PagesArgs) -> Result<u8> {
    for (path, text) in guide::guide(catalogue)? {
        let path = arguments.out.join(path);
        let folder = path.parent().unwrap_or(&arguments.out);
        std::fs::create_dir_all(folder).map_err(|error| io_error("create", folder.display(), &error))?;
        write(&path, &text)?;
    }
    Ok(0)
}

/// Writes the table of runs.
pub fn table(arguments: &TableArgs) -> Result<u8> {
    let mut runs = vec![];
    for path in &arguments.files {
        runs.extend(table::read(&read(path)?, path)?);
    }
    let page = table::page(&runs, &machine());
    match &arguments.out {
        Some(path) => write(path, &page)?,
        None => print(&page)?,
    }
    Ok(0)
}

/// This machine in a few words.
fn machine() -> String {
    let machine = webdyno_host::os::machine::environment();
    let words = [
        machine.cpu_model.clone(),
        machine.cores.map(|cores| format!("{cores} cores")),
        machine.memory_bytes.map(|bytes| format!("{:.0} GiB memory", bytes as f64 / f64::from(1 << 30))),
        machine.os.clone(),
        machine.kernel.map(|kernel| format!("kernel {kernel}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
