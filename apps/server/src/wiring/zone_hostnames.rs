//! The port of DNS to hostnames: an outbox message for each new zone, whose handler makes the hostnames in the zone due
//! for verification.

use async_trait::async_trait;
use kernel::OrgId;
use projects::Projects;
use store::outbox::{DeliveryError, Message, OutboxHandler};
use store::{Connection, Store};

/// The outbox topic of new zones. The key of a message is the name of the zone, and the payload is its organization.
const TOPIC: &str = "projects.hostnames";

#[derive(Debug)]
pub(super) struct HostnamesPort(pub(super) Store);

#[async_trait]
impl dns::Hostnames for HostnamesPort {
    async fn zone_created(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()> {
        self.0.enqueue_for(tx, TOPIC, org, name, &org).await
    }
}

/// Makes the hostnames in new zones due.
pub(super) struct NewZones(pub(super) Projects);

#[async_trait]
impl OutboxHandler for NewZones {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    /// With more, requests and jobs would wait for connections to Postgres.
    fn max_concurrency(&self) -> usize {
        2
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let org: OrgId = message.parse()?;
        self.0.hostnames_set_due(org, &message.key).await.map_err(|error| DeliveryError::transient(&error))
    }
}
