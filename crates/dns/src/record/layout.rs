//! The fields of each type, and conversions of record data: words to wire format, wire format to fields, and fields to
//! text.

use super::field::{Field, Kind, Words};
use super::{InvalidRecord, RecordType, loc, reject, svcb};

/// Returns the fields of a type. Their order is the same in wire format and in text.
const fn fields(kind: RecordType) -> &'static [Field] {
    use Kind::{Digest, Location, Long, Name, Octet, Params, Seconds, Short, Tag, Text, Texts, V4, V6, Value};
    match kind {
        RecordType::A => &[Field("IPv4 address", V4)],
        RecordType::Aaaa => &[Field("IPv6 address", V6)],
        // RFC 8659 section 4.1.
        RecordType::Caa => &[Field("flag byte", Octet), Field("tag", Tag), Field("value", Value)],
        RecordType::Cname | RecordType::Ptr => &[Field("target", Name)],
        // RFC 9460 section 2.2.
        RecordType::Https | RecordType::Svcb => {
            &[Field("priority", Short), Field("target", Name), Field("service parameters", Params)]
        }
        // RFC 1876.
        RecordType::Loc => &[Field("location", Location)],
        RecordType::Mx => &[Field("preference", Short), Field("mail server", Name)],
        // RFC 3403 section 4.1.
        RecordType::Naptr => &[
            Field("order", Short),
            Field("preference", Short),
            Field("flags", Text),
            Field("services", Text),
            Field("regular expression", Text),
            Field("replacement", Name),
        ],
        RecordType::Ns => &[Field("nameserver", Name)],
        RecordType::Soa => &[
            Field("primary nameserver", Name),
            Field("mailbox", Name),
            Field("serial", Long),
            Field("refresh", Seconds),
            Field("retry", Seconds),
            Field("expire", Seconds),
            Field("minimum", Seconds),
        ],
        // RFC 2782.
        RecordType::Srv => {
            &[Field("priority", Short), Field("weight", Short), Field("port", Short), Field("target", Name)]
        }
        // RFC 4255 section 3.1.
        RecordType::Sshfp => {
            &[Field("algorithm", Octet), Field("fingerprint type", Octet), Field("fingerprint", Digest)]
        }
        // RFC 6698 section 2.1.
        RecordType::Tlsa => &[
            Field("usage", Octet),
            Field("selector", Octet),
            Field("matching type", Octet),
            Field("certificate association data", Digest),
        ],
        RecordType::Txt => &[Field("string", Texts)],
        // RFC 7553 section 4.5.
        RecordType::Uri => &[Field("priority", Short), Field("weight", Short), Field("target", Value)],
    }
}

pub(super) fn read(kind: RecordType, words: &[super::Word<'_>], origin: &[u8]) -> Result<Vec<u8>, InvalidRecord> {
    let (mut words, mut wire) = (Words::new(words), Vec::new());
    for field in fields(kind) {
        field.read(&mut words, origin, &mut wire)?;
    }
    match words.next() {
        Some(word) => reject(format!("has more fields than the type {kind}: {}", word.truncated())),
        None => Ok(wire),
    }
}

/// Splits record data into the octets of each field. Returns `None` if the data is not valid for the type.
pub(super) fn split(kind: RecordType, wire: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = wire;
    let mut parts = Vec::with_capacity(fields(kind).len());
    for field in fields(kind) {
        let (part, tail) = rest.split_at_checked(field.1.length(rest)?)?;
        parts.push(part);
        rest = tail;
    }
    rest.is_empty().then_some(parts)
}

/// Normalizes the fields that have several representations in wire format.
pub(super) fn normalize(kind: RecordType, wire: &mut [u8]) {
    let mut rest = wire;
    for field in fields(kind) {
        let length = field.1.length(rest).unwrap_or_default();
        let Some((part, tail)) = std::mem::take(&mut rest).split_at_mut_checked(length) else { return };
        match field.1 {
            // Length octets of names are smaller than all letters, so this changes only letters. The length octet of a
            // tag can be a letter, so it is skipped.
            Kind::Name => part.make_ascii_lowercase(),
            Kind::Tag => part.get_mut(1..).unwrap_or_default().make_ascii_lowercase(),
            Kind::Location => loc::normalize(part),
            _ => {}
        }
        rest = tail;
    }
}

pub(super) fn text(kind: RecordType, wire: &[u8]) -> Option<String> {
    let parts = split(kind, wire)?;
    let texts: Option<Vec<_>> = fields(kind).iter().zip(parts).map(|(field, part)| field.1.text(part)).collect();
    Some(texts?.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" "))
}

impl Kind {
    /// Returns the length of the field at the start of these octets.
    fn length(self, wire: &[u8]) -> Option<usize> {
        match self {
            Self::Octet => Some(1),
            Self::Short => Some(2),
            Self::Long | Self::Seconds | Self::V4 => Some(4),
            Self::V6 | Self::Location => Some(16),
            Self::Name => crate::name::labels::wire_length(wire),
            Self::Text | Self::Tag => wire.first().map(|length| 1 + usize::from(*length)),
            Self::Texts => {
                let whole = super::field::strings(wire).map(|text| 1 + text.len()).sum::<usize>() == wire.len();
                (whole && !wire.is_empty()).then_some(wire.len())
            }
            Self::Params => svcb::is_well_formed(wire).then_some(wire.len()),
            Self::Digest | Self::Value => Some(wire.len()),
        }
    }
}
