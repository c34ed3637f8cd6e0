//! Construction of domains, their background jobs, and the adapters of their ports.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use billing::TopUpRepository as _;
use domains::{
    Charge, Domains, DomainsConfig, NewOrder, Notice, PaymentsError, Ports, Refund, Registrar, RenewalCharges,
};
use kernel::OrgId;
use orgs::Orgs;
use providers::payments::{Finalized, PaymentsClient, Refunded};
use providers::registrar::RegistrarClient;
use providers::{Limits, OutboundError};
use store::{Connection, Store};

use super::error::IntoStoreError as _;
use super::registrar::RegistrarPort;
use super::registrar_limiter::{Caller, RegistrarLimiter};
use crate::config::{Config, PAYMENTS_URL, PaymentsConfig, REGISTRAR_URL, RegistrarConfig};
use crate::jobs::{Background, HOUR, Job, MINUTE, SECOND};

/// The limits of one call to the payments provider or the registrar. A request may need several calls within ten
/// seconds.
const LIMITS: Limits =
    Limits { connect_timeout: Duration::from_secs(3), timeout: Duration::from_secs(7), max_body_bytes: 1024 * 1024 };

pub(super) fn wire(
    config: &Config,
    store: &Store,
    (orgs, dns): (&Orgs, &dns::Dns),
    background: &mut Background,
) -> anyhow::Result<Domains> {
    let payments = match (config.payments.clone(), config.domain_product.clone()) {
        (Some(PaymentsConfig { url, token }), Some(product)) => {
            let client = PaymentsClient::with_limits(&url, token, LIMITS);
            let client = client.map_err(|error| PAYMENTS_URL.malformed(error))?;
            Some(Arc::new(PaymentsPort { client, product, store: store.clone() }) as Arc<dyn domains::Payments>)
        }
        _ => None,
    };
    let registrar = match config.registrar.clone() {
        None => None,
        Some(RegistrarConfig { url, user, token }) => {
            let client = RegistrarClient::with_limits(&url, user, token, LIMITS);
            super::registrar::create_counters();
            Some(client.map_err(|error| REGISTRAR_URL.malformed(error))?)
        }
    };
    let domains_config = DomainsConfig {
        registrar_requests_per_org: config.abuse_limits.registrar_requests_per_org,
        ..DomainsConfig::default()
    };
    let service = |caller: Caller| {
        let limiter = || RegistrarLimiter::new(store.clone(), config.registrar_limits, caller);
        let registrar = registrar.clone().map(|client| RegistrarPort { client, limiter: limiter() });
        let registrar = registrar.map(|port| Arc::new(port) as Arc<dyn Registrar>);
        let zones = Arc::new(super::domain_zones::ZonesPort(dns.clone()));
        let organizations = Arc::new(OrgsPort(orgs.clone()));
        let ports = Ports { registrar, payments: payments.clone(), zones, organizations };
        Domains::new(store.clone(), domains_config.clone(), ports)
    };
    let jobs = service(Caller::Job);
    background.outbox(store.spawn_outbox_worker(Arc::new(RenewalCharges(jobs.clone()))));
    let ds_updates = super::domain_zones::DsUpdates { domains: jobs.clone(), dns: dns.clone() };
    background.outbox(store.spawn_outbox_worker(Arc::new(ds_updates)));
    background.job(Job::every(SECOND, "domains.resume"), jobs.clone(), async |domains| domains.resume().await);
    background.job(Job::every(MINUTE, "domains.sync"), jobs.clone(), async |domains| domains.sync_due().await);
    background.job(Job::every(HOUR, "domains.notify_expiring"), jobs, async |domains| domains.notify_expiring().await);
    Ok(service(Caller::Request))
}

struct PaymentsPort {
    client: PaymentsClient,
    /// The product of domains at the payments provider.
    product: String,
    store: Store,
}

impl PaymentsPort {
    /// Returns the provider's id of an organization as a customer: from earlier webhooks, or from the provider.
    async fn customer(&self, org: OrgId) -> Result<Option<String>, PaymentsError> {
        let stored = async { self.store.connection().await?.customer_find(org).await };
        match stored.await.map_err(|error| PaymentsError::Unavailable(error.to_string()))? {
            Some(customer) => Ok(Some(customer)),
            None => self.client.customer_id(&org.to_string()).await.map_err(log),
        }
    }
}

#[async_trait]
impl domains::Payments for PaymentsPort {
    async fn has_payment_method(&self, org: OrgId) -> Result<bool, PaymentsError> {
        self.client.has_payment_method(&org.to_string()).await.map_err(log)
    }

    async fn create_order(&self, order: &NewOrder) -> Result<Option<String>, PaymentsError> {
        let NewOrder { org, cents, purpose, reference } = order;
        let Some(customer) = self.customer(*org).await? else { return Ok(None) };
        let org = org.to_string();
        let new = providers::payments::NewOrder {
            customer_id: &customer,
            product_id: &self.product,
            amount_cents: *cents,
            org: &org,
            purpose,
            reference,
        };
        let created = self.client.create_order(&new).await.map_err(log)?;
        let rejection = || PaymentsError::Rejected("a charge without the customer was refused".to_owned());
        created.ok_or_else(rejection).map(Some)
    }

    async fn finalize_order(&self, order: &str) -> Result<Charge, PaymentsError> {
        Ok(match self.client.finalize_order(order).await.map_err(log_finalize)? {
            Finalized::Paid => Charge::Paid,
            Finalized::Declined | Finalized::Forbidden => Charge::Declined,
        })
    }

    async fn refund_order(&self, order: &str, cents: i64) -> Result<Refund, PaymentsError> {
        Ok(match self.client.refund_order(order, cents).await.map_err(log)? {
            Refunded::Refunded => Refund::Refunded,
            Refunded::NotPaid => Refund::NotPaid,
        })
    }
}

fn log(error: OutboundError) -> PaymentsError {
    tracing::warn!(%error, "the payments provider failed");
    match error {
        OutboundError::Status(400 | 404 | 410 | 412 | 422) => PaymentsError::Rejected(error.to_string()),
        error => PaymentsError::Unavailable(error.to_string()),
    }
}

/// Like [`log`], for the finalization of an order. After a 412, the client has read the order: it is void, and no attempt
/// can pay it.
fn log_finalize(error: OutboundError) -> PaymentsError {
    let is_ended = matches!(error, OutboundError::Status(412));
    match log(error) {
        PaymentsError::Rejected(reason) if is_ended => PaymentsError::NotPayable(reason),
        error => error,
    }
}

struct OrgsPort(Orgs);

#[async_trait]
impl domains::Organizations for OrgsPort {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<()> {
        self.0.lock(tx, org).await.map(drop)
    }

    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        let notice = match notice {
            Notice::Expiring { domain, expires_at } => orgs::Notice::DomainExpiring { domain, expires_at },
            Notice::RenewalDeclined { domain } => {
                orgs::Notice::PaymentFailed { charge: orgs::Charge::Renewal { domain } }
            }
        };
        self.0.raise_audited(tx, org, notice).await.map_err(|error| error.into_store_error())
    }
}
