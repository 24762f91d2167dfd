//! `webdyno workload from-tree`: a workload that asks for the files of a tree.
//!
//! Every regular file is asked for. Links are followed, to files and to directories, as Apache does where its Options say
//! FollowSymLinks; one that leads nowhere, or back to where it stands, is left out and told. So is what is hidden, unless it
//! is wanted.

use super::make_tree::{count_with_noun, line};
use super::workload_file::{new_file, relative_path, toml_string};
use crate::cli::tree::FromTreeArgs;
use crate::process::interrupt_flag;
use crate::terminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use url::Url;
use walkdir::{DirEntry, WalkDir};
use webdyno_load::workload::tree::{Popularity, share_by_count, spread, weights};
use webdyno_model::error::io_error;
use webdyno_model::number::prose::format_binary_bytes;
use webdyno_model::{ErrorKind, Result, UserError};

/// Shares of the requests whose files are told.
const SHARES: [f64; 3] = [0.8, 0.95, 0.99];

/// The files of a tree, in the order of their paths.
#[derive(Debug, Default)]
struct TreeFiles {
    /// Percent-encoded, below the tree.
    paths: Vec<String>,
    sizes: Vec<u64>,
    hidden: u64,
    /// Links that lead nowhere or in a circle, and what cannot be read: how many, and the first of them.
    left_out: u64,
    first_left_out: Option<String>,
}

/// Writes the workload file and its list. Gives the exit code.
pub fn from_tree(arguments: &FromTreeArgs) -> Result<u8> {
    let base = base(&arguments.url)?;
    let interrupted = interrupt_flag()?;
    let files = walk(&arguments.directory, arguments.hidden, &interrupted)?;
    let directory = arguments.directory.display();
    if files.paths.is_empty() {
        let hidden = if files.hidden > 0 { " that is not hidden" } else { "" };
        return Err(UserError::usage(format!("there is no file{hidden} in {directory}")).hint(
            "give the directory that the server serves; --hidden takes in names that begin with a dot",
        ));
    }
    let weights = weights(arguments.popularity, files.paths.len(), arguments.seed);
    let output = &arguments.output;
    let list = output.with_extension("urls");
    if &list == output {
        return Err(UserError::usage("the workload file would have the name of its list")
            .hint("name it with --output as in mix.toml"));
    }
    let law = match arguments.popularity {
        Popularity::Uniform => "each in its turn".to_owned(),
        Popularity::Zipf { exponent } => {
            format!("drawn by Zipf's law with exponent {exponent}, seed {}", arguments.seed)
        }
    };
    let about =
        format!("{} of {directory}, {law}", count_with_noun(files.paths.len() as u64, "file", "files"));
    write_list(&list, &base, &files, &weights, arguments.popularity)?;
    let workload = new_file(output, |to| {
        writeln!(to, "# {}, by webdyno workload from-tree.", about.replace(char::is_control, " "))?;
        writeln!(to, "[urls]\nfile = {}", toml_string(&relative_path(output, &list).to_string_lossy()))
    });
    // The list alone is of no use.
    workload.inspect_err(|_| drop(std::fs::remove_file(&list)))?;
    let mut text = format!("{}: {about}\n", output.display());
    files.write_left_out(&mut text);
    if arguments.size_distribution {
        distribution(&files.sizes, &weights, &mut text);
    }
    text.push_str(&format!("load them with: webdyno run --workload {}\n", output.display()));
    terminal::print(&text)?;
    Ok(0)
}

/// The URL of the tree, without the slash at its end.
fn base(text: &str) -> Result<String> {
    let url = webdyno_load::check_url(text)?;
    let (query, fragment) = (url.query(), url.fragment());
    if query.is_some() || fragment.is_some() {
        return Err(UserError::usage(format!(
            "`{text}` has a query or a fragment, and paths are to follow it"
        ))
        .hint("give the URL of the directory, as in --url http://localhost:8080/files"));
    }
    // `$` would begin a variable of the list.
    Ok(Url::as_str(&url).trim_end_matches('/').replace('$', "%24"))
}

fn walk(root: &Path, hidden: bool, interrupted: &AtomicBool) -> Result<TreeFiles> {
    let cannot = |error: &std::io::Error| {
        let reported = io_error("look into", root.display(), error);
        let hint =
            reported.hint.clone().unwrap_or_else(|| "give the directory that the server serves".into());
        UserError { kind: ErrorKind::Usage, hint: Some(hint), ..reported }
    };
    std::fs::read_dir(root).map_err(|error| cannot(&error))?;
    let mut files = TreeFiles::default();
    let is_hidden = |entry: &DirEntry| entry.depth() > 0 && entry.file_name().as_bytes().starts_with(b".");
    let mut entries = WalkDir::new(root).follow_links(true).sort_by_file_name().into_iter();
    while let Some(entry) = entries.next() {
        if interrupted.load(Ordering::Relaxed) {
            return Err(UserError::interrupted());
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                files.record_left_out(error.path().unwrap_or(root));
                continue;
            }
        };
        if is_hidden(&entry) && !hidden {
            files.hidden += 1;
            if entry.file_type().is_dir() {
                entries.skip_current_dir();
            }
            continue;
        }
        if !entry.file_type().is_file() {
            continue;
        }
        match (entry.metadata(), entry.path().strip_prefix(root)) {
            (Ok(metadata), Ok(path)) => {
                files.paths.push(encoded(path));
                files.sizes.push(metadata.len());
            }
            _ => files.record_left_out(entry.path()),
        }
    }
    Ok(files)
}

/// A path as a URL has it: RFC 3986, 3.3. Whatever could mean something else there, or in a list, is percent-encoded.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for part in path {
        text.push('/');
        for &byte in part.as_bytes() {
            match byte.is_ascii_alphanumeric() || b"-._~!&()*+,;=:@".contains(&byte) {
                true => text.push(char::from(byte)),
                false => text.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    text
}

fn write_list(
    path: &Path,
    base: &str,
    files: &TreeFiles,
    weights: &[f64],
    popularity: Popularity,
) -> Result<()> {
    new_file(path, |to| {
        for (path, weight) in files.paths.iter().zip(weights) {
            match popularity {
                Popularity::Uniform => writeln!(to, "{base}{path}")?,
                Popularity::Zipf { .. } => writeln!(to, "{base}{path}#weight={weight:.6}")?,
            }
        }
        Ok(())
    })
}

/// How sizes and requested bytes are distributed.
fn distribution(sizes: &[u64], weights: &[f64], text: &mut String) {
    let alike = vec![1.0; sizes.len()];
    let (Some(stored), Some(requested)) = (spread(sizes, &alike), spread(sizes, weights)) else { return };
    let total: u64 = sizes.iter().sum();
    text.push_str(&format!("all files      {}\n", format_binary_bytes(total as f64)));
    text.push_str(&format!("  of each file     {}\n", line(&stored)));
    text.push_str(&format!("  of each request  {}\n", line(&requested)));
    text.push_str("working set: the most popular files that make so many of the requests\n");
    for share in SHARES {
        let (count, bytes) = share_by_count(sizes, weights, share);
        text.push_str(&format!(
            "  {:>3.0}%  {count} files, {}\n",
            share * 100.0,
            format_binary_bytes(bytes as f64)
        ));
    }
}

impl TreeFiles {
    fn record_left_out(&mut self, path: &Path) {
        self.left_out += 1;
        self.first_left_out.get_or_insert_with(|| path.display().to_string());
    }

    fn write_left_out(&self, text: &mut String) {
        if self.hidden > 0 {
            text.push_str(&format!(
                "{} hidden files or directories are left out (--hidden takes them in)\n",
                self.hidden
            ));
        }
        if let Some(first) = &self.first_left_out {
            text.push_str(&format!(
                "{} that cannot be read, or are links to nowhere or in a circle, are left out: {first}{}\n",
                self.left_out,
                if self.left_out > 1 { ", ..." } else { "" }
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn paths_are_encoded_so_that_a_server_finds_them() {
        for (path, expected) in [
            (&b"a/b.html"[..], "/a/b.html"),
            (b"a b", "/a%20b"),
            (b"50%", "/50%25"),
            (b"a?b#c", "/a%3Fb%23c"),
            ("ü".as_bytes(), "/%C3%BC"),
            (b"\xE9", "/%E9"),
            (b"${x}", "/%24%7Bx%7D"),
            (b"a\nb\\", "/a%0Ab%5C"),
            (b"'\"<>`|^[]{}", "/%27%22%3C%3E%60%7C%5E%5B%5D%7B%7D"),
            (b"-_.~!&()*+,;=:@", "/-_.~!&()*+,;=:@"),
        ] {
            assert_eq!(encoded(Path::new(OsStr::from_bytes(path))), expected);
        }
    }

    #[test]
    fn the_base_is_a_directory() {
        assert_eq!(base("http://H:80/a b/").unwrap(), "http://h/a%20b");
        assert_eq!(base("http://h").unwrap(), "http://h");
        for wrong in ["h", "http://h/?a", "http://h/#a", "ftp://h/", "/srv/www"] {
            assert_eq!(base(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
