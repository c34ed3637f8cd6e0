//! Construction of resources.

use resources::Resources;
use store::Store;

pub(super) fn wire(store: &Store) -> Resources {
    Resources::new(store.clone())
}
