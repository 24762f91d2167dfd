//! Flags of ab 2.4, and the same for `webdyno run`.

use super::flags::{count, text, usage, with_scheme, wrong};
use crate::terminal::print;
use lexopt::prelude::*;
use std::ffi::OsString;
use webdyno_model::{Result, UserError};

/// The tool's name.
pub const TOOL: &str = "ab";
/// Requests of a load that `-t` ends.
const REQUESTS_IN_TIME: u64 = 50_000;
const HELP: &str = "\
Usage: webdyno ab [options] [http[s]://]hostname[:port]/path
  -n requests     Requests in all (1)
  -c concurrency  Requests at once (1)
  -t seconds      Longest time of the load; implies -n 50000
  -s seconds      Longest wait for a response (30)
  -k              Keep connections
  -p file         POST the file; -T says its type
  -u file         PUT the file; -T says its type
  -T type         Content type of the body (text/plain)
  -i              HEAD instead of GET
  -m method       Another method
  -C name=value   Cookie, repeatable
  -H header       Header line, repeatable
  -A name:pass    Basic authentication
  -B address      Local address of connections
  -E file         Client certificate and key (PEM)
  -l              The length of responses may differ
  -r              Go on after errors of sockets (always so)
  -e file         Write percentiles as CSV
  -w              Print the results as a table of HTML; -x, -y, -z: attributes of its table, tr and td
  -d              Leave the table of percentiles out
  -S              Leave median and deviation out
  -q              Do not tell how far it is
  -v level        Accepted
  -V              Print the version
  -h              Print this
Not there: -b, -f, -g, -I, -P, -X, -Z (docs/compatibility.md).
";

/// What the words ask for.
#[derive(Debug, Default)]
pub struct Options {
    pub requests: u64,
    pub concurrency: u64,
    pub time_limit_s: Option<u64>,
    timeout_s: u64,
    pub keepalive: bool,
    body: Option<(&'static str, String)>,
    content_type: Option<String>,
    method: Option<String>,
    headers: Vec<String>,
    cookies: Vec<String>,
    authentication: Option<String>,
    source: Option<String>,
    certificate: Option<String>,
    pub may_differ: bool,
    pub csv: Option<String>,
    pub html: bool,
    pub attributes: [String; 3],
    pub no_percentiles: bool,
    pub no_deviation: bool,
    pub quiet: bool,
    pub url: String,
}

/// What the words ask for; `None` where they asked for the help or the version, which is printed.
pub fn parse(words: Vec<OsString>) -> Result<Option<Options>> {
    let mut options = Options { concurrency: 1, timeout_s: 30, ..Options::default() };
    let mut requests = None;
    let mut parser = lexopt::Parser::from_args(words);
    while let Some(argument) = parser.next().map_err(wrong(TOOL))? {
        match argument {
            Short('n') => requests = Some(count(TOOL, "-n", &mut parser, 1)?),
            Short('c') => options.concurrency = count(TOOL, "-c", &mut parser, 1)?,
            Short('t') => {
                options.time_limit_s = Some(count(TOOL, "-t", &mut parser, 1)?);
                requests = Some(REQUESTS_IN_TIME);
            }
            Short('h') => return print(HELP).map(|()| None),
            Short('V') => {
                return print(&format!("webdyno {} as ab\n", env!("CARGO_PKG_VERSION"))).map(|()| None);
            }
            Value(url) if options.url.is_empty() => options.url = with_scheme(&url.to_string_lossy()),
            Short(flag) => options.take(flag, &mut parser)?,
            other => return Err(wrong(TOOL)(other.unexpected())),
        }
    }
    if options.url.is_empty() {
        return Err(usage(TOOL, "no URL is given"));
    }
    options.requests = requests.unwrap_or(1);
    if options.concurrency > options.requests {
        return Err(usage(
            TOOL,
            format!("-c {} is more than the {} requests of -n", options.concurrency, options.requests),
        ));
    }
    Ok(Some(options))
}

impl Options {
    /// Whether requests have bodies.
    pub fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// A flag that is neither of size nor an end.
    fn take(&mut self, flag: char, parser: &mut lexopt::Parser) -> Result<()> {
        match flag {
            's' => self.timeout_s = count(TOOL, "-s", parser, 1)?,
            'k' => self.keepalive = true,
            'p' => self.body = Some(("POST", text(TOOL, parser)?)),
            'u' => self.body = Some(("PUT", text(TOOL, parser)?)),
            'T' => self.content_type = Some(text(TOOL, parser)?),
            'i' => self.method = Some("HEAD".into()),
            'm' => self.method = Some(text(TOOL, parser)?),
            'H' => self.headers.push(text(TOOL, parser)?),
            'C' => self.cookies.push(text(TOOL, parser)?),
            'A' => self.authentication = Some(text(TOOL, parser)?),
            'B' => self.source = Some(text(TOOL, parser)?),
            'E' => self.certificate = Some(text(TOOL, parser)?),
            'e' => self.csv = Some(text(TOOL, parser)?),
            'x' => self.attributes[0] = text(TOOL, parser)?,
            'y' => self.attributes[1] = text(TOOL, parser)?,
            'z' => self.attributes[2] = text(TOOL, parser)?,
            'l' => self.may_differ = true,
            'w' => self.html = true,
            'd' => self.no_percentiles = true,
            'S' => self.no_deviation = true,
            'q' => self.quiet = true,
            'r' => {}
            'v' => drop(count(TOOL, "-v", parser, 0)?),
            'b' | 'f' | 'g' | 'I' | 'P' | 'X' | 'Z' => {
                return Err(UserError::usage(format!("ab: -{flag} is not there"))
                    .hint("docs/compatibility.md says what is instead"));
            }
            _ => return Err(usage(TOOL, format!("-{flag} is no flag of ab"))),
        }
        Ok(())
    }

    /// The same for `webdyno run`.
    pub fn flags(&self) -> Vec<String> {
        let mut flags =
            vec![self.url.clone(), "-c".into(), self.concurrency.to_string(), "-t".into(), "1".into()];
        let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
        add("-n", &self.requests.to_string());
        add("--timeout", &format!("{}s", self.timeout_s));
        add("--ok", "100-599");
        for header in &self.headers {
            add("-H", header);
        }
        if !self.cookies.is_empty() {
            add("-H", &format!("Cookie: {}", self.cookies.join("; ")));
        }
        if let Some((method, path)) = &self.body {
            add("-m", self.method.as_deref().unwrap_or(method));
            add("--body-file", path);
            add("-H", &format!("Content-Type: {}", self.content_type.as_deref().unwrap_or("text/plain")));
        } else if let Some(method) = &self.method {
            add("-m", method);
        }
        let given = [("--auth", &self.authentication), ("--source-ip", &self.source)];
        let certificate = [("--cert", &self.certificate), ("--key", &self.certificate)];
        for (flag, value) in given.into_iter().chain(certificate) {
            value.iter().for_each(|value| add(flag, value));
        }
        // ab trusts every certificate.
        flags.extend(self.url.starts_with("https:").then(|| "--insecure".to_owned()));
        flags.extend((!self.keepalive).then(|| "--no-keepalive".to_owned()));
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::other_tools::flags::workload;

    fn options(words: &str) -> Result<Option<Options>> {
        parse(words.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn flags_are_those_of_run() {
        let parsed =
            options("-n100 -c 10 -k -H X-A:1 -C a=1 -C b=2 -s 5 -m DELETE localhost/a?b=c").unwrap().unwrap();
        let workload = workload(parsed.flags()).unwrap();
        assert_eq!((workload.connections, workload.threads, workload.keepalive), (10, Some(1), true));
        let request = &workload.requests[0];
        assert_eq!((request.method.as_str(), request.url.as_str()), ("DELETE", "http://localhost/a?b=c"));
        assert!(request.headers.contains(&("Cookie".into(), "a=1; b=2".into())), "{:?}", request.headers);
        assert_eq!((workload.timeout_us, workload.stop.requests), (5_000_000, Some(100)));
        assert!((100..600).all(|status| workload.ok_status.contains(status)));
        let in_time = options("-t 5 http://a/").unwrap().unwrap();
        assert_eq!((in_time.requests, in_time.time_limit_s), (50_000, Some(5)));
        assert!(!in_time.keepalive);
    }

    #[test]
    fn what_is_wrong_says_so() {
        for (wrong, why) in [
            ("-n 5 -c 6 http://a/", "more than the 5"),
            ("-n x http://a/", "-n takes"),
            ("-t 99999999999999999 http://a/", "-t takes"),
            ("-n 5", "no URL"),
            ("-X proxy:80 http://a/", "-X is not there"),
            ("-Q http://a/", "-Q is no flag"),
            ("--none http://a/", "--none"),
        ] {
            let error = options(wrong).unwrap_err();
            assert!(error.message.contains(why) && error.exit_code() == 2, "{wrong}: {}", error.message);
        }
    }
}
