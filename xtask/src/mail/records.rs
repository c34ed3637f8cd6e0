//! The DNS records of a mail domain.

use std::fmt;

/// The TTL of the records in seconds.
pub const TTL: u32 = 3600;
/// The prefixes by which the purpose of a TXT record is recognized.
const VERSIONS: [&str; 3] = ["v=spf1", "v=DMARC1", "v=DKIM1"];

/// The settings of the installation that the records describe.
pub struct MailDomain {
    /// The parent of the projects' mail domains.
    pub domain: String,
    /// The host name of the mail node.
    pub mx: String,
    /// The SPF mechanisms for the relay, such as `include:amazonses.com`.
    pub spf: Vec<String>,
    /// The selector and the TXT record of the DKIM key.
    pub dkim: Option<(String, String)>,
}

/// The records with one name and one type that the platform needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailRecords {
    /// The absolute name, without the final dot.
    pub name: String,
    pub kind: &'static str,
    /// In presentation format.
    pub records: Vec<String>,
}

impl MailDomain {
    /// Returns the records. A project's mail domain is `<project>.<org>.<domain>`, so wildcards match all of them. The
    /// TXT wildcard contains both the SPF and the DMARC record, because it also matches the name at which receivers
    /// look up the DMARC policy of a project's domain. Receivers ignore the TXT records of other kinds.
    pub fn records(&self) -> Vec<MailRecords> {
        let Self { domain, mx, spf, dkim } = self;
        let txt = |name: String, texts: &[&str]| MailRecords {
            name,
            kind: "TXT",
            records: texts.iter().map(|text| quote(text)).collect(),
        };
        let spf = format!("v=spf1 {} -all", spf.join(" "));
        let dmarc = "v=DMARC1; p=quarantine; adkim=r; aspf=r";
        let mut records = vec![
            MailRecords { name: format!("*.{domain}"), kind: "MX", records: vec![format!("10 {mx}.")] },
            txt(format!("*.{domain}"), &[&spf, dmarc]),
            txt(domain.clone(), &[&spf]),
            txt(format!("_dmarc.{domain}"), &[dmarc]),
        ];
        if let Some((selector, record)) = dkim {
            records.push(txt(format!("{selector}._domainkey.{domain}"), &[record]));
        }
        records
    }
}

impl MailRecords {
    /// Returns the records, and the existing records with the same name and another purpose, such as the TXT record of
    /// another service.
    pub fn merged_with(&self, existing: &[String]) -> Vec<String> {
        let has_purpose = |record: &str, version: &str| record.starts_with(&format!("\"{version}"));
        let is_replaced = |record: &str| {
            let versions = VERSIONS.iter().filter(|version| has_purpose(record, version));
            self.kind != "TXT"
                || versions.into_iter().any(|version| self.records.iter().any(|new| has_purpose(new, version)))
        };
        let others = existing.iter().filter(|record| !is_replaced(record));
        self.records.iter().chain(others).cloned().collect()
    }
}

impl fmt::Display for MailRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, records } = self;
        let lines: Vec<_> = records.iter().map(|record| format!("{name}. {TTL} IN {kind} {record}")).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Returns the presentation format of a TXT record: strings of at most 255 bytes (RFC 1035 section 3.3).
fn quote(text: &str) -> String {
    let characters: Vec<_> = text.chars().collect();
    let strings = characters.chunks(255).map(|string| format!("\"{}\"", string.iter().collect::<String>()));
    strings.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_describe_all_projects() {
        let domain = MailDomain {
            domain: "mail.example.net".to_owned(),
            mx: "mx.example.net".to_owned(),
            spf: vec!["include:relay.example".to_owned(), "ip4:192.0.2.1".to_owned()],
            dkim: Some(("svc".to_owned(), format!("v=DKIM1; k=rsa; p={}", "x".repeat(300)))),
        };
        let text: Vec<_> = domain.records().iter().map(MailRecords::to_string).collect();
        let spf = "\"v=spf1 include:relay.example ip4:192.0.2.1 -all\"";
        let dmarc = "\"v=DMARC1; p=quarantine; adkim=r; aspf=r\"";
        assert_eq!(
            text,
            [
                "*.mail.example.net. 3600 IN MX 10 mx.example.net.".to_owned(),
                format!("*.mail.example.net. 3600 IN TXT {spf}\n*.mail.example.net. 3600 IN TXT {dmarc}"),
                format!("mail.example.net. 3600 IN TXT {spf}"),
                format!("_dmarc.mail.example.net. 3600 IN TXT {dmarc}"),
                format!(
                    "svc._domainkey.mail.example.net. 3600 IN TXT \"v=DKIM1; k=rsa; p={}\" \"{}\"",
                    "x".repeat(237),
                    "x".repeat(63)
                ),
            ]
        );
    }

    #[test]
    fn records_with_another_purpose_stay() {
        let new = |kind, records: &[&str]| MailRecords {
            name: "mail.example.net".to_owned(),
            kind,
            records: records.iter().map(|record| (*record).to_owned()).collect(),
        };
        let existing = ["\"v=spf1 -all\"", "\"site-verification=1\"", "\"v=DMARC1; p=none\""].map(str::to_owned);
        assert_eq!(
            new("TXT", &["\"v=spf1 a -all\""]).merged_with(&existing),
            ["\"v=spf1 a -all\"", "\"site-verification=1\"", "\"v=DMARC1; p=none\""]
        );
        assert_eq!(new("MX", &["10 mx.example."]).merged_with(&["5 old.example.".to_owned()]), ["10 mx.example."]);
    }
}
