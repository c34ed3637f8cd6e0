//! The DNS use cases.

mod challenge;
mod delegation;
mod dnssec;
mod ds;
mod edit;
mod limit;
mod link;
mod nesting;
mod read;
mod reservation;
mod rrset;
mod takeover;
mod zone;
mod zonefile;

use std::sync::Arc;

use kernel::audit::Actor;
use kernel::{Limits, OrgId};
use store::{Connection, GroupCommit, Outcome, Store};

use crate::ZoneName;
use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::{Zone, ZoneDnssec};
use crate::ports::{Hostnames, Organizations, Ports, Registrations};
use crate::repository::{ZoneRecord, ZoneRepository as _};

use self::delegation::Delegations;
use self::read::ReadPermits;

pub use challenge::ChallengeResult;
pub use dnssec::Observation;
pub use ds::{DS_TOPIC, DsMessage, WantedDs};
pub use link::LinkResult;
pub use read::ZoneReader;
pub use rrset::RrsetChanges;
pub use zone::{CreatedZone, InitialContent};
pub use zonefile::ImportResult;

type Result<T> = std::result::Result<T, DnsError>;

/// The DNS service: zones, rrsets, zone files and DNSSEC. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dns {
    store: Store,
    hosting: Option<Arc<Hosting>>,
    limits: Limits,
    organizations: Arc<dyn Organizations>,
    registrations: Arc<dyn Registrations>,
    hostnames: Arc<dyn Hostnames>,
    delegations: Arc<Delegations>,
    /// The permits for reads of large zones.
    read_permits: Arc<ReadPermits>,
    /// The changes of rrsets in progress, by organization and zone.
    changes: Arc<GroupCommit<(OrgId, String)>>,
}

/// The precondition of a change: the serials that the zone may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Precondition {
    #[default]
    Any,
    /// The zone must have one of these serials.
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
    pub fn new(store: Store, hosting: Option<Hosting>, limits: Limits, ports: Ports) -> Self {
        let Ports { organizations, resolver, registrations, hostnames } = ports;
        let delegations = Arc::new(Delegations::new(resolver));
        let (read_permits, changes, hosting) = (Arc::default(), Arc::default(), hosting.map(Arc::new));
        Self { store, hosting, limits, organizations, registrations, hostnames, delegations, read_permits, changes }
    }

    /// Returns the hosting configuration.
    ///
    /// # Errors
    /// Returns [`DnsError::NotConfigured`].
    pub fn hosting(&self) -> Result<&Hosting> {
        self.hosting.as_deref().ok_or(DnsError::NotConfigured)
    }

    /// Changes rrsets of a zone, in one transaction with concurrent changes of the same zone. `work` must lock the
    /// zone.
    async fn change_zone<T>(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        work: impl AsyncFn(&mut Connection) -> Result<Outcome<T>>,
    ) -> Result<T> {
        let zone = parse_zone_name(zone)?;
        self.store.grouped_transaction(&self.changes, (org, zone.as_str().to_owned()), actor, work).await
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
            // Count the SOA, too, which is not stored.
            rrset_count: zone.rrset_count + 1,
            bytes: zone.bytes,
            dnssec: ZoneDnssec { state: zone.dnssec, ds: zone.ds.clone() },
            created_at: zone.created_at,
        })
    }
}

/// The cause of an error: another transaction has locked a zone.
#[derive(Debug, thiserror::Error)]
#[error("another transaction has locked the zone {0}")]
struct ZoneBusy(String);

/// Locks a zone that exists, in a transaction that has locked the catalog. Fails if another transaction has locked the
/// zone. Lock the zone before the catalog too: then this fails only if zones were created or deleted in between.
async fn relock_zone(tx: &mut Connection, org: OrgId, name: &ZoneName) -> Result<ZoneRecord> {
    let busy = || store::Error::Unavailable(Box::new(ZoneBusy(name.as_str().to_owned())));
    Ok(tx.zone_try_lock(org, name).await?.ok_or_else(busy)?)
}

/// Returns whether [`relock_zone`] failed, and may succeed in another transaction.
fn is_zone_busy(error: &DnsError) -> bool {
    matches!(error, DnsError::Store(store::Error::Unavailable(cause)) if cause.is::<ZoneBusy>())
}

/// Parses the name of an existing zone. A zone with an invalid name cannot exist.
fn parse_zone_name(name: &str) -> Result<ZoneName> {
    ZoneName::parse(name).map_err(|_| DnsError::ZoneNotFound)
}

/// Loads a zone.
async fn load_zone(connection: &mut Connection, org: OrgId, name: &str) -> Result<ZoneRecord> {
    connection.zone_find(org, &parse_zone_name(name)?).await?.ok_or(DnsError::ZoneNotFound)
}
