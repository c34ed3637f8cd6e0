//! Organizations, their members, invitations and notifications.
//!
//! Owns the Postgres schema `orgs`. Invariants of a whole organization (its last admin, its plan's limits, its pending
//! invitations) are checked under a row lock, [`OrgRepository::org_lock`]. Other contexts take the lock through a port.
//! Mails are queued in the outbox and sent through the port [`Mailer`].

mod error;
mod mail;
mod model;
mod notice;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::OrgError;
pub use mail::{InviteMails, NotificationMails};
pub use model::*;
pub use notice::{Charge, Notice};
pub use ports::{MailMessage, Mailer};
pub use repository::*;
pub use service::{InviteOutcome, Orgs, Site};
