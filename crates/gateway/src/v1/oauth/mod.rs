//! The OAuth 2.0 authorization server for connected apps.

mod client;
mod device;
mod grants;
mod metadata;
mod response;
mod token;

use crate::http::Routes;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("oauth", "Connected apps: the OAuth 2.0 authorization server.");
    metadata::routes(&mut area);
    token::routes(&mut area);
    grants::routes(&mut area);
    device::routes(&mut area);
}
