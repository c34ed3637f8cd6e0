//! The registrar: Name.com's Core API (providers.md section 2).

mod price;
mod wire;

use std::fmt;

use chrono::{DateTime, Utc};
use kernel::Secret;
use reqwest::Method;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use crate::outbound::{
    Call, Credential, Exchange, Limits, OutboundClient, OutboundConfigError, OutboundError, with_path,
};
use wire::{
    AuthCodeResponse, CheckBody, CheckResponse, CheckResult, Contacts, DomainResponse, DsResponse, ErrorResponse,
    NewDomainBody, OrderResponse, RegisterBody, RenewBody,
};

/// The purchase type of a name that can be registered directly, in contrast to one that its holder sells.
const REGISTRATION: &str = "registration";
/// The limits of a plausible response: the number of nameservers, and the bytes of a name or an authorization code.
const MAX_NAMESERVERS: usize = 50;
const MAX_TEXT_BYTES: usize = 255;

/// The client of the registrar. The caller observes the rate limits of the account.
#[derive(Clone)]
pub struct RegistrarClient {
    url: Url,
    user: String,
    token: Secret,
    client: OutboundClient,
}

/// A name that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedName {
    pub name: String,
    /// `None` if the name cannot be registered.
    pub offer: Option<Offer>,
}

/// The terms on which a name can be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The price of the first year.
    pub price_cents: i64,
    /// The price of each further year.
    pub renewal_cents: i64,
    pub premium: bool,
}

/// The holder of a domain.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrarContact {
    pub first_name: String,
    pub last_name: String,
    pub company_name: String,
    pub address1: String,
    pub city: String,
    pub state: String,
    pub zip: String,
    /// ISO 3166-1 alpha-2.
    pub country: String,
    /// E.164.
    pub phone: String,
    pub email: String,
}

/// A registration.
#[derive(Debug, Clone, Copy)]
pub struct NewRegistration<'a> {
    pub name: &'a str,
    pub contact: &'a RegistrarContact,
    /// The price of all years.
    pub price_cents: i64,
    pub years: u8,
    /// The registrar executes requests with the same key once, and repeats its response.
    pub idempotency_key: &'a str,
}

/// A renewal.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    pub name: &'a str,
    /// The price of all years.
    pub price_cents: i64,
    pub years: u8,
    /// The registrar may ignore the key: its documentation contradicts itself.
    pub idempotency_key: &'a str,
}

/// A domain in the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrarDomain {
    pub registered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub locked: bool,
    /// In lowercase, without the final dot.
    pub nameservers: Vec<String>,
    /// The price of a year of renewal, if the registrar reports one above 0.
    pub renewal_cents: Option<i64>,
    /// When the registry's lock ends, if the registrar reports it.
    pub transfer_lock_expires_at: Option<DateTime<Utc>>,
}

/// A DS record in the parent zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DsRecord {
    pub key_tag: u16,
    pub algorithm: u8,
    pub digest_type: u8,
    /// Hexadecimal.
    pub digest: String,
}

/// An error of a request. Contains no text of the registrar, which may quote a contact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrarError {
    /// The registrar refused the request with this status: 400, 402, 409 or 422. It changed nothing, and repeats the
    /// refusal for the same idempotency key.
    #[error("the registrar refused the request with status {0}")]
    Refused(u16),
    /// The account does not contain the domain.
    #[error("the domain is not in the account")]
    NotFound,
    /// Another failure. The registrar may have executed the request.
    #[error("the registrar {0}")]
    Failed(#[from] OutboundError),
}

type Result<T> = std::result::Result<T, RegistrarError>;

impl RegistrarClient {
    /// Creates a client.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, or contains credentials.
    pub fn new(url: &Url, user: String, token: Secret) -> std::result::Result<Self, OutboundConfigError> {
        Self::with_limits(url, user, token, Limits::default())
    }

    /// Creates a client with custom limits.
    ///
    /// # Errors
    /// Returns the errors of [`RegistrarClient::new`].
    pub fn with_limits(
        url: &Url,
        user: String,
        token: Secret,
        limits: Limits,
    ) -> std::result::Result<Self, OutboundConfigError> {
        let client = OutboundClient::with_limits("registrar", [url], limits)?;
        Ok(Self { url: url.clone(), user, token, client })
    }

    /// Checks names, which are in lowercase. The registrar may omit some, and returns the others in any order. It omits
    /// names whose top-level domain it does not sell, and refuses a check that has no others with 422.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn check(&self, names: &[&str]) -> Result<Vec<CheckedName>> {
        let body = json(&CheckBody { domain_names: names })?;
        let exchange = self.exchange(Method::POST, &["domains:checkAvailability"], None, Some(body)).await?;
        let CheckResponse { results } = match success::<CheckResponse>(&exchange) {
            Err(RegistrarError::Refused(422)) => return Ok(Vec::new()),
            checked => checked?,
        };
        let checked = results.iter().filter_map(|result| {
            let name = result.domain_name.to_ascii_lowercase();
            names.contains(&name.as_str()).then(|| offer(result).map(|offer| CheckedName { name, offer }))
        });
        checked.collect()
    }

    /// Registers a domain, with the transfer lock and the registrar's auto-renewal on.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn register(&self, registration: &NewRegistration<'_>) -> Result<RegistrarDomain> {
        let NewRegistration { name, contact, price_cents, years, idempotency_key } = *registration;
        let contacts = Contacts { registrant: contact, admin: contact, tech: contact, billing: contact };
        let domain = NewDomainBody { domain_name: name, contacts, locked: true, autorenew_enabled: true };
        let body = json(&RegisterBody { domain, purchase_price: dollars(price_cents)?, years })?;
        let exchange = self.exchange(Method::POST, &["domains"], Some(idempotency_key), Some(body)).await?;
        self.order(name, &exchange)
    }

    /// Reads a domain; `None` if the account does not contain it.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn read(&self, name: &str) -> Result<Option<RegistrarDomain>> {
        let exchange = self.exchange(Method::GET, &["domains", name], None, None).await?;
        // Every JSON object counts as the registrar's own 404, in contrast to the page of a proxy.
        if exchange.status == 404 && exchange.object::<IgnoredAny>().is_ok() {
            return Ok(None);
        }
        plausible(name, success(&exchange)?).map(Some)
    }

    /// Replaces the nameservers of a domain.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn set_nameservers(&self, name: &str, nameservers: &[String]) -> Result<()> {
        let path = ["domains", &format!("{name}:setNameservers")];
        let body = json(&json!({ "nameservers": nameservers }))?;
        self.call::<IgnoredAny>(Method::POST, &path, Some(body)).await.map(drop)
    }

    /// Renews a domain.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn renew(&self, renewal: &Renewal<'_>) -> Result<RegistrarDomain> {
        let Renewal { name, price_cents, years, idempotency_key } = *renewal;
        let body = json(&RenewBody { purchase_price: dollars(price_cents)?, years })?;
        let path = ["domains", &format!("{name}:renew")];
        let exchange = self.exchange(Method::POST, &path, Some(idempotency_key), Some(body)).await?;
        self.order(name, &exchange)
    }

    /// Locks a domain against transfers, or unlocks it. The registrar refuses a change that has no effect.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn set_locked(&self, name: &str, locked: bool) -> Result<RegistrarDomain> {
        let body = json(&json!({ "locked": locked }))?;
        let domain = self.call(Method::PATCH, &["domains", name], Some(body)).await?;
        plausible(name, domain)
    }

    /// Returns the code that authorizes a transfer to another registrar.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn auth_code(&self, name: &str) -> Result<Secret> {
        let path = ["domains", &format!("{name}:getAuthCode")];
        let AuthCodeResponse { auth_code } = self.call(Method::GET, &path, None).await?;
        let is_plausible = (1..=MAX_TEXT_BYTES).contains(&auth_code.len()) && !auth_code.contains(char::is_control);
        if is_plausible { Ok(Secret::new(auth_code)) } else { Err(OutboundError::NotJson.into()) }
    }

    /// Returns the DS records of a domain.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn ds_records(&self, name: &str) -> Result<Vec<DsRecord>> {
        match self.call::<DsResponse>(Method::GET, &["domains", name, "dnssec"], None).await {
            // The registrar does not document its response for a domain without DS records.
            Err(RegistrarError::NotFound) => self.read(name).await?.map(|_| Vec::new()).ok_or(RegistrarError::NotFound),
            listed => listed.map(|DsResponse { dnssec }| dnssec),
        }
    }

    /// Adds a DS record.
    ///
    /// # Errors
    /// Returns [`RegistrarError`].
    pub async fn add_ds_record(&self, name: &str, record: &DsRecord) -> Result<()> {
        let body = json(record)?;
        self.call::<IgnoredAny>(Method::POST, &["domains", name, "dnssec"], Some(body)).await.map(drop)
    }

    /// Removes the DS record with this digest.
    ///
    /// # Errors
    /// Returns [`RegistrarError`], which is [`RegistrarError::NotFound`] if there is no such record.
    pub async fn remove_ds_record(&self, name: &str, digest: &str) -> Result<()> {
        let exchange = self.exchange(Method::DELETE, &["domains", name, "dnssec", digest], None, None).await?;
        // The registrar documents 204, which has no body.
        if exchange.status == 204 { Ok(()) } else { success::<IgnoredAny>(&exchange).map(drop) }
    }

    fn order(&self, name: &str, exchange: &Exchange) -> Result<RegistrarDomain> {
        let OrderResponse { domain } = success(exchange)?;
        plausible(name, domain)
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &[&str], body: Option<String>) -> Result<T> {
        success(&self.exchange(method, path, None, body).await?)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &[&str],
        idempotency_key: Option<&str>,
        body: Option<String>,
    ) -> Result<Exchange> {
        let url = with_path(&self.url, ["core", "v1"].iter().chain(path));
        let credential = Credential::Basic { user: &self.user, password: &self.token };
        let header = idempotency_key.map(|key| ("x-idempotency-key", key));
        let call = Call { method, url: &url, credential, header, body: body.as_deref() };
        Ok(self.client.exchange(call).await?)
    }
}

/// Parses a successful response. Only JSON in the registrar's format counts as a refusal or as a missing domain,
/// because a proxy may respond with the same statuses.
fn success<T: DeserializeOwned>(exchange: &Exchange) -> Result<T> {
    match exchange.status {
        400 | 402 | 409 | 422 if exchange.object::<ErrorResponse>().is_ok() => {
            Err(RegistrarError::Refused(exchange.status))
        }
        404 if exchange.object::<ErrorResponse>().is_ok() => Err(RegistrarError::NotFound),
        200..300 => Ok(exchange.object()?),
        status => Err(OutboundError::Status(status).into()),
    }
}

/// Returns the offer of a result. Treats a price of zero as malformed, because no registry gives names away.
fn offer(result: &CheckResult) -> Result<Option<Offer>> {
    let is_registration = result.purchase_type.as_deref().is_none_or(|kind| kind == REGISTRATION);
    if !result.purchasable || !is_registration {
        return Ok(None);
    }
    match (result.purchase_price, result.renewal_price) {
        (Some(price_cents @ 1..), Some(renewal_cents @ 1..)) => {
            Ok(Some(Offer { price_cents, renewal_cents, premium: result.premium }))
        }
        _ => Err(OutboundError::NotJson.into()),
    }
}

/// Checks that a response is about the requested domain and within plausible limits.
fn plausible(name: &str, domain: DomainResponse) -> Result<RegistrarDomain> {
    let nameservers: Vec<String> =
        domain.nameservers.iter().map(|host| host.trim_end_matches('.').to_ascii_lowercase()).collect();
    let is_host =
        |host: &String| (1..=MAX_TEXT_BYTES).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic());
    let is_plausible = domain.domain_name.eq_ignore_ascii_case(name)
        && nameservers.len() <= MAX_NAMESERVERS
        && nameservers.iter().all(is_host);
    if !is_plausible {
        return Err(OutboundError::NotJson.into());
    }
    Ok(RegistrarDomain {
        registered_at: domain.create_date,
        expires_at: domain.expire_date,
        locked: domain.locked,
        nameservers,
        renewal_cents: domain.renewal_price.filter(|cents| *cents > 0),
        transfer_lock_expires_at: domain.transfer_lock_expires_at,
    })
}

/// Serializes a body. This does not fail for the bodies of this client: their maps have only texts as keys.
fn json(body: &impl Serialize) -> Result<String> {
    serde_json::to_string(body).map_err(|_| OutboundError::NotJson.into())
}

fn dollars(cents: i64) -> Result<Box<RawValue>> {
    price::dollars(cents).map_err(|_| OutboundError::NotJson.into())
}

impl fmt::Debug for RegistrarClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrarClient").finish_non_exhaustive()
    }
}

impl fmt::Debug for RegistrarContact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistrarContact(…)")
    }
}
