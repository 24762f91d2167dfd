//! Frames of WebSocket: RFC 6455, section 5.

/// What a frame is: section 5.2.
pub(super) mod opcode {
    pub(in super::super) const CONTINUATION: u8 = 0;
    pub(in super::super) const TEXT: u8 = 1;
    pub(in super::super) const BINARY: u8 = 2;
    pub(in super::super) const CLOSE: u8 = 8;
    pub(in super::super) const PING: u8 = 9;
    pub(in super::super) const PONG: u8 = 10;
}

/// Why we close: section 7.4.1.
pub(super) mod close {
    pub(in super::super) const NORMAL: u16 = 1000;
    pub(in super::super) const PROTOCOL: u16 = 1002;
    pub(in super::super) const NOT_UTF8: u16 = 1007;
    pub(in super::super) const TOO_BIG: u16 = 1009;
}

/// The longest head: of a server, whose frames have no mask.
pub(super) const HEAD_BYTES_MAX: usize = 10;
/// The longest control frame.
pub(super) const CONTROL_BYTES_MAX: u64 = 125;

/// The head of a frame of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) ends: bool,
    pub(super) opcode: u8,
    pub(super) length: u64,
}

impl FrameHead {
    /// Reads the head at the start of some bytes, and how many it has; `None` when it is not whole. An error for one that no
    /// server may send: with reserved bits, a mask, an unknown opcode, or a control frame that is long or in pieces.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, ()> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let (ends, opcode) = (first & 0x80 != 0, first & 0x0f);
        let is_control = opcode >= opcode::CLOSE;
        let is_known = matches!(opcode, 0..=2 | 8..=10);
        if first & 0x70 != 0 || second & 0x80 != 0 || !is_known {
            return Err(());
        }
        let (length, head_bytes) = match second & 0x7f {
            126 => match rest.first_chunk() {
                Some(two) => (u64::from(u16::from_be_bytes(*two)), 4),
                None => return Ok(None),
            },
            127 => match rest.first_chunk() {
                Some(eight) => (u64::from_be_bytes(*eight), 10),
                None => return Ok(None),
            },
            short => (u64::from(short), 2),
        };
        let is_minimal = match head_bytes {
            4 => length > CONTROL_BYTES_MAX,
            10 => length > 0xffff,
            _ => true,
        };
        if !is_minimal || is_control && (!ends || length > CONTROL_BYTES_MAX) {
            return Err(());
        }
        Ok(Some((Self { ends, opcode, length }, head_bytes)))
    }
}

/// Writes the head of a frame that is a whole message, with its mask.
pub(super) fn write_head(out: &mut Vec<u8>, opcode: u8, length: u64, mask: [u8; 4]) {
    out.push(0x80 | opcode);
    match length {
        0..=CONTROL_BYTES_MAX => out.push(0x80 | length as u8),
        126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
}

/// Appends bytes under their mask; `at` is where in the payload they stand.
pub(super) fn write_masked(out: &mut Vec<u8>, bytes: &[u8], mask: [u8; 4], at: u64) {
    let begin = out.len();
    out.extend_from_slice(bytes);
    let mask: [u8; 4] = std::array::from_fn(|index| mask[(index + (at % 4) as usize) % 4]);
    for four in out[begin..].chunks_mut(4) {
        four.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of section 5.7, and what section 5.2 forbids.
    #[test]
    fn heads_of_servers_are_read() {
        let head = |ends, opcode, length, bytes| Ok(Some((FrameHead { ends, opcode, length }, bytes)));
        for (bytes, expected) in [
            (&[0x81, 0x05][..], head(true, 1, 5, 2)),
            (&[0x01, 0x03], head(false, 1, 3, 2)),
            (&[0x82, 0x7e, 0x01, 0x00], head(true, 2, 256, 4)),
            (&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0], head(true, 2, 65536, 10)),
            (&[0x8a, 0x05], head(true, 10, 5, 2)),
            (&[], Ok(None)),
            (&[0x81], Ok(None)),
            (&[0x82, 0x7e, 1], Ok(None)),
            (&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0], Ok(None)),
            (&[0x81, 0x85], Err(())),
            (&[0xc1, 0x05], Err(())),
            (&[0x83, 0x05], Err(())),
            (&[0x09, 0x00], Err(())),
            (&[0x88, 0x7e, 0x01, 0x00], Err(())),
            (&[0x82, 0x7e, 0x00, 0x05], Err(())),
            (&[0x82, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Err(())),
        ] {
            assert_eq!(FrameHead::read(bytes), expected, "{bytes:x?}");
        }
    }

    // A single masked text message of section 5.7, in pieces.
    #[test]
    fn payloads_are_masked_wherever_they_are_cut() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for cut in 0..=5 {
            let mut out = vec![];
            write_head(&mut out, opcode::TEXT, 5, mask);
            write_masked(&mut out, &b"Hello"[..cut], mask, 0);
            write_masked(&mut out, &b"Hello"[cut..], mask, cut as u64);
            assert_eq!(out, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58], "{cut}");
        }
    }
}
