//! The flags of visitors: pages, users, think times, who they are; and the workload file, which can say more.

use super::{Parsed, with_hint};
use clap::Args;
use std::path::{Path, PathBuf};
use webdyno_load::workload_file::Settings;
use webdyno_model::error::io_error;
use webdyno_model::visit::{Auth, Think};
use webdyno_model::{ErrorKind, Result, UserError};

/// What visitors do.
#[derive(Debug, Clone, Default, Args)]
pub struct VisitArgs {
    /// What to load, from a file instead of URLs: requests, pages, sessions (docs/workload.md); flags given besides
    /// change what it says
    #[arg(long, value_name = "FILE.toml")]
    pub workload: Option<PathBuf>,
    /// Each URL is a page: it is loaded with its images, scripts and styles, as a browser does
    #[arg(long, conflicts_with = "workload")]
    pub page: bool,
    /// Visitors at once, each with connections and cookies of its own [default with pages: 50]
    #[arg(long, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true)]
    pub users: Option<u32>,
    /// Time that a visitor spends with each answer: 2s, 1s..3s, 'exponential 2s' (the mean) or 'log-normal 2s sigma 0.5'
    /// (the median)
    #[arg(long, value_name = "TIME", value_parser = |text: &str| with_hint(Think::parse(text)), allow_hyphen_values = true)]
    pub think: Option<Think>,
    /// Visitors keep answers as a browser's cache does
    #[arg(long)]
    pub cache: bool,
    /// Share of the visits that are made by somebody who was there before, with the same cookies and cache: 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = fraction, allow_negative_numbers = true)]
    pub returning: Option<f64>,
    /// Most connections of a visitor to one host [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), allow_negative_numbers = true)]
    pub connections_per_host: Option<u32>,
    /// Basic authentication; `ps` shows it to others here, @FILE reads it from a file
    #[arg(long, value_name = "NAME:PASSWORD|@FILE", conflicts_with = "workload")]
    pub auth: Option<String>,
    /// Bearer authentication; `ps` shows it to others here, @FILE reads it from a file
    #[arg(long, value_name = "TOKEN|@FILE", conflicts_with_all = ["auth", "workload"])]
    pub bearer: Option<String>,
}

impl VisitArgs {
    /// What these flags say counts, whatever a file says.
    pub fn change(&self, settings: &mut Settings) {
        settings.think = self.think.or(settings.think);
        settings.cache = self.cache.then_some(true).or(settings.cache);
        settings.returning_fraction = self.returning.or(settings.returning_fraction);
        settings.connections_per_host = self.connections_per_host.or(settings.connections_per_host);
    }

    /// Who sends the requests. A usage error for a file that cannot be read, and for a name without a password.
    pub fn auth(&self) -> Result<Option<Auth>> {
        if let Some(text) = &self.bearer {
            let token = secret(text, "--bearer")?;
            return sendable(&token, "--bearer").map(|()| Some(Auth::Bearer { token }));
        }
        let Some(text) = &self.auth else { return Ok(None) };
        let both = secret(text, "--auth")?;
        sendable(&both, "--auth")?;
        match both.split_once(':') {
            Some((name, password)) => Ok(Some(Auth::Basic { name: name.into(), password: password.into() })),
            None => Err(UserError::usage("--auth has no colon between name and password")
                .hint("write --auth NAME:PASSWORD, or --auth @FILE with that in its first line")),
        }
    }
}

/// The text of a flag, or the first line of the file that it names. What it is stands in no message.
fn secret(text: &str, flag: &str) -> Result<String> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    let content = std::fs::read_to_string(Path::new(path)).map_err(|error| {
        let told = io_error(&format!("read the secret of {flag} from"), path, &error);
        let hint = told.hint.clone().unwrap_or_else(|| "give a file that can be read: ls -l FILE".into());
        UserError { kind: ErrorKind::Usage, hint: Some(hint), ..told }
    })?;
    Ok(content.lines().next().unwrap_or_default().to_owned())
}

fn sendable(text: &str, flag: &str) -> Result<()> {
    if !text.is_empty() && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(UserError::usage(format!("what {flag} gives is empty, or has characters that no header can have"))
        .hint("it is one line of text"))
}

/// `30%` or `0.3`.
fn fraction(text: &str) -> Parsed<f64> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a share from 0 to 1, or from 0% to 100%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_or_percentages() {
        for (text, share) in [("0", 0.0), ("0.3", 0.3), ("30%", 0.3), ("100%", 1.0), ("1", 1.0)] {
            assert_eq!(fraction(text), Ok(share), "{text}");
        }
        for wrong in ["", "-1", "30", "101%", "nan", "x%"] {
            assert!(fraction(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secrets_come_from_flags_or_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "ann:s3:cret\n").unwrap();
        let at_file = Some(format!("@{}", path.display()));
        let basic = Auth::Basic { name: "ann".into(), password: "s3:cret".into() };
        for text in [Some("ann:s3:cret".to_owned()), at_file.clone()] {
            let arguments = VisitArgs { auth: text, ..VisitArgs::default() };
            assert_eq!(arguments.auth(), Ok(Some(basic.clone())));
        }
        let bearer = VisitArgs { bearer: at_file, ..VisitArgs::default() };
        assert_eq!(bearer.auth(), Ok(Some(Auth::Bearer { token: "ann:s3:cret".into() })));
        for wrong in ["nobody", "", "@/missing/file", "a:b\r\nX: y"] {
            let told = VisitArgs { auth: Some(wrong.into()), ..VisitArgs::default() }.auth().unwrap_err();
            assert!(told.exit_code() == 2 && told.hint.is_some(), "{told}");
        }
    }
}
