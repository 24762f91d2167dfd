//! `webdyno workload from-site`: a workload file of the pages that a walk along the links of a site finds.

use super::workload_file::new_file;
use crate::cli::workload::FromSiteArgs;
use crate::{https, terminal};
use std::io::Read;
use std::time::{Duration, Instant};
use url::Url;
use webdyno_load::workload::file::to_toml;
use webdyno_load::workload::site::{Bounds, Fetched, Robots, Walk, WalkCounts};
use webdyno_model::number::human::plural;
use webdyno_model::{Result, UserError};

/// The name that rules of robots.txt have for us.
const PROGRAM: &str = "webdyno";
/// A response that takes longer is none.
const TIMEOUT: Duration = Duration::from_secs(10);
/// More of a page is not read: its links are what is wanted.
const BODY_BYTES_MAX: u64 = 4 << 20;
/// A site that asks for more time between two requests is left alone.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Walks, and writes the file. Gives the exit code.
pub fn from_site(arguments: &FromSiteArgs) -> Result<u8> {
    let site = site_url(&arguments.url)?;
    if arguments.output.exists() {
        // Before anything is asked for.
        new_file(&arguments.output, |_| Ok(()))?;
    }
    let agent = agent();
    let robots = robots(&agent, &site)?;
    let pause = robots.crawl_delay_s.map_or(0.0, |seconds| seconds).max(1.0 / arguments.rate);
    let pause =
        Duration::try_from_secs_f64(pause).ok().filter(|pause| *pause <= DELAY_MAX).ok_or_else(|| {
            UserError::cannot_run(format!("robots.txt of {site} asks for {pause} s between two requests"))
                .hint("list the pages by hand: webdyno workload from-urls FILE")
        })?;
    let bounds = Bounds { requests_max: arguments.requests, depth_max: arguments.depth };
    let mut walk = Walk::new(site.clone(), robots, bounds);
    let mut first_error = None;
    while let Some((url, depth)) = walk.next_url() {
        let begun = Instant::now();
        let fetched = fetch(&agent, &url);
        if let Err(error) = &fetched {
            first_error.get_or_insert_with(|| error.to_string());
        }
        walk.add((url, depth), fetched.ok().as_ref());
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }
    write(arguments, &site, &walk, first_error)
}

fn write(arguments: &FromSiteArgs, site: &Url, walk: &Walk, first_error: Option<String>) -> Result<u8> {
    let (output, counts) = (arguments.output.display(), walk.counts());
    let workload = walk.workload(arguments.users).ok_or_else(|| {
        let why = match (counts.kept_out, first_error) {
            (1.., _) => "its robots.txt keeps webdyno out".into(),
            (_, Some(error)) => error,
            _ => "it answers with an error, or leads elsewhere".to_owned(),
        };
        UserError::cannot_run(format!("no page was found at {site}: {why}"))
            .hint(format!("look at it: curl -iL {site}"))
    })?;
    let count = |value: usize, noun: &str| plural(value as u64, noun);
    let what = format!("{} and {}", count(counts.pages, "page"), count(counts.files, "other file"));
    let text = to_toml(&workload)?;
    new_file(&arguments.output, |to| {
        writeln!(to, "# {what} of {site}, by webdyno workload from-site.\n{text}")
    })?;
    terminal::print(&format!(
        "{output}: {what} of {site}\n{}load them with: webdyno run --workload {output}\n",
        notes(arguments, counts)
    ))?;
    Ok(0)
}

/// What is not in it.
fn notes(arguments: &FromSiteArgs, counts: WalkCounts) -> String {
    let bounds =
        format!("not asked for any more (--requests {}, --depth {})", arguments.requests, arguments.depth);
    let lines = [
        (counts.left_out, bounds.as_str()),
        (counts.kept_out, "kept out by robots.txt"),
        (counts.failed, "answered with an error, or not at all"),
    ];
    let told = lines.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("left out: {} {what}\n", plural(*count as u64, "URL"))).collect()
}

fn site_url(text: &str) -> Result<Url> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(|url| url.has_host()).ok_or_else(|| {
        UserError::usage(format!("`{text}` is not the URL of a site")).hint("as in http://127.0.0.1:8080/")
    })?;
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => Err(UserError::usage("a walk takes no user and password in the URL")
            .hint("pages behind a login: webdyno workload from-har FILE.har")),
    }
}

/// The rules of the site. A server that cannot be reached has no pages either.
fn robots(agent: &ureq::Agent, site: &Url) -> Result<Robots> {
    let mut at = site.clone();
    at.set_path("/robots.txt");
    at.set_query(None);
    // Five redirects are followed (RFC 9309, 2.3.1.2), within the site.
    for _ in 0..=5 {
        let found = fetch(agent, &at).map_err(|error| {
            UserError::cannot_run(format!("cannot ask {site} for its robots.txt: {error}"))
                .hint(format!("look at it: curl -i {at}"))
        })?;
        let to = found.location.as_deref().filter(|_| (300..400).contains(&found.status));
        match to.and_then(|to| at.join(to).ok()).filter(|to| to.origin() == site.origin()) {
            Some(to) => at = to,
            None => return Ok(Robots::of_response(found.status, &found.body, PROGRAM)),
        }
    }
    Ok(Robots::default())
}

fn fetch(agent: &ureq::Agent, url: &Url) -> std::result::Result<Fetched, ureq::Error> {
    let response = agent.get(url.as_str()).call()?;
    let header = |name: &str| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let content_type = header("content-type");
    let location = Some(header("location")).filter(|to| !to.is_empty());
    let status = response.status().as_u16();
    let mut body = vec![];
    // Of a page that breaks off what came is enough, and of other files nothing is needed.
    if content_type.contains("html") || content_type.contains("text/plain") {
        let _ = response.into_body().into_reader().take(BODY_BYTES_MAX).read_to_end(&mut body);
    }
    Ok(Fetched { status, content_type, location, body })
}

/// Without redirects: the walk decides where they lead to.
fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
    let config = config.max_redirects(0).user_agent(concat!("webdyno/", env!("CARGO_PKG_VERSION")));
    config.tls_config(https::tls()).build().into()
}
