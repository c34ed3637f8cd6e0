//! Convergence: its construction. The contexts claim their parts and reports in their own wiring.

use std::sync::Arc;

use convergence::{Builder, Convergence, Core, Embedded};
use protocol::Platform;
use store::Store;

use crate::config::{Config, CoreLink};

pub(super) fn wire(config: &Config, store: &Store) -> Builder {
    let core: Option<Arc<dyn Core>> = match config.core {
        CoreLink::Embedded => Some(Arc::new(Embedded::listening(store))),
        CoreLink::Off => None,
    };
    let platform =
        Platform { dashboard_url: config.gateway.site.dashboard_url.clone(), https: config.site_url.is_https() };
    Convergence::builder(store.clone(), core, platform)
}
