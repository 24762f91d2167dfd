//! Writes a workload as a file that reads back as the same workload.

use super::requests::request_name;
use super::texts::escaped;
use std::fmt::Write as _;
use toml::Value;
use webdyno_model::duration::duration_text;
use webdyno_model::workload::stage::{Shape, Stage};
use webdyno_model::workload::visit::{
    Auth, CaptureFrom, CaptureSpec, Resources, SessionSpec, StepSpec, Think, Visits,
};
use webdyno_model::workload::{Arrival, RequestSpec, StatusSet, Workload};
use webdyno_model::{Result, UserError};

/// The workload as TOML, without settings that only flags have (threads, clock, how connections are made). An error for
/// what a file cannot hold: bodies that are no text, a number of requests, lists and tables, which are files of their
/// own.
pub fn to_toml(workload: &Workload) -> Result<String> {
    check(workload)?;
    let mut text = settings(workload);
    match &workload.visits {
        None => {
            for spec in &workload.requests {
                text.push_str("\n[[request]]\n");
                request(spec).iter().for_each(|(key, value)| line(&mut text, key, value));
                weight(&mut text, spec.weight);
            }
        }
        Some(visits) => sessions(&mut text, workload, visits),
    }
    Ok(text)
}

/// What a file cannot hold.
fn check(workload: &Workload) -> Result<()> {
    let cannot = |what: &str| {
        Err(UserError::usage(format!("{what} cannot be written into a workload file"))
            .hint("docs/workload.md tells what can"))
    };
    if workload.list.is_some() {
        return cannot("a list of URLs");
    }
    if workload.stop.requests.is_some() {
        return cannot("a number of requests");
    }
    if workload.visits.as_ref().is_some_and(|visits| !visits.tables.is_empty()) {
        return cannot("a table of rows");
    }
    match workload.requests.iter().find(|request| std::str::from_utf8(request.body.bytes()).is_err()) {
        Some(request) => cannot(&format!("the body of `{}`, which is no text,", request.name)),
        None => Ok(()),
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "{key} = {value}");
}

/// A text between quotes.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A key as TOML has it.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_bare { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

fn time(us: u64) -> String {
    quoted(&duration_text(us))
}

fn number(number: f64) -> String {
    Value::from(number).to_string()
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

fn table(pairs: &[(String, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn weight(text: &mut String, weight: f64) {
    // Exactly the default.
    if weight.to_bits() != 1f64.to_bits() {
        line(text, "weight", &number(weight));
    }
}

fn settings(workload: &Workload) -> String {
    let mut text = String::new();
    let has_stages = !workload.stages.is_empty();
    match (workload.arrival, &workload.visits) {
        (Arrival::Open { rate_per_s, poisson }, _) => {
            if !has_stages {
                line(&mut text, "rate", &number(rate_per_s));
            }
            if poisson {
                line(&mut text, "poisson", "true");
            }
        }
        (Arrival::Closed, Some(visits)) if !has_stages => line(&mut text, "users", &visits.users.to_string()),
        (Arrival::Closed, _) => {}
    }
    if let Some(duration_us) = workload.stop.duration_us.filter(|_| !has_stages) {
        line(&mut text, "duration", &time(duration_us));
    }
    let each_is_a_user = has_stages && workload.visits.is_none() && workload.arrival == Arrival::Closed;
    if !each_is_a_user {
        // Where none is set, reading gives the same default.
        if workload.visits.as_ref().is_none_or(|visits| visits.connections_per_server.is_none()) {
            line(&mut text, "connections", &workload.connections.to_string());
        }
    }
    let usual = Workload::default();
    if workload.timeout_us != usual.timeout_us {
        line(&mut text, "timeout", &time(workload.timeout_us));
    }
    write_connections(&mut text, workload);
    if workload.seed != usual.seed {
        line(&mut text, "seed", &workload.seed.to_string());
    }
    line(&mut text, "redirects", &workload.redirects_max.to_string());
    if workload.ok_status != StatusSet::default() {
        line(&mut text, "ok", &quoted(&String::from(workload.ok_status.clone())));
    }
    if !workload.expect.is_empty() {
        line(
            &mut text,
            "expect",
            &list(workload.expect.iter().map(|expected| quoted(&expected.to_string()))),
        );
    }
    if let Some(visits) = &workload.visits {
        write_visits(&mut text, visits);
    }
    for stage in &workload.stages {
        let level = match (workload.arrival, &workload.visits) {
            (Arrival::Open { .. }, _) => "rate",
            (Arrival::Closed, Some(_)) => "users",
            (Arrival::Closed, None) => "connections",
        };
        write_stage(&mut text, stage, level);
    }
    text
}

fn write_connections(text: &mut String, workload: &Workload) {
    if !workload.keepalive {
        line(text, "keepalive", "false");
    }
    if let Some(streams) = workload.transport.multiplexed_streams() {
        let is_http3 = workload.transport.http3_streams.is_some();
        line(text, if is_http3 { "http3" } else { "http2" }, "true");
        line(text, "streams", &streams.to_string());
    }
}

fn write_visits(text: &mut String, visits: &Visits) {
    if visits.think != Think::None {
        line(text, "think", &quoted(&visits.think.to_string()));
    }
    if !visits.cookies {
        line(text, "cookies", "false");
    }
    if visits.cache {
        line(text, "cache", "true");
    }
    line(text, "returning", &number(visits.returning_fraction));
    if visits.in_turn {
        line(text, "session_order", &quoted("in turn"));
    }
    line(text, "connections_per_host", &visits.connections_per_host.to_string());
    if !visits.variables.is_empty() {
        let pairs: Vec<_> = visits.variables.iter().map(|(name, value)| (key(name), quoted(value))).collect();
        line(text, "variables", &table(&pairs));
    }
}

fn write_stage(text: &mut String, stage: &Stage, level: &str) {
    let pair = |name: &str, level: f64| (name.to_owned(), number(level));
    let shape = match stage.shape {
        Shape::Hold { level } => number(level),
        Shape::Ramp { from, to } => table(&[pair("from", from), pair("to", to)]),
        Shape::Spike { from, peak } => table(&[pair("from", from), pair("peak", peak)]),
        Shape::Sine { low, high, period_us } => {
            table(&[pair("low", low), pair("high", high), ("period".into(), time(period_us))])
        }
    };
    text.push_str("\n[[stage]]\n");
    line(text, "duration", &time(stage.duration_us));
    line(text, level, &shape);
    line(text, "measured", if stage.measured { "true" } else { "false" });
}

/// The keys of a request but its weight.
fn request(spec: &RequestSpec) -> Vec<(String, String)> {
    // Where nothing is replaced, `${` is written so that nothing is either.
    let written = |text: &str| if spec.has_variables { quoted(text) } else { quoted(&escaped(text)) };
    let mut pairs = vec![];
    let path = request_name(&spec.url);
    let usual = if spec.method == "GET" { path } else { format!("{} {path}", spec.method) };
    if spec.name != usual {
        pairs.push(("name".to_owned(), quoted(&spec.name)));
    }
    pairs.push(("url".into(), written(&spec.url)));
    let body = (!spec.body.is_empty()).then(|| String::from_utf8_lossy(spec.body.bytes()));
    if spec.method != if body.is_some() { "POST" } else { "GET" } {
        pairs.push(("method".into(), quoted(&spec.method)));
    }
    if !spec.headers.is_empty() {
        pairs.push(("headers".into(), headers(&spec.headers, &written)));
    }
    match &spec.auth {
        Some(Auth::Basic { name, password }) => {
            let both = [("user".into(), written(name)), ("password".into(), written(password))];
            pairs.push(("auth".into(), table(&both)));
        }
        Some(Auth::Bearer { token }) => {
            pairs.push(("auth".into(), table(&[("bearer".into(), written(token))])))
        }
        None => {}
    }
    pairs.extend(body.map(|body| ("body".to_owned(), written(&body))));
    pairs
}

/// Lines of one name are written together.
fn headers(headers: &[(String, String)], written: &dyn Fn(&str) -> String) -> String {
    let mut pairs: Vec<(String, Vec<String>)> = vec![];
    for (name, value) in headers {
        match pairs.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(written(value)),
            None => pairs.push((name.clone(), vec![written(value)])),
        }
    }
    let pair = |(name, values): &(String, Vec<String>)| match &values[..] {
        [value] => (key(name), value.clone()),
        values => (key(name), list(values.iter().cloned())),
    };
    table(&pairs.iter().map(pair).collect::<Vec<_>>())
}

fn sessions(text: &mut String, workload: &Workload, visits: &Visits) {
    // A page or a request alone needs no session around it; but what stands at the top comes first when it is read.
    let plain = |session: &SessionSpec| match &session.steps[..] {
        [step] => {
            let is_bare = step.captures.is_empty() && step.think.is_none() && step.at_us.is_none();
            let name = workload.requests.get(step.request).map(|request| &request.name);
            (is_bare && name == Some(&session.name)).then_some(step.page.is_some())
        }
        _ => None,
    };
    let kinds: Vec<Option<bool>> = visits.sessions.iter().map(plain).collect();
    let all = |kind: Option<bool>| kinds.iter().all(|one| *one == kind);
    let (are_pages, are_requests) = (all(Some(true)), all(Some(false)));
    for session in &visits.sessions {
        match &session.steps[..] {
            [step] if are_pages || are_requests => {
                text.push_str(if are_pages { "\n[[page]]\n" } else { "\n[[request]]\n" });
                step_keys(workload, step).iter().for_each(|(key, value)| line(text, key, value));
                weight(text, session.weight);
            }
            steps => {
                text.push_str("\n[[session]]\n");
                line(text, "name", &quoted(&session.name));
                weight(text, session.weight);
                for step in steps {
                    text.push_str("\n[[session.step]]\n");
                    let what = if step.page.is_some() { "page" } else { "request" };
                    line(text, what, &table(&step_keys(workload, step)));
                    if !step.captures.is_empty() {
                        line(text, "capture", &list(step.captures.iter().map(capture)));
                    }
                    if let Some(think) = step.think {
                        line(text, "think", &quoted(&think.to_string()));
                    }
                    if let Some(at_us) = step.at_us {
                        line(text, "at", &time(at_us));
                    }
                }
            }
        }
    }
}

/// The keys of a step's request or page.
fn step_keys(workload: &Workload, step: &StepSpec) -> Vec<(String, String)> {
    let of = |index: usize| workload.requests.get(index).map(request).unwrap_or_default();
    let mut pairs = of(step.request);
    match step.page.as_ref().map(|page| &page.resources) {
        None | Some(Resources::Found) => {}
        Some(Resources::Left) => pairs.push(("resources".into(), quoted("none"))),
        Some(Resources::Listed(parts)) => {
            let part = |part: &webdyno_model::workload::visit::Part| {
                let mut pairs = of(part.request);
                if !part.required {
                    pairs.push(("required".into(), "false".into()));
                }
                match &pairs[..] {
                    [(key, url)] if key == "url" => url.clone(),
                    pairs => table(pairs),
                }
            };
            pairs.push(("resources".into(), list(parts.iter().map(part))));
        }
    }
    pairs
}

fn capture(capture: &CaptureSpec) -> String {
    let pair = |key: &str, value: &str| (key.to_owned(), quoted(value));
    let mut pairs = vec![pair("name", &capture.name)];
    match &capture.from {
        CaptureFrom::Regex(pattern) => pairs.push(pair("regex", pattern)),
        CaptureFrom::JsonPointer(pointer) => pairs.push(pair("json", pointer)),
        CaptureFrom::Header(name) => pairs.push(pair("header", name)),
        CaptureFrom::HtmlAttribute { selector, attribute } => {
            pairs.extend([pair("html", selector), pair("attribute", attribute)]);
        }
    }
    table(&pairs)
}
