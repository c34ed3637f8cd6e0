//! Simulated external systems that speak the real protocols: a code host, an SMTP server, a name server and an S3
//! server. The first three can inject faults. Tests start them separately. `svc-sandbox` runs all of them in one
//! program, with web pages.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "for tests and development, where a panic reports the failure"
)]

mod certificate;
mod codehost;
pub mod config;
mod dns;
mod html;
mod http;
mod pages;
mod program;
mod s3;
mod smtp;
mod systems;

pub use certificate::Certificate;
pub use codehost::{CodeHostFault, CodeHostServer, Endpoint, OAuthClient};
pub use dns::{DnsFault, DnsServer, InvalidRecord};
pub use hickory_resolver::proto::rr::RecordType;
pub use program::Sandbox;
pub use s3::S3Server;
pub use smtp::{Encryption, ReceivedMail, SmtpFault, SmtpServer};
