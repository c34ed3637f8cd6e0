//! `svc storage`: the object storage of a project.

use client::types::StorageStatus;

use crate::error::CliError;
use crate::output::{bytes, fields, or_dash, yes_or_no};
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Storage {
    /// Show whether storage is enabled, and its usage
    Status,
    /// Enable storage, which worker code uses as env.storage
    Enable,
    /// Disable storage, and keep its objects
    Disable,
}

impl Storage {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        match self {
            Self::Status => svc.out.response(&client.storage_get(&org, &project).send().await?, show),
            Self::Enable => {
                svc.out.response(&client.storage_grant(&org, &project).send().await?, show)?;
                svc.out.success("enabled storage: worker code uses it as env.storage");
                Ok(())
            }
            Self::Disable => {
                let revoked = client.storage_revoke(&org, &project).send().await?;
                svc.out.empty_response(&revoked, "disabled storage: its objects are kept")
            }
        }
    }
}

fn show(status: &StorageStatus) -> String {
    let StorageStatus { enabled, prefix, quota_bytes, used_bytes, reported_at } = status;
    fields(&[
        ["enabled", yes_or_no(*enabled)],
        ["used", &format!("{} of {}", bytes(*used_bytes), bytes(*quota_bytes))],
        ["reported", &or_dash(reported_at.as_deref())],
        ["prefix", &or_dash(prefix.as_deref())],
    ])
}
