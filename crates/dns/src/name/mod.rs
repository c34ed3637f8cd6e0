//! The names of zones and of the rrsets in them, as text and in wire format.

pub(crate) mod labels;
mod wire;
mod zone;

pub use labels::NameFault;
pub use wire::WireName;
pub use zone::ZoneName;

/// A name in a zone, relative to it: `@` for the zone's own, else `www` or `_dmarc.mail`; lowercase, escapes canonical
/// (RFC 1035 section 5.1), without a final dot.
///
/// As in Knot, letters, digits and `-_*/` stand for themselves, other visible characters behind a backslash, and the
/// rest as `\DDD`. The order is that of the text; for that of DNS see [`OwnerName::canonical_key`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerName(String);

/// Why a text names nothing in a zone; in words that complete "the name …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error(transparent)]
    Shape(#[from] NameFault),
    #[error("has a * that is not its whole first label")]
    Wildcard,
    #[error("is not in the zone {0}")]
    OutOfZone(String),
}

impl OwnerName {
    /// Reads `@`, a name relative to the zone, or an absolute one: one that ends in a dot, or in the zone's name.
    ///
    /// Not the way back from [`Self::as_str`]: `example.org` in the zone of that name is its apex. That is
    /// [`Self::stored`].
    ///
    /// # Errors
    /// When it is no name, or absolute and not in the zone.
    pub fn parse(text: &str, zone: &ZoneName) -> Result<Self, InvalidName> {
        let apex = zone.wire().into_bytes();
        if text == "@" || text == "." {
            return Self::from_wire(if text == "@" { &apex } else { labels::ROOT }, zone);
        }
        let (mut wire, is_absolute) = labels::prefix(text)?;
        wire.extend_from_slice(labels::ROOT);
        if !is_absolute && Self::from_wire(&wire, zone).is_err() {
            wire.pop();
            wire.extend_from_slice(&apex);
        }
        Self::from_wire(&wire, zone)
    }

    /// Takes an absolute name that is on the wire already, uncompressed.
    ///
    /// # Errors
    /// When it is no name, or not in the zone.
    pub fn from_wire(wire: &[u8], zone: &ZoneName) -> Result<Self, InvalidName> {
        if labels::measure(wire) != Some(wire.len()) {
            return Err(NameFault::Long.into());
        }
        // A length is below every letter.
        let wire = wire.to_ascii_lowercase();
        let (mut text, mut rest) = (String::new(), wire.as_slice());
        let apex = zone.wire().into_bytes();
        for label in labels::labels(&wire) {
            if rest == apex {
                break;
            }
            if label.contains(&b'*') && (label != b"*" || !text.is_empty()) {
                return Err(InvalidName::Wildcard);
            }
            if !text.is_empty() {
                text.push('.');
            }
            labels::write(&mut text, label);
            rest = rest.get(1 + label.len()..).unwrap_or_default();
        }
        match (rest == apex, text.is_empty()) {
            (true, true) => Ok(Self::apex()),
            (true, false) => Ok(Self(text)),
            (false, _) => Err(InvalidName::OutOfZone(zone.as_str().to_owned())),
        }
    }

    /// The zone's own name.
    #[must_use]
    pub fn apex() -> Self {
        Self("@".to_owned())
    }

    /// A name that was parsed before, such as that of a row.
    #[must_use]
    pub fn stored(name: String) -> Self {
        Self(name)
    }

    /// Relative to the zone; `@` for its own.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the zone's own name.
    #[must_use]
    pub fn is_apex(&self) -> bool {
        self.0 == "@"
    }

    /// The absolute name, without the final dot.
    #[must_use]
    pub fn absolute(&self, zone: &ZoneName) -> String {
        if self.is_apex() { zone.as_str().to_owned() } else { format!("{}.{}", self.0, zone.as_str()) }
    }

    /// The absolute name in wire format.
    #[must_use]
    pub fn wire(&self, zone: &ZoneName) -> WireName {
        let mut wire = self.prefix();
        wire.extend_from_slice(zone.wire().as_bytes());
        WireName::stored(wire)
    }

    /// What names of one zone are ordered by (RFC 4034 section 6.1): their labels from the right.
    #[must_use]
    pub fn canonical_key(&self) -> Vec<Vec<u8>> {
        let mut key: Vec<_> = labels::labels(&self.prefix()).map(<[u8]>::to_vec).collect();
        key.reverse();
        key
    }

    /// Its own labels. That the text is a name was seen when it was parsed.
    fn prefix(&self) -> Vec<u8> {
        if self.is_apex() { Vec::new() } else { labels::prefix(&self.0).unwrap_or_default().0 }
    }
}
