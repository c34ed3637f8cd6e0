//! The routing table: the site of each host name.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::SiteAccess;

use crate::index::Index;
use crate::worker::Worker;

/// The site of each host name. The table is replaced as a whole; a request in flight keeps the one it began with.
pub type Routes = HashMap<String, Arc<Shown>>;

/// What is shown under a host name, and to whom.
pub struct Shown {
    /// The project's id.
    pub project: String,
    /// The bundle; none until the first one of a project is here.
    pub index: Option<Arc<Index>>,
    /// What runs the bundle's code, on a node that runs any.
    pub worker: Option<Arc<Worker>>,
    pub access: SiteAccess,
}
