//! Signer checks: queries for the serial, keys and CDS records of a zone at its signer, over TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::ClockRng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::name::WireName;
use crate::wire::{
    MAX_MESSAGE_LENGTH, MalformedMessage, Message, Reader, Section, Writer, class, kind, opcode, question, rcode,
};
use crate::{Dnskey, Ds, Observation, ZoneName};

/// The timeout of one signer check with all its queries.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// A nameserver that signs zones.
#[derive(Debug, Clone)]
pub struct Signer {
    address: SocketAddr,
    clock_rng: ClockRng,
}

/// The reason why a signer check failed. The API shows the message.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    #[error("the signer did not answer in time")]
    Timeout,
    #[error("the signer cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    #[error("the signer sent an invalid DNS message")]
    Malformed,
    #[error("the signer answered with response code {0}")]
    Refused(u16),
}

impl From<MalformedMessage> for SignerError {
    fn from(_: MalformedMessage) -> Self {
        Self::Malformed
    }
}

/// The answer to one query: the data of its records, and the serial of an SOA.
#[derive(Default)]
struct Answer {
    data: Vec<Vec<u8>>,
    serial: Option<u32>,
}

impl Signer {
    /// Creates a client for the signer at this address.
    #[must_use]
    pub fn new(address: SocketAddr, clock_rng: ClockRng) -> Self {
        Self { address, clock_rng }
    }

    /// Queries the state of a zone at the signer.
    ///
    /// # Errors
    /// Returns an error if a query fails. A signer that does not serve the zone is not an error.
    pub async fn check(&self, zone: &ZoneName) -> Result<Observation, SignerError> {
        timeout(CHECK_TIMEOUT, self.query_all(zone)).await.map_err(|_| SignerError::Timeout)?
    }

    async fn query_all(&self, zone: &ZoneName) -> Result<Observation, SignerError> {
        let zone = zone.wire();
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some(serial) = self.query(&mut stream, &zone, kind::SOA).await?.serial else {
            return Ok(Observation::default());
        };
        let keys = self.query(&mut stream, &zone, kind::DNSKEY).await?;
        let cds = self.query(&mut stream, &zone, kind::CDS).await?;
        Ok(Observation {
            serial: Some(serial),
            keys: keys.data.iter().map(|data| dnskey(data)).collect::<Result<_, _>>()?,
            cds: cds.data.iter().map(|data| ds(data)).collect::<Result<_, _>>()?,
        })
    }

    async fn query(&self, stream: &mut TcpStream, zone: &WireName, kind: u16) -> Result<Answer, SignerError> {
        let id = u16::from_be_bytes(self.clock_rng.bytes());
        let mut writer = Writer::request(id, opcode::QUERY, false);
        let question = question(zone, kind);
        writer.question(&question);
        let message = writer.finish();
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), &message[..]].concat()).await?;
        let mut bytes = vec![0; usize::from(stream.read_u16().await?).min(MAX_MESSAGE_LENGTH)];
        stream.read_exact(&mut bytes).await?;

        let message = Message::read(&bytes)?;
        let is_answer = message.header.is_response() && message.header.id == id;
        if !is_answer || message.header.opcode() != opcode::QUERY || message.question()? != &question {
            return Err(SignerError::Malformed);
        }
        match message.header.rcode() {
            // The signer does not serve the zone, or has not loaded it yet.
            rcode::REFUSED | rcode::NOTAUTH | rcode::SERVFAIL => return Ok(Answer::default()),
            rcode::NOERROR if message.header.is_authoritative() => {}
            // The answer is cached or a referral, so the signer does not serve the zone.
            rcode::NOERROR => return Ok(Answer::default()),
            code => return Err(SignerError::Refused(code)),
        }
        let mut answer = Answer::default();
        for record in message.section(Section::Answer) {
            if record.name == *zone && record.kind == kind && record.class == class::IN {
                if kind == kind::SOA {
                    answer.serial = Some(message.serial(record)?);
                }
                answer.data.push(record.data.to_vec());
            }
        }
        Ok(answer)
    }
}

/// Parses the data of a DNSKEY record (RFC 4034 section 2.1).
fn dnskey(data: &[u8]) -> Result<Dnskey, MalformedMessage> {
    let mut reader = Reader::new(data);
    let (flags, _protocol, algorithm) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let key = reader.bytes(data.len() - reader.position())?;
    Ok(Dnskey { key_tag: key_tag(data), flags, algorithm, public_key: STANDARD.encode(key) })
}

/// Computes the key tag of a DNSKEY record (RFC 4034 appendix B), except for the obsolete algorithm 1.
fn key_tag(data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|word| match word {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let sum: u32 = words.sum();
    let [_, _, high, low] = (sum + (sum >> 16)).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Parses the data of a CDS record, which has the format of a DS record (RFC 7344 section 3.1, RFC 4034 section 5.1).
fn ds(data: &[u8]) -> Result<Ds, MalformedMessage> {
    let mut reader = Reader::new(data);
    let (key_tag, algorithm, digest_type) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let digest = reader.bytes(data.len() - reader.position())?;
    Ok(Ds { key_tag, algorithm, digest_type, digest: kernel::hex(digest).to_ascii_uppercase() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_tags_match_the_rfc_examples() {
        // RFC 4034 section 5.4 and RFC 6605 section 6.1.
        for (flags, algorithm, key, tag) in [
            (
                256,
                5,
                "AQOeiiR0GOMYkDshWoSKz9XzfwJr1AYtsmx3TGkJaNXVbfi/2pHm822aJ5iI9BMzNXxeYCmZDRD99WYwYqUSdjMmmAphXdvxegXd/\
                 M5+X7OrzKBaMbCVdFLUUh6DhweJBjEVv5f2wwjM9XzcnOf+EPbtG9DMBmADjFDc2w/rljwvFw==",
                60485,
            ),
            (
                257,
                13,
                "GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA==",
                55648,
            ),
        ] {
            let key = key.replace(' ', "");
            let wire = STANDARD.decode(&key).unwrap();
            let data = [&u16::to_be_bytes(flags)[..], &[3, algorithm], &wire].concat();
            let read = dnskey(&data).unwrap();
            assert_eq!(read, Dnskey { key_tag: tag, flags, algorithm, public_key: key });
        }
        assert_eq!(dnskey(&[1, 0, 3]), Err(MalformedMessage));
        assert_eq!(ds(&[1]), Err(MalformedMessage));
    }
}
