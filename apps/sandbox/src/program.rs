//! All simulated systems in one program.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::codehost::CodeHost;
use crate::config::Config;
use crate::dns::DnsServer;
use crate::http::{self, Request, Response};
use crate::pages;
use crate::smtp::{Encryption, SmtpServer};
use crate::systems::Systems;

/// The simulated systems with their listeners.
#[derive(Debug)]
pub struct Sandbox {
    listener: TcpListener,
    systems: Arc<Systems>,
}

impl Sandbox {
    /// Opens the listeners.
    ///
    /// # Errors
    /// Returns an error if an address is in use or not local.
    pub async fn start(config: &Config) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen).await?;
        let smtp = SmtpServer::start_on(config.smtp_listen, Encryption::None, None).await?;
        let dns = DnsServer::start_on(config.dns_listen).await?;
        Ok(Self { listener, systems: Arc::new(Systems { code_host: CodeHost::new(true), smtp, dns }) })
    }

    /// The address of the web pages and the code host.
    ///
    /// # Errors
    /// Returns an error if the operating system does not report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The SMTP server.
    #[must_use]
    pub fn smtp(&self) -> &SmtpServer {
        &self.systems.smtp
    }

    /// The name server.
    #[must_use]
    pub fn dns(&self) -> &DnsServer {
        &self.systems.dns
    }

    /// Serves the web pages and the code host until the future is dropped.
    pub async fn run(self) {
        let systems = self.systems;
        let handler = move |request| {
            let systems = Arc::clone(&systems);
            async move { respond(&systems, request).await }
        };
        http::serve(self.listener, handler).await;
    }
}

async fn respond(systems: &Systems, request: Request) -> Option<Response> {
    if CodeHost::serves(&request.path) {
        return systems.code_host.respond(&request).await;
    }
    Some(pages::respond(systems, &request))
}
