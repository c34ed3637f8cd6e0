//! `svc storage`: the object storage of a project.

use client::types::StorageStatus;
use indicatif::BinaryBytes;

use crate::error::CliError;
use crate::output::or_dash;
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
    let bytes = |count: i64| BinaryBytes(count.try_into().unwrap_or_default()).to_string();
    let rows = [
        ["enabled", if *enabled { "yes" } else { "no" }],
        ["used", &format!("{} of {}", bytes(*used_bytes), bytes(*quota_bytes))],
        ["reported", &or_dash(reported_at.as_deref())],
        ["prefix", &or_dash(prefix.as_deref())],
    ];
    rows.map(|[name, value]| format!("{name:<8}  {value}")).join("\n")
}
