//! The registrar's JSON (providers.md section 2).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::price::cents;
use super::{DsRecord, RegistrarContact};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckBody<'a> {
    pub(super) domain_names: &'a [&'a str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegisterBody<'a> {
    pub(super) domain: NewDomainBody<'a>,
    pub(super) purchase_price: Box<RawValue>,
    pub(super) years: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewDomainBody<'a> {
    pub(super) domain_name: &'a str,
    pub(super) contacts: Contacts<'a>,
    pub(super) locked: bool,
    pub(super) autorenew_enabled: bool,
}

#[derive(Serialize)]
pub(super) struct Contacts<'a> {
    pub(super) registrant: &'a RegistrarContact,
    pub(super) admin: &'a RegistrarContact,
    pub(super) tech: &'a RegistrarContact,
    pub(super) billing: &'a RegistrarContact,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RenewBody {
    pub(super) purchase_price: Box<RawValue>,
    pub(super) years: u8,
}

/// The result for a name. The registrar omits members that are false, as protocol buffers do.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckResult {
    pub(super) domain_name: String,
    #[serde(default)]
    pub(super) purchasable: bool,
    pub(super) purchase_type: Option<String>,
    #[serde(default)]
    pub(super) premium: bool,
    #[serde(default, deserialize_with = "cents")]
    pub(super) purchase_price: Option<i64>,
    #[serde(default, deserialize_with = "cents")]
    pub(super) renewal_price: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct CheckResponse {
    pub(super) results: Vec<CheckResult>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DomainResponse {
    pub(super) domain_name: String,
    pub(super) create_date: DateTime<Utc>,
    pub(super) expire_date: DateTime<Utc>,
    #[serde(default)]
    pub(super) locked: bool,
    #[serde(default)]
    pub(super) nameservers: Vec<String>,
    #[serde(default, deserialize_with = "cents")]
    pub(super) renewal_price: Option<i64>,
    pub(super) transfer_lock_expires_at: Option<DateTime<Utc>>,
}

/// The response of a registration or a renewal.
#[derive(Deserialize)]
pub(super) struct OrderResponse {
    pub(super) domain: DomainResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthCodeResponse {
    pub(super) auth_code: String,
}

#[derive(Deserialize)]
pub(super) struct DsResponse {
    #[serde(default)]
    pub(super) dnssec: Vec<DsRecord>,
}

/// An error. It is neither shown nor logged, because its message may quote a contact.
#[derive(Deserialize)]
pub(super) struct ErrorResponse {
    #[serde(rename = "message")]
    pub(super) _message: String,
}
