//! TSIG signatures of messages (RFC 8945).

use ring::hmac;

use super::{Header, MalformedMessage, Message, Reader, Record, Section, TsigKey, class, kind};
use crate::name::WireName;

/// The clock difference that our signatures permit, in seconds (RFC 8945 section 10).
const FUDGE: u16 = 300;

/// The content of a TSIG record.
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

/// The reason why a signature is rejected (RFC 8945 section 5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TsigError {
    /// The message has no signature.
    Unsigned,
    /// The signature is malformed, or is not the last record.
    Malformed,
    /// The key or the algorithm is unknown.
    UnknownKey,
    /// The MAC does not match the key and the message.
    BadSignature,
    /// The MAC is truncated, which this implementation does not accept.
    Truncated,
    /// The MAC matches, but the time differs too much from the current time. The error response is signed with this
    /// chain.
    BadTime(Box<TsigChain>),
}

/// The signature state of an exchange. The signature of an answer also covers the previous signature: that of the
/// request or, in a transfer of many messages, of the previous message (RFC 8945 section 5.3.1).
#[derive(Clone)]
pub struct TsigChain {
    key: TsigKey,
    mac: Vec<u8>,
    /// The time in the request's signature, which a BADTIME answer repeats.
    requested_at: u64,
    is_continued: bool,
}

impl TsigKey {
    /// Verifies the signature of a request.
    ///
    /// # Errors
    /// Returns the reason why the signature is rejected.
    pub fn check(&self, message: &Message<'_>, now: u64) -> Result<TsigChain, TsigError> {
        self.verify(message, now, &[])
    }

    /// Verifies the signature of the answer to a request that was signed with `chain`.
    ///
    /// # Errors
    /// Returns the reason why the signature is rejected.
    pub fn check_answer(&self, message: &Message<'_>, now: u64, chain: &TsigChain) -> Result<(), TsigError> {
        self.verify(message, now, &with_length(&chain.mac)).map(drop)
    }

    fn verify(&self, message: &Message<'_>, now: u64, before: &[u8]) -> Result<TsigChain, TsigError> {
        let (record, signature) = Signature::find(message)?;
        if signature.name != self.name || signature.algorithm != self.algorithm {
            return Err(TsigError::UnknownKey);
        }
        let length = self.key.algorithm().digest_algorithm().output_len();
        if signature.mac.len() > length || signature.mac.len() < (length / 2).max(10) {
            return Err(TsigError::Malformed);
        }
        let mut signed = before.to_vec();
        signed.extend(without_signature(message, record, signature.original_id));
        signed.extend(signature.variables());
        if signature.mac.len() < length {
            return Err(TsigError::Truncated);
        }
        hmac::verify(&self.key, &signed, &signature.mac).map_err(|_| TsigError::BadSignature)?;
        let chain =
            TsigChain { key: self.clone(), mac: signature.mac, requested_at: signature.time, is_continued: false };
        // The time is checked last: it is trusted only after the MAC is verified.
        match now.abs_diff(signature.time) > signature.fudge.into() {
            true => Err(TsigError::BadTime(Box::new(chain))),
            false => Ok(chain),
        }
    }

    /// Signs an outgoing request.
    pub fn sign(&self, message: Vec<u8>, now: u64) -> (Vec<u8>, TsigChain) {
        let mut chain = TsigChain { key: self.clone(), mac: Vec::new(), requested_at: now, is_continued: false };
        let mut signature = chain.signature(&message, now, 0);
        chain.mac = chain.mac_of(&[&message, &signature.variables()]);
        signature.mac.clone_from(&chain.mac);
        (signature.append_to(message), chain)
    }
}

impl TsigChain {
    /// Signs the next message of an answer.
    pub fn sign(&mut self, message: Vec<u8>, now: u64) -> Vec<u8> {
        let signature = self.signature(&message, now, 0);
        self.finish(message, signature)
    }

    /// Signs a BADTIME answer (RFC 8945 section 5.2.3).
    pub fn sign_bad_time(&mut self, message: Vec<u8>, now: u64) -> Vec<u8> {
        let mut signature = self.signature(&message, self.requested_at, TsigError::BAD_TIME);
        signature.other = now.to_be_bytes().into_iter().skip(2).collect();
        self.finish(message, signature)
    }

    fn finish(&mut self, message: Vec<u8>, mut signature: Signature) -> Vec<u8> {
        let before = with_length(&self.mac);
        let variables = if self.is_continued { signature.timers() } else { signature.variables() };
        self.mac = self.mac_of(&[&before, &message, &variables]);
        self.is_continued = true;
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

impl std::fmt::Debug for TsigChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TsigChain").field("key", &self.key).finish_non_exhaustive()
    }
}

impl PartialEq for TsigChain {
    fn eq(&self, other: &Self) -> bool {
        self.mac == other.mac
    }
}

impl Eq for TsigChain {}

impl TsigError {
    const BAD_SIG: u16 = 16;
    const BAD_KEY: u16 = 17;
    const BAD_TIME: u16 = 18;
    const BAD_TRUNC: u16 = 22;

    /// Adds a TSIG record with the error code to the answer, if the error has a code.
    #[must_use]
    pub fn add_to_answer(self, request: &Message<'_>, answer: Vec<u8>, now: u64) -> Vec<u8> {
        let error = match self {
            Self::BadTime(mut chain) => return chain.sign_bad_time(answer, now),
            Self::UnknownKey => Self::BAD_KEY,
            Self::BadSignature => Self::BAD_SIG,
            Self::Truncated => Self::BAD_TRUNC,
            Self::Unsigned | Self::Malformed => return answer,
        };
        match Signature::find(request) {
            // The answer to this error has no MAC (RFC 8945 section 5.3.2).
            Ok((_, signature)) => {
                Signature { mac: Vec::new(), error, other: Vec::new(), ..signature }.append_to(answer)
            }
            Err(_) => answer,
        }
    }
}

impl Signature {
    /// Returns the TSIG record of a message and the signature in it. The record must be the last one, and the only TSIG
    /// record.
    fn find<'m, 'a>(message: &'m Message<'a>) -> Result<(&'m Record<'a>, Self), TsigError> {
        let mut signing = message.records.iter().filter(|record| record.kind == kind::TSIG);
        let record = signing.next().ok_or(TsigError::Unsigned)?;
        let is_last = message.records.last().is_some_and(|last| last.begin == record.begin);
        let is_proper = record.section == Section::Additional && record.class == class::ANY && record.ttl == 0;
        if !is_last || !is_proper {
            return Err(TsigError::Malformed);
        }
        let signature = Self::read(message.bytes, record).map_err(|MalformedMessage| TsigError::Malformed)?;
        Ok((record, signature))
    }

    fn read(message: &[u8], record: &Record<'_>) -> Result<Self, MalformedMessage> {
        let mut reader = Reader::at(message, record.data_at);
        let algorithm = reader.name()?;
        let (time, fudge, length) = (reader.u48()?, reader.u16()?, reader.u16()?);
        let mac = reader.bytes(length.into())?.to_vec();
        let (original_id, error, length) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let other = reader.bytes(length.into())?.to_vec();
        if reader.position() != record.data_at + record.data.len() {
            return Err(MalformedMessage);
        }
        Ok(Self { name: record.name.clone(), algorithm, time, fudge, mac, original_id, error, other })
    }

    /// Returns the TSIG variables that the MAC covers (RFC 8945 section 4.3.3).
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

    /// Returns the TSIG timers, which the MAC covers instead of the variables after the first message of an answer.
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
        set_u16(&mut message, 10, additional.saturating_add(1));
        message
    }
}

/// Returns the message without its signature.
fn without_signature(message: &Message<'_>, signature: &Record<'_>, id: u16) -> Vec<u8> {
    let mut bytes: Vec<u8> = message.bytes.iter().copied().take(signature.begin).collect();
    set_u16(&mut bytes, 0, id);
    set_u16(&mut bytes, 10, message.header.additional().saturating_sub(1));
    bytes
}

fn set_u16(message: &mut [u8], at: usize, value: u16) {
    if let Some(place) = message.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Prepends a two-byte length. MACs and TSIG data always fit.
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

    fn hickory_signer() -> TSigner {
        let name = Name::from_ascii("Xfr.Key.").unwrap();
        TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha512, name, 300).unwrap()
    }

    /// Returns a request that hickory signed, and its MAC.
    fn signed_request() -> (Vec<u8>, Vec<u8>) {
        let mut message = Theirs::query();
        message.add_query(Query::query(Name::from_ascii("example.org.").unwrap(), hickory_proto::rr::RecordType::AXFR));
        let (signature, _) = hickory_signer().sign_message(&message, NOW).unwrap();
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
    fn hickory_verifies_each_message_of_an_answer() {
        let (bytes, mut mac) = signed_request();
        let request = Message::read(&bytes).unwrap();
        let mut chain = key().check(&request, NOW + 299).unwrap();
        for number in 0..3 {
            let signed = chain.sign(answer(&request), NOW + number);
            (mac, ..) = hickory_signer().verify_message_byte(&signed, Some(&mac), number == 0).unwrap();
        }
    }

    #[test]
    fn hickory_verifies_requests_and_answers_are_verified() {
        let (bytes, _) = signed_request();
        let (signed, chain) = key().sign(answer(&Message::read(&bytes).unwrap()), NOW);
        let (mac, time, _) = hickory_signer().verify_message_byte(&signed, None, true).unwrap();
        assert_eq!((&mac, time), (&chain.mac, NOW));
        let answered = {
            let mut chain = key().check(&Message::read(&signed).unwrap(), NOW).unwrap();
            chain.sign(answer(&Message::read(&bytes).unwrap()), NOW)
        };
        let answered = Message::read(&answered).unwrap();
        assert_eq!(key().check_answer(&answered, NOW, &chain), Ok(()));
        let other = key().sign(answer(&answered), NOW + 1).1;
        assert_eq!(key().check_answer(&answered, NOW, &other), Err(TsigError::BadSignature));
    }

    #[test]
    fn each_changed_byte_invalidates_the_signature() {
        let (bytes, _) = signed_request();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let Ok(message) = Message::read(&changed) else { continue };
            // Forwarders may change the id, and names are case-insensitive.
            let same = at < 2 || bytes[at].is_ascii_alphabetic() && changed[at].eq_ignore_ascii_case(&bytes[at]);
            assert_eq!(key().check(&message, NOW).is_ok(), same, "byte {at}");
        }
    }

    #[test]
    fn each_tsig_error_has_its_code() {
        let (bytes, mac) = signed_request();
        let request = Message::read(&bytes).unwrap();
        let respond = |error: TsigError| {
            let answer = error.add_to_answer(&request, answer(&request), NOW + 301);
            let (_, signature) = Signature::find(&Message::read(&answer).unwrap()).unwrap();
            (answer, signature)
        };
        let late = key().check(&request, NOW + 301).unwrap_err();
        assert!(matches!(late, TsigError::BadTime(_)));
        let (answer, signature) = respond(late);
        assert_eq!((signature.error, signature.time), (18, NOW));
        assert_eq!(signature.other, (NOW + 301).to_be_bytes()[2..]);
        // The answer is signed. Hickory cannot parse its TSIG data, so the test uses our verification.
        let client = TsigChain { key: key(), mac, requested_at: NOW, is_continued: false };
        assert_eq!(key().check_answer(&Message::read(&answer).unwrap(), NOW, &client), Ok(()));

        let other_secret: TsigKey = "xfr.key:hmac-sha512:MDEyMzQ1Njc4OWFiY2RlZw==".parse().unwrap();
        let other_algorithm: TsigKey = "xfr.key:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap();
        for (key, code) in [(other_secret, 16), (other_algorithm, 17)] {
            let (_, signature) = respond(key.check(&request, NOW).unwrap_err());
            assert_eq!((signature.error, signature.mac.len()), (code, 0));
        }
        let cut = Signature { mac: vec![0; 32], ..Signature::find(&request).unwrap().1 };
        let cut = cut.append_to(without_signature(&request, Signature::find(&request).unwrap().0, request.header.id));
        assert_eq!(key().check(&Message::read(&cut).unwrap(), NOW), Err(TsigError::Truncated));
    }

    #[test]
    fn signature_must_be_the_last_record_and_unique() {
        let (bytes, _) = signed_request();
        let request = Message::read(&bytes).unwrap();
        let (record, signature) = Signature::find(&request).unwrap();
        let twice = signature.append_to(bytes.clone());
        assert_eq!(key().check(&Message::read(&twice).unwrap(), NOW), Err(TsigError::Malformed));
        let bare = without_signature(&request, record, request.header.id);
        assert_eq!(key().check(&Message::read(&bare).unwrap(), NOW), Err(TsigError::Unsigned));
        let short = Signature { mac: vec![0; 9], ..signature }.append_to(bare);
        assert_eq!(key().check(&Message::read(&short).unwrap(), NOW), Err(TsigError::Malformed));
    }
}
