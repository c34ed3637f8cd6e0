//! The plan of an organization.

use kernel::audit::{Actor, Event};
use kernel::{OrgId, Plan, Secret, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Billing, Result};
use crate::error::BillingError;
use crate::model::{
    BillingPage, BillingSession, BillingStatus, Cancellation, LimitTable, NewCheckout, NewPortalVisit,
    SubscriptionStatus,
};
use crate::ports::{Checkout, CustomerSession, PaymentsError, RemoteSubscription};
use crate::repository::{SubscriptionRecord, SubscriptionRepository as _};

impl Billing {
    /// Returns the plan of an organization.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`].
    pub async fn status(&self, org: OrgId, plan: Plan) -> Result<BillingStatus> {
        let subscriptions = self.store.connection().await?.subscription_list(org).await?;
        Ok(self.status_of(plan, &subscriptions))
    }

    /// Creates a checkout of the pro plan. The payment itself does not change the plan; the webhook does.
    ///
    /// # Errors
    /// Returns [`BillingError::Off`], [`BillingError::AlreadyPro`], [`BillingError::Fields`] or
    /// [`BillingError::Unavailable`].
    pub async fn check_out(&self, actor: &Actor, org: OrgId, plan: Plan, new: NewCheckout) -> Result<BillingPage> {
        let return_to = self.return_address(&new.return_to)?;
        let (payments, product) = self.pro()?;
        if plan == Plan::Pro {
            return Err(BillingError::AlreadyPro);
        }
        let checkout = Checkout {
            org,
            product: product.to_owned(),
            return_to: return_to.url,
            embed_origin: return_to.origin,
            credit_cents: None,
        };
        let url = payments.check_out(&checkout).await.map_err(BillingError::Unavailable)?;
        self.record(actor, Event::in_org("billing.checkout", org, org, json!({ "plan": Plan::Pro }))).await?;
        Ok(BillingPage { url: Secret::new(url) })
    }

    /// Returns the URL of the portal, which is valid for one visit.
    ///
    /// # Errors
    /// Returns [`BillingError::Off`], [`BillingError::NeverPaid`], [`BillingError::Fields`] or
    /// [`BillingError::Unavailable`].
    pub async fn portal(&self, actor: &Actor, org: OrgId, visit: NewPortalVisit) -> Result<BillingPage> {
        let return_to = visit.return_to.map(|address| self.return_address(&address)).transpose()?;
        let session = self.customer_session(org, return_to.map(|address| address.url)).await?;
        self.record(actor, Event::in_org("billing.portal", org, org, json!({}))).await?;
        Ok(BillingPage { url: session.portal_url })
    }

    /// Creates a session of the organization as a customer.
    ///
    /// # Errors
    /// Returns [`BillingError::Off`], [`BillingError::NeverPaid`] or [`BillingError::Unavailable`].
    pub async fn session(&self, actor: &Actor, org: OrgId) -> Result<BillingSession> {
        let CustomerSession { token, customer_id, expires_at, .. } = self.customer_session(org, None).await?;
        self.record(actor, Event::in_org("billing.session", org, org, json!({}))).await?;
        Ok(BillingSession { token, customer_id, expires_at })
    }

    /// Schedules that the plan ends with its current period, or cancels this schedule. This applies to every live
    /// subscription, because each of them continues the plan. The provider then sends a webhook about each change. If
    /// the provider fails for one subscription, the changes of the others are kept, and a repeated request completes
    /// them. If one subscription no longer exists at the provider, which accepts the change of another one, the last
    /// webhook of the first one was lost. It counts as changed.
    ///
    /// # Errors
    /// Returns [`BillingError::Off`], [`BillingError::NotPro`] or [`BillingError::Unavailable`].
    pub async fn cancel(&self, actor: &Actor, org: OrgId, plan: Plan, change: Cancellation) -> Result<BillingStatus> {
        let Cancellation { cancel } = change;
        let (payments, _) = self.pro()?;
        // The caller may have lost the permission while the request waited, for example for its body.
        let mut live = self
            .store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| tx.subscription_list(org).await)
            .await?;
        live.retain(SubscriptionRecord::is_live);
        if live.is_empty() {
            // An organization has the pro plan only if it has a live subscription.
            return Err(BillingError::NotPro);
        }
        let ids: Vec<&str> = live.iter().map(|live| live.id.as_str()).collect();
        let responses = payments.set_cancel_at_period_end(&ids, cancel).await;
        let is_any_accepted = responses.iter().any(std::result::Result::is_ok);
        let (mut changes, mut failure) = (Vec::new(), None);
        for (live, response) in live.iter().zip(responses) {
            if let Err(PaymentsError::Gone(error)) = &response {
                tracing::error!(%org, subscription = live.id, error, "a live subscription is gone at the provider");
                if is_any_accepted {
                    changes.push((live, Scheduling::Repeated));
                    continue;
                }
            }
            match self.interpret_response(live, cancel, response).await {
                Ok(scheduling) => changes.push((live, scheduling)),
                Err(error) => failure = Some(error),
            }
        }
        // After a failure, do not commit the claim of an idempotency key, so that a repeated request executes.
        let claim = actor.idempotency.filter(|_| failure.is_none());
        let actor = Actor { idempotency: claim, ..actor.clone() };
        let plan = self.store_schedules(&actor, org, plan, cancel, changes).await?;
        match failure {
            Some(error) => Err(error),
            None => self.status(org, plan).await,
        }
    }

    /// Returns the result of a request to change a live subscription.
    async fn interpret_response(
        &self,
        live: &SubscriptionRecord,
        cancel: bool,
        response: std::result::Result<Option<RemoteSubscription>, PaymentsError>,
    ) -> Result<Scheduling> {
        match response {
            Ok(Some(changed)) => Ok(Scheduling::Done(changed)),
            Ok(None) => Ok(Scheduling::Repeated),
            // The provider rejects the cancellation of a schedule that does not exist.
            Err(PaymentsError::Rejected(_) | PaymentsError::Gone(_)) if !cancel && !live.cancel_at_period_end => {
                Ok(Scheduling::Repeated)
            }
            Err(error) => {
                let known = self.store.connection().await?.subscription_get(&live.id).await?;
                let is_applied = live.cancel_at_period_end != cancel
                    && known.is_some_and(|known| known.is_live() && known.cancel_at_period_end == cancel);
                if is_applied { Ok(Scheduling::Confirmed) } else { Err(BillingError::Unavailable(error)) }
            }
        }
    }

    /// Stores the changes of subscriptions. Returns the present plan of the organization.
    async fn store_schedules(
        &self,
        actor: &Actor,
        org: OrgId,
        plan: Plan,
        cancel: bool,
        changes: Vec<(&SubscriptionRecord, Scheduling)>,
    ) -> Result<Plan> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // Webhooks that arrive now wait for this lock, and are then compared with the state that is stored
                // here.
                let plan = self.ports.organizations.lock(tx, org).await?.unwrap_or(plan);
                let mut changed = Vec::new();
                for (live, scheduling) in changes {
                    if store_schedule(tx, live, cancel, scheduling).await? {
                        changed.push(live.id.as_str());
                    }
                }
                if changed.is_empty() {
                    return Ok(Outcome::Unchanged(plan));
                }
                let name = if cancel { "billing.cancel" } else { "billing.resume" };
                let data = json!({ "subscriptions": changed });
                Ok(Outcome::Changed(plan, Event::in_org(name, org, org, data)))
            })
            .await
    }

    /// Records that the actor received access to the provider, if the actor is still authorized.
    pub(super) async fn record(&self, actor: &Actor, event: Event) -> Result<()> {
        self.store.transaction(actor, async |_: &mut Connection| Ok(Outcome::Changed((), event))).await
    }

    async fn customer_session(&self, org: OrgId, return_to: Option<String>) -> Result<CustomerSession> {
        let (payments, _) = self.pro()?;
        let session = payments.customer_session(org, return_to.as_deref()).await.map_err(BillingError::Unavailable)?;
        session.ok_or(BillingError::NeverPaid)
    }

    /// Returns the status that follows from the subscriptions of an organization, as the repository lists them. The plan
    /// ends when the last live subscription has ended.
    fn status_of(&self, plan: Plan, subscriptions: &[SubscriptionRecord]) -> BillingStatus {
        let first = subscriptions.first();
        let live = || subscriptions.iter().filter(|found| found.is_live());
        let period_end = live().filter_map(|found| found.current_period_end).max();
        let status = first.map(|subscription| match subscription.status.as_str() {
            "active" | "trialing" => SubscriptionStatus::Active,
            "past_due" => SubscriptionStatus::PastDue,
            _ => SubscriptionStatus::Canceled,
        });
        BillingStatus {
            enabled: self.pro().is_ok(),
            sandbox: self.config.sandbox,
            plan,
            status,
            period_end: period_end.or_else(|| first?.current_period_end).map(Time::new),
            cancel_at_period_end: live().next().is_some() && live().all(|found| found.cancel_at_period_end),
            limits: LimitTable::from(&self.limits),
        }
    }
}

/// The result of a request to schedule the end of a subscription, or to cancel this schedule.
enum Scheduling {
    /// The provider changed the subscription, which now has this state.
    Done(RemoteSubscription),
    /// The subscription already had the requested state at the provider.
    Repeated,
    /// The response was lost, but the webhook of the change has arrived.
    Confirmed,
}

/// Stores the change of a subscription. Returns false if its schedule was already as requested.
async fn store_schedule(
    tx: &mut Connection,
    live: &SubscriptionRecord,
    cancel: bool,
    scheduling: Scheduling,
) -> store::Result<bool> {
    match scheduling {
        Scheduling::Done(changed) => {
            let expected = SubscriptionRecord { cancel_at_period_end: cancel, ..live.clone() };
            // A concurrent request may have stored this change. Webhooks also change other fields.
            let is_stored = tx.subscription_get(&live.id).await?.as_ref() == Some(&expected);
            tx.subscription_set(&record(live, changed)).await?;
            Ok(*live != expected && !is_stored)
        }
        Scheduling::Repeated => tx.subscription_schedule(&live.id, cancel).await,
        Scheduling::Confirmed => Ok(true),
    }
}

/// Returns the state of a subscription after a change.
fn record(live: &SubscriptionRecord, changed: RemoteSubscription) -> SubscriptionRecord {
    let RemoteSubscription { status, current_period_end, cancel_at_period_end, modified_at } = changed;
    SubscriptionRecord {
        id: live.id.clone(),
        org: live.org,
        status,
        current_period_end,
        cancel_at_period_end,
        // Without a modification time, keep the known one. A state with an equal time replaces the stored one.
        modified_at: modified_at.unwrap_or(live.modified_at),
    }
}
