//! The port of domains to the hosted zones.

use async_trait::async_trait;
use dns::Dns;
use domains::{DsWanted, ZoneRefusal, Zones};
use kernel::audit::Actor;
use kernel::{OrgId, ZoneId};
use store::Connection;

pub(super) struct ZonesPort(pub(super) Dns);

#[async_trait]
impl Zones for ZonesPort {
    fn nameservers(&self) -> Option<Vec<String>> {
        todo!()
    }
    async fn reserve(&self, _: &mut Connection, _: OrgId, _: &str) -> Result<(), ZoneRefusal> {
        todo!()
    }
    async fn release(&self, _: &mut Connection, _: &str) -> store::Result<()> {
        todo!()
    }
    async fn create_reserved(&self, _: &mut Connection, _: OrgId, _: &str) -> store::Result<()> {
        todo!()
    }
    async fn create(&self, _: &Actor, _: OrgId, _: &str) -> Result<(), ZoneRefusal> {
        todo!()
    }
    async fn taken(&self, _: &mut Connection, _: OrgId, _: &[String]) -> store::Result<Vec<String>> {
        todo!()
    }
    async fn ds_wanted(&self, _: ZoneId) -> store::Result<Option<DsWanted>> {
        todo!()
    }
    async fn ds_absent(&self, _: ZoneId, _: bool) -> store::Result<()> {
        todo!()
    }
}
