//! A client that sends mail, and keeps a journal.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A mail in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub subject: String,
    /// Whether the client received the reply 250. Otherwise the connection broke after the client had sent the mail.
    pub acknowledged: bool,
}

/// A client that sends each mail to one address at each of these domains.
pub struct Client {
    address: SocketAddr,
    number: usize,
    domains: [String; 2],
    /// The pause between mails, and before another connection.
    pause: Duration,
    /// The mails that were sent.
    journal: Vec<Sent>,
    /// The number of the next mail. A mail that was refused has another number the next time.
    next: usize,
}

impl Client {
    pub fn new(address: SocketAddr, number: usize, domains: [String; 2], pause: Duration) -> Self {
        Self { address, number, domains, pause, journal: Vec::new(), next: 0 }
    }

    /// Sends mails until stopped, and counts the acknowledged ones. Connects again when a connection breaks.
    pub async fn run(mut self, acknowledged: watch::Sender<usize>, stopped: watch::Receiver<bool>) -> Vec<Sent> {
        while !*stopped.borrow() {
            // The journal contains the mail whose connection broke.
            let _ = self.send_until_broken(&acknowledged, &stopped).await;
            sleep(self.pause).await;
        }
        self.journal
    }

    async fn send_until_broken(
        &mut self,
        acknowledged: &watch::Sender<usize>,
        stopped: &watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut stream = BufReader::new(TcpStream::connect(self.address).await?);
        reply(&mut stream).await?;
        command(&mut stream, "EHLO localhost").await?;
        while !*stopped.borrow() {
            self.send(&mut stream, acknowledged).await?;
            sleep(self.pause).await;
        }
        command(&mut stream, "QUIT").await.map(drop)
    }

    async fn send(&mut self, stream: &mut BufReader<TcpStream>, acknowledged: &watch::Sender<usize>) -> io::Result<()> {
        let sender = format!("MAIL FROM:<client-{}@example.org>", self.number);
        let recipients = self.domains.clone().map(|domain| format!("RCPT TO:<box@{domain}>"));
        for line in [&sender, &recipients[0], &recipients[1], "DATA"] {
            let code = command(stream, line).await?;
            if code >= 400 {
                // For example, the mail node cannot ask the server.
                return command(stream, "RSET").await.map(drop);
            }
        }
        let subject = format!("mail-{}-{}", self.number, self.next);
        self.next += 1;
        // Every tenth mail is larger than the buffers of the mail node.
        let lines = if self.next.is_multiple_of(10) { 4000 } else { 100 };
        let body = "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\r\n".repeat(lines);
        self.journal.push(Sent { subject: subject.clone(), acknowledged: false });
        stream.write_all(format!("Subject: {subject}\r\n\r\n{body}.\r\n").as_bytes()).await?;
        if reply(stream).await? == 250 {
            if let Some(sent) = self.journal.last_mut() {
                sent.acknowledged = true;
            }
            acknowledged.send_modify(|count| *count += 1);
        }
        Ok(())
    }
}

/// Sends a command. Returns the code of the reply.
async fn command(stream: &mut BufReader<TcpStream>, line: &str) -> io::Result<u16> {
    stream.write_all(format!("{line}\r\n").as_bytes()).await?;
    reply(stream).await
}

/// Reads a reply. Returns its code.
async fn reply(stream: &mut BufReader<TcpStream>) -> io::Result<u16> {
    loop {
        let mut line = String::new();
        let read = timeout(REPLY_TIMEOUT, stream.read_line(&mut line)).await.map_err(io::Error::from)??;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.as_bytes().get(3) != Some(&b'-') {
            return line.get(..3).and_then(|code| code.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
}
