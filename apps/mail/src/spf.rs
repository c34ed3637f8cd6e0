//! SPF (RFC 7208).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use hickory_resolver::proto::rr::{Name, RData};
use mail_auth::MessageAuthenticator;
use mail_auth::spf::verify::SpfParameters;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::address::Mailbox;
use crate::host::HostName;

const VERSION: &str = "v=spf1";
/// The maximum number of lookups of a check (RFC 7208 section 4.6.4).
const MAX_LOOKUPS: usize = 10;

/// A result of SPF (RFC 7208 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpfResult {
    None,
    Neutral,
    Pass,
    Fail,
    SoftFail,
    TempError,
    PermError,
}

impl SpfResult {
    /// Returns the name of the result in `Authentication-Results`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Neutral => "neutral",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::SoftFail => "softfail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

impl fmt::Display for SpfResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<mail_auth::SpfResult> for SpfResult {
    fn from(result: mail_auth::SpfResult) -> Self {
        match result {
            mail_auth::SpfResult::None => Self::None,
            mail_auth::SpfResult::Neutral => Self::Neutral,
            mail_auth::SpfResult::Pass => Self::Pass,
            mail_auth::SpfResult::Fail => Self::Fail,
            mail_auth::SpfResult::SoftFail => Self::SoftFail,
            mail_auth::SpfResult::TempError => Self::TempError,
            mail_auth::SpfResult::PermError => Self::PermError,
        }
    }
}

/// Checks SPF. Clones share the cache of DNS responses.
#[derive(Clone)]
pub struct Spf {
    authenticator: MessageAuthenticator,
    host: HostName,
    timeout: Duration,
}

impl Spf {
    /// Creates a checker that uses the name server at this address, or the name servers of the system.
    pub fn new(server: Option<SocketAddr>, host: HostName, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self { authenticator: MessageAuthenticator(daemon::resolver(server)?), host, timeout })
    }

    /// Checks whether a client may send mail for the sender's domain. For the null sender, checks the domain in EHLO.
    pub async fn check(&self, client: IpAddr, ehlo: &str, from: Option<&Mailbox>) -> SpfResult {
        let ehlo = HostName::parse(ehlo).map_or_else(|| "unknown".to_owned(), |name| name.to_string());
        let domain = from.map_or_else(|| HostName::parse(&ehlo), |from| from.domain.name().cloned());
        let Some(domain) = domain.filter(HostName::is_qualified) else { return SpfResult::None };
        let local = from.map_or("postmaster", |from| &from.local);
        // A quoted local part can contain `@`, but mail-auth splits the sender at `@` when it expands macros.
        let sender = format!("{}@{domain}", local.replace('@', "_"));
        let (this, mut check) = (self.clone(), JoinSet::new());
        // The check runs in a task, so that a panic in the evaluation of a record ends only this check.
        check.spawn(async move { this.evaluate(client.to_canonical(), &ehlo, &domain, &sender).await });
        match timeout(self.timeout, check.join_next()).await {
            Ok(Some(Ok(result))) => result,
            Ok(Some(Err(error))) => {
                tracing::error!(%error, "an SPF check ended unexpectedly");
                SpfResult::PermError
            }
            Ok(None) | Err(_) => SpfResult::TempError,
        }
    }

    async fn evaluate(&self, client: IpAddr, ehlo: &str, domain: &HostName, sender: &str) -> SpfResult {
        // RFC 7208 sections 4.5 and 4.6 require permerror for several records and for an invalid record. mail-auth
        // deviates: it uses the first valid record of several, reports `none` for an invalid record next to other TXT
        // records, and accepts unknown mechanisms and malformed addresses. So this function checks the records first.
        let records = match self.records(domain.as_str()).await {
            Ok(records) => records,
            Err(result) => return result,
        };
        let record = match records.as_slice() {
            [] => return SpfResult::None,
            [record] if terms(record).all(is_valid_term) => record,
            _ => return SpfResult::PermError,
        };
        let parameters = SpfParameters::verify_mail_from(client, ehlo, self.host.as_str(), sender);
        match self.authenticator.verify_spf(parameters).await.result().into() {
            SpfResult::None => SpfResult::PermError,
            SpfResult::Pass if self.has_misread_term(record).await => SpfResult::Neutral,
            result => result,
        }
    }

    /// Returns whether a record, or a record to which it redirects, has a term that mail-auth misreads.
    async fn has_misread_term(&self, record: &str) -> bool {
        let mut record = record.to_owned();
        for _ in 0..=MAX_LOOKUPS {
            if terms(&record).any(is_misread) {
                return true;
            }
            let Some(target) = redirect(&record) else { return false };
            let Some(next) = self.records(target).await.unwrap_or_default().into_iter().next() else { return false };
            record = next;
        }
        false
    }

    /// Returns the domain's SPF records.
    async fn records(&self, domain: &str) -> Result<Vec<String>, SpfResult> {
        let mut name = Name::from_ascii(domain).map_err(|_| SpfResult::None)?;
        name.set_fqdn(true);
        let found = match self.authenticator.resolver().txt_lookup(name).await {
            Ok(found) => found,
            Err(error) if error.is_no_records_found() => return Ok(Vec::new()),
            Err(error) => {
                tracing::debug!(%error, %domain, "failed to look up an SPF record");
                return Err(SpfResult::TempError);
            }
        };
        Ok(found.answers().iter().filter_map(|record| spf_record(&record.data)).collect())
    }
}

/// Returns the text of a TXT record that is an SPF record.
fn spf_record(data: &RData) -> Option<String> {
    let RData::TXT(txt) = data else { return None };
    let text: Vec<u8> = txt.txt_data.iter().flatten().copied().collect();
    let text = String::from_utf8_lossy(&text).into_owned();
    let (version, rest) = text.split_at_checked(VERSION.len())?;
    (version.eq_ignore_ascii_case(VERSION) && (rest.is_empty() || rest.starts_with(' '))).then_some(text)
}

/// Returns the terms of a record.
fn terms(record: &str) -> impl Iterator<Item = &str> {
    record.split(' ').skip(1).filter(|term| !term.is_empty())
}

/// Returns whether mail-auth can misread a term. It ignores the qualifier of an include whose record passes because of
/// another include. It reads `a=` and `mx=` as mechanisms, but they are unknown modifiers (RFC 7208 section 6).
fn is_misread(term: &str) -> bool {
    let term = term.to_ascii_lowercase();
    let name = term.trim_start_matches(['+', '-', '~', '?']);
    name.starts_with("a=")
        || name.starts_with("mx=")
        || name.starts_with("include:") && term.starts_with(['-', '~', '?'])
}

/// Returns the domain to which a record redirects. Returns `None` if the record has `all`, which ends the evaluation
/// (RFC 7208 section 6.1), or if the domain contains a macro.
fn redirect(record: &str) -> Option<&str> {
    if terms(record).any(|term| term.trim_start_matches(['+', '-', '~', '?']).eq_ignore_ascii_case("all")) {
        return None;
    }
    let mut modifiers = terms(record).filter_map(|term| term.split_once('='));
    let (_, target) = modifiers.find(|(name, _)| name.eq_ignore_ascii_case("redirect"))?;
    (!target.contains('%')).then_some(target)
}

/// Returns whether a term of a record is a modifier, or a known mechanism with a valid address.
fn is_valid_term(term: &str) -> bool {
    let (name, rest) = term.split_at(term.find([':', '/', '=']).unwrap_or(term.len()));
    let name = name.trim_start_matches(['+', '-', '~', '?']).to_ascii_lowercase();
    match name.as_str() {
        _ if rest.starts_with('=') => true,
        "ip4" => is_network::<Ipv4Addr>(rest, 32),
        "ip6" => is_network::<Ipv6Addr>(rest, 128),
        "all" | "include" | "a" | "mx" | "ptr" | "exists" => true,
        _ => false,
    }
}

/// Returns whether a text consists of `:` and an address, optionally followed by a prefix length.
fn is_network<A: FromStr>(text: &str, max_prefix: u8) -> bool {
    let network = text.strip_prefix(':').unwrap_or_default();
    let (address, prefix) = network.split_once('/').unwrap_or((network, "0"));
    address.parse::<A>().is_ok() && prefix.parse::<u8>().is_ok_and(|prefix| prefix <= max_prefix)
}
