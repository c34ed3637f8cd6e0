//! Hostnames of a project.

use client::types::{Hostname, HostnameState, NewHostname};

use crate::failure::Failure;
use crate::output::{or_dash, table};
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Hostnames {
    /// The hostnames of a project
    List,
    /// Claim a hostname; it is served once its ownership is proved
    Add { name: String },
    /// Look for the proof of a hostname now
    Verify { name: String },
    /// Give a hostname up
    Remove { name: String },
}

impl Hostnames {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let hostname = match self {
            Self::List => {
                let page = client.hostnames_list(&org, &project).send().await?;
                return svc.out.answer(&page, |page| {
                    let rows = page.items.iter().map(|it| {
                        [it.name.clone(), it.kind.to_string(), it.state.to_string(), or_dash(it.last_error.as_deref())]
                    });
                    table(["NAME", "KIND", "STATE", "LAST ERROR"], rows)
                });
            }
            Self::Remove { name } => {
                let removed = client.hostnames_delete(&org, &project, &name).send().await?;
                return svc.out.gone(&removed, format!("removed {name}"));
            }
            Self::Add { name } => client.hostnames_add(&org, &project, &NewHostname { name }).send().await?,
            Self::Verify { name } => client.hostnames_verify(&org, &project, &name).send().await?,
        };
        svc.out.answer(&hostname, |it| format!("{}  {}", it.name, it.state))?;
        tell(svc, &hostname);
        Ok(())
    }
}

/// What is still to be done for it.
fn tell(svc: &Svc<'_>, hostname: &Hostname) {
    if hostname.state == HostnameState::Active {
        return svc.out.done(format!("{} is served", hostname.name));
    }
    svc.out.say(or_dash(hostname.last_error.as_deref()));
    svc.out.say("Publish one of these records, then `svc hostnames verify`:");
    for record in &hostname.verify {
        svc.out.say(format!("  {} {} {}", record.name, record.r#type, record.value));
    }
}
