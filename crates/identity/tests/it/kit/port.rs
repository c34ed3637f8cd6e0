//! A port that can be told to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::sql_types::{Text, Uuid};
use diesel_async::RunQueryDsl as _;
use identity::PersonalOrgs;
use kernel::UserId;
use store::Connection;

/// Founds organizations as the real one does: with rows of its own, in the transaction it is given.
#[derive(Clone, Default)]
pub struct Port {
    calls: Arc<AtomicUsize>,
    failures: Arc<AtomicUsize>,
}

impl Port {
    /// How often it has been asked.
    pub fn calls(&self) -> usize {
        AtomicUsize::load(&self.calls, Ordering::SeqCst)
    }

    /// The next `count` calls fail, after they have written.
    pub fn fail(&self, count: usize) {
        self.failures.store(count, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl PersonalOrgs for Port {
    async fn create(&self, tx: &mut Connection, user: UserId, wish: &str) -> store::Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let org = "INSERT INTO orgs.orgs VALUES ($1, $2, $2, 'free', true, now())";
        let org = diesel::sql_query(org).bind::<Uuid, _>(user).bind::<Text, _>(wish);
        org.execute(tx).await?;
        // The foreign key asks for a user: one that this very transaction sees.
        let admin = "INSERT INTO orgs.members VALUES ($1, $1, 'admin', now())";
        diesel::sql_query(admin).bind::<Uuid, _>(user).execute(tx).await?;
        let due = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match due {
            Ok(_) => Err(store::Error::inconsistent("told to fail")),
            Err(_) => Ok(()),
        }
    }
}
