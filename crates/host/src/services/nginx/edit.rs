//! Writing values into nginx's configuration: in place of the directive that has one, else at the begin of its block.

use super::config;
use super::settings::{Block, Setting};
use super::syntax::{self, Directive};
use crate::services::common::edit::{Document, Edit};
use std::ops::Range;
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// One value to be written to one file.
#[derive(Debug, Clone)]
pub struct ValueEdit {
    /// The file.
    pub file: PathBuf,
    /// What it is a value of.
    pub setting: &'static Setting,
    /// As it is written.
    pub value: String,
    /// Whether the file has one already.
    pub replaces: bool,
}

/// A file of nginx.
#[derive(Debug, Default)]
pub struct NginxFile(String);

/// Directives beside the known settings whose lines hold no secrets.
const HARMLESS: [&str; 10] =
    ["charset", "daemon", "events", "http", "include", "index", "pid", "root", "server_name", "user"];

impl Document for NginxFile {
    fn parse(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn render(&self) -> String {
        self.0.clone()
    }

    /// Headers hand passwords to backends.
    fn displayed(text: &str) -> String {
        text.split_inclusive('\n').map(displayed_line).collect()
    }
}

fn displayed_line(line: &str) -> String {
    let begin = line.len() - line.trim_start().len();
    let first = |part: &str| part.split_ascii_whitespace().next().unwrap_or_default().to_owned();
    let mut parts = line.split([';', '{', '}']).map(str::trim);
    if parts.all(|part| part.is_empty() || part.starts_with('#') || is_harmless(&first(part))) {
        return line.to_owned();
    }
    let end = if line.ends_with('\n') { "\n" } else { "" };
    format!("{}{} ...{end}", &line[..begin], first(line))
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name) || config::is_known(name)
}

impl Edit for ValueEdit {
    type Document = NginxFile;

    fn file(&self) -> &Path {
        &self.file
    }

    fn is_drop_in(&self) -> bool {
        false
    }

    fn change(&self, document: &mut NginxFile, path: &Path) -> Result<()> {
        let text = &mut document.0;
        let (directives, _) = syntax::parse(text);
        let line = format!("{} {};", self.setting.name, self.value);
        let name = self.setting.name;
        if self.replaces {
            let [one] = &spans(&directives, name)[..] else {
                return Err(misplaced(path, &format!("just one {name}")));
            };
            text.replace_range(one.clone(), &line);
            return Ok(());
        }
        match self.setting.block.name() {
            None => text.insert_str(0, &format!("{line}\n")),
            Some(block) => {
                let [one] = &spans(&directives, block)[..] else {
                    return Err(misplaced(path, &format!("just one block {block}")));
                };
                text.insert_str(one.end, &format!("\n    {line}"));
            }
        }
        Ok(())
    }
}

fn misplaced(path: &Path, what: &str) -> UserError {
    UserError::cannot_run(format!("{} has not {what}", path.display())).hint("make the plan again")
}

/// Where the directives of a name stand.
fn spans(directives: &[Directive], name: &str) -> Vec<Range<usize>> {
    let inner = |one: &Directive| one.block.as_ref().map(|block| spans(block, name)).unwrap_or_default();
    directives
        .iter()
        .flat_map(|one| [(one.name == name).then(|| one.span.clone()).into_iter().collect(), inner(one)])
        .flatten()
        .collect()
}

/// Whether a file may get a setting that it has not: it opens the block that the setting stands in.
pub fn has_block(text: &str, block: Block) -> bool {
    block.name().is_none_or(|name| spans(&syntax::parse(text).0, name).len() == 1)
}

#[cfg(test)]
mod tests {
    use super::super::settings::find;
    use super::*;

    fn changed(text: &str, name: &str, replaces: bool) -> Result<String> {
        let edit = ValueEdit {
            file: "/x/nginx.conf".into(),
            setting: find(name).unwrap(),
            value: "4096".into(),
            replaces,
        };
        let mut document = NginxFile::parse(text);
        edit.change(&mut document, &edit.file)?;
        Ok(document.render())
    }

    #[test]
    fn a_value_is_written_where_it_stands_and_nothing_else_changes() {
        for (before, name, replaces, after) in [
            (
                "user x; # worker_connections 1;\nevents { worker_connections\n 768 ; } # a\nhttp {}",
                "worker_connections",
                true,
                "user x; # worker_connections 1;\nevents { worker_connections 4096; } # a\nhttp {}",
            ),
            ("events {}\n", "worker_connections", false, "events {\n    worker_connections 4096;}\n"),
            (
                "a b;\nevents {\n}\nhttp {\n  c d;\n}\n",
                "keepalive_requests",
                false,
                "a b;\nevents {\n}\nhttp {\n    keepalive_requests 4096;\n  c d;\n}\n",
            ),
            ("events {}\n", "worker_rlimit_nofile", false, "worker_rlimit_nofile 4096;\nevents {}\n"),
        ] {
            assert_eq!(changed(before, name, replaces).unwrap(), after);
        }
        for (text, name, replaces, why) in [
            (
                "http { server { sendfile on; } server { sendfile off; } }",
                "sendfile",
                true,
                "just one sendfile",
            ),
            ("events {}", "worker_connections", true, "just one worker_connections"),
            ("user x;", "worker_connections", false, "just one block events"),
        ] {
            let error = changed(text, name, replaces).unwrap_err();
            assert!(error.message.contains(why), "{error}");
        }
        assert!(has_block("events {}", Block::Events) && !has_block("events {}", Block::Http));
    }

    #[test]
    fn passwords_are_not_shown() {
        let text = "http {\n  proxy_set_header X-Token s3cret;\n  worker_connections 5;\n  # why\n  sendfile on; }\n\n\
                    sendfile on; proxy_set_header X s3cret; }";
        assert_eq!(
            NginxFile::displayed(text),
            "http {\n  proxy_set_header ...\n  worker_connections 5;\n  # why\n  sendfile on; }\n\nsendfile ..."
        );
    }
}
