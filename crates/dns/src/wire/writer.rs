//! The message writer.

use std::collections::HashMap;

use super::{Header, MAX_MESSAGE_LENGTH, MalformedMessage, Question, Section, class, kind};
use crate::name::WireName;
use crate::name::labels::suffixes;

/// A message under construction. Owner names are compressed (RFC 1035 section 4.1.4); record data is not.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The offset of each name suffix.
    names: HashMap<Vec<u8>, u16>,
    counts: [u16; 4],
}

/// The largest offset of a compression pointer.
const MAX_POINTER: usize = 0x3fff;

/// The advertised UDP payload size (RFC 9715 section 3).
const UDP_PAYLOAD_SIZE: u16 = 1232;

impl Writer {
    /// Starts a request.
    pub(crate) fn request(id: u16, opcode: u8, authoritative: bool) -> Self {
        Self::with(id, u16::from(opcode) << 11 | if authoritative { 0x0400 } else { 0 })
    }

    /// Starts the response to a request. The caller repeats the question, if it is valid.
    pub(crate) fn response(request: &Header, rcode: u16, authoritative: bool) -> Self {
        let mut flags = 0x8000 | u16::from(request.opcode()) << 11 | rcode & 0xf;
        flags |= if authoritative { 0x0400 } else { 0 };
        flags |= if request.recursion_desired() { 0x0100 } else { 0 };
        Self::with(request.id, flags)
    }

    fn with(id: u16, flags: u16) -> Self {
        let bytes = [id.to_be_bytes(), flags.to_be_bytes(), [0; 2], [0; 2], [0; 2], [0; 2]].concat();
        Self { bytes, names: HashMap::new(), counts: [0; 4] }
    }

    pub(crate) fn question(&mut self, question: &Question) {
        self.name(question.name.as_bytes());
        self.u16(question.kind);
        self.u16(question.class);
        self.count(Section::Question);
    }

    /// Adds a record of class IN.
    ///
    /// # Errors
    /// Returns an error if the message would exceed the maximum length. The message stays unchanged.
    pub(crate) fn record(
        &mut self,
        section: Section,
        name: &[u8],
        kind: u16,
        ttl: u32,
        data: &[u8],
    ) -> Result<(), MalformedMessage> {
        let length = u16::try_from(data.len()).map_err(|_| MalformedMessage)?;
        if self.bytes.len() + name.len() + 10 + data.len() > MAX_MESSAGE_LENGTH {
            return Err(MalformedMessage);
        }
        self.name(name);
        self.u16(kind);
        self.u16(class::IN);
        self.bytes.extend(ttl.to_be_bytes());
        self.u16(length);
        self.bytes.extend_from_slice(data);
        self.count(section);
        Ok(())
    }

    /// Adds the OPT record (RFC 6891 section 6.1), with the upper bits of an extended response code.
    pub(crate) fn edns(&mut self, extended: u8) {
        self.bytes.push(0);
        self.u16(kind::OPT);
        self.u16(UDP_PAYLOAD_SIZE);
        self.bytes.extend([extended, 0, 0, 0, 0, 0]);
        self.count(Section::Additional);
    }

    /// Returns the current length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the section is empty.
    pub(crate) fn is_empty(&self, section: Section) -> bool {
        self.counts.get(section as usize).is_none_or(|count| *count == 0)
    }

    /// Writes the counts and returns the message.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let counts = self.counts.map(u16::to_be_bytes).concat();
        if let Some(place) = self.bytes.get_mut(4..12) {
            place.copy_from_slice(&counts);
        }
        self.bytes
    }

    fn name(&mut self, wire: &[u8]) {
        for suffix in suffixes(wire) {
            if let Some(at) = self.names.get(suffix) {
                let pointer = 0xc000 | at;
                self.u16(pointer);
                return;
            }
            if let Ok(at) = u16::try_from(self.bytes.len())
                && self.bytes.len() <= MAX_POINTER
            {
                self.names.insert(suffix.to_vec(), at);
            }
            let label = usize::from(suffix.first().copied().unwrap_or_default());
            self.bytes.extend(suffix.iter().take(label + 1));
        }
        self.bytes.push(0);
    }

    fn u16(&mut self, value: u16) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn count(&mut self, section: Section) {
        if let Some(count) = self.counts.get_mut(section as usize) {
            *count = count.saturating_add(1);
        }
    }
}

/// Returns a question of class IN.
pub(crate) fn question(name: &WireName, kind: u16) -> Question {
    Question { name: name.clone(), kind, class: class::IN }
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::*;

    #[test]
    fn written_messages_parse_back_and_names_are_compressed() {
        let zone = WireName::from_host("example.org").unwrap();
        let www = WireName::from_host("www.example.org").unwrap();
        let mut writer = Writer::request(7, 0, true);
        writer.question(&question(&zone, kind::SOA));
        writer.record(Section::Answer, www.as_bytes(), 1, 300, &[192, 0, 2, 1]).unwrap();
        writer.record(Section::Answer, www.as_bytes(), 1, 300, &[192, 0, 2, 2]).unwrap();
        writer.edns(0);
        let bytes = writer.finish();
        assert_eq!(bytes.len(), 12 + (13 + 4) + (4 + 2 + 10 + 4) + (2 + 10 + 4) + 11);
        let message = Message::read(&bytes).unwrap();
        assert_eq!(message.header.id, 7);
        assert!(message.header.is_authoritative() && !message.header.is_response());
        assert_eq!(message.question().unwrap(), &question(&zone, kind::SOA));
        let answers: Vec<_> = message.section(Section::Answer).map(|it| (it.name.clone(), it.ttl, it.data)).collect();
        assert_eq!(answers, [(www.clone(), 300, &[192, 0, 2, 1][..]), (www, 300, &[192, 0, 2, 2])]);
        assert_eq!(message.edns(), Some(0));
    }

    #[test]
    fn oversized_record_leaves_the_message_unchanged() {
        let name = WireName::from_host("example.org").unwrap();
        let mut writer = Writer::request(7, 0, false);
        writer.record(Section::Answer, name.as_bytes(), 16, 0, &vec![0; 60_000]).unwrap();
        let length = writer.len();
        assert_eq!(writer.record(Section::Answer, name.as_bytes(), 16, 0, &vec![0; 6000]), Err(MalformedMessage));
        assert_eq!(writer.len(), length);
        assert_eq!(Message::read(&writer.finish()).unwrap().records.len(), 1);
    }

    #[test]
    fn names_beyond_the_pointer_range_are_written_in_full() {
        let mut writer = Writer::request(7, 0, false);
        for number in 0..2000 {
            let name = WireName::from_host(&format!("host-{number}.example.org")).unwrap();
            writer.record(Section::Answer, name.as_bytes(), 1, 0, &[0; 4]).unwrap();
        }
        let bytes = writer.finish();
        let message = Message::read(&bytes).unwrap();
        for (number, record) in message.records.iter().enumerate() {
            assert_eq!(record.name.to_host().unwrap(), format!("host-{number}.example.org"));
        }
    }
}
