//! The projects service. Deployments, hostnames and access policies are in the submodules.

mod access;
mod claim;
mod deployment;
mod hostname;
mod hsts;
mod lookups;
mod password;
mod purge;
mod verification;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use kernel::audit::{Actor, Event};
use kernel::{AbuseLimits, Digest, Limits, OrgId, Page, Paging, Plan, ProjectId, Time, error_chain};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::bundles::Bundles;
use crate::error::ProjectError;
use crate::model::{
    Hostname, HostnameKind, HostnameState, NewProject, Overview, Project, ProjectChange, ProjectDeletion,
    ProjectDetail, ProjectName,
};
use crate::ports::{Notice, Organizations, Placements, Pushes, Resolver, Zones};
use crate::repository::{HostnameRepository as _, ProjectRecord, ProjectRepository as _};
use crate::site_url::SiteUrl;

pub use deployment::Source;
use lookups::LookupLimit;

/// The longest label of a hostname, in bytes (RFC 1035 section 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// The organization of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    pub id: OrgId,
    pub slug: String,
    pub plan: Plan,
}

/// The projects service. Cheap to clone.
#[derive(Clone)]
pub struct Projects {
    store: Store,
    bundles: Bundles,
    limits: Limits,
    abuse_limits: AbuseLimits,
    site: Arc<Site>,
    organizations: Arc<dyn Organizations>,
    placements: Arc<dyn Placements>,
    pushes: Arc<dyn Pushes>,
    zones: Arc<dyn Zones>,
    resolver: Arc<dyn Resolver>,
    lookups: Arc<LookupLimit>,
}

/// The host names of this installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// The parent domain of default hostnames.
    pub platform_domain: String,
    /// The URL template of projects.
    pub url: SiteUrl,
    /// The required CNAME target of custom hostnames.
    pub fallback_origin: String,
    /// The platform's own domains, lowercase. Projects cannot claim names under them, and none is a default hostname.
    pub own_domains: Vec<String>,
}

/// The implementations of the ports.
#[derive(Clone)]
pub struct Ports {
    pub organizations: Arc<dyn Organizations>,
    pub placements: Arc<dyn Placements>,
    pub pushes: Arc<dyn Pushes>,
    pub zones: Arc<dyn Zones>,
    pub resolver: Arc<dyn Resolver>,
}

/// The retention of deleted projects (contract section 5): 30 days.
const RETENTION_SECONDS: i64 = 30 * 24 * 3600;

type Result<T> = std::result::Result<T, ProjectError>;

impl Projects {
    /// Creates the service, with the default limits against abuse.
    #[must_use]
    pub fn new(store: Store, bundles: Bundles, limits: Limits, site: Site, ports: Ports) -> Self {
        let Ports { organizations, placements, pushes, zones, resolver } = ports;
        let (abuse_limits, site, lookups) = (AbuseLimits::default(), Arc::new(site), Arc::default());
        Self { store, bundles, limits, abuse_limits, site, organizations, placements, pushes, zones, resolver, lookups }
    }

    /// Replaces the limits against abuse.
    #[must_use]
    pub fn with_abuse_limits(self, abuse_limits: AbuseLimits) -> Self {
        Self { abuse_limits, ..self }
    }

    /// Creates a project and its default hostname, within the plan's limit.
    ///
    /// # Errors
    /// Returns [`ProjectError::Limit`], [`ProjectError::DeletedLimit`], [`ProjectError::NameTaken`] or
    /// [`ProjectError::HostnameTaken`].
    pub async fn create(&self, actor: &Actor, org: &Org, new: NewProject) -> Result<Project> {
        let clock_rng = self.store.clock_rng();
        let NewProject { name } = new;
        let hostname = self.default_hostname(&name, &org.slug)?;
        let project = ProjectRecord { id: clock_rng.id(), org: org.id, name, hostname, created_at: clock_rng.now() };
        let created = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                let plan = self.organizations.lock(tx, org.id).await?.ok_or(ProjectError::NotFound)?;
                let (limit, count) = (self.limits.for_plan(plan).projects, tx.project_count(org.id).await?);
                if count >= i64::from(limit) {
                    return Err(ProjectError::Limit { limit, count, plan });
                }
                self.require_few_deletions(tx, org.id, project.created_at).await?;
                if !tx.project_insert(&project).await? {
                    return Err(ProjectError::NameTaken);
                }
                if !tx.hostname_insert_default(&project).await? {
                    return Err(ProjectError::HostnameTaken(project.hostname));
                }
                let data = json!({ "name": project.name, "hostname": project.hostname });
                let event = Event::in_org("project.create", org.id, project.id, data);
                let ProjectRecord { id, name, hostname, created_at, .. } = project;
                Ok(Outcome::Changed(Project { id, name, org: org.slug.clone(), hostname, created_at }, event))
            })
            .await;
        if let Err(ProjectError::Limit { limit, .. }) = created
            && let Err(error) = self.notify_limit_reached(actor, org.id, limit).await
        {
            tracing::warn!(error = %error_chain(&error), "failed to notify the organization of its project limit");
        }
        created
    }

    /// Checks that the organization deleted few projects recently. A deleted project does not count towards the plan's
    /// limit, but its data stays until the purge. The caller holds the organization's lock.
    async fn require_few_deletions(&self, tx: &mut Connection, org: OrgId, now: Time) -> Result<()> {
        let (limit, after) = (self.abuse_limits.deleted_projects_per_org, now.plus_seconds(-RETENTION_SECONDS));
        match tx.project_nth_newest_deletion(org, after, limit).await? {
            None => Ok(()),
            Some(deleted) => {
                Err(ProjectError::DeletedLimit { limit, purge_at: deleted.plus_seconds(RETENTION_SECONDS) })
            }
        }
    }

    /// Notifies the organization in a separate transaction, because the transaction of the request was rolled back. The
    /// separate transaction does not mark the idempotency key as committed. A failure is only logged.
    async fn notify_limit_reached(&self, actor: &Actor, org: OrgId, limit: u32) -> Result<()> {
        let actor = Actor { idempotency: None, ..actor.clone() };
        self.store
            .transaction(&actor, async |tx: &mut Connection| {
                let Some(id) = self.organizations.raise(tx, org, Notice::ProjectLimit { limit }).await? else {
                    return Ok(Outcome::Unchanged(()));
                };
                let data = json!({ "kind": "limit.projects", "project": null });
                Ok(Outcome::Changed((), Event::in_org("notification.raise", org, id, data)))
            })
            .await
    }

    /// Returns the URL of the project with this hostname, without a trailing slash.
    #[must_use]
    pub fn url(&self, hostname: &str) -> String {
        self.site.url.of(hostname)
    }

    /// Returns the limits of each plan.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Lists the projects of an organization, oldest first. `only` limits the list for a restricted credential.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`].
    pub async fn list(
        &self,
        org: &Org,
        only: Option<&[ProjectId]>,
        paging: &Paging<ProjectId>,
    ) -> Result<Page<Project>> {
        let projects =
            self.store.lookup(async |lookups| lookups.project_list(org.id, &org.slug, only, paging).await).await?;
        Ok(Page::cut(projects, paging, |project| project.id))
    }

    /// Returns the details of a project.
    ///
    /// # Errors
    /// Returns [`ProjectError::NotFound`].
    pub async fn detail(&self, org: &Org, project: ProjectId) -> Result<ProjectDetail> {
        let detail =
            self.store.lookup(async |lookups| lookups.project_detail(org.id, project, &org.slug).await).await?;
        Ok(detail.ok_or(ProjectError::NotFound)?.with_verify_records(&self.site.fallback_origin))
    }

    /// Returns the overview of a project.
    ///
    /// # Errors
    /// Returns [`ProjectError::NotFound`].
    pub async fn overview(&self, org: &Org, project: ProjectId) -> Result<Overview> {
        let overview = self.store.lookup(async |lookups| lookups.project_overview(org.id, project).await).await?;
        overview.ok_or(ProjectError::NotFound)
    }

    /// Renames a project and its default hostname. Renaming to the same name is a no-op.
    ///
    /// # Errors
    /// Returns [`ProjectError::NameTaken`], [`ProjectError::HostnameTaken`] or [`ProjectError::NotFound`].
    pub async fn rename(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        change: ProjectChange,
    ) -> Result<ProjectDetail> {
        let ProjectChange { name } = change;
        let hostname = self.default_hostname(&name, &org.slug)?;
        let renamed = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.project_detail(org.id, project, &org.slug).await?.ok_or(ProjectError::NotFound)?;
                if before.project.name == name {
                    return Ok::<_, ProjectError>(Outcome::Unchanged(before));
                }
                tx.project_rename(project, &name, &hostname).await.map_err(|error| name_conflict(error, &hostname))?;
                self.update_desired(tx, project).await?;
                let detail = tx.project_detail(org.id, project, &org.slug).await?.ok_or(ProjectError::NotFound)?;
                let data = json!({ "from": before.project.name, "to": name, "hostname": hostname });
                Ok(Outcome::Changed(detail, Event::in_org("project.rename", org.id, project, data)))
            })
            .await?;
        Ok(renamed.with_verify_records(&self.site.fallback_origin))
    }

    /// Soft-deletes a project. It is no longer served, and its name and its hostnames are free immediately.
    ///
    /// # Errors
    /// Returns [`ProjectError::ConfirmMismatch`] or [`ProjectError::NotFound`].
    pub async fn delete(&self, actor: &Actor, org: &Org, project: ProjectId, deletion: ProjectDeletion) -> Result<()> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let Project { name, .. } =
                    tx.project_detail(org.id, project, &org.slug).await?.ok_or(ProjectError::NotFound)?.project;
                if deletion.confirm != name.as_str() {
                    return Err(ProjectError::ConfirmMismatch(name.to_string()));
                }
                let hostnames = tx.hostname_list(project).await?;
                tx.project_delete(project, now).await?;
                let custom = |it: &&Hostname| it.kind == HostnameKind::Custom && it.state == HostnameState::Active;
                let names: Vec<&str> = hostnames.iter().filter(custom).map(|it| it.name.as_str()).collect();
                self.zones.unlink(tx, org.id, &names).await?;
                // Remove the desired state even without a deployment, because other contexts may have written a part of
                // it.
                self.placements.remove(tx, project).await?;
                Ok(Outcome::Changed((), Event::in_org("project.delete", org.id, project, json!({ "name": name }))))
            })
            .await
    }

    /// Opens a bundle for the node that serves it, and returns the bundle's size and bytes.
    ///
    /// # Errors
    /// Returns [`ProjectError::BundleNotFound`] or [`ProjectError::BundleStore`].
    pub async fn bundle(
        &self,
        digest: Digest,
    ) -> Result<(u64, impl Stream<Item = object_store::Result<Bytes>> + 'static)> {
        self.bundles.open(digest).await
    }

    /// Writes the project's current state to the node's desired state. Does nothing before the first deployment. The
    /// caller holds the project's row lock. This locks the node, so no lock of a zone may follow.
    async fn update_desired(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        if let Some(live) = tx.project_live(project).await? {
            self.placements.set_desired(tx, project, live).await?;
        }
        Ok(())
    }

    fn default_hostname(&self, name: &ProjectName, org: &str) -> Result<String> {
        let hostname = format!("{}.{}", default_label(name, org), self.site.platform_domain);
        if self.site.own_domains.contains(&hostname) {
            return Err(ProjectError::HostnameTaken(hostname));
        }
        Ok(hostname)
    }
}

/// Maps a unique violation to the matching error.
fn name_conflict(error: store::Error, hostname: &str) -> ProjectError {
    if error.violates("projects_org_id_name_live_key") {
        return ProjectError::NameTaken;
    }
    if error.violates("hostnames_pkey") {
        return ProjectError::HostnameTaken(hostname.to_owned());
    }
    error.into()
}

/// Returns `<project>-<org>`. If this is longer than a label may be, truncates it and appends a digest.
fn default_label(project: &ProjectName, org: &str) -> String {
    let whole = format!("{project}-{org}");
    if whole.len() <= MAX_LABEL_BYTES {
        return whole;
    }
    let digest: String = Digest::of(whole.as_bytes()).hex().chars().take(8).collect();
    let kept: String = whole.chars().take(MAX_LABEL_BYTES - digest.len() - 1).collect();
    format!("{}-{digest}", kept.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::default_label;

    #[test]
    fn long_default_labels_are_truncated_and_unique() {
        let project = |name: &str| name.parse().expect("a name");
        assert_eq!(default_label(&project("site"), "ada"), "site-ada");
        let (name, org) = ("p".repeat(40), "o".repeat(40));
        let label = default_label(&project(&name), &org);
        assert_eq!(label.len(), 63);
        assert_ne!(label, default_label(&project(&name), &format!("{}x", &org[..39])));
    }
}
