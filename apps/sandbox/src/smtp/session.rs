//! One SMTP session, as the server handles it.

use std::future::pending;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{Encryption, ReceivedMail, Server, SmtpFault};
use crate::values::new_id;

/// The maximum size of a mail. It is larger than those that the platform sends.
const MAX_MAIL_BYTES: usize = 25 << 20;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

struct Session {
    stream: BufReader<Box<dyn Stream>>,
    server: Arc<Server>,
    fault: Option<SmtpFault>,
    encrypted: bool,
    authenticated: bool,
    utf8: bool,
    from: Option<String>,
    to: Vec<String>,
}

pub(super) async fn serve(stream: TcpStream, server: Arc<Server>) {
    let fault = *server.fault.borrow();
    let encrypted = server.encryption == Encryption::Implicit;
    let stream: Box<dyn Stream> = if encrypted {
        let Ok(stream) = server.certificate.acceptor().accept(stream).await else { return };
        Box::new(stream)
    } else {
        Box::new(stream)
    };
    let stream = BufReader::new(stream);
    let authenticated = server.credentials.is_none();
    let mut session =
        Session { stream, server, fault, encrypted, authenticated, utf8: false, from: None, to: Vec::new() };
    // A client may disconnect at any time.
    let _ = session.run().await;
}

impl Session {
    async fn run(&mut self) -> io::Result<()> {
        match self.fault {
            Some(SmtpFault::Hang) => pending().await,
            Some(SmtpFault::NotSmtp) => return self.respond("HTTP/1.1 400 Bad Request\r\n").await,
            _ => self.respond("220 mail.example ESMTP").await?,
        }
        while let Some(line) = self.line().await? {
            let (verb, rest) = line.split_once([' ', ':']).unwrap_or((&line, ""));
            match verb.to_ascii_uppercase().as_str() {
                "EHLO" => self.greet().await?,
                "STARTTLS" if self.offers_tls() => {
                    if !self.encrypt().await? {
                        return Ok(());
                    }
                }
                "AUTH" if self.server.credentials.is_some() => self.auth(rest).await?,
                "MAIL" if self.authenticated => self.mail(rest).await?,
                "MAIL" => self.respond("530 5.7.0 Authentication required").await?,
                "RCPT" if self.from.is_some() => self.recipient(rest).await?,
                "DATA" if !self.to.is_empty() => {
                    if !self.data().await? {
                        return Ok(());
                    }
                }
                "RSET" => {
                    (self.from, self.to) = (None, Vec::new());
                    self.respond("250 2.0.0 Ok").await?;
                }
                "NOOP" => self.respond("250 2.0.0 Ok").await?,
                "QUIT" if self.fault == Some(SmtpFault::HangAtQuit) => pending().await,
                "QUIT" => {
                    self.server.quits.send_modify(|quits| *quits += 1);
                    return self.respond("221 2.0.0 Bye").await;
                }
                _ => self.respond("503 5.5.1 Not now").await?,
            }
        }
        Ok(())
    }

    fn offers_tls(&self) -> bool {
        self.server.encryption == Encryption::StartTls && !self.encrypted
    }

    async fn greet(&mut self) -> io::Result<()> {
        let mut extensions = vec!["mail.example", "8BITMIME", "ENHANCEDSTATUSCODES"];
        if self.offers_tls() {
            extensions.push("STARTTLS");
        }
        if self.server.credentials.is_some() {
            extensions.push("AUTH PLAIN LOGIN");
        }
        if self.fault != Some(SmtpFault::NoUtf8) {
            extensions.push("SMTPUTF8");
        }
        let last = extensions.pop().unwrap_or_default();
        let lines: String = extensions.iter().map(|extension| format!("250-{extension}\r\n")).collect();
        self.respond(&format!("{lines}250 {last}")).await
    }

    /// Handles STARTTLS. Returns whether the session continues.
    async fn encrypt(&mut self) -> io::Result<bool> {
        let injected = if self.fault == Some(SmtpFault::Injected) { "\r\n250 evil.example" } else { "" };
        self.respond(&format!("220 2.0.0 Go ahead{injected}")).await?;
        let nothing: Box<dyn Stream> = Box::new(tokio::io::empty());
        let plain = std::mem::replace(&mut self.stream, BufReader::new(nothing)).into_inner();
        let Ok(stream) = self.server.certificate.acceptor().accept(plain).await else { return Ok(false) };
        self.stream = BufReader::new(Box::new(stream));
        self.encrypted = true;
        Ok(true)
    }

    async fn auth(&mut self, rest: &str) -> io::Result<()> {
        let (mechanism, initial) = rest.split_once(' ').unwrap_or((rest, ""));
        let given = match mechanism.to_ascii_uppercase().as_str() {
            "PLAIN" => {
                let text = decode(initial);
                let mut parts = text.split('\0').skip(1).map(str::to_owned);
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
            }
            "LOGIN" => (self.prompt("VXNlcm5hbWU6").await?, self.prompt("UGFzc3dvcmQ6").await?),
            _ => return self.respond("504 5.5.4 Unknown mechanism").await,
        };
        self.authenticated = self.server.credentials.as_ref() == Some(&given);
        let (user, _) = given;
        let rejection = format!("535 5.7.8 {user} or the password is wrong");
        self.respond(if self.authenticated { "235 2.7.0 Welcome" } else { &rejection }).await
    }

    async fn prompt(&mut self, question: &str) -> io::Result<String> {
        self.respond(&format!("334 {question}")).await?;
        Ok(decode(&self.line().await?.unwrap_or_default()))
    }

    async fn mail(&mut self, rest: &str) -> io::Result<()> {
        if let Some(SmtpFault::Sender(answer)) = self.fault {
            return self.respond(answer).await;
        }
        (self.from, self.to) = (Some(path(rest)), Vec::new());
        self.utf8 = rest.split(' ').any(|parameter| parameter == "SMTPUTF8");
        self.respond("250 2.1.0 Ok").await
    }

    async fn recipient(&mut self, rest: &str) -> io::Result<()> {
        if let Some(SmtpFault::Recipient(answer)) = self.fault {
            return self.respond(answer).await;
        }
        let address = path(rest);
        match address.split('@').next() {
            Some("refuse") => self.respond(&format!("550 5.1.1 <{address}>: user unknown")).await,
            Some("defer") => self.respond(&format!("451 4.7.1 <{address}>: try again later")).await,
            _ => {
                self.to.push(address);
                self.respond("250 2.1.5 Ok").await
            }
        }
    }

    /// Handles DATA. Returns whether the session continues.
    async fn data(&mut self) -> io::Result<bool> {
        self.respond("354 End with a dot").await?;
        let (mut raw, mut is_too_large, mut is_line_start) = (Vec::new(), false, true);
        loop {
            let start = raw.len();
            // A longer line is read in parts.
            let mut part = (&mut self.stream).take(MAX_MAIL_BYTES as u64 + 1);
            if part.read_until(b'\n', &mut raw).await? == 0 {
                return Ok(false);
            }
            match raw.get(start..) {
                Some(b".\r\n") if is_line_start => {
                    raw.truncate(start);
                    break;
                }
                Some([b'.', ..]) if is_line_start => drop(raw.remove(start)),
                _ => {}
            }
            is_line_start = raw.ends_with(b"\n");
            if raw.len() > MAX_MAIL_BYTES {
                is_too_large = true;
                raw.clear();
            }
        }
        let refusal = match self.fault {
            _ if is_too_large => Some("552 5.3.4 The mail is too large"),
            Some(SmtpFault::Message(answer)) => Some(answer),
            _ => None,
        };
        if let Some(answer) = refusal {
            self.respond(answer).await?;
            return Ok(true);
        }
        let (from, to) = (self.from.take().unwrap_or_default(), std::mem::take(&mut self.to));
        let id = new_id();
        let mail = ReceivedMail { id: id.clone(), from, to, raw, encrypted: self.encrypted, utf8: self.utf8 };
        self.server.received.send_modify(|mails| {
            mails.push(mail);
        });
        match self.fault {
            Some(SmtpFault::DropAfterMessage) => return Ok(false),
            Some(SmtpFault::HangAfterMessage) => pending().await,
            Some(SmtpFault::WaitAfterMessage) => {
                // Does not fail, because the session keeps the sender.
                let _ = self.server.fault.subscribe().wait_for(Option::is_none).await;
            }
            _ => {}
        }
        self.respond(&format!("250 2.0.0 Ok {id}")).await?;
        Ok(true)
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    }

    async fn respond(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
        self.stream.flush().await
    }
}

fn decode(base64: &str) -> String {
    STANDARD.decode(base64).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Returns the text between the angle brackets.
fn path(text: &str) -> String {
    let inner = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map(|(path, _)| path).unwrap_or_default().to_owned()
}
