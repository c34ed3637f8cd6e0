//! `svc apps`: apps that have access to the account.

use client::types::Grant;

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Apps {
    /// List the apps that have access to your account, newest first
    List(PageArgs),
    /// End the access of an app
    Revoke {
        /// ID of the grant (SID)
        sid: String,
    },
}

impl Apps {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.oauth_grants(&page.paging()).send().await?;
                svc.out.page(&page, ["SID", "APP", "SCOPES", "LAST USED"], row)
            }
            Self::Revoke { sid } => {
                let revoked = client.oauth_grant_revoke(&sid).send().await?;
                svc.out.empty_response(&revoked, format!("revoked {sid}"))
            }
        }
    }
}

fn row(grant: &Grant) -> [String; 4] {
    let scopes: Vec<&str> = grant.scopes.iter().map(client::types::Scope::as_str).collect();
    let last_used = or_dash(grant.last_used_at.as_deref());
    [grant.sid.clone(), grant.client_name.clone(), scopes.join(" "), last_used.to_owned()]
}
