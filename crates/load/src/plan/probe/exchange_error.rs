//! Why a probe got no complete response.

use crate::io::http2::blocking::Http2Error;
use crate::io::http3::blocking::Http3Error;
use crate::io::tunnel::TunnelError;
use crate::io::websocket::blocking::WebSocketError;
use std::io::ErrorKind;
use webdyno_model::UserError;

/// Why a probe got no complete response.
pub(super) enum ExchangeError {
    TimedOut,
    /// What the server did, worded to follow its name.
    Protocol(&'static str),
    /// It was to speak HTTP/2: what it did instead, worded to follow its name.
    NotHttp2(&'static str),
    /// It was to speak HTTP/3.
    Http3(Box<UserError>),
    /// There is no WebSocket.
    WebSocket(WebSocketError),
    /// The proxy made no tunnel.
    Proxy(TunnelError),
    /// TLS failed.
    Tls(Box<rustls::Error>),
}

pub(super) fn exchange_error(error: std::io::Error) -> ExchangeError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => return ExchangeError::TimedOut,
        ErrorKind::UnexpectedEof => return ExchangeError::Protocol("closed the connection within TLS"),
        _ => {}
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Http2Error>()) {
        Some(Http2Error::Http1) => return ExchangeError::NotHttp2("answers HTTP/2 in HTTP/1"),
        Some(Http2Error::Rules) => return ExchangeError::Protocol("breaks the rules of HTTP/2"),
        None => {}
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Http3Error>()) {
        return match error {
            Http3Error::NoAnswer => ExchangeError::TimedOut,
            Http3Error::Ended(why) => ExchangeError::Http3(Box::new(http3_ended(why))),
        };
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<WebSocketError>()) {
        return ExchangeError::WebSocket(*error);
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<TunnelError>()) {
        return ExchangeError::Proxy(*error);
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => ExchangeError::Tls(Box::new(error.clone())),
        None => ExchangeError::Protocol("reset the connection"),
    }
}

/// A connection over HTTP/3 that was there ended so.
pub(super) fn http3_ended(why: &str) -> UserError {
    UserError::cannot_run(why.to_owned())
        .hint("leave --http3 out to load it over TCP; the server's error log may say more")
}
