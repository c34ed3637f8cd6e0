//! DNS lookups for the ownership verification of hostnames, for the delegations of zones, and for the CAA records and
//! addresses of names that need certificates.
//!
//! Each lookup has its own sockets, and uses no cache, hosts file or search list. So a new record is visible
//! immediately. A lookup uses one socket, for UDP or TCP. The TCP socket may stay open next to a UDP socket while the
//! lookup follows an alias. If the system configures several name servers, the lookup queries two of them concurrently,
//! each over its own socket. All sockets are closed when the lookup ends. At most [`MAX_CONCURRENT_LOOKUPS`] lookups
//! run concurrently. Others wait, and the wait counts towards their timeout.
//!
//! The name server is trusted, so responses are not validated with DNSSEC.

mod single_query;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::TXT;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::sync::Semaphore;

use single_query::SingleQueryProvider;

/// The maximum number of concurrent lookups.
const MAX_CONCURRENT_LOOKUPS: usize = 128;
/// The maximum number of TXT records that are returned, and the maximum size of each in bytes.
const MAX_TEXTS: usize = 20;
const MAX_TEXT_BYTES: usize = 512;

/// A client of a recursive name server. Clones share the concurrency limit.
#[derive(Debug, Clone)]
pub struct Resolver {
    config: ResolverConfig,
    permits: Arc<Semaphore>,
}

/// The reason why a resolver cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("the system configuration has no name server: {0}")]
pub struct InvalidResolver(String);

/// A CAA record (RFC 8659).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaaRecord {
    /// Whether an authority must understand the tag.
    pub critical: bool,
    pub tag: String,
    /// The value. Invalid UTF-8 and control characters become U+FFFD.
    pub value: String,
}

/// An error of a lookup. A name without records of the requested type is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name is too long, or has characters other than letters, digits, hyphens and underscores. No query was sent.
    #[error("the name is not a valid hostname")]
    InvalidName,
    /// NXDOMAIN for the name, or for the target of its alias.
    #[error("the name does not exist")]
    NoSuchName,
    /// REFUSED or NOTAUTH: the name server does not serve this client.
    #[error("the name server refused the query")]
    Refused,
    /// SERVFAIL or another error code. The usual cause is that the domain's name servers or its DNSSEC are broken.
    #[error("the name server failed to resolve the name")]
    ServerFailure,
    /// No response. UDP does not reveal whether a name server is listening.
    #[error("the name server did not respond in time")]
    Timeout,
    /// The name server is unreachable. This may be only over TCP, which a long response requires.
    #[error("the name server is unreachable")]
    Unreachable,
    /// The response is not valid DNS. Responses to other queries are ignored.
    #[error("the name server sent an invalid response")]
    Malformed,
}

impl LookupError {
    /// Returns whether a retry may succeed, because the error is not about the name.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        !matches!(self, Self::InvalidName | Self::NoSuchName)
    }
}

impl Resolver {
    /// Creates a resolver for this name server, or for those of the system configuration.
    ///
    /// # Errors
    /// Returns an error if `server` is `None` and the system has no name server.
    pub fn new(server: Option<SocketAddr>) -> Result<Self, InvalidResolver> {
        let servers = match server {
            Some(server) => vec![name_server(server)],
            None => read_system_conf().map_err(|error| InvalidResolver(error.to_string()))?.0.into_parts().2,
        };
        let config = ResolverConfig::from_name_servers(servers);
        Ok(Self { config, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)) })
    }

    /// Returns the TXT records of the name, or of the target of its alias, in any order: at most 20. The strings of a
    /// record are joined, invalid UTF-8 and control characters become U+FFFD, and the text is truncated to 512 bytes.
    /// Returns an empty list if the name exists but has no TXT records.
    ///
    /// `name` is absolute, with or without the trailing dot, and in ASCII (Punycode).
    pub async fn txt(&self, name: &str, timeout: Duration) -> Result<Vec<String>, LookupError> {
        let name = absolute(name)?;
        let records = self.lookup(&name, RecordType::TXT, timeout).await?;
        let name = canonical_name(&name, &records);
        let texts = records.iter().filter(|record| record.name == *name).filter_map(|record| match &record.data {
            RData::TXT(txt) => Some(joined_text(txt)),
            _ => None,
        });
        Ok(texts.take(MAX_TEXTS).collect())
    }

    /// Returns the target of the name's CNAME record, in lower case and without the trailing dot. The target may not
    /// exist. Returns `None` if the name exists but is not an alias.
    pub async fn cname(&self, name: &str, timeout: Duration) -> Result<Option<String>, LookupError> {
        let name = absolute(name)?;
        let records = self.lookup(&name, RecordType::CNAME, timeout).await?;
        Ok(cname_target(&name, &records).map(target_text))
    }

    /// Returns the targets of the name's NS records, in lower case and without the trailing dot, in any order. Does not
    /// follow an alias. Returns an empty list if the name exists but has no NS records.
    ///
    /// A recursive name server returns the records of the zone itself. For a delegation to name servers that do not
    /// serve the zone, it returns [`LookupError::ServerFailure`].
    pub async fn ns(&self, name: &str, timeout: Duration) -> Result<Vec<String>, LookupError> {
        let name = absolute(name)?;
        let records = self.lookup(&name, RecordType::NS, timeout).await?;
        let targets = records.iter().filter(|record| record.name == name).filter_map(|record| match &record.data {
            RData::NS(target) => Some(target_text(&target.0)),
            _ => None,
        });
        Ok(targets.collect())
    }

    /// Returns the CAA records of the name, or of the target of its alias, in any order. Returns an empty list if the
    /// name exists but has no CAA records.
    pub async fn caa(&self, name: &str, timeout: Duration) -> Result<Vec<CaaRecord>, LookupError> {
        let name = absolute(name)?;
        let records = self.lookup(&name, RecordType::CAA, timeout).await?;
        let name = canonical_name(&name, &records);
        let found = records.iter().filter(|record| record.name == *name).filter_map(|record| match &record.data {
            RData::CAA(caa) => Some(CaaRecord {
                critical: caa.issuer_critical,
                tag: caa.tag.clone(),
                value: replace_control_characters(&caa.value),
            }),
            _ => None,
        });
        Ok(found.collect())
    }

    /// Returns whether the name, or the target of its alias, has an A or AAAA record. The timeout is that of each of the
    /// two concurrent lookups.
    pub async fn has_address(&self, name: &str, timeout: Duration) -> Result<bool, LookupError> {
        let name = absolute(name)?;
        let (a, aaaa) =
            tokio::join!(self.lookup(&name, RecordType::A, timeout), self.lookup(&name, RecordType::AAAA, timeout));
        let is_address = |record: &Record| matches!(record.data, RData::A(_) | RData::AAAA(_));
        Ok(a?.iter().any(is_address) || aaaa?.iter().any(is_address))
    }

    /// Returns all records of the response. The caller must compare their names with the queried name.
    async fn lookup(&self, name: &Name, kind: RecordType, timeout: Duration) -> Result<Vec<Record>, LookupError> {
        let lookup = async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await.ok();
            let client = self.client(timeout / 2)?;
            client.lookup(name.clone(), kind).await
        };
        match tokio::time::timeout(timeout, lookup).await {
            Ok(Ok(lookup)) => Ok(lookup.answers().to_vec()),
            Ok(Err(error)) => map_no_records(&error),
            Err(_) => Err(LookupError::Timeout),
        }
    }

    /// Creates a client for one lookup with two attempts.
    fn client(&self, attempt_timeout: Duration) -> Result<hickory_resolver::Resolver<SingleQueryProvider>, NetError> {
        let mut builder =
            hickory_resolver::Resolver::builder_with_config(self.config.clone(), SingleQueryProvider::default());
        let options = builder.options_mut();
        options.timeout = attempt_timeout;
        // One retry, so two attempts in total.
        options.attempts = 1;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        builder.build()
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Parses an absolute name. Rejects the root and characters that a master file escapes.
fn absolute(name: &str) -> Result<Name, LookupError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty()
        || name.ends_with('.')
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        return Err(LookupError::InvalidName);
    }
    let mut name = Name::from_ascii(name).map_err(|_| LookupError::InvalidName)?;
    name.set_fqdn(true);
    Ok(name)
}

/// Returns the name at the end of the chain of aliases that begins at a name.
fn canonical_name<'a>(name: &'a Name, records: &'a [Record]) -> &'a Name {
    // The number of records bounds the chain, because aliases can be circular.
    let aliases = std::iter::successors(Some(name), |alias| cname_target(alias, records));
    aliases.take(records.len() + 1).last().unwrap_or(name)
}

fn cname_target<'a>(name: &Name, records: &'a [Record]) -> Option<&'a Name> {
    records.iter().filter(|record| record.name == *name).find_map(|record| match &record.data {
        RData::CNAME(target) => Some(&target.0),
        _ => None,
    })
}

fn target_text(target: &Name) -> String {
    let target = target.to_lowercase().to_ascii();
    target.strip_suffix('.').unwrap_or(&target).to_owned()
}

fn joined_text(txt: &TXT) -> String {
    let mut text = replace_control_characters(&txt.txt_data.concat());
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

/// Returns the text of a record, which may contain any bytes. Postgres, for example, cannot store U+0000.
fn replace_control_characters(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
}

/// Maps a response without records to an empty list or an error.
fn map_no_records(error: &NetError) -> Result<Vec<Record>, LookupError> {
    let code = match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => none.response_code,
        NetError::Dns(DnsError::ResponseCode(code)) => *code,
        NetError::Timeout => return Err(LookupError::Timeout),
        // hickory returns `Truncated` if the retry over TCP fails.
        NetError::Io(_) | NetError::NoConnections | NetError::Busy | NetError::Truncated => {
            return Err(LookupError::Unreachable);
        }
        _ => return Err(LookupError::Malformed),
    };
    match code {
        ResponseCode::NoError => Ok(Vec::new()),
        ResponseCode::NXDomain => Err(LookupError::NoSuchName),
        ResponseCode::Refused | ResponseCode::NotAuth => Err(LookupError::Refused),
        _ => Err(LookupError::ServerFailure),
    }
}
