//! Writing values into files in the format of php.ini: in place of the line that has one, else where they are read late.

use super::config::{self, Line};
use super::php::holds_for_all;
use crate::services::common::edit::{DROP_IN_HEAD, Document, Edit};
use crate::services::common::kept_values::Lines;
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// The name of our own file beside php.ini: it sorts after what people usually have.
pub const DROP_IN: &str = "zzz-webdyno.ini";

/// The part of a file that a value stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// `[global]` of FPM's configuration, or a pool.
    Named(String),
    /// Whatever of php.ini holds for all requests.
    AllRequests,
}

/// One value to be written to one file.
#[derive(Debug, Clone)]
pub struct ValueEdit {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub section: Section,
    /// `pm.max_children`.
    pub key: &'static str,
    /// As it is written.
    pub value: String,
}

/// A file in the format of php.ini.
#[derive(Debug, Default)]
pub struct IniFile(Lines);

impl Document for IniFile {
    fn parse(text: &str) -> Self {
        Self(Lines::parse(text))
    }

    fn render(&self) -> String {
        self.0.render()
    }

    /// Pools hand passwords to their programs.
    fn displayed(text: &str) -> String {
        // An old value may stand in a comment, and one of several lines in what makes no sense by itself.
        let shown = |line: &str| {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            let (mark, rest) = match line.trim_start().strip_prefix([';', '#']) {
                Some(rest) => ("; ", rest.trim_start_matches([';', '#'])),
                None => ("", line),
            };
            match config::line_of(rest.trim()) {
                Some(Line::Value(key, _)) if !is_harmless(&key) => format!("{mark}{key} = ...{end}"),
                Some(Line::Strange) if mark.is_empty() => format!("...{end}"),
                _ => line.to_owned(),
            }
        };
        text.split_inclusive('\n').map(shown).collect()
    }
}

fn is_harmless(key: &str) -> bool {
    super::settings::find(key).is_some() || super::pools::is_harmless(key)
}

impl Edit for ValueEdit {
    type Document = IniFile;

    fn file(&self) -> &Path {
        &self.file
    }

    fn is_drop_in(&self) -> bool {
        self.file.file_name().is_some_and(|name| name == DROP_IN)
    }

    fn change(&self, document: &mut IniFile, path: &Path) -> Result<()> {
        let lines = &mut document.0;
        let text = format!("{} = {}\n", self.key, self.value);
        if lines.iter().next().is_none() {
            // Comments of php.ini begin with a semicolon.
            let head = if self.is_drop_in() { DROP_IN_HEAD.replace("# ", "; ") } else { String::new() };
            lines.put(None, &head, text);
            return Ok(());
        }
        let (mut is_inside, mut known, mut last) = (self.section == Section::AllRequests, None, None);
        for (at, line) in lines.iter().enumerate() {
            match config::line_of(line.trim()) {
                Some(Line::Section(name)) => {
                    is_inside = match &self.section {
                        Section::Named(wanted) => name.eq_ignore_ascii_case(wanted),
                        Section::AllRequests => holds_for_all(&name),
                    };
                    last = if is_inside { Some(at) } else { last };
                }
                Some(Line::Value(key, _)) if is_inside => {
                    known = if key == self.key { Some(at) } else { known };
                    last = Some(at);
                }
                _ => {}
            }
        }
        match (known, last) {
            (Some(at), _) => lines.put(Some(at), "", text),
            (None, Some(at)) => lines.insert_after(at, text),
            (None, None) if self.section == Section::AllRequests => lines.put(None, "", text),
            (None, None) => {
                let why = format!("{} has no place for {}", path.display(), self.key);
                return Err(UserError::cannot_run(why).hint("make the plan again"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, section: Section, key: &'static str) -> Result<String> {
        let edit = ValueEdit { file: "/x/www.conf".into(), section, key, value: "52".into() };
        let mut document = IniFile::parse(text);
        edit.change(&mut document, &edit.file)?;
        Ok(document.render())
    }

    #[test]
    fn a_value_is_written_where_its_section_is_and_nothing_else_changes() {
        const KEY: &str = "pm.max_children";
        let www = || Section::Named("www".into());
        for (before, after) in [
            (
                "[www]\nuser = x\npm.max_children = 5 ; small\npm = static\n",
                "[www]\nuser = x\npm.max_children = 52\npm = static\n",
            ),
            // The last one of the section wins.
            (
                "[www]\npm.max_children=1\n[api]\npm.max_children=2\n[www]\npm.max_children=3",
                "[www]\npm.max_children=1\n[api]\npm.max_children=2\n[www]\npm.max_children = 52\n",
            ),
            (
                "[www]\nuser = x\n\n; pm.max_children = 9\n[api]\nuser = y\n",
                "[www]\nuser = x\npm.max_children = 52\n\n; pm.max_children = 9\n[api]\nuser = y\n",
            ),
            ("[www]", "[www]\npm.max_children = 52\n"),
        ] {
            assert_eq!(changed(before, www(), KEY).unwrap(), after);
        }
        let error = changed("[api]\nuser = y\n", www(), KEY).unwrap_err();
        assert!(error.message.contains("/x/www.conf has no place for pm.max_children"), "{error}");
        const INI: &str = "opcache.memory_consumption";
        for (before, after) in [
            ("opcache.memory_consumption=8\n", "opcache.memory_consumption = 52\n"),
            (
                "[HOST=x]\nopcache.memory_consumption=8\n[PHP]\na=1\n",
                "[HOST=x]\nopcache.memory_consumption=8\n[PHP]\na=1\nopcache.memory_consumption = 52\n",
            ),
        ] {
            assert_eq!(changed(before, Section::AllRequests, INI).unwrap(), after);
        }
    }

    #[test]
    fn our_own_file_says_whose_it_is_and_passwords_are_not_shown() {
        let edit = ValueEdit {
            file: format!("/x/{DROP_IN}").into(),
            section: Section::AllRequests,
            key: "opcache.enable",
            value: "1".into(),
        };
        let mut document = IniFile::default();
        edit.change(&mut document, &edit.file).unwrap();
        let text = document.render();
        assert!(
            text.starts_with("; Written by webdyno") && text.ends_with("\nopcache.enable = 1\n"),
            "{text}"
        );
        let text = "[www]\npm = static\nenv[DB_PASSWORD] = s3cret\n; why\n;env[OLD] = s3cret\nenv[KEY] = \"s3\ncret\"\n";
        let shown = IniFile::displayed(text);
        let expected = "[www]\npm = static\nenv[DB_PASSWORD] = ...\n; why\n; env[OLD] = ...\n...\n...\n";
        assert_eq!(shown, expected);
    }
}
