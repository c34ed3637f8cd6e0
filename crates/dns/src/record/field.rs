//! The fields that record data is made of, one by one.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::lexer::{Word, quoted};
use super::{InvalidRecord, loc, refuse, svcb};
use crate::name::labels;

/// A field, and what people call it.
pub(super) struct Field(pub &'static str, pub Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Octet,
    Short,
    Long,
    /// Of four octets; units may be written (`1h30m`), as nameservers take them.
    Seconds,
    V4,
    V6,
    Name,
    /// A character string (RFC 1035 section 3.3): a length and up to 255 octets.
    Text,
    /// One character string or more; a longer one becomes several.
    Texts,
    /// The rest, as one string of any length.
    Value,
    /// A character string of letters and digits, of which the case does not matter.
    Tag,
    /// The rest, in hex.
    Digest,
    Params,
    Location,
}

/// What is left of a record's words.
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
    /// Reads the words that belong to the field, and appends what they say.
    pub fn read(&self, words: &mut Words<'_>, origin: &[u8], wire: &mut Vec<u8>) -> Result<(), InvalidRecord> {
        match self.1 {
            Kind::Texts => self.texts(words.rest(), wire)?,
            Kind::Params => wire.extend(svcb::read(words.rest())?),
            Kind::Location => wire.extend(loc::read(words)?),
            _ => {
                let Some(word) = words.next() else { return refuse(format!("has no {}", self.0)) };
                self.word(word, words, origin, wire)?;
            }
        }
        Ok(())
    }

    /// Reads a field that begins with this word, and mostly ends with it.
    fn word(
        &self,
        word: Word<'_>,
        behind: &mut Words<'_>,
        origin: &[u8],
        wire: &mut Vec<u8>,
    ) -> Result<(), InvalidRecord> {
        match self.1 {
            Kind::Octet => wire.push(self.number::<u8>(word, "0 to 255")?),
            Kind::Short => wire.extend(self.number::<u16>(word, "0 to 65535")?.to_be_bytes()),
            Kind::Long => wire.extend(self.number::<u32>(word, "0 to 4294967295")?.to_be_bytes()),
            Kind::Seconds => {
                let seconds = word.bare().and_then(seconds);
                wire.extend(seconds.ok_or_else(|| self.wrong(word, "a number of seconds"))?.to_be_bytes());
            }
            Kind::V4 => wire.extend(self.address::<Ipv4Addr>(word)?.octets()),
            Kind::V6 => wire.extend(self.address::<Ipv6Addr>(word)?.octets()),
            Kind::Name => wire.extend(self.target(word, origin)?),
            Kind::Text | Kind::Tag => push_string(wire, &self.octets(word)?, self.0)?,
            Kind::Value => wire.extend(self.octets(word)?),
            Kind::Digest => wire.extend(hex(std::iter::once(&word).chain(behind.rest()))?),
            Kind::Texts | Kind::Params | Kind::Location => {}
        }
        Ok(())
    }

    fn number<N: FromStr>(&self, word: Word<'_>, range: &str) -> Result<N, InvalidRecord> {
        number(word).ok_or_else(|| self.wrong(word, &format!("a number from {range}")))
    }

    fn address<A: FromStr>(&self, word: Word<'_>) -> Result<A, InvalidRecord> {
        word.bare()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| InvalidRecord(format!("is no {}: {}", self.0, word.shown())))
    }

    fn target(&self, word: Word<'_>, origin: &[u8]) -> Result<Vec<u8>, InvalidRecord> {
        let Some(text) = word.bare() else { return Err(self.wrong(word, "a name outside quotation marks")) };
        if labels::is_address(text) {
            return Err(self.wrong(word, "a name but an IP address"));
        }
        labels::read(text, origin)
            .map_err(|fault| InvalidRecord(format!("has a {} that {fault}: {}", self.0, word.shown())))
    }

    fn octets(&self, word: Word<'_>) -> Result<Vec<u8>, InvalidRecord> {
        word.octets().ok_or_else(|| self.wrong(word, "a quoted string"))
    }

    fn texts(&self, words: &[Word<'_>], wire: &mut Vec<u8>) -> Result<(), InvalidRecord> {
        if words.is_empty() {
            return refuse(format!("has no {}", self.0));
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

    fn wrong(&self, word: Word<'_>, what: &str) -> InvalidRecord {
        InvalidRecord(format!("has a {} that is not {what}: {}", self.0, word.shown()))
    }
}

impl Kind {
    /// The field's octets as text; none when they are not its.
    pub fn text(self, wire: &[u8]) -> Option<String> {
        Some(match self {
            Self::Octet => wire.first()?.to_string(),
            Self::Short => u16::from_be_bytes(wire.try_into().ok()?).to_string(),
            Self::Long | Self::Seconds => u32::from_be_bytes(wire.try_into().ok()?).to_string(),
            Self::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(wire).ok()?).to_string(),
            Self::V6 => Ipv6Addr::from(<[u8; 16]>::try_from(wire).ok()?).to_string(),
            Self::Name => labels::text(wire),
            Self::Tag => String::from_utf8(wire.get(1..)?.to_vec()).ok()?,
            Self::Text | Self::Texts => strings(wire).map(quoted).collect::<Vec<_>>().join(" "),
            Self::Value => quoted(wire),
            Self::Digest => hex_text(wire),
            Self::Params => svcb::text(wire)?,
            Self::Location => loc::text(wire)?,
        })
    }
}

/// A decimal number, digits only.
pub(super) fn number<N: FromStr>(word: Word<'_>) -> Option<N> {
    let text = word.bare()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A time in seconds, or in weeks, days, hours, minutes and seconds: `1h30m`.
pub(crate) fn seconds(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut total = 0_u32;
    let mut rest = text;
    while !rest.is_empty() {
        let (count, behind) = rest.split_at_checked(rest.find(|c: char| !c.is_ascii_digit())?)?;
        let unit = match behind.bytes().next()?.to_ascii_lowercase() {
            b'w' => 604_800,
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(count.parse::<u32>().ok()?.checked_mul(unit)?)?;
        rest = behind.get(1..)?;
    }
    Some(total)
}

/// Hex, which may be broken into several words anywhere.
pub(super) fn hex<'a>(words: impl IntoIterator<Item = &'a Word<'a>>) -> Result<Vec<u8>, InvalidRecord> {
    let mut octets = Vec::new();
    let mut high = None;
    for word in words {
        for c in word.bare().unwrap_or("\"").chars() {
            let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let Some(digit) = digit else { return refuse(format!("has {} where hex belongs", word.shown())) };
            match high.take() {
                None => high = Some(digit << 4),
                Some(high) => octets.push(high | digit),
            }
        }
    }
    if high.is_some() { refuse("has half a byte at the end of its hex") } else { Ok(octets) }
}

pub(super) fn hex_text(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The character strings, as far as they are whole.
pub(super) fn strings(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first()?;
        let (text, behind) = behind.split_at_checked((*length).into())?;
        rest = behind;
        Some(text)
    })
}

fn push_string(wire: &mut Vec<u8>, octets: &[u8], name: &str) -> Result<(), InvalidRecord> {
    let Ok(length) = u8::try_from(octets.len()) else { return refuse(format!("has a {name} of more than 255 bytes")) };
    wire.push(length);
    wire.extend_from_slice(octets);
    Ok(())
}
