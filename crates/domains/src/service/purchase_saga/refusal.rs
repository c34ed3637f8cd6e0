//! The refusals of purchases.

use kernel::InvalidField;
use serde::{Deserialize, Serialize};
use store::saga::StepOutcome;
use store::{Error, Result};

use crate::error::{DomainError, dollars};

/// The reason why a purchase ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub(crate) enum Refusal {
    NameUnavailable,
    PriceChanged {
        price_cents: i64,
        expected_cents: i64,
    },
    /// The name is premium, and the request does not state an accepted price.
    PremiumPrice {
        price_cents: i64,
    },
    PaymentFailed,
    RegistrarRejected,
}

impl Refusal {
    pub(crate) fn into_error(self, name: &str) -> DomainError {
        match self {
            Self::NameUnavailable => DomainError::NameUnavailable(name.to_owned()),
            Self::PriceChanged { price_cents, expected_cents } => {
                DomainError::PriceChanged { price_cents, expected_cents }
            }
            Self::PremiumPrice { price_cents } => {
                let price = dollars(price_cents);
                let message = format!("is required, because {name} is a premium name: it costs {price}");
                InvalidField::new("expectedPriceCents", message).into()
            }
            Self::PaymentFailed => DomainError::PaymentFailed,
            Self::RegistrarRejected => DomainError::RegistrarRejected,
        }
    }

    pub(super) fn outcome(&self, reason: impl ToString) -> Result<StepOutcome> {
        let refusal = serde_json::to_value(self).map_err(Error::inconsistent)?;
        Ok(StepOutcome::Refused { refusal, reason: reason.to_string() })
    }
}
