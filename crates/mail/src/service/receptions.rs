//! Received mails of a project share transactions.
//!
//! Each transaction that adds received mail locks the mailbox of the project, so these transactions run one after the
//! other. The mails that arrive during a transaction share the next one. Projects do not share transactions, so that a
//! locked mailbox does not delay the mail of other projects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use kernel::{KeyedSemaphores, ProjectId};
use store::Connection;

use super::{Mail, Result};
use crate::error::MailError;
use crate::metrics;
use crate::model::NewInboundMail;

/// The transactions of received mail.
pub(super) struct Receptions {
    /// The permit of a project is held by its transaction in progress.
    turns: KeyedSemaphores<ProjectId>,
    /// The transactions that have not begun, at most one of a project.
    next: Mutex<HashMap<ProjectId, Batch>>,
}

/// The mails of a transaction that has not begun.
struct Batch {
    mails: Vec<NewInboundMail>,
    /// Dropped if all requests with a mail in the transaction are cancelled.
    commit: WeakShared<BoxFuture<'static, Committed>>,
}

type Committed = std::result::Result<(), Arc<MailError>>;

/// A transaction. All requests with a mail in it drive it, so it completes even if some of them are cancelled.
type Commit = Shared<BoxFuture<'static, Committed>>;

impl Mail {
    /// Adds a mail to the log, in a transaction with other mails of its project.
    pub(super) async fn insert_in_batch(&self, mail: NewInboundMail) -> Result<()> {
        self.join_batch(mail).await.map_err(MailError::Shared)
    }

    fn join_batch(&self, mail: NewInboundMail) -> Commit {
        let project = mail.project;
        let mut next = self.receptions.next();
        if let Some(batch) = next.get_mut(&project)
            && let Some(commit) = batch.commit.upgrade()
        {
            if batch.mails.iter().all(|known| known.id != mail.id) {
                batch.mails.push(mail);
            }
            return commit;
        }
        next.retain(|_, batch| batch.commit.upgrade().is_some());
        let this = self.clone();
        let commit = async move { this.commit_batch(project).await.map_err(Arc::new) }.boxed().shared();
        if let Some(weak) = commit.downgrade() {
            next.insert(project, Batch { mails: vec![mail], commit: weak });
        }
        commit
    }

    async fn commit_batch(&self, project: ProjectId) -> Result<()> {
        let _turn = self.receptions.turns.of(project).acquire_owned().await.map_err(store::Error::inconsistent)?;
        let mails = self.receptions.next().remove(&project).map(|batch| batch.mails).unwrap_or_default();
        let insert = async |tx: &mut Connection| self.insert_received(tx, project, mails).await;
        metrics::received(self.store.transaction_unaudited(insert).await?);
        Ok(())
    }
}

impl Receptions {
    pub(super) fn new() -> Self {
        Self { turns: KeyedSemaphores::new(1), next: Mutex::default() }
    }

    fn next(&self) -> MutexGuard<'_, HashMap<ProjectId, Batch>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
