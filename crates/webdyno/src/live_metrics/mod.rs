//! The figures of a session for other programs while it goes on: `--prometheus` serves them, `--otlp` pushes them. They come
//! from the events of each second, as those that are shown, and cost nothing where nobody asked for them.

mod instruments;
mod openmetrics;
mod otlp;
mod scrape;
mod state;

use crate::cli::OutputArgs;
use crate::terminal;
use otlp::Pusher;
use scrape::ScrapeServer;
use state::SharedState;
use webdyno_model::Result;
use webdyno_model::event::{Event, EventBody};
use webdyno_session::log::writer::EventObserver;

/// The watcher, and beside it what the flags ask for; both end with it. An error when the address for Prometheus cannot be
/// had.
pub fn exporting(output: &OutputArgs, mut watcher: EventObserver) -> Result<EventObserver> {
    let (prometheus, otlp) = (output.live.prometheus, output.live.otlp.as_ref());
    if prometheus.is_none() && otlp.is_none() {
        return Ok(watcher);
    }
    let (state, quiet) = (SharedState::default(), output.quiet);
    let server = prometheus.map(|address| ScrapeServer::start(address, state.clone())).transpose()?;
    let mut pusher = otlp.map(|collector| Pusher::start(collector, state.clone())).transpose()?;
    if let (Some(server), false) = (&server, quiet) {
        terminal::print_status(&format!("metrics: http://{}/metrics", server.address()));
    }
    Ok(Box::new(move |event| {
        // It serves as long as this watcher is there.
        let _ = &server;
        state.lock().update(event);
        if let (Some(pusher), EventBody::Interval { .. }) = (&mut pusher, &event.body) {
            pusher.record_times();
        }
        watcher(event);
        if let Some(text) = pusher.as_ref().and_then(Pusher::warning) {
            // Where progress is shown, that of the session shows it.
            if quiet {
                terminal::print_status(&format!("webdyno: {text}"));
            } else {
                watcher(&Event {
                    v: event.v,
                    seq: event.seq,
                    t_us: event.t_us,
                    body: EventBody::Note { text },
                });
            }
        }
    }))
}
