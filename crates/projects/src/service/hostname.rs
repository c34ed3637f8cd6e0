//! The use cases of hostnames: claimed, proved, and looked after.
//!
//! A claim reserves a name for seven days. Whoever proves that the name is theirs has it served; the proof is looked for
//! again each day, and a name that has had none for a week is a claim once more. `verify` and the pass that runs every
//! minute look in the same way ([`Projects::prove`], in the file beside this one).

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kernel::audit::{Actor, Event};
use kernel::{Malformed, ProjectId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Org, Projects, Result};
use crate::error::ProjectError;
use crate::hostname::{HostName, normalised};
use crate::model::{Hostname, HostnameKind, HostnameState, NewHostname, Proof};
use crate::repository::{ClaimRepository as _, HostnameRepository as _, NewClaim, ProjectRepository as _, Unproved};

/// How long an unproved claim holds a name (contract section 5): 7 days.
pub(super) const CLAIM_SECONDS: i64 = 7 * 24 * 3600;

/// How long a name that is being looked at is left alone by others.
const LEASE_SECONDS: i64 = 60;

/// How long somebody who waits for the answer waits for one name server.
const PATIENT: Duration = Duration::from_secs(4);

/// How long the pass does: a cold name answers a minute later.
const HASTY: Duration = Duration::from_millis(1500);

/// Names that the pass looks up at once. Each may hold two sockets.
const AT_ONCE: usize = 384;

impl Projects {
    /// The hostnames of a project, the default one first.
    ///
    /// # Errors
    /// [`ProjectError::Store`].
    pub async fn hostnames(&self, project: ProjectId) -> Result<Vec<Hostname>> {
        let hostnames = self.store.connection().await?.hostname_list(project).await?;
        Ok(hostnames.into_iter().map(|hostname| hostname.guided(&self.site.fallback_origin)).collect())
    }

    /// Claims a name for a project. The same project again gets the claim, or the name, that it has. In a zone that the
    /// organization hosts here it is served at once.
    ///
    /// # Errors
    /// [`ProjectError::Field`] for what is no name that a project may have, [`ProjectError::HostnameTaken`].
    pub async fn hostname_add(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        new: NewHostname,
    ) -> Result<Hostname> {
        let name = HostName::parse(&new.name, &self.site.own_domains).map_err(|error| Malformed::new("name", error))?;
        let (world, now) = (self.store.world(), self.store.world().now());
        let token = kernel::hex(&world.bytes::<20>());
        let claim = NewClaim {
            name: name.as_str(),
            project,
            token: &token,
            at: now,
            lapses_at: now.plus_seconds(CLAIM_SECONDS),
        };
        let added = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                if !tx.hostname_claim(&claim).await? {
                    // Another project has it unless this one does.
                    let own = tx.hostname_find(project, name.as_str()).await?;
                    return match own {
                        Some(own) => Ok(Outcome::Unchanged(own)),
                        None => Err(ProjectError::HostnameTaken(name.as_str().to_owned())),
                    };
                }
                let claimed = tx.claim_find(project, name.as_str()).await?.ok_or(ProjectError::HostnameNotFound)?;
                let zone = self.zones.zone_of(tx, org.id, name.as_str()).await?;
                let data = if zone.is_some() && !claimed.was_another_s {
                    self.attach(tx, &claimed, Proof::Zone, now).await?;
                    json!({ "hostname": name.as_str(), "proof": Proof::Zone })
                } else {
                    json!({ "hostname": name.as_str() })
                };
                let added = tx.hostname_find(project, name.as_str()).await?.ok_or(ProjectError::HostnameNotFound)?;
                Ok(Outcome::Changed(added, Event::in_org("hostname.add", org.id, project, data)))
            })
            .await?;
        Ok(added.guided(&self.site.fallback_origin))
    }

    /// Takes a custom name away from a project; it is free at once.
    ///
    /// # Errors
    /// [`ProjectError::DefaultHostname`], [`ProjectError::HostnameNotFound`].
    pub async fn hostname_delete(&self, actor: &Actor, org: &Org, project: ProjectId, name: &str) -> Result<()> {
        let name = normalised(name).ok_or(ProjectError::HostnameNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let hostname = tx.hostname_find(project, &name).await?.ok_or(ProjectError::HostnameNotFound)?;
                if hostname.kind == HostnameKind::Default {
                    return Err(ProjectError::DefaultHostname);
                }
                tx.hostname_delete(project, &name).await?;
                if hostname.state == HostnameState::Active {
                    self.serve(tx, project).await?;
                    self.zones.unlink(tx, org.id, &name).await?;
                }
                Ok(Outcome::Changed((), Event::in_org("hostname.delete", org.id, project, json!({ "hostname": name }))))
            })
            .await
    }

    /// Looks for the proofs of a name now, in the way of the pass that does so every minute.
    ///
    /// # Errors
    /// [`ProjectError::HostnameNotFound`].
    pub async fn hostname_verify(&self, actor: &Actor, project: ProjectId, name: &str) -> Result<Hostname> {
        let name = normalised(name).ok_or(ProjectError::HostnameNotFound)?;
        let claim = self.store.connection().await?.claim_find(project, &name).await?;
        if let Some(claim) = claim {
            let found = self.prove(&claim, PATIENT).await?;
            if let Some(unproved) = self.conclude(actor, &claim, found).await? {
                self.store.connection().await?.claims_unproved(&[unproved]).await?;
            }
        }
        let hostname = self.store.connection().await?.hostname_find(project, &name).await?;
        Ok(hostname.ok_or(ProjectError::HostnameNotFound)?.guided(&self.site.fallback_origin))
    }

    /// Looks at every name that is due: one round of the pass that runs every minute. Several processes share the work.
    ///
    /// # Errors
    /// [`ProjectError::Store`]; what was concluded until then stays.
    pub async fn hostnames_check(&self) -> Result<usize> {
        let actor = Actor::service("hostnames");
        let mut looked_at = 0;
        loop {
            let now = self.store.world().now();
            let lease = now.plus_seconds(LEASE_SECONDS);
            let due = self.store.connection().await?.claims_due(now, lease, AT_ONCE as i64).await?;
            if due.is_empty() {
                return Ok(looked_at);
            }
            looked_at += due.len();
            let concluded = stream::iter(due).map(async |claim| {
                let found = self.prove(&claim, HASTY).await?;
                self.conclude(&actor, &claim, found).await
            });
            let concluded: Vec<_> = concluded.buffer_unordered(AT_ONCE).collect().await;
            let mut unproved = Vec::with_capacity(concluded.len());
            for outcome in concluded {
                match outcome {
                    Ok(found) => unproved.extend(found),
                    // It is due again when its lease is over; the others are not held up by it.
                    Err(error) => tracing::warn!(%error, "a hostname was not looked after"),
                }
            }
            // In one order, whoever else changes several of them.
            unproved.sort_by(|a: &Unproved, b| a.name.cmp(&b.name));
            self.store.connection().await?.claims_unproved(&unproved).await?;
        }
    }
}
