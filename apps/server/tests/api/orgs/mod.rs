//! Organizations, members, invitations and notifications.

mod invites;
mod notifications;
mod organizations;
