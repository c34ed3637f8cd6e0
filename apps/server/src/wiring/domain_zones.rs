//! The port of domains to the hosted zones.

use async_trait::async_trait;
use dns::{Dns, DnsError, NewZone};
use domains::{DsWanted, ZoneRefusal, Zones};
use kernel::audit::Actor;
use kernel::{OrgId, ZoneId};
use store::Connection;

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

    async fn create(&self, actor: &Actor, org: OrgId, name: &str) -> Result<(), ZoneRefusal> {
        self.0.zone_create(actor, org, NewZone { name: name.to_owned() }).await.map(drop).map_err(refusal)
    }

    async fn taken(&self, connection: &mut Connection, org: OrgId, names: &[String]) -> store::Result<Vec<String>> {
        self.0.names_taken(connection, org, names).await.map_err(|error| error.into_store_error())
    }

    async fn ds_wanted(&self, _: ZoneId) -> store::Result<Option<DsWanted>> {
        todo!()
    }

    async fn ds_absent(&self, _: ZoneId, _: bool) -> store::Result<()> {
        todo!()
    }
}

fn refusal(error: DnsError) -> ZoneRefusal {
    match error {
        DnsError::ZoneTaken(_) | DnsError::ZoneDelegated { .. } => ZoneRefusal::Taken,
        DnsError::Store(error) => ZoneRefusal::Store(error),
        error => ZoneRefusal::Other(Box::new(error)),
    }
}
