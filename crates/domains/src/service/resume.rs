//! Continues sagas in the background.

use super::purchase_saga::PurchaseSaga;
use super::renewal::RenewalSaga;
use super::{Domains, Result};

impl Domains {
    /// Continues purchases and renewals whose process died or whose provider failed. Run it every second.
    ///
    /// # Errors
    /// [`DomainError::Store`](crate::DomainError::Store).
    pub async fn resume(&self) -> Result<()> {
        let purchases = self.store.saga_resume(&PurchaseSaga(self.clone())).await;
        let renewals = self.store.saga_resume(&RenewalSaga(self.clone())).await;
        Ok(purchases.and(renewals)?)
    }
}
