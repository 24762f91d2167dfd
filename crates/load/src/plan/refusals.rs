//! Refuses what cannot be meant: workloads that contradict themselves, or that no server could serve.
//!
//! Facts: RFC 6455 (all connections of WebSocket begin with one upgrade), RFC 9114 (HTTP/3 goes over UDP), RFC 9110 9.3.2 (an
//! answer to HEAD has no body), gRPC over HTTP2 (PROTOCOL-HTTP2.md of grpc).

use crate::plan::session_templates::is_grpc;
use webdyno_model::workload::stage;
use webdyno_model::workload::visit::StepSpec;
use webdyno_model::workload::{Arrival, Expectation, RequestSpec, Workload};
use webdyno_model::{Result, UserError};

/// Highest rate that is believed to be meant.
const RATE_PER_S_MAX: f64 = 10_000_000.0;
/// Most redirects in a row that are believed to be meant.
const REDIRECTS_MAX: u32 = 50;

/// Refuses what cannot be meant.
pub(super) fn check(workload: &Workload) -> Result<()> {
    let refuse = |message: &str, hint: &str| Err(UserError::usage(message).hint(hint));
    if workload.requests.is_empty() {
        return refuse("there is no URL to load", "give at least one, as in webdyno run http://localhost/");
    }
    if workload.connections == 0 {
        return refuse("0 connections cannot carry a request", "give at least one with -c");
    }
    if workload.threads == Some(0) {
        return refuse("0 threads cannot send a request", "give at least one with -t");
    }
    if workload.timeout_us == 0 {
        return refuse("a timeout of 0 ends every request", "give a longer one, as in --timeout 10s");
    }
    if workload.stop.duration_us == Some(0) || workload.stop.requests == Some(0) {
        return refuse("the load would end before it begins", "give a duration with -d or requests with -n");
    }
    if !workload.stages.is_empty() && workload.stop.duration_us != Some(stage::duration_us(&workload.stages))
    {
        return refuse(
            "a load with stages lasts as long as they do",
            "say with --stage alone how long it lasts",
        );
    }
    if workload.redirects_max > REDIRECTS_MAX {
        let message = format!("{} redirects in a row are not followed", workload.redirects_max);
        return refuse(&message, "give at most 50 with --redirects");
    }
    if workload.transport.multiplexed_streams() == Some(0) {
        return refuse("0 streams carry no request", "give at least one with --streams");
    }
    if workload.transport.streams() > 1 && !workload.keepalive {
        return refuse(
            "a new connection for each request (--no-keepalive) carries one request, and --streams asks for more",
            "leave one of them out",
        );
    }
    check_http3(workload)?;
    crate::plan::session_templates::check(workload)?;
    for spec in &workload.requests {
        check_websocket(workload, spec)?;
        check_grpc(workload, spec)?;
    }
    check_expectations(workload)?;
    if let Arrival::Open { rate_per_s, .. } = workload.arrival
        && !(rate_per_s > 0.0 && rate_per_s <= RATE_PER_S_MAX)
    {
        let message = format!("{rate_per_s} requests per second is not a rate that can be sent");
        return refuse(&message, "give a rate above 0 and up to 10 million with -r");
    }
    Ok(())
}

/// Refuses what cannot be meant together with HTTP/3.
fn check_http3(workload: &Workload) -> Result<()> {
    let transport = &workload.transport;
    if transport.http3_streams.is_none() {
        return Ok(());
    }
    let others = [
        (transport.http2_streams.is_some(), "HTTP/2 (--http2) is another protocol than HTTP/3", "--http2"),
        (transport.proxy.is_some(), "HTTP/3 goes over UDP, and a proxy (--proxy) over TCP", "--proxy"),
        (transport.unix_socket.is_some(), "HTTP/3 goes over UDP, and to no unix socket", "--unix-socket"),
    ];
    match others.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, message, flag)) => {
            Err(UserError::usage(message).hint(format!("leave --http3 or {flag} out")))
        }
        None => Ok(()),
    }
}

/// Refuses what messages of WebSocket cannot be.
fn check_websocket(workload: &Workload, spec: &RequestSpec) -> Result<()> {
    let refuse = |message: String, hint: &str| Err(UserError::usage(message).hint(hint));
    if !(spec.url.starts_with("ws://") || spec.url.starts_with("wss://")) {
        return Ok(());
    }
    let name = &spec.name;
    if workload.transport.multiplexed_streams().is_some() {
        let (version, flag) = match workload.transport.http3_streams {
            Some(_) => ("HTTP/3", "--http3"),
            None => ("HTTP/2", "--http2"),
        };
        let message =
            format!("`{name}` is a message of WebSocket, which is not spoken over {version} in this version");
        return refuse(message, &format!("leave {flag} out, or the message"));
    }
    let varies = |text: &str| text.contains("${");
    if spec.has_variables && (varies(&spec.url) || spec.headers.iter().any(|(_, value)| varies(value))) {
        let message = format!("the URL or a header of the message `{name}` has a variable");
        return refuse(
            message,
            "all connections are upgraded by the same request: variables may stand in the message",
        );
    }
    let is_page = |step: &StepSpec| step.page.is_some() && workload.requests[step.request].name == *name;
    let sessions = workload.visits.iter().flat_map(|visits| &visits.sessions);
    if sessions.flat_map(|session| &session.steps).any(is_page) {
        return refuse(format!("`{name}` is a message of WebSocket, and no page"), "write it as a request");
    }
    Ok(())
}

/// Refuses a call of gRPC over HTTP/1.1.
fn check_grpc(workload: &Workload, spec: &RequestSpec) -> Result<()> {
    match is_grpc(spec) && workload.transport.http2_streams.is_none() {
        true => Err(UserError::usage(format!(
            "`{}` is a call of gRPC, which is spoken over HTTP/2 alone",
            spec.name
        ))
        .hint("give --http2 (and not --http3), or write http2 = true into the workload file")),
        false => Ok(()),
    }
}

/// Refuses what no response can meet.
fn check_expectations(workload: &Workload) -> Result<()> {
    let never = |message: String, hint: &str| Err(UserError::usage(message).hint(hint));
    let (mut status, mut length) = (None, None);
    for expectation in &workload.expect {
        let (known, wanted, what) = match expectation {
            Expectation::Status(code) => (&mut status, u64::from(*code), "status"),
            Expectation::Length(bytes) => (&mut length, *bytes, "length"),
            Expectation::Regex(_) | Expectation::Sha256(_) => continue,
        };
        let before = *known.get_or_insert(wanted);
        if before != wanted {
            let message =
                format!("no answer has {what} {before} and {what} {wanted}, and --expect asks for both");
            return never(message, "all that --expect says must be met: give it once");
        }
    }
    let needs_content = |expectation: &&Expectation| match expectation {
        Expectation::Length(bytes) => *bytes > 0,
        _ => false,
    };
    let is_head_request = workload.requests.iter().any(|request| request.method == "HEAD");
    match workload.expect.iter().find(needs_content) {
        Some(Expectation::Length(bytes)) if is_head_request => never(
            format!("an answer to HEAD has no body, and --expect wants one of {bytes} bytes"),
            "leave --expect out, or load it with -m GET",
        ),
        _ => Ok(()),
    }
}
