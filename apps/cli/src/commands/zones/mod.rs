//! `svc zones`: the DNS zones of an organization.

mod dnssec;
mod records;
mod zone_file;

use std::collections::BTreeSet;

use client::Client;
use client::types::{DnsDeleteHeaders, DomainState, ManagedBy, NewZone, Zone, ZoneDetail};

use self::dnssec::Dnssec;
use self::records::Records;
use self::zone_file::Import;
use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{bytes, fields};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Zones {
    /// List the zones of an organization by name
    List(PageArgs),
    /// Create a zone, or show the existing one. If another organization has it, prints the TXT record that takes it over
    Create { zone: String },
    /// Show a zone
    Show { zone: String },
    /// Delete a zone with all of its records
    Delete {
        zone: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Manage the records of a zone
    #[command(subcommand)]
    Records(Records),
    /// Print a zone as a zone file (RFC 1035)
    Export { zone: String },
    /// Replace the records of a zone with those of a zone file
    Import(Import),
    /// Manage the signing of a zone
    #[command(subcommand)]
    Dnssec(Dnssec),
}

impl Zones {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let org = svc.org()?;
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.dns_list(&org, &page.paging()).send().await?;
                svc.out.page(&page, ["NAME", "RRSETS", "SIZE", "DNSSEC", "SERIAL"], row)
            }
            Self::Create { zone } => {
                let zone = client.dns_create(&org, &NewZone { name: zone }).send().await?;
                svc.out.response(&zone, show)?;
                svc.out
                    .info("Set these nameservers at the registrar of the domain. Then its records are managed here.");
                Ok(())
            }
            Self::Show { zone } => svc.out.response(&client.dns_get(&org, &zone).send().await?, show),
            Self::Delete { zone, yes } => {
                if !yes {
                    warn_of_uses(svc, (&client, &org), &zone).await?;
                }
                prompt::require_yes(yes, &format!("Delete the zone {zone} and all of its records?"), "deleted")?;
                let deleted = client.dns_delete(&org, &zone, &DnsDeleteHeaders::default()).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {zone}"))
            }
            Self::Records(records) => records.run(svc, (&client, &org)).await,
            Self::Export { zone } => zone_file::export((&client, &org), &zone).await,
            Self::Import(import) => import.run(svc, (&client, &org)).await,
            Self::Dnssec(dnssec) => dnssec.run(svc, (&client, &org)).await,
        }
    }
}

/// Prints warnings about the hostnames and the domain that need a zone.
async fn warn_of_uses(svc: &Svc<'_>, (client, org): (&Client, &str), zone: &str) -> Result<(), CliError> {
    let zone = client.dns_get(org, zone).send().await?;
    let managed = zone.rrsets.iter().filter(|rrset| rrset.managed_by == Some(ManagedBy::Project));
    let hostnames: BTreeSet<&str> = managed.map(|rrset| rrset.name.as_str()).collect();
    for hostname in hostnames {
        svc.out.warn(format!("the zone has the records of {hostname}, a hostname of a project"));
    }
    // The name of a zone need not be that of a domain.
    if let Ok(domain) = client.domains_get(org, &zone.name).send().await
        && matches!(domain.state, DomainState::Active | DomainState::Expired)
    {
        svc.out.warn(format!("{} is registered here, and does not resolve without the zone", domain.name));
    }
    Ok(())
}

fn row(zone: &Zone) -> [String; 5] {
    let Zone { name, rrset_count, bytes: size, dnssec, serial, .. } = zone;
    [name.clone(), rrset_count.to_string(), bytes(*size), dnssec.state.to_string(), serial.to_string()]
}

fn show(zone: &ZoneDetail) -> String {
    let ZoneDetail { name, nameservers, rrset_count, bytes: size, dnssec, serial, created_at, id: _, rrsets: _ } = zone;
    fields(&[
        ["name", name],
        ["nameservers", &nameservers.join(", ")],
        ["rrsets", &rrset_count.to_string()],
        ["size", &bytes(*size)],
        ["DNSSEC", dnssec.state.as_str()],
        ["serial", &serial.to_string()],
        ["created", created_at],
    ])
}
