//! The flags of visitors: pages, users, think times, who they are; and the workload file, which can say more.

use super::{ParseResult, whole};
use clap::Args;
use std::path::{Path, PathBuf};
use webdyno_load::workload::file::Settings;
use webdyno_model::error::io_error;
use webdyno_model::workload::visit::{Auth, Think};
use webdyno_model::{ErrorKind, Result, UserError};

/// What visitors do.
#[derive(Debug, Clone, Default, Args)]
pub struct VisitArgs {
    /// Load requests, pages, sessions described in FILE
    ///
    /// Instead of URLs; docs/workload.md has every key, and other flags override what the file says
    #[arg(long, value_name = "FILE.toml")]
    pub workload: Option<PathBuf>,
    /// Load each URL as a page with its resources
    ///
    /// Images, scripts and styles, as a browser does
    #[arg(long, conflicts_with = "workload")]
    pub page: bool,
    /// Virtual users with own cookies and connections
    ///
    /// Default with pages: 50
    #[arg(long, value_name = "N", conflicts_with = "rate", value_parser = whole::<u32>(1..=1_000_000, "20"), allow_negative_numbers = true)]
    pub users: Option<u32>,
    /// Think time of a user after each response: 2s, 1s..3s, ..
    ///
    /// Also 'exponential 2s' (the mean), 'log-normal 2s sigma 0.5' (the median) and none
    #[arg(long, value_name = "TIME", value_parser = Think::parse, allow_hyphen_values = true)]
    pub think: Option<Think>,
    /// Users cache responses as browsers do
    #[arg(long)]
    pub cache: bool,
    /// Share of sessions by returning users, with their cookies and cache: 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = fraction, allow_negative_numbers = true)]
    pub returning: Option<f64>,
    /// Maximum of connections of a user to one host [default: 6]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=256, "6"), allow_negative_numbers = true)]
    pub connections_per_host: Option<u32>,
    /// Basic authentication; @FILE reads it from a file, which `ps` does not show
    #[arg(long, value_name = "NAME:PASSWORD|@FILE", conflicts_with = "workload")]
    pub auth: Option<String>,
    /// Bearer authentication; @FILE reads it from a file, which `ps` does not show
    #[arg(long, value_name = "TOKEN|@FILE", conflicts_with_all = ["auth", "workload"])]
    pub bearer: Option<String>,
}

impl VisitArgs {
    /// What these flags say counts, whatever a file says.
    pub fn apply_flags(&self, settings: &mut Settings) {
        settings.think = self.think.or(settings.think);
        settings.cache = self.cache.then_some(true).or(settings.cache);
        settings.returning_fraction = self.returning.or(settings.returning_fraction);
        settings.connections_per_host = self.connections_per_host.or(settings.connections_per_host);
    }

    /// Who sends the requests. A usage error for a file that cannot be read, and for a name without a password.
    pub fn auth(&self) -> Result<Option<Auth>> {
        if let Some(text) = &self.bearer {
            let token = secret(text, "--bearer")?;
            return check_credential(&token, "--bearer").map(|()| Some(Auth::Bearer { token }));
        }
        let Some(text) = &self.auth else { return Ok(None) };
        let both = secret(text, "--auth")?;
        check_credential(&both, "--auth")?;
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
        let reported = io_error(&format!("read the secret of {flag} from"), path, &error);
        let hint = reported.hint.clone().unwrap_or_else(|| "give a file that can be read: ls -l FILE".into());
        UserError { kind: ErrorKind::Usage, hint: Some(hint), ..reported }
    })?;
    Ok(content.lines().next().unwrap_or_default().to_owned())
}

fn check_credential(text: &str, flag: &str) -> Result<()> {
    if !text.is_empty() && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(UserError::usage(format!("what {flag} gives is empty, or has characters that no header can have"))
        .hint("it is one line of text"))
}

/// `30%` or `0.3`.
fn fraction(text: &str) -> ParseResult<f64> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share from 0 to 1, as 30% or 0.3".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use webdyno_model::workload::{Arrival, Workload};

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
            let reported = VisitArgs { auth: Some(wrong.into()), ..VisitArgs::default() }.auth().unwrap_err();
            assert!(reported.exit_code() == 2 && reported.hint.is_some(), "{reported}");
        }
    }

    fn workload(arguments: &[&str]) -> Result<Workload> {
        let all = ["webdyno", "run"].iter().chain(arguments);
        match <Cli as clap::Parser>::try_parse_from(all).unwrap().command {
            Command::Run(run) => {
                let draft = run.draft()?;
                run.load.workload(&draft)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pages_have_visitors_and_connections_enough() {
        let of = |arguments: &[&str]| {
            let all = [&["http://a/", "http://b/x", "--page"], arguments].concat();
            let workload = workload(&all).unwrap();
            let visits = workload.visits.unwrap();
            let has_pages = visits.sessions.iter().all(|session| session.steps[0].page.is_some());
            (has_pages, visits.sessions.len(), visits.users, workload.connections, workload.arrival)
        };
        // 6 connections of each visitor to each of two servers.
        assert_eq!(of(&[]), (true, 2, 50, 600, Arrival::Closed));
        assert_eq!(of(&["--users", "3", "--connections-per-host", "2"]), (true, 2, 3, 12, Arrival::Closed));
        assert_eq!(of(&["-c", "9"]), (true, 2, 50, 9, Arrival::Closed));
        let open = Arrival::Open { rate_per_s: 70.0, poisson: false };
        let (.., connections, arrival) = of(&["-r", "70"]);
        assert!(arrival == open && (1..=10_000).contains(&connections), "{connections}");
    }

    #[test]
    fn users_without_pages_make_requests_and_think() {
        let load = workload(&["http://a/", "--users", "7", "--think", "1s..3s", "--no-keepalive"]).unwrap();
        let visits = load.visits.unwrap();
        assert_eq!((visits.users, load.connections, load.keepalive, load.redirects_max), (7, 7, false, 10));
        assert_eq!(visits.think, Think::Uniform { min_us: 1_000_000, max_us: 3_000_000 });
        assert!(visits.sessions[0].steps[0].page.is_none() && visits.cookies && !visits.cache);
        let plain = workload(&["http://a/", "--auth", "ann:x"]).unwrap();
        assert!(plain.visits.is_none() && plain.requests[0].auth.is_some() && plain.connections == 50);
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        for (arguments, part) in [
            (&["http://a/", "--page", "-n", "100"][..], "-d instead of -n"),
            (&["http://a/", "--users", "5", "-n", "100"], "-d instead of -n"),
        ] {
            let reported = workload(arguments).unwrap_err();
            assert!(
                reported.hint.as_ref().is_some_and(|hint| hint.contains(part)),
                "{arguments:?}: {reported}"
            );
        }
        for arguments in [
            &["http://a/", "--users", "5", "-r", "9"][..],
            &["--workload", "a.toml", "--page"],
            &["--workload", "a.toml", "--auth", "a:b"],
            &["http://a/", "--auth", "a:b", "--bearer", "t"],
            &["http://a/", "--think", "2"],
            &["http://a/", "--users", "0"],
            &["http://a/", "--connections-per-host", "0"],
        ] {
            let all = ["webdyno", "run"].iter().chain(arguments);
            assert_eq!(
                <Cli as clap::Parser>::try_parse_from(all).unwrap_err().exit_code(),
                2,
                "{arguments:?}"
            );
        }
    }

    const FILE: &str = "base = \"http://h/\"\nusers = 5\nduration = \"9s\"\nthink = \"1s\"\ncache = true\nseed = 4\n\
                        timeout = \"3s\"\nslo = [\"p99<1s\"]\nexpect = [\"length=1\"]\n[[page]]\nurl = \"/\"\n";

    #[test]
    fn flags_count_more_than_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, FILE).unwrap();
        let file = path.to_str().unwrap();
        let plain = workload(&["--workload", file]).unwrap();
        assert_eq!((plain.seed, plain.timeout_us, plain.stop.duration_us), (4, 3_000_000, Some(9_000_000)));
        let flags =
            "-d 2s --users 8 --seed 0 --timeout 1s --think none --ok 200 --redirects 0 --returning 25%";
        let all: Vec<&str> =
            ["--workload", file, "--expect", "status=200"].into_iter().chain(flags.split(' ')).collect();
        let load = workload(&all).unwrap();
        let visits = load.visits.unwrap();
        assert_eq!((load.seed, load.timeout_us, load.stop.duration_us), (0, 1_000_000, Some(2_000_000)));
        assert_eq!((visits.users, visits.think, visits.returning_fraction), (8, Think::None, 0.25));
        assert_eq!((load.redirects_max, load.expect.len(), visits.cache), (0, 2, true));
        // A rate takes the place of the users.
        let open = workload(&["--workload", file, "-r", "3"]).unwrap();
        assert_eq!(open.arrival, Arrival::Open { rate_per_s: 3.0, poisson: false });
        for other in [&["http://a/"][..], &["-m", "PUT"], &["-H", "A: b"], &["-b", "x"], &["--urls", "x"]] {
            let reported = workload(&[&["--workload", file], other].concat()).unwrap_err();
            assert!(
                reported.message.contains("says what is sent") && reported.exit_code() == 2,
                "{reported}"
            );
        }
        std::fs::write(
            &path,
            format!("stage = [\"5s@5/s\"]\n{}", FILE.replace("users = 5\nduration = \"9s\"\n", "")),
        )
        .unwrap();
        for other in [&["-d", "2s"][..], &["--users", "5"], &["-r", "5"]] {
            let reported = workload(&[&["--workload", file], other].concat()).unwrap_err();
            assert!(reported.message.contains("the load has stages"), "{other:?}: {reported}");
        }
    }
}
