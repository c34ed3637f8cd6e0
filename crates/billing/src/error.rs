//! The errors of this context.

use kernel::{ApiError, Code, InvalidField, InvalidFields, Kind};
use serde_json::Value;

use crate::ports::PaymentsError;

/// An error of the billing service.
#[derive(Debug, thiserror::Error)]
pub enum BillingError {
    #[error("billing is not configured on this installation")]
    Off,
    #[error("AI credit is not sold on this installation")]
    CreditOff,
    /// Auto top-up needs the sale of AI credit.
    #[error("AI credit is not sold on this installation")]
    TopUpOff,
    #[error("the organization has the pro plan; change or cancel it in the portal")]
    AlreadyPro,
    #[error("the organization does not have the pro plan")]
    NotPro,
    #[error("the organization has never paid")]
    NeverPaid,
    #[error("the organization has no saved payment method; after a first purchase, the billing portal saves one")]
    NoPaymentMethod,
    #[error("the payments provider is not available; try again later")]
    Unavailable(#[source] PaymentsError),
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl BillingError {
    /// 501: billing, or the sale of AI credit, is not configured.
    pub const OFF: Code =
        Code::new("billing_off", Kind::NotConfigured, "Billing, or the sale of AI credit, is not configured here.");
    /// 502: the payments provider did not respond as expected.
    pub const UNAVAILABLE: Code =
        Code::new("billing_unavailable", Kind::Upstream, "The payments provider did not answer. Try again later.");
    /// 409: the organization already has the pro plan.
    pub const ALREADY_PRO: Code = Code::new(
        "already_pro",
        Kind::Conflict,
        "The organization already has the pro plan. Use the portal to change it.",
    );
    /// 409: the organization does not have the pro plan.
    pub const NOT_PRO: Code = Code::new("not_pro", Kind::Conflict, "The organization does not have the pro plan.");
    /// 409: the organization has no saved payment method that can be charged for AI credit, or AI credit is not sold.
    pub const NO_PAYMENT_METHOD: Code = Code::new(
        "no_payment_method",
        Kind::Conflict,
        "The organization has no saved payment method, or AI credit is not sold here. After a first purchase, the \
         billing portal saves a payment method.",
    );
}

impl From<InvalidField> for BillingError {
    fn from(field: InvalidField) -> Self {
        Self::Fields(field.into())
    }
}

impl ApiError for BillingError {
    fn code(&self) -> &'static Code {
        match self {
            Self::Off | Self::CreditOff => &Self::OFF,
            Self::AlreadyPro => &Self::ALREADY_PRO,
            Self::NotPro => &Self::NOT_PRO,
            Self::NoPaymentMethod | Self::TopUpOff => &Self::NO_PAYMENT_METHOD,
            Self::NeverPaid => &Code::NOT_FOUND,
            Self::Unavailable(_) => &Self::UNAVAILABLE,
            Self::Fields(_) => &Code::BAD_REQUEST,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Fields(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }
}

/// The reason why a webhook is not applied. The sender receives only the status.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// 501: no secret is configured.
    #[error("no secret of the payments webhook is configured")]
    Off,
    /// 403: the webhook is not authentic, or too old.
    #[error(transparent)]
    NotAuthentic(#[from] webhooks::InvalidMessage),
    /// 400: the webhook is authentic, but is not JSON, or has a missing or malformed field. Its id is not recorded, so
    /// that the webhook can be delivered again.
    #[error("the webhook is malformed: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl WebhookError {
    /// 403: the signature or the timestamp of a webhook is not valid.
    pub const NOT_AUTHENTIC: Code = Code::new(
        "webhook_not_authentic",
        Kind::Forbidden,
        "The signature or the timestamp of the webhook is invalid.",
    );
}

impl ApiError for WebhookError {
    fn code(&self) -> &'static Code {
        match self {
            Self::Off => &BillingError::OFF,
            Self::NotAuthentic(_) => &Self::NOT_AUTHENTIC,
            Self::Malformed(_) => &Code::BAD_REQUEST,
            Self::Store(error) => error.code(),
        }
    }
}
