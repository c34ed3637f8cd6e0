//! An SMTP server that keeps the mail it receives.

mod session;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::certificate::Certificate;
use crate::listener::accept;
use crate::recent::Recent;
use session::serve;

/// The encryption that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// No encryption.
    None,
    /// STARTTLS.
    StartTls,
    /// TLS from the first byte.
    Implicit,
}

/// A fault of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpFault {
    /// The server sends this response to MAIL FROM.
    Sender(&'static str),
    /// The server sends this response to RCPT TO.
    Recipient(&'static str),
    /// The server sends this response to the message, and does not keep the message.
    Message(&'static str),
    /// The server keeps the message, and closes the connection without a response.
    DropAfterMessage,
    /// The server keeps the message, and sends no response.
    HangAfterMessage,
    /// The server keeps the message, and sends the response when the fault is removed.
    WaitAfterMessage,
    /// The server sends no response to QUIT.
    HangAtQuit,
    /// The server sends no response at all.
    Hang,
    /// The server sends an HTTP response.
    NotSmtp,
    /// The server does not offer SMTPUTF8.
    NoUtf8,
    /// An attacker appends an unencrypted response to the response to STARTTLS.
    Injected,
}

/// A received mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMail {
    /// The server's id of the mail, which is the last word of its final response.
    pub id: String,
    /// The envelope's sender.
    pub from: String,
    /// The envelope's recipients.
    pub to: Vec<String>,
    /// Header and body, without SMTP's dot stuffing.
    pub raw: Vec<u8>,
    /// Whether the connection was encrypted.
    pub encrypted: bool,
    /// Whether the client requested SMTPUTF8 (RFC 6531).
    pub utf8: bool,
}

/// A server that receives mail and keeps it. It refuses recipients named `refuse@…` permanently and `defer@…`
/// temporarily.
#[derive(Debug)]
pub struct SmtpServer {
    /// A socket that is bound to the server's port, so that no other process can use the port while the server is
    /// stopped.
    _reserved: TcpSocket,
    address: SocketAddr,
    server: Arc<Server>,
    running: Mutex<Option<JoinHandle<()>>>,
}

/// The state that all sessions share.
#[derive(Debug)]
pub(super) struct Server {
    pub encryption: Encryption,
    pub certificate: Certificate,
    pub credentials: Option<(String, String)>,
    pub fault: watch::Sender<Option<SmtpFault>>,
    pub received: watch::Sender<Recent<ReceivedMail>>,
    /// The number of sessions that ended with QUIT.
    pub quits: watch::Sender<usize>,
}

impl SmtpServer {
    /// Starts a server without authentication on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start(encryption: Encryption) -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), encryption, None, usize::MAX).await.unwrap()
    }

    /// Starts a server that requires these credentials on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start_with_auth(encryption: Encryption, user: &str, password: &str) -> Self {
        let credentials = Some((user.to_owned(), password.to_owned()));
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), encryption, credentials, usize::MAX).await.unwrap()
    }

    /// Starts a server on this address, which keeps this many mails. Port 0 selects a free port.
    ///
    /// # Errors
    /// Returns an error if the address is in use or not local.
    pub async fn start_on(
        address: SocketAddr,
        encryption: Encryption,
        credentials: Option<(String, String)>,
        max_mails: usize,
    ) -> io::Result<Self> {
        let (certificate, received) = (Certificate::generate(), watch::Sender::new(Recent::new(max_mails)));
        let server = Server {
            encryption,
            certificate,
            credentials,
            fault: watch::Sender::new(None),
            received,
            quits: watch::Sender::new(0),
        };
        let reserved = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // On Linux, this option allows the listener to bind the same port as this socket.
        reserved.set_reuseaddr(true)?;
        reserved.bind(address)?;
        let address = reserved.local_addr()?;
        let this = Self { _reserved: reserved, address, server: Arc::new(server), running: Mutex::new(None) };
        this.run(TcpListener::bind(address).await?);
        Ok(this)
    }

    /// Returns the server's URL without credentials: `smtp://localhost:<port>` or `smtps://…`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.server.encryption == Encryption::Implicit { "smtps" } else { "smtp" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Returns the server's address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate authority that a client must trust, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.server.certificate.authority()
    }

    /// Injects a fault into later sessions, or removes it.
    pub fn inject(&self, fault: Option<SmtpFault>) {
        self.server.fault.send_replace(fault);
    }

    /// Returns the mails received so far, oldest first.
    #[must_use]
    pub fn received(&self) -> Vec<ReceivedMail> {
        self.mails().iter().cloned().collect()
    }

    /// Returns the kept mails without a copy. While the result exists, the server receives no other mail.
    pub(crate) fn mails(&self) -> watch::Ref<'_, Recent<ReceivedMail>> {
        self.server.received.borrow()
    }

    /// Returns a receiver of the list of kept mails. The list changes with each mail.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Recent<ReceivedMail>> {
        self.server.received.subscribe()
    }

    /// Waits until this many mails were received, and returns all of them.
    ///
    /// # Panics
    /// Panics after 30 seconds.
    pub async fn wait_for(&self, count: usize) -> Vec<ReceivedMail> {
        let mut received = self.server.received.subscribe();
        let enough = received.wait_for(|mails| mails.added() >= count);
        match tokio::time::timeout(Duration::from_secs(30), enough).await {
            Ok(mails) => mails.unwrap().iter().cloned().collect(),
            Err(_) => panic!("received {} of {count} mails", self.mails().added()),
        }
    }

    /// Waits until this many sessions ended with QUIT.
    ///
    /// # Panics
    /// Panics after 30 seconds.
    pub async fn wait_for_quits(&self, count: usize) {
        let mut quits = self.server.quits.subscribe();
        let enough = tokio::time::timeout(Duration::from_secs(30), quits.wait_for(|quits| *quits >= count)).await;
        assert!(enough.is_ok(), "{} of {count} sessions ended with QUIT", *self.server.quits.borrow());
    }

    /// Stops the server and its sessions. The received mails stay.
    pub async fn stop(&self) {
        let running = self.running().take();
        if let Some(running) = running {
            running.abort();
            // This fails because the task was aborted.
            let _ = running.await;
        }
    }

    /// Restarts the server on the same port.
    ///
    /// # Panics
    /// Panics if the port is in use.
    pub async fn restart(&self) {
        self.stop().await;
        self.run(TcpListener::bind(self.address).await.unwrap());
    }

    fn run(&self, listener: TcpListener) {
        let server = Arc::clone(&self.server);
        // Aborting this task ends the sessions.
        let running = tokio::spawn(accept(listener, move |stream| serve(stream, Arc::clone(&server))));
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
