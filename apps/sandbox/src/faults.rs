//! The faults that are injected into systems.

use tokio::sync::watch;

/// Returns the fault with a name on a page; `None` if there is no such name.
pub(crate) fn find<T>(faults: impl IntoIterator<Item = (&'static str, T)>, name: &str) -> Option<T> {
    faults.into_iter().find(|(known, _)| *known == name).map(|(_, fault)| fault)
}

/// Waits until the current fault is replaced or removed.
pub(crate) async fn wait_for_change<T: Clone + PartialEq>(fault: &watch::Sender<T>) {
    let mut faults = fault.subscribe();
    let injected = faults.borrow_and_update().clone();
    faults.wait_for(|fault| *fault != injected).await.unwrap();
}
