//! HTTP Strict Transport Security of hostnames (RFC 6797).

use serde::{Deserialize, Serialize};
use validator::Validate;

/// HTTP Strict Transport Security of a hostname (RFC 6797): browsers use only https for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "maxAge": 31_536_000, "includeSubDomains": false, "preload": false }))
)]
pub struct Hsts {
    /// How long browsers remember this after each response, in seconds. 0 makes them forget it.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 63_072_000))]
    pub max_age: i32,
    /// Whether this also applies to all subdomains of the hostname.
    pub include_sub_domains: bool,
    /// Whether browsers may include the hostname in their preload lists.
    pub preload: bool,
}

/// The HTTP Strict Transport Security to set.
#[derive(Debug, Clone, Copy, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "maxAge": 31_536_000, "includeSubDomains": false, "preload": false }))
)]
pub struct NewHsts {
    /// How long browsers remember this after each response, in seconds, up to two years. 0 makes them forget it. Begin
    /// with a short time: browsers that have seen the header cannot use http until the time is over.
    #[validate(range(min = 0, max = 63_072_000))]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 63_072_000))]
    pub max_age: i32,
    /// Whether this also applies to all subdomains of the hostname, including those that other servers serve. The default
    /// hostname has no subdomains.
    #[serde(default)]
    pub include_sub_domains: bool,
    /// Whether browsers may include the hostname in their preload lists. Requires `includeSubDomains` and a `maxAge` of
    /// at least a year (31536000).
    #[serde(default)]
    pub preload: bool,
}

impl From<NewHsts> for Hsts {
    fn from(new: NewHsts) -> Self {
        let NewHsts { max_age, include_sub_domains, preload } = new;
        Self { max_age, include_sub_domains, preload }
    }
}
