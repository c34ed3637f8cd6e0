//! `svc hostnames`: the hostnames of a project.

use client::types::{Hostname, HostnameState, NewHostname, NewHsts};

use crate::error::CliError;
use crate::output::{or_dash, table};
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Hostnames {
    /// List the hostnames of a project
    List,
    /// Claim a hostname, which is served after ownership verification. If another project has it, prints the TXT record
    /// that takes it over
    Add { name: String },
    /// Verify the ownership of a hostname now. Exits with 8 if it is not verified
    Verify { name: String },
    /// Set or remove Strict-Transport-Security of a hostname, with which browsers use only https for it
    Hsts(HstsOptions),
    /// Remove a hostname
    Remove { name: String },
}

#[derive(clap::Args)]
pub struct HstsOptions {
    name: String,
    /// How long browsers remember the header, in seconds; with 0 they forget it
    #[arg(long, value_name = "SECONDS", required_unless_present = "off")]
    max_age: Option<i32>,
    /// Apply it to all subdomains too, including those that other servers serve
    #[arg(long)]
    include_subdomains: bool,
    /// Allow browsers to include the hostname in their preload lists; requires --include-subdomains and a year
    #[arg(long)]
    preload: bool,
    /// Stop sending the header; browsers remember it until its time is over
    #[arg(long, conflicts_with_all = ["max_age", "include_subdomains", "preload"])]
    off: bool,
}

impl Hostnames {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let (hostname, is_verification) = match self {
            Self::List => {
                let page = client.hostnames_list(&org, &project).send().await?;
                return svc.out.response(&page, |page| {
                    let rows = page.items.iter().map(|it| {
                        let error = it.last_error.as_deref().or(it.tls.last_error.as_deref());
                        let (kind, state, tls) = (it.kind.to_string(), it.state.to_string(), it.tls.state.to_string());
                        [it.name.clone(), kind, state, tls, hsts_value(it), or_dash(error)]
                    });
                    table(["NAME", "KIND", "STATE", "TLS", "HSTS", "LAST ERROR"], rows)
                });
            }
            Self::Hsts(HstsOptions { name, off: true, .. }) => {
                let removed = client.hostnames_hsts_delete(&org, &project, &name).send().await?;
                return svc.out.empty_response(&removed, format!("{name} sends no Strict-Transport-Security"));
            }
            Self::Hsts(options) => {
                let HstsOptions { name, max_age, include_subdomains, preload, .. } = options;
                let (include_sub_domains, preload) = (Some(include_subdomains), Some(preload));
                let hsts = NewHsts { max_age: max_age.unwrap_or_default(), include_sub_domains, preload };
                let hostname = client.hostnames_hsts_set(&org, &project, &name, &hsts).send().await?;
                return svc.out.response(&hostname, |it| format!("{}  {}", it.name, hsts_value(it)));
            }
            Self::Remove { name } => {
                let removed = client.hostnames_delete(&org, &project, &name).send().await?;
                return svc.out.empty_response(&removed, format!("removed {name}"));
            }
            Self::Add { name } => (client.hostnames_add(&org, &project, &NewHostname { name }).send().await?, false),
            Self::Verify { name } => (client.hostnames_verify(&org, &project, &name).send().await?, true),
        };
        // Report a failed verification even if the output is closed.
        let printed = svc.out.response(&hostname, |it| format!("{}  {}", it.name, it.state));
        print_records(svc, &hostname);
        let error = hostname.last_error.as_deref();
        let is_verified = hostname.state == HostnameState::Active && hostname.checks.is_empty();
        if is_verification && !is_verified {
            let reason = error.unwrap_or("its ownership could not be verified");
            return Err(CliError::NotVerified(format!("{}: {reason}", hostname.name)));
        }
        if let Some(error) = error {
            svc.out.warn(error);
        }
        if is_verified {
            svc.out.success(format!("{} is active", hostname.name));
        }
        printed
    }
}

/// Returns the value of Strict-Transport-Security.
fn hsts_value(hostname: &Hostname) -> String {
    let Some(hsts) = &hostname.hsts else { return "off".to_owned() };
    let directives = [(hsts.include_sub_domains, "; includeSubDomains"), (hsts.preload, "; preload")];
    let set: String = directives.iter().filter(|(is_set, _)| *is_set).map(|(_, directive)| *directive).collect();
    format!("max-age={}{set}", hsts.max_age)
}

/// Prints the records to publish for a hostname that is not active yet.
fn print_records(svc: &Svc<'_>, hostname: &Hostname) {
    if hostname.verify.is_empty() {
        return;
    }
    svc.out.info(format!("Publish one of these records, then run `svc hostnames verify {}`:", hostname.name));
    for record in &hostname.verify {
        svc.out.info(format!("  {} {} {}", record.name, record.r#type, record.value));
    }
}
