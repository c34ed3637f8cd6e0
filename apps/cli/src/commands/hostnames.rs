//! `svc hostnames`: the hostnames of a project.

use client::types::{Hostname, HostnameState, NewHostname};

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
    /// Verify the ownership of a hostname now
    Verify { name: String },
    /// Remove a hostname
    Remove { name: String },
}

impl Hostnames {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let hostname = match self {
            Self::List => {
                let page = client.hostnames_list(&org, &project).send().await?;
                return svc.out.response(&page, |page| {
                    let rows = page.items.iter().map(|it| {
                        [it.name.clone(), it.kind.to_string(), it.state.to_string(), or_dash(it.last_error.as_deref())]
                    });
                    table(["NAME", "KIND", "STATE", "LAST ERROR"], rows)
                });
            }
            Self::Remove { name } => {
                let removed = client.hostnames_delete(&org, &project, &name).send().await?;
                return svc.out.empty_response(&removed, format!("removed {name}"));
            }
            Self::Add { name } => client.hostnames_add(&org, &project, &NewHostname { name }).send().await?,
            Self::Verify { name } => client.hostnames_verify(&org, &project, &name).send().await?,
        };
        svc.out.response(&hostname, |it| format!("{}  {}", it.name, it.state))?;
        print_next_step(svc, &hostname);
        Ok(())
    }
}

/// Prints the records to publish for a hostname that is not active yet.
fn print_next_step(svc: &Svc<'_>, hostname: &Hostname) {
    if hostname.state == HostnameState::Active {
        return svc.out.success(format!("{} is active", hostname.name));
    }
    svc.out.info(or_dash(hostname.last_error.as_deref()));
    svc.out.info(format!("Publish one of these records, then run `svc hostnames verify {}`:", hostname.name));
    for record in &hostname.verify {
        svc.out.info(format!("  {} {} {}", record.name, record.r#type, record.value));
    }
}
