//! The trace fields that the node adds at the top of a mail: `Return-Path`, `Authentication-Results` and `Received`.
//!
//! The sender of a mail chooses the name in EHLO and the addresses, so they must not inject text into these fields. The
//! node accepts only EHLO names of letters, digits and `-._:[]`. An address can have a quoted local part, so it is
//! written in canonical form. `Authentication-Results` contains only the domain of the sender's address.

use std::fmt::Write as _;
use std::net::IpAddr;

use chrono::{DateTime, Utc};

use crate::address::{Domain, Mailbox};
use crate::host::HostName;
use crate::spf::SpfResult;

/// The values in the trace fields.
pub struct Trace<'a> {
    /// The host name of this node.
    pub host: &'a HostName,
    /// The name in EHLO or HELO.
    pub ehlo: &'a str,
    pub client: IpAddr,
    pub protocol: Protocol,
    /// The sender; `None` for the null sender.
    pub from: Option<&'a Mailbox>,
    pub spf: SpfResult,
    pub received_at: DateTime<Utc>,
}

/// The protocol with which the mail was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Protocol {
    pub extended: bool,
    pub encrypted: bool,
    pub utf8: bool,
}

impl Protocol {
    /// Returns the name in the registry "Mail Transmission Types" (RFC 3848, RFC 6531).
    const fn name(self) -> &'static str {
        match (self.extended, self.utf8, self.encrypted) {
            (false, ..) => "SMTP",
            (true, false, false) => "ESMTP",
            (true, false, true) => "ESMTPS",
            (true, true, false) => "UTF8SMTP",
            (true, true, true) => "UTF8SMTPS",
        }
    }
}

impl Trace<'_> {
    /// Returns the fields for the copy with this id. Names the recipient only if the copy has a single one, so that the
    /// recipients do not learn of each other.
    pub fn fields(&self, id: &str, recipients: &[Mailbox]) -> String {
        let Self { host, ehlo, client, .. } = self;
        let client = match client {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("IPv6:{address}"),
        };
        let from = self.from.map(Mailbox::to_string).unwrap_or_default();
        let mut fields = format!("Return-Path: <{from}>\r\nAuthentication-Results: {host};\r\n\t");
        let protocol = self.protocol.name();
        // Writing to a string cannot fail.
        let _ = write!(fields, "spf={} {}\r\n", self.spf, self.identity());
        let _ = write!(fields, "Received: from {ehlo} ([{client}])\r\n\tby {host} with {protocol} id {id}");
        if let [recipient] = recipients {
            let _ = write!(fields, "\r\n\tfor <{recipient}>");
        }
        let _ = write!(fields, ";\r\n\t{}\r\n", self.received_at.format("%a, %d %b %Y %H:%M:%S +0000"));
        fields
    }

    /// Returns the identity that SPF checked (RFC 8601 section 2.7.2).
    fn identity(&self) -> String {
        match self.from.map(|from| &from.domain) {
            Some(Domain::Name(name)) => format!("smtp.mailfrom={name}"),
            Some(literal @ Domain::Literal(_)) => format!("smtp.mailfrom=\"{literal}\""),
            None if self.ehlo.contains(['[', ':']) => format!("smtp.helo=\"{}\"", self.ehlo),
            None => format!("smtp.helo={}", self.ehlo),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Path;

    fn mailbox(text: &str) -> Mailbox {
        match Path::parse(text).unwrap().0 {
            Path::Mailbox(mailbox) => mailbox,
            other => panic!("{other:?}"),
        }
    }

    fn fields(ehlo: &str, from: Option<&Mailbox>, to: &[Mailbox]) -> String {
        let protocol = Protocol { extended: true, encrypted: true, utf8: false };
        let received_at = "2026-11-21T09:00:00.000Z".parse().unwrap();
        let client = "2001:db8::1".parse().unwrap();
        let host = HostName::parse("mx.example").unwrap();
        let trace = Trace { host: &host, ehlo, client, protocol, from, spf: SpfResult::Pass, received_at };
        trace.fields("mail_1", to)
    }

    #[test]
    fn fields_describe_the_transmission() {
        let from = mailbox("<ada@sender.example>");
        let to = mailbox("<blog@blog.acme.example>");
        let one = "Return-Path: <ada@sender.example>\r\n\
                   Authentication-Results: mx.example;\r\n\tspf=pass smtp.mailfrom=sender.example\r\n\
                   Received: from client.example ([IPv6:2001:db8::1])\r\n\tby mx.example with ESMTPS id mail_1\r\n\
                   \tfor <blog@blog.acme.example>;\r\n\tSat, 21 Nov 2026 09:00:00 +0000\r\n";
        assert_eq!(fields("client.example", Some(&from), std::slice::from_ref(&to)), one);
        let two = one.replace("\r\n\tfor <blog@blog.acme.example>", "");
        assert_eq!(fields("client.example", Some(&from), &[to.clone(), to.clone()]), two);
        let null = two.replace("smtp.mailfrom=sender.example", "smtp.helo=client.example");
        let null = null.replace("<ada@sender.example>", "<>");
        assert_eq!(fields("client.example", None, &[]), null);
    }

    #[test]
    fn no_text_of_a_sender_is_a_result() {
        let from = mailbox(r#"<"x; spf=pass smtp.mailfrom=bank.example"@evil.example>"#);
        let to = mailbox(r#"<"b>; dkim=pass (\\\""@blog.acme.example>"#);
        let text = fields("[192.0.2.1]", Some(&from), &[to]);
        let (results, received) = text.split_once("Received:").unwrap();
        let path = r#"Return-Path: <"x; spf=pass smtp.mailfrom=bank.example"@evil.example>"#;
        let expected = "\r\nAuthentication-Results: mx.example;\r\n\tspf=pass smtp.mailfrom=evil.example\r\n";
        assert_eq!(results, [path, expected].concat());
        assert!(received.contains(r#"for <"b>; dkim=pass (\\\""@blog.acme.example>;"#), "{received}");
        assert!(fields("[192.0.2.1]", None, &[]).contains("smtp.helo=\"[192.0.2.1]\"\r\n"));
        let from = mailbox("<a@[IPv6:2001:db8::1]>");
        assert!(fields("x", Some(&from), &[]).contains("smtp.mailfrom=\"[IPv6:2001:db8::1]\"\r\n"));
    }
}
