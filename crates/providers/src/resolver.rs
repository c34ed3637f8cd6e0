//! Look-ups for proofs that somebody owns a host name.
//!
//! Each is made anew: no cache, no hosts file, no search list and no connection of the look-up before, so that a record
//! counts as soon as the name server tells it. A look-up holds one socket, of UDP or then of TCP, which may stay open
//! beside UDP while an alias is followed; where the system names several name servers, two are asked at once, each over
//! its own. All are given back when the look-up ends, however it ends. [`LOOKUPS`] are made at once and the others
//! wait, which their patience pays for.
//!
//! The name server is believed: what it says is not proven by DNSSEC here.

mod once;

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
use tokio::time::timeout;

use once::AskedOnce;

/// Look-ups that are made at the same time.
const LOOKUPS: usize = 128;
/// Records of a name that are told, and bytes of each.
const TEXTS: usize = 20;
const TEXT: usize = 512;

/// Asks a recursive name server. Clones share their turns.
#[derive(Debug, Clone)]
pub struct Resolver {
    config: ResolverConfig,
    turns: Arc<Semaphore>,
}

/// Why there is no resolver.
#[derive(Debug, thiserror::Error)]
#[error("the system's configuration names no name server: {0}")]
pub struct InvalidResolver(String);

/// Why nothing is known, or that there is nothing to know. A name that exists without such a record is no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Too long, or of other characters than letters, digits, hyphens and underscores; nobody was asked.
    #[error("the name is not a host name")]
    InvalidName,
    /// NXDOMAIN, of the name or of what it is an alias of.
    #[error("the name does not exist")]
    NoSuchName,
    /// REFUSED or NOTAUTH: the name server does not work for us.
    #[error("the name server refused to answer")]
    Refused,
    /// SERVFAIL and its like. Mostly it is the domain's own name servers, or its DNSSEC, that are broken.
    #[error("the name server failed to find an answer")]
    ServerFailure,
    /// Also where nobody listens, since UDP does not tell.
    #[error("the name server did not answer in time")]
    Timeout,
    /// No way to it, or none over TCP, which a long answer needs.
    #[error("the name server cannot be reached")]
    Unreachable,
    /// It is no DNS. What does not answer the question that was asked is not looked at.
    #[error("the name server's answer cannot be understood")]
    Malformed,
}

impl LookupError {
    /// Whether this says nothing about the name: the same look-up may have an answer later.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        !matches!(self, Self::InvalidName | Self::NoSuchName)
    }
}

impl Resolver {
    /// Asks this name server, or those that the system's configuration names now.
    ///
    /// # Errors
    /// No name server was given and the system has none either.
    pub fn new(server: Option<SocketAddr>) -> Result<Self, InvalidResolver> {
        let servers = match server {
            Some(server) => vec![name_server(server)],
            None => read_system_conf().map_err(|error| InvalidResolver(error.to_string()))?.0.into_parts().2,
        };
        let config = ResolverConfig::from_name_servers(servers);
        Ok(Self { config, turns: Arc::new(Semaphore::new(LOOKUPS)) })
    }

    /// The name's TXT records, or those of what it is an alias of: of each the strings joined, with U+FFFD for what is
    /// no UTF-8, cut after 512 bytes; 20 of them at most, in no order. Empty when the name exists and has none.
    ///
    /// The name is absolute, with or without its last dot, and IDNA is behind it already.
    ///
    /// # Errors
    /// There is no such name, or no answer within this patience.
    pub async fn txt(&self, name: &str, patience: Duration) -> Result<Vec<String>, LookupError> {
        let mut name = absolute(name)?;
        let records = self.lookup(&name, RecordType::TXT, patience).await?;
        // As often as there are records: an alias may lead back to itself.
        for _ in &records {
            match alias(&name, &records) {
                Some(target) => name = target.clone(),
                None => break,
            }
        }
        let texts = records.iter().filter(|record| record.name == name).filter_map(|record| match &record.data {
            RData::TXT(txt) => Some(text(txt)),
            _ => None,
        });
        Ok(texts.take(TEXTS).collect())
    }

    /// What the name itself is an alias of, in small letters and without the last dot; whether that exists is not
    /// asked. None when the name exists and is no alias.
    ///
    /// # Errors
    /// Those of [`Resolver::txt`].
    pub async fn cname(&self, name: &str, patience: Duration) -> Result<Option<String>, LookupError> {
        let name = absolute(name)?;
        let records = self.lookup(&name, RecordType::CNAME, patience).await?;
        Ok(alias(&name, &records).map(|target| {
            let target = target.to_lowercase().to_ascii();
            target.strip_suffix('.').unwrap_or(&target).to_owned()
        }))
    }

    /// The answer's records, whose names are still to be compared.
    async fn lookup(&self, name: &Name, kind: RecordType, patience: Duration) -> Result<Vec<Record>, LookupError> {
        let lookup = async {
            // They are never closed.
            let _turn = self.turns.acquire().await.ok();
            let client = self.client(patience / 2)?;
            client.lookup(name.clone(), kind).await
        };
        match timeout(patience, lookup).await {
            Ok(Ok(lookup)) => Ok(lookup.answers().to_vec()),
            Ok(Err(error)) => negative(&error),
            Err(_) => Err(LookupError::Timeout),
        }
    }

    /// A client for one look-up, which asks twice.
    fn client(&self, attempt: Duration) -> Result<hickory_resolver::Resolver<AskedOnce>, NetError> {
        let mut builder = hickory_resolver::Resolver::builder_with_config(self.config.clone(), AskedOnce::default());
        let options = builder.options_mut();
        options.timeout = attempt;
        // Beside the first.
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

/// Not every name that DNS can hold: neither the root nor what a master file escapes.
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

fn alias<'a>(name: &Name, records: &'a [Record]) -> Option<&'a Name> {
    records.iter().filter(|record| record.name == *name).find_map(|record| match &record.data {
        RData::CNAME(target) => Some(&target.0),
        _ => None,
    })
}

fn text(txt: &TXT) -> String {
    let mut text = String::from_utf8_lossy(&txt.txt_data.concat()).into_owned();
    text.truncate(text.floor_char_boundary(TEXT));
    text
}

/// What there is to say when there are no records.
fn negative(error: &NetError) -> Result<Vec<Record>, LookupError> {
    let code = match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => none.response_code,
        NetError::Dns(DnsError::ResponseCode(code)) => *code,
        NetError::Timeout => return Err(LookupError::Timeout),
        // Truncated is what is left when the attempt over TCP had no answer.
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
