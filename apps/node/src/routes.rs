//! The routing table: sites by hostname.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::SiteAccess;

use crate::index::Index;
use crate::worker::{Unavailable, Worker};

/// Sites by hostname. The table is replaced as a whole; a request in flight keeps its table.
pub type Routes = HashMap<String, Arc<SiteRoute>>;

/// The site at a hostname.
pub struct SiteRoute {
    /// The project's id.
    pub project: String,
    /// The live bundle; `None` until the project's first bundle is fetched.
    pub index: Option<Arc<Index>>,
    /// The bundle's worker. It is used only if the bundle has code.
    pub worker: Result<Arc<Worker>, Unavailable>,
    pub access: SiteAccess,
}
