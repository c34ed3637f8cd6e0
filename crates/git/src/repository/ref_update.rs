//! Ref updates.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{RepositoryId, Time, UserId};
use store::{Connection, Prepared, Result};

use crate::model::{BranchName, DeployStatus, PushDeploy, RefUpdate};
use crate::schema::{deploys, ref_updates, repositories};

/// A ref update with the number that the git node gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdateRecord {
    pub number: i64,
    pub update: RefUpdate,
    /// The name of the push's credential, from the decision about the access. It is not a secret.
    pub credential: Option<String>,
}

/// The columns of a repository that depend on its ref updates.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct LockedRefs {
    /// The number of the last update.
    pub last_update: i64,
    pub deploy_branch: Option<BranchName>,
}

/// Ref updates on a [`store::Connection`].
pub trait RefUpdateRepository {
    /// Locks the row of a repository until the transaction ends, even if the repository is deleted.
    async fn ref_update_lock(&mut self, repository: RepositoryId) -> Result<Option<LockedRefs>>;

    /// Inserts ref updates of a locked repository. Their numbers follow those of the earlier updates.
    async fn ref_update_insert(&mut self, repository: RepositoryId, updates: &[RefUpdateRecord]) -> Result<()>;

    /// Deletes the ref updates of a locked repository up to this number.
    async fn ref_update_trim(&mut self, repository: RepositoryId, number: i64) -> Result<()>;

    /// Returns the ref updates of a repository, newest first.
    async fn ref_update_list(&mut self, repository: RepositoryId, limit: i64) -> Result<Vec<RefUpdate>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = ref_updates)]
struct RefUpdateRow {
    name: String,
    old_oid: Option<String>,
    new_oid: Option<String>,
    forced: bool,
    pusher_id: Option<UserId>,
    created_at: Time,
}

/// The status, the version and the message of a deploy.
type DeployRow = (DeployStatus, Option<i32>, Option<String>);

impl RefUpdateRepository for Connection {
    async fn ref_update_lock(&mut self, repository: RepositoryId) -> Result<Option<LockedRefs>> {
        let columns = (repositories::last_update, repositories::deploy_branch);
        let query = repositories::table.find(repository).select(columns);
        Ok(query.for_no_key_update().first(self).await.optional()?)
    }

    async fn ref_update_insert(&mut self, repository: RepositoryId, updates: &[RefUpdateRecord]) -> Result<()> {
        let Some(last) = updates.last().map(|record| record.number) else { return Ok(()) };
        let row = |RefUpdateRecord { number, update, .. }: &RefUpdateRecord| {
            (
                ref_updates::repository_id.eq(repository),
                ref_updates::number.eq(*number),
                ref_updates::name.eq(update.name.clone()),
                ref_updates::old_oid.eq(update.old.clone()),
                ref_updates::new_oid.eq(update.new.clone()),
                ref_updates::forced.eq(update.forced),
                ref_updates::pusher_id.eq(update.pusher),
                ref_updates::created_at.eq(update.created_at),
            )
        };
        let rows: Vec<_> = updates.iter().map(row).collect();
        diesel::insert_into(ref_updates::table).values(rows).execute(self).await?;
        let raise = diesel::update(repositories::table.find(repository)).set(repositories::last_update.eq(last));
        Prepared(raise).execute(self).await?;
        Ok(())
    }

    async fn ref_update_trim(&mut self, repository: RepositoryId, number: i64) -> Result<()> {
        let old = ref_updates::repository_id.eq(repository).and(ref_updates::number.le(number));
        diesel::delete(ref_updates::table.filter(old)).execute(self).await?;
        Ok(())
    }

    async fn ref_update_list(&mut self, repository: RepositoryId, limit: i64) -> Result<Vec<RefUpdate>> {
        let deploy = deploys::repository_id.eq(ref_updates::repository_id).and(deploys::number.eq(ref_updates::number));
        let query = ref_updates::table
            .left_join(deploys::table.on(deploy))
            .filter(ref_updates::repository_id.eq(repository))
            .order(ref_updates::number.desc())
            .limit(limit)
            .select((RefUpdateRow::as_select(), (deploys::status, deploys::version, deploys::message).nullable()));
        Ok(query.load::<(RefUpdateRow, Option<DeployRow>)>(self).await?.into_iter().map(RefUpdate::from).collect())
    }
}

impl From<(RefUpdateRow, Option<DeployRow>)> for RefUpdate {
    fn from((row, deploy): (RefUpdateRow, Option<DeployRow>)) -> Self {
        let RefUpdateRow { name, old_oid, new_oid, forced, pusher_id, created_at } = row;
        let deploy = deploy.map(|(status, version, message)| PushDeploy { status, version, message });
        Self { name, old: old_oid, new: new_oid, forced, pusher: pusher_id, deploy, created_at }
    }
}
