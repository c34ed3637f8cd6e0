//! Organizations, their members and invitations, and what they are notified of.
//!
//! Owns the Postgres schema `orgs`. Whatever must hold for an organization as a whole (its last admin, its plan's
//! limits, its pending invitations) is decided under a lock of its row, [`OrgRepository::org_lock`], which other contexts
//! take through a port. Mails are queued in the outbox and sent through the port [`Post`].

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
pub use ports::{Letter, Post};
pub use repository::*;
pub use service::{Invited, Orgs, Site};
