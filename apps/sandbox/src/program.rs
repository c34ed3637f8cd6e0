//! All simulated systems in one program.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::ai::{Ai, MAX_SHOWN};
use crate::api::Api;
use crate::app::DemoApp;
use crate::codehost::CodeHost;
use crate::config::Config;
use crate::consent::Consent;
use crate::dns::DnsServer;
use crate::http::{self, Request, Response};
use crate::identity::Identity;
use crate::lending::{LENDING_PATH, Lending};
use crate::pages;
use crate::payments::Payments;
use crate::registrar::Registrar;
use crate::s3::S3Server;
use crate::smtp::{Encryption, SmtpServer};
use crate::sns::SnsServer;
use crate::systems::Systems;

/// The simulated systems with their listeners.
#[derive(Debug)]
pub struct Sandbox {
    listener: TcpListener,
    systems: Arc<Systems>,
    /// The temporary folder, which is removed when the sandbox is dropped.
    temporary: Option<TemporaryDir>,
}

#[derive(Debug)]
struct TemporaryDir(PathBuf);

/// The number of received mails that are kept.
const MAX_MAILS: usize = 100;

/// The bucket that exists at the start.
const BUCKET: &str = "objects";

impl Sandbox {
    /// Opens the listeners.
    ///
    /// # Errors
    /// Returns an error if an address is in use or not local, or the folder of the S3 server cannot be used.
    pub async fn start(config: &Config) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen).await?;
        let smtp = SmtpServer::start_on(config.smtp_listen, Encryption::None, None, MAX_MAILS).await?;
        let dns = DnsServer::start_on(config.dns_listen).await?;
        if let Some(nameserver) = config.dns_nameserver {
            dns.delegate_to(nameserver);
        }
        let port = listener.local_addr()?.port();
        let temporary = config.s3_dir.is_none().then(|| TemporaryDir::create(port)).transpose()?;
        let s3_dir = config.s3_dir.as_ref().or(temporary.as_ref().map(|temporary| &temporary.0)).unwrap();
        fs::create_dir_all(s3_dir.join(BUCKET))?;
        let s3 = S3Server::start_on(config.s3_listen, s3_dir).await?;
        let api = Api::new(&config.api_url);
        let url = match &config.url {
            Some(url) => url.clone(),
            None => http::base(listener.local_addr()?),
        };
        let url = url.trim_end_matches('/');
        let app = Arc::new(DemoApp::new(api.clone(), config.app.clone(), url));
        let webhook_url = format!("{}/v1/hooks/payments", api.base);
        let sns = SnsServer::start_on(config.sns_listen, Some(format!("{}/v1/hooks/mailer", api.base))).await?;
        sns.report_outcomes(&smtp);
        let payments = Payments::new(url, Some(webhook_url));
        let systems = Arc::new(Systems {
            code_host: CodeHost::new(true),
            identity: Identity::new(url),
            smtp,
            sns,
            mx: config.mx,
            dns,
            s3,
            app,
            consent: Consent::new(api),
            lending: Lending::default(),
            payments,
            registrar: Registrar::default(),
            ai: Ai::new(MAX_SHOWN),
        });
        Ok(Self { listener, systems, temporary })
    }

    /// Returns the address of the web pages and the code host.
    ///
    /// # Errors
    /// Returns an error if the operating system does not report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the SMTP server.
    #[must_use]
    pub fn smtp(&self) -> &SmtpServer {
        &self.systems.smtp
    }

    /// Returns the notification service.
    #[must_use]
    pub fn sns(&self) -> &SnsServer {
        &self.systems.sns
    }

    /// Returns the name server.
    #[must_use]
    pub fn dns(&self) -> &DnsServer {
        &self.systems.dns
    }

    /// Returns the S3 server.
    #[must_use]
    pub fn s3(&self) -> &S3Server {
        &self.systems.s3
    }

    /// Serves the web pages and the code host until the future is dropped.
    pub async fn run(self) {
        // Keep the temporary folder until the future is dropped.
        let (systems, _temporary) = (self.systems, self.temporary);
        let handler = move |request| {
            let systems = Arc::clone(&systems);
            async move { respond(&systems, request).await }
        };
        http::serve(self.listener, handler).await;
    }
}

impl TemporaryDir {
    /// Creates an empty folder. Its name contains the port, which no other running sandbox uses.
    fn create(port: u16) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("svc-sandbox-s3-{port}"));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // A folder that remains does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn respond(systems: &Arc<Systems>, request: Request) -> Option<Response> {
    let request = Arc::new(request);
    if request.is_cross_origin_write() {
        return Some(Response::new(403, "text/plain; charset=utf-8", "The form is of another site."));
    }
    if CodeHost::serves(&request.path) {
        return systems.code_host.respond(&request).await;
    }
    if Identity::serves(&request.path) {
        return systems.identity.respond(&request).await;
    }
    if request.method == "POST" && request.path.strip_prefix(LENDING_PATH) == Some("/revocations") {
        return systems.lending.receive(&request).await;
    }
    if Ai::serves(&request.path) {
        return systems.ai.respond(&request).await;
    }
    if Payments::serves(&request.path) {
        return systems.payments.respond(&request).await;
    }
    if Registrar::serves(&request.path) {
        let (systems, request) = (Arc::clone(systems), Arc::clone(&request));
        return http::run_to_completion(async move {
            let response = systems.registrar.respond(&request).await;
            for (domain, nameservers) in systems.registrar.delegations() {
                if let Err(error) = systems.dns.delegate(&domain, &nameservers) {
                    eprintln!("svc-sandbox: failed to delegate {domain}: {error}");
                }
            }
            response
        })
        .await;
    }
    if DemoApp::serves(&request.path) {
        let (app, request) = (Arc::clone(&systems.app), Arc::clone(&request));
        // A refresh token can be used only once, so the app must store its successor even if the browser disconnects.
        let response = http::run_to_completion(async move { app.respond(&request).await }).await;
        if response.is_some() {
            return response;
        }
    }
    if let Some(response) = systems.consent.respond(&request).await {
        return Some(response);
    }
    Some(pages::respond(systems, &request).await)
}
