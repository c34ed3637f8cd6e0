//! The registrar's data, in its shapes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Duration, Months, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::behavior::{self, Behavior};
use super::{Call, RegistrarOperation, is_authorized};
use crate::http::Request;
use crate::recent::Recent;
use crate::sessions::random_text;
use crate::values::{new_id, now};

/// The registry's lock after a registration.
const TRANSFER_LOCK: Duration = Duration::days(60);
const MAX_YEARS: i64 = 10;
const IDEMPOTENCY_KEY: &str = "x-idempotency-key";

/// The prices of the first year and of a renewal in cents, by the last label.
const PRICES: [(&str, i64, i64); 5] =
    [("com", 1_299, 1_599), ("net", 1_450, 1_795), ("org", 899, 1_499), ("dev", 1_500, 1_500), ("io", 3_498, 5_998)];
const OTHER_PRICES: (i64, i64) = (1_999, 2_499);
const PREMIUM_PRICES: (i64, i64) = (250_000, 250_000);

/// An error of the API.
#[derive(Debug)]
pub(super) struct ApiError {
    status: u16,
    message: String,
}

impl ApiError {
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub fn response(self) -> (u16, String) {
        (self.status, json!({ "message": self.message }).to_string())
    }
}

/// A paid registration or renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrarOrder {
    pub operation: RegistrarOperation,
    pub name: String,
    pub years: i64,
    pub cents: i64,
}

/// A domain in the account.
#[derive(Debug, Clone)]
pub(super) struct Domain {
    pub registered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub transfer_lock_expires_at: Option<DateTime<Utc>>,
    pub locked: bool,
    auto_renew: bool,
    pub nameservers: Vec<String>,
    pub ds: Vec<Value>,
    pub registrant: String,
    auth_code: String,
}

/// The data of the registrar.
#[derive(Debug, Default)]
pub(super) struct State {
    pub domains: BTreeMap<String, Domain>,
    /// The names of other registrars' customers.
    pub taken: BTreeSet<String>,
    pub orders: Vec<RegistrarOrder>,
    pub calls: Recent<String>,
    /// The responses to registrations, including refusals, by their idempotency keys.
    responses: HashMap<String, (u16, String)>,
    requested: HashSet<(String, RegistrarOperation)>,
}

/// The JSON of a response; null for one without a body.
type Answer = Result<Value, ApiError>;

impl State {
    /// Returns the behavior that the name in a request selects.
    pub fn behavior(&mut self, call: &Call<'_>) -> Option<Behavior> {
        let is_first = self.requested.insert((call.name.to_owned(), call.operation));
        behavior::select(call.name, call.operation, is_first)
    }

    /// Stores the response for the idempotency key of a registration.
    pub fn remember(&mut self, request: &Request, call: &Call<'_>, response: (u16, String)) {
        if let Some(key) = idempotency_key(request, call) {
            self.responses.entry(key.to_owned()).or_insert(response);
        }
    }

    /// Executes a request. A registration is executed once per idempotency key. Returns the status and the JSON.
    pub fn answer(&mut self, request: &Request, call: &Call<'_>, body: &Value) -> (u16, String) {
        if !is_authorized(request) {
            return ApiError::new(401, "Unauthorized").response();
        }
        // The client must send a key (providers.md section 2), although it has no effect here.
        if call.operation == RegistrarOperation::Renew && request.named_header(IDEMPOTENCY_KEY).is_empty() {
            return ApiError::new(400, "X-Idempotency-Key is missing").response();
        }
        if let Some(response) = idempotency_key(request, call).and_then(|key| self.responses.get(key)) {
            return response.clone();
        }
        let response = match self.execute(call, body) {
            Ok(Value::Null) => (204, String::new()),
            Ok(json) => (200, json.to_string()),
            Err(error) => error.response(),
        };
        self.remember(request, call, response.clone());
        response
    }

    fn execute(&mut self, call: &Call<'_>, body: &Value) -> Answer {
        match (call.operation, call.method) {
            (RegistrarOperation::Check, _) => self.check(body),
            (RegistrarOperation::Register, _) => self.register(call.name, body),
            (RegistrarOperation::Read, _) => self.domain(call.name),
            (RegistrarOperation::SetNameservers, _) => {
                let nameservers = texts(&body["nameservers"]).filter(|hosts| hosts.len() >= 2);
                let nameservers = nameservers.ok_or_else(|| ApiError::new(400, "At least two nameservers"))?;
                self.find(call.name)?.nameservers = nameservers;
                self.domain(call.name)
            }
            (RegistrarOperation::Renew, _) => self.renew(call.name, body),
            (RegistrarOperation::SetLock, _) => {
                let locked = body["locked"].as_bool().ok_or_else(|| ApiError::new(400, "locked is not a boolean"))?;
                let domain = self.find(call.name)?;
                if domain.locked == locked {
                    return Err(ApiError::new(409, "The domain already has this lock status"));
                }
                domain.locked = locked;
                self.domain(call.name)
            }
            (RegistrarOperation::AuthCode, _) => Ok(json!({ "authCode": self.find(call.name)?.auth_code })),
            (RegistrarOperation::Ds, "GET") => Ok(json!({ "dnssec": self.find(call.name)?.ds })),
            (RegistrarOperation::Ds, "POST") => self.add_ds(call.name, body),
            (RegistrarOperation::Ds, _) => {
                let records = &mut self.find(call.name)?.ds;
                let digest = call.digest.unwrap_or_default();
                let index = records.iter().position(|record| record["digest"] == digest);
                records.remove(index.ok_or_else(|| ApiError::new(404, "Not Found"))?);
                Ok(Value::Null)
            }
        }
    }

    /// Checks names. Sorts the results by name, so that callers cannot rely on the order of the request.
    fn check(&self, body: &Value) -> Answer {
        let names = texts(&body["domainNames"]).filter(|names| (1..=50).contains(&names.len()));
        let mut names = names.ok_or_else(|| ApiError::new(400, "domainNames must have 1 to 50 names"))?;
        names.retain(|name| !behavior::has_word(name, "missing"));
        if names.is_empty() {
            return Err(ApiError::new(422, "There are no valid domains to check"));
        }
        names.sort();
        let results = names.iter().map(|name| {
            if !self.is_available(name) {
                return json!({ "domainName": name, "reason": "Domain is taken" });
            }
            let (price, renewal_price) = prices(name);
            let aftermarket = behavior::has_word(name, "aftermarket");
            json!({
                "domainName": name, "purchasable": true, "purchasePrice": dollars(price),
                "purchaseType": if aftermarket { "aftermarket" } else { "registration" },
                "renewalPrice": dollars(renewal_price), "premium": behavior::has_word(name, "premium"),
            })
        });
        Ok(json!({ "results": results.collect::<Vec<_>>() }))
    }

    fn is_available(&self, name: &str) -> bool {
        !self.domains.contains_key(name) && !self.taken.contains(name) && !behavior::has_word(name, "taken")
    }

    fn register(&mut self, name: &str, body: &Value) -> Answer {
        let contacts = &body["domain"]["contacts"];
        for role in ["registrant", "admin", "tech", "billing"] {
            check_contact(&contacts[role])?;
        }
        if !self.is_available(name) {
            return Err(ApiError::new(409, format!("Domain {name} is not available")));
        }
        let years = years(body)?;
        let (first, renewal) = prices(name);
        let cents = first + (years - 1) * renewal;
        check_price(body, cents)?;
        let registered_at = now();
        let domain = Domain {
            registered_at,
            expires_at: add_years(registered_at, years),
            transfer_lock_expires_at: Some(registered_at + TRANSFER_LOCK),
            locked: body["domain"]["locked"] == true,
            auto_renew: body["domain"]["autorenewEnabled"] == true,
            nameservers: vec!["ns1.registrar.example".to_owned(), "ns2.registrar.example".to_owned()],
            ds: Vec::new(),
            registrant: contacts["registrant"]["email"].as_str().unwrap_or_default().to_owned(),
            auth_code: random_text(),
        };
        self.domains.insert(name.to_owned(), domain);
        self.add_order(RegistrarOperation::Register, name, years, cents)
    }

    fn renew(&mut self, name: &str, body: &Value) -> Answer {
        let years = years(body)?;
        let cents = years * prices(name).1;
        let domain = self.find(name)?;
        check_price(body, cents)?;
        let expires_at = add_years(domain.expires_at, years);
        if expires_at > add_years(now(), MAX_YEARS) {
            return Err(ApiError::new(422, "A domain cannot be registered for more than ten years"));
        }
        domain.expires_at = expires_at;
        self.add_order(RegistrarOperation::Renew, name, years, cents)
    }

    fn add_order(&mut self, operation: RegistrarOperation, name: &str, years: i64, cents: i64) -> Answer {
        self.orders.push(RegistrarOrder { operation, name: name.to_owned(), years, cents });
        Ok(json!({ "domain": self.domain(name)?, "order": new_id(), "totalPaid": dollars(cents) }))
    }

    fn add_ds(&mut self, name: &str, body: &Value) -> Answer {
        let number =
            |member: &str| body[member].as_u64().ok_or_else(|| ApiError::new(400, format!("{member} is missing")));
        let digest = body["digest"].as_str().ok_or_else(|| ApiError::new(400, "digest is missing"))?;
        let record = json!({
            "keyTag": number("keyTag")?, "algorithm": number("algorithm")?, "digestType": number("digestType")?,
            "digest": digest,
        });
        let records = &mut self.find(name)?.ds;
        if records.iter().any(|known| known["digest"] == digest) {
            return Err(ApiError::new(409, "The record exists"));
        }
        records.push(record.clone());
        Ok(record)
    }

    /// Returns a domain in the format of the API.
    pub fn domain(&self, name: &str) -> Answer {
        let domain = self.domains.get(name).ok_or_else(|| ApiError::new(404, "Not Found"))?;
        let mut json = json!({
            "domainName": name, "createDate": time(domain.registered_at), "expireDate": time(domain.expires_at),
            "nameservers": domain.nameservers, "renewalPrice": dollars(prices(name).1),
        });
        // The real registrar also omits members that are false.
        if domain.locked {
            json["locked"] = true.into();
        }
        if domain.auto_renew {
            json["autorenewEnabled"] = true.into();
        }
        if let Some(expires_at) = domain.transfer_lock_expires_at {
            json["transferLockExpiresAt"] = time(expires_at).into();
        }
        Ok(json)
    }

    /// Moves a domain to another registrar.
    pub fn transfer_away(&mut self, name: &str) -> Option<()> {
        self.domains.remove(name)?;
        self.taken.insert(name.to_owned());
        Some(())
    }

    /// Renews a domain for a year, as the registrar's automatic renewal does.
    pub fn renew_automatically(&mut self, name: &str) -> Option<()> {
        let domain = self.domains.get_mut(name)?;
        domain.expires_at = add_years(domain.expires_at, 1);
        self.add_order(RegistrarOperation::Renew, name, 1, prices(name).1).ok().map(drop)
    }

    fn find(&mut self, name: &str) -> Result<&mut Domain, ApiError> {
        self.domains.get_mut(name).ok_or_else(|| ApiError::new(404, "Not Found"))
    }
}

/// Returns the idempotency key of a registration. The key of another request has no effect, because the definition of
/// the real API has keys only for registrations.
fn idempotency_key<'r>(request: &'r Request, call: &Call<'_>) -> Option<&'r str> {
    let key = request.named_header(IDEMPOTENCY_KEY);
    (call.operation == RegistrarOperation::Register && !key.is_empty()).then_some(key)
}

fn prices(name: &str) -> (i64, i64) {
    if behavior::has_word(name, "premium") {
        return PREMIUM_PRICES;
    }
    let last_label = name.rsplit('.').next().unwrap_or_default();
    let found = PRICES.iter().find(|(label, ..)| *label == last_label);
    found.map_or(OTHER_PRICES, |(_, first, renewal)| (*first, *renewal))
}

/// Converts cents to dollars. The registrar's prices are floating-point numbers.
#[expect(clippy::cast_precision_loss, reason = "the prices have few digits")]
fn dollars(cents: i64) -> f64 {
    cents as f64 / 100.0
}

fn check_price(body: &Value, cents: i64) -> Result<(), ApiError> {
    match body["purchasePrice"].as_f64() {
        Some(price) if (price - dollars(cents)).abs() < 0.001 => Ok(()),
        _ => Err(ApiError::new(400, "purchasePrice is not the price")),
    }
}

fn years(body: &Value) -> Result<i64, ApiError> {
    let years = body["years"].as_i64().filter(|years| (1..=MAX_YEARS).contains(years));
    years.ok_or_else(|| ApiError::new(400, "years must be 1 to 10"))
}

/// Refuses an incomplete contact and the postal code 00000. The refusal quotes the contact.
fn check_contact(contact: &Value) -> Result<(), ApiError> {
    let text = |member: &str| contact[member].as_str().unwrap_or_default();
    let required = ["firstName", "lastName", "address1", "city", "zip", "country", "phone", "email"];
    let missing = required.iter().any(|member| text(member).is_empty());
    if missing || text("zip") == "00000" || !text("email").contains('@') {
        return Err(ApiError::new(422, format!("The contact is not valid: {contact}")));
    }
    Ok(())
}

fn add_years(time: DateTime<Utc>, years: i64) -> DateTime<Utc> {
    time + Months::new(12 * u32::try_from(years).unwrap())
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
