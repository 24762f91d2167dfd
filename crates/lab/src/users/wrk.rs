//! A scenario's load as wrk(1) sends it: its arguments and, where these do not say enough, a script. Pure.
//!
//! Facts: wrk 4.1, SCRIPTING and src/wrk.c: `request()` is asked for each request, `delay()` for the milliseconds before it,
//! each thread has a state of its own; a connection that was closed is opened anew before the delay, not behind it.

use std::fmt::Write as _;
use url::Url;
use webdyno_model::workload::visit::{ListEntries, Think, Visits};
use webdyno_model::workload::{Arrival, RequestSpec, Workload};

/// Threads of wrk: more than these only share out the same connections.
const THREADS_MAX: u32 = 2;

/// What wrk is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrkArguments {
    /// Its arguments but for the duration, the script and the URL.
    pub arguments: Vec<String>,
    /// The URL.
    pub url: String,
    /// The script, where one is needed.
    pub script: Option<String>,
}

/// What wrk can send of this load; an error says what it cannot.
pub fn plan(workload: &Workload) -> Result<WrkArguments, &'static str> {
    let think = think_time(workload)?;
    refuse_unsupported(workload)?;
    let first = workload.requests.first().ok_or("there is nothing to send")?;
    let users = workload.visits.as_ref().map_or(workload.connections, |visits| visits.users);
    let mut arguments = vec![
        format!("-t{}", users.clamp(1, THREADS_MAX)),
        format!("-c{}", users.max(1)),
        "--timeout".into(),
        format!("{}s", workload.timeout_us.div_ceil(1_000_000)),
    ];
    let close = ("Connection".to_owned(), "close".to_owned());
    for (name, value) in first.headers.iter().chain((!workload.keepalive).then_some(&close)) {
        arguments.extend(["-H".into(), format!("{name}: {value}")]);
    }
    let all = requests(workload)?;
    let is_plain = matches!(&all[..], [(method, _, body)] if method == "GET" && body.is_empty());
    let random = workload.list.as_ref().is_some_and(|list| list.random);
    let script = (!is_plain || think != Think::None).then(|| script(&all, random, think));
    Ok(WrkArguments { arguments, url: first.url.clone(), script })
}

/// The port of a URL.
pub fn port(url: &str) -> Option<u16> {
    Url::parse(url).ok()?.port_or_known_default()
}

/// How long users think, if that is all that they do besides asking.
fn think_time(workload: &Workload) -> Result<Think, &'static str> {
    if !matches!(workload.arrival, Arrival::Closed) || !workload.stages.is_empty() {
        return Err("wrk sends at no rate of its own");
    }
    let Some(visits) = &workload.visits else { return Ok(Think::None) };
    let Visits { sessions, think, returning_fraction, .. } = &**visits;
    let steps = || sessions.iter().flat_map(|session| &session.steps);
    if steps().any(|step| step.page.is_some()) {
        return Err("wrk knows no pages");
    }
    let leaves = *returning_fraction < 1.0 || sessions.iter().any(|session| session.steps.len() != 1);
    if leaves || steps().any(|step| step.think.is_some() || !step.captures.is_empty()) {
        return Err("wrk knows no visitors who come and go");
    }
    match (*think, workload.keepalive) {
        (Think::None, _) | (_, true) => Ok(*think),
        _ => Err("wrk opens the next connection before its users think, not after it"),
    }
}

/// What only our own generator does.
fn refuse_unsupported(workload: &Workload) -> Result<(), &'static str> {
    let transport = &workload.transport;
    let tls = &transport.tls;
    let origin = |request: &RequestSpec| Url::parse(&request.url).map(|url| url.origin());
    let first = workload.requests.first();
    let alike = |request: &RequestSpec| {
        first.is_some_and(|first| request.headers == first.headers && origin(request) == origin(first))
    };
    for (is_ours, why) in [
        (!transport.source_ips.is_empty(), "wrk has one source address"),
        (
            !transport.connect_to.is_empty() || transport.unix_socket.is_some() || transport.proxy.is_some(),
            "wrk goes where the URL says",
        ),
        (tls.no_resumption, "wrk decides itself which TLS sessions it resumes"),
        (tls.ca_file.is_some() || tls.certificate_file.is_some(), "wrk has no certificates"),
        (!workload.requests.iter().all(alike), "wrk asks one server, with the same headers each time"),
        (workload.requests.iter().any(|request| request.has_variables), "wrk fills in no variables"),
        (workload.requests.iter().any(|request| request.auth.is_some()), "wrk does not log in"),
        (
            first.is_some_and(|first| {
                !workload.requests.iter().all(|one| one.weight.total_cmp(&first.weight).is_eq())
            }),
            "wrk draws by no weights",
        ),
        (workload.list.as_ref().is_some_and(|list| list.weighted), "wrk draws by no weights"),
    ] {
        if is_ours {
            return Err(why);
        }
    }
    Ok(())
}

type WrkRequest = (String, String, Vec<u8>);

/// Method, path with query, and body of everything that is sent, in its order.
fn requests(workload: &Workload) -> Result<Vec<WrkRequest>, &'static str> {
    let entries = workload.list.as_ref().map(|list| list.entries.as_deref().ok_or("its list is not here"));
    if let Some(entries) = entries.transpose()? {
        return Ok(list_requests(workload, entries));
    }
    let of = |request: &RequestSpec| {
        // As it is written: wrk sends what the script names.
        let rest = request.url.split_once("://").map_or("", |(_, rest)| rest);
        let path = rest.find(['/', '?']).map_or("/", |at| &rest[at..]);
        (request.method.clone(), path.to_owned(), request.body.bytes().to_vec())
    };
    Ok(workload.requests.iter().map(of).collect())
}

fn list_requests(workload: &Workload, entries: &ListEntries) -> Vec<WrkRequest> {
    let method =
        |kind: u32| workload.requests.get(kind as usize).map_or("GET".to_owned(), |one| one.method.clone());
    let of = |entry| {
        let entry: &webdyno_model::workload::visit::ListEntry = entry;
        let path = String::from_utf8_lossy(entries.target(entry)).into_owned();
        (method(entry.kind), path, entries.body(entry).0.to_vec())
    };
    entries.entries.iter().map(of).collect()
}

/// A script that asks for all of these, in turn or drawn, and thinks before each.
fn script(all: &[WrkRequest], random: bool, think: Think) -> String {
    let mut script = "local all = {}\nlocal last = 0\n\nfunction init(arguments)\n".to_owned();
    for (method, path, body) in all {
        let body = if body.is_empty() { "nil".into() } else { lua_string(body) };
        let _ = writeln!(
            script,
            "  all[#all + 1] = wrk.format({}, {}, nil, {body})",
            lua_string(method.as_bytes()),
            lua_string(path.as_bytes())
        );
    }
    // Each thread begins with the same seed: where its state lies in memory differs.
    script.push_str("  math.randomseed(tonumber(tostring({}):match(\"0x(%x+)\"), 16) % 2147483647)\nend\n\n");
    let next = if random { "math.random(#all)" } else { "last % #all + 1" };
    let _ = writeln!(script, "function request()\n  last = {next}\n  return all[last]\nend");
    let ms = |us: u64| us as f64 / 1e3;
    let delay = match think {
        Think::None => return script,
        Think::Fixed { time_us } => format!("{}", ms(time_us)),
        Think::Uniform { min_us, max_us } => {
            format!("{} + {} * math.random()", ms(min_us), ms(max_us - min_us))
        }
        Think::Exponential { mean_us } => format!("-{} * math.log(1 - math.random())", ms(mean_us)),
        Think::LogNormal { median_us, sigma } => format!(
            "{} * math.exp({sigma} * math.sqrt(-2 * math.log(1 - math.random())) * math.cos(2 * math.pi * math.random()))",
            ms(median_us)
        ),
    };
    let _ = writeln!(script, "\nfunction delay()\n  return {delay}\nend");
    script
}

/// A string of Lua that has these bytes.
fn lua_string(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => drop(write!(text, "\\{byte:03}")),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use webdyno_model::workload::visit::{ListEntry, PageSpec, RequestList, SessionSpec, StepSpec};

    fn closed(urls: &[&str]) -> Workload {
        let request = |url: &&str| RequestSpec { url: (*url).into(), ..RequestSpec::default() };
        Workload { requests: urls.iter().map(request).collect(), connections: 60, ..Workload::default() }
    }

    fn visitors(step: StepSpec, think: Think, returning_fraction: f64) -> Workload {
        let sessions = vec![SessionSpec { name: "a".into(), weight: 1.0, steps: vec![step] }];
        let visits = Visits { sessions, users: 40, think, returning_fraction, ..Visits::default() };
        Workload { visits: Some(Box::new(visits)), ..closed(&["http://server/x?y=1"]) }
    }

    #[test]
    fn plain_requests_need_no_script() {
        let one = Workload { keepalive: false, ..closed(&["http://server/x"]) };
        let wrk = plan(&one).unwrap();
        assert_eq!(wrk.arguments, ["-t2", "-c60", "--timeout", "10s", "-H", "Connection: close"]);
        assert_eq!((wrk.url.as_str(), wrk.script), ("http://server/x", None));
        let single = plan(&Workload { connections: 1, ..one }).unwrap();
        assert_eq!(single.arguments[..2], ["-t1", "-c1"]);
    }

    #[test]
    fn several_urls_lists_and_think_times_are_a_script() {
        let script = plan(&closed(&["http://server/a", "http://server?b=\"\u{fc}"])).unwrap().script.unwrap();
        assert!(script.contains("wrk.format(\"GET\", \"/a\", nil, nil)"), "{script}");
        assert!(script.contains("\"?b=\\\"\\195\\188\"") && !script.contains("delay"), "{script}");
        let text = b"/one/twox=1".to_vec();
        let entry =
            |begin, target_bytes, body| ListEntry { begin, target_bytes, body, ..ListEntry::default() };
        let entries =
            ListEntries { text, entries: vec![entry(0, 4, 0), entry(4, 4, 3)], ..ListEntries::default() };
        let list = RequestList { random: true, entries: Some(Arc::new(entries)), ..RequestList::default() };
        let script =
            plan(&Workload { list: Some(list), ..closed(&["http://server/one"]) }).unwrap().script.unwrap();
        assert!(
            script.contains("\"/two\", nil, \"x=1\")") && script.contains("math.random(#all)"),
            "{script}"
        );
        let thinking = visitors(StepSpec::default(), Think::Fixed { time_us: 250_000 }, 1.0);
        let wrk = plan(&thinking).unwrap();
        assert_eq!(wrk.arguments[1], "-c40");
        assert!(wrk.script.unwrap().ends_with("function delay()\n  return 250\nend\n"));
    }

    #[test]
    fn what_wrk_cannot_send_is_told() {
        let page = StepSpec { page: Some(PageSpec::default()), ..StepSpec::default() };
        let rate = Arrival::Open { rate_per_s: 9.0, poisson: false };
        let think = Think::Fixed { time_us: 1 };
        let step = StepSpec::default;
        let mut other_headers = closed(&["http://server/a", "http://server/b"]);
        other_headers.requests[1].headers.push(("A".into(), "b".into()));
        for (workload, part) in [
            (Workload { arrival: rate, ..closed(&["http://server/"]) }, "rate"),
            (visitors(page, think, 1.0), "pages"),
            (visitors(step(), think, 0.0), "come and go"),
            (Workload { keepalive: false, ..visitors(step(), think, 1.0) }, "think"),
            (closed(&["http://server/", "http://server:8080/"]), "one server"),
            (other_headers, "headers"),
            (closed(&[]), "nothing"),
        ] {
            let reported = plan(&workload).unwrap_err();
            assert!(reported.contains(part), "{reported}");
        }
    }

    #[test]
    fn the_port_is_that_of_the_url() {
        for (url, expected) in [
            ("http://server/a:9", Some(80)),
            ("https://server?x", Some(443)),
            ("http://server:8080/", Some(8080)),
            ("http://[::1]/", Some(80)),
            ("http://server:99999/", None),
            ("server", None),
        ] {
            assert_eq!(port(url), expected, "{url}");
        }
    }
}
