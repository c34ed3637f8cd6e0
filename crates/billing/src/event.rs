//! The events of the payments provider (providers.md section 1).

use chrono::{DateTime, Utc};
use kernel::OrgId;
use serde::Deserialize;
use serde_json::Value;

use crate::MICRO_CENTS_PER_CENT;
use crate::error::WebhookError;

/// The stored status of a subscription that changed from the pro product to another one.
const OTHER_PRODUCT: &str = "other_product";

/// The body of a webhook.
#[derive(Deserialize)]
pub(crate) struct Envelope {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The time of the event. It replaces the modification time of a subscription that has none.
    #[serde(default)]
    timestamp: Value,
    #[serde(default)]
    data: Value,
}

/// An event with an effect.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// The state of a subscription that has the pro product, or had it before.
    Subscription(SubscriptionState),
    /// A paid order of AI credit.
    Credit(PaidOrder),
}

/// An event with an effect, and its organization.
#[derive(Debug, PartialEq)]
pub(crate) struct PaymentEvent {
    pub(crate) organization: Organization,
    /// The organization that created the checkout, if the customer belongs to another one. The provider finds the
    /// customer by the email that the buyer enters.
    pub(crate) checkout_org: Option<OrgId>,
    /// The provider's id of the organization as a customer. `None` if the customer has another external id, or none: the
    /// buyer may have entered the email of someone else, which the provider does not verify.
    pub(crate) customer_id: Option<String>,
    pub(crate) effect: Effect,
}

/// The organization, as an event names it. It is looked up only by its id, never by its slug.
#[derive(Debug, PartialEq)]
pub(crate) struct Organization(pub(crate) Option<String>);

#[derive(Debug, PartialEq)]
pub(crate) struct SubscriptionState {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) current_period_end: Option<DateTime<Utc>>,
    pub(crate) cancel_at_period_end: bool,
    pub(crate) modified_at: DateTime<Utc>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct PaidOrder {
    pub(crate) id: String,
    pub(crate) micro_cents: i64,
}

/// The products that events are compared with.
pub(crate) struct EventProducts<'a> {
    pub(crate) pro: Option<&'a str>,
    pub(crate) credit: Option<&'a str>,
}

impl Organization {
    /// Returns the id, or `None` if the text is not the id of an organization.
    pub(crate) fn id(&self) -> Option<OrgId> {
        self.0.as_ref()?.parse().ok()
    }
}

impl Envelope {
    /// # Errors
    /// Returns [`WebhookError::Malformed`].
    pub(crate) fn parse(body: &[u8]) -> Result<Self, WebhookError> {
        let parsed: Self =
            serde_json::from_slice(body).map_err(|_| WebhookError::Malformed("the body is not an event in JSON"))?;
        if is_storable(&parsed.kind) { Ok(parsed) } else { Err(WebhookError::Malformed("type")) }
    }

    /// Returns the id of a paid order.
    pub(crate) fn paid_order_id(&self) -> Option<&str> {
        if self.kind == "order.paid" { self.object_id() } else { None }
    }

    /// Returns the id of a subscription whose state the event contains.
    pub(crate) fn subscription_id(&self) -> Option<&str> {
        if matches!(self.kind.as_str(), "subscription.active" | "subscription.updated") {
            self.object_id()
        } else {
            None
        }
    }

    fn object_id(&self) -> Option<&str> {
        member(&self.data, "id").as_str().filter(|id| is_storable(id))
    }

    /// Returns the event if it can have an effect. Events of other types, products or currencies are only recorded.
    /// `top_up` is the organization of the automatic top-up that the paid order belongs to. Such an order is credit of
    /// this organization, whatever product and customer the event names. `is_stored` states whether the subscription was
    /// one of the pro product before. If it has another product now, it no longer gives the plan.
    ///
    /// # Errors
    /// Returns [`WebhookError::Malformed`].
    pub(crate) fn event(
        &self,
        products: &EventProducts<'_>,
        top_up: Option<OrgId>,
        is_stored: bool,
    ) -> Result<Option<PaymentEvent>, WebhookError> {
        let is_of = |product: Option<&str>| product.is_some() && member(&self.data, "product_id").as_str() == product;
        let effect = match self.kind.as_str() {
            "subscription.active" | "subscription.updated" => {
                // Without this check, a malformed event would count as an event of another product.
                text(&self.data, "product_id")?;
                let is_pro = is_of(products.pro);
                let was_pro = is_stored && products.pro.is_some();
                if !is_pro && !was_pro {
                    return Ok(None);
                }
                let mut state = self.subscription()?;
                if !is_pro {
                    OTHER_PRODUCT.clone_into(&mut state.status);
                }
                Effect::Subscription(state)
            }
            "order.paid" => {
                // The field is null for an order that belongs to no product.
                if !self.data.get("product_id").is_some_and(Value::is_null) {
                    text(&self.data, "product_id")?;
                }
                let is_credit = top_up.is_some() || is_of(products.credit);
                if !is_credit || member(&self.data, "currency") != "usd" {
                    return Ok(None);
                }
                match self.order()? {
                    Some(order) => Effect::Credit(order),
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let organization = match top_up {
            Some(org) => Organization(Some(org.to_string())),
            None => self.organization()?,
        };
        let checkout_org = org_id(&self.data, "metadata", "org").filter(|org| organization.id() != Some(*org));
        let customer_org = org_id(&self.data, "customer", "external_id");
        let customer_id = text(&self.data, "customer_id")?;
        let customer_id = customer_org.filter(|org| organization.id() == Some(*org)).map(|_| customer_id);
        Ok(Some(PaymentEvent { organization, checkout_org, customer_id, effect }))
    }

    fn organization(&self) -> Result<Organization, WebhookError> {
        let external = match member(member(&self.data, "customer"), "external_id") {
            Value::Null => member(member(&self.data, "metadata"), "org"),
            id => id,
        };
        match external {
            Value::Null => Ok(Organization(None)),
            Value::String(id) if id.is_empty() || is_storable(id) => Ok(Organization(Some(id.clone()))),
            _ => Err(WebhookError::Malformed("the id of the organization is malformed")),
        }
    }

    fn subscription(&self) -> Result<SubscriptionState, WebhookError> {
        let modified_at = match member(&self.data, "modified_at") {
            Value::Null => instant(&self.timestamp, "timestamp")?,
            modified_at => instant(modified_at, "modified_at")?,
        };
        let current_period_end = match member(&self.data, "current_period_end") {
            Value::Null => None,
            end => Some(instant(end, "current_period_end")?),
        };
        let cancel_at_period_end = member(&self.data, "cancel_at_period_end").as_bool();
        Ok(SubscriptionState {
            id: text(&self.data, "id")?,
            status: text(&self.data, "status")?,
            current_period_end,
            cancel_at_period_end: cancel_at_period_end.ok_or(WebhookError::Malformed("cancel_at_period_end"))?,
            modified_at,
        })
    }

    /// Returns the paid order, or `None` for an order without a positive amount.
    fn order(&self) -> Result<Option<PaidOrder>, WebhookError> {
        let malformed = WebhookError::Malformed("net_amount");
        let Some(cents) = member(&self.data, "net_amount").as_i64() else { return Err(malformed) };
        if cents <= 0 {
            return Ok(None);
        }
        let micro_cents = cents.checked_mul(MICRO_CENTS_PER_CENT).ok_or(malformed)?;
        Ok(Some(PaidOrder { id: text(&self.data, "id")?, micro_cents }))
    }
}

/// Returns a member of an object. Returns null if the member is absent or the value is not an object.
fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// Returns the id of an organization, or `None` if the member is not such an id.
fn org_id(data: &Value, object: &str, name: &str) -> Option<OrgId> {
    member(member(data, object), name).as_str()?.parse().ok()
}

/// Returns whether a text can be stored: it is not empty, not longer than the provider's ids, and does not contain
/// U+0000, which Postgres cannot store.
fn is_storable(text: &str) -> bool {
    (1..=200).contains(&text.len()) && !text.contains('\0')
}

fn text(data: &Value, name: &'static str) -> Result<String, WebhookError> {
    let found = member(data, name).as_str().filter(|text| is_storable(text));
    found.map(str::to_owned).ok_or(WebhookError::Malformed(name))
}

/// Parses a time of RFC 3339.
fn instant(value: &Value, name: &'static str) -> Result<DateTime<Utc>, WebhookError> {
    let text = value.as_str().ok_or(WebhookError::Malformed(name))?;
    DateTime::parse_from_rfc3339(text).map(|at| at.to_utc()).map_err(|_| WebhookError::Malformed(name))
}
