//! Messages on a stream: four bytes of length (big endian), then that many bytes of JSON. The length is bounded before
//! anything is allocated for it.

use crate::agent::protocol::MESSAGE_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// Reads one message. `Ok(None)` when the stream ended between two messages; an error when it ended within one, when
/// the message is too long, or when it is not what was expected.
pub fn read_message<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0_u8; 4];
    let mut have_bytes = 0;
    while have_bytes < length.len() {
        let Some(rest) = length.get_mut(have_bytes..) else { break };
        match input.read(rest) {
            Ok(0) if have_bytes == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = u32::from_be_bytes(length);
    if length as usize > MESSAGE_BYTES_MAX {
        return Err(invalid(format!(
            "a message of {length} bytes, and at most {MESSAGE_BYTES_MAX} are allowed"
        )));
    }
    // Grows with what arrives: a length alone reserves nothing.
    let mut body = vec![];
    input.take(u64::from(length)).read_to_end(&mut body)?;
    if body.len() != length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&body).map(Some).map_err(|error| invalid(format!("not a message: {error}")))
}

/// Writes one message and flushes. An error when it is too long (then nothing is written) or the stream is closed.
pub fn write_message(output: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    output.write_all(&encode(message)?)?;
    output.flush()
}

/// One message as it is written; an error when it is too long.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MESSAGE_BYTES_MAX);
    let length = length.ok_or_else(|| {
        invalid(format!("a message of {} bytes, and at most {MESSAGE_BYTES_MAX} are allowed", body.len()))
    })?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend(body);
    Ok(framed)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::protocol::{Framed, ToAgent};
    use proptest::prelude::*;

    fn message(id: u64) -> Framed<ToAgent> {
        Framed { id, body: ToAgent::Hello { protocol: 1, build: "ü".into(), tool: None, reads_only: false } }
    }

    /// Gives one byte at a time, as a slow pipe may.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first().filter(|_| !buffer.is_empty()) else {
                return Ok(0);
            };
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn what_is_written_is_read_also_byte_by_byte() {
        let mut bytes = vec![];
        for id in 0..3 {
            write_message(&mut bytes, &message(id)).unwrap();
        }
        let mut input = Drip(&bytes);
        for id in 0..3 {
            assert_eq!(read_message(&mut input).unwrap(), Some(message(id)));
        }
        assert_eq!(read_message::<Framed<ToAgent>>(&mut input).unwrap(), None);
    }

    #[test]
    fn a_stream_that_ends_within_a_message_is_an_error() {
        let mut bytes = vec![];
        write_message(&mut bytes, &message(1)).unwrap();
        for cut in 1..bytes.len() {
            let error = read_message::<Framed<ToAgent>>(&mut &bytes[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }

    #[test]
    fn too_long_is_refused_before_it_is_read_or_written() {
        let error = read_message::<Framed<ToAgent>>(&mut &[0xff; 8][..]).unwrap_err();
        assert!(error.to_string().contains("a message of 4294967295 bytes"), "{error}");
        let mut written = vec![];
        write_message(&mut written, &"x".repeat(MESSAGE_BYTES_MAX)).unwrap_err();
        assert!(written.is_empty());
    }

    proptest! {
        /// Any bytes are a message or an error, never a panic.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_message::<Framed<ToAgent>>(&mut &bytes[..]);
            let mut framed = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
            framed.extend(&bytes);
            prop_assert!(read_message::<Framed<ToAgent>>(&mut &framed[..]).is_err());
        }
    }
}
