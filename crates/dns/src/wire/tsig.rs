//! Signatures of messages (RFC 8945).

use ring::hmac;

use super::{Header, Malformed, Message, Reader, Record, Section, TsigKey, class, kind};
use crate::name::WireName;

/// For how many seconds a signature of ours is good, either way (RFC 8945 section 10).
const FUDGE: u16 = 300;

/// The record that signs, apart from the message it signs.
struct Signature {
    name: WireName,
    algorithm: WireName,
    time: u64,
    fudge: u16,
    mac: Vec<u8>,
    original_id: u16,
    error: u16,
    other: Vec<u8>,
}

/// Why a signature is not believed (RFC 8945 section 5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistrust {
    /// There is no signature.
    Unsigned,
    /// It is no signature, or not where one has to be.
    Malformed,
    /// By a key that is not ours.
    Key,
    /// Not by who holds the key, or not of this message.
    Signature,
    /// Cut shorter than is taken here: all of it is wanted.
    Truncated,
    /// From another time than the present; by the key, so that the answer can be signed: with this.
    Time(Box<Chain>),
}

/// What an answer's signature is about beside the answer: the signature before it, that of the request or, in a transfer
/// of many messages, of the message before (RFC 8945 section 5.3.1).
#[derive(Clone)]
pub struct Chain {
    key: TsigKey,
    mac: Vec<u8>,
    /// When the request was signed, for who is told that this was at another time.
    requested_at: u64,
    is_begun: bool,
}

impl TsigKey {
    /// Checks who signed a request.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn check(&self, message: &Message<'_>, now: u64) -> Result<Chain, Mistrust> {
        self.verify(message, now, &[])
    }

    /// Checks who signed the answer to what was signed with `chain`.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn check_answer(&self, message: &Message<'_>, now: u64, chain: &Chain) -> Result<(), Mistrust> {
        self.verify(message, now, &with_length(&chain.mac)).map(drop)
    }

    fn verify(&self, message: &Message<'_>, now: u64, before: &[u8]) -> Result<Chain, Mistrust> {
        let (record, signature) = Signature::of(message)?;
        if signature.name != self.name || signature.algorithm != self.algorithm {
            return Err(Mistrust::Key);
        }
        let length = self.key.algorithm().digest_algorithm().output_len();
        if signature.mac.len() > length || signature.mac.len() < (length / 2).max(10) {
            return Err(Mistrust::Malformed);
        }
        let mut signed = before.to_vec();
        signed.extend(unsigned(message, record, signature.original_id));
        signed.extend(signature.variables());
        if signature.mac.len() < length {
            return Err(Mistrust::Truncated);
        }
        hmac::verify(&self.key, &signed, &signature.mac).map_err(|_| Mistrust::Signature)?;
        let chain = Chain { key: self.clone(), mac: signature.mac, requested_at: signature.time, is_begun: false };
        // The clock comes last: before the signature is believed, its time is not.
        match now.abs_diff(signature.time) > signature.fudge.into() {
            true => Err(Mistrust::Time(Box::new(chain))),
            false => Ok(chain),
        }
    }

    /// Signs a request of ours.
    pub fn sign(&self, message: Vec<u8>, now: u64) -> (Vec<u8>, Chain) {
        let mut chain = Chain { key: self.clone(), mac: Vec::new(), requested_at: now, is_begun: false };
        let mut signature = chain.signature(&message, now, 0);
        chain.mac = chain.mac_of(&[&message, &signature.variables()]);
        signature.mac.clone_from(&chain.mac);
        (signature.append_to(message), chain)
    }
}

impl Chain {
    /// Signs the next message of an answer.
    pub fn sign(&mut self, message: Vec<u8>, now: u64) -> Vec<u8> {
        let signature = self.signature(&message, now, 0);
        self.finish(message, signature)
    }

    /// Signs the answer to a request from another time (RFC 8945 section 5.2.3).
    pub fn sign_bad_time(&mut self, message: Vec<u8>, now: u64) -> Vec<u8> {
        let mut signature = self.signature(&message, self.requested_at, Mistrust::BAD_TIME);
        signature.other = now.to_be_bytes().into_iter().skip(2).collect();
        self.finish(message, signature)
    }

    fn finish(&mut self, message: Vec<u8>, mut signature: Signature) -> Vec<u8> {
        let before = with_length(&self.mac);
        let variables = if self.is_begun { signature.timers() } else { signature.variables() };
        self.mac = self.mac_of(&[&before, &message, &variables]);
        self.is_begun = true;
        signature.mac.clone_from(&self.mac);
        signature.append_to(message)
    }

    fn signature(&self, message: &[u8], time: u64, error: u16) -> Signature {
        let original_id = Header::read(message).map_or(0, |header| header.id);
        let (name, algorithm) = (self.key.name.clone(), self.key.algorithm.clone());
        Signature { name, algorithm, time, fudge: FUDGE, mac: Vec::new(), original_id, error, other: Vec::new() }
    }

    fn mac_of(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key.key);
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("key", &self.key).finish_non_exhaustive()
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.mac == other.mac
    }
}

impl Eq for Chain {}

impl Mistrust {
    const BAD_SIG: u16 = 16;
    const BAD_KEY: u16 = 17;
    const BAD_TIME: u16 = 18;
    const BAD_TRUNC: u16 = 22;

    /// Adds to the answer what was wrong with the request's signature, where there is a word for it.
    #[must_use]
    pub fn tell(self, request: &Message<'_>, answer: Vec<u8>, now: u64) -> Vec<u8> {
        let error = match self {
            Self::Time(mut chain) => return chain.sign_bad_time(answer, now),
            Self::Key => Self::BAD_KEY,
            Self::Signature => Self::BAD_SIG,
            Self::Truncated => Self::BAD_TRUNC,
            Self::Unsigned | Self::Malformed => return answer,
        };
        match Signature::of(request) {
            // Without a signature of its own: whoever reads it knows that much.
            Ok((_, signature)) => {
                Signature { mac: Vec::new(), error, other: Vec::new(), ..signature }.append_to(answer)
            }
            Err(_) => answer,
        }
    }
}

impl Signature {
    /// The signature of a message, and its record: the last one, and the only one of its kind.
    fn of<'m, 'a>(message: &'m Message<'a>) -> Result<(&'m Record<'a>, Self), Mistrust> {
        let mut signing = message.records.iter().filter(|record| record.kind == kind::TSIG);
        let record = signing.next().ok_or(Mistrust::Unsigned)?;
        let is_last = message.records.last().is_some_and(|last| last.begin == record.begin);
        let is_proper = record.section == Section::Additional && record.class == class::ANY && record.ttl == 0;
        if !is_last || !is_proper {
            return Err(Mistrust::Malformed);
        }
        let signature = Self::read(message.bytes, record).map_err(|Malformed| Mistrust::Malformed)?;
        Ok((record, signature))
    }

    fn read(message: &[u8], record: &Record<'_>) -> Result<Self, Malformed> {
        let mut reader = Reader::at(message, record.data_at);
        let algorithm = reader.name()?;
        let (time, fudge, length) = (reader.u48()?, reader.u16()?, reader.u16()?);
        let mac = reader.bytes(length.into())?.to_vec();
        let (original_id, error, length) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let other = reader.bytes(length.into())?.to_vec();
        if reader.position() != record.data_at + record.data.len() {
            return Err(Malformed);
        }
        Ok(Self { name: record.name.clone(), algorithm, time, fudge, mac, original_id, error, other })
    }

    /// What is signed of the record itself (RFC 8945 section 4.3.3).
    fn variables(&self) -> Vec<u8> {
        let class_and_ttl = [class::ANY.to_be_bytes(), [0; 2], [0; 2]].concat();
        let error = self.error.to_be_bytes();
        [
            self.name.as_bytes(),
            &class_and_ttl,
            self.algorithm.as_bytes(),
            &self.timers(),
            &error,
            &with_length(&self.other),
        ]
        .concat()
    }

    /// What is signed of it in all messages of an answer but the first.
    fn timers(&self) -> Vec<u8> {
        self.time.to_be_bytes().into_iter().skip(2).chain(self.fudge.to_be_bytes()).collect()
    }

    fn append_to(&self, mut message: Vec<u8>) -> Vec<u8> {
        let data = [
            self.algorithm.as_bytes(),
            &self.timers(),
            &with_length(&self.mac),
            &self.original_id.to_be_bytes(),
            &self.error.to_be_bytes(),
            &with_length(&self.other),
        ]
        .concat();
        message.extend_from_slice(self.name.as_bytes());
        message.extend([kind::TSIG, class::ANY, 0, 0].map(u16::to_be_bytes).concat());
        message.extend(with_length(&data));
        let additional = Header::read(&message).map_or(0, |header| header.additional());
        set(&mut message, 10, additional.saturating_add(1));
        message
    }
}

/// The message as it was before it was signed.
fn unsigned(message: &Message<'_>, signature: &Record<'_>, id: u16) -> Vec<u8> {
    let mut bytes: Vec<u8> = message.bytes.iter().copied().take(signature.begin).collect();
    set(&mut bytes, 0, id);
    set(&mut bytes, 10, message.header.additional().saturating_sub(1));
    bytes
}

fn set(message: &mut [u8], at: usize, value: u16) {
    if let Some(place) = message.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// What is never longer than two bytes can say: MACs, and data of a signature.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Message as Theirs, Query};
    use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
    use hickory_proto::rr::{Name, TSigner};

    use super::super::{Writer, rcode};
    use super::*;

    const NOW: u64 = 1_795_255_200;
    const SECRET: &[u8] = b"0123456789abcdef";

    fn key() -> TsigKey {
        "xfr.key:hmac-sha512:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap()
    }

    fn theirs() -> TSigner {
        let name = Name::from_ascii("Xfr.Key.").unwrap();
        TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha512, name, 300).unwrap()
    }

    /// A request as another implementation signs it, and what it expects of the answers.
    fn asked() -> (Vec<u8>, Vec<u8>) {
        let mut message = Theirs::query();
        message.add_query(Query::query(Name::from_ascii("example.org.").unwrap(), hickory_proto::rr::RecordType::AXFR));
        let (signature, _) = theirs().sign_message(&message, NOW).unwrap();
        let mac = signature.data.mac.clone();
        message.set_signature(signature);
        (message.to_vec().unwrap(), mac)
    }

    fn answer(request: &Message<'_>) -> Vec<u8> {
        let mut writer = Writer::response(&request.header, rcode::NOERROR, true);
        writer.question(request.question().unwrap());
        writer.finish()
    }

    #[test]
    fn another_implementation_takes_each_message_of_an_answer() {
        let (bytes, mut mac) = asked();
        let request = Message::read(&bytes).unwrap();
        let mut chain = key().check(&request, NOW + 299).unwrap();
        for number in 0..3 {
            let signed = chain.sign(answer(&request), NOW + number);
            (mac, ..) = theirs().verify_message_byte(&signed, Some(&mac), number == 0).unwrap();
        }
    }

    #[test]
    fn another_implementation_takes_a_request_and_we_take_its_answer() {
        let (bytes, _) = asked();
        let (signed, chain) = key().sign(answer(&Message::read(&bytes).unwrap()), NOW);
        let (mac, time, _) = theirs().verify_message_byte(&signed, None, true).unwrap();
        assert_eq!((&mac, time), (&chain.mac, NOW));
        let answered = {
            let mut theirs = key().check(&Message::read(&signed).unwrap(), NOW).unwrap();
            theirs.sign(answer(&Message::read(&bytes).unwrap()), NOW)
        };
        let answered = Message::read(&answered).unwrap();
        assert_eq!(key().check_answer(&answered, NOW, &chain), Ok(()));
        let other = key().sign(answer(&answered), NOW + 1).1;
        assert_eq!(key().check_answer(&answered, NOW, &other), Err(Mistrust::Signature));
    }

    #[test]
    fn each_changed_byte_is_noticed() {
        let (bytes, _) = asked();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let Ok(message) = Message::read(&changed) else { continue };
            // The id is the one thing that may change on the way, and names are the same in capitals.
            let same = at < 2 || bytes[at].is_ascii_alphabetic() && changed[at].eq_ignore_ascii_case(&bytes[at]);
            assert_eq!(key().check(&message, NOW).is_ok(), same, "byte {at}");
        }
    }

    #[test]
    fn each_mistrust_has_its_answer() {
        let (bytes, mac) = asked();
        let request = Message::read(&bytes).unwrap();
        let told = |mistrust: Mistrust| {
            let answer = mistrust.tell(&request, answer(&request), NOW + 301);
            let (_, signature) = Signature::of(&Message::read(&answer).unwrap()).unwrap();
            (answer, signature)
        };
        let late = key().check(&request, NOW + 301).unwrap_err();
        assert!(matches!(late, Mistrust::Time(_)));
        let (answer, signature) = told(late);
        assert_eq!((signature.error, signature.time), (18, NOW));
        assert_eq!(signature.other, (NOW + 301).to_be_bytes()[2..]);
        // Signed all the same. The other implementation reads no answer that holds its data, so by our own hand.
        let asker = Chain { key: key(), mac, requested_at: NOW, is_begun: false };
        assert_eq!(key().check_answer(&Message::read(&answer).unwrap(), NOW, &asker), Ok(()));

        let stranger: TsigKey = "xfr.key:hmac-sha512:MDEyMzQ1Njc4OWFiY2RlZw==".parse().unwrap();
        let unknown: TsigKey = "xfr.key:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap();
        for (key, code) in [(stranger, 16), (unknown, 17)] {
            let (_, signature) = told(key.check(&request, NOW).unwrap_err());
            assert_eq!((signature.error, signature.mac.len()), (code, 0));
        }
        let cut = Signature { mac: vec![0; 32], ..Signature::of(&request).unwrap().1 };
        let cut = cut.append_to(unsigned(&request, Signature::of(&request).unwrap().0, request.header.id));
        assert_eq!(key().check(&Message::read(&cut).unwrap(), NOW), Err(Mistrust::Truncated));
    }

    #[test]
    fn a_signature_stands_at_the_end_alone() {
        let (bytes, _) = asked();
        let request = Message::read(&bytes).unwrap();
        let (record, signature) = Signature::of(&request).unwrap();
        let twice = signature.append_to(bytes.clone());
        assert_eq!(key().check(&Message::read(&twice).unwrap(), NOW), Err(Mistrust::Malformed));
        let bare = unsigned(&request, record, request.header.id);
        assert_eq!(key().check(&Message::read(&bare).unwrap(), NOW), Err(Mistrust::Unsigned));
        let short = Signature { mac: vec![0; 9], ..signature }.append_to(bare);
        assert_eq!(key().check(&Message::read(&short).unwrap(), NOW), Err(Mistrust::Malformed));
    }
}
