//! Construction of convergence. Each context registers its parts and reports in its own wiring.

use std::sync::Arc;

use convergence::{Builder, Convergence, Core, EmbeddedCore};
use protocol::Platform;
use store::Store;

use crate::config::{Config, CoreLink};

pub(super) fn wire(config: &Config, store: &Store) -> Builder {
    let core: Option<Arc<dyn Core>> = match config.core {
        CoreLink::Embedded => Some(Arc::new(EmbeddedCore::with_listener(store))),
        CoreLink::Off => None,
    };
    let (dashboard_url, site_url) = (config.gateway.site.dashboard_url.clone(), config.site_url.to_string());
    let platform = Platform { dashboard_url, site_url, certificates: Vec::new() };
    Convergence::builder(store.clone(), core, platform)
}
