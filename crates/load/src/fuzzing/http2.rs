//! What must hold for every connection of HTTP/2, whatever the server sends on it.

use super::splits;
use crate::io::http2::connection::Connection;
use crate::io::multiplexed::multiplex::Multiplex as _;
use crate::io::network_io::SocketError;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
/// Requests in flight.
const REQUESTS: u64 = 3;
/// What a connection may hold besides what was sent to it.
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// What became of the requests: what was read of each and how that ended, and what was sent to the server.
type Summary = (Vec<(Vec<u8>, Result<usize, SocketError>)>, Vec<u8>, bool);

/// Checks a connection that three requests were sent on, and that gets these bytes.
pub fn http2(bytes: &[u8]) -> Result<(), String> {
    let mut outcomes = splits(bytes).into_iter().map(|(mut split, _)| {
        let mut at = 0;
        let told = format!("{split:?}");
        let pieces = std::iter::from_fn(|| {
            let left = bytes.len() - at;
            (left > 0).then(|| {
                let size = split.next(left);
                at += size;
                &bytes[at - size..at]
            })
        });
        let pieces: Vec<&[u8]> = pieces.collect();
        summary(&pieces, bytes.len()).map(|summary| (told, summary))
    });
    let Some(first) = outcomes.next().transpose()? else { return Ok(()) };
    for other in outcomes {
        let other = other?;
        if other.1 != first.1 {
            return Err(format!("{first:?} is not {other:?}"));
        }
    }
    Ok(())
}

fn summary(pieces: &[&[u8]], length: usize) -> Result<Summary, String> {
    let mut connection = Connection::new(true);
    let lanes: Vec<u32> = (0..REQUESTS).map(|token| connection.attach(token)).collect();
    for &lane in &lanes {
        connection.send(lane, REQUEST).map_err(|error| format!("a request was not sent: {error:?}"))?;
    }
    for piece in pieces {
        connection.receive(piece);
        // A response takes a few times the bytes that it came in: a head that HPACK abbreviates has its bound.
        let bound = MEMORY_BYTES_MAX + 64 * length;
        if connection.memory_bytes() > bound {
            return Err(format!("{} bytes of memory for {length}", connection.memory_bytes()));
        }
    }
    let mut buffer = vec![0; 4096];
    let got = lanes.iter().map(|&lane| {
        let mut text = vec![];
        loop {
            match connection.read(lane, Some(&mut buffer), 4096) {
                Ok(count) if count > 0 => text.extend_from_slice(&buffer[..count]),
                end => return (text, end),
            }
        }
    });
    let got = got.collect();
    Ok((got, connection.unsent().to_vec(), connection.fault().is_some()))
}
