//! The fields of record data.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::lexer::{Word, quote};
use super::{InvalidRecord, loc, reject, svcb};
use crate::name::labels;

/// A field: its name in messages, and its kind.
pub(super) struct Field(pub &'static str, pub Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Octet,
    Short,
    Long,
    /// Four octets. The text may have units (`1h30m`), which nameservers accept, too.
    Seconds,
    V4,
    V6,
    Name,
    /// A character string (RFC 1035 section 3.3): a length and up to 255 octets.
    Text,
    /// One or more character strings. A text that is too long for one string is split.
    Texts,
    /// The remaining octets as one string of any length.
    Value,
    /// A case-insensitive character string of letters and digits.
    Tag,
    /// The remaining octets in hex.
    Digest,
    Params,
    Location,
}

/// The remaining words of a record.
pub(super) struct Words<'a>(std::slice::Iter<'a, Word<'a>>);

impl<'a> Words<'a> {
    pub fn new(words: &'a [Word<'a>]) -> Self {
        Self(words.iter())
    }

    pub fn next(&mut self) -> Option<Word<'a>> {
        self.0.next().copied()
    }

    pub fn rest(&mut self) -> &'a [Word<'a>] {
        std::mem::take(&mut self.0).as_slice()
    }
}

impl Field {
    /// Parses the words of the field and appends its wire format.
    pub fn read(&self, words: &mut Words<'_>, origin: &[u8], wire: &mut Vec<u8>) -> Result<(), InvalidRecord> {
        match self.1 {
            Kind::Texts => self.push_strings(words.rest(), wire)?,
            Kind::Params => wire.extend(svcb::read(words.rest())?),
            Kind::Location => wire.extend(loc::read(words)?),
            _ => {
                let Some(word) = words.next() else { return reject(format!("has no {}", self.0)) };
                self.word(word, words, origin, wire)?;
            }
        }
        Ok(())
    }

    /// Parses a field that begins with this word. Most fields have one word.
    fn word(
        &self,
        word: Word<'_>,
        following: &mut Words<'_>,
        origin: &[u8],
        wire: &mut Vec<u8>,
    ) -> Result<(), InvalidRecord> {
        match self.1 {
            Kind::Octet => wire.push(self.number::<u8>(word, "0 to 255")?),
            Kind::Short => wire.extend(self.number::<u16>(word, "0 to 65535")?.to_be_bytes()),
            Kind::Long => wire.extend(self.number::<u32>(word, "0 to 4294967295")?.to_be_bytes()),
            Kind::Seconds => {
                let seconds = word.bare().and_then(seconds);
                wire.extend(seconds.ok_or_else(|| self.error(word, "a number of seconds"))?.to_be_bytes());
            }
            Kind::V4 => wire.extend(self.address::<Ipv4Addr>(word)?.octets()),
            Kind::V6 => wire.extend(self.address::<Ipv6Addr>(word)?.octets()),
            Kind::Name => wire.extend(self.name(word, origin)?),
            Kind::Text | Kind::Tag => push_string(wire, &self.octets(word)?, self.0)?,
            Kind::Value => wire.extend(self.octets(word)?),
            Kind::Digest => wire.extend(hex(std::iter::once(&word).chain(following.rest()))?),
            Kind::Texts | Kind::Params | Kind::Location => {}
        }
        Ok(())
    }

    fn number<N: FromStr>(&self, word: Word<'_>, range: &str) -> Result<N, InvalidRecord> {
        number(word).ok_or_else(|| self.error(word, &format!("a number from {range}")))
    }

    fn address<A: FromStr>(&self, word: Word<'_>) -> Result<A, InvalidRecord> {
        word.bare()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| InvalidRecord(format!("is not a valid {}: {}", self.0, word.truncated())))
    }

    fn name(&self, word: Word<'_>, origin: &[u8]) -> Result<Vec<u8>, InvalidRecord> {
        let Some(text) = word.bare() else { return Err(self.error(word, "an unquoted name")) };
        if labels::is_address(text) {
            return Err(self.error(word, "a name but an IP address"));
        }
        labels::parse(text, origin)
            .map_err(|error| InvalidRecord(format!("has a {} that {error}: {}", self.0, word.truncated())))
    }

    fn octets(&self, word: Word<'_>) -> Result<Vec<u8>, InvalidRecord> {
        word.octets().ok_or_else(|| self.error(word, "a quoted string"))
    }

    fn push_strings(&self, words: &[Word<'_>], wire: &mut Vec<u8>) -> Result<(), InvalidRecord> {
        if words.is_empty() {
            return reject(format!("has no {}", self.0));
        }
        for word in words {
            let octets = self.octets(*word)?;
            if octets.is_empty() {
                wire.push(0);
            }
            for chunk in octets.chunks(255) {
                push_string(wire, chunk, self.0)?;
            }
        }
        Ok(())
    }

    fn error(&self, word: Word<'_>, what: &str) -> InvalidRecord {
        InvalidRecord(format!("has a {} that is not {what}: {}", self.0, word.truncated()))
    }
}

impl Kind {
    /// Formats the octets of a field. Returns `None` if they are invalid.
    pub fn text(self, wire: &[u8]) -> Option<String> {
        Some(match self {
            Self::Octet => wire.first()?.to_string(),
            Self::Short => u16::from_be_bytes(wire.try_into().ok()?).to_string(),
            Self::Long | Self::Seconds => u32::from_be_bytes(wire.try_into().ok()?).to_string(),
            Self::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(wire).ok()?).to_string(),
            Self::V6 => Ipv6Addr::from(<[u8; 16]>::try_from(wire).ok()?).to_string(),
            Self::Name => labels::text(wire),
            Self::Tag => String::from_utf8(wire.get(1..)?.to_vec()).ok()?,
            Self::Text | Self::Texts => strings(wire).map(quote).collect::<Vec<_>>().join(" "),
            Self::Value => quote(wire),
            Self::Digest => kernel::hex(wire),
            Self::Params => svcb::text(wire)?,
            Self::Location => loc::text(wire)?,
        })
    }
}

/// Parses a decimal number that consists of digits only.
pub(super) fn number<N: FromStr>(word: Word<'_>) -> Option<N> {
    let text = word.bare()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses a time in seconds, or in weeks, days, hours, minutes and seconds, such as `1h30m`.
pub(crate) fn seconds(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut total = 0_u32;
    let mut rest = text;
    while !rest.is_empty() {
        let (count, tail) = rest.split_at_checked(rest.find(|c: char| !c.is_ascii_digit())?)?;
        let unit = match tail.bytes().next()?.to_ascii_lowercase() {
            b'w' => 604_800,
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(count.parse::<u32>().ok()?.checked_mul(unit)?)?;
        rest = tail.get(1..)?;
    }
    Some(total)
}

/// Parses hex, which may be split into words at any position.
pub(super) fn hex<'a>(words: impl IntoIterator<Item = &'a Word<'a>>) -> Result<Vec<u8>, InvalidRecord> {
    let mut octets = Vec::new();
    let mut high = None;
    for word in words {
        for c in word.bare().unwrap_or("\"").chars() {
            let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let Some(digit) = digit else { return reject(format!("has {} instead of hex", word.truncated())) };
            match high.take() {
                None => high = Some(digit << 4),
                Some(high) => octets.push(high | digit),
            }
        }
    }
    if high.is_some() { reject("has an odd number of hex digits") } else { Ok(octets) }
}

/// Returns the complete character strings. Stops at an incomplete one.
pub(super) fn strings(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (length, tail) = rest.split_first()?;
        let (text, tail) = tail.split_at_checked((*length).into())?;
        rest = tail;
        Some(text)
    })
}

fn push_string(wire: &mut Vec<u8>, octets: &[u8], name: &str) -> Result<(), InvalidRecord> {
    let Ok(length) = u8::try_from(octets.len()) else { return reject(format!("has a {name} of more than 255 bytes")) };
    wire.push(length);
    wire.extend_from_slice(octets);
    Ok(())
}
