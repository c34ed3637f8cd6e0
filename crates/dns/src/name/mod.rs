//! Names of zones and rrsets, as text and in wire format.

pub(crate) mod labels;
mod wire;
mod zone;

pub use labels::NameError;
pub use wire::WireName;
pub use zone::ZoneName;

/// A name relative to its zone: `@` for the apex, otherwise for example `www` or `_dmarc.mail`. The text is lowercase,
/// with canonical escapes (RFC 1035 section 5.1) and without a final dot.
///
/// Escapes are those of Knot: letters, digits and `-_*/` are not escaped, other visible characters follow a backslash,
/// and all other octets are `\DDD`. `Ord` compares the text; [`OwnerName::canonical_key`] gives the order of DNS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerName(String);

/// The reason why a text is not a name in the zone. The message completes "the name …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error(transparent)]
    Syntax(#[from] NameError),
    #[error("has a * that is not its whole first label")]
    Wildcard,
    #[error("is not in the zone {0}")]
    OutOfZone(String),
}

impl OwnerName {
    /// Parses `@`, a name relative to the zone, or an absolute name, which ends in a dot or in the zone's name.
    ///
    /// This is not the inverse of [`Self::as_str`]: in the zone `example.org`, the text `example.org` means the apex.
    /// The inverse is [`Self::new_unchecked`].
    ///
    /// # Errors
    /// Returns an error for a syntax error, or an absolute name outside the zone.
    pub fn parse(text: &str, zone: &ZoneName) -> Result<Self, InvalidName> {
        let apex = zone.wire().into_bytes();
        if text == "@" || text == "." {
            return Self::from_wire(if text == "@" { &apex } else { labels::ROOT }, zone);
        }
        let (mut wire, is_absolute) = labels::parse_labels(text)?;
        wire.extend_from_slice(labels::ROOT);
        if !is_absolute && Self::from_wire(&wire, zone).is_err() {
            wire.pop();
            wire.extend_from_slice(&apex);
        }
        Self::from_wire(&wire, zone)
    }

    /// Converts an absolute, uncompressed name in wire format.
    ///
    /// # Errors
    /// Returns an error for invalid wire format, or a name outside the zone.
    pub fn from_wire(wire: &[u8], zone: &ZoneName) -> Result<Self, InvalidName> {
        if labels::wire_length(wire) != Some(wire.len()) {
            return Err(NameError::Long.into());
        }
        // Length octets are smaller than all letters, so this changes only letters.
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
            labels::write_label(&mut text, label);
            rest = rest.get(1 + label.len()..).unwrap_or_default();
        }
        match (rest == apex, text.is_empty()) {
            (true, true) => Ok(Self::apex()),
            (true, false) => Ok(Self(text)),
            (false, _) => Err(InvalidName::OutOfZone(zone.as_str().to_owned())),
        }
    }

    /// Returns the name of the apex, which is the zone's own name.
    #[must_use]
    pub fn apex() -> Self {
        Self("@".to_owned())
    }

    /// Wraps a validated name, such as one from Postgres.
    #[must_use]
    pub fn new_unchecked(name: String) -> Self {
        Self(name)
    }

    /// Returns the name relative to the zone; `@` for the apex.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name is the apex.
    #[must_use]
    pub fn is_apex(&self) -> bool {
        self.0 == "@"
    }

    /// Returns the absolute name, without the final dot.
    #[must_use]
    pub fn absolute(&self, zone: &ZoneName) -> String {
        if self.is_apex() { zone.as_str().to_owned() } else { format!("{}.{}", self.0, zone.as_str()) }
    }

    /// Returns the absolute name in wire format.
    #[must_use]
    pub fn wire(&self, zone: &ZoneName) -> WireName {
        let mut wire = self.relative_wire();
        wire.extend_from_slice(zone.wire().as_bytes());
        WireName::new_unchecked(wire)
    }

    /// Returns the sort key of the canonical order (RFC 4034 section 6.1): the labels from the right, each followed by
    /// a zero byte. The bytes 0 and 1 of a label become two bytes, so that a label sorts before its extensions.
    /// Different names have different keys; the apex has the empty key.
    #[must_use]
    pub fn canonical_key(&self) -> Vec<u8> {
        let wire = self.relative_wire();
        let labels: Vec<&[u8]> = labels::labels(&wire).collect();
        let mut key = Vec::with_capacity(wire.len());
        for label in labels.into_iter().rev() {
            for &byte in label {
                match byte {
                    0 | 1 => key.extend([1, byte + 1]),
                    _ => key.push(byte),
                }
            }
            key.push(0);
        }
        key
    }

    /// Returns the labels relative to the zone, in wire format. The text is valid, so parsing cannot fail.
    fn relative_wire(&self) -> Vec<u8> {
        if self.is_apex() { Vec::new() } else { labels::parse_labels(&self.0).unwrap_or_default().0 }
    }
}
