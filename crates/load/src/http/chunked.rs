//! Counts a chunked body without keeping it: RFC 9112, section 7.1.
//!
//! Strict about line ends (a bare LF in the framing is how requests get smuggled, so a server that sends one is
//! faulty), lenient about blanks after a chunk's size, which old servers pad with. Everything has a bound.

/// Longest chunk extension, in bytes of one size line.
const EXTENSION_BYTES_MAX: u32 = 4 * 1024;
/// Longest trailer section, in bytes.
const TRAILER_BYTES_MAX: u32 = 64 * 1024;
/// Most hexadecimal digits of a chunk's size: a chunk of 2^60 bytes is not plausible.
const SIZE_DIGITS_MAX: u8 = 15;

/// The response broke the rules of chunked coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkError;

/// The state of the decoder at the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size { value: u64, digits: u8 },
    Extension { value: u64, length: u32 },
    SizeEnd { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart { length: u32 },
    TrailerLine { length: u32 },
    TrailerLf { length: u32 },
    LastLf,
    Done,
}

/// A decoder that is fed pieces of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunked {
    step: ChunkState,
    body_bytes: u64,
}

impl Chunked {
    /// A decoder at the start of a body.
    pub(crate) fn new() -> Self {
        let step = ChunkState::Size { value: 0, digits: 0 };
        Self { step, body_bytes: 0 }
    }

    /// Decoded bytes so far.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether the last chunk and the trailers were seen.
    pub(crate) fn is_done(&self) -> bool {
        self.step == ChunkState::Done
    }

    /// Consumes bytes of the body and returns how many; fewer than passed only at its end.
    #[cfg(test)]
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<usize, ChunkError> {
        self.feed_into(bytes, |_| {})
    }

    /// Consumes bytes of the body, passes the chunks' content to `length`, and returns how many bytes were consumed.
    pub(crate) fn feed_into(
        &mut self,
        bytes: &[u8],
        mut on_data: impl FnMut(&[u8]),
    ) -> Result<usize, ChunkError> {
        let mut at = 0;
        while at < bytes.len() && self.step != ChunkState::Done {
            if let ChunkState::Data { left } = self.step {
                let take = left.min((bytes.len() - at) as u64);
                self.body_bytes += take;
                on_data(&bytes[at..at + take as usize]);
                at += take as usize;
                let left = left - take;
                self.step = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
            } else {
                self.step = self.step.next(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }
}

impl ChunkState {
    /// The step after one byte of framing.
    fn next(self, byte: u8) -> Result<Self, ChunkError> {
        match self {
            Self::Size { value, digits } => after_size(value, digits, byte),
            Self::Extension { value, .. } if byte == b'\r' => Ok(Self::SizeEnd { value }),
            Self::Extension { value, length } if byte != b'\n' && length < EXTENSION_BYTES_MAX => {
                let length = length + 1;
                Ok(Self::Extension { value, length })
            }
            Self::SizeEnd { value: 0 } if byte == b'\n' => Ok(Self::TrailerStart { length: 0 }),
            Self::SizeEnd { value } if byte == b'\n' => Ok(Self::Data { left: value }),
            Self::DataCr if byte == b'\r' => Ok(Self::DataLf),
            Self::DataLf if byte == b'\n' => Ok(Self::Size { value: 0, digits: 0 }),
            Self::TrailerStart { .. } if byte == b'\r' => Ok(Self::LastLf),
            // The line's end counts too: a section of empty names is not shorter.
            Self::TrailerLine { length } if byte == b'\r' => Ok(Self::TrailerLf { length: length + 2 }),
            Self::TrailerStart { length } | Self::TrailerLine { length }
                if byte != b'\n' && length < TRAILER_BYTES_MAX =>
            {
                Ok(Self::TrailerLine { length: length + 1 })
            }
            Self::TrailerLf { length } if byte == b'\n' => Ok(Self::TrailerStart { length }),
            Self::LastLf if byte == b'\n' => Ok(Self::Done),
            _ => Err(ChunkError),
        }
    }
}

/// The step after a byte of a chunk's size line.
fn after_size(value: u64, digits: u8, byte: u8) -> Result<ChunkState, ChunkError> {
    match (char::from(byte).to_digit(16), byte) {
        (Some(_), _) if digits == SIZE_DIGITS_MAX => Err(ChunkError),
        (Some(digit), _) => Ok(ChunkState::Size { value: value * 16 + u64::from(digit), digits: digits + 1 }),
        (None, _) if digits == 0 => Err(ChunkError),
        (None, b'\r') => Ok(ChunkState::SizeEnd { value }),
        (None, b';' | b' ' | b'\t') => Ok(ChunkState::Extension { value, length: 0 }),
        _ => Err(ChunkError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(coded: &str, expected: Result<(u64, usize), ChunkError>) {
        let mut chunked = Chunked::new();
        let got = chunked.feed(coded.as_bytes());
        let got = got.map(|used| (chunked.body_bytes(), used));
        assert_eq!(got, expected, "{coded:?}");
        if expected.is_ok() {
            assert!(chunked.is_done(), "{coded:?}");
        }
    }

    #[test]
    fn bodies_are_counted_to_their_very_end() {
        check("0\r\n\r\n", Ok((0, 5)));
        check("5\r\nhello\r\n0\r\n\r\nHTTP/1.1", Ok((5, 15)));
        check("A;name=\"v\"\r\n0123456789\r\n0\r\n\r\n", Ok((10, 29)));
        check("1  \r\nx\r\n00\r\nExpires: 0\r\nA: b\r\n\r\n", Ok((1, 32)));
    }

    #[test]
    fn broken_framing_is_an_error() {
        for coded in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "5\nhello",
            "1\r\nxy\r\n",
            "1\r\nx\n",
            "0\r\n\n",
            "1000000000000000\r\n",
            ";x\r\n",
            "5\rhello",
        ] {
            check(coded, Err(ChunkError));
        }
        check(&format!("1;{}", "x".repeat(5000)), Err(ChunkError));
        check(&format!("0\r\nA: {}", "x".repeat(70_000)), Err(ChunkError));
        check(&format!("0\r\n{}", "A: b\r\n".repeat(20_000)), Err(ChunkError));
    }

    proptest! {
        // Invariant: no bytes make the decoder panic, and it never takes more than it was given.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut chunked = Chunked::new();
            if let Ok(used) = chunked.feed(&bytes) {
                prop_assert!(used <= bytes.len() && chunked.body_bytes() <= used as u64);
            }
        }
    }
}
