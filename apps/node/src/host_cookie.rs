//! The cookies that the node sets at the hosts of projects.

use std::time::Duration;

use actix_web::cookie::{Cookie, SameSite, time};

/// Returns a cookie of the requested host that scripts cannot read.
pub fn host_cookie(name: String, value: String, lifetime: Duration, https: bool) -> Cookie<'static> {
    let age = time::Duration::seconds(i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX));
    Cookie::build(name, value).path("/").http_only(true).secure(https).same_site(SameSite::Lax).max_age(age).finish()
}
