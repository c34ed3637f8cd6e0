//! One 512-byte tar header.

use crate::{Fault, Reason};

pub(crate) const BLOCK: usize = 512;

/// What a bundle is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// What a header announces.
pub(crate) enum Type {
    Entry(Kind),
    /// GNU's `L`: the content is the next entry's name.
    LongName,
    /// POSIX's `x`: the content is records about the next entry.
    Pax,
    /// POSIX's `g`: the content is records about all entries that follow.
    PaxGlobal,
    /// What no bundle holds. Not an error yet, because the name may be in the extended header before this one.
    Refused(Reason),
}

pub(crate) struct Header {
    pub(crate) kind: Type,
    pub(crate) name: Vec<u8>,
    /// Bytes of content in the archive, without the padding.
    pub(crate) size: u64,
}

impl Header {
    pub(crate) fn parse(block: &[u8; BLOCK]) -> Result<Self, Fault> {
        let raw = tar::Header::from_byte_slice(block);
        // Until the checksum is right, no field is worth naming.
        if octal(&raw.as_old().cksum) != Some(checksum(block)) {
            return Err(Reason::ChecksumMismatch.into());
        }
        let name = raw.path_bytes().into_owned();
        // Whether there is a name prefix hangs on this field, and lenient readers disagree about odd values.
        let (ustar, gnu, v7) = (b"ustar\x0000", b"ustar  \0", &[0; 8]);
        let (_, magic) = block.split_at(257);
        if ![ustar, gnu, v7].iter().any(|known| magic.starts_with(*known)) {
            return Err(Reason::HeaderInvalid.at(&name));
        }
        match number(&raw.as_old().size) {
            Some(size) => Ok(Self { kind: kind(raw.entry_type()), name, size }),
            None => Err(Reason::SizeInvalid.at(&name)),
        }
    }
}

fn kind(entry: tar::EntryType) -> Type {
    match entry {
        tar::EntryType::Regular => Type::Entry(Kind::File),
        tar::EntryType::Directory => Type::Entry(Kind::Directory),
        tar::EntryType::GNULongName => Type::LongName,
        tar::EntryType::XHeader => Type::Pax,
        tar::EntryType::XGlobalHeader => Type::PaxGlobal,
        tar::EntryType::Link => Type::Refused(Reason::HardLink),
        tar::EntryType::Symlink => Type::Refused(Reason::SymbolicLink),
        tar::EntryType::Char => Type::Refused(Reason::CharacterDevice),
        tar::EntryType::Block => Type::Refused(Reason::BlockDevice),
        tar::EntryType::Fifo => Type::Refused(Reason::Fifo),
        tar::EntryType::Continuous => Type::Refused(Reason::ContiguousFile),
        tar::EntryType::GNUSparse => Type::Refused(Reason::SparseFile),
        tar::EntryType::GNULongLink => Type::Refused(Reason::LinkTarget),
        _ => Type::Refused(Reason::UnknownType),
    }
}

/// The sum of all bytes, with the eight of the checksum field itself counted as spaces.
fn checksum(block: &[u8; BLOCK]) -> u64 {
    let counted = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { *byte };
    block.iter().enumerate().map(counted).map(u64::from).sum()
}

/// Octal, or GNU's base-256 if it is positive and fits. The `tar` crate reads the low 64 bits of a base-256 number and
/// drops the rest, sign included, so it makes small sizes of huge and negative ones.
fn number(field: &[u8; 12]) -> Option<u64> {
    match field {
        [0x80, 0, 0, 0, low @ ..] => Some(u64::from_be_bytes(*low)),
        digits => octal(digits),
    }
}

/// Digits after optional spaces, and then nothing but spaces and NULs. At most twelve digits, so nothing overflows.
fn octal(field: &[u8]) -> Option<u64> {
    let spaces = field.iter().take_while(|byte| **byte == b' ').count();
    let (_, text) = field.split_at_checked(spaces)?;
    let digits = text.iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    if digits.is_empty() || !rest.iter().all(|byte| matches!(byte, b' ' | 0)) {
        return None;
    }
    Some(digits.iter().fold(0, |value, digit| value * 8 + u64::from(digit - b'0')))
}
