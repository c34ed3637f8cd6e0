//! Adapters for external services: the code host at which users sign in, the mail server and its notification service,
//! DNS lookups, the model-lending service, the payments provider, the registrar, certificate authorities, and the git
//! node of this installation.
//!
//! An external service may be slow, faulty or hostile. The adapters limit the time and the size of each response, and
//! validate it. Errors contain no credential and no contact. They contain no text of the response either, except the
//! messages of certificate authorities and the replies to mails of projects, which explain to users why a request was
//! refused. The crate does not depend on any context: `apps/server` implements the contexts' ports with these types.

pub mod acme;
mod codehost;
mod git_node;
mod lending;
mod mail;
mod mail_content;
mod outbound;
pub mod payments;
mod person;
pub mod registrar;
mod resolver;
mod smtp;
mod sns;
mod tls;

pub use codehost::{CodeHost, CodeHostConfig, CodeHostError};
pub use git_node::{GitNodeClient, GitNodeError};
pub use lending::Lending;
pub use lettre::message::Mailbox;
pub use mail::Mail;
pub use mail_content::{Action, InvalidLink, MailContent};
pub use outbound::{Limits, OutboundClient, OutboundConfigError, OutboundError};
pub use person::Person;
pub use resolver::{CaaRecord, InvalidResolver, LookupError, Resolver};
pub use smtp::{
    Cause, Credentials, Envelope, InvalidSmtp, MailError, RefusedRecipient, Relay, RelayError, Relayed, Smtp,
    SmtpConfig, Step, Timeouts, Tls,
};
pub use sns::{SnsClient, SnsError};
pub use tls::check_ca;
