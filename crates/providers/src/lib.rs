//! Adapters to the outside world: a code host that people sign in with, the server that takes our mail, and the DNS in
//! which they prove what they own.
//!
//! Each speaks a real protocol to a party that may be slow, wrong or hostile. What comes back is bounded in time and
//! size and checked before it is a value here, and no error shows a credential, a contact or what the other side said
//! in its own words. The crate knows no context: `apps/server` fits its types to their ports.

mod codehost;
mod letter;
mod mail;
mod outside;
mod person;
mod resolver;
mod smtp;
mod tls;

pub use codehost::{CodeHost, CodeHostConfig, CodeHostError};
pub use letter::{Action, Letter, NotALink};
pub use lettre::message::Mailbox;
pub use mail::Mail;
pub use outside::{InvalidOutside, Limits, Outside, OutsideError};
pub use person::Person;
pub use resolver::{InvalidResolver, LookupError, Resolver};
pub use smtp::{Cause, Credentials, InvalidSmtp, MailError, Smtp, SmtpConfig, Step, Timeouts, Tls};
