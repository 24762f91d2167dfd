//! Lists as files: read piece by piece, so that a long one is in memory once.

use super::{ListContext, Reader, UrlList};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use webdyno_model::error::io_error;
use webdyno_model::{ErrorKind, Result, UserError};

/// What is read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Longest body that is sent.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// Reads the list in a file, or on stdin when that is `-`. Lines without a method have this one. Files of bodies are
/// looked for where webdyno runs, as siege does, and then beside the list. A usage error for one that is wrong or
/// cannot be read.
pub fn read(path: &Path, method: &str) -> Result<UrlList> {
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let variable = |name: &str| std::env::var(name).ok();
    let mut body = |named: &Path| match body_of(named) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => body_of(&folder.join(named)),
        other => other,
    };
    let is_stdin = path.as_os_str() == "-";
    let display_name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let cannot = |error: &io::Error| {
        let error = io_error("read", &display_name, error);
        let hint = error.hint.clone().unwrap_or_else(|| "give a file with one URL a line: ls -l FILE".into());
        UserError { kind: ErrorKind::Usage, hint: Some(hint), ..error }
    };
    let mut source: Box<dyn Read> = match is_stdin {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(|error| cannot(&error))?),
    };
    let mut reader = Reader::new(&display_name, ListContext { method, variable: &variable, read: &mut body });
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match source.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => reader.feed(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot(&error)),
        }
    }
    drop(piece);
    reader.finish()
}

/// The bytes of a body's file.
fn body_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BODY_BYTES_MAX {
        true => Err(io::Error::other("it has more than 64 MiB, which is the most that can be sent")),
        false => Ok(bytes),
    }
}
