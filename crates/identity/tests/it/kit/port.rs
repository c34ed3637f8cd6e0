//! The ports of the identity context, with injected failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::QueryableByName;
use diesel::result::OptionalExtension as _;
use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl as _;
use identity::{PersonalOrgs, RestrictionTargets};
use kernel::{OrgId, ProjectId, UserId, ZoneId};
use store::Connection;

/// Creates organizations in the caller's transaction, like the real port.
#[derive(Clone, Default)]
pub struct Port {
    calls: Arc<AtomicUsize>,
    failures: Arc<AtomicUsize>,
}

impl Port {
    /// Returns the number of calls.
    pub fn calls(&self) -> usize {
        AtomicUsize::load(&self.calls, Ordering::SeqCst)
    }

    /// Makes the next `count` calls fail after their writes.
    pub fn fail(&self, count: usize) {
        self.failures.store(count, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl PersonalOrgs for Port {
    async fn create(&self, tx: &mut Connection, user: UserId, preferred_slug: &str) -> store::Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let org = "INSERT INTO orgs.orgs VALUES ($1, $2, $2, 'free', true, now())";
        let org = diesel::sql_query(org).bind::<Uuid, _>(user).bind::<Text, _>(preferred_slug);
        org.execute(tx).await?;
        // The foreign key requires the user, which only this transaction sees.
        let admin = "INSERT INTO orgs.members VALUES ($1, $1, 'admin', now())";
        diesel::sql_query(admin).bind::<Uuid, _>(user).execute(tx).await?;
        let due = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match due {
            Ok(_) => Err(store::Error::inconsistent("injected failure")),
            Err(_) => Ok(()),
        }
    }
}

#[derive(QueryableByName)]
struct Row<T: 'static>
where
    T: diesel::deserialize::FromSql<Uuid, diesel::pg::Pg>,
{
    #[diesel(sql_type = Uuid)]
    id: T,
}

#[async_trait::async_trait]
impl RestrictionTargets for Port {
    async fn org(&self, tx: &mut Connection, user: UserId, slug: &str) -> store::Result<Option<OrgId>> {
        let query = diesel::sql_query(
            "SELECT id FROM orgs.orgs JOIN orgs.members ON org_id = id WHERE user_id = $1 AND slug = $2",
        );
        let query = query.bind::<Uuid, _>(user).bind::<Text, _>(slug);
        Ok(query.get_result::<Row<OrgId>>(tx).await.optional()?.map(|row| row.id))
    }

    async fn project(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ProjectId>> {
        let query = diesel::sql_query("SELECT id FROM projects.projects WHERE org_id = $1 AND name = $2");
        let query = query.bind::<Uuid, _>(org).bind::<Text, _>(name);
        Ok(query.get_result::<Row<ProjectId>>(tx).await.optional()?.map(|row| row.id))
    }

    async fn zone(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ZoneId>> {
        let query = diesel::sql_query("SELECT id FROM dns.zones WHERE org_id = $1 AND name = $2");
        let query = query.bind::<Uuid, _>(org).bind::<Text, _>(name);
        Ok(query.get_result::<Row<ZoneId>>(tx).await.optional()?.map(|row| row.id))
    }
}
