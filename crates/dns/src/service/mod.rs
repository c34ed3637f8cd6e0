//! The use cases of zones.

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
pub use link::Link;
pub use zonefile::Imported;

type Result<T> = std::result::Result<T, DnsError>;

/// Zones and what is in them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dns {
    store: Store,
    hosting: Option<Arc<Hosting>>,
}

/// The states of a zone for which a change is meant: serials, or any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Any,
    /// One of these.
    Serials(Vec<u32>),
}

/// A value together with the serial of the zone that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub serial: u32,
    pub value: T,
}

impl Dns {
    /// The service on this database; without hosting, every use case answers [`DnsError::NotConfigured`].
    #[must_use]
    pub fn new(store: Store, hosting: Option<Hosting>) -> Self {
        Self { store, hosting: hosting.map(Arc::new) }
    }

    /// How zones are hosted.
    ///
    /// # Errors
    /// [`DnsError::NotConfigured`].
    pub fn hosting(&self) -> Result<&Hosting> {
        self.hosting.as_deref().ok_or(DnsError::NotConfigured)
    }

    /// The zone of this name, locked.
    async fn locked(&self, tx: &mut Connection, org: OrgId, name: &str, expected: &Expected) -> Result<ZoneRecord> {
        let zone = tx.zone_lock(org, &named(name)?).await?.ok_or(DnsError::ZoneNotFound)?;
        match expected {
            Expected::Serials(serials) if !serials.contains(&zone.serial) => Err(DnsError::Changed(zone.serial)),
            _ => Ok(zone),
        }
    }

    fn shown(&self, zone: &ZoneRecord) -> Result<Zone> {
        Ok(Zone {
            id: zone.id,
            name: zone.name.as_str().to_owned(),
            serial: zone.serial,
            nameservers: self.hosting()?.nameservers().to_vec(),
            // The SOA is no row.
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

/// A name that a zone cannot have is the name of none.
fn named(name: &str) -> Result<ZoneName> {
    ZoneName::parse(name).map_err(|_| DnsError::ZoneNotFound)
}

/// The zone of this name.
async fn found(connection: &mut Connection, org: OrgId, name: &str) -> Result<ZoneRecord> {
    connection.zone_find(org, &named(name)?).await?.ok_or(DnsError::ZoneNotFound)
}
