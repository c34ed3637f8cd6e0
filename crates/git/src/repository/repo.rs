//! Repositories.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel::sql_types::{BigInt, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Paging, Plan, ProjectId, RepositoryId, Time, UserId};
use store::{BATCH_SIZE, Connection, Prepared, Result, newest_first};

use crate::model::{BranchName, RepoName, Visibility};
use crate::schema::{counts, project_orgs, projects, repositories};

/// A live repository.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = repositories)]
pub struct RepoRecord {
    pub id: RepositoryId,
    #[diesel(column_name = project_id)]
    pub project: ProjectId,
    pub name: RepoName,
    pub visibility: Visibility,
    pub default_branch: BranchName,
    pub deploy_branch: Option<BranchName>,
    pub created_at: Time,
    pub updated_at: Time,
    /// The number of the last ref update.
    pub last_update: i64,
}

/// Repositories on a [`store::Connection`].
pub trait RepoRepository {
    /// Locks a project until the transaction ends, so that it cannot be deleted. Returns false if it is deleted.
    async fn repo_lock_project(&mut self, project: ProjectId) -> Result<bool>;

    /// Increments the project's number of repositories. Returns false if it would exceed `limit`. Locks this number
    /// until the transaction ends.
    async fn repo_count_raise(&mut self, project: ProjectId, limit: i32) -> Result<bool>;

    /// Returns the `n`th newest time after `now` at which a deleted repository of an organization is erased. The
    /// repositories of its deleted projects count.
    async fn repo_nth_newest_erasure(&mut self, org: OrgId, now: Time, n: u32) -> Result<Option<Time>>;

    /// Inserts a repository; false if its name is taken.
    async fn repo_insert(&mut self, repo: &RepoRecord) -> Result<bool>;

    /// Returns the live repository with this name.
    async fn repo_find(&mut self, project: ProjectId, name: &str) -> Result<Option<RepoRecord>>;

    /// Returns the live repository with this name, and its organization.
    async fn repo_find_by_path(&mut self, org: &str, project: &str, name: &str) -> Result<Option<(OrgId, RepoRecord)>>;

    /// Returns the live repository of a live project.
    async fn repo_find_by_id(&mut self, repository: RepositoryId) -> Result<Option<RepoRecord>>;

    /// Returns the owner of a live repository of a live project: the organization, or its creator while it has the free
    /// plan.
    async fn repo_find_owner(&mut self, repository: RepositoryId) -> Result<Option<String>>;

    /// Returns the live repository with this name, and locks its row until the transaction ends.
    async fn repo_lock(&mut self, project: ProjectId, name: &str) -> Result<Option<RepoRecord>>;

    /// Returns the live repositories of a project, newest first.
    async fn repo_list(&mut self, project: ProjectId, paging: &Paging<RepositoryId>) -> Result<Vec<RepoRecord>>;

    /// Stores the name, the visibility and the branches of a locked repository.
    ///
    /// # Errors
    /// Returns a violation of `repositories_project_id_name_live_key` if the name is taken.
    async fn repo_update(&mut self, repo: &RepoRecord) -> Result<()>;

    /// Deletes a locked repository. Its contents become due for erasure at `erase_at`.
    async fn repo_delete(&mut self, repo: &RepoRecord, erase_at: Time) -> Result<()>;

    /// Deletes a batch of the repositories of a project, and returns their number. Their contents, and those of deleted
    /// repositories, become due for erasure at `erase_at`.
    async fn repo_purge_batch(&mut self, project: ProjectId, erase_at: Time) -> Result<usize>;

    /// Returns repositories whose contents are due for erasure, in ascending order.
    async fn repo_list_erasable(&mut self, now: Time, limit: i64) -> Result<Vec<RepositoryId>>;

    /// Removes the row of a repository whose contents were erased. A no-op if the repository is not due for erasure.
    async fn repo_erase(&mut self, repository: RepositoryId, now: Time) -> Result<()>;

    /// Stores the size of a repository, in bytes. Returns false if the repository does not exist.
    async fn repo_set_size(&mut self, repository: RepositoryId, size_bytes: i64) -> Result<bool>;

    /// Returns the sum of the sizes of an organization's repositories, in bytes, with those that are not erased yet.
    async fn repo_stored_bytes(&mut self, org: OrgId) -> Result<i64>;
}

const PURGE: &str = "UPDATE git.repositories SET erase_at = $2 WHERE id IN ( \
    SELECT id FROM git.repositories WHERE project_id = $1 AND (erase_at IS NULL OR erase_at > $2) LIMIT $3)";

/// Reads only index entries of deleted repositories, and of repositories of deleted projects. These projects are purged
/// after 30 days: the length of `'30 days'` would depend on the time zone.
const NTH_NEWEST_ERASURE: &str = "\
    SELECT erase_at FROM ( \
        SELECT r.erase_at FROM git.project_orgs p JOIN git.repositories r ON r.project_id = p.id \
            WHERE p.org_id = $1 AND r.erase_at > $2 \
        UNION ALL \
        SELECT p.deleted_at + interval '720 hours' \
            FROM git.project_orgs p JOIN git.repositories r ON r.project_id = p.id \
            WHERE p.org_id = $1 AND p.deleted_at > $2 - interval '720 hours' AND r.erase_at IS NULL) erasures \
    ORDER BY erase_at DESC OFFSET $3 LIMIT 1";

#[derive(QueryableByName)]
struct Erasure {
    #[diesel(sql_type = Timestamptz)]
    erase_at: Time,
}

impl RepoRepository for Connection {
    async fn repo_lock_project(&mut self, project: ProjectId) -> Result<bool> {
        // Waits for a deletion in progress, whose result the second statement sees. A lock of `git.projects` would also
        // lock the organization, which a deletion locks before the project.
        let lock = project_orgs::table.find(project).select(project_orgs::id).for_share();
        lock.execute(self).await?;
        let live = projects::table.find(project).select(projects::id);
        Ok(live.first::<ProjectId>(self).await.optional()?.is_some())
    }

    async fn repo_count_raise(&mut self, project: ProjectId, limit: i32) -> Result<bool> {
        let upsert = diesel::insert_into(counts::table)
            .values((counts::project_id.eq(project), counts::repositories.eq(1)))
            .on_conflict(counts::project_id)
            .do_update()
            .set(counts::repositories.eq(counts::repositories + 1))
            .returning(counts::repositories);
        let count: i32 = Prepared(upsert).get_result(self).await?;
        Ok(count <= limit)
    }

    async fn repo_nth_newest_erasure(&mut self, org: OrgId, now: Time, n: u32) -> Result<Option<Time>> {
        let query = diesel::sql_query(NTH_NEWEST_ERASURE)
            .bind::<Uuid, _>(org)
            .bind::<Timestamptz, _>(now)
            .bind::<BigInt, _>(i64::from(n.saturating_sub(1)));
        let nth: Option<Erasure> = Prepared(query).get_result(self).await.optional()?;
        Ok(nth.map(|nth| nth.erase_at))
    }

    async fn repo_insert(&mut self, repo: &RepoRecord) -> Result<bool> {
        let insert = diesel::insert_into(repositories::table).values(repo).on_conflict_do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn repo_find(&mut self, project: ProjectId, name: &str) -> Result<Option<RepoRecord>> {
        let query = repositories::table.filter(live(project, name)).select(RepoRecord::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn repo_find_by_path(&mut self, org: &str, project: &str, name: &str) -> Result<Option<(OrgId, RepoRecord)>> {
        let query = repositories::table
            .inner_join(projects::table.on(projects::id.eq(repositories::project_id)))
            .filter(projects::slug.eq(org).and(projects::name.eq(project)))
            .filter(repositories::name.eq(name).and(repositories::erase_at.is_null()))
            .select((projects::org_id, RepoRecord::as_select()));
        Ok(query.first(self).await.optional()?)
    }

    async fn repo_find_by_id(&mut self, repository: RepositoryId) -> Result<Option<RepoRecord>> {
        let query = repositories::table
            .inner_join(projects::table.on(projects::id.eq(repositories::project_id)))
            .filter(repositories::id.eq(repository).and(repositories::erase_at.is_null()))
            .select(RepoRecord::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn repo_find_owner(&mut self, repository: RepositoryId) -> Result<Option<String>> {
        let query = repositories::table
            .inner_join(projects::table.on(projects::id.eq(repositories::project_id)))
            .filter(repositories::id.eq(repository).and(repositories::erase_at.is_null()))
            .select((projects::org_id, projects::plan, projects::created_by));
        let found: Option<(OrgId, Plan, Option<UserId>)> = query.first(self).await.optional()?;
        Ok(found.map(|(org, plan, creator)| {
            // The creator of an organization with a paid plan may have left it.
            let creator = creator.filter(|_| plan == Plan::Free);
            creator.map_or_else(|| org.to_string(), |user| user.to_string())
        }))
    }

    async fn repo_lock(&mut self, project: ProjectId, name: &str) -> Result<Option<RepoRecord>> {
        let query = repositories::table.filter(live(project, name)).select(RepoRecord::as_select());
        Ok(query.for_update().first(self).await.optional()?)
    }

    async fn repo_list(&mut self, project: ProjectId, paging: &Paging<RepositoryId>) -> Result<Vec<RepoRecord>> {
        let all = repositories::table.filter(repositories::erase_at.is_null()).select(RepoRecord::as_select());
        let page = newest_first!(all, repositories::project_id = project, repositories::id, paging);
        Ok(page.load(self).await?)
    }

    async fn repo_update(&mut self, repo: &RepoRecord) -> Result<()> {
        let change = (
            repositories::name.eq(&repo.name),
            repositories::visibility.eq(repo.visibility),
            repositories::default_branch.eq(&repo.default_branch),
            repositories::deploy_branch.eq(&repo.deploy_branch),
            repositories::updated_at.eq(repo.updated_at),
        );
        Prepared(diesel::update(repositories::table.find(repo.id)).set(change)).execute(self).await?;
        Ok(())
    }

    async fn repo_delete(&mut self, repo: &RepoRecord, erase_at: Time) -> Result<()> {
        let change = repositories::erase_at.eq(erase_at);
        Prepared(diesel::update(repositories::table.find(repo.id)).set(change)).execute(self).await?;
        let count = diesel::update(counts::table.find(repo.project));
        Prepared(count.set(counts::repositories.eq(counts::repositories - 1))).execute(self).await?;
        Ok(())
    }

    async fn repo_purge_batch(&mut self, project: ProjectId, erase_at: Time) -> Result<usize> {
        let purge = diesel::sql_query(PURGE)
            .bind::<Uuid, _>(project)
            .bind::<Timestamptz, _>(erase_at)
            .bind::<BigInt, _>(BATCH_SIZE);
        Ok(Prepared(purge).execute(self).await?)
    }

    async fn repo_list_erasable(&mut self, now: Time, limit: i64) -> Result<Vec<RepositoryId>> {
        let due = repositories::table.filter(repositories::erase_at.le(now)).order(repositories::erase_at);
        Ok(due.select(repositories::id).limit(limit).load(self).await?)
    }

    async fn repo_erase(&mut self, repository: RepositoryId, now: Time) -> Result<()> {
        let due = repositories::table.filter(repositories::id.eq(repository).and(repositories::erase_at.le(now)));
        Prepared(diesel::delete(due).as_query()).execute(self).await?;
        Ok(())
    }

    async fn repo_set_size(&mut self, repository: RepositoryId, size_bytes: i64) -> Result<bool> {
        let stored = repositories::table.find(repository).select(repositories::size_bytes);
        let stored: Option<i64> = stored.first(self).await.optional()?;
        // Most reports repeat the size, and a row that is written again becomes a dead row.
        if stored.is_some_and(|stored| stored != size_bytes) {
            let update = diesel::update(repositories::table.find(repository));
            Prepared(update.set(repositories::size_bytes.eq(size_bytes))).execute(self).await?;
        }
        Ok(stored.is_some())
    }

    async fn repo_stored_bytes(&mut self, org: OrgId) -> Result<i64> {
        let sum = sql::<BigInt>("least(coalesce(sum(repositories.size_bytes), 0), 9223372036854775807)::bigint");
        let query = repositories::table
            .inner_join(project_orgs::table.on(project_orgs::id.eq(repositories::project_id)))
            .filter(project_orgs::org_id.eq(org))
            .select(sum);
        Ok(Prepared(query).get_result(self).await?)
    }
}

#[diesel::dsl::auto_type(no_type_alias)]
fn live<'a>(project: ProjectId, name: &'a str) -> _ {
    repositories::project_id.eq(project).and(repositories::name.eq(name)).and(repositories::erase_at.is_null())
}
