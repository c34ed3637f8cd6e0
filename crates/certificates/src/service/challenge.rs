//! The choice and the publication of challenges.

use store::Connection;

use super::Certificates;
use super::run::RunError;
use crate::model::Challenge;
use crate::ports::{AuthorityError, AuthorityOrder, PublishedRecord};
use crate::repository::{NameRecord, OrderRecord, PublishedChallenge};

/// The age of an order from which nameservers that do not answer are ignored.
const UNREACHABLE_SECONDS: i64 = 60;

/// The delay of the wildcard while its zone does not exist.
const MISSING_ZONE_SECONDS: i64 = 10;

impl Certificates {
    /// Returns the challenge that a name should use. A wildcard requires DNS-01 (RFC 8555 section 7.1.3). Names in a
    /// hosted zone use it too, because it works before visitors reach a node. Without its zone, the wildcard waits.
    /// Fails if no challenge can succeed, because the zone is not delegated here and the name has no address.
    pub(super) async fn choose_challenge(&self, name: &NameRecord) -> Result<Challenge, RunError> {
        let record = record_name(&name.name);
        let mut connection = self.store.connection().await?;
        let zone = self.ports.zones.find(&mut connection, name.org, &record).await?;
        // A lookup holds no connection.
        drop(connection);
        if name.name.starts_with("*.") {
            if zone.is_some() {
                return Ok(Challenge::Dns01);
            }
            let until = self.store.clock_rng().now().plus_seconds(MISSING_ZONE_SECONDS);
            return Err(RunError::Postponed { until, message: format!("no hosted zone contains {record}") });
        }
        let Some(zone) = zone else { return Ok(Challenge::Http01) };
        if self.ports.zones.is_delegated(&zone).await {
            // After a failed order, use the other challenge: the public DNS can differ from the hosted zone.
            return Ok(if name.failures % 2 == 1 { Challenge::Http01 } else { Challenge::Dns01 });
        }
        // A failed lookup does not prove that the authority finds no address.
        if self.ports.resolver.has_address(&name.name).await == Ok(false) {
            let host = &name.name;
            let message = format!("{host} has no address, and the zone {zone} is not delegated to this platform");
            return Err(RunError::Failed(message));
        }
        Ok(Challenge::Http01)
    }

    /// Publishes a challenge of the order, in the caller's transaction. Uses HTTP-01 if the TXT record of DNS-01 cannot
    /// be published. Returns `None` if the authority requires no challenge.
    pub(super) async fn publish_challenge(
        &self,
        tx: &mut Connection,
        name: &NameRecord,
        preferred: Challenge,
        order: &AuthorityOrder,
    ) -> Result<Option<PublishedChallenge>, RunError> {
        if order.challenges.is_empty() {
            return Ok(None);
        }
        let offered = |challenge| order.challenges.iter().find(|offered| offered.challenge == challenge);
        let mut problem = "it offers neither DNS-01 nor HTTP-01".to_owned();
        if preferred == Challenge::Dns01
            && let Some(dns) = offered(Challenge::Dns01)
        {
            match self.ports.zones.publish(tx, name.org, &record_name(&name.name), &dns.response).await? {
                PublishedRecord::Published { zone } => {
                    let (token, response) = (dns.token.clone(), dns.response.clone());
                    let zone = Some(zone);
                    return Ok(Some(PublishedChallenge { challenge: Challenge::Dns01, token, response, zone }));
                }
                PublishedRecord::Refused(message) => problem = message,
            }
        }
        let http = offered(Challenge::Http01).filter(|_| !name.name.starts_with("*."));
        let http = http.ok_or(RunError::Authority(AuthorityError::Refused(problem)))?;
        let (token, response) = (http.token.clone(), http.response.clone());
        Ok(Some(PublishedChallenge { challenge: Challenge::Http01, token, response, zone: None }))
    }

    /// Removes the published challenge of a deleted order, in the transaction that deletes it.
    pub(super) async fn withdraw_challenge(&self, tx: &mut Connection, order: &OrderRecord) -> store::Result<()> {
        match &order.published {
            Some(PublishedChallenge { challenge: Challenge::Dns01, response, .. }) => {
                self.ports.zones.withdraw(tx, order.org, &record_name(&order.name), response).await
            }
            // The response of HTTP-01 is a column of the order.
            Some(PublishedChallenge { challenge: Challenge::Http01, .. }) | None => Ok(()),
        }
    }

    /// Returns whether the authority can find the published challenge. A nameserver that does not answer is ignored
    /// after a minute, if another one serves the record.
    pub(super) async fn is_challenge_served(&self, order: &OrderRecord, published: &PublishedChallenge) -> bool {
        // Nodes look the response of HTTP-01 up when the authority requests it.
        if published.challenge == Challenge::Http01 {
            return true;
        }
        let found = self.ports.zones.propagation(&record_name(&order.name), &published.response).await;
        let now = self.store.clock_rng().now();
        let ignores_unreachable = found.serving > 0 && order.created_at.plus_seconds(UNREACHABLE_SECONDS) <= now;
        found.missing == 0 && (found.unreachable == 0 || ignores_unreachable)
    }
}

/// Returns the name of the TXT record of DNS-01 (RFC 8555 section 8.4).
pub(super) fn record_name(name: &str) -> String {
    format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name))
}
