//! The use cases of projects; those of deployments, hostnames and access are in the files next to it.

mod access;
mod deployment;
mod hostname;
mod password;
mod proof;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use kernel::audit::{Actor, Event};
use kernel::{Digest, Limits, OrgId, Page, Paging, Plan, ProjectId};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::bundles::Bundles;
use crate::error::ProjectError;
use crate::model::{
    Hostname, HostnameKind, HostnameState, NewProject, Overview, Project, ProjectChange, ProjectDeletion,
    ProjectDetail, ProjectName,
};
use crate::ports::{Notice, Organizations, Placements, Resolver, Zones};
use crate::repository::{HostnameRepository as _, ProjectRecord, ProjectRepository as _};
use crate::site_url::SiteUrl;

/// The longest label of a host name (RFC 1035 section 2.3.4).
const LABEL: usize = 63;

/// The organization that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    pub id: OrgId,
    pub slug: String,
    pub plan: Plan,
}

/// Projects and their deployments. Cheap to clone.
#[derive(Clone)]
pub struct Projects {
    store: Store,
    bundles: Bundles,
    limits: Limits,
    site: Arc<Site>,
    organizations: Arc<dyn Organizations>,
    placements: Arc<dyn Placements>,
    zones: Arc<dyn Zones>,
    resolver: Arc<dyn Resolver>,
}

/// The names of this deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Default hostnames lie under it.
    pub platform_domain: String,
    /// How visitors reach a project.
    pub url: SiteUrl,
    /// What the CNAME of a custom hostname points at.
    pub fallback_origin: String,
    /// Names under which no project may claim one: the platform's own, lowercase.
    pub own_domains: Vec<String>,
}

/// What projects ask of others.
#[derive(Clone)]
pub struct Ports {
    pub organizations: Arc<dyn Organizations>,
    pub placements: Arc<dyn Placements>,
    pub zones: Arc<dyn Zones>,
    pub resolver: Arc<dyn Resolver>,
}

/// How long a deleted project's rows stay (contract section 5): 30 days.
const DELETED_SECONDS: i64 = 30 * 24 * 3600;

type Result<T> = std::result::Result<T, ProjectError>;

impl Projects {
    /// The service on this database and this store of bundles.
    #[must_use]
    pub fn new(store: Store, bundles: Bundles, limits: Limits, site: Site, ports: Ports) -> Self {
        let Ports { organizations, placements, zones, resolver } = ports;
        Self { store, bundles, limits, site: Arc::new(site), organizations, placements, zones, resolver }
    }

    /// Creates a project and the hostname that comes with it, within the plan's limit.
    ///
    /// # Errors
    /// [`ProjectError::Limit`], [`ProjectError::NameTaken`], [`ProjectError::HostnameTaken`].
    pub async fn create(&self, actor: &Actor, org: &Org, new: NewProject) -> Result<Project> {
        let world = self.store.world();
        let NewProject { name } = new;
        let hostname = self.default_hostname(&name, &org.slug);
        let project = ProjectRecord { id: world.id(), org: org.id, name, hostname, created_at: world.now() };
        let created = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                let plan = self.organizations.lock(tx, org.id).await?.ok_or(ProjectError::NotFound)?;
                let (limit, count) = (self.limits.of(plan).projects, tx.project_count(org.id).await?);
                if count >= i64::from(limit) {
                    return Err(ProjectError::Limit { limit, count, plan });
                }
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
            && let Err(error) = self.raise_limit(actor, org.id, limit).await
        {
            tracing::warn!(%error, "failed to notify the organization of its project limit");
        }
        created
    }

    /// In a transaction of its own, since that of the request was rolled back: whether this succeeds changes neither its
    /// response nor its idempotency key.
    async fn raise_limit(&self, actor: &Actor, org: OrgId, limit: u32) -> Result<()> {
        let actor = Actor { once: None, ..actor.clone() };
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

    /// The projects of an organization, oldest first; of them `only` these, for a credential that reaches no others.
    ///
    /// # Errors
    /// [`ProjectError::Store`].
    pub async fn list(
        &self,
        org: &Org,
        only: Option<&[ProjectId]>,
        paging: &Paging<ProjectId>,
    ) -> Result<Page<Project>> {
        let projects = self.store.connection().await?.project_list(org.id, &org.slug, only, paging).await?;
        Ok(Page::cut(projects, paging, |project| project.id))
    }

    /// One project.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`].
    pub async fn detail(&self, org: &Org, project: ProjectId) -> Result<ProjectDetail> {
        let detail = self.store.connection().await?.project_detail(org.id, project, &org.slug).await?;
        detail.ok_or(ProjectError::NotFound)
    }

    /// A project's first page.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`].
    pub async fn overview(&self, org: &Org, project: ProjectId) -> Result<Overview> {
        let overview = self.store.connection().await?.project_overview(org.id, project).await?;
        overview.ok_or(ProjectError::NotFound)
    }

    /// Gives a project another name; its default hostname follows. The same name again changes nothing.
    ///
    /// # Errors
    /// [`ProjectError::NameTaken`], [`ProjectError::HostnameTaken`], [`ProjectError::NotFound`].
    pub async fn rename(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        change: ProjectChange,
    ) -> Result<ProjectDetail> {
        let ProjectChange { name } = change;
        let hostname = self.default_hostname(&name, &org.slug);
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let before = tx.project_detail(org.id, project, &org.slug).await?.ok_or(ProjectError::NotFound)?;
                if before.project.name == name {
                    return Ok(Outcome::Unchanged(before));
                }
                tx.project_rename(project, &name, &hostname).await.map_err(|error| taken(error, &hostname))?;
                self.serve(tx, project).await?;
                let detail = tx.project_detail(org.id, project, &org.slug).await?.ok_or(ProjectError::NotFound)?;
                let data = json!({ "from": before.project.name, "to": name, "hostname": hostname });
                Ok(Outcome::Changed(detail, Event::in_org("project.rename", org.id, project, data)))
            })
            .await
    }

    /// Deletes a project: it is gone from every path and served no longer, its name and its hostnames are free.
    ///
    /// # Errors
    /// [`ProjectError::ConfirmMismatch`], [`ProjectError::NotFound`].
    pub async fn delete(&self, actor: &Actor, org: &Org, project: ProjectId, deletion: ProjectDeletion) -> Result<()> {
        let now = self.store.world().now();
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
                for hostname in hostnames.iter().filter(custom) {
                    self.zones.unlink(tx, org.id, &hostname.name).await?;
                }
                // Other contexts may have had something of the node before the first deployment.
                self.placements.remove(tx, project).await?;
                Ok(Outcome::Changed((), Event::in_org("project.delete", org.id, project, json!({ "name": name }))))
            })
            .await
    }

    /// Removes what was deleted thirty days ago, some at a time; tells how many projects. Bundles stay: others may use them.
    ///
    /// # Errors
    /// [`ProjectError::Store`].
    pub async fn purge(&self) -> Result<usize> {
        let before = self.store.world().now().plus_seconds(-DELETED_SECONDS);
        self.store
            .transaction(&Actor::service("purge"), async |tx: &mut Connection| {
                let purged = tx.project_purge(before, 100).await?;
                let (name, target) = ("project.purge", "projects".to_owned());
                let event = Event { name, org: None, target, data: json!({ "projects": purged }) };
                Ok(if purged == 0 { Outcome::Unchanged(0) } else { Outcome::Changed(purged, event) })
            })
            .await
    }

    /// The bytes of a bundle, for the node that serves it.
    ///
    /// # Errors
    /// [`ProjectError::BundleNotFound`], [`ProjectError::BundleStore`].
    pub async fn bundle(
        &self,
        digest: Digest,
    ) -> Result<(u64, impl Stream<Item = object_store::Result<Bytes>> + 'static)> {
        self.bundles.open(digest).await
    }

    /// Tells the project's node what it is to serve now, under the project's row lock; nothing before the first deployment.
    async fn serve(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        if let Some(live) = tx.project_live(project).await? {
            self.placements.converge(tx, project, live).await?;
        }
        Ok(())
    }

    fn default_hostname(&self, name: &ProjectName, org: &str) -> String {
        format!("{}.{}", default_label(name, org), self.site.platform_domain)
    }
}

/// What a name in use is answered with.
fn taken(error: store::Error, hostname: &str) -> ProjectError {
    if error.violates("projects_org_id_name_live_key") {
        return ProjectError::NameTaken;
    }
    if error.violates("hostnames_pkey") {
        return ProjectError::HostnameTaken(hostname.to_owned());
    }
    error.into()
}

/// `<project>-<org>`, or as much of it as fits a label beside a digest of the whole.
fn default_label(project: &ProjectName, org: &str) -> String {
    let whole = format!("{project}-{org}");
    if whole.len() <= LABEL {
        return whole;
    }
    let digest: String = Digest::of(whole.as_bytes()).hex().chars().take(8).collect();
    let kept: String = whole.chars().take(LABEL - digest.len() - 1).collect();
    format!("{}-{digest}", kept.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::default_label;

    #[test]
    fn a_default_label_is_a_label_and_tells_long_names_apart() {
        let project = |name: &str| name.parse().expect("a name");
        assert_eq!(default_label(&project("site"), "ada"), "site-ada");
        let (name, org) = ("p".repeat(40), "o".repeat(40));
        let label = default_label(&project(&name), &org);
        assert_eq!(label.len(), 63);
        assert_ne!(label, default_label(&project(&name), &format!("{}x", &org[..39])));
    }
}
