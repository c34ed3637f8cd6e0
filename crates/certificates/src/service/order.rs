//! The steps of an order. The authority's status of the order decides about the next step.

use std::time::Duration;

use kernel::audit::Actor;
use kernel::{CertificateId, Secret};
use serde_json::json;
use store::{Connection, Error, Outcome, SealedColumn};
use tokio::time::sleep;

use super::account::Session;
use super::limits::retry_seconds;
use super::run::{JOB, RunError, event};
use super::{Certificates, metrics, node};
use crate::caa::{self, Issuance};
use crate::key;
use crate::model::{Challenge, NameState};
use crate::ports::{Authority, AuthorityError, AuthorityOrder, AuthoritySession, OrderStatus};
use crate::repository::{
    CertificateRecord, CertificateRepository as _, NameRecord, NameRepository as _, NameUpdate, OrderRecord,
    OrderRepository as _,
};

/// The sealed private keys of orders.
pub(super) const KEY: SealedColumn =
    SealedColumn { table: "certificates.orders", column: "sealed", row_key: &[("id", "uuid")] };

/// The number of steps of an order in one run. After that, a later run continues the order, so that an order that waits
/// for its authority does not occupy a slot.
const MAX_STEPS: usize = 5;

/// The time between two steps in a run, and the maximum `Retry-After` for which a run waits.
const STEP_SECONDS: i64 = 1;
const MAX_STEP_SECONDS: i64 = 2;

/// The maximum `Retry-After` of an order in progress.
const MAX_POLL_SECONDS: i64 = 60;

/// The delay of the next run of an order whose authority does not respond.
const UNAVAILABLE_SECONDS: i64 = 60;

/// The maximum age of an order: 1 hour. A later order can use another authority.
const MAX_ORDER_SECONDS: i64 = 3600;

/// The time within which the nameservers must serve the TXT record: 10 minutes.
const MAX_PROPAGATION_SECONDS: i64 = 600;

/// The result of a step of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The certificate is stored.
    Ended,
    /// The authority was asked to continue.
    Advanced,
    /// The order waits, for this number of seconds if the authority states it.
    Waiting(Option<i64>),
}

impl Certificates {
    /// Creates an order at the first authority that accepts it, and continues it.
    pub(super) async fn start_order(&self, name: &NameRecord) -> Result<(), RunError> {
        // A name that waits for the quota causes no lookups and no requests.
        self.take_order_permits(name, 0).await?;
        let challenge = self.choose_challenge(name).await?;
        let mut failure = None;
        for authority in &self.ports.authorities {
            match self.create_order(name, authority.as_ref(), challenge).await {
                Ok((session, order)) => return self.advance(name, &session, order).await,
                // Another authority may accept the order.
                Err(error @ (RunError::Authority(_) | RunError::Failed(_) | RunError::Postponed { .. })) => {
                    failure = Some(match failure {
                        Some(former) => decisive(former, error),
                        None => error,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| RunError::Failed("the platform has no certificate authority".to_owned())))
    }

    /// Continues the order of an earlier run.
    pub(super) async fn continue_order(&self, name: &NameRecord, order: OrderRecord) -> Result<(), RunError> {
        let Some(authority) = self.authority(&order.directory) else {
            return Err(RunError::Failed("the certificate authority of the order is no longer configured".to_owned()));
        };
        self.check_pause(&order.directory).await?;
        // Until the record is served, the authority need not be asked.
        if order.key.is_none() && !self.is_validation_possible(&order).await? {
            return self.reschedule(name, &order, None).await;
        }
        match self.session(authority.as_ref()).await {
            Ok(session) => self.advance(name, &session, order).await,
            Err(RunError::Authority(error)) => self.defer(&order, error),
            Err(error) => Err(error),
        }
    }

    /// Creates an order at an authority, and publishes its challenge. If the authority rejects the account, repeats
    /// this once with a new account.
    async fn create_order(
        &self,
        name: &NameRecord,
        authority: &dyn Authority,
        challenge: Challenge,
    ) -> Result<(Session, OrderRecord), RunError> {
        self.check_pause(authority.directory()).await?;
        match self.try_create_order(name, authority, challenge).await {
            Err(RunError::Authority(AuthorityError::Account(_))) => {
                self.try_create_order(name, authority, challenge).await
            }
            result => result,
        }
    }

    async fn try_create_order(
        &self,
        name: &NameRecord,
        authority: &dyn Authority,
        challenge: Challenge,
    ) -> Result<(Session, OrderRecord), RunError> {
        let directory = authority.directory();
        let session = self.session(authority).await?;
        let (identities, account_url) = (session.calls.caa_identities(), session.calls.account_url());
        let issuance = Issuance { identities, account_url, challenge };
        if let Some(refusal) = caa::find_refusal(self.ports.resolver.as_ref(), &name.name, issuance).await {
            return Err(RunError::Failed(format!("CAA forbids to issue a certificate: {refusal}")));
        }
        let replaced = self.store.connection().await?.certificate_find_by_name(&name.name).await?;
        let replaced = replaced.filter(|certificate| certificate.directory == directory);
        let replaced = replaced.and_then(|certificate| certificate.renewal_id);
        self.take_order_permits(name, 1).await?;
        let order = match session.calls.create_order(&name.name, replaced.as_deref()).await {
            Ok(order) => order,
            Err(error) => return Err(self.handle_session_error(directory, name, &session, error).await?),
        };
        let order = self.insert_order(name, directory, challenge, &order).await?;
        Ok((session, order))
    }

    /// Stores an order and publishes its challenge, in one commit.
    async fn insert_order(
        &self,
        name: &NameRecord,
        directory: &str,
        challenge: Challenge,
        order: &AuthorityOrder,
    ) -> Result<OrderRecord, RunError> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(&Actor::service(JOB), async |tx: &mut Connection| {
                let current = self.lock(tx, name, challenge == Challenge::Dns01).await?;
                if !current.wanted {
                    return Err(RunError::Stale);
                }
                let published = self.publish_challenge(tx, &current, challenge, order).await?;
                let order = OrderRecord {
                    id: self.store.clock_rng().id_at(now),
                    name: current.name.clone(),
                    org: current.org,
                    directory: directory.to_owned(),
                    url: order.url.clone(),
                    published,
                    key: None,
                    created_at: now,
                };
                tx.order_insert(&order).await?;
                let challenge = order.published.as_ref().map(|published| published.challenge);
                let data = json!({ "name": current.name, "directory": directory, "challenge": challenge });
                let event = event("certificate.order", &current, data);
                Ok(Outcome::Changed(order, event))
            })
            .await
    }

    /// Stores the consequences of a failed call for the account and for the whole authority.
    async fn handle_session_error(
        &self,
        directory: &str,
        name: &NameRecord,
        session: &Session,
        error: AuthorityError,
    ) -> store::Result<RunError> {
        self.end_rejected_session(directory, session, &error).await?;
        self.handle_order_error(directory, name, error).await
    }

    /// Executes some steps of an order. If it has not ended then, schedules the next run.
    async fn advance(&self, name: &NameRecord, session: &Session, mut order: OrderRecord) -> Result<(), RunError> {
        let mut retry_after = None;
        for _ in 0..MAX_STEPS {
            match self.step(name, session.calls.as_ref(), &mut order).await {
                Ok(Progress::Ended) => return Ok(()),
                Ok(Progress::Advanced) => retry_after = None,
                Ok(Progress::Waiting(seconds)) => retry_after = seconds,
                Err(RunError::Authority(error)) => {
                    match self.handle_session_error(&order.directory, name, session, error).await? {
                        RunError::Authority(error) => return self.defer(&order, error),
                        error => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            let seconds = retry_after.unwrap_or(STEP_SECONDS).max(STEP_SECONDS);
            if seconds > MAX_STEP_SECONDS {
                break;
            }
            sleep(Duration::from_secs(seconds.unsigned_abs())).await;
        }
        self.reschedule(name, &order, retry_after).await
    }

    /// Schedules the next run of an order that waits for its authority: after 2, 4 and then 8 seconds, or later if the
    /// authority states it.
    async fn reschedule(
        &self,
        name: &NameRecord,
        order: &OrderRecord,
        retry_after: Option<i64>,
    ) -> Result<(), RunError> {
        let now = self.store.clock_rng().now();
        if order.created_at.plus_seconds(MAX_ORDER_SECONDS) <= now {
            return Err(RunError::Failed("the certificate authority did not complete the order in time".to_owned()));
        }
        let delay = match now.unix_seconds() - order.created_at.unix_seconds() {
            ..8 => 2,
            8..16 => 4,
            _ => 8,
        };
        let due_at = now.plus_seconds(retry_after.unwrap_or_default().clamp(delay, MAX_POLL_SECONDS));
        Ok(self.store.connection().await?.name_reschedule(&name.name, name.run, due_at, None).await?)
    }

    /// Keeps an order after a failed call that may succeed later. Returns other errors.
    fn defer(&self, order: &OrderRecord, error: AuthorityError) -> Result<(), RunError> {
        let now = self.store.clock_rng().now();
        let seconds = match &error {
            AuthorityError::Unavailable(_) => UNAVAILABLE_SECONDS,
            AuthorityError::RateLimited { retry_after, .. } | AuthorityError::Overloaded { retry_after, .. } => {
                retry_seconds(*retry_after)
            }
            _ => return Err(RunError::Authority(error)),
        };
        if order.created_at.plus_seconds(MAX_ORDER_SECONDS) <= now {
            return Err(RunError::Authority(error));
        }
        let until = now.plus_seconds(seconds + self.random(seconds / 5));
        Err(RunError::Postponed { until, message: error.to_string() })
    }

    /// Executes the next step of an order.
    async fn step(
        &self,
        name: &NameRecord,
        session: &dyn AuthoritySession,
        order: &mut OrderRecord,
    ) -> Result<Progress, RunError> {
        let state = session.order(&order.url).await.map_err(RunError::Authority)?;
        match state.status {
            OrderStatus::Pending => self.complete_challenge(session, order, &state).await,
            OrderStatus::Ready => {
                let key = self.order_key(name, order).await?;
                let request = key::signing_request(&name.name, &key).map_err(Error::inconsistent)?;
                resolve_refusal(session, &state, session.finalize(&order.url, &request).await).await
            }
            OrderStatus::Processing => Ok(Progress::Waiting(state.retry_after)),
            OrderStatus::Valid => {
                let chain = session.certificate(&order.url).await.map_err(RunError::Authority)?;
                self.store_certificate(name, order, chain).await?;
                Ok(Progress::Ended)
            }
            OrderStatus::Invalid => {
                let reason = state.error.unwrap_or_else(|| "the authority states no reason".to_owned());
                Err(RunError::Failed(format!("the validation failed: {reason}")))
            }
        }
    }

    /// Asks the authority to validate the challenge once it is served.
    async fn complete_challenge(
        &self,
        session: &dyn AuthoritySession,
        order: &OrderRecord,
        state: &AuthorityOrder,
    ) -> Result<Progress, RunError> {
        let Some(published) = &order.published else {
            return Err(RunError::Failed("the authorization of the order expired".to_owned()));
        };
        let is_pending =
            |challenge| state.challenges.iter().any(|offered| offered.challenge == challenge && offered.is_pending);
        if !is_pending(published.challenge) || !self.is_validation_possible(order).await? {
            return Ok(Progress::Waiting(state.retry_after));
        }
        resolve_refusal(session, state, session.validate(&order.url, published.challenge).await).await
    }

    /// Returns whether the challenge of an order is served, if it has one.
    ///
    /// # Errors
    /// Returns [`RunError::Failed`] if it should have been served some time ago.
    async fn is_validation_possible(&self, order: &OrderRecord) -> Result<bool, RunError> {
        let Some(published) = &order.published else { return Ok(true) };
        if self.is_challenge_served(order, published).await {
            return Ok(true);
        }
        let now = self.store.clock_rng().now();
        if order.created_at.plus_seconds(MAX_PROPAGATION_SECONDS) <= now {
            let zone = published.zone.as_deref().unwrap_or_default();
            let message = format!("the nameservers of {zone} do not serve the TXT record of the challenge");
            return Err(RunError::Failed(message));
        }
        Ok(false)
    }

    /// Returns the private key of an order. Creates and stores it before the first request to issue, so that a
    /// certificate never exists without its key.
    async fn order_key(&self, name: &NameRecord, order: &mut OrderRecord) -> Result<Secret, RunError> {
        let row = SealedColumn::row(&[order.id.to_string()]);
        if let Some(sealed) = &order.key {
            return Ok(self.store.open_text(KEY.associated_data(&row), sealed)?);
        }
        let key = key::generate().map_err(Error::inconsistent)?;
        let sealed = self.store.seal(KEY.associated_data(&row), key.reveal().as_bytes())?;
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                if !self.lock(tx, name, false).await?.wanted {
                    return Err(RunError::Stale);
                }
                tx.order_set_key(order.id, &sealed).await?;
                Ok::<_, RunError>(())
            })
            .await?;
        order.key = Some(sealed);
        Ok(key)
    }

    /// Stores the certificate, writes the desired state, and deletes the order with its challenge, in one commit.
    async fn store_certificate(
        &self,
        name: &NameRecord,
        order: &mut OrderRecord,
        chain: String,
    ) -> Result<(), RunError> {
        let key = self.order_key(name, order).await?;
        let now = self.store.clock_rng().now();
        let leaf = key::read_leaf(&chain, &name.name, &key, now);
        let leaf = leaf.map_err(|error| RunError::Failed(format!("the issued certificate is not usable: {error}")))?;
        let id: CertificateId = self.store.clock_rng().id_at(now);
        let row = SealedColumn::row(&[id.as_uuid().to_string()]);
        let certificate = CertificateRecord {
            id,
            name: name.name.clone(),
            directory: order.directory.clone(),
            chain,
            key: self.store.seal(node::KEY.associated_data(&row), key.reveal().as_bytes())?,
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            renewal_id: leaf.renewal_id,
            created_at: now,
        };
        let renew_at = self.renewal_time(leaf.not_before, leaf.not_after);
        let due_at = self.due_time_after_issue(renew_at, certificate.renewal_id.as_ref());
        self.store
            .transaction(&Actor::service(JOB), async |tx: &mut Connection| {
                let current = self.lock(tx, name, false).await?;
                if let Some(order) = tx.order_delete(&name.name).await? {
                    self.withdraw_challenge(tx, &order).await?;
                }
                tx.certificate_put(&certificate).await?;
                let update = NameUpdate {
                    state: NameState::Active,
                    due_at: if current.wanted { due_at } else { now },
                    failures: 0,
                    last_error: None,
                    renew_at: Some(renew_at),
                    notified_expiry: None,
                };
                tx.name_update(&name.name, name.run, update).await?;
                if let Some(project) = current.project {
                    self.publish(tx, project).await?;
                }
                let expires_at = certificate.not_after;
                let data = json!({ "name": name.name, "directory": certificate.directory, "expiresAt": expires_at });
                Ok(Outcome::Changed((), event("certificate.issue", &current, data)))
            })
            .await
            .inspect(|()| metrics::count_order(true))
    }
}

/// Returns the progress of an order after a request that changes it, which the authority may have refused. A request of a
/// process that was killed can arrive first. The authority then refuses this one, but the order continues. `before` is
/// the order before the request.
async fn resolve_refusal(
    session: &dyn AuthoritySession,
    before: &AuthorityOrder,
    result: Result<(), AuthorityError>,
) -> Result<Progress, RunError> {
    let Err(error) = result else { return Ok(Progress::Advanced) };
    if matches!(error, AuthorityError::Refused(_)) {
        let now = session.order(&before.url).await.map_err(RunError::Authority)?;
        let pending = |order: &AuthorityOrder| order.challenges.iter().filter(|offered| offered.is_pending).count();
        // The authority can also refuse a certificate signing request and end the order with it. Unless it states a
        // reason with the order, its response is the reason.
        let is_refused =
            before.status == OrderStatus::Ready && now.status == OrderStatus::Invalid && now.error.is_none();
        if !is_refused && (now.status != before.status || pending(&now) != pending(before)) {
            return Ok(Progress::Waiting(now.retry_after));
        }
    }
    Err(RunError::Authority(error))
}

/// Returns the error that decides about the next run: a failure rather than a postponement, the later failure, and the
/// earlier postponement.
fn decisive(former: RunError, error: RunError) -> RunError {
    match (&former, &error) {
        (RunError::Postponed { until: first, .. }, RunError::Postponed { until: second, .. }) if first < second => {
            former
        }
        (RunError::Authority(_) | RunError::Failed(_), RunError::Postponed { .. }) => former,
        _ => error,
    }
}
