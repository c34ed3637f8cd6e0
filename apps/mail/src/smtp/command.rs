//! Commands.

use smtp_proto::{Error, MAIL_BODY_7BIT, MAIL_BODY_8BITMIME, MAIL_SMTPUTF8, MailFrom, RcptTo, Request as Parsed};

use super::reply::Reply;
use crate::address::Path;

/// The maximum length of the client's name in EHLO.
const MAX_EHLO: usize = 255;

/// A valid command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// EHLO or HELO.
    Hello {
        name: String,
        extended: bool,
    },
    Mail {
        from: Path,
        /// The size that the client declared, or 0.
        size: u64,
        utf8: bool,
    },
    Rcpt(Path),
    Data,
    StartTls,
    Rset,
    Noop,
    Help,
    /// VRFY.
    Verify,
    /// EXPN.
    Expand,
    Quit,
    /// A command of an extension that the server does not offer.
    NotOffered,
    /// A command that comes from a client that sends other bytes than commands: BDAT, whose data follows it, or an HTTP
    /// request.
    NotSafe,
}

impl Command {
    /// Parses a line without its line break. Returns the reply to send if the command is malformed.
    ///
    /// `smtp_proto` parses only the parameters of MAIL and RCPT. For paths, it is unsuitable: it accepts malformed
    /// ones, removes the quotes of local parts, and rejects address literals. So this module parses the path itself,
    /// and replaces it with a valid path in the line that it passes to `smtp_proto`.
    pub fn parse(line: &[u8]) -> Result<Self, Reply> {
        let text = std::str::from_utf8(line).ok().filter(|text| !text.contains(char::is_control));
        let text = text.ok_or_else(|| Reply::new(500, "5.5.2", "the command has invalid characters"))?;
        let verb_length = text.find(' ').unwrap_or(text.len());
        let (verb, argument) = text.split_at(verb_length);
        let has_argument = !argument.trim().is_empty();
        match verb.to_ascii_uppercase().as_str() {
            "MAIL" => parse_mail(argument),
            "RCPT" => parse_rcpt(argument),
            "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "CONNECT" | "PRI" => Ok(Self::NotSafe),
            "" => Err(Reply::new(500, "5.5.2", "the line has no command")),
            "DATA" | "STARTTLS" | "RSET" | "QUIT" if has_argument => {
                Err(Reply::new(501, "5.5.4", "the command has no argument"))
            }
            _ => match parse_line(text)? {
                Parsed::Ehlo { host } => Self::hello(&host, true),
                Parsed::Helo { host } => Self::hello(&host, false),
                Parsed::Data => Ok(Self::Data),
                Parsed::StartTls => Ok(Self::StartTls),
                Parsed::Rset => Ok(Self::Rset),
                Parsed::Noop { .. } => Ok(Self::Noop),
                Parsed::Help { .. } => Ok(Self::Help),
                Parsed::Vrfy { .. } => Ok(Self::Verify),
                Parsed::Expn { .. } => Ok(Self::Expand),
                Parsed::Quit => Ok(Self::Quit),
                Parsed::Bdat { .. } => Ok(Self::NotSafe),
                Parsed::Auth { .. }
                | Parsed::Lhlo { .. }
                | Parsed::Etrn { .. }
                | Parsed::Atrn { .. }
                | Parsed::Burl { .. }
                | Parsed::Mail { .. }
                | Parsed::Rcpt { .. } => Ok(Self::NotOffered),
            },
        }
    }

    /// The name in EHLO or HELO becomes part of trace fields. So it may contain only the characters of host names and
    /// address literals, and underscores, which some clients use.
    fn hello(name: &str, extended: bool) -> Result<Self, Reply> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if name.len() > MAX_EHLO || !name.bytes().all(is_valid) {
            return Err(Reply::new(501, "5.5.4", "the name is not a host name or an address literal"));
        }
        Ok(Self::Hello { name: name.to_owned(), extended })
    }
}

fn parse_mail(argument: &str) -> Result<Command, Reply> {
    let path = after_keyword(argument, "FROM:").ok_or_else(|| Reply::new(501, "5.5.4", "expected MAIL FROM:<path>"))?;
    let invalid = || Reply::new(501, "5.1.7", "the sender is not an address");
    let (from, parameters) = parse_path(path).filter(|(from, _)| *from != Path::Postmaster).ok_or_else(invalid)?;
    let Parsed::Mail { from: parsed } = parse_line(&format!("MAIL FROM:<>{parameters}"))? else {
        return Err(invalid());
    };
    let (flags, size) = (parsed.flags, parsed.size);
    let offered = MailFrom { flags: 0, size: 0, ..parsed } == MailFrom::default();
    if !offered || flags & !(MAIL_BODY_7BIT | MAIL_BODY_8BITMIME | MAIL_SMTPUTF8) != 0 {
        return Err(Reply::new(555, "5.5.4", "the server does not offer a parameter"));
    }
    Ok(Command::Mail { from, size: u64::try_from(size).unwrap_or(u64::MAX), utf8: flags & MAIL_SMTPUTF8 != 0 })
}

fn parse_rcpt(argument: &str) -> Result<Command, Reply> {
    let path = after_keyword(argument, "TO:").ok_or_else(|| Reply::new(501, "5.5.4", "expected RCPT TO:<path>"))?;
    let invalid = || Reply::new(501, "5.1.3", "the recipient is not an address");
    let (to, parameters) = parse_path(path).filter(|(to, _)| *to != Path::Null).ok_or_else(invalid)?;
    let Parsed::Rcpt { to: parsed } = parse_line(&format!("RCPT TO:<postmaster>{parameters}"))? else {
        return Err(invalid());
    };
    if parsed != RcptTo::default() {
        return Err(Reply::new(555, "5.5.4", "the server does not offer a parameter"));
    }
    Ok(Command::Rcpt(to))
}

/// Returns the text after a keyword, whose case is ignored. Spaces before the path are invalid but common.
fn after_keyword<'a>(argument: &'a str, keyword: &str) -> Option<&'a str> {
    let argument = argument.trim_start();
    let found = argument.get(..keyword.len())?.eq_ignore_ascii_case(keyword);
    found.then(|| argument.get(keyword.len()..))?.map(str::trim_start)
}

/// Returns the path, and the text with the parameters, which begins with a space.
fn parse_path(text: &str) -> Option<(Path, &str)> {
    Path::parse(text).filter(|(_, parameters)| parameters.is_empty() || parameters.starts_with(' '))
}

fn parse_line(text: &str) -> Result<Parsed<String>, Reply> {
    let line = format!("{text}\r\n");
    Parsed::parse(&mut line.as_bytes().iter()).map(Parsed::into_owned).map_err(|error| match error {
        Error::UnsupportedParameter { .. } => Reply::new(555, "5.5.4", "the server does not offer a parameter"),
        Error::InvalidParameter { .. } => Reply::new(501, "5.5.4", "a parameter is malformed"),
        Error::SyntaxError { .. } => Reply::new(501, "5.5.4", "the argument is malformed"),
        _ => Reply::new(500, "5.5.1", "unknown command"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, u16> {
        Command::parse(line.as_bytes()).map_err(|reply| reply.code)
    }

    fn mailbox(text: &str) -> Path {
        Path::parse(text).unwrap().0
    }

    #[test]
    fn commands_are_parsed_in_any_case() {
        let hello = |name: &str, extended| Command::Hello { name: name.to_owned(), extended };
        for (line, command) in [
            ("EHLO client.example", hello("client.example", true)),
            ("ehlo [IPv6:2001:db8::1]", hello("[IPv6:2001:db8::1]", true)),
            ("HELO my_pc", hello("my_pc", false)),
            ("MAIL FROM:<>", Command::Mail { from: Path::Null, size: 0, utf8: false }),
            (
                "mail from: <a@b.example> SIZE=100 BODY=8BITMIME SMTPUTF8",
                Command::Mail { from: mailbox("<a@b.example>"), size: 100, utf8: true },
            ),
            ("RCPT TO:<a@b.example>", Command::Rcpt(mailbox("<a@b.example>"))),
            ("RCPT TO:<a@[192.0.2.1]> ", Command::Rcpt(mailbox("<a@[192.0.2.1]>"))),
            (r#"rcpt to:<"a> b"@b.example>"#, Command::Rcpt(mailbox(r#"<"a> b"@b.example>"#))),
            ("RCPT TO:<Postmaster>", Command::Rcpt(Path::Postmaster)),
            ("data", Command::Data),
            ("STARTTLS", Command::StartTls),
            ("RSET ", Command::Rset),
            ("NOOP", Command::Noop),
            ("NOOP x", Command::Noop),
            ("HELP", Command::Help),
            ("VRFY a", Command::Verify),
            ("EXPN a", Command::Expand),
            ("QUIT", Command::Quit),
            ("AUTH PLAIN AGEAYg==", Command::NotOffered),
            ("ETRN x", Command::NotOffered),
            ("LHLO x", Command::NotOffered),
            ("BDAT 10 LAST", Command::NotSafe),
            ("GET / HTTP/1.1", Command::NotSafe),
        ] {
            assert_eq!(parse(line), Ok(command), "{line}");
        }
    }

    #[test]
    fn malformed_commands_are_rejected() {
        for (line, code) in [
            ("", 500),
            (" NOOP", 500),
            ("FOO", 500),
            ("DATAX", 500),
            ("MAILFROM:<>", 500),
            ("NOOP \0", 500),
            ("NOOP\t", 500),
            ("EHLO", 501),
            ("EHLO a;spf=pass", 501),
            ("EHLO a(b)", 501),
            ("EHLO ü.example", 501),
            ("DATA x", 501),
            ("STARTTLS x", 501),
            ("QUIT x", 501),
            ("MAIL <a@b.example>", 501),
            ("MAIL FROM:a@b.example", 501),
            ("MAIL FROM:<Postmaster>", 501),
            ("MAIL FROM:<a@b.example>SIZE=1", 501),
            ("MAIL FROM:<a@b.example> SIZE=x", 501),
            ("MAIL FROM:<a@b.example> BODY=x", 501),
            ("MAIL FROM:<a@b.example> BODY=BINARYMIME", 555),
            ("MAIL FROM:<a@b.example> AUTH=<>", 555),
            ("MAIL FROM:<a@b.example> RET=FULL", 555),
            ("MAIL FROM:<a@b.example> REQUIRETLS", 555),
            ("MAIL FROM:<a@b.example> X=1", 555),
            ("RCPT TO:<>", 501),
            ("RCPT TO:<a@b.example> <c@d.example>", 501),
            ("RCPT TO:<a@b.example> NOTIFY=NEVER", 555),
            ("RCPT TO:<a@b.example> ORCPT=rfc822;a@b.example", 555),
            ("RCPT FROM:<a@b.example>", 501),
        ] {
            assert_eq!(parse(line), Err(code), "{line}");
        }
        assert_eq!(Command::parse(b"NOOP \xff").unwrap_err().code, 500);
    }
}
