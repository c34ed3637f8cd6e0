//! The start of authority.

use super::{Rdata, RecordType, shape};
use crate::name::labels;

/// The start of authority of a zone (RFC 1035 section 3.3.13). Times in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The primary nameserver, absolute, without the final dot.
    pub primary: String,
    /// The mailbox of who is responsible, as a name without the final dot.
    pub hostmaster: String,
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    /// For how long it is known that a name does not exist (RFC 2308).
    pub minimum: u32,
}

impl Soa {
    /// For how long a zone's own SOA and NS records may be kept, in seconds.
    pub const TTL: u32 = 3600;

    /// On the wire. A name that is none becomes the root.
    #[must_use]
    pub fn rdata(&self) -> Rdata {
        let mut wire = Vec::new();
        for name in [&self.primary, &self.hostmaster] {
            wire.extend(labels::read(name, labels::ROOT).unwrap_or_else(|_| labels::ROOT.to_vec()));
        }
        for number in [self.serial, self.refresh, self.retry, self.expire, self.minimum] {
            wire.extend(number.to_be_bytes());
        }
        Rdata(wire)
    }

    /// What the data of an SOA record says; none when it is not of that type.
    #[must_use]
    pub fn from_rdata(data: &Rdata) -> Option<Self> {
        let parts = shape::split(RecordType::Soa, data.wire())?;
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
