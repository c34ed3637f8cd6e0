//! Mail of worker code: `env.email` and `email()`.
//!
//! **Sending.** [`Mailer`] creates an id for a mail and submits the mail to the control plane under it. If the response
//! is lost, it repeats the submission with the same id, so the mail is queued once.
//!
//! **Receiving.** [`deliver`](delivery::deliver) claims received mail from the control plane, runs `email()` of each
//! project for it, and reports the result. If the node dies in between, the claim ends, and the control plane gives the
//! mail out again.

pub mod delivery;
mod error;
mod handler;
mod header;
mod metrics;
mod send;

pub use error::SendError;
pub use metrics::MailMetrics;
pub use send::{MAX_SUBMISSION_BYTES, Mailer};
