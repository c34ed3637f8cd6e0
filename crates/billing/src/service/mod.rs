//! The billing service.

mod adjust;
mod ai;
mod call;
mod credit;
mod plan;
mod topup;
mod webhook;

use std::sync::Arc;

use kernel::{AllowList, InvalidField, Limits};
use store::Store;
use webhooks::VerifyingKeys;

use crate::catalog::Catalog;
use crate::error::BillingError;
use crate::ports::{Payments, Ports};

pub use adjust::{AdjustmentError, Adjustments};
pub use call::{CallAdmission, CallRefusal, CallRequest, CallResult};
pub use topup::{TOP_UP_TOPIC, TopUpError, TopUpMessage};

type Result<T> = std::result::Result<T, BillingError>;

/// The products at the payments provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Products {
    /// The subscription of the pro plan. `None` if billing is off.
    pub pro: Option<String>,
    /// AI credit, whose price the buyer selects. `None` if it is not for sale.
    pub credit: Option<String>,
    /// The product that automatic top-ups of AI credit are charged under. If `None`, it is `credit`.
    pub topup: Option<String>,
}

/// The configuration of billing.
#[derive(Debug, Clone)]
pub struct BillingConfig {
    pub products: Products,
    /// Whether the provider charges no real money.
    pub sandbox: bool,
    /// The keys of the provider's webhooks. `None` if the webhook is off.
    pub webhook_keys: Option<VerifyingKeys>,
    /// The pages to which checkouts and the portal may return.
    pub return_addresses: AllowList,
    /// The AI models. Empty if none are offered.
    pub catalog: Catalog,
}

/// The billing service. Cheap to clone.
#[derive(Clone)]
pub struct Billing {
    store: Store,
    limits: Limits,
    config: Arc<BillingConfig>,
    ports: Ports,
    cards: Arc<credit::Cards>,
}

impl Billing {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, limits: Limits, config: BillingConfig, ports: Ports) -> Self {
        webhook::create_counters();
        Self { store, limits, config: Arc::new(config), ports, cards: Arc::default() }
    }

    /// Returns the payments provider and the product of the pro plan.
    fn pro(&self) -> Result<(&dyn Payments, &str)> {
        let payments = self.ports.payments.as_deref().zip(self.config.products.pro.as_deref());
        payments.ok_or(BillingError::Off)
    }

    /// Returns the payments provider and the product of AI credit, or `None` if credit is not for sale.
    fn sale_of_credit(&self) -> Option<(&dyn Payments, &str)> {
        self.ports.payments.as_deref().zip(self.config.products.credit.as_deref())
    }

    /// Checks the address of a page to which the browser returns. Returns the parsed address.
    fn return_address(&self, text: &str) -> std::result::Result<ReturnAddress, InvalidField> {
        let admitted = self.config.return_addresses.admit(text);
        let url = admitted.map_err(|error| InvalidField::new("returnTo", error))?;
        Ok(ReturnAddress { origin: url.origin().ascii_serialization(), url: url.into() })
    }
}

/// The address of a page to which the browser returns.
struct ReturnAddress {
    url: String,
    origin: String,
}
