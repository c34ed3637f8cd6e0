//! Projects.

use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel_async::RunQueryDsl;
use kernel::{AccessMode, Digest, OrgId, Paging, Plan, ProjectId, Time, TokenHash, UserId};
use store::{Connection, Error, Prepared, Result, any_of};

use super::deployment::DeploymentRow;
use super::hostname::{HostnameRow, HstsRow};
use crate::model::{
    Access, Deployment, Hostname, HostnameKind, HostnameState, Hsts, Overview, Placement, Project, ProjectDetail,
    ProjectName,
};
use crate::ports::{LiveAccess, LiveState};
use crate::schema::{
    deployments, former_hostnames, hostname_tls, hostnames, placements, project_counts, project_plans, projects,
};

/// The number of deployments in an overview.
const OVERVIEW_DEPLOYMENTS: i32 = 5;

/// A project to insert, with its default hostname.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRecord {
    pub id: ProjectId,
    pub org: OrgId,
    pub name: ProjectName,
    pub hostname: String,
    pub created_at: Time,
}

/// Projects on a [`store::Connection`].
pub trait ProjectRepository {
    /// Counts the projects of an organization that are not deleted. The result is reliable only while the organization
    /// is locked.
    async fn project_count(&mut self, org: OrgId) -> Result<i64>;

    /// Returns the time of the `n`th newest deletion of a project of the organization after `after`, counted from 1.
    /// Returns `None` if there are fewer. The result is reliable only while the organization is locked.
    async fn project_nth_newest_deletion(&mut self, org: OrgId, after: Time, n: u32) -> Result<Option<Time>>;

    /// Inserts a project; returns false when the organization has a project with this name.
    async fn project_insert(&mut self, project: &ProjectRecord) -> Result<bool>;

    /// Lists the projects of an organization by ID, limited to `only` if given. `slug` is the organization's slug.
    async fn project_list(
        &self,
        org: OrgId,
        slug: &str,
        only: Option<&[ProjectId]>,
        paging: &Paging<ProjectId>,
    ) -> Result<Vec<Project>>;

    /// Finds a project by name.
    async fn project_find(&mut self, org: OrgId, name: &str) -> Result<Option<ProjectId>>;

    /// Returns the details of a project, in one statement.
    async fn project_detail(&self, org: OrgId, project: ProjectId, slug: &str) -> Result<Option<ProjectDetail>>;

    /// Returns the overview of a project, in one statement.
    async fn project_overview(&self, org: OrgId, project: ProjectId) -> Result<Option<Overview>>;

    /// Renames a project and its default hostname.
    ///
    /// # Errors
    /// Returns a violation of `projects_org_id_name_live_key` or `hostnames_pkey` if the name or the hostname is in
    /// use.
    async fn project_rename(&mut self, project: ProjectId, name: &ProjectName, hostname: &str) -> Result<()>;

    /// Soft-deletes a project and frees its hostnames.
    async fn project_delete(&mut self, project: ProjectId, at: Time) -> Result<()>;

    /// Returns the version of the project's newest deployment, or `None` for an unknown project. Takes no lock.
    async fn project_last_version(&mut self, org: OrgId, project: ProjectId) -> Result<Option<i32>>;

    /// Increments the project's last version and returns it, or `None` for an unknown project. Locks the project's row
    /// until the transaction ends.
    async fn project_next_version(&mut self, org: OrgId, project: ProjectId) -> Result<Option<i32>>;

    /// Locks the project's row until the transaction ends and returns the live version, or `None` for an unknown
    /// project.
    async fn project_lock(&mut self, org: OrgId, project: ProjectId) -> Result<Option<Option<i32>>>;

    /// Sets the live version of a project.
    async fn project_set_live(&mut self, project: ProjectId, version: i32) -> Result<()>;

    /// Returns the desired state for the project's node, or `None` before the first deployment.
    async fn project_live(&mut self, project: ProjectId) -> Result<Option<LiveState>>;

    /// Inserts a project's default hostname; returns false when the name is in use.
    async fn hostname_insert_default(&mut self, project: &ProjectRecord) -> Result<bool>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = projects)]
struct ProjectRow {
    id: ProjectId,
    name: ProjectName,
    access_mode: AccessMode,
    live_version: Option<i32>,
    created_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = placements)]
struct PlacementRow {
    state: String,
    epoch: i64,
}

type DetailRow = (HostnameRow, ProjectRow, Option<DeploymentRow>, Option<PlacementRow>);
type LiveRow = (
    String,
    HstsRow,
    (Digest, i64, i32),
    (AccessMode, Option<String>, Option<TokenHash>, i32),
    (OrgId, Plan, Option<UserId>),
);

impl ProjectRepository for Connection {
    async fn project_count(&mut self, org: OrgId) -> Result<i64> {
        let count = project_counts::table.find(org).select(project_counts::projects).first(self).await.optional()?;
        Ok(count.unwrap_or(0))
    }

    async fn project_nth_newest_deletion(&mut self, org: OrgId, after: Time, n: u32) -> Result<Option<Time>> {
        let deletions = projects::table
            .filter(projects::org_id.eq(org).and(projects::deleted_at.gt(after)))
            .order(projects::deleted_at.desc())
            .offset(i64::from(n.saturating_sub(1)))
            .select(projects::deleted_at.assume_not_null());
        Ok(deletions.first(self).await.optional()?)
    }

    async fn project_insert(&mut self, project: &ProjectRecord) -> Result<bool> {
        let row = (
            projects::id.eq(project.id),
            projects::org_id.eq(project.org),
            projects::name.eq(&project.name),
            projects::access_mode.eq(AccessMode::Public),
            projects::last_version.eq(0),
            projects::created_at.eq(project.created_at),
        );
        let insert = diesel::insert_into(projects::table).values(row).on_conflict_do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn project_find(&mut self, org: OrgId, name: &str) -> Result<Option<ProjectId>> {
        let named = projects::org_id.eq(org).and(projects::name.eq(name)).and(projects::deleted_at.is_null());
        let query = projects::table.filter(named);
        Ok(query.select(projects::id).first(self).await.optional()?)
    }

    async fn project_list(
        &self,
        org: OrgId,
        slug: &str,
        only: Option<&[ProjectId]>,
        paging: &Paging<ProjectId>,
    ) -> Result<Vec<Project>> {
        let mut query = projects::table
            .inner_join(hostnames::table)
            .filter(projects::org_id.eq_any(any_of(org)).and(hostnames::kind.eq(HostnameKind::Default)))
            .order((projects::org_id, projects::id))
            .limit(paging.fetch())
            .select((projects::id, projects::name, hostnames::name, projects::created_at))
            .into_boxed();
        if let Some(only) = only {
            query = query.filter(projects::id.eq_any(only));
        }
        if let Some(after) = paging.after {
            query = query.filter(projects::id.gt(after));
        }
        let rows = query.load::<(ProjectId, ProjectName, String, Time)>(&mut &*self).await?;
        let org = slug.to_owned();
        let project = |(id, name, hostname, created_at)| Project { id, name, org: org.clone(), hostname, created_at };
        Ok(rows.into_iter().map(project).collect())
    }

    async fn project_detail(&self, org: OrgId, project: ProjectId, slug: &str) -> Result<Option<ProjectDetail>> {
        let live =
            deployments::project_id.eq(projects::id).and(deployments::version.nullable().eq(projects::live_version));
        let rows = hostnames::table
            .inner_join(projects::table)
            .left_join(deployments::table.on(live))
            .left_join(placements::table.on(placements::project_id.eq(projects::id)))
            .left_join(hostname_tls::table.on(hostname_tls::name.eq(hostnames::name)))
            .left_join(former_hostnames::table.on(former_hostnames::name.eq(hostnames::name)))
            .filter(projects::id.eq(project).and(projects::org_id.eq(org)))
            .order((hostnames::kind.desc(), hostnames::name))
            .select((
                HostnameRow::as_select(),
                ProjectRow::as_select(),
                Option::<DeploymentRow>::as_select(),
                Option::<PlacementRow>::as_select(),
            ))
            .load::<DetailRow>(&mut &*self)
            .await?;
        build_detail(rows, slug)
    }

    async fn project_last_version(&mut self, org: OrgId, project: ProjectId) -> Result<Option<i32>> {
        let own = projects::org_id.eq(org).and(projects::deleted_at.is_null());
        let query = projects::table.find(project).filter(own).select(projects::last_version);
        Ok(query.first(self).await.optional()?)
    }

    async fn project_next_version(&mut self, org: OrgId, project: ProjectId) -> Result<Option<i32>> {
        let own = projects::org_id.eq(org).and(projects::deleted_at.is_null());
        let update = diesel::update(projects::table.find(project).filter(own))
            .set(projects::last_version.eq(projects::last_version + 1));
        Ok(Prepared(update.returning(projects::last_version).as_query()).get_result(self).await.optional()?)
    }

    async fn project_lock(&mut self, org: OrgId, project: ProjectId) -> Result<Option<Option<i32>>> {
        let own = projects::org_id.eq(org).and(projects::deleted_at.is_null());
        let query = projects::table.find(project).filter(own).select(projects::live_version).for_update();
        Ok(query.first(self).await.optional()?)
    }

    async fn project_set_live(&mut self, project: ProjectId, version: i32) -> Result<()> {
        let update = diesel::update(projects::table.find(project)).set(projects::live_version.eq(version));
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn project_live(&mut self, project: ProjectId) -> Result<Option<LiveState>> {
        let live =
            deployments::project_id.eq(projects::id).and(deployments::version.nullable().eq(projects::live_version));
        let rows = hostnames::table
            .inner_join(projects::table)
            .inner_join(deployments::table.on(live))
            .inner_join(project_plans::table.on(project_plans::id.eq(projects::id)))
            .filter(projects::id.eq(project).and(hostnames::state.eq(HostnameState::Active)))
            .order(hostnames::name)
            .select((
                hostnames::name,
                HstsRow::as_select(),
                (deployments::digest, deployments::size_bytes, deployments::version),
                (
                    projects::access_mode,
                    projects::access_password_hash,
                    projects::bypass_key_hash,
                    projects::access_version,
                ),
                (project_plans::org_id, project_plans::plan, project_plans::created_by),
            ))
            .load::<LiveRow>(self)
            .await?;
        let Some((_, _, (bundle, size_bytes, version), access, (org, plan, creator))) =
            rows.as_slice().first().cloned()
        else {
            return Ok(None);
        };
        // The creator of an organization with a paid plan may have left it.
        let creator = creator.filter(|_| plan == Plan::Free);
        let owner = creator.map_or_else(|| org.to_string(), |user| user.to_string());
        let (mode, password, bypass, access_version) = access;
        let access = LiveAccess { mode, password, bypass, version: access_version };
        let (mut hostnames, mut hsts) = (Vec::with_capacity(rows.len()), Vec::new());
        for (name, row, ..) in rows {
            hsts.extend(Option::<Hsts>::from(row).map(|hsts| (name.clone(), hsts)));
            hostnames.push(name);
        }
        Ok(Some(LiveState { owner, hostnames, hsts, bundle, size_bytes, version, access }))
    }

    async fn project_overview(&self, org: OrgId, project: ProjectId) -> Result<Option<Overview>> {
        let recent = projects::last_version - OVERVIEW_DEPLOYMENTS;
        let included = deployments::version.gt(recent).or(deployments::version.nullable().eq(projects::live_version));
        let rows = projects::table
            .left_join(deployments::table.on(deployments::project_id.eq(projects::id).and(included)))
            .filter(projects::id.eq(project).and(projects::org_id.eq(org)).and(projects::deleted_at.is_null()))
            .order(deployments::version.desc())
            .select((ProjectRow::as_select(), Option::<DeploymentRow>::as_select()))
            .load::<(ProjectRow, Option<DeploymentRow>)>(&mut &*self)
            .await?;
        let Some((ProjectRow { live_version, .. }, _)) = rows.as_slice().first() else { return Ok(None) };
        let live_version = *live_version;
        let deployments: Vec<Deployment> =
            rows.into_iter().filter_map(|(_, row)| Some(row?.into_deployment(live_version))).collect();
        let live = deployments.iter().find(|deployment| deployment.live).cloned();
        let deployments = deployments.into_iter().take(usize::try_from(OVERVIEW_DEPLOYMENTS).unwrap_or(0)).collect();
        Ok(Some(Overview { live, deployments }))
    }

    async fn project_rename(&mut self, project: ProjectId, name: &ProjectName, hostname: &str) -> Result<()> {
        let rename = diesel::update(projects::table.find(project)).set(projects::name.eq(name));
        Prepared(rename).execute(self).await?;
        let default = hostnames::project_id.eq(project).and(hostnames::kind.eq(HostnameKind::Default));
        let rename_default = diesel::update(hostnames::table.filter(default)).set(hostnames::name.eq(hostname));
        Prepared(rename_default).execute(self).await?;
        Ok(())
    }

    async fn project_delete(&mut self, project: ProjectId, at: Time) -> Result<()> {
        diesel::delete(hostnames::table.filter(hostnames::project_id.eq(project))).execute(self).await?;
        let delete = diesel::update(projects::table.find(project)).set((
            projects::deleted_at.eq(at),
            projects::access_password_hash.eq(None::<String>),
            projects::bypass_key_hash.eq(None::<TokenHash>),
        ));
        Prepared(delete).execute(self).await?;
        Ok(())
    }

    async fn hostname_insert_default(&mut self, project: &ProjectRecord) -> Result<bool> {
        let row = (
            hostnames::name.eq(&project.hostname),
            hostnames::project_id.eq(project.id),
            hostnames::kind.eq(HostnameKind::Default),
            hostnames::state.eq(HostnameState::Active),
            hostnames::created_at.eq(project.created_at),
            hostnames::verified_at.eq(project.created_at),
        );
        let insert = diesel::insert_into(hostnames::table).values(row).on_conflict(hostnames::name).do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }
}

/// Builds the details from one row for each hostname. The other columns have the same values in every row.
fn build_detail(rows: Vec<DetailRow>, slug: &str) -> Result<Option<ProjectDetail>> {
    let mut shared = None;
    let mut hostnames = Vec::with_capacity(rows.len());
    for (hostname, project, live, placement) in rows {
        hostnames.push(Hostname::try_from(hostname)?);
        shared = Some((project, live, placement));
    }
    let Some((project, live, placement)) = shared else {
        return Ok(None);
    };
    let default = hostnames.iter().find(|hostname| hostname.kind == HostnameKind::Default);
    let hostname =
        default.ok_or_else(|| Error::inconsistent(format!("{} has no default hostname", project.id)))?.name.clone();
    let ProjectRow { id, name, access_mode, live_version, created_at } = project;
    Ok(Some(ProjectDetail {
        project: Project { id, name, org: slug.to_owned(), hostname, created_at },
        live: live.map(|row| row.into_deployment(live_version)),
        hostnames,
        access: Access { mode: access_mode },
        placement: placement.map(|PlacementRow { state, epoch }| Placement { state, epoch }),
    }))
}
