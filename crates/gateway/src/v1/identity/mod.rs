//! Sign-in, the caller's account and credentials.

mod auth;
mod codehost;
mod credentials;
mod me;

use crate::config::SignInMethods;
use crate::http::Routes;

pub(super) fn routes(routes: &mut Routes, sign_ins: SignInMethods) {
    auth::routes(routes, sign_ins.dev);
    if sign_ins.code_host {
        codehost::routes(routes);
    }
    me::routes(routes);
    credentials::routes(routes);
}
