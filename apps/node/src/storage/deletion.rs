//! Deletion of the objects of purged projects.
//!
//! Only the control plane knows that a project is gone: a revoked grant, a move to another node and a desired state
//! without the project look the same to a node. The control plane therefore states which prefixes to delete, until the
//! node reports that nothing is left (docs/convergence.md, part `deletedStorage`). The node keeps no state: a deletion
//! that was interrupted begins again, and deletes the rows and objects that are left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::Backoff;
use protocol::{DeletedStorage, DeletedStorageReport};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Storage;
use super::error::Result;
use super::grant::is_prefix;
use super::index::Tables;

const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The prefixes whose objects must be deleted, by purged project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletedPrefixes(BTreeMap<String, String>);

/// A change of [`DeletedPrefixes`]: a project, and its part unless it is no longer desired.
pub type DeletedPrefixChange = (String, Option<DeletedStorage>);

impl DeletedPrefixes {
    /// Applies changes. A `full` update lists all prefixes.
    pub fn apply(&mut self, full: bool, changes: &[DeletedPrefixChange]) {
        if full {
            self.0.clear();
        }
        for (project, part) in changes {
            match part {
                Some(DeletedStorage { prefix }) if is_prefix(prefix) => self.0.insert(project.clone(), prefix.clone()),
                _ => self.0.remove(project),
            };
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, prefix: &str) -> bool {
        self.0.values().any(|deleted| deleted == prefix)
    }
}

/// Deletes the objects of all these prefixes after each change and each full update, and reports each one that is
/// empty.
pub(super) async fn delete_prefixes(storage: Arc<Storage>, mut desired: watch::Receiver<DeletedPrefixes>) {
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    loop {
        let prefixes = desired.borrow_and_update().clone();
        let mut failed = false;
        for (project, prefix) in &prefixes.0 {
            failed |= storage.delete_desired_prefix(project, prefix, &desired).await.is_err();
        }
        if failed {
            tokio::select! {
                changed = desired.changed() => if changed.is_err() { return std::future::pending().await },
                () = sleep(backoff.next_delay()) => {}
            }
        } else {
            backoff.reset();
            if desired.changed().await.is_err() {
                // A background task must not end, because the node would then stop.
                return std::future::pending().await;
            }
        }
    }
}

impl Storage {
    /// Deletes the objects of a prefix. Stops if the prefix is no longer desired, because the control plane was
    /// restored from a backup in which the project exists.
    async fn delete_desired_prefix(
        &self,
        project: &str,
        prefix: &str,
        desired: &watch::Receiver<DeletedPrefixes>,
    ) -> Result<()> {
        // The rows of the index are deleted first: if the deletion is interrupted, a rebuild of the index finds the
        // remaining objects.
        let mut is_empty = false;
        while !is_empty {
            let (name, latest) = (prefix.to_owned(), desired.clone());
            // Checked within the change, because the index may be rebuilt as soon as the prefix is no longer desired.
            let clear = move |tables: &mut Tables<'_>| {
                let is_desired = latest.borrow().contains(&name);
                if is_desired { tables.clear_some(&name).map(Some) } else { Ok(None) }
            };
            let Some(cleared) = self.index.write(clear).await? else { return Ok(()) };
            is_empty = cleared;
            self.prefixes.remove(prefix);
        }
        let mut latest = desired.clone();
        tokio::select! {
            biased;
            Ok(_) = latest.wait_for(|desired| !desired.contains(prefix)) => return Ok(()),
            deleted = self.blobs.delete_all(prefix) => deleted?,
        }
        tracing::info!(project, prefix, "deleted the objects of a purged project");
        let report = DeletedStorageReport { prefix: prefix.to_owned() };
        self.usage.observer().report_deleted_storage(project, &report);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_update_replaces_all_prefixes() {
        let part = |prefix: &str| Some(DeletedStorage { prefix: prefix.to_owned() });
        let mut prefixes = DeletedPrefixes::default();
        prefixes.apply(true, &[("a".to_owned(), part("sto_a")), ("b".to_owned(), part("sto_b"))]);
        prefixes.apply(false, &[("a".to_owned(), None), ("c".to_owned(), part("sto_c"))]);
        assert!(!prefixes.contains("sto_a") && prefixes.contains("sto_b") && prefixes.contains("sto_c"));
        // A prefix is a single segment of a path.
        let invalid = ["..", "", "a/b"].map(|prefix| (prefix.to_owned(), part(prefix)));
        prefixes.apply(true, &invalid);
        assert!(prefixes.is_empty());
    }
}
