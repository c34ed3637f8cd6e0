//! Parsed messages.

use super::{Reader, kind};
use crate::name::WireName;

/// The bytes are not a valid DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid DNS message")]
pub struct MalformedMessage;

/// The header of a message (RFC 1035 section 4.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub id: u16,
    flags: u16,
    /// The number of entries of each [`Section`].
    counts: [u16; 4],
}

/// A section of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Question,
    Answer,
    Authority,
    Additional,
}

/// A question of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub name: WireName,
    pub kind: u16,
    pub class: u16,
}

/// A record of a message.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    pub section: Section,
    pub name: WireName,
    pub kind: u16,
    pub class: u16,
    pub ttl: u32,
    /// The data. Names in it may be compressed.
    pub data: &'a [u8],
    /// The offset of the record in its message.
    pub(super) begin: usize,
    /// The offset of the data in its message.
    pub(super) data_at: usize,
}

/// A parsed message.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    pub bytes: &'a [u8],
    pub header: Header,
    pub questions: Vec<Question>,
    pub records: Vec<Record<'a>>,
}

impl Header {
    /// Reads the header, the first twelve bytes of a message.
    ///
    /// # Errors
    /// Returns an error for fewer than twelve bytes.
    pub fn read(message: &[u8]) -> Result<Self, MalformedMessage> {
        let mut reader = Reader::new(message);
        let mut next = || reader.u16();
        Ok(Self { id: next()?, flags: next()?, counts: [next()?, next()?, next()?, next()?] })
    }

    #[must_use]
    pub fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    #[must_use]
    pub fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    #[must_use]
    pub fn recursion_desired(&self) -> bool {
        self.flags & 0x0100 != 0
    }

    #[must_use]
    pub fn opcode(&self) -> u8 {
        (self.flags.to_be_bytes()[0] >> 3) & 0xf
    }

    #[must_use]
    pub fn rcode(&self) -> u16 {
        self.flags & 0xf
    }

    pub(super) fn additional(&self) -> u16 {
        self.counts[3]
    }
}

impl<'a> Message<'a> {
    /// Parses a complete message.
    ///
    /// # Errors
    /// Returns an error for a truncated message, trailing bytes, or an invalid name.
    pub fn read(bytes: &'a [u8]) -> Result<Self, MalformedMessage> {
        let header = Header::read(bytes)?;
        let [questions, answers, authorities, additionals] = header.counts;
        let mut reader = Reader::at(bytes, 12);
        let mut message = Self { bytes, header, questions: Vec::new(), records: Vec::new() };
        for _ in 0..questions {
            let name = reader.name()?;
            message.questions.push(Question { name, kind: reader.u16()?, class: reader.u16()? });
        }
        for (section, count) in
            [(Section::Answer, answers), (Section::Authority, authorities), (Section::Additional, additionals)]
        {
            for _ in 0..count {
                message.records.push(record(&mut reader, section)?);
            }
        }
        if reader.is_at_end() { Ok(message) } else { Err(MalformedMessage) }
    }

    /// Returns the only question.
    ///
    /// # Errors
    /// Returns an error for no question, or more than one.
    pub fn question(&self) -> Result<&Question, MalformedMessage> {
        match self.questions.as_slice() {
            [question] => Ok(question),
            _ => Err(MalformedMessage),
        }
    }

    /// Returns the records of a section.
    pub fn section(&self, section: Section) -> impl Iterator<Item = &Record<'a>> {
        self.records.iter().filter(move |record| record.section == section)
    }

    /// Returns the EDNS version of the sender (RFC 6891), if it supports EDNS.
    #[must_use]
    pub fn edns(&self) -> Option<u8> {
        let opt = self.section(Section::Additional).find(|record| record.kind == kind::OPT)?;
        Some(opt.ttl.to_be_bytes()[1])
    }

    /// Returns the serial of an SOA record.
    ///
    /// # Errors
    /// Returns an error for data that is not valid for an SOA.
    pub fn serial(&self, soa: &Record<'_>) -> Result<u32, MalformedMessage> {
        let mut reader = Reader::at(self.bytes, soa.data_at);
        reader.name()?;
        reader.name()?;
        let serial = reader.u32()?;
        let end = reader.position() + 16;
        if end == soa.data_at + soa.data.len() { Ok(serial) } else { Err(MalformedMessage) }
    }
}

fn record<'a>(reader: &mut Reader<'a>, section: Section) -> Result<Record<'a>, MalformedMessage> {
    let begin = reader.position();
    let name = reader.name()?;
    let (kind, class, ttl, length) = (reader.u16()?, reader.u16()?, reader.u32()?, reader.u16()?);
    let data_at = reader.position();
    let data = reader.bytes(length.into())?;
    Ok(Record { section, name, kind, class, ttl, data, begin, data_at })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{TsigKey, Writer, opcode, question, rcode};
    use super::*;

    /// Calls all accessors of a message.
    fn use_up(message: &Message<'_>) {
        let key: TsigKey = "xfr:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap();
        assert!(key.check(message, 0).is_err());
        let _ = (message.question(), message.edns());
        for record in &message.records {
            let _ = (message.serial(record), record.name.to_host());
        }
    }

    /// Returns a signed message with all sections.
    fn rich() -> Vec<u8> {
        let zone = WireName::from_host("example.org").unwrap();
        let mut writer = Writer::request(7, opcode::NOTIFY, true);
        writer.question(&question(&zone, kind::SOA));
        let soa = [&b"\x01a\0\x01b\0"[..], &[0; 20]].concat();
        for section in [Section::Answer, Section::Authority] {
            writer.record(section, zone.as_bytes(), kind::SOA, 300, &soa).unwrap();
        }
        writer.edns(0);
        "xfr:hmac-sha256:YWJjZGVmMDEyMzQ1Njc4OQ==".parse::<TsigKey>().unwrap().sign(writer.finish(), 0).0
    }

    #[test]
    fn truncated_and_extended_messages_are_rejected() {
        let bytes = rich();
        let message = Message::read(&bytes).unwrap();
        assert_eq!(message.records.len(), 4);
        assert_eq!(message.header.rcode(), rcode::NOERROR);
        assert_eq!(message.serial(&message.records[0]), Ok(0));
        for end in 0..bytes.len() {
            assert_eq!(Message::read(&bytes[..end]).err(), Some(MalformedMessage), "cut at {end}");
        }
        assert_eq!(Message::read(&[&bytes[..], b"\0"].concat()).err(), Some(MalformedMessage));
    }

    proptest! {
        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(message) = Message::read(&bytes) {
                use_up(&message);
            }
        }

        #[test]
        fn parsing_damaged_messages_never_panics(
            damage in proptest::collection::vec((0_usize..200, any::<u8>()), 1..8),
        ) {
            let mut bytes = rich();
            for (at, byte) in damage {
                let length = bytes.len();
                bytes[at % length] = byte;
            }
            if let Ok(message) = Message::read(&bytes) {
                use_up(&message);
            }
        }
    }
}
