//! The port of domains to the registrar.

use std::sync::LazyLock;

use async_trait::async_trait;
use domains::{
    Contact, DsRecord, Offer, Prices, RegisteredDomain, Registrar, RegistrarError, Registration, RenewalOrder,
};
use kernel::{Secret, Time};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use providers::registrar::{
    NewRegistration, RegistrarClient, RegistrarContact, RegistrarDomain, RegistrarError as Failure, Renewal,
};

use super::registrar_limiter::RegistrarLimiter;

static REQUESTS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.registrar.requests")
        .with_description("Requests to the registrar by operation and outcome: ok, refused, failed or rate_limited")
        .build()
});

/// The operations, as labels of the counter.
const OPERATIONS: [&str; 10] =
    ["check", "register", "read", "set_nameservers", "renew", "set_lock", "auth_code", "ds", "add_ds", "remove_ds"];

/// The outcomes, as labels of the counter.
const OUTCOMES: [&str; 4] = ["ok", "refused", "failed", "rate_limited"];

/// Creates the counters, because an alert needs the series before the first event.
pub(super) fn create_counters() {
    for operation in OPERATIONS {
        for outcome in OUTCOMES {
            add(0, operation, outcome);
        }
    }
}

fn add(count: u64, operation: &'static str, outcome: &'static str) {
    REQUESTS.add(count, &[KeyValue::new("operation", operation), KeyValue::new("outcome", outcome)]);
}

pub(super) struct RegistrarPort {
    pub(super) client: RegistrarClient,
    pub(super) limiter: RegistrarLimiter,
}

#[async_trait]
impl Registrar for RegistrarPort {
    async fn check(&self, names: &[String]) -> Result<Vec<Offer>, RegistrarError> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let checked = self.call("check", self.client.check(&names)).await?;
        let offers = checked.into_iter().map(|checked| Offer {
            name: checked.name,
            prices: checked
                .offer
                .map(|offer| Prices { first_year_cents: offer.price_cents, renewal_cents: offer.renewal_cents }),
            premium: checked.offer.is_some_and(|offer| offer.premium),
        });
        Ok(offers.collect())
    }

    async fn register(&self, registration: &Registration) -> Result<RegisteredDomain, RegistrarError> {
        let Registration { name, years, prices, premium: _, contact, key } = registration;
        let price_cents = prices.first_year_cents + i64::from(years.saturating_sub(1)) * prices.renewal_cents;
        let contact = registrar_contact(contact);
        let registration =
            NewRegistration { name, contact: &contact, price_cents, years: *years, idempotency_key: key };
        self.call("register", self.client.register(&registration)).await.map(registered)
    }

    async fn read(&self, name: &str) -> Result<Option<RegisteredDomain>, RegistrarError> {
        Ok(self.call("read", self.client.read(name)).await?.map(registered))
    }

    async fn set_nameservers(&self, name: &str, nameservers: &[String]) -> Result<(), RegistrarError> {
        self.call("set_nameservers", self.client.set_nameservers(name, nameservers)).await
    }

    async fn renew(&self, renewal: &RenewalOrder) -> Result<RegisteredDomain, RegistrarError> {
        let RenewalOrder { name, years, total_cents, key } = renewal;
        let renewal = Renewal { name, price_cents: *total_cents, years: *years, idempotency_key: key };
        self.call("renew", self.client.renew(&renewal)).await.map(registered)
    }

    async fn set_lock(&self, name: &str, locked: bool) -> Result<RegisteredDomain, RegistrarError> {
        self.call("set_lock", self.client.set_locked(name, locked)).await.map(registered)
    }

    async fn auth_code(&self, name: &str) -> Result<Secret, RegistrarError> {
        self.call("auth_code", self.client.auth_code(name)).await
    }

    async fn ds(&self, name: &str) -> Result<Vec<DsRecord>, RegistrarError> {
        let records = self.call("ds", self.client.ds_records(name)).await?;
        let records = records.into_iter().map(|record| DsRecord {
            key_tag: record.key_tag,
            algorithm: record.algorithm,
            digest_type: record.digest_type,
            digest: record.digest.to_ascii_uppercase(),
        });
        Ok(records.collect())
    }

    async fn add_ds(&self, name: &str, ds: &DsRecord) -> Result<(), RegistrarError> {
        let DsRecord { key_tag, algorithm, digest_type, ref digest } = *ds;
        let record = providers::registrar::DsRecord { key_tag, algorithm, digest_type, digest: digest.clone() };
        self.call("add_ds", self.client.add_ds_record(name, &record)).await
    }

    async fn remove_ds(&self, name: &str, digest: &str) -> Result<(), RegistrarError> {
        let removal = async {
            match self.client.remove_ds_record(name, digest).await {
                Err(Failure::NotFound) => Ok(()),
                result => result,
            }
        };
        self.call("remove_ds", removal).await
    }
}

impl RegistrarPort {
    /// Sends a request within the rate limits and counts it. Logs and converts its error.
    async fn call<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, RegistrarError> {
        let count = |outcome| add(1, operation, outcome);
        let Some(_permit) = self.limiter.acquire().await else {
            count("rate_limited");
            tracing::warn!(operation, "the rate limit of the registrar is reached");
            return Err(RegistrarError::NotSent("too many requests".to_owned()));
        };
        let result = request.await;
        count(match &result {
            Ok(_) => "ok",
            Err(Failure::Refused(_) | Failure::NotFound) => "refused",
            Err(Failure::Failed(_)) => "failed",
        });
        result.map_err(|failure| log(operation, &failure))
    }
}

fn registered(domain: RegistrarDomain) -> RegisteredDomain {
    RegisteredDomain {
        registered_at: Time::new(domain.registered_at),
        expires_at: Time::new(domain.expires_at),
        locked: domain.locked,
        nameservers: domain.nameservers,
        renewal_cents: domain.renewal_cents,
        transfer_lock_expires_at: domain.transfer_lock_expires_at.map(Time::new),
    }
}

fn registrar_contact(contact: &Contact) -> RegistrarContact {
    let optional = |text: Option<&domains::ContactText>| text.map_or_else(String::new, ToString::to_string);
    RegistrarContact {
        first_name: contact.first_name.to_string(),
        last_name: contact.last_name.to_string(),
        company_name: optional(contact.organization.as_ref()),
        address1: contact.street.to_string(),
        city: contact.city.to_string(),
        state: optional(contact.state.as_ref()),
        zip: contact.postal_code.to_string(),
        country: contact.country.as_str().to_owned(),
        phone: contact.phone.to_string(),
        email: contact.email.to_string(),
    }
}

/// Logs and converts an error. The log contains at most the status, because the registrar's text quotes contacts.
fn log(operation: &'static str, failure: &Failure) -> RegistrarError {
    let error = failure.to_string();
    match failure {
        Failure::Refused(402) => {
            tracing::error!(operation, status = 402, "the account at the registrar has no funds");
            RegistrarError::Deferred(error)
        }
        Failure::Refused(409) => {
            tracing::info!(operation, status = 409, "the registrar refused a request");
            RegistrarError::NameUnavailable(error)
        }
        Failure::Refused(status) => {
            tracing::info!(operation, status, "the registrar refused a request");
            RegistrarError::Rejected(error)
        }
        Failure::NotFound => RegistrarError::Rejected(error),
        Failure::Failed(_) => {
            tracing::warn!(operation, error, "a request to the registrar failed");
            RegistrarError::Unavailable(error)
        }
    }
}
