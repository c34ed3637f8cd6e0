//! The DNS use cases.

mod dnssec;
mod edit;
mod link;
mod rrset;
mod zone;
mod zonefile;

use std::sync::Arc;

use kernel::OrgId;
use store::{Connection, Store};

use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::{ManagedBy, Rrset, Zone, ZoneDnssec};
use crate::repository::{ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, RecordType, ZoneName};

pub use dnssec::Observation;
pub use link::LinkResult;
pub use zonefile::ImportResult;

type Result<T> = std::result::Result<T, DnsError>;

/// The DNS service: zones, rrsets, zone files and DNSSEC. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dns {
    store: Store,
    hosting: Option<Arc<Hosting>>,
}

/// The precondition of a change: the serials that the zone may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Precondition {
    #[default]
    Any,
    /// One of these.
    Serials(Vec<u32>),
}

/// A value with the serial of its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtSerial<T> {
    pub serial: u32,
    pub value: T,
}

impl Dns {
    /// Creates the service. Without `hosting`, the use cases return [`DnsError::NotConfigured`].
    #[must_use]
    pub fn new(store: Store, hosting: Option<Hosting>) -> Self {
        Self { store, hosting: hosting.map(Arc::new) }
    }

    /// The hosting configuration.
    ///
    /// # Errors
    /// [`DnsError::NotConfigured`].
    pub fn hosting(&self) -> Result<&Hosting> {
        self.hosting.as_deref().ok_or(DnsError::NotConfigured)
    }

    /// Locks a zone and checks the precondition.
    async fn lock_zone(
        &self,
        tx: &mut Connection,
        org: OrgId,
        name: &str,
        precondition: &Precondition,
    ) -> Result<ZoneRecord> {
        let zone = tx.zone_lock(org, &parse_zone_name(name)?).await?.ok_or(DnsError::ZoneNotFound)?;
        match precondition {
            Precondition::Serials(serials) if !serials.contains(&zone.serial) => {
                Err(DnsError::SerialMismatch(zone.serial))
            }
            _ => Ok(zone),
        }
    }

    fn zone_view(&self, zone: &ZoneRecord) -> Result<Zone> {
        Ok(Zone {
            id: zone.id,
            name: zone.name.as_str().to_owned(),
            serial: zone.serial,
            nameservers: self.hosting()?.nameservers().to_vec(),
            // The SOA is not stored.
            rrset_count: zone.rrset_count + 1,
            dnssec: ZoneDnssec { state: zone.dnssec, ds: zone.ds.clone() },
            created_at: zone.created_at,
        })
    }

    fn soa(&self, zone: &ZoneRecord) -> Result<Rrset> {
        let (ttl, soa) = self.hosting()?.soa(&zone.name, zone.serial);
        let key = (&OwnerName::apex(), RecordType::Soa);
        Ok(Rrset::new(&zone.name, key, ttl, &[soa.rdata()], Some(ManagedBy::System)))
    }
}

/// Parses a zone name. A zone with an invalid name cannot exist.
fn parse_zone_name(name: &str) -> Result<ZoneName> {
    ZoneName::parse(name).map_err(|_| DnsError::ZoneNotFound)
}

/// Loads a zone.
async fn load_zone(connection: &mut Connection, org: OrgId, name: &str) -> Result<ZoneRecord> {
    connection.zone_find(org, &parse_zone_name(name)?).await?.ok_or(DnsError::ZoneNotFound)
}
