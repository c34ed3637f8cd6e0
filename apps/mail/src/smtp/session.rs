//! An SMTP session with a client.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::Recipient;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Server;
use super::command::Command;
use super::connection::{Connection, Line, Lost};
use super::reply::Reply;
use crate::address::{Domain, Mailbox, Path};
use crate::limits::{ClientConnection, Timeouts};
use crate::trace::Protocol;

/// A session with a client.
pub struct Session {
    pub(super) server: Arc<Server>,
    pub(super) connection: Connection,
    pub(super) client: IpAddr,
    counted: ClientConnection,
    /// The node stops.
    stopping: watch::Receiver<bool>,
    pub(super) deadline: Instant,
    /// The name in EHLO or HELO.
    pub(super) ehlo: Option<String>,
    pub(super) protocol: Protocol,
    pub(super) transaction: Option<Transaction>,
    errors: u32,
    /// The number of commands since the last accepted mail.
    pub(super) commands: u32,
}

/// A mail transaction, which begins with MAIL and ends after the data.
pub struct Transaction {
    /// The sender; `None` for the null sender (`<>`).
    pub from: Option<Mailbox>,
    pub utf8: bool,
    /// The recipients, each of which had a project at RCPT.
    pub recipients: Vec<Mailbox>,
}

/// The reason why a session ends.
#[derive(Debug)]
pub enum End {
    /// The client closed the connection, or the session queued its last reply.
    Closed,
    /// The client was too slow.
    Timeout,
    /// The node stops.
    Stopping,
}

impl From<Lost> for End {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => Self::Closed,
            Lost::Timeout => Self::Timeout,
        }
    }
}

impl Session {
    pub fn new(
        server: Arc<Server>,
        connection: Connection,
        client: IpAddr,
        counted: ClientConnection,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let deadline = Instant::now() + server.limits.timeouts.connection;
        Self {
            server,
            connection,
            client,
            counted,
            stopping,
            deadline,
            ehlo: None,
            protocol: Protocol::default(),
            transaction: None,
            errors: 0,
            commands: 0,
        }
    }

    /// Serves the client until the session ends, then closes the connection.
    pub async fn run(mut self) {
        let ready = format!("{} ESMTP", self.server.host);
        self.connection.reply(&Reply::new(220, "", ready));
        let end = loop {
            if let Err(end) = self.serve_command().await {
                break end;
            }
        };
        match end {
            End::Closed => {}
            End::Timeout => self.connection.reply(&Reply::new(421, "4.4.2", "timeout")),
            End::Stopping => self.connection.reply(&Reply::new(421, "4.3.2", "the server stops; try again later")),
        }
        self.connection.close().await;
    }

    async fn serve_command(&mut self) -> Result<(), End> {
        let Timeouts { command, busy_command, .. } = self.server.limits.timeouts;
        let limit = if self.server.clients.is_busy() { busy_command } else { command };
        let deadline = self.deadline.min(Instant::now() + limit);
        let line = tokio::select! {
            line = self.connection.read_line(deadline) => line?,
            _ = self.stopping.wait_for(|stopping| *stopping) => return Err(End::Stopping),
        };
        self.commands += 1;
        if self.commands > self.server.limits.commands {
            return self.refuse(Reply::new(421, "4.7.0", "too many commands without a mail"));
        }
        let reply = match line {
            Line::Command(line) => match Command::parse(&line) {
                Ok(command) => match self.execute(command).await? {
                    Some(reply) => reply,
                    None => return Ok(()),
                },
                Err(reply) => reply,
            },
            Line::TooLong => Reply::new(500, "5.5.2", "the command is too long"),
            // Another server could split these bytes into other commands.
            Line::WrongBreak => return self.refuse(Reply::new(554, "5.5.2", "a command must end with CRLF")),
        };
        self.errors += u32::from(reply.is_error());
        self.connection.reply(&reply);
        if self.errors >= self.server.limits.errors {
            return self.refuse(Reply::new(421, "4.7.0", "too many errors"));
        }
        Ok(())
    }

    /// Queues a last reply, and ends the session.
    pub(super) fn refuse<T>(&mut self, reply: Reply) -> Result<T, End> {
        self.connection.reply(&reply);
        Err(End::Closed)
    }

    /// Executes a command and returns the reply. There is no reply after a TLS handshake.
    async fn execute(&mut self, command: Command) -> Result<Option<Reply>, End> {
        Ok(Some(match command {
            Command::Hello { name, extended } => {
                self.refuse_pipelining()?;
                self.hello(name, extended)
            }
            Command::Mail { from, size, utf8 } => self.mail(from, size, utf8),
            Command::Rcpt(to) => self.rcpt(to).await,
            Command::Data => {
                self.refuse_pipelining()?;
                self.data().await?
            }
            Command::StartTls => {
                self.refuse_pipelining()?;
                return self.start_tls().await;
            }
            Command::Rset => {
                self.transaction = None;
                Reply::new(250, "2.0.0", "reset")
            }
            Command::Noop => Reply::new(250, "2.0.0", "OK"),
            Command::Help => {
                Reply::new(214, "2.0.0", "EHLO HELO MAIL RCPT DATA RSET NOOP QUIT; EHLO lists the extensions")
            }
            Command::Verify => Reply::new(252, "2.0.0", "the server does not verify addresses; send a mail"),
            Command::Expand => Reply::new(502, "5.5.1", "the server does not expand lists"),
            Command::Quit => return self.refuse(Reply::new(221, "2.0.0", "bye")),
            Command::NotOffered => Reply::new(502, "5.5.1", "the server does not offer the command"),
            Command::NotSafe => return self.refuse(Reply::new(502, "5.5.1", "the server does not offer the command")),
        }))
    }

    /// Refuses EHLO, HELO, DATA or STARTTLS if the client has already sent more bytes. A client must wait for the reply
    /// to these commands (RFC 2920 section 3.1, RFC 3207 section 4). Bytes before the reply may come from an attacker.
    fn refuse_pipelining(&mut self) -> Result<(), End> {
        if self.connection.has_input() {
            return self.refuse(Reply::new(554, "5.5.0", "wait for the reply before you send more"));
        }
        Ok(())
    }

    fn hello(&mut self, name: String, extended: bool) -> Reply {
        self.transaction = None;
        self.ehlo = Some(name);
        self.protocol.extended = extended;
        let host = &self.server.host;
        if !extended {
            return Reply::new(250, "", host.to_string());
        }
        let size = self.server.limits.mail_bytes;
        let mut text = format!("{host}\nSIZE {size}\n8BITMIME\nSMTPUTF8\nPIPELINING\nENHANCEDSTATUSCODES");
        if self.server.tls.is_some() && !self.protocol.encrypted {
            text += "\nSTARTTLS";
        }
        Reply::new(250, "", text)
    }

    fn mail(&mut self, from: Path, size: u64, utf8: bool) -> Reply {
        let limits = &self.server.limits;
        if self.ehlo.is_none() {
            return Reply::new(503, "5.5.1", "send EHLO first");
        }
        if self.transaction.is_some() {
            return Reply::new(503, "5.5.1", "a mail is in progress");
        }
        let from = match from {
            Path::Mailbox(mailbox) => Some(mailbox),
            Path::Null | Path::Postmaster => None,
        };
        if !utf8 && from.as_ref().is_some_and(Mailbox::needs_utf8) {
            return Reply::new(553, "5.6.7", "the sender needs SMTPUTF8");
        }
        if size > limits.mail_bytes {
            return Reply::new(552, "5.3.4", format!("the mail is larger than {} bytes", limits.mail_bytes));
        }
        if !self.counted.admit_mail() {
            return Reply::new(451, "4.7.1", "too many mails from your address; try again later");
        }
        if !self.server.queue.has_space(size) {
            return Reply::new(452, "4.3.1", "the server has no space; try again later");
        }
        self.transaction = Some(Transaction { from, utf8, recipients: Vec::new() });
        Reply::new(250, "2.1.0", "OK")
    }

    async fn rcpt(&mut self, to: Path) -> Reply {
        let Some(transaction) = &mut self.transaction else { return Reply::new(503, "5.5.1", "send MAIL first") };
        let mailbox = match to {
            Path::Mailbox(mailbox) => mailbox,
            Path::Null | Path::Postmaster => return Reply::new(550, "5.1.1", "the server has no mailboxes of its own"),
        };
        if !transaction.utf8 && mailbox.needs_utf8() {
            return Reply::new(553, "5.6.7", "the recipient needs SMTPUTF8");
        }
        if transaction.recipients.len() >= self.server.limits.recipients {
            return Reply::new(452, "4.5.3", "too many recipients; send the mail to the others separately");
        }
        let found = match &mailbox.domain {
            Domain::Name(name) => self.server.recipients.find(name).await,
            Domain::Literal(_) => Some(Recipient::Foreign),
        };
        let refusal = match found {
            Some(Recipient::Project(project)) if !self.server.queue.has_room(&project) => {
                return Reply::new(452, "4.3.1", "too much mail for the recipient waits; try again later");
            }
            Some(Recipient::Project(_)) => {
                if !transaction.recipients.contains(&mailbox) {
                    transaction.recipients.push(mailbox);
                }
                return Reply::new(250, "2.1.5", "OK");
            }
            Some(Recipient::Full) => return Reply::new(452, "4.2.2", "the mailbox is full; try again later"),
            None => return Reply::new(451, "4.3.0", "the recipient cannot be checked; try again later"),
            Some(Recipient::Unknown) => Reply::new(550, "5.1.1", "no such address"),
            Some(Recipient::Foreign) => Reply::new(550, "5.7.1", "relaying denied"),
        };
        tracing::debug!(client = %self.client, domain = %mailbox.domain, code = refusal.code, "refused a recipient");
        sleep(self.counted.count_guess()).await;
        refusal
    }

    async fn start_tls(&mut self) -> Result<Option<Reply>, End> {
        let Some(tls) = self.server.tls.clone() else {
            return Ok(Some(Reply::new(502, "5.5.1", "the server does not offer the command")));
        };
        if self.protocol.encrypted {
            return Ok(Some(Reply::new(503, "5.5.1", "the connection is encrypted")));
        }
        self.connection.reply(&Reply::new(220, "2.0.0", "start TLS"));
        let acceptor = tls.acceptor();
        if let Err(lost) = self.connection.start_tls(&acceptor, self.server.limits.timeouts.tls).await {
            self.server.metrics.connection("tls_failed");
            return Err(lost.into());
        }
        self.server.metrics.connection("tls");
        // RFC 3207 section 4.2: the server discards all information from before the handshake.
        (self.ehlo, self.transaction) = (None, None);
        self.protocol = Protocol { encrypted: true, ..Protocol::default() };
        Ok(None)
    }
}
