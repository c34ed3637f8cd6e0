//! The database part of each project's desired state. The deletion of objects reads it, because the control plane may
//! still ask for an object that a part names, even while the database does not exist.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use protocol::Database;
use tokio::sync::watch;

/// The part `database` of each project.
#[derive(Default)]
pub struct DesiredParts(watch::Sender<Parts>);

/// The projects in a full state of the control plane.
#[derive(Debug, Default)]
pub struct FullState {
    /// The projects whose part is missing, because the control plane could not provide it. Their objects are not
    /// deleted.
    pub unavailable: BTreeSet<String>,
    /// The purged projects whose objects must be deleted.
    pub deleted: BTreeSet<String>,
}

#[derive(Default)]
struct Parts {
    by_project: HashMap<String, Arc<Database>>,
    /// The last full state.
    full: FullState,
    /// Whether a full state was applied since the start. Before that, the parts come from the node's own copy, which
    /// can be incomplete or old.
    is_complete: bool,
}

impl DesiredParts {
    /// Records the database part of a project; `None` if the project has no desired database.
    pub fn set(&self, project: &str, part: Option<&Arc<Database>>) {
        self.0.send_modify(|parts| {
            parts.full.unavailable.remove(project);
            match part {
                Some(part) => parts.by_project.insert(project.to_owned(), Arc::clone(part)),
                None => parts.by_project.remove(project),
            };
        });
    }

    /// Records that a full state was applied.
    pub fn complete(&self, state: FullState) {
        self.0.send_modify(|parts| {
            parts.full = state;
            parts.is_complete = true;
        });
    }

    /// Waits for the first full state.
    pub async fn wait_until_complete(&self) {
        // This cannot fail: `self` keeps the sender alive.
        let _ = self.0.subscribe().wait_for(|parts| parts.is_complete).await;
    }

    /// Returns whether the control plane may ask for an object of a project.
    pub fn may_need(&self, project: &str, key: &str) -> bool {
        let parts = self.0.borrow();
        let names = |part: &Database| {
            let operation = part.operation.as_ref().and_then(|operation| operation.generation.as_ref());
            part.source.iter().chain(operation).any(|reference| reference.key == key)
        };
        parts.full.unavailable.contains(project) || parts.by_project.get(project).is_some_and(|part| names(part))
    }

    /// Returns the purged projects.
    pub fn deleted(&self) -> BTreeSet<String> {
        self.0.borrow().full.deleted.clone()
    }

    /// Returns whether all objects of a project must be deleted.
    pub fn is_deleted(&self, project: &str) -> bool {
        self.0.borrow().full.deleted.contains(project)
    }

    /// Returns, for each project, the days for which scheduled generations are kept.
    pub fn backup_days(&self) -> Vec<(String, u32)> {
        self.0.borrow().by_project.iter().map(|(project, part)| (project.clone(), part.backup_days)).collect()
    }
}
