//! A bounds-checked cursor over a message.

use super::MalformedMessage;
use crate::name::WireName;
use crate::name::labels;

/// A position in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    /// Starts at an offset.
    pub(crate) fn at(message: &'a [u8], at: usize) -> Self {
        Self { message, at }
    }

    /// Returns the current offset.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.message.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MalformedMessage> {
        let end = self.at.checked_add(count).ok_or(MalformedMessage)?;
        let bytes = self.message.get(self.at..end).ok_or(MalformedMessage)?;
        self.at = end;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedMessage> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MalformedMessage> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedMessage> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 48 bits, the size of times in signatures.
    pub(crate) fn u48(&mut self) -> Result<u64, MalformedMessage> {
        let (high, low) = (self.u16()?, self.u32()?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        self.bytes(N)?.try_into().map_err(|_| MalformedMessage)
    }

    /// Reads a name, which may end with a compression pointer (RFC 1035 section 4.1.4). Each pointer must point further
    /// back than the previous one, so that reading ends.
    pub(crate) fn name(&mut self) -> Result<WireName, MalformedMessage> {
        let mut wire = Vec::new();
        let mut reader = *self;
        // The offset after the first pointer, at which the next read starts.
        let mut after = None;
        let mut earliest = self.at;
        loop {
            match reader.u8()? {
                0 => break,
                length @ 1..=63 => {
                    wire.push(length);
                    wire.extend(reader.bytes(length.into())?.iter().map(u8::to_ascii_lowercase));
                }
                high @ 0xc0.. => {
                    let to = usize::from(u16::from_be_bytes([high & 0x3f, reader.u8()?]));
                    if to >= earliest {
                        return Err(MalformedMessage);
                    }
                    after.get_or_insert(reader.at);
                    earliest = to;
                    reader.at = to;
                }
                _ => return Err(MalformedMessage),
            }
            if wire.len() >= labels::MAX_NAME_LENGTH {
                return Err(MalformedMessage);
            }
        }
        wire.push(0);
        self.at = after.unwrap_or(reader.at);
        Ok(WireName::new_unchecked(wire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_pointers_must_point_back() {
        let message = b"\x03Org\0\x07example\xc0\0\xc0\x05!";
        let mut reader = Reader::at(message, 5);
        assert_eq!(reader.name().unwrap().to_host().unwrap(), "example.org");
        assert_eq!(reader.name().unwrap().to_host().unwrap(), "example.org");
        assert_eq!(reader.u8(), Ok(b'!'));
        assert!(reader.is_at_end());
        for (looped, at) in [(&b"\xc0\0"[..], 0), (b"\xc0\x02\xc0\0", 0), (b"\x01a\xc0\0", 0), (b"\x40a\0", 0)] {
            assert_eq!(Reader::at(looped, at).name(), Err(MalformedMessage), "{looped:?}");
        }
    }

    #[test]
    fn names_over_255_bytes_are_rejected() {
        let mut long = b"\x3f".to_vec();
        long.resize(64, b'a');
        let long = long.repeat(4);
        assert_eq!(Reader::new(&[&long[..], b"\0"].concat()).name(), Err(MalformedMessage));
        let fits = [&long[..192], &b"\x3d"[..], &long[1..62], b"\0"].concat();
        assert_eq!(Reader::new(&fits).name().unwrap().as_bytes().len(), labels::MAX_NAME_LENGTH);
    }
}
