//! One request before the load: whether a server listens, whether it speaks HTTP, and what its `Server` header is.
//!
//! It also settles which address of a name is used: `localhost` is often `::1` first, where no server listens. And
//! where redirects are followed, it learns to which servers they lead: the load goes to no server that was not seen
//! before, as its name would have to be resolved meanwhile.

mod alone;
mod connecting;
mod exchange;
mod exchange_error;
mod http3;
mod pages;

pub use alone::{measure_alone, repeated_answers};

use crate::http::content_check::BodyCheck;
use crate::io::origin::{Endpoint, Origin};
use crate::plan::{Prepared, Template};
use connecting::connect;
use exchange::Exchange;
use std::time::{Duration, Instant};
use url::Url;
use webdyno_model::{Result, UserError};

/// What one request showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Status of the response; `None` when none came in time.
    pub status: Option<u16>,
    /// Decoded bytes of its body, as far as they came.
    pub body_bytes: u64,
    /// From the start of the connection to the end of the response, or to the timeout.
    pub time_us: u64,
    /// Of it, connecting and TLS, where the server keeps the connection: kept ones have that once.
    pub setup_us: u64,
    /// Value of the `Server` header.
    pub server: Option<String>,
    /// Whether the timeout ended it.
    pub timed_out: bool,
}

/// Requests whose redirects are followed before the load, besides the first one.
const EXPLORED_MAX: usize = 64;

/// Sends the first request of the workload once, on a connection made as those of the load, and follows its redirects
/// if the load does. A server that is not there, or that does not speak HTTP, or no TLS that can be trusted, is an
/// error with a hint; a timeout or any status is a result.
///
/// Where redirects are followed, the other requests are sent once too, if they are safe (GET and HEAD, at most 64 of
/// them, in the time of one timeout): the servers that they lead to are those that the load may go to.
pub fn probe(prepared: &mut Prepared) -> Result<Probe> {
    let plan = &prepared.plan;
    let timeout = Duration::from_nanos(plan.timeout_ns);
    for (number, origin) in plan.origins.iter().enumerate() {
        let tcp = matches!(&origin.endpoint, Endpoint::Tcp(tcp) if tcp.addresses.len() > 1);
        if number != plan.templates[0].origin && tcp {
            // A missing server is reported by the load; here it only matters which address to use.
            let _ = match plan.transport.http3_streams {
                Some(_) => http3::connect(origin, plan, Instant::now() + timeout).is_ok(),
                None => connect(origin, plan, timeout).is_ok(),
            };
        }
    }
    let (first, first_template) = prepared.plan.first_request();
    let (capture, _) = follow_chain(prepared, first, first_template, Instant::now(), timeout)
        .map_err(ChainError::into_user_error)?;
    if prepared.plan.redirects_max > 0 {
        let started_at = Instant::now();
        let others = (0..prepared.plan.distinct()).filter(|number| *number != first);
        for number in others.take(EXPLORED_MAX) {
            let plan = &prepared.plan;
            // A request with variables depends on earlier steps of a visitor.
            let is_safe = match plan.entry(number) {
                Some(entry) => entry.is_safe(),
                None => !plan.is_dynamic(number) && plan.templates[number].is_safe(),
            };
            if is_safe {
                match follow_chain(prepared, number, None, started_at, timeout) {
                    Err(ChainError::Local(error)) => return Err(error),
                    // What is wrong with the servers, the load will report.
                    Ok(_) | Err(ChainError::Server(_)) => {}
                }
            }
        }
    }
    pages::explore(prepared, timeout)?;
    prepared.add_connection_warnings();
    Ok(capture)
}

/// Whether a chain of requests failed on this machine or on a server.
enum ChainError {
    /// This machine cannot do what the load needs.
    Local(UserError),
    /// A server is not there, or is no server.
    Server(UserError),
}

impl ChainError {
    fn into_user_error(self) -> UserError {
        match self {
            Self::Local(error) | Self::Server(error) => error,
        }
    }
}

/// Sends a request of the plan, or `first_template` instead of it, and follows its redirects. Returns with what it
/// showed the page that the response is.
fn follow_chain(
    prepared: &mut Prepared,
    number: usize,
    first_template: Option<Template>,
    started_at: Instant,
    timeout: Duration,
) -> std::result::Result<(Probe, Document), ChainError> {
    let mut next: Option<Template> = first_template.or_else(|| prepared.plan.entry(number));
    // The server that redirected to the current one.
    let mut redirected_by: Option<usize> = None;
    let (mut hops, mut setup) = (0, Duration::ZERO);
    loop {
        let plan = &prepared.plan;
        let template = next.as_ref().unwrap_or_else(|| &plan.templates[number]);
        let origin = &plan.origins[template.origin];
        let discovers = plan.script.as_ref().is_some_and(|script| script.discovers);
        let mut exchange = Exchange::new(started_at, timeout, discovers);
        exchange.setup = setup;
        exchange.run(template, origin, plan).map_err(|error| {
            ChainError::Server(match redirected_by {
                Some(other) => with_redirect_source(error, &plan.origins[other]),
                None => error,
            })
        })?;
        let few_streams = exchange.few_streams_warning(origin, plan.lanes_per_connection);
        let followed = match hops < plan.redirects_max && !exchange.timed_out {
            true => exchange.redirected(template),
            false => None,
        };
        let document = |exchange: &mut Exchange, template: &Template| Document {
            url: template.url().clone(),
            body: exchange.capture.content.take().and_then(BodyCheck::kept),
        };
        if let Some(text) = few_streams {
            prepared.warn(text);
        }
        let plan = &prepared.plan;
        let template = next.as_ref().unwrap_or_else(|| &plan.templates[number]);
        let Some(redirect) = followed else {
            let document = document(&mut exchange, template);
            return Ok((exchange.result(), document));
        };
        let here = document(&mut exchange, template);
        let (same, name) = (template.origin, template.name);
        let origin = match redirect.same_origin {
            true => Some(same),
            false => prepared.add_origin(redirect.source.url()).map_err(ChainError::Local)?,
        };
        // A server that cannot be found is one that the load will not go to either.
        let Some(origin) = origin else {
            return Ok((exchange.result(), here));
        };
        if origin != same {
            redirected_by = Some(same);
        }
        next = Some(Template::new(redirect.source, origin, name));
        (hops, setup) = (hops + 1, exchange.setup);
    }
}

/// A response that may be a page.
struct Document {
    /// Where it came from.
    url: Url,
    /// Its decoded content, if it was to be kept and could be read.
    body: Option<Vec<u8>>,
}

/// An error of a server that the user did not name, with the one that led there.
fn with_redirect_source(error: UserError, by: &Origin) -> UserError {
    UserError { message: format!("{} ({} redirects there)", error.message, by.url()), ..error }
}
