//! The holders of limits on the capacity of a server: an organization, or a user for requests outside of organizations.

use kernel::{OrgId, UserId};

/// An organization or a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Tenant {
    Org(OrgId),
    User(UserId),
}
