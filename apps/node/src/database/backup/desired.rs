//! The desired parts, for the deletion of objects: the control plane may ask for the objects that they name, also while
//! their database does not exist.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use protocol::Database;
use tokio::sync::watch;

/// The desired parts of all projects.
#[derive(Default)]
pub struct DesiredParts(watch::Sender<Parts>);

#[derive(Default)]
struct Parts {
    by_project: HashMap<String, Arc<Database>>,
    /// The projects whose part the control plane could not provide.
    unavailable: BTreeSet<String>,
    /// Whether a full state was applied since the start. Before, the saved parts can be incomplete or old.
    is_complete: bool,
}

impl DesiredParts {
    /// Records the part of a project; `None` if none is desired.
    pub fn set(&self, project: &str, part: Option<&Arc<Database>>) {
        self.0.send_modify(|parts| {
            parts.unavailable.remove(project);
            match part {
                Some(part) => parts.by_project.insert(project.to_owned(), Arc::clone(part)),
                None => parts.by_project.remove(project),
            };
        });
    }

    /// Records that a full state was applied, which lacks the parts of some projects.
    pub fn complete(&self, unavailable: BTreeSet<String>) {
        self.0.send_modify(|parts| {
            parts.unavailable = unavailable;
            parts.is_complete = true;
        });
    }

    /// Waits for the first full state.
    pub async fn wait_until_complete(&self) {
        // The sender lives as long as this future.
        let _ = self.0.subscribe().wait_for(|parts| parts.is_complete).await;
    }

    /// Whether the control plane may ask for an object of a project.
    pub fn may_need(&self, project: &str, key: &str) -> bool {
        let parts = self.0.borrow();
        let names = |part: &Database| {
            let operation = part.operation.as_ref().and_then(|operation| operation.generation.as_ref());
            part.source.iter().chain(operation).any(|reference| reference.key == key)
        };
        parts.unavailable.contains(project) || parts.by_project.get(project).is_some_and(|part| names(part))
    }

    /// The days for which scheduled generations are kept, by project.
    pub fn backup_days(&self) -> Vec<(String, u32)> {
        self.0.borrow().by_project.iter().map(|(project, part)| (project.clone(), part.backup_days)).collect()
    }
}
