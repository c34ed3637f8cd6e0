//! The device flow (RFC 8628).

use kernel::{ClientId, Scope, Time, Token};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::words! {
    /// The state of a device's request.
    pub enum DeviceState {
        /// The user has not decided yet.
        Pending = "pending",
        /// The user approved the request.
        Approved = "approved",
        /// The user denied the request.
        Denied = "denied",
    }
}

/// The response to a device (RFC 8628 section 3.2).
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "device_code": "svc_odc_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
        "user_code": "WDJB-MJHT",
        "verification_uri": "https://dashboard.svc.example/oauth/device",
        "verification_uri_complete": "https://dashboard.svc.example/oauth/device?user_code=WDJB-MJHT",
        "expires_in": 600,
        "interval": 5,
    }))
)]
pub struct DeviceAuthorization {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub device_code: Token,
    /// The code that the user enters.
    pub user_code: String,
    /// The page on which the user enters the code.
    pub verification_uri: String,
    /// The URL of this page with the code.
    pub verification_uri_complete: String,
    /// The lifetime of the codes in seconds.
    pub expires_in: i64,
    /// The minimum time between two polls, in seconds.
    pub interval: i32,
}

/// The request of a device as a user sees it before the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "userCode": "WDJB-MJHT", "name": "svc" })))]
pub struct DeviceConsent {
    pub user_code: String,
    pub client_id: ClientId,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub expires_at: Time,
}

/// The decision about the request of a device.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "userCode": "WDJB-MJHT" })))]
pub struct DeviceDecision {
    /// The code that the device shows. Case, hyphens and spaces do not matter.
    #[validate(length(min = 8, max = 20))]
    #[cfg_attr(feature = "openapi", schema(min_length = 8, max_length = 20))]
    pub user_code: String,
    /// Whether the user approves the request.
    #[serde(default = "super::approved")]
    pub approve: bool,
}
