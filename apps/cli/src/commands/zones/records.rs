//! `svc zones records`: the records of a zone.

use client::Client;
use client::types::{DnsPutHeaders, DnsRemoveHeaders, ManagedBy, RRset, RrsetContent};

use crate::error::CliError;
use crate::output::{or_dash, table};
use crate::svc::Svc;

const HEAD: [&str; 5] = ["NAME", "TYPE", "TTL", "RECORD", "MANAGED BY"];

#[derive(clap::Subcommand)]
pub enum Records {
    /// List the records of a zone
    List { zone: String },
    /// Set all records of a name and a type. They replace the existing ones of this type
    Set(Set),
    /// Delete all records of a name and a type
    Delete {
        zone: String,
        /// The name within the zone, or @ for the zone itself
        name: String,
        /// Such as A or TXT
        r#type: String,
    },
}

#[derive(clap::Args)]
pub struct Set {
    zone: String,
    /// The name within the zone, or @ for the zone itself
    name: String,
    /// Such as A or TXT
    r#type: String,
    /// The records as in a zone file, such as "10 mail" for the type MX. A TXT record without quotation marks is one
    /// string
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<String>,
    /// How long resolvers may cache the records, in seconds (default: 300)
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<i32>,
}

impl Records {
    pub async fn run(self, svc: &Svc<'_>, (client, org): (&Client, &str)) -> Result<(), CliError> {
        match self {
            Self::List { zone } => {
                let zone = client.dns_get(org, &zone).send().await?;
                svc.out.response(&zone, |zone| list(&zone.rrsets))
            }
            Self::Set(Set { zone, name, r#type, records, ttl }) => {
                let kind = r#type.to_uppercase();
                let records = if kind == "TXT" { records.into_iter().map(quoted).collect() } else { records };
                let content = RrsetContent { records, ttl };
                let set = client.dns_put(org, &zone, &name, &kind, &DnsPutHeaders::default(), &content).send().await?;
                svc.out.response(&set, |set| list(std::slice::from_ref(set)))
            }
            Self::Delete { zone, name, r#type } => {
                let kind = r#type.to_uppercase();
                let deleted = client.dns_remove(org, &zone, &name, &kind, &DnsRemoveHeaders::default()).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {name} {kind}"))
            }
        }
    }
}

/// Returns a TXT record as one string, unless it has quotation marks. In a zone file, its words would be several
/// strings, which receivers join without the spaces.
fn quoted(record: String) -> String {
    if record.contains('"') { record } else { format!("\"{record}\"") }
}

/// Formats rrsets, one line for each record.
fn list(rrsets: &[RRset]) -> String {
    table(HEAD, rrsets.iter().flat_map(rows))
}

/// Returns the lines of an rrset.
pub fn rows(rrset: &RRset) -> impl Iterator<Item = [String; 5]> {
    let RRset { name, r#type, ttl, records, managed_by } = rrset;
    records.iter().map(move |record| {
        let managed_by = or_dash(managed_by.as_ref().map(ManagedBy::as_str));
        [name.clone(), r#type.to_string(), ttl.to_string(), record.clone(), managed_by]
    })
}
