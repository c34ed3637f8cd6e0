//! The names that need a certificate.

use std::collections::HashSet;

use kernel::audit::{Actor, Event};
use kernel::{OrgId, ProjectId, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::challenge::record_name;
use super::{Certificates, metrics};
use crate::repository::{CertificateRepository as _, NameRecord, NameRepository as _, ServedHostname};

/// The number of projects in one query of the comparison.
const BATCH_SIZE: i64 = 100;

/// The remaining lifetime at which a certificate counts as expiring: 7 days.
pub(super) const EXPIRING_SECONDS: i64 = 7 * 24 * 3600;

/// The effect of the wildcard on the default hostnames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Coverage {
    /// Default hostnames get no certificates.
    spares_orders: bool,
    /// The certificates of default hostnames are removed. The wildcard has a valid certificate.
    replaces_certificates: bool,
}

impl Certificates {
    /// Compares the names of a project with its hostnames that are served, in the transaction that changes the
    /// hostnames. New ones get a certificate, and the certificates of the others are removed. The caller holds the
    /// project's row lock. Returns false for a no-op.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn sync(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool> {
        let wanted = tx.name_list_wanted(project).await?;
        if !self.is_enabled() && wanted.is_empty() {
            return Ok(false);
        }
        let now = self.store.clock_rng().now();
        let coverage = self.coverage(tx).await?;
        let served = tx.hostname_list_served(project).await?;
        let is_needed = |name: &String| {
            let is_served = served.iter().any(|hostname| hostname.name == *name);
            is_served && !(coverage.replaces_certificates && self.is_below_platform_domain(name))
        };
        let ended: Vec<String> = wanted.iter().filter(|name| !is_needed(name)).cloned().collect();
        let is_added = |name: &String| {
            let is_covered = coverage.spares_orders && self.is_below_platform_domain(name);
            // Without an authority, the existing certificates stay in use.
            self.is_enabled() && !is_covered && !wanted.contains(name)
        };
        let added: Vec<&ServedHostname> = served.iter().filter(|hostname| is_added(&hostname.name)).collect();
        if ended.is_empty() && added.is_empty() {
            return Ok(false);
        }
        let names: Vec<String> = added.iter().map(|hostname| hostname.name.clone()).collect();
        let former = self.lock_names(tx, &names).await?;
        tx.name_end(project, &ended, now).await?;
        for hostname in added {
            // The former organization cannot use its private key for the hostname of another one.
            if former.iter().any(|former| former.name == hostname.name && former.org != hostname.org) {
                self.delete_order_and_certificate(tx, &hostname.name).await?;
            }
            tx.name_upsert(&hostname.name, hostname.org, Some(project), now).await?;
        }
        let mut changed: Vec<ProjectId> = former.iter().filter_map(|former| former.project).chain([project]).collect();
        changed.sort_unstable();
        changed.dedup();
        self.ports.desired.lock(tx, &changed).await?;
        for project in changed {
            self.publish(tx, project).await?;
        }
        Ok(true)
    }

    /// Locks these names, after the zones of their challenges. Returns those that exist. A transaction that writes the
    /// desired state of several projects calls it before it locks their placements.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn lock_names(&self, tx: &mut Connection, names: &[String]) -> store::Result<Vec<NameRecord>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = tx.name_list(names).await?;
        let challenges: Vec<_> = found.iter().map(|found| (found.org, record_name(&found.name))).collect();
        self.ports.zones.lock(tx, &challenges).await?;
        tx.name_lock_all(names).await
    }

    /// Writes the current certificates of a project to the desired state.
    pub(super) async fn publish(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        let certificates = tx.certificate_list(Some(project)).await?;
        self.ports.desired.publish(tx, project, &certificates).await
    }

    /// Compares the names with the hostnames that are served, and corrects the difference. It matters after a change of
    /// the configuration: [`Self::sync`] follows all other changes. The background job runs this every hour.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn reconcile(&self) -> store::Result<()> {
        self.reconcile_platform().await?;
        self.reconcile_projects().await?;
        let before = self.store.clock_rng().now().plus_seconds(EXPIRING_SECONDS);
        metrics::record_expiring(self.store.connection().await?.certificate_count_expiring(before).await?);
        Ok(())
    }

    /// Adds the names of the platform. A run ends those that are no longer configured.
    async fn reconcile_platform(&self) -> store::Result<()> {
        if !self.is_enabled() {
            return Ok(());
        }
        let now = self.store.clock_rng().now();
        self.store
            .transaction(&Actor::service("certificates.reconcile"), async |tx: &mut Connection| {
                let platform_names = self.platform_names(tx).await?;
                let names: Vec<String> = platform_names.iter().map(|(name, _)| name.clone()).collect();
                let wanted: Vec<_> = tx.name_list(&names).await?.into_iter().filter(|found| found.wanted).collect();
                let mut changed = 0;
                for (name, org) in &platform_names {
                    if !wanted.iter().any(|found| found.name == *name && found.org == *org) {
                        tx.name_upsert(name, *org, None, now).await?;
                        changed += 1;
                    }
                }
                let event = Event::of_platform(
                    "certificate.platform",
                    &self.config.platform_domain,
                    json!({ "names": changed }),
                );
                Ok(if changed == 0 { Outcome::Unchanged(()) } else { Outcome::Changed((), event) })
            })
            .await
    }

    /// Corrects the names of all projects. Corrects each project at most once, so that servers with different settings
    /// cannot undo each other's changes in a loop.
    pub(super) async fn reconcile_projects(&self) -> store::Result<()> {
        if !self.is_enabled() {
            return Ok(());
        }
        let mut corrected = HashSet::new();
        loop {
            let mut connection = self.store.connection().await?;
            let coverage = self.coverage(&mut connection).await?;
            let covered = |is_covered: bool| is_covered.then_some(self.config.platform_domain.as_str());
            let missing = connection.project_list_missing(covered(coverage.spares_orders), BATCH_SIZE).await?;
            let unneeded = covered(coverage.replaces_certificates);
            let unneeded = connection.project_list_unneeded(unneeded, BATCH_SIZE).await?;
            drop(connection);
            let projects = missing.into_iter().chain(unneeded).filter(|(_, project)| corrected.insert(*project));
            let projects: Vec<_> = projects.collect();
            if projects.is_empty() {
                return Ok(());
            }
            for (org, project) in projects {
                self.reconcile_project(org, project).await?;
            }
        }
    }

    async fn reconcile_project(&self, org: OrgId, project: ProjectId) -> store::Result<()> {
        self.store
            .transaction(&Actor::service("certificates.reconcile"), async |tx: &mut Connection| {
                self.ports.projects.lock(tx, org, project).await?;
                // A change of the hostnames may have made the correction before the lock.
                if !self.sync(tx, project).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let event = Event::in_org("certificate.reconcile", org, project, json!({}));
                Ok(Outcome::Changed((), event))
            })
            .await
    }

    /// Returns the wildcard of the platform's domain and the organization that hosts its zone.
    fn wildcard(&self) -> Option<(String, OrgId)> {
        let org = self.config.platform_org.filter(|_| self.is_enabled())?;
        Some((self.wildcard_name(), org))
    }

    pub(super) fn wildcard_name(&self) -> String {
        format!("*.{}", self.config.platform_domain)
    }

    /// Returns the names of the platform that need a certificate, with their organizations. The API needs no other one
    /// while the wildcard covers it.
    async fn platform_names(&self, connection: &mut Connection) -> store::Result<Vec<(String, OrgId)>> {
        let mut names: Vec<(String, OrgId)> = self.wildcard().into_iter().collect();
        if let Some(api) = &self.config.api_hostname
            && !(self.is_below_platform_domain(api) && self.coverage(connection).await?.spares_orders)
        {
            names.push((api.clone(), self.platform_org()));
        }
        Ok(names)
    }

    /// Returns the organization of the API's hostname. The nil id stands for the platform itself, which hosts no zones.
    fn platform_org(&self) -> OrgId {
        self.config.platform_org.unwrap_or_else(|| OrgId::from_uuid(uuid::Uuid::nil()))
    }

    /// Returns the names of the platform that this server can run.
    pub(super) fn configured_platform_names(&self) -> Vec<String> {
        let api = self.config.api_hostname.clone().filter(|_| self.is_enabled());
        self.wildcard().map(|(name, _)| name).into_iter().chain(api).collect()
    }

    /// Returns the effect of the wildcard on default hostnames. A valid certificate also has one at a server whose
    /// settings lack the wildcard, until a week before its expiry.
    async fn coverage(&self, connection: &mut Connection) -> store::Result<Coverage> {
        let now = self.store.clock_rng().now();
        let certificate = connection.certificate_find_by_name(&self.wildcard_name()).await?;
        let is_valid_at = |at: Time| certificate.as_ref().is_some_and(|certificate| certificate.not_after > at);
        let is_configured = self.wildcard().is_some();
        Ok(Coverage {
            spares_orders: is_configured || is_valid_at(now.plus_seconds(EXPIRING_SECONDS)),
            replaces_certificates: is_configured && is_valid_at(now),
        })
    }

    /// Returns whether the name is exactly one label below the platform's domain, so that the wildcard covers it.
    pub(super) fn is_below_platform_domain(&self, name: &str) -> bool {
        name.split_once('.').is_some_and(|(_, parent)| parent == self.config.platform_domain)
    }
}
