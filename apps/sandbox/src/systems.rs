//! The systems that the web pages show.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::ai::Ai;
use crate::app::DemoApp;
use crate::codehost::CodeHost;
use crate::consent::Consent;
use crate::dns::DnsServer;
use crate::identity::Identity;
use crate::lending::Lending;
use crate::payments::Payments;
use crate::registrar::Registrar;
use crate::s3::S3Server;
use crate::smtp::SmtpServer;
use crate::sns::SnsServer;

#[derive(Debug)]
pub(crate) struct Systems {
    pub code_host: CodeHost,
    pub identity: Identity,
    pub smtp: SmtpServer,
    pub sns: SnsServer,
    /// The mail server that receives mail for projects.
    pub mx: SocketAddr,
    pub dns: DnsServer,
    pub s3: S3Server,
    pub app: Arc<DemoApp>,
    pub consent: Consent,
    pub lending: Lending,
    pub payments: Payments,
    pub registrar: Registrar,
    pub ai: Ai,
}
