//! A server that takes mail.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::certificate::Certificate;
use super::session::serve;

/// What a server encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Nothing.
    None,
    /// What follows STARTTLS, which it offers.
    StartTls,
    /// Everything.
    Implicit,
}

/// How a server misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It answers this line to MAIL FROM.
    Sender(&'static str),
    /// It answers this line to RCPT TO.
    Recipient(&'static str),
    /// It answers this line to the message, and keeps none.
    Message(&'static str),
    /// It takes the message, and the connection breaks before it says so.
    DropAfterMessage,
    /// It takes the message and never says so.
    HangAfterMessage,
    /// It takes the message and never ends the conversation.
    HangAtQuit,
    /// It says nothing at all.
    Hang,
    /// It answers in HTTP.
    NotSmtp,
    /// Somebody on the way adds an answer behind the one to STARTTLS, outside of the encryption.
    Injected,
}

/// A mail as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The envelope's sender.
    pub from: String,
    /// The envelope's recipients.
    pub to: Vec<String>,
    /// Head and body, without the dots that SMTP stuffs.
    pub raw: Vec<u8>,
    /// Whether it came encrypted.
    pub encrypted: bool,
}

/// A server that takes mail for everybody and keeps it.
#[derive(Debug)]
pub struct SmtpServer {
    address: SocketAddr,
    server: Arc<Server>,
    running: Mutex<Option<JoinHandle<()>>>,
}

/// What all conversations share.
#[derive(Debug)]
pub(super) struct Server {
    pub encryption: Encryption,
    pub certificate: Certificate,
    pub credentials: Option<(String, String)>,
    pub trouble: Mutex<Option<Trouble>>,
    pub received: watch::Sender<Vec<Received>>,
}

impl SmtpServer {
    /// Starts a server that asks nobody for credentials.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start(encryption: Encryption) -> Self {
        Self::new(encryption, None).await
    }

    /// Starts a server that takes mail from this user alone.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start_with_auth(encryption: Encryption, user: &str, password: &str) -> Self {
        Self::new(encryption, Some((user.to_owned(), password.to_owned()))).await
    }

    async fn new(encryption: Encryption, credentials: Option<(String, String)>) -> Self {
        let (certificate, received) = (Certificate::generate(), watch::Sender::new(Vec::new()));
        let server = Server { encryption, certificate, credentials, trouble: Mutex::new(None), received };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let this = Self { address, server: Arc::new(server), running: Mutex::new(None) };
        this.run(listener);
        this
    }

    /// Where it is: `smtp://localhost:<port>` or `smtps://…`, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.server.encryption == Encryption::Implicit { "smtps" } else { "smtp" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whom a client is to believe, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.server.certificate.authority()
    }

    /// From now on it misbehaves, or behaves again.
    ///
    /// # Panics
    /// Never.
    pub fn trouble(&self, trouble: Option<Trouble>) {
        *self.server.trouble.lock().unwrap() = trouble;
    }

    /// What was taken so far, in that order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.server.received.borrow().clone()
    }

    /// What was taken, as soon as it is this many.
    ///
    /// # Panics
    /// After half a minute.
    pub async fn wait_for(&self, count: usize) -> Vec<Received> {
        let mut received = self.server.received.subscribe();
        let enough = received.wait_for(|mails| mails.len() >= count);
        match tokio::time::timeout(Duration::from_secs(30), enough).await {
            Ok(mails) => mails.unwrap().clone(),
            Err(_) => panic!("{} of {count} mails came", self.received().len()),
        }
    }

    /// Stops it, in the middle of whatever it is doing. What it took stays.
    ///
    /// # Panics
    /// Never.
    pub async fn stop(&self) {
        let running = self.running().take();
        if let Some(running) = running {
            running.abort();
            let _ = running.await;
        }
    }

    /// Starts it again on the same port.
    ///
    /// # Panics
    /// When somebody else has the port by now.
    pub async fn restart(&self) {
        self.stop().await;
        self.run(TcpListener::bind(self.address).await.unwrap());
    }

    fn run(&self, listener: TcpListener) {
        let server = Arc::clone(&self.server);
        // The conversations end with this task, which owns them.
        let running = tokio::spawn(async move {
            let mut conversations = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                conversations.spawn(serve(stream, Arc::clone(&server)));
                while conversations.try_join_next().is_some() {}
            }
        });
        *self.running() = Some(running);
    }

    fn running(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.running.lock().unwrap()
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        if let Some(running) = self.running().take() {
            running.abort();
        }
    }
}
