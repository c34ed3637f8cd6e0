//! The port of domains to the hosted zones, and the DS records of zones at their registries.

use async_trait::async_trait;
use dns::{DS_TOPIC, Dns, DnsError, Ds, DsMessage, WantedDs};
use domains::{Domains, DsRecord, DsWanted, ZoneRefusal, Zones};
use kernel::audit::Actor;
use kernel::ownership::ZoneProof;
use kernel::{ApiError as _, OrgId, Time, ZoneId};
use store::Connection;
use store::outbox::{DeliveryError, Message, OutboxHandler};

use super::error::IntoStoreError as _;

pub(super) struct ZonesPort(pub(super) Dns);

#[async_trait]
impl Zones for ZonesPort {
    fn nameservers(&self) -> Option<Vec<String>> {
        self.0.hosting().ok().map(|hosting| hosting.nameservers().to_vec())
    }

    async fn reserve(&self, tx: &mut Connection, org: OrgId, name: &str) -> Result<(), ZoneRefusal> {
        self.0.name_reserve(tx, org, name).await.map_err(refusal)
    }

    async fn release(&self, tx: &mut Connection, name: &str) -> store::Result<()> {
        self.0.name_release(tx, name).await.map_err(|error| error.into_store_error())
    }

    async fn create_reserved(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()> {
        self.0.zone_create_reserved(tx, org, name).await.map_err(|error| error.into_store_error())
    }

    async fn prepare(&self, actor: &Actor, org: OrgId, name: &str) -> Result<ZoneProof, ZoneRefusal> {
        self.0.zone_prepare(actor, org, name).await.map_err(refusal)
    }

    async fn create(&self, tx: &mut Connection, org: OrgId, name: &str, proof: &ZoneProof) -> Result<(), ZoneRefusal> {
        self.0.zone_create_within(tx, org, name, proof).await.map_err(refusal)
    }

    async fn taken(&self, connection: &mut Connection, org: OrgId, names: &[String]) -> store::Result<Vec<String>> {
        self.0.names_taken(connection, org, names).await.map_err(|error| error.into_store_error())
    }

    async fn ds_wanted(&self, zone: ZoneId) -> store::Result<Option<DsWanted>> {
        let wanted = self.0.ds_wanted(zone).await.map_err(|error| error.into_store_error())?;
        let record = |ds: Ds| DsRecord {
            key_tag: ds.key_tag,
            algorithm: ds.algorithm,
            digest_type: ds.digest_type,
            digest: ds.digest,
        };
        Ok(wanted.map(|WantedDs { org, name, ds, is_ending }| {
            let ds = ds.into_iter().map(record).collect();
            DsWanted { org, name, ds, is_ending }
        }))
    }

    async fn ds_removal_begin(&self, zone: ZoneId) -> store::Result<()> {
        self.0.ds_removal_begin(zone).await.map_err(|error| error.into_store_error())
    }

    async fn ds_absent(&self, zone: ZoneId) -> store::Result<()> {
        self.0.ds_absent(zone).await.map_err(|error| error.into_store_error())
    }
}

/// Gives the registries the DS records of zones.
pub(super) struct DsUpdates {
    pub(super) domains: Domains,
    pub(super) dns: Dns,
}

#[async_trait]
impl OutboxHandler for DsUpdates {
    fn topic(&self) -> &'static str {
        DS_TOPIC
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let DsMessage { zone } = message.parse()?;
        self.domains.apply_ds(zone).await.map_err(|error| DeliveryError::Transient(error.to_string()))
    }

    async fn on_dead_letter(&self, tx: &mut Connection, message: &Message, _: Time) -> store::Result<()> {
        let DsMessage { zone } = message.parse_delivered()?;
        let enqueued = self.dns.ds_retry_next_day(tx, zone, &message.key).await;
        enqueued.map_err(|error| error.into_store_error())
    }
}

fn refusal(error: DnsError) -> ZoneRefusal {
    match error {
        DnsError::Store(error) => ZoneRefusal::Store(error),
        error if *error.code() == DnsError::ZONE_TAKEN => ZoneRefusal::Taken(Box::new(error)),
        error => ZoneRefusal::Other(Box::new(error)),
    }
}
