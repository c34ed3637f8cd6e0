//! The other side of every adapter: small servers that speak the real protocols and can be told to misbehave.

mod certificate;
mod codehost;
mod dns;
mod http;
mod session;
mod smtp;
mod zone;

pub use certificate::Certificate;
pub use codehost::{CodeHostServer, Failure, Page};
pub use dns::{DnsServer, DnsTrouble};
pub use hickory_resolver::proto::rr::RecordType;
pub use smtp::{Encryption, Received, SmtpServer, Trouble};
