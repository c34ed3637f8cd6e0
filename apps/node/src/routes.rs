//! The routing table: sites by hostname and by project.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::http::header::HeaderValue;
use protocol::{SiteAccess, SiteHsts};

use crate::index::Index;
use crate::worker::{Unavailable, Worker};

/// The sites of the node. The table is replaced as a whole; a request in flight keeps its table.
#[derive(Default)]
pub struct Routes {
    by_hostname: HashMap<String, Arc<SiteRoute>>,
    by_project: HashMap<String, Arc<SiteRoute>>,
}

/// The site of a project.
pub struct SiteRoute {
    /// The project's id.
    pub project: String,
    /// The live bundle; `None` until the project's first bundle is fetched.
    pub index: Option<Arc<Index>>,
    /// The bundle's worker. It is used only if the bundle has code.
    pub worker: Result<Arc<Worker>, Unavailable>,
    pub access: SiteAccess,
    /// The value of `Strict-Transport-Security` for the hostnames that have it.
    pub hsts: HashMap<String, HeaderValue>,
}

impl Routes {
    /// Adds a site with its hostnames.
    pub fn insert(&mut self, route: SiteRoute, hostnames: &[String]) {
        let route = Arc::new(route);
        self.by_hostname.extend(hostnames.iter().map(|name| (name.clone(), Arc::clone(&route))));
        self.by_project.insert(route.project.clone(), route);
    }

    /// Returns the site at a hostname.
    pub fn of_hostname(&self, hostname: &str) -> Option<Arc<SiteRoute>> {
        self.by_hostname.get(hostname).cloned()
    }

    /// Returns the site of a project.
    pub fn of_project(&self, project: &str) -> Option<Arc<SiteRoute>> {
        self.by_project.get(project).cloned()
    }
}

/// Returns the values of `Strict-Transport-Security` by hostname (RFC 6797 section 6.1).
pub fn hsts_values(hsts: &[SiteHsts]) -> HashMap<String, HeaderValue> {
    let value = |hsts: &SiteHsts| {
        let SiteHsts { max_age, include_sub_domains, preload, .. } = *hsts;
        let subdomains = if include_sub_domains { "; includeSubDomains" } else { "" };
        let preload = if preload { "; preload" } else { "" };
        HeaderValue::from_str(&format!("max-age={max_age}{subdomains}{preload}")).ok()
    };
    hsts.iter().filter_map(|hsts| Some((hsts.hostname.clone(), value(hsts)?))).collect()
}
