//! The errors of this context.

use kernel::{ApiError, Code, InvalidField, InvalidFields, Kind, Time};
use serde_json::{Value, json};

use crate::ports::ZoneRefusal;

/// An error of the domain service. No message contains text from a provider.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    #[error("the organization has no such domain")]
    NotFound,
    #[error("another organization has {0}, or a zone that overlaps with it")]
    Taken(String),
    /// Another organization has an overlapping zone, as this error of the `dns` context states.
    #[error("{0}")]
    ZoneTaken(Box<dyn ApiError>),
    #[error("the registrar does not offer {0}; any charge for it is refunded")]
    NameUnavailable(String),
    #[error(
        "the price is {}, not the expected {}; check the name again",
        dollars(*.price_cents), dollars(*.expected_cents)
    )]
    PriceChanged { price_cents: i64, expected_cents: i64 },
    #[error("the payment was declined, or no payment method is saved; update it in the billing portal")]
    PaymentFailed,
    /// An earlier renewal of a domain of the organization is not paid.
    #[error(
        "the renewal of {name} until {until} is not paid: the charge of {} was declined; update the payment method in \
         the billing portal and send a new request, which charges this renewal first",
        dollars(*.cents)
    )]
    RenewalUnpaid { name: String, until: Time, cents: i64 },
    /// The registrar refused a purchase.
    #[error(
        "the registrar refused the purchase, and any charge for it is refunded; correct the contact or the name and send a \
         new request"
    )]
    RegistrarRejected,
    /// The registrar refused a renewal.
    #[error(
        "the registrar refused the renewal; if the domain would then expire more than ten years from now, request fewer \
         years, otherwise send a new request"
    )]
    RenewalRejected,
    #[error("the registrar did not answer as expected; send the same request again, which continues where it stopped")]
    RegistrarFailed,
    #[error("the payment is not complete; send the same request again, which continues where it stopped")]
    Incomplete,
    /// An unfinished renewal of another domain of the organization must be completed first.
    #[error("the renewal of {name} is not complete, and must be completed first; send the same request again later")]
    RenewalInProgress { name: String },
    #[error("this domain is not registered here; manage it at its registrar")]
    NotManaged,
    /// The organization has used up its share of the registrar's rate limit.
    #[error("the organization sent too many requests to the registrar; retry in {retry_after} s")]
    TooManyRequests { retry_after: i64 },
    #[error("this installation has no registrar")]
    RegistrarNotConfigured,
    #[error("this installation does not host zones; its operator must configure nameservers first")]
    DnsNotConfigured,
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    /// An error from the hosted zones, such as the plan's limit of zones.
    #[error("{0}")]
    Zone(Box<dyn ApiError>),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl DomainError {
    /// 409: the name belongs to another organization.
    pub const TAKEN: Code = Code::new(
        "domain_taken",
        Kind::Conflict,
        "Another organization has the domain, is buying it, or has a zone that overlaps with it. For an import, `details` \
         is that of `zone_taken`.",
    );
    /// 409: the registrar does not offer the name.
    pub const NAME_UNAVAILABLE: Code =
        Code::new("domain_unavailable", Kind::Conflict, "The registrar does not offer the name.");
    /// 409: the price differs from the expected one.
    pub const PRICE_CHANGED: Code = Code::new(
        "price_changed",
        Kind::Conflict,
        "The price differs from `expectedPriceCents`. `details` contains `priceCents` and `expectedPriceCents`.",
    );
    /// 402: the payment was declined.
    pub const PAYMENT_FAILED: Code = Code::new(
        "payment_failed",
        Kind::PaymentRequired,
        "The payment was declined, or the organization has no saved payment method. For a renewal, the declined payment is \
         that of an earlier renewal.",
    );
    /// 422: the registrar rejected a value.
    pub const REGISTRAR_REJECTED: Code = Code::new(
        "registrar_rejected",
        Kind::Unprocessable,
        "The registrar refused a value of the request. A corrected request is a new request.",
    );
    /// 502: the registrar failed.
    pub const REGISTRAR_ERROR: Code = Code::new(
        "registrar_error",
        Kind::Upstream,
        "The registrar did not answer as expected. The same request continues where it stopped.",
    );
    /// 502: a purchase, or an earlier renewal of the organization, is not complete.
    pub const INCOMPLETE: Code = Code::new(
        "saga_incomplete",
        Kind::Upstream,
        "The purchase, or an earlier renewal of the organization or its payment, is not complete: a provider did not \
         answer as expected, or another request is still at it. The same request continues where it stopped.",
    );
    /// 409: the domain is not in the platform's account at the registrar.
    pub const NOT_MANAGED: Code = Code::new(
        "domain_not_managed",
        Kind::Conflict,
        "The domain is not registered here: it was imported, is not registered yet, or was transferred away.",
    );
    /// 503: no registrar is configured.
    pub const REGISTRAR_NOT_CONFIGURED: Code = Code::new(
        "registrar_not_configured",
        Kind::Unavailable,
        "This installation has no registrar (`SVC_REGISTRAR_URL`).",
    );
    /// 503: no nameservers are configured.
    pub const DNS_NOT_CONFIGURED: Code = Code::new(
        "dns_not_configured",
        Kind::Unavailable,
        "This installation does not host zones (`SVC_NAMESERVERS`).",
    );
}

impl From<ZoneRefusal> for DomainError {
    fn from(refusal: ZoneRefusal) -> Self {
        match refusal {
            ZoneRefusal::Taken(error) => Self::ZoneTaken(error),
            ZoneRefusal::Platform(_) => InvalidField::new("name", refusal).into(),
            ZoneRefusal::Other(error) => Self::Zone(error),
            ZoneRefusal::Store(error) => Self::Store(error),
        }
    }
}

impl From<InvalidField> for DomainError {
    fn from(field: InvalidField) -> Self {
        Self::Fields(field.into())
    }
}

impl ApiError for DomainError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NotFound => &Code::NOT_FOUND,
            Self::Taken(_) | Self::ZoneTaken(_) => &Self::TAKEN,
            Self::NameUnavailable(_) => &Self::NAME_UNAVAILABLE,
            Self::PriceChanged { .. } => &Self::PRICE_CHANGED,
            Self::PaymentFailed | Self::RenewalUnpaid { .. } => &Self::PAYMENT_FAILED,
            Self::RegistrarRejected | Self::RenewalRejected => &Self::REGISTRAR_REJECTED,
            Self::RegistrarFailed => &Self::REGISTRAR_ERROR,
            Self::Incomplete | Self::RenewalInProgress { .. } => &Self::INCOMPLETE,
            Self::NotManaged => &Self::NOT_MANAGED,
            Self::TooManyRequests { .. } => &Code::RATE_LIMITED,
            Self::RegistrarNotConfigured => &Self::REGISTRAR_NOT_CONFIGURED,
            Self::DnsNotConfigured => &Self::DNS_NOT_CONFIGURED,
            Self::Fields(_) => &Code::BAD_REQUEST,
            Self::Zone(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::PriceChanged { price_cents, expected_cents } => {
                Some(json!({ "priceCents": price_cents, "expectedPriceCents": expected_cents }))
            }
            Self::Fields(invalid) => Some(invalid.details()),
            Self::ZoneTaken(error) | Self::Zone(error) => error.details(),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<i64> {
        match self {
            Self::TooManyRequests { retry_after } => Some(*retry_after),
            Self::Zone(error) => error.retry_after(),
            Self::Store(error) => error.retry_after(),
            _ => None,
        }
    }
}

/// Formats an amount of cents, which is not negative, in dollars.
pub(crate) fn dollars(cents: i64) -> String {
    format!("${}.{:02}", cents / 100, cents % 100)
}
