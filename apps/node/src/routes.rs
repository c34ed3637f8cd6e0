//! The routing table: sites by hostname.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::SiteAccess;

use crate::index::Index;
use crate::worker::Worker;

/// Sites by hostname. The table is replaced as a whole; a request in flight keeps its table.
pub type Routes = HashMap<String, Arc<SiteRoute>>;

/// The site at a hostname.
pub struct SiteRoute {
    /// The project's id.
    pub project: String,
    /// The live bundle; `None` until the project's first bundle is fetched.
    pub index: Option<Arc<Index>>,
    /// The bundle's worker, if it has code and the node runs workers.
    pub worker: Option<Arc<Worker>>,
    pub access: SiteAccess,
}
