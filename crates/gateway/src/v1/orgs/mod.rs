//! Organizations, members, invitations and notifications.

mod invites;
mod organizations;

use crate::http::Routes;

pub(super) fn routes(routes: &mut Routes) {
    organizations::routes(routes);
    invites::routes(routes);
}
