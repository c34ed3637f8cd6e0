//! `mail`: prints and writes the DNS records of the mail domain. Like `migrate`, it is also for operators.

mod records;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use clap::Subcommand;
use dns::ZoneRepository as _;
use dns::{Dns, Hosting, LookupFailure, NsRecords, Ports, Precondition, RrsetPatch, RrsetsPatch, TxtRecords, ZoneName};
use kernel::audit::Actor;
use kernel::domain::{Characters, normalize};
use kernel::seal::Keys;
use kernel::{Limits, OrgId, Plan};
use mail::dkim_record;
use orgs::OrgRepository as _;
use serde::Deserialize;
use settings::Secret;
use store::Connection;

use crate::output::{note, out};
use crate::setting::{Database, DatabaseArgs, read_setting};
use records::{MailDomain, MailRecords, TTL};

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// Print the DNS records that the mail domain needs
    ///
    /// Reads SVC_MAIL_DOMAIN, SVC_DKIM_KEY, SVC_DKIM_SELECTOR and SVC_SMTP_URL as the server, and SVC_MX_HOSTNAME as
    /// the mail node.
    DnsRecords {
        /// An SPF mechanism for the relay, such as include:amazonses.com [default: the host of SVC_SMTP_URL,
        /// unless it is local]
        #[arg(long, value_name = "MECHANISM")]
        spf: Vec<String>,
        /// Write the records to this zone, which the installation hosts; needs the database and the settings
        /// SVC_NAMESERVERS, SVC_LIMITS, SVC_DNS_LISTEN and SVC_SEALING_KEYS of the server
        #[arg(long, value_name = "ZONE")]
        apply: Option<String>,
    },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let Command::DnsRecords { spf, apply } = args.command;
    let records = mail_domain(spf)?.records();
    for records in &records {
        out!("{records}")?;
    }
    if let Some(zone) = apply {
        let changes = write(args.database, &zone, &records).await?;
        note!("changed rrsets of {zone}: {changes}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the settings of the installation.
fn mail_domain(mut spf: Vec<String>) -> Result<MailDomain> {
    if spf.is_empty() {
        let url = read_setting::<Secret>("SVC_SMTP_URL")?.context("pass --spf, or set SVC_SMTP_URL")?;
        spf.push(relay_mechanism(url.reveal())?);
    }
    let selector = read_setting::<String>("SVC_DKIM_SELECTOR")?.unwrap_or_else(|| "svc".to_owned());
    let dkim = read_setting::<PathBuf>("SVC_DKIM_KEY")?.map(|path| {
        let pem = std::fs::read_to_string(&path).with_context(|| format!("SVC_DKIM_KEY {}", path.display()))?;
        Ok::<_, anyhow::Error>((selector, dkim_record(&pem).context("SVC_DKIM_KEY")?))
    });
    Ok(MailDomain {
        domain: read_domain("SVC_MAIL_DOMAIN")?,
        mx: read_domain("SVC_MX_HOSTNAME")?,
        spf,
        dkim: dkim.transpose()?,
    })
}

/// Reads the setting with a domain name, and normalizes the name like the server.
fn read_domain(setting: &'static str) -> Result<String> {
    let text = read_setting::<String>(setting)?.with_context(|| format!("set {setting}"))?;
    normalize(&text, Characters::Host)
        .with_context(|| format!("{setting} must be a domain name such as svc.example.org"))
}

/// Returns the SPF mechanism for the host in the URL of a relay. Receivers see the public addresses of a local relay, so
/// its host would be a mechanism that rejects all mail.
fn relay_mechanism(url: &str) -> Result<String> {
    let host = relay_host(url).context("SVC_SMTP_URL has no host: pass --spf")?;
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let (mechanism, is_local) = match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(v4)) => {
            let [first, second, ..] = v4.octets();
            let is_shared = first == 100 && second & 0xc0 == 64;
            let is_local =
                v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified() || is_shared;
            (format!("ip4:{v4}"), is_local)
        }
        Ok(IpAddr::V6(v6)) => {
            let is_local =
                v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_unspecified();
            (format!("ip6:{v6}"), is_local)
        }
        // Only a local resolver knows a name with one label, such as that of a container, or below these domains.
        Err(_) => {
            let is_local =
                !host.contains('.') || matches!(host.rsplit('.').next(), Some("localhost" | "local" | "internal"));
            (format!("a:{host}"), is_local)
        }
    };
    ensure!(!is_local, "SVC_SMTP_URL names a local relay: pass --spf with the mechanism of its public addresses");
    Ok(mechanism)
}

/// Returns the host of a URL, without the brackets of an IPv6 address.
fn relay_host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.split_once(']')?.0,
        None => host.split(':').next()?,
    };
    Some(host).filter(|host| !host.is_empty())
}

/// Reads the limits of the plans from the file of the server, which checks the rest of the file.
fn plan_limits() -> Result<Limits> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct LimitsFile {
        plans: Limits,
    }
    let Some(path) = read_setting::<PathBuf>("SVC_LIMITS")? else { return Ok(Limits::default()) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("SVC_LIMITS {}", path.display()))?;
    let LimitsFile { plans } = toml::from_str(&text).context("SVC_LIMITS")?;
    Ok(plans)
}

/// Writes the records to a hosted zone, as the server does. Returns the number of rrsets that changed.
async fn write(database: Database, zone: &str, records: &[MailRecords]) -> Result<usize> {
    let has_primary = read_setting::<String>("SVC_DNS_LISTEN")?.is_some();
    // The message that notifies the nameservers is sealed.
    let keys = if has_primary { database.keys()? } else { Keys::default() };
    let store = database.store_with(keys).await?;
    let name = ZoneName::parse(zone).with_context(|| format!("{zone} is not a name of a zone"))?;
    let org = store.connection().await?.zone_org(&name).await?;
    let org = org.with_context(|| format!("this installation has no zone {zone}"))?;
    let nameservers = read_setting::<String>("SVC_NAMESERVERS")?.context("set SVC_NAMESERVERS")?;
    let nameservers: Vec<_> = nameservers.split(',').map(|name| name.trim().to_owned()).collect();
    let fallback = read_setting::<String>("SVC_FALLBACK_ORIGIN")?.unwrap_or_default();
    let mut hosting = Hosting::new(&nameservers, &fallback).context("SVC_NAMESERVERS")?;
    hosting.has_primary = has_primary;
    let ports = Ports {
        organizations: Arc::new(OrgsPort),
        resolver: Arc::new(UnusedPorts),
        registrations: Arc::new(UnusedPorts),
        hostnames: Arc::new(UnusedPorts),
    };
    let dns = Dns::new(store, Some(hosting), plan_limits()?, ports);
    let existing = dns.zone(org, zone).await?.collect().await?;
    let patch = |new: &MailRecords| {
        let same = existing.rrsets.iter().find(|it| it.name == new.name && it.kind.to_string() == new.kind);
        let records = new.merged_with(same.map(|it| it.records.as_slice()).unwrap_or_default());
        RrsetPatch { name: format!("{}.", new.name), kind: new.kind.to_owned(), ttl: Some(TTL.into()), records }
    };
    let patch = RrsetsPatch { rrsets: records.iter().map(patch).collect(), dry_run: false };
    // If the zone changed in the meantime, this fails without an effect.
    let serial = Precondition::Serials(vec![existing.zone.serial]);
    let changes =
        dns.rrsets_patch(&Actor::operator("xtask mail dns-records"), (org, zone), patch, &serial).await?.value;
    Ok(changes.added().count() + changes.changed().count())
}

#[derive(Debug)]
struct OrgsPort;

#[async_trait]
impl dns::Organizations for OrgsPort {
    async fn plan(&self, connection: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        Ok(connection.org_find(org).await?.map(|org| org.plan))
    }

    async fn raise(&self, _tx: &mut Connection, _org: OrgId, notice: dns::Notice) -> store::Result<()> {
        Err(store::Error::inconsistent(format!("xtask sends no notifications: {notice:?}")))
    }
}

/// Writing rrsets needs neither the public DNS nor the registry, and creates no zones.
#[derive(Debug)]
struct UnusedPorts;

#[async_trait]
impl dns::Resolver for UnusedPorts {
    async fn ns(&self, names: &[String], _timeout: Duration) -> Vec<NsRecords> {
        names.iter().map(|_| Err(no_lookup())).collect()
    }

    async fn txt(&self, names: &[String], _timeout: Duration) -> Vec<TxtRecords> {
        names.iter().map(|_| Err(no_lookup())).collect()
    }
}

fn no_lookup() -> LookupFailure {
    LookupFailure::Unavailable("xtask looks up no DNS records".to_owned())
}

#[async_trait]
impl dns::Registrations for UnusedPorts {
    async fn is_registered(&self, _connection: &mut Connection, _org: OrgId, _zone: &str) -> store::Result<bool> {
        Ok(false)
    }

    async fn release_imported(&self, _tx: &mut Connection, _org: OrgId, _zone: &str) -> store::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl dns::Hostnames for UnusedPorts {
    async fn zone_created(&self, _tx: &mut Connection, _org: OrgId, name: &str) -> store::Result<()> {
        Err(store::Error::inconsistent(format!("xtask creates no zones: {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_recognized_in_urls() {
        for (url, mechanism) in [
            ("smtps://user:p%40ss@smtp.relay.example:465?tls=required", "a:smtp.relay.example"),
            ("smtp://192.0.2.1", "ip4:192.0.2.1"),
            ("smtp://100.128.0.1", "ip4:100.128.0.1"),
            ("smtp://Relay.example.:25", "a:relay.example"),
            ("smtp://[2001:db8::1]:25/", "ip6:2001:db8::1"),
        ] {
            assert_eq!(relay_mechanism(url).unwrap(), mechanism, "{url}");
        }
        for url in ["smtp://", "smtp://user:hush@:25", "relay"] {
            assert_eq!(relay_mechanism(url).unwrap_err().to_string(), "SVC_SMTP_URL has no host: pass --spf", "{url}");
        }
    }

    #[test]
    fn local_relays_need_a_mechanism() {
        for host in [
            "127.0.0.1",
            "10.0.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[fd00::1]",
            "[fe80::1]",
            "localhost",
            "localhost.",
            "relay.localhost",
            "relay.LOCAL",
            "host.docker.internal",
            "postfix",
        ] {
            let error = relay_mechanism(&format!("smtp://user:hush@{host}:25")).expect_err(host).to_string();
            assert!(error.contains("local relay: pass --spf") && !error.contains("hush"), "{error}");
        }
    }
}
