//! Mail of projects.
//!
//! Owns the Postgres schema `mail`: the log, deliveries to workers, and suppressed recipients. The raw messages are in
//! an object store.
//!
//! **Sending.** A node submits a mail that a worker sends ([`Mail::submit`]). The submission assembles and stores the
//! message. It then commits the row in the log together with an outbox message. From the outbox, [`MailRelay`] hands
//! the message to the relay. Later, the relay's notification service reports the outcome ([`Mail::apply_event`]).
//!
//! **Receiving.** The mail node uploads the message and then commits it ([`Mail::receive`]). The home node of the
//! project claims it ([`Mail::claim`]), calls `email()` and reports the result. Each operation is safe to repeat.

mod address;
mod dkim;
mod error;
mod metrics;
mod mime;
mod model;
mod notification;
mod outgoing;
mod ports;
mod raw;
mod repository;
mod schema;
mod service;

pub use dkim::{DkimSigner, InvalidDkimKey, dkim_record};
pub use error::{HookError, MailError};
pub use model::*;
pub use ports::{
    Envelope, Nodes, Notice, NotificationService, Organizations, Ports, RefusedRecipient, Relay, RelayError, Relayed,
    ServiceUnavailable,
};
pub use raw::{RawMails, RawStream};
pub use repository::*;
pub use service::{Mail, MailHook, MailRelay, NotificationSource, Target};
