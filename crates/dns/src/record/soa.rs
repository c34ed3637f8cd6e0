//! SOA records.

use super::{Rdata, RecordType, layout};
use crate::name::labels;

/// The content of an SOA record (RFC 1035 section 3.3.13). Times are in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The primary nameserver, absolute, without the final dot.
    pub primary: String,
    /// The mailbox of the administrator, as a name without the final dot.
    pub hostmaster: String,
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    /// The TTL of negative answers (RFC 2308).
    pub minimum: u32,
}

impl Soa {
    /// The TTL of the SOA and the apex NS records, in seconds.
    pub const TTL: u32 = 3600;

    /// Encodes the record. An invalid name becomes the root.
    #[must_use]
    pub fn rdata(&self) -> Rdata {
        let mut wire = Vec::new();
        for name in [&self.primary, &self.hostmaster] {
            wire.extend(labels::parse(name, labels::ROOT).unwrap_or_else(|_| labels::ROOT.to_vec()));
        }
        for number in [self.serial, self.refresh, self.retry, self.expire, self.minimum] {
            wire.extend(number.to_be_bytes());
        }
        Rdata(wire)
    }

    /// Decodes a record. Returns `None` if it is not valid SOA data.
    #[must_use]
    pub fn from_rdata(data: &Rdata) -> Option<Self> {
        let parts = layout::split(RecordType::Soa, data.wire())?;
        let [primary, hostmaster, serial, refresh, retry, expire, minimum] = *parts.as_slice() else { return None };
        let name = |wire| {
            let mut text = labels::text(wire);
            text.pop();
            text
        };
        let number = |wire: &[u8]| Some(u32::from_be_bytes(wire.try_into().ok()?));
        Some(Self {
            primary: name(primary),
            hostmaster: name(hostmaster),
            serial: number(serial)?,
            refresh: number(refresh)?,
            retry: number(retry)?,
            expire: number(expire)?,
            minimum: number(minimum)?,
        })
    }
}
