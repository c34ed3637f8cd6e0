//! The operations that the git node calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use kernel::{NodeId, RepositoryId, Secret};
use store::{Connection, SealedColumn};

use super::repo::MAX_REF_UPDATES;
use super::{Repositories, Result};
use crate::model::BranchName;
use crate::repository::{
    DeployRecord, DeployRepository as _, GitNodeRepository as _, NodeRecord, RefUpdateRecord, RefUpdateRepository as _,
    RepoRepository as _,
};

/// The secret with which the control plane authenticates at the git node.
pub(super) const SECRET: SealedColumn =
    SealedColumn { table: "git.nodes", column: "sealed", row_key: &[("node_id", "uuid")] };

/// The maximum number of repositories in one response to the git node.
const MAX_ERASABLE: i64 = 100;

/// The maximum number of pending deploys of a user's pushes: as many as a project can have repositories.
const MAX_PENDING_DEPLOYS: i64 = 1000;

/// The URL and the secret with which the control plane reaches the git node.
#[derive(Debug, Clone)]
pub struct NodeAddress {
    /// The base URL of its internal listener.
    pub url: String,
    /// The bearer token at that listener.
    pub secret: Secret,
}

impl Repositories {
    /// Stores the URL and the secret of a git node's internal listener.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn announce(&self, node: NodeId, url: String, secret: &Secret) -> Result<()> {
        let row = SealedColumn::row(&[node.as_uuid().to_string()]);
        let secret = self.store.seal(SECRET.associated_data(&row), secret.reveal().as_bytes())?;
        let record = NodeRecord { id: node, url, secret, announced_at: self.store.clock_rng().now() };
        Ok(self.store.connection().await?.git_node_upsert(record).await?)
    }

    /// Returns the URL and the secret of the git node that announced itself last.
    pub(super) async fn node_address(&self) -> Result<Option<NodeAddress>> {
        let Some(node) = self.store.connection().await?.git_node_last().await? else { return Ok(None) };
        let row = SealedColumn::row(&[node.id.as_uuid().to_string()]);
        let secret = self.store.open_text(SECRET.associated_data(&row), &node.secret)?;
        Ok(Some(NodeAddress { url: node.url, secret }))
    }

    /// Records ref updates of a repository, in ascending order of their numbers. Safe to repeat: updates that are
    /// already recorded are skipped. Updates of an erased repository are dropped. If an update sets the deploy branch
    /// to a commit, a deploy is recorded too. It is pending, unless the pusher has too many pending ones.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn record_updates(&self, repository: RepositoryId, updates: Vec<RefUpdateRecord>) -> Result<()> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let Some(refs) = tx.ref_update_lock(repository).await? else { return Ok(()) };
                let mut new: Vec<_> = updates.into_iter().filter(|it| it.number > refs.last_update).collect();
                let mut deploys = deploys(refs.deploy_branch.as_ref(), &new);
                // Only the newest updates are kept.
                let skipped = new.len().saturating_sub(usize::try_from(MAX_REF_UPDATES).unwrap_or(usize::MAX));
                let new = new.split_off(skipped);
                let Some(newest) = new.last().map(|record| record.number) else { return Ok(()) };
                tx.ref_update_insert(repository, &new).await?;
                tx.ref_update_trim(repository, newest - MAX_REF_UPDATES).await?;
                if !deploys.is_empty() {
                    tx.deploy_trim(repository, newest - MAX_REF_UPDATES).await?;
                    reject_excess(tx, &mut deploys).await?;
                    tx.deploy_insert(repository, &deploys).await?;
                }
                Ok(())
            })
            .await
    }

    /// Returns the object ids in the ref updates of a repository. These objects must stay readable.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn listed_objects(&self, repository: RepositoryId) -> Result<Vec<String>> {
        let updates = self.store.connection().await?.ref_update_list(repository, MAX_REF_UPDATES).await?;
        Ok(updates.into_iter().filter_map(|update| update.old).collect())
    }

    /// Returns the owner whose share of the node's maintenance a repository uses. `None` if the repository or its project
    /// is deleted.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn owner(&self, repository: RepositoryId) -> Result<Option<String>> {
        Ok(self.store.connection().await?.repo_find_owner(repository).await?)
    }

    /// Returns deleted repositories whose contents are due for erasure.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn erasable(&self) -> Result<Vec<RepositoryId>> {
        let now = self.store.clock_rng().now();
        Ok(self.store.connection().await?.repo_list_erasable(now, MAX_ERASABLE).await?)
    }

    /// Removes a repository whose contents were erased.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn erased(&self, repository: RepositoryId) -> Result<()> {
        let now = self.store.clock_rng().now();
        Ok(self.store.connection().await?.repo_erase(repository, now).await?)
    }
}

/// Returns the deploys for those updates that change the deploy branch and do not delete it.
fn deploys(branch: Option<&BranchName>, updates: &[RefUpdateRecord]) -> Vec<DeployRecord> {
    let Some(branch) = branch else { return Vec::new() };
    let deploy = |RefUpdateRecord { number, update, credential }: &RefUpdateRecord| {
        let is_deployed = update.name.strip_prefix("refs/heads/") == Some(branch.as_str());
        let (commit, pusher, credential) = (update.new.clone()?, update.pusher?, credential.clone()?);
        let (number, branch) = (*number, branch.clone());
        is_deployed.then_some(DeployRecord { number, branch, commit, pusher, credential, rejection: None })
    };
    updates.iter().filter_map(deploy).collect()
}

/// Rejects those new deploys with which their pushers would have too many pending ones. Concurrent reports about other
/// repositories can exceed the limit.
async fn reject_excess(tx: &mut Connection, deploys: &mut [DeployRecord]) -> store::Result<()> {
    let mut counts = HashMap::new();
    for deploy in deploys {
        let count = match counts.entry(deploy.pusher) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(tx.deploy_count_pending(deploy.pusher).await?),
        };
        if *count < MAX_PENDING_DEPLOYS {
            *count += 1;
        } else {
            deploy.rejection = Some(format!(
                "{MAX_PENDING_DEPLOYS} of your pushes already wait for their deploys; push a new commit when some of \
                 them are deployed"
            ));
        }
    }
    Ok(())
}
