//! The other side of every adapter: small servers that speak the real protocols and can be told to misbehave.

mod certificate;
mod codehost;
mod http;
mod session;
mod smtp;

pub use certificate::Certificate;
pub use codehost::{CodeHostServer, Failure, Page};
pub use smtp::{Encryption, Received, SmtpServer, Trouble};
